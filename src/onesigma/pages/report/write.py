"""The page: all parts in their order, in one file."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from onesigma.lab.bench.runtimes import runtime
from onesigma.pages.html.page import facts, folded, page
from onesigma.pages.html.page import words as prose
from onesigma.pages.report import (
    answers,
    cost,
    diagram,
    fidelity,
    samples,
    words,
)
from onesigma.pages.report.gather import OURS, Findings
from onesigma.report import Report
from onesigma.storage.atomic import replacing
from onesigma.version import __version__


def write(found: Findings, path: Path, *, command: str = "") -> None:
    """Write the report, whole or not at all; ``command`` is what was typed for it."""
    text = report_page(found, command)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def report_page(found: Findings, command: str = "") -> str:
    style = files("onesigma.pages.report").joinpath("report.css").read_text(encoding="utf-8")
    parts = {
        "graph": ("What was converted", diagram.section(found)),
        "fidelity": ("Is it what Monte Carlo would say?", fidelity.section(found.audit)),
        "answers": ("How good are the answers, and the doubt?", answers.section(found)),
        "samples": ("Most and least certain inputs", samples.section(found)),
        "cost": ("What it costs", cost.section(found.converted, found.times)),
        "assumptions": ("Assumptions", _assumptions(found.converted.report)),
        "limits": ("Limits", _limits()),
        "made": ("How this page was made", _made(found, command)),
    }
    body = [_header(found), _cards(found)]
    body += [_section(name, *part) for name, part in parts.items()]
    return page(f"{found.name}: answers and doubt", [f"<main>{''.join(body)}</main>"], style=style)


def _section(name: str, title: str, content: Iterable[str]) -> str:
    head = f'<h2 id="{name}-title">{title}</h2>'
    start = f'<section id="{name}" aria-labelledby="{name}-title">'
    return f"{start}{head}{''.join(content)}</section>"


def _header(found: Findings) -> str:
    sites = len(found.converted.report.sites)
    shape = " × ".join(map(str, found.inputs.shape[1:]))
    part = f" (1 of {found.step} in the file)" if found.step > 1 else ""
    given = "without" if found.labels is None else "with"
    return (
        f'<header><p class="kicker">onesigma report</p><h1>{escape(found.name)}</h1>'
        f'<p class="lead">A network with {sites} dropout{"s" * (sites != 1)}, converted to give '
        f"its answer and its doubt in one pass, on {len(found.inputs):,} inputs{part} of {shape} "
        f"values {given} labels.</p></header>"
    )


def _cards(found: Findings) -> str:
    cards = "".join(
        f'<a class="card" href="#{part}"><b>{escape(figure)}</b>{escape(text)}</a>'
        for part, figure, text in _headlines(found)
    )
    return f'<div class="cards headlines">{cards}</div>'


def _headlines(found: Findings) -> Iterator[tuple[str, str, str]]:
    """Part of the page, figure, what it says."""
    if found.audit.layers:
        last = found.audit.layers[-1]
        yield (
            "fidelity",
            f"{last.std_ratio:.2f}×",
            "Monte Carlo’s spread at the last layer; 1 is perfect",
        )
    if found.audit.output is not None:
        same = found.audit.output.label_agreement
        yield "fidelity", f"{100 * same:.0f} %", "of inputs get the label that Monte Carlo gives"
    if found.labels is not None and found.classifies:
        right = found.figures()[OURS]["accuracy"]
        yield "answers", answers.show("accuracy", right), "of the answers are right"
    if found.rule is not None:
        acted = float(found.rule(found.ours).double().mean())
        text = f"of inputs acted on, for a risk of {100 * found.rule.risk:.3g} %"
        yield "answers", f"{100 * acted:.0f} %", text
    if not isinstance(found.times, str) and found.times.rows:
        name = found.times.rows[-1].runtime
        if row := found.times.row(cost.OURS, name):
            text = f"the plain network’s time in {runtime(name).title}"
            yield "cost", f"{row.timing.ratio:.1f}×", text


def _assumptions(report: Report) -> Iterator[str]:
    counts = {s: sum(e.status == s for e in report.entries) for s in ("certain", "exact")}
    yield (
        f"<p>Of {len(report.entries)} operations, {counts['certain']} come before any dropout and "
        f"are computed as ever, {counts['exact']} carry the doubt exactly, and "
        f"{len(report.approximate)} rest on an assumption that does not quite hold there:</p>"
    )
    rows: dict[str, list[str]] = {}
    for entry in report.approximate:
        op = entry.op.removeprefix("aten.")
        rows.setdefault(entry.note, []).append(f"{entry.module or entry.node} ({op})")
    body = "".join(
        f'<tr><th scope="row">{escape(note or "approximate")}</th>'
        f"<td>{escape(', '.join(where))}</td></tr>"
        for note, where in rows.items()
    )
    if rows:
        yield prose(("assumption", "where"), body)
    yield "".join(f'<p class="small">Note: {escape(note)}</p>' for note in report.notes)


def _limits() -> Iterator[str]:
    yield f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in words.LIMITS)}</ul>"


def _made(found: Findings, command: str) -> Iterator[str]:
    settings = found.converted.settings
    modes = f"mean {settings.mean}, variance {settings.variance}, {settings.task}"
    if settings.temperature is not None:
        modes += f", temperature {settings.temperature.value:.3f}"
    versions = {
        "onesigma": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "Python": platform.python_version(),
    }
    known = [
        ("command", f"<code>{escape(command)}</code>"),
        ("conversion", escape(modes)),
        ("Monte Carlo", f"{found.passes} passes, seed 0"),
        ("versions", escape(", ".join(f"{k} {v}" for k, v in versions.items()))),
    ]
    yield facts(known if command else known[1:])
    yield folded("The conversion report", f"<pre>{escape(str(found.converted.report))}</pre>")
