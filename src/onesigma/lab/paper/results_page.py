"""One HTML file with everything in it: tables, figures, what the data is, what was not reached."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from onesigma.lab.paper import methods, pictures, summary, tables
from onesigma.lab.paper.conditions import CLEAN
from onesigma.lab.paper.methods import COLUMNS, OURS, PLAIN
from onesigma.lab.paper.summary import SAMPLED, Goal, Result, goals, papers_numbers, tally
from onesigma.pages.html.page import facts, folded, page, table, words
from onesigma.storage.atomic import write_text

TITLES = {
    "hhar": "Activities from motion spectra",
    "opportunity": "Locomotion from body-worn sensors",
    "speech": "Ten spoken words",
}
_RIGHT_AND_WRONG = ("entropy right", "entropy wrong", "confidence right", "confidence wrong")
_HIGHER_IS_BETTER = ("accuracy", "F1 macro", "F1 weighted", "error AUROC, entropy")

# The colours of the plots → those of page.css, so that a drawing follows light and dark.
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

HOW = (
    "Ours is one forward pass of the trained network, converted, and calibrated against "
    "Monte-Carlo dropout of the same network on unlabelled training inputs. BackboneDNN, MCDrop "
    "and ours are the same weights. All networks were trained on clean input. When to stop "
    "training, and the temperatures, were decided on validation data; test data decided nothing. "
    "Under noise, figures are of inputs that lie in the noise as a whole. The paper’s input prior "
    "is not used."
)
METHODS = {
    "Ours": "the converted network: mean and variance carried through every layer, one pass",
    "BackboneDNN": "the plain network and its softmax, dropout off",
    "ApDeepSense": "a network of five fully connected layers of 512, its moments carried through "
    "likewise, and one softmax of the mean",
    "MCDrop-k": "Monte-Carlo dropout: k passes with dropout on, their softmax averaged",
    "DeepEnsemble-k": "k networks trained apart, their softmax averaged; needs k trainings",
}
FIGURES = {
    "accuracy, F1": "how often the answer is right; F1 averaged over classes (macro) or weighted",
    "NLL": "negative log-likelihood of the true class in nats: what being sure and wrong costs. "
    "Lower is better",
    "Gaussian NLL": "the paper’s formula, on one-hot labels with mean and variance of the class "
    "probabilities. It is ruled by tiny variances, so NLL is the one to compare. Which of the "
    "two the paper prints, and which F1, it does not say",
    "Brier": "squared distance of the probabilities from the truth; lower is better",
    "ECE": "expected calibration error: how far 80 % confidence is from right 80 % of the time, "
    "15 bins. Lower is better",
    "…, T": "the same after one temperature, fitted on validation data, for each method its own",
    "error AUROC, entropy": "how well entropy puts wrong answers above right ones: 0.5 is chance, "
    "1 perfect",
    "AUROC, AUPR, FPR95": "how well a score tells foreign input from clean test input; FPR95 is "
    "the share of known input flagged when 95 % of the foreign is found, lower is better",
    "epistemic": "mutual information of answer and network: how much the sub-networks that dropout "
    "leaves disagree. Entropy is all uncertainty; energy and max-probability are scores of "
    "the plain network",
    "±": "one standard deviation over trials; in the table of goals, one standard error. Large "
    "ensembles share members between trials, so theirs is too small",
}


def write(results: Sequence[Result], folders: Sequence[Path], path: Path) -> None:
    """Write the report of some tasks, whole or not at all.

    Args:
        results: of ``reproduce.run_task``.
        folders: where the figures of each lie.
        path: the file to write.
    """
    quick = any(result["plan"]["quick"] for result in results)
    title = "The Benefit of the Doubt, reproduced" + (" (QUICK LOOK)" if quick else "")
    body = [
        f'<header><p class="kicker">onesigma, reproduction of the paper</p><h1>{title}</h1>'
        '<p class="lead">Can a network say how sure it is in a single pass? Ten methods, on clean '
        "input, in growing noise, and on input that is nothing they know.</p></header>",
        f'<p class="quick">{escape(tables.QUICK)}</p>' if quick else "",
        f'<div class="cards">{"".join(_card(result) for result in results)}</div>',
        f"<p>{escape(HOW)}</p>",
        _terms("What the methods are", METHODS),
        _terms("What the figures mean", FIGURES),
        *(line for each in zip(results, folders, strict=True) for line in _section(*each)),
    ]
    write_text(path, page(title, body))


def _terms(title: str, pairs: Mapping[str, str]) -> str:
    return folded(title, facts([(name, escape(text)) for name, text in pairs.items()], "terms"))


def _chip(result: Result) -> str:
    same = bool(papers_numbers(result["data"]))
    kind, note = ("", "the paper’s dataset") if same else (" standin", "not the paper’s data")
    return f'<span class="chip{kind}">{escape(result["data"])}: {note}</span>'


def _card(result: Result) -> str:
    """The task in a few figures."""
    found, condition = summary.tabulate(result), pictures.middle(result)
    reached = goals(result)
    judged = [goal.holds for goal in reached if goal.holds is not None]
    meter = f'<meter max="{len(judged)}" value="{sum(judged)}"></meter>' if judged else ""
    spot = next(goal for goal in reached if goal.part == "foreign")
    shown = (("accuracy", CLEAN), ("NLL", CLEAN), ("NLL", condition))
    lines = [
        (f"{figure}, {where}", found[where][OURS][figure].mean, found[where][PLAIN][figure].mean)
        for figure, where in shown
    ]
    lines.append((f"AUROC, {spot.where}", spot.ours, spot.theirs))
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{ours:.3f}</td><td>{plain:.3f}</td></tr>'
        for name, ours, plain in lines
    )
    return (
        f'<a class="card" href="#{result["task"]}">{_chip(result)}<h3>{TITLES[result["task"]]}</h3>'
        f"Goals: {tally(reached)}{meter}<table><thead><tr><th></th><th>{OURS}</th><th>{PLAIN}</th>"
        f"</tr></thead><tbody>{rows}</tbody></table></a>"
    )


def _section(result: Result, folder: Path) -> Iterator[str]:
    task = result["task"]
    yield f'<section id="{task}"><h2>{TITLES[task]}</h2>{_chip(result)}'
    yield facts(_data(result))
    yield from _table_1(result)
    yield from _noise(result, folder)
    yield from _foreign(result, folder)
    yield "<h3>Sure when right, unsure when wrong?</h3>"
    yield _drawing(result, folder, "densities-clean")
    yield folded("In noise", _drawing(result, folder, "densities-noise"))
    yield from _goals(result)
    yield "<h3>What it costs</h3>" + _drawing(result, folder, "latency")
    yield f"<h3>How these figures were made</h3>{facts(provenance(result))}</section>"


def _drawing(result: Result, folder: Path, name: str) -> str:
    caption = f"{pictures.CAPTIONS[name]} {result['data']}."
    return drawing(folder / f"{name}.svg", caption, f"{result['task']}-{name}")


def drawing(path: Path, caption: str, prefix: str) -> str:
    """An SVG file as part of the page; `prefix` keeps its ids apart from other drawings' ids."""
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


def _data(result: Result) -> Iterator[tuple[str, str]]:
    sizes, plan = result["sizes"], result["plan"]
    yield "inputs", ", ".join(f"{count:,} {part}" for part, count in sizes.items())
    foreign = (f"{count:,} {kind}" for kind, count in result["foreign"].items())
    yield "foreign inputs", escape(", ".join(foreign))
    yield "classes", escape(", ".join(result["classes"]))
    yield "trials", f"{plan['trials']}, drawn from a pool of {plan['members']} trained networks"
    if result["held out"]:
        yield "held out", f"trained once more without {escape(result['held out']['activity'])}"


def _table_1(result: Result) -> Iterator[str]:
    yield "<h3>The paper’s table, on clean test input</h3>"
    head, *rows = tables.table_1(result)
    found = summary.tabulate(result)[CLEAN]
    best = {
        (number, COLUMNS.index(_best(found, row[0])) + 1)
        for number, row in enumerate(rows)
        if row[0] in tables.TABLE_1
    }
    yield table(["", *head[2:]], [[row[0], *row[2:]] for row in rows], best=best, mark=_mark)
    if papers_numbers(result["data"]):
        yield f'<p class="small">In italics: {escape(summary.CITATION)}.</p>'


def _mark(name: str) -> str:
    if name.endswith(tables.PAPERS):
        return "paper"
    return "ours" if name.split(",")[0] == OURS else ""


def _best(found: dict[str, dict[str, summary.Spread]], figure: str) -> str:
    """The column with the best mean; NaN is never it."""
    sign = 1 if figure in _HIGHER_IS_BETTER else -1
    means = {name: sign * figures[figure].mean for name, figures in found.items()}
    return max((name for name in means if means[name] == means[name]), key=lambda name: means[name])


def _noise(result: Result, folder: Path) -> Iterator[str]:
    found, condition = summary.tabulate(result), pictures.middle(result)
    nll = {name: found[condition][name]["NLL"].mean for name in (OURS, PLAIN, SAMPLED)}
    yield "<h3>As the noise grows</h3>"
    yield (
        f"<p>In {escape(condition)}, NLL is {nll[OURS]:.2f} for ours, {nll[PLAIN]:.2f} for the "
        f"plain network and {nll[SAMPLED]:.2f} for {SAMPLED}.</p>"
    )
    yield _drawing(result, folder, "noise")
    for name, rows in found.items():
        shown = [*tables.SHOWN, *tables.WITH_TEMPERATURE]
        cells = [
            [method, *(tables.show_spread(f, figures[f]) for f in (*shown, *_RIGHT_AND_WRONG))]
            for method, figures in rows.items()
        ]
        best = {
            (list(rows).index(_best(rows, figure)), column)
            for column, figure in enumerate(shown, 1)
            if figure != "temperature"
        }
        title = f"All figures: {name}, {result['conditions'][name]:,} inputs"
        yield folded(title, table(["", *shown, *_RIGHT_AND_WRONG], cells, best=best, mark=_mark))


def _foreign(result: Result, folder: Path) -> Iterator[str]:
    yield "<h3>Spotting foreign input</h3>"
    yield "<p>Against clean test input, by the score that a threshold would be set on.</p>"
    yield _drawing(result, folder, "foreign")
    rows = summary.foreign_rows(result)
    for kind in dict.fromkeys(row.input for row in rows):
        cells = [
            [
                f"{r.method}, {r.score}",
                *(tables.show_spread(name, s) for name, s in r.figures.items()),
            ]
            for r in rows
            if r.input == kind
        ]
        yield folded(
            f"All scores: {kind}", table(["", "AUROC", "AUPR", "FPR95"], cells, mark=_mark)
        )


def _goals(result: Result) -> Iterator[str]:
    found = goals(result)
    yield f"<h3>What was to be shown: {tally(found)}</h3>"
    yield (
        '<p class="small">“Better by” is the mean over trials of the difference within a trial, '
        "± one standard error. A verdict within one standard error could turn with other seeds."
        "</p>"
    )
    rows = []
    for number, goal in enumerate(found):
        if not number or goal.where != found[number - 1].where:
            rows.append(f'<tr class="group"><th colspan="6">{escape(goal.where)}</th></tr>')
        rows.append(_goal(goal))
    yield words(["verdict", *tables.GOAL_COLUMNS[1:-1]], "".join(rows))


def _goal(goal: Goal) -> str:
    kind = "" if goal.holds is None else ' class="holds"' if goal.holds else ' class="fails"'
    _, claim, rival, *numbers, beside = (escape(cell) for cell in tables.goal_cells(goal))
    figures = "".join(f'<td class="number">{number}</td>' for number in numbers)
    note = f"<small>for the record: {beside}</small>" if beside else ""
    return (
        f'<tr><th scope="row"><span{kind}>{goal.verdict}</span></th>'
        f"<td>{claim}{note}</td><td>{rival}</td>{figures}</tr>"
    )


def provenance(result: Result) -> Iterator[tuple[str, str]]:
    """Command, seeds, settings, time and versions, as HTML."""
    plan, about = result["plan"], result["about"]
    settings = plan["settings"]
    yield "command", f"<code>{escape(command(result))}</code>"
    yield "seeds", f"{plan['seed']} for noise and masks; network i has seed i"
    yield (
        "training",
        f"Adam {settings['learning_rate']:g}, batch {settings['batch']}, at most "
        f"{settings['epochs']} epochs, patience {settings['patience']}",
    )
    records = [*result["training"], *(result["held out"] or {"training": ()})["training"]]
    seconds = sum(record["seconds"] for record in records)
    yield "networks", f"{len(records)}, trained for {duration(seconds)} in all, two at a time"
    yield "wall-clock", f"{duration(about['seconds of this run'])} for the run that finished it"
    versions = ", ".join(f"{key} {about[key]}" for key in ("onesigma", "torch", "numpy", "python"))
    yield "versions", escape(f"{versions}; {about['machine']}")


def command(result: Result) -> str:
    """What to type for the same figures; DATA and OUT are folders."""
    plan = result["plan"]
    words = [f"onesigma reproduce {result['task']} --data-root DATA --output OUT"]
    if plan["quick"]:
        words.append("--quick")
    if plan["trials"] != (1 if plan["quick"] else methods.TRIALS):
        words.append(f"--trials {plan['trials']}")
    if plan["seed"]:
        words.append(f"--seed {plan['seed']}")
    return " ".join(words)


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
