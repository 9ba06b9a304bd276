"""The page: all parts in their order, in one file."""

from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path

from onesigma.pages.html.page import page
from onesigma.pages.report import sections
from onesigma.pages.report.diagram import show_graph
from onesigma.pages.report.findings import FAMILIAR, OURS, Cost, Findings
from onesigma.pages.report.words import LIMITS
from onesigma.report import Report
from onesigma.storage.atomic import replacing


def write(
    found: Findings, path: Path, *, cost: Cost | str | None = None, command: str = ""
) -> None:
    """Write the report as one HTML file, whole or not at all.

    ``cost`` is what was measured, or why nothing was; ``command`` is what the user typed.
    """
    text = report_page(found, cost=cost, command=command)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def report_page(found: Findings, *, cost: Cost | str | None = None, command: str = "") -> str:
    style = files("onesigma.pages.report").joinpath("report.css").read_text(encoding="utf-8")
    converted = found.converted
    parts: dict[str, tuple[str, Iterable[str]]] = {
        "graph": ("What was converted", show_graph(found)),
        "fidelity": ("Is it what Monte Carlo would say?", sections.show_fidelity(found.audit)),
        **_fitted(converted.report),
        "answers": ("How good are answers and uncertainty?", sections.show_answers(found)),
        **_guarded(found),
        "inputs": ("Most and least certain inputs", sections.show_inputs(found)),
        "cost": ("What it costs", sections.show_cost(converted, cost or "not measured")),
        "assumptions": ("Assumptions", sections.show_assumptions(converted.report)),
        "limits": ("Limits", ["<ul>", *(f"<li>{escape(text)}</li>" for text in LIMITS), "</ul>"]),
        "origin": ("How this page was made", sections.show_origin(found, command)),
    }
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f"{''.join(content)}</section>"
        for name, (title, content) in parts.items()
    )
    cards = "".join(
        f'<a class="card" href="#{part}"><b>{escape(figure)}</b>{escape(text)}</a>'
        for part, figure, text in _headlines(found, cost)
    )
    top = f'{_header(found)}<div class="cards headlines">{cards}</div>'
    title = f"{found.name}: answers and uncertainty"
    return page(title, [f"<main>{top}{body}</main>"], style=style)


def _fitted(report: Report) -> dict[str, tuple[str, Iterator[str]]]:
    """A part about the forms that were tried, for a network that was fitted."""
    if not report.candidates:
        return {}
    return {"forms": ("What fit tried", sections.show_candidates(report))}


def _guarded(found: Findings) -> dict[str, tuple[str, Iterator[str]]]:
    """A part about novelty and the input contract, for a model that has them."""
    if not found.guarded:
        return {}
    return {"guard": ("Does it know this input?", sections.show_guard(found))}


def _header(found: Findings) -> str:
    sites = len(found.converted.report.sites)
    shape = " × ".join(map(str, found.inputs.shape[1:]))
    part = f" (1 of {found.step} in the file)" if found.step > 1 else ""
    given = "without" if found.labels is None else "with"
    return (
        f'<header><p class="kicker">onesigma report</p><h1>{escape(found.name)}</h1>'
        f'<p class="lead">A network with {sites} dropout{"s" * (sites != 1)}, converted to give '
        f"its answer and its uncertainty in one pass, on {len(found.inputs):,} inputs{part} of "
        f"{shape} values {given} labels.</p></header>"
    )


def _headlines(found: Findings, cost: Cost | str | None) -> Iterator[tuple[str, str, str]]:
    """Part of the page, figure, what it says."""
    if found.audit.layers:
        ratio = f"{found.audit.layers[-1].std_ratio:.2f}×"
        yield "fidelity", ratio, "Monte Carlo’s spread at the last layer; 1 is perfect"
    if found.audit.output is not None:
        same = f"{100 * found.audit.output.label_agreement:.0f} %"
        yield "fidelity", same, "of inputs get the label that Monte Carlo gives"
    if found.labels is not None and found.classifies:
        right = sections.show_figure("accuracy", found.figures()[OURS]["accuracy"])
        yield "answers", right, "of the answers are right"
    if found.rule is not None:
        acted = f"{100 * float(found.rule(found.ours).double().mean()):.0f} %"
        yield "answers", acted, f"of inputs acted on, for a risk of {100 * found.rule.risk:.3g} %"
    if found.guarded:
        share = found.familiarity()[FAMILIAR] / len(found.inputs)
        yield "guard", f"{100 * share:.0f} %", "of inputs are familiar"
    if isinstance(cost, Cost):
        for row in [row for row in cost.rows if row.contender == OURS][-1:]:
            yield "cost", f"{row.ratio:.1f}×", f"the plain network’s time in {row.runtime}"
