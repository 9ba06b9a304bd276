"""The building blocks of a page that links to no other: skeleton, tables, facts."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
from importlib.resources import files


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
    mark: Callable[[str], str | None] = lambda name: None,
    kind: str = "",
) -> str:
    """Cells under their heads; the first column names the row.

    Cells at `best` (row, column) are bold; `mark` gives a row or a column its class ("ours"
    or "paper"), by its name. The kind "words" is for prose instead of numbers.
    """
    body = []
    for number, (first, *rest) in enumerate(rows):
        cells = "".join(
            f"<td{_class(mark(name), 'best' * ((number, column) in best))}>{_cell(text)}</td>"
            for column, (name, text) in enumerate(zip(head[1:], rest, strict=True), 1)
        )
        body.append(f'<tr{_class(mark(first))}><th scope="row">{escape(first)}</th>{cells}</tr>')
    return frame(_heads(head, mark), "".join(body), kind=kind)


def words(head: Sequence[str], body: str) -> str:
    """A table of prose; the caller makes its rows."""
    return frame(_heads(head), body, kind="words")


def frame(heads: str, body: str, *, kind: str = "", label: str = "") -> str:
    """A table that scrolls sideways; `heads` and `body` are HTML, `label` is for screen readers."""
    named = f' role="region" aria-label="{escape(label)}"' if label else ""
    # Focusable, so that the keyboard can scroll it too.
    return (
        f'<div{_class("scroll", kind)} tabindex="0"{named}><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, str]], kind: str = "facts") -> str:
    """Name and value, line by line; values are HTML."""
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in pairs)
    return f'<dl class="{kind}">{lines}</dl>'


def folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _heads(names: Sequence[str], mark: Callable[[str], str | None] = lambda name: None) -> str:
    def breakable(name: str) -> str:
        """A long name breaks where its words meet, and not before its number."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "<wbr>", escape(name)).replace("-", "\u2011")

    return "".join(f'<th scope="col"{_class(mark(n))}>{breakable(n)}</th>' for n in names)


def _cell(text: str) -> str:
    """The text of a cell. Of ``mean ± spread`` the spread stands below, and smaller."""
    return re.sub(r"^(\S+) ± (\S+)( %)?$", r"\1\3<small>± \2</small>", escape(text))


def _class(*names: str | None) -> str:
    found = " ".join(name for name in names if name)
    return f' class="{found}"' if found else ""
