"""The parts of the report, in the order of the page; the first, the graph, is in ``diagram``."""

import math
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape

import numpy as np
import numpy.typing as npt
import torch

from onesigma import metrics
from onesigma.answer import BROKEN, NOVEL, SURE, UNFAMILIAR, UNSURE
from onesigma.calibration.comparison import Audit, LayerAudit
from onesigma.converted import Converted
from onesigma.pages.html.charts import Axis, Chart, Floats, sketches
from onesigma.pages.html.page import facts, folded, frame, table
from onesigma.pages.report.findings import (
    OURS,
    PLAIN,
    SAMPLED,
    Answers,
    Cost,
    CostRow,
    Findings,
    to_array,
)
from onesigma.pages.report.words import TERMS, TEXTS
from onesigma.prediction import Prediction
from onesigma.report import Report
from onesigma.runtime.contract import Contract
from onesigma.version import __version__

Legend = list[tuple[str, str]]
KINDS = {PLAIN: "plain", OURS: "ours", SAMPLED: "sampled"}
_LOWER_IS_BETTER = {"NLL", "Brier", "ECE", "AURC", "RMSE", "mean error"}
_IN_PERCENT = {"accuracy", "within 1 std", "within 2 std"}
REASONS = (SURE, UNSURE, UNFAMILIAR, BROKEN)
_BINS = 24
_SHOWN_KINDS = 3  # of what may be odd about an input
_SHOWN_INPUTS = 6  # of the surest, and as many of the least sure
_POINTS = 240  # of a curve: as many as a screen can show
# The drawn ratios of the audit: their size, and how many times too large or small a bar may show.
_WIDTH, _HEIGHT, _WIDEST = 260, 26, 20.0


def show_fidelity(audit: Audit) -> Iterator[str]:
    """One pass against Monte Carlo, layer by layer and at the output."""
    yield f"<p>{TEXTS['fidelity']}</p><p><b>{escape(_verdict(audit))}</b></p>"
    if audit.layers:
        low = max(1 / _WIDEST, min(0.5, *(layer.low for layer in audit.layers)) / 1.1)
        high = min(_WIDEST, 1.1 * max(2.0, *(layer.high for layer in audit.layers)))
        drawn = f"spread ÷ Monte Carlo’s{_ratio_ticks(low, high)}"
        names = ("layer", drawn, "ratio", "5–95 %", "mean error", "correlation")
        heads = "".join(f'<th scope="col">{name}</th>' for name in names)
        rows = "".join(_layer(layer, low, high) for layer in audit.layers)
        yield f'<p class="small">{TEXTS["spread"]}</p>{frame(heads, rows, kind="audit")}'
    yield facts(_output_facts(audit))
    yield _explain(TERMS["audit"])


def show_candidates(report: Report) -> Iterator[str]:
    """Each form that ``fit`` tried: its cost, and how many passes it is worth on which inputs."""
    kinds = [kind.kind for kind in report.candidates[0].kinds]
    rows = [
        [
            f"{each.form}, chosen" if each.chosen else each.form,
            f"{each.cost:.2f}",
            *(f"{kind.passes:.0f} ± {kind.error:.0f}" for kind in each.kinds),
            f"{each.kinds[0].std_ratio:.2f}",
        ]
        for each in report.candidates
    ]
    head = ("form", "time ÷ plain, PyTorch", *kinds, "spread ÷ Monte Carlo’s, clean")
    yield f"<p>{TEXTS['candidates']}</p>{table(head, rows)}"


def _explain(terms: dict[str, str]) -> str:
    pairs = ((name, escape(text)) for name, text in terms.items())
    return folded("What these figures mean", facts(pairs, "terms"))


def _verdict(audit: Audit) -> str:
    """The audit in a sentence, or three."""
    worst = audit.worst
    if worst is None:
        return "No layer has any spread: there was nothing to compare before the output."

    def amount(ratio: float) -> str:
        if 0.95 <= ratio <= 1.05:
            return "that of Monte Carlo, within 5 %"
        return f"{ratio:.2f} times Monte Carlo’s: {'too sure' if ratio < 1 else 'not sure enough'}"

    last = audit.layers[-1]
    parts = [f"At the last layer the spread is {amount(last.std_ratio)}."]
    if worst.node != last.node and not 0.9 <= worst.std_ratio <= 1.1:
        parts.append(f"Furthest off is {worst.where}, where it is {amount(worst.std_ratio)}.")
    if not 0.8 <= last.std_ratio <= 1.25:
        parts.append("onesigma.calibrate(converted, x) corrects this with unlabelled inputs x.")
    return " ".join(parts)


def _ratio_place(ratio: float, low: float, high: float) -> float:
    """On a scale of logarithms; what is beyond an end stays at the end."""
    share = math.log(max(ratio, 1e-9) / low) / math.log(high / low)
    return round(_WIDTH * min(1.0, max(0.0, share)), 1)


def _ratio_ticks(low: float, high: float) -> str:
    texts = "".join(
        f'<text x="{_ratio_place(tick, low, high)}" y="11" text-anchor="middle">{tick:g}</text>'
        for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10)
        if low <= tick <= high
    )
    return f'<svg viewBox="0 0 {_WIDTH} 14" aria-hidden="true">{texts}</svg>'


def _layer(layer: LayerAudit, low: float, high: float) -> str:
    marks = (0.9, 1, 1.1, layer.low, layer.std_ratio, layer.high)
    left, one, right, begin, dot, end = (_ratio_place(mark, low, high) for mark in marks)
    middle, op = _HEIGHT / 2, layer.op.removeprefix("aten.").partition(".")[0]
    cells = (
        f"{layer.std_ratio:.2f}",
        f"{layer.low:.2f}–{layer.high:.2f}",
        f"{layer.mean_error:.3f}",
        "–" if math.isnan(layer.correlation) else f"{layer.correlation:.2f}",
    )
    return (
        f'<tr><th scope="row">{escape(layer.where)}<small>{escape(op)}</small></th>'
        f'<td><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f"<title>{escape(layer.where)}: {layer.std_ratio:.2f} times Monte Carlo’s spread</title>"
        f'<rect class="band" x="{left}" width="{right - left:.1f}" height="{_HEIGHT}"/>'
        f'<line class="one" x1="{one}" x2="{one}" y2="{_HEIGHT}"/>'
        f'<line class="range" x1="{begin}" x2="{end}" y1="{middle}" y2="{middle}"/>'
        f'<circle cx="{dot}" cy="{middle}" r="4.5"/></svg></td>'
        f"{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    )


def _output_facts(audit: Audit) -> Iterator[tuple[str, str]]:
    if (out := audit.output) is not None:
        within = ", so they cannot be told apart" if out.kl < 2 * out.kl_noise else ""
        yield (
            "class probabilities",
            f"KL to Monte Carlo {out.kl:.4f} nats (its own noise {out.kl_noise:.4f}{within}); "
            f"the plain network’s is {out.plain_kl:.4f}",
        )
        yield "same label", f"{100 * out.label_agreement:.1f} % of the inputs"
        if not math.isnan(out.entropy_correlation):
            yield "entropy", f"correlation with Monte Carlo’s {out.entropy_correlation:.3f}"
    yield (
        "measured",
        f"{audit.inputs} inputs, {audit.passes} passes; their noise is {audit.mean_noise:.3f} on "
        f"a mean error and ± {audit.ratio_noise:.3f} on a ratio",
    )


def show_answers(found: Findings) -> Iterator[str]:
    """How right the answers are, how sure, and when to act on them."""
    if not found.classifies:
        yield from _show_regression(found)
        return
    each = found.answers()
    charts = [_entropies(found, each[OURS]), _epistemic(each[OURS])]
    if found.labels is None:
        yield f'<p class="missing">{TEXTS["no_labels"]}</p>'
    else:
        figures = found.figures()
        yield from _figures(figures, TERMS["class"])
        right, count = figures[OURS]["accuracy"], len(found.inputs)
        error = 100 * math.sqrt(right * (1 - right) / count)
        yield (
            f'<p class="small">Bold is best. On {count:,} inputs the accuracy has a standard error '
            f"of {error:.1f} %: smaller differences may be chance, in the other figures too.</p>"
        )
        legend = [(KINDS[name], name) for name in each]
        charts = [_reliability(each, legend), _risk(found, each, legend), *charts]
    yield f'<div class="charts">{"".join(charts)}</div>'
    if found.rule is not None:
        own = found.converted.abstain is found.rule
        yield f'<p class="rule">{escape(str(found.rule)).replace(chr(10), "<br>")}</p>'
        yield f'<p class="small">{TEXTS["own_rule"] if own else TEXTS["fitted_rule"]}</p>'


def _figures(figures: dict[str, dict[str, float]], meaning: dict[str, str]) -> Iterator[str]:
    names = list(figures[OURS])
    rows = [
        [method, *(show_figure(n, own.get(n)) for n in names)] for method, own in figures.items()
    ]
    best = {(_best(figures, name), column) for column, name in enumerate(names, 1)}
    yield table(["", *names], rows, best=best, mark={OURS: "ours"}.get)
    yield _explain(meaning)


def show_figure(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if name in _IN_PERCENT else f"{value:.3f}"


def _best(figures: dict[str, dict[str, float]], name: str) -> int:
    """The row of the best method; -1 if there is none."""
    sign = 1 if name in _LOWER_IS_BETTER else -1
    values = [sign * own.get(name, math.nan) for own in figures.values()]
    # Neither a high nor a low share within a standard deviation is best.
    known = [v for v in values if not math.isnan(v)] if "within" not in name else []
    return values.index(min(known)) if len(known) > 1 else -1


def _reliability(each: dict[str, Answers], legend: Legend) -> str:
    chart = Chart(Axis(0, 1, "confidence", True), Axis(0, 1, "share that is right", True))
    chart.line([(0, 0), (1, 1)], "ideal")
    for name, answers in each.items():
        assert answers.labels is not None
        bins = metrics.reliability(answers.probs, answers.labels, bins=10)
        full = bins.count > 0
        at = (bins.confidence[full], bins.accuracy[full])
        chart.line(zip(*at, strict=True), KINDS[name])
        share = bins.count[full] / bins.count.sum()
        chart.dots(zip(*at, share, strict=True), KINDS[name])
    return chart.figure("Reliability diagram", TEXTS["reliability"], legend)


def _risk(found: Findings, each: dict[str, Answers], legend: Legend) -> str:
    curves = {name: metrics.risk_coverage(a.entropy, a.wrong) for name, a in each.items()}
    # The first few answers make the curve jump: 1 wrong of 2 is half.
    few = max(1, len(each[OURS].entropy) // 50)
    highest = max(float(risk[few:].max(initial=0.02)) for _, risk in curves.values())
    y = Axis(0, min(1.0, 1.15 * highest), "wrong among those acted on", True)
    chart = Chart(Axis(0, 1, "share of inputs acted on", True), y)
    for name, (coverage, risk) in curves.items():
        chart.line(_thin(coverage[few:], risk[few:]), KINDS[name])
    if found.rule is not None:
        acted = float(found.rule(found.ours).double().mean())
        chart.upright(acted, f"acts on {100 * acted:.0f} %")
    return chart.figure("Risk–coverage curve", TEXTS["risk_coverage"], legend)


def _thin(x: Floats, y: Floats) -> Iterable[tuple[float, float]]:
    """No more points than can be seen; the first and the last are kept."""
    at = np.linspace(0, len(x) - 1, min(len(x), _POINTS)).round().astype(int)
    return zip(x[at], y[at], strict=True)


def _entropies(found: Findings, ours: Answers) -> str:
    high = math.log(ours.probs.shape[1])
    x = Axis(0, high, f"entropy in nats (at most {high:.2f}: all classes equal)")
    chart, legend = _histogram(x, ours.entropy, ours)
    rule = found.rule
    if rule is not None and rule.score == "entropy" and math.isfinite(rule.threshold):
        chart.upright(rule.threshold, "abstain above")
    return chart.figure("Entropy: total uncertainty", TEXTS["entropy"], legend)


def _epistemic(ours: Answers) -> str:
    x = Axis(0, max(float(ours.epistemic.max(initial=0)), 0.01), "epistemic part in nats")
    chart, legend = _histogram(x, ours.epistemic, ours)
    return chart.figure("Epistemic part: is the class unknown?", TEXTS["epistemic"], legend)


def _histogram(x: Axis, values: Floats, ours: Answers) -> tuple[Chart, Legend]:
    """Shares of the right answers and of the wrong ones, each of its own group; or of all."""
    groups = {"ours": values}
    legend = [("ours", "all inputs")]
    if ours.labels is not None:
        groups = {"right": values[~ours.wrong], "wrong": values[ours.wrong]}
        legend = [(kind, f"{kind} ({len(group)})") for kind, group in groups.items()]
    return _bars(x, groups, "share of its group"), legend


def _bars(x: Axis, groups: dict[str, Floats], name: str) -> Chart:
    edges = np.linspace(x.low, x.high, _BINS + 1)
    shares = {
        kind: np.histogram(np.clip(group, x.low, x.high), edges)[0] / max(1, len(group))
        for kind, group in groups.items()
    }
    top = max(float(share.max()) for share in shares.values()) or 1.0
    chart = Chart(x, Axis(0, 1.08 * top, name, True))
    for kind, share in shares.items():
        draw = chart.steps if kind == "wrong" else chart.bars
        draw(list(edges), list(share), kind)
    return chart


def _show_regression(found: Findings) -> Iterator[str]:
    std = found.uncertainty()
    x = Axis(0, max(float(std.max()), 1e-9), "standard deviation of the answer")
    chart = _bars(x, {"ours": std}, "share of the inputs")
    drawn = [chart.figure("How far off the answer may be", TEXTS["std"])]
    if found.labels is None:
        yield f'<p class="missing">{TEXTS["no_truth"]}</p>'
    else:
        yield from _figures(found.figures(), TERMS["number"])
        off = to_array((found.ours.mean - found.labels).abs())
        drawn.append(_error_curve(std, off.reshape(len(off), -1).mean(1)))
    yield f'<div class="charts">{"".join(drawn)}</div>'


def _error_curve(std: Floats, error: Floats) -> str:
    """Mean error of the surest inputs, over how many are kept; the first few would jump."""
    kept = np.arange(1, len(std) + 1)
    means = np.cumsum(error[np.argsort(std, kind="stable")]) / kept
    few = len(std) // 50
    chart = Chart(
        Axis(0, 1, "share of inputs kept, the surest first", True),
        Axis(0, 1.1 * float(means[few:].max()) or 1.0, "mean error of those"),
    )
    chart.line(_thin(kept[few:] / len(std), means[few:]), "ours")
    title = "Does the uncertainty find the large errors?"
    return chart.figure(title, TEXTS["error_curve"], [("ours", OURS)])


def show_guard(found: Findings) -> Iterator[str]:
    """Which inputs are like those the model knows, what is odd about others, and what follows."""
    counts, contract = found.familiarity(), found.converted.settings.contract
    assert contract is not None
    yield f"<p>{TEXTS['guard']}</p>"
    tables = table(("", "inputs", "share"), _count_cells(counts, len(found.inputs)))
    if found.rule is not None and found.rule.novelty is not None:
        tables += f'<p class="small">{TEXTS["reasons"]}</p>{_reasons(found)}'
    drawn = _novelties(to_array(found.ours.novelty))
    yield f'<div class="charts">{drawn}<div class="beside">{tables}</div></div>'
    if rows := list(_oddities(contract, found.ours)):
        yield f'<h3>What is odd</h3><p class="small">{TEXTS["odd"]}</p>'
        yield table(("commonest", "inputs"), rows, kind="words")


def _count_cells(counts: Mapping[str, int], total: int) -> list[list[str]]:
    return [[name, f"{n:,}", f"{100 * n / total:.1f} %"] for name, n in counts.items()]


def _novelties(novelty: Floats) -> str:
    chart = _bars(Axis(0, 1, "novelty"), {"ours": novelty}, "share of the inputs")
    chart.line([(0, 1 / _BINS), (1, 1 / _BINS)], "ideal")
    chart.upright(NOVEL, "unfamiliar below")
    return chart.figure("Novelty: is the input foreign?", TEXTS["novelty"])


def _oddities(contract: Contract, ours: Prediction) -> Iterator[tuple[str, str]]:
    """Of the commonest, the first in words, and how many are like it."""
    said = ours.detach()
    kinds, full = contract.explain(said, figures=False), contract.explain(said)
    examples = dict(zip(kinds[::-1], full[::-1], strict=True))  # the first of each kind
    for kind, count in Counter(filter(None, kinds)).most_common(_SHOWN_KINDS):
        yield examples[kind], f"{count:,}"


def _reasons(found: Findings) -> str:
    """How often the rule acts or not for which reason; with labels, how often it would be right."""
    reasons = np.array(found.reasons())
    counts = {name: int((reasons == name).sum()) for name in REASONS}
    rows = _count_cells(counts, len(reasons))
    if found.labels is None:
        return table(("reason", "inputs", "share"), rows)
    right = to_array(found.ours.label == found.labels)
    for row in rows:
        own = right[reasons == row[0]]
        row.append(f"{100 * own.mean():.1f} %" if len(own) else "–")
    return table(("reason", "inputs", "share", "right"), rows)


def show_inputs(found: Findings) -> Iterator[str]:
    """The surest inputs and the least sure ones, drawn."""
    yield f"<p>{TEXTS['inputs']}</p>"
    order = np.argsort(found.uncertainty(), kind="stable")
    most, least = _pick_apart(order), _pick_apart(order[::-1])
    both = [*most, *least]
    drawn = dict(zip(both, sketches(to_array(found.inputs[both])), strict=True))
    for title, part in (("Most certain", most), ("Least certain", least)):
        cards = (_card(found, index, drawn[index]) for index in part)
        yield f'<h3>{title}</h3><div class="samples">{"".join(cards)}</div>'


def _pick_apart(order: npt.NDArray[np.int64]) -> list[int]:
    """The first few without neighbours, because windows of one recording overlap."""
    count, gap = min(_SHOWN_INPUTS, max(1, len(order) // 2)), len(order) // 50
    chosen: list[int] = []
    for index in map(int, order):
        if len(chosen) < count and all(abs(index - other) > gap for other in chosen):
            chosen.append(index)
    return chosen


def _card(found: Findings, index: int, drawing: str) -> str:
    entropy = found.ours.entropy
    if entropy is None:
        lines = _number_lines(found, index)
    elif entropy.dim() == 1:
        lines = _class_lines(found, index)
    else:  # an answer at each position
        lines = iter([f"mean entropy {float(entropy[index].mean()):.2f}"])
    text = "".join(f"<p>{line}</p>" for line in lines)
    where = f'<p class="small">input {index * found.step}</p>'
    return f'<div class="sample">{drawing}{text}{where}</div>'


def _class_lines(found: Findings, index: int) -> Iterator[str]:
    ours = found.ours
    said = int(ours.label[index])
    yield f"<b>{escape(found.class_name(said))}</b> {100 * float(ours.confidence[index]):.0f} %"
    if found.labels is not None:
        true = int(found.labels[index])
        if true == said:
            yield '<span class="holds">right</span>'
        else:
            yield f'<span class="fails">wrong: {escape(found.class_name(true))}</span>'
    entropy, epistemic = (to_array(each)[index] for each in (ours.entropy, ours.epistemic))
    yield f'<span class="small">entropy {entropy:.2f}, epistemic {epistemic:.2f}</span>'


def _number_lines(found: Findings, index: int) -> Iterator[str]:
    """The first few numbers of a regression."""
    mean, std = (each[index].flatten() for each in (found.ours.mean, found.ours.std))
    more = " …" if len(mean) > 3 else ""
    shown = zip(mean[:3], std[:3], strict=True)
    yield f"<b>{', '.join(f'{m:.3g} ± {s:.2g}' for m, s in shown)}{more}</b>"
    if found.labels is not None:
        true = found.labels[index].flatten()[:3]
        yield "true: " + ", ".join(f"{value:.3g}" for value in true) + more


def show_cost(converted: Converted, cost: Cost | str) -> Iterator[str]:
    """Tables of time and size, and how they were measured; or why they were not."""
    weights = sum(weight.numel() for weight in converted.source.parameters())
    known = [("weights", f"{weights:,} numbers, the same ones for every method")]
    if isinstance(cost, str):
        yield facts([*known, ("time", escape(cost))])
        return
    for runtime in dict.fromkeys(row.runtime for row in cost.rows):
        head = (runtime, "time ÷ plain", "processor time ÷ plain", "median, ms", "file, kB")
        rows = [_cost_cells(row) for row in cost.rows if row.runtime == runtime]
        yield table(head, rows, mark={OURS: "ours"}.get)
    known += [("measured", TEXTS["measured"]), ("machine", cost.machine)]
    known += [(f"energy of {name}", text) for name, text in cost.energy]
    known += [(f"left out: {what}", why) for what, why in cost.skipped]
    yield facts((name, escape(text)) for name, text in known)


def _cost_cells(row: CostRow) -> list[str]:
    digits = 2 if row.ratio < 10 else 1
    spread = "" if row.noise is None or row.contender == PLAIN else f" ± {row.noise:.{digits}f}"
    return [
        row.contender,
        f"{row.ratio:.{digits}f}{spread}",
        f"{row.cpu_ratio:.{2 if row.cpu_ratio < 10 else 1}f}",
        f"{row.median_ms:.2f}",
        "–" if row.file_kb is None else f"{row.file_kb:,.0f}",
    ]


def show_assumptions(report: Report) -> Iterator[str]:
    counts = {s: sum(e.status == s for e in report.entries) for s in ("certain", "exact")}
    yield (
        f"<p>Of {len(report.entries)} operations, {counts['certain']} come before any dropout and "
        f"are computed as before, {counts['exact']} carry the uncertainty exactly, and "
        f"{len(report.approximate)} rest on an assumption that does not quite hold there:</p>"
    )
    rows: dict[str, list[str]] = {}
    for entry in report.approximate:
        place = f"{entry.module or entry.node} ({entry.op.removeprefix('aten.')})"
        rows.setdefault(entry.note or "approximate", []).append(place)
    if rows:
        cells = [(note, ", ".join(places)) for note, places in rows.items()]
        yield table(("assumption", "where"), cells, kind="words")
    yield "".join(f'<p class="small">Note: {escape(note)}</p>' for note in report.notes)


def show_origin(found: Findings, command: str) -> Iterator[str]:
    settings = found.converted.settings
    modes = f"{settings.form}, {settings.task}"
    if settings.temperature is not None:
        modes += f", temperature {settings.temperature.value:.3f}"
    versions = f"onesigma {__version__}, torch {torch.__version__}, numpy {np.__version__}, "
    versions += f"Python {platform.python_version()}"
    known = [
        ("conversion", escape(modes)),
        ("Monte Carlo", f"{found.passes} passes, seed 0"),
        ("versions", escape(versions)),
    ]
    yield facts([("command", f"<code>{escape(command)}</code>"), *known] if command else known)
    yield folded("The conversion report", f"<pre>{escape(str(found.converted.report))}</pre>")
