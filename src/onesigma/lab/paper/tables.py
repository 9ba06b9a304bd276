"""The results as files: JSON (everything), CSV (for a spreadsheet), text (for a reader)."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onesigma.lab.paper import summary
from onesigma.lab.paper.conditions import CLEAN
from onesigma.lab.paper.methods import COLUMNS
from onesigma.lab.paper.summary import Goal, Result, Spread, goals, papers_numbers, tally
from onesigma.lab.paper.trial import without_nan
from onesigma.storage.atomic import write_text
from onesigma.text_table import text_table

RESULTS = "results.json"
QUICK = (
    "QUICK LOOK: tiny pools, few epochs, few test windows. These figures show that everything "
    "runs, not how good anything is."
)
# What Table 1 of the paper shows, and what it should have shown as well.
TABLE_1 = ("accuracy", "F1 macro", "F1 weighted", "NLL", "Gaussian NLL", "Brier", "ECE")
SHOWN = ("accuracy", "F1 macro", "NLL", "Brier", "ECE", "error AUROC, entropy")
WITH_TEMPERATURE = ("temperature", "NLL, T", "Brier, T", "ECE, T")
GOAL_COLUMNS = (
    *("where", "goal for ours", "compared with"),
    *("ours", "theirs", "better by", "for the record"),
)
# How the name of a row of the paper's own numbers ends.
PAPERS = "(the paper's)"
# The paper does not say which F1 it prints; it is put beside the macro one.
PAPERS_NAME = {"accuracy": "accuracy", "F1 macro": "F1", "NLL": "NLL"}


def write(result: Result, folder: Path) -> None:
    """results.json, results.txt, and as CSV table1, labelled, foreign and goals; each whole."""
    densities = {"densities": None}
    slim = result | {"trials": [trial | densities for trial in result["trials"]]}
    if result["held out"]:
        trials = [trial | densities for trial in result["held out"]["trials"]]
        slim["held out"] = result["held out"] | {"trials": trials}
    slim["quick look"] = result["plan"]["quick"]
    slim["goals"] = [goal._asdict() | {"verdict": goal.verdict} for goal in goals(result)]
    write_text(folder / RESULTS, json.dumps(without_nan(slim), indent=1))
    write_text(folder / "results.txt", show_tables(result))
    write_text(folder / "table1.csv", _csv(table_1(result)))
    write_text(folder / "labelled.csv", _csv(_labelled_rows(result)))
    write_text(folder / "foreign.csv", _csv(_foreign_rows(result)))
    write_text(folder / "goals.csv", _csv(_goal_rows(result)))


def show_spread(figure: str, spread: Spread) -> str:
    """Mean ± standard deviation; accuracies in per cent; – where there is none."""
    if math.isnan(spread.mean):
        return "–"
    percent = figure == "accuracy"
    # Of hundreds, which Gaussian NLL reaches, thousandths say nothing.
    scale, form = (100, ".1f") if percent else (1, ".3f" if abs(spread.mean) < 100 else ".0f")
    deviation = "" if math.isnan(spread.std) else f" ± {scale * spread.std:{form}}"
    return f"{scale * spread.mean:{form}}{deviation}{' %' if percent else ''}"


def header(result: Result) -> list[str]:
    """What the data is, and how much of it: to be said wherever its figures are."""
    sizes, plan = result["sizes"], result["plan"]
    lines = [QUICK] if plan["quick"] else []
    lines.append(
        f"{result['task']}: {result['data']}. {sizes['train']} training, "
        f"{sizes['validation']} validation and {sizes['test']} test inputs; "
        f"{plan['trials']} trial(s), {plan['members']} networks."
    )
    if not papers_numbers(result["data"]):
        lines.append("Not a dataset of the paper: these figures do not compare with its own.")
    return lines


def table_1(result: Result) -> Iterator[list[str]]:
    """The paper's table on clean input: its ten columns, and its numbers where the data agrees."""
    table, theirs = summary.tabulate(result)[CLEAN], papers_numbers(result["data"])
    yield ["quick look" if result["plan"]["quick"] else "", "data", *COLUMNS]
    for figure in TABLE_1:
        cells = [show_spread(figure, table[c][figure]) if c in table else "–" for c in COLUMNS]
        yield [figure, result["data"], *cells]
        if theirs and figure in PAPERS_NAME:
            name = PAPERS_NAME[figure]
            yield [f"{name} {PAPERS}", result["data"], *_papers(name, theirs)]


def show_tables(result: Result) -> str:
    """All tables for the terminal."""
    parts = ["\n".join(header(result))]
    for condition, table in summary.tabulate(result).items():
        names = [*SHOWN, *WITH_TEMPERATURE]
        rows = [[c, *(show_spread(n, figures[n]) for n in names)] for c, figures in table.items()]
        inputs = result["conditions"][condition]
        title = f"{condition}: {inputs} inputs (“, T”: after a temperature fitted on validation)"
        parts.append(title + "\n\n" + text_table(["", *names], rows, numbers=True))
    foreign_rows = [
        [r.input, r.method, r.score, *(show_spread(n, s) for n, s in r.figures.items())]
        for r in summary.foreign_rows(result)
    ]
    columns = ["foreign input", "method", "score", "AUROC", "AUPR", "FPR95"]
    parts.append(text_table(columns, foreign_rows))
    times = [
        [column, f"{ratio.mean:.1f}×", f"{ms.mean:.2f} ms"]
        for column, (ratio, ms) in summary.latencies(result).items()
    ]
    parts.append(text_table(["batch 1, one thread", "plain = 1", "time"], times, numbers=True))
    found = goals(result)
    lines = [[g.verdict, *goal_cells(g)] for g in found]
    title = f"goals: {tally(found)}"
    parts.append(title + "\n\n" + text_table(["verdict", *GOAL_COLUMNS], lines))
    return "\n\n".join(parts) + "\n"


def goal_cells(goal: Goal) -> list[str]:
    """A goal under GOAL_COLUMNS; ± is one standard error."""
    scale, form, unit = (100, ".1f", " %") if goal.claim.startswith("accuracy") else (1, ".3f", "")
    error = "" if math.isnan(goal.error) else f" ± {scale * goal.error:{form}}"
    return [
        *(goal.where, goal.claim, goal.rival),
        *(f"{scale * value:{form}}{unit}" for value in (goal.ours, goal.theirs)),
        f"{scale * goal.gain:+{form}}{error}{unit}",
        "; ".join(f"{name} {value:.3f}" for name, value in goal.beside.items()),
    ]


def _papers(name: str, theirs: dict[str, dict[str, float]]) -> list[str]:
    percent = name == "accuracy"
    values = [theirs[name][column] for column in COLUMNS]
    return [f"{100 * value:.2f} %" if percent else f"{value:g}" for value in values]


def _labelled_rows(result: Result) -> Iterator[list[Any]]:
    quick = result["plan"]["quick"]
    yield ["quick look", "data", "condition", "method", "figure", "mean", "std", "trials"]
    for condition, table in summary.tabulate(result).items():
        for method, figures in table.items():
            for figure, spread in figures.items():
                yield [quick, result["data"], condition, method, figure, *spread]


def _foreign_rows(result: Result) -> Iterator[list[Any]]:
    quick = result["plan"]["quick"]
    yield ["quick look", "data", "input", "method", "score", "figure", "mean", "std", "trials"]
    for row in summary.foreign_rows(result):
        for figure, spread in row.figures.items():
            yield [quick, result["data"], *row[:3], figure, *spread]


def _goal_rows(result: Result) -> Iterator[list[Any]]:
    found = goals(result)
    beside = list(dict.fromkeys(name for goal in found for name in goal.beside))
    yield ["quick look", "data", "verdict", *Goal._fields[:-1], *beside]
    for goal in found:
        extra = [goal.beside.get(name) for name in beside]
        yield [result["plan"]["quick"], result["data"], goal.verdict, *goal[:-1], *extra]


def _csv(rows: Iterator[list[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
