"""One HTML file with everything in it: tables, figures, what the data is, what was not reached."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from onesigma.experiments import paper, pictures, summary, tables
from onesigma.experiments.methods import OURS
from onesigma.experiments.summary import Result

_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #222; max-width: 1180px;
  margin: 2rem auto; padding: 0 1.2rem }
h1 { font-size: 1.9rem; margin-bottom: .2rem }
h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1.2rem }
h3 { margin: 2rem 0 .4rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .84rem; margin: .6rem 0 1rem }
th, td { padding: .34rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #e6e6e6 }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff }
.prose td, .prose th { text-align: left }
thead th { border-bottom: 2px solid #888 }
tr.ours td, td.ours, th.ours { background: #eaf3fa }
tr.paper td { color: #777; font-style: italic }
.quick { background: #b3261e; color: #fff; padding: .7rem 1rem; border-radius: 6px }
.standin { background: #fff4d6; padding: .6rem 1rem; border-radius: 6px }
.no { color: #b3261e; font-weight: 600 }
img { max-width: 100% }
figure { margin: 1.4rem 0 }
figcaption, .small { color: #555; font-size: .9rem }
"""
_HOW = (
    "Ours is one forward pass of the trained network, converted; its gains were fitted on "
    "unlabelled training inputs, against Monte-Carlo dropout of the same network. BackboneDNN, "
    "MCDrop and ours are the same weights. Networks were trained on clean input. Epochs and the "
    "temperatures (“, T”) were chosen on validation data; test data decided nothing. "
    "± is one standard deviation over trials. Under noise, figures are of inputs that lie in the "
    "noise as a whole. The paper’s input prior is not used."
)
_GAUSSIAN = (
    "Gaussian NLL is the paper’s formula on one-hot labels, with mean and variance of the class "
    "probabilities; it is ruled by tiny variances, so NLL is the one to compare. Which of the two "
    "the paper prints, and which F1, it does not say."
)


def write(results: Sequence[Result], folders: Sequence[Path], path: Path) -> None:
    """Write the report of some tasks, whole or not at all.

    Args:
        results: of ``reproduce.run_task``.
        folders: where the figures of each lie.
        path: the file to write.
    """
    quick = any(result["plan"]["quick"] for result in results)
    banner = f'<p class="quick">{escape(tables.QUICK)}</p>' if quick else ""
    title = "The Benefit of the Doubt, reproduced" + (" (QUICK LOOK)" if quick else "")
    sections = (
        line
        for result, folder in zip(results, folders, strict=True)
        for line in _section(result, folder)
    )
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{title}</h1>{banner}<p>{escape(_HOW)}</p>{''.join(sections)}</body></html>\n"
    )
    tables.put(path, page)


def _section(result: Result, folder: Path) -> Iterator[str]:
    lines = [line for line in tables.header(result) if line != tables.QUICK]
    yield f"<h2>{escape(result['task'])}: {escape(result['data'])}</h2>"
    kind = "" if paper.numbers(result["data"]) else ' class="standin"'
    yield f"<p{kind}>{escape(' '.join(lines))} Classes: {escape(', '.join(result['classes']))}.</p>"
    yield "<h3>The paper’s table, on clean test input</h3>"
    head, *rows = tables.table_1(result)
    yield _table(["", *head[2:]], [[row[0], *row[2:]] for row in rows])
    cited = f" In italics: {paper.CITATION}." if paper.numbers(result["data"]) else ""
    yield f'<p class="small">{escape(_GAUSSIAN + cited)}</p>'
    yield from _goals(result)
    yield from _conditions(result)
    yield from _foreign(result)
    yield "<h3>Figures</h3>"
    for name, caption in pictures.CAPTIONS.items():
        data = base64.b64encode((folder / name).read_bytes()).decode()
        yield f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        yield f"<figcaption>{escape(caption)} {escape(result['data'])}.</figcaption></figure>"
    about = "; ".join(f"{key} {value}" for key, value in result["about"].items())
    yield f'<p class="small">Made with {escape(about)}.</p>'


def _goals(result: Result) -> Iterator[str]:
    found = summary.goals(result)
    met = sum(goal.met for goal in found)
    yield f"<h3>What was to be shown: {met} of {len(found)} hold</h3>"
    if result["plan"]["quick"]:
        yield "<p>A quick look proves neither yes nor no: its networks are hardly trained.</p>"
    rows = [["yes" if g.met else "NO", g.where, g.text, g.numbers] for g in found]
    yield _table(["met", "where", "goal for ours", "figures"], rows, "prose")


def _conditions(result: Result) -> Iterator[str]:
    for condition, table in summary.labelled(result).items():
        names = [*tables.SHOWN, *tables.TEMPERED]
        right_wrong = ["entropy right", "entropy wrong", "confidence right", "confidence wrong"]
        rows = [
            [method, *(tables.show(n, figures[n]) for n in (*names, *right_wrong))]
            for method, figures in table.items()
        ]
        yield f"<h3>{escape(condition)}: {result['conditions'][condition]} inputs</h3>"
        yield _table(["", *names, *right_wrong], rows)


def _foreign(result: Result) -> Iterator[str]:
    yield "<h3>Spotting foreign input</h3>"
    yield "<p>Against clean test input; the score that a threshold would be set on is named.</p>"
    rows = summary.foreign(result)
    for kind in dict.fromkeys(row.input for row in rows):
        cells = [
            [f"{r.method}, {r.score}", *(tables.show(name, s) for name, s in r.figures.items())]
            for r in rows
            if r.input == kind
        ]
        yield f"<h4>{escape(kind)}</h4>" + _table(["", "AUROC", "AUPR", "FPR95"], cells)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        def kind(name: str, text: str) -> str:
            return ' class="ours"' if name == OURS else ' class="no"' if text == "NO" else ""

        pairs = zip(head, row, strict=True)
        return "".join(f"<{tag}{kind(name, text)}>{escape(text)}</{tag}>" for name, text in pairs)

    def opening(row: Sequence[str]) -> str:
        if row[0].startswith(OURS):
            return '<tr class="ours">'
        return '<tr class="paper">' if row[0].endswith("(the paper's)") else "<tr>"

    body = "".join(f"{opening(row)}{cells('td', row)}</tr>" for row in rows)
    top = f"<thead><tr>{cells('th', head)}</tr></thead>"
    return f'<div class="scroll"><table class="{kind}">{top}<tbody>{body}</tbody></table></div>'
