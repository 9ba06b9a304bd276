"""The parts of the report, in the order of the page."""

import math
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt
import torch

from onesigma import metrics
from onesigma.answer import BROKEN, NOVEL, SURE, UNFAMILIAR, UNSURE
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
from onesigma.report import Report
from onesigma.version import __version__

Legend = list[tuple[str, str]]
KINDS = {PLAIN: "plain", OURS: "ours", SAMPLED: "sampled"}
_LOWER_IS_BETTER = {"NLL", "Brier", "ECE", "AURC", "RMSE", "mean error"}
_IN_PERCENT = {"accuracy", "within 1 std", "within 2 std"}
REASONS = (SURE, UNSURE, UNFAMILIAR, BROKEN)
_BINS = 24
_MOST_CLASSES = 20  # of a matrix that can be read
_SHOWN_CHANNELS = 8
_SHOWN_INPUTS = 6  # of the surest, and as many of the least sure
_POINTS = 240  # of a curve: as many as a screen can show


def percent(share: float) -> str:
    """With a digit behind the point where it matters."""
    return f"{100 * share:.{0 if share in (0, 1) or 0.095 <= share < 0.995 else 1}f} %"


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
    if found.rule is not None:
        own = found.converted.abstain is found.rule
        yield f'<p class="rule">{escape(str(found.rule)).replace(chr(10), "<br>")}</p>'
        yield f'<p class="small">{TEXTS["own_rule"] if own else TEXTS["fitted_rule"]}</p>'
    yield f'<div class="charts">{"".join(charts)}</div>'


def _figures(figures: dict[str, dict[str, float]], meaning: dict[str, str]) -> Iterator[str]:
    names = list(figures[OURS])
    rows = [
        [method, *(show_figure(n, own.get(n)) for n in names)] for method, own in figures.items()
    ]
    best = {(_best(figures, name), column) for column, name in enumerate(names, 1)}
    yield table(["", *names], rows, best=best, mark={OURS: "ours"}.get)
    yield _explain(meaning)


def _explain(terms: dict[str, str]) -> str:
    pairs = ((name, escape(text)) for name, text in terms.items())
    return folded("What these figures mean", facts(pairs, "terms"))


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
    if found.acted is not None:
        share = float(found.acted.mean())
        chart.upright(share, f"acts on {100 * share:.0f} %")
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


def show_classes(found: Findings) -> Iterator[str]:
    """What each class is taken for, how often it is acted on, and how often wrongly."""
    assert found.labels is not None
    assert found.wrong is not None
    true, said = found.labels.cpu().numpy(), found.ours.label.cpu().numpy()
    count = found.answers()[OURS].probs.shape[1]
    names = [found.class_name(k) for k in range(count)]
    head, rows, acted = ["class", "inputs", "right"], [], found.acted
    head += [] if acted is None else ["acted on", "wrong when acted on"]
    for k, name in enumerate(names):
        own = true == k
        rows.append([name, f"{own.sum():,}", _share(~found.wrong[own])])
        if acted is not None:
            rows[-1] += [_share(acted[own]), _share(found.wrong[own & acted])]
    yield f"<p>{TEXTS['classes']}</p>{table(head, rows)}"
    if count <= _MOST_CLASSES:
        matrix = np.zeros((count, count), int)
        np.add.at(matrix, (true, said), 1)
        yield f'<p class="small">{TEXTS["matrix"]}</p>{_matrix(names, matrix)}'


def _share(flags: npt.NDArray[np.bool_]) -> str:
    return percent(float(flags.mean())) if len(flags) else "–"


def _matrix(names: list[str], counts: npt.NDArray[np.int64]) -> str:
    """Rows are true classes; the deeper the colour, the larger the share of the row."""

    def cell(i: int, j: int) -> str:
        share = counts[i, j] / max(1, counts[i].sum())
        kind = "hit" if i == j else "miss"
        return f'<td class="{kind}" style="--share:{share:.2f}">{counts[i, j] or ""}</td>'

    heads = "".join(f'<th scope="col">{escape(n)}</th>' for n in ["true ↓  said →", *names])
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(cell(i, j) for j in range(len(names)))}'
        "</tr>"
        for i, name in enumerate(names)
    )
    return frame(heads, body, kind="matrix", label="Confusion matrix")


def show_guard(found: Findings) -> Iterator[str]:
    """Which inputs are like those the model knows, what is odd about others, and what follows."""
    groups = {"these inputs": found.ours}
    if found.foreign is not None:
        groups["foreign inputs"] = found.foreign
    counts = [found.familiarity(said) for said in groups.values()]
    rows = [
        [kind, *(f"{n[kind]:,} ({percent(n[kind] / sum(n.values()))})" for n in counts)]
        for kind in counts[0]
    ]
    yield f"<p>{TEXTS['guard']}</p>"
    tables = table(("", *groups), rows)
    if found.rule is not None and found.rule.novelty is not None:
        tables += f'<p class="small">{TEXTS["reasons"]}</p>{_reasons(found)}'
    yield f'<div class="charts">{_novelties(found)}<div class="beside">{tables}</div></div>'
    cells = [
        (odd.channel, f"{odd.outside:,}", f"{odd.oddest:,}", odd.example)
        for odd in odd_channels(found)[:_SHOWN_CHANNELS]
    ]
    yield "<h3>By channel</h3>"
    if cells:
        head = ("channel", "outside its range", "oddest of an input", "the first of these")
        yield f'<p class="small">{TEXTS["odd"]}</p>{table(head, cells, kind="channels")}'
    else:
        yield '<p class="small">No channel of any input is outside its range, and none is odd.</p>'


@dataclass(frozen=True)
class Odd:
    """A channel with something odd about it, in how many inputs, and one of them in words."""

    channel: str
    outside: int  # inputs in which it is outside its known range
    oddest: int  # unfamiliar or broken inputs in which it is furthest from what is known
    example: str


def odd_channels(found: Findings) -> list[Odd]:
    """The channels with something odd about them, the commonest first."""
    contract, said = found.converted.settings.contract, found.ours.detach()
    assert contract is not None
    assert said.contract is not None
    count = len(contract.channels)
    sizes = np.abs(np.asarray(said.contract)).reshape(len(said.mean), -1)
    outside = (sizes.reshape(len(sizes), -1, count) > 1).any(1).sum(0)
    words = np.array(contract.explain(said))
    worst = np.where(words != "", sizes.argmax(1) % count, -1)
    rows = [
        Odd(name, int(outside[k]), int((worst == k).sum()), next(iter(words[worst == k]), "–"))
        for k, name in enumerate(contract.channels)
    ]
    odd = [each for each in rows if each.outside or each.oddest]
    return sorted(odd, key=lambda each: (-each.outside, -each.oddest))


def _novelties(found: Findings) -> str:
    groups, legend = {"ours": to_array(found.ours.novelty)}, [("ours", "these inputs")]
    if found.foreign is not None:
        groups["wrong"] = to_array(found.foreign.novelty)
        legend.append(("wrong", "foreign inputs"))
    chart = _bars(Axis(0, 1, "novelty"), groups, "share of the inputs")
    chart.line([(0, 1 / _BINS), (1, 1 / _BINS)], "ideal")
    chart.upright(NOVEL, "unfamiliar below")
    return chart.figure("Novelty: is the input foreign?", TEXTS["novelty"], legend)


def _reasons(found: Findings) -> str:
    """How often the rule acts or not for which reason; with labels, how often it would be right."""
    reasons = np.array(found.reasons())
    masks = {name: reasons == name for name in REASONS}
    rows = [[n, f"{own.sum():,}", f"{100 * own.mean():.1f} %"] for n, own in masks.items()]
    if found.wrong is None:
        return table(("reason", "inputs", "share"), rows)
    for row, own in zip(rows, masks.values(), strict=True):
        row.append(f"{100 * (~found.wrong[own]).mean():.1f} %" if own.any() else "–")
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


def show_fidelity(found: Findings) -> Iterator[str]:
    """One pass against Monte Carlo, layer by layer and at the output; what fit tried."""
    audit = found.audit
    yield f"<p>{TEXTS['fidelity']}</p>"
    layers = [*audit.layers, *([audit.own] if audit.own else [])]
    if layers:
        rows = [
            (
                layer.where,
                f"{layer.std_ratio:.2f}",
                f"{layer.low:.2f}–{layer.high:.2f}",
                f"{layer.mean_error:.3f}",
                "–" if math.isnan(layer.correlation) else f"{layer.correlation:.2f}",
            )
            for layer in layers
        ]
        head = ("layer", "spread ÷ Monte Carlo’s", "5–95 %", "mean error", "correlation")
        yield f"<p><b>{escape(_spread(layers[-1].std_ratio))}</b></p>{table(head, rows)}"
    yield facts(_output_facts(found))
    yield _explain(TERMS["audit"])
    if found.converted.report.candidates:
        yield from _candidates(found.converted.report)


def _spread(ratio: float) -> str:
    """What the audit of the output found, in a sentence or two."""
    if 0.95 <= ratio <= 1.05:
        return "The spread of the answer is that of Monte Carlo, within 5 %."
    sure = "too sure" if ratio < 1 else "not sure enough"
    remedy = "" if 0.8 <= ratio <= 1.25 else " onesigma.fit learns it from unlabelled inputs."
    return f"The spread of the answer is {ratio:.2f} times Monte Carlo’s: {sure}.{remedy}"


def _output_facts(found: Findings) -> Iterator[tuple[str, str]]:
    audit = found.audit
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
    if found.shares:
        sites = {site.node: site.module or site.node for site in found.converted.report.sites}
        shares = (f"{sites.get(n, 'input')} {percent(s)}" for n, s in found.shares.items())
        yield "where it comes from", escape(", ".join(shares)) + f". {TEXTS['shares']}"
    yield (
        "measured",
        f"{audit.inputs} inputs, {audit.passes} passes; their noise is {audit.mean_noise:.3f} on "
        f"a mean error and ± {audit.ratio_noise:.3f} on a ratio",
    )


def _candidates(report: Report) -> Iterator[str]:
    """Each form that ``fit`` tried: its cost, and how many passes it is worth on which inputs."""
    kinds = [kind.kind for kind in report.candidates[0].kinds]
    rows = [
        [
            f"{each.form}, chosen" if each.chosen else each.form,
            f"{each.cost:.2f}",
            *(f"{kind.passes:.0f} ± {kind.error:.0f}" for kind in each.kinds),
        ]
        for each in report.candidates
    ]
    head = ("form", "time ÷ plain, PyTorch", *kinds)
    yield f"<h3>What fit tried</h3><p>{TEXTS['candidates']}</p>{table(head, rows)}"


def show_origin(found: Findings, command: str, limits: Iterable[str]) -> Iterator[str]:
    settings = found.converted.settings
    modes = f"{settings.form}, {settings.task}"
    if settings.temperature is not None:
        modes += f", temperature {settings.temperature.value:.3f}"
    versions = f"onesigma {__version__}, torch {torch.__version__}, numpy {np.__version__}, "
    versions += f"Python {platform.python_version()}"
    known: Mapping[str, str] = {
        **({"command": f"<code>{escape(command)}</code>"} if command else {}),
        "conversion": escape(modes),
        "Monte Carlo": f"{found.passes} passes, seed 0",
        "versions": escape(versions),
    }
    yield f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in limits)}</ul>"
    yield facts(known.items())
    report = f"<pre>{escape(str(found.converted.report))}</pre>"
    yield folded("What was converted: each operation, its rule, and what it assumes", report)
