"""The page: all parts in their order, in one file."""

import re
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path

from onesigma.pages.html.page import page
from onesigma.pages.report import sections
from onesigma.pages.report.findings import FAMILIAR, OURS, Cost, Findings
from onesigma.pages.report.verdict import last_row, next_steps, not_measured, verdict
from onesigma.pages.report.words import LIMITS
from onesigma.storage.atomic import write_text


def write(
    found: Findings, path: Path, *, cost: Cost | str | None = None, command: str = ""
) -> None:
    """Write the report as one HTML file, whole or not at all.

    ``cost`` is what was measured, or why nothing was; ``command`` is what the user typed.
    """
    write_text(path, report_page(found, cost=cost, command=command))


def report_page(found: Findings, *, cost: Cost | str | None = None, command: str = "") -> str:
    style = files("onesigma.pages.report").joinpath("report.css").read_text(encoding="utf-8")
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f"{''.join(content)}</section>"
        for name, title, content in _parts(found, cost, command)
    )
    cards = "".join(
        f'<a class="card" href="#{part}"><b>{escape(figure)}</b>{escape(text)}</a>'
        for part, figure, text in _headlines(found, cost)
    )
    top = f'{_header(found, cost)}<div class="cards headlines">{cards}</div>'
    title = f"{found.name}: answers and uncertainty"
    return page(title, [f"<main>{top}{body}</main>"], style=style)


def _parts(
    found: Findings, cost: Cost | str | None, command: str
) -> Iterator[tuple[str, str, Iterable[str]]]:
    """The parts of the page: name, title and content."""
    steps = "".join(f"<li>{escape(step)}</li>" for step in next_steps(found))
    steps = re.sub("`([^`]*)`", r"<code>\1</code>", steps)
    yield "next", "What to do next", [f"<ol>{steps}</ol>"]
    yield "answers", "How good are answers and uncertainty?", sections.show_answers(found)
    if found.wrong is not None:
        yield "classes", "Which class is taken for which?", sections.show_classes(found)
    if found.guarded:
        yield "guard", "Does it know this input?", sections.show_guard(found)
    yield "inputs", "Most and least certain inputs", sections.show_inputs(found)
    yield "cost", "What it costs", sections.show_cost(found.converted, cost or "not measured")
    yield "fidelity", "Is it what Monte Carlo would say?", sections.show_fidelity(found)
    origin = sections.show_origin(found, command, LIMITS)
    yield "origin", "Limits, and how this page was made", origin


def _header(found: Findings, cost: Cost | str | None) -> str:
    shape = " × ".join(map(str, found.inputs.shape[1:]))
    part = f" (1 of {found.step} in the file)" if found.step > 1 else ""
    given = "without" if found.labels is None else "with"
    missing = "; ".join(not_measured(found, cost))
    said = escape(verdict(found, cost)).replace(" %", "&nbsp;%")
    return (
        f'<header><p class="kicker">onesigma report</p><h1>{escape(found.name)}</h1>'
        f'<p class="verdict">{said}</p><p class="small">Measured on '
        f"{len(found.inputs):,} inputs{part} of {shape} values {given} labels."
        f"{f' Not measured: {escape(missing)}.' if missing else ''}</p></header>"
    )


def _headlines(found: Findings, cost: Cost | str | None) -> Iterator[tuple[str, str, str]]:
    """The cards at the top: the part that each leads to, a figure, what that says."""
    if found.labels is not None and found.classifies:
        right = sections.show_figure("accuracy", found.figures()[OURS]["accuracy"])
        yield "answers", right, "of the answers are right"
    if found.rule is not None and found.acted is not None:
        acted = sections.percent(found.acted.mean())
        yield "answers", acted, f"of inputs acted on, for a risk of {100 * found.rule.risk:.3g} %"
    if found.guarded:
        share = found.familiarity()[FAMILIAR] / len(found.inputs)
        yield "guard", sections.percent(share), "of inputs are familiar"
    if found.audit.output is not None:
        same = sections.percent(found.audit.output.label_agreement)
        yield "fidelity", same, "of inputs get the label that Monte Carlo gives"
    if row := last_row(cost):
        yield "cost", f"{row.ratio:.2f}×", f"the plain network’s time in {row.runtime}"
