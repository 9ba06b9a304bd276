"""The building blocks of a page that links to no other: skeleton, tables, drawings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

# The colours of onesigma.lab.plots → those of page.css, so that a drawing follows light and dark.
_COLOURS = {
    "#ffffff": "card",
    "#222222": "ink",
    "#000000": "ink",
    "#555555": "soft",
    "#4d4d4d": "soft",
    "#8a8a8a": "faint",
    "#c3c8ce": "bar",
    "#0072b2": "blue",
    "#d55e00": "orange",
    "#009e73": "green",
    "#cc79a7": "pink",
}


def page(title: str, body: Iterable[str], *, style: str = "") -> str:
    """A whole page; `style` is CSS of its own, on top of what all pages share."""
    shared = files("onesigma.pages.html").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{shared}{style}</style></head><body>{''.join(body)}</body></html>\n"
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    best: Collection[tuple[int, int]] = (),
    mark: Callable[[str], str] = lambda name: "",
) -> str:
    """Numbers under their heads; the first column names the row.

    Cells at `best` (row, column) are bold; `mark` gives a row or a column its class ("ours"
    or "paper"), by its name.
    """
    body = "".join(_row(head, row, number, best, mark) for number, row in enumerate(rows))
    return _framed(f"<thead><tr>{_heads(head, mark)}</tr></thead><tbody>{body}</tbody>")


def words(head: Sequence[str], body: str) -> str:
    """A table of prose, its rows made by the caller."""
    return _framed(f"<thead><tr>{_heads(head)}</tr></thead><tbody>{body}</tbody>", "words")


def facts(pairs: Iterable[tuple[str, str]], kind: str = "facts") -> str:
    """Name and value, line by line; values are HTML."""
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in pairs)
    return f'<dl class="{kind}">{lines}</dl>'


def folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def drawing(path: Path, caption: str, prefix: str) -> str:
    """An SVG file as part of the page; `prefix` keeps its names apart from other drawings'."""
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg)
    # A hundredth of a point is as fine as a screen; numbers below 1 are scales and stay.
    svg = re.sub(r"(?<![\d.])([1-9]\d*\.\d\d)\d+", r"\1", svg)
    for colour, name in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    label = f'<svg role="img" aria-label="{escape(caption)}"'
    return (
        f'<figure><div class="scroll">{svg.replace("<svg", label, 1)}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _framed(content: str, kind: str = "") -> str:
    # Focusable, so that the keyboard can scroll it too.
    return f'<div class="scroll" tabindex="0"><table class="{kind}">{content}</table></div>'


def _heads(head: Sequence[str], mark: Callable[[str], str] = lambda name: "") -> str:
    def broken(name: str) -> str:
        """A long name breaks where its words meet, and not before its number."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "<wbr>", escape(name)).replace("-", "\u2011")

    return "".join(f'<th scope="col"{_class(mark(n))}>{broken(n)}</th>' for n in head)


def _row(
    head: Sequence[str],
    row: Sequence[str],
    number: int,
    best: Collection[tuple[int, int]],
    mark: Callable[[str], str],
) -> str:
    first, *rest = row
    cells = "".join(
        f"<td{_class(mark(name), 'best' if (number, column) in best else '')}>{_cell(text)}</td>"
        for column, (name, text) in enumerate(zip(head[1:], rest, strict=True), 1)
    )
    return f'<tr{_class(mark(first))}><th scope="row">{escape(first)}</th>{cells}</tr>'


def _cell(text: str) -> str:
    """The spread below the mean, and smaller."""
    return re.sub(r"^(\S+) ± (\S+)( %)?$", r"\1\3<small>± \2</small>", escape(text))


def _class(*names: str) -> str:
    found = " ".join(name for name in names if name)
    return f' class="{found}"' if found else ""
