"""The part of the report about the answers: how right, how sure, when to act."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape

import numpy as np

from onesigma import metrics
from onesigma.decide.threshold import AbstainRule
from onesigma.pages.html.chart import Axis, Chart
from onesigma.pages.html.page import folded, table
from onesigma.pages.report import scores, words
from onesigma.pages.report.gather import OURS, PLAIN, SAMPLED, Findings
from onesigma.pages.report.scores import Answers, Floats

KINDS = {PLAIN: "plain", OURS: "ours", SAMPLED: "sampled"}
_LOWER_IS_BETTER = {"NLL", "Brier", "ECE", "AURC", "RMSE", "mean error"}
_IN_PERCENT = {"accuracy", "within 1 std", "within 2 std"}
_BINS = 24


def section(found: Findings) -> Iterator[str]:
    if not found.classifies:
        yield from _numbers(found)
        return
    each = {name: scores.answers(p, found.labels) for name, p in found.predictions.items()}
    if found.labels is None:
        yield f'<p class="missing">{words.NO_LABELS}</p>'
        yield _charts([_entropies(each[OURS], found.rule), _epistemic(each[OURS])])
    else:
        figures = found.figures()
        yield from _figures(figures, words.CLASS_FIGURES)
        right = figures[OURS]["accuracy"]
        noise = math.sqrt(right * (1 - right) / len(found.inputs))
        yield f'<p class="small">{words.noise(len(found.inputs), noise)}</p>'
        yield _charts(
            [
                _reliability(each),
                _risk(found, each),
                _entropies(each[OURS], found.rule),
                _epistemic(each[OURS]),
            ]
        )
    if found.rule is not None:
        yield f'<p class="rule">{escape(str(found.rule)).replace(chr(10), "<br>")}</p>'
        yield f'<p class="small">{words.of_rule(found.converted.abstain is found.rule)}</p>'


def _figures(figures: dict[str, dict[str, float]], meaning: words.Terms) -> Iterator[str]:
    names = list(figures[OURS])
    rows = [[method, *(show(n, own.get(n)) for n in names)] for method, own in figures.items()]
    best = {(_best(figures, name), column) for column, name in enumerate(names, 1)}
    yield table(["", *names], rows, best=best, mark=lambda name: "ours" if name == OURS else "")
    yield folded("What these figures mean", words.terms(meaning))


def show(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if name in _IN_PERCENT else f"{value:.3f}"


def _best(figures: dict[str, dict[str, float]], name: str) -> int:
    sign = 1 if name in _LOWER_IS_BETTER else -1
    values = [sign * own.get(name, math.nan) for own in figures.values()]
    # Which share within a standard deviation is best, no order says.
    known = [v for v in values if not math.isnan(v)] if "within" not in name else []
    return values.index(min(known)) if len(known) > 1 else -1


def _charts(drawn: Iterable[str]) -> str:
    return f'<div class="charts">{"".join(drawn)}</div>'


def _legend(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(KINDS[name], name) for name in names]


def _reliability(each: dict[str, Answers]) -> str:
    chart = Chart(Axis(0, 1, "confidence", True), Axis(0, 1, "share that is right", True))
    chart.line([(0, 0), (1, 1)], "ideal")
    for name, found in each.items():
        assert found.labels is not None
        bins = metrics.reliability(found.probs, found.labels, bins=10)
        full = bins.count > 0
        at = (bins.confidence[full], bins.accuracy[full])
        chart.line(zip(*at, strict=True), KINDS[name])
        share = bins.count[full] / bins.count.sum()
        chart.dots(zip(*at, share, strict=True), KINDS[name])
    return chart.figure("Reliability diagram", words.RELIABILITY, _legend(each))


def _risk(found: Findings, each: dict[str, Answers]) -> str:
    curves = {
        name: metrics.risk_coverage(answers.entropy, answers.wrong)
        for name, answers in each.items()
    }
    # The first few answers make the curve jump: 1 wrong of 2 is half.
    few = max(1, len(each[OURS].entropy) // 50)
    highest = max(float(risk[few:].max(initial=0.02)) for _, risk in curves.values())
    y = Axis(0, min(1.0, 1.15 * highest), "wrong among those acted on", True)
    chart = Chart(Axis(0, 1, "share of inputs acted on", True), y)
    for name, (coverage, risk) in curves.items():
        chart.line(_thinned(coverage[few:], risk[few:]), KINDS[name])
    if found.rule is not None:
        acted = scores.array(found.rule(found.ours).double()).mean()
        chart.upright(float(acted), f"acts on {100 * acted:.0f} %")
    return chart.figure("Risk–coverage curve", words.RISK_COVERAGE, _legend(each))


def _thinned(x: Floats, y: Floats, most: int = 240) -> Iterable[tuple[float, float]]:
    """As many points as a screen can show, first and last among them."""
    if len(x) <= most:
        return zip(x, y, strict=True)
    at = np.linspace(0, len(x) - 1, most).round().astype(int)
    return zip(x[at], y[at], strict=True)


def _entropies(found: Answers, rule: AbstainRule | None) -> str:
    high = math.log(found.probs.shape[1])
    x = Axis(0, high, f"entropy in nats (at most {high:.2f}: all classes alike)")
    return _histogram(x, found.entropy, found, "Entropy: all the doubt", words.ENTROPY, rule)


def _epistemic(found: Answers) -> str:
    high = max(float(found.epistemic.max(initial=0)), 0.01)
    x = Axis(0, high, "epistemic part in nats")
    return _histogram(
        x, found.epistemic, found, "Epistemic: has it seen such input?", words.EPISTEMIC
    )


def _histogram(
    x: Axis, values: Floats, found: Answers, title: str, text: str, rule: AbstainRule | None = None
) -> str:
    """Shares, of the right and the wrong answers each for themselves, or of all."""
    edges = np.linspace(x.low, x.high, _BINS + 1)
    groups = {"ours": ("all inputs", values)}
    if found.labels is not None:
        right, wrong = values[~found.wrong], values[found.wrong]
        groups = {
            "right": (f"right ({len(right)})", right),
            "wrong": (f"wrong ({len(wrong)})", wrong),
        }
    shares = {kind: _shares(of, edges) for kind, (_, of) in groups.items()}
    top = max(float(share.max()) for share in shares.values()) or 1.0
    chart = Chart(x, Axis(0, 1.08 * top, "share of its group", True))
    for kind, share in shares.items():
        draw = chart.steps if kind == "wrong" else chart.bars
        draw(list(edges), list(share), kind)
    if rule is not None and rule.score == "entropy" and math.isfinite(rule.threshold):
        chart.upright(rule.threshold, "abstain above")
    return chart.figure(title, text, [(kind, name) for kind, (name, _) in groups.items()])


def _shares(values: Floats, edges: Floats) -> Floats:
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return np.asarray(counts / max(1, len(values)))


def _numbers(found: Findings) -> Iterator[str]:
    std = scores.doubt_per_input(found.ours)
    x = Axis(0, max(float(std.max()), 1e-9), "standard deviation of the answer")
    edges = np.linspace(x.low, x.high, _BINS + 1)
    share = _shares(std, edges)
    chart = Chart(x, Axis(0, 1.08 * float(share.max()), "share of the inputs", True))
    chart.bars(list(edges), list(share), "ours")
    drawn = [chart.figure("How far the answer may be off", words.STD)]
    if found.labels is None:
        yield f'<p class="missing">{words.NO_TRUTH}</p>'
    else:
        yield from _figures(found.figures(), words.NUMBER_FIGURES)
        drawn.append(_error_curve(found, std))
    yield _charts(drawn)


def _error_curve(found: Findings, std: Floats) -> str:
    assert found.labels is not None
    off = scores.array((found.ours.mean - found.labels).abs())
    error = off.reshape(len(off), -1).mean(1)
    kept, means = (x[len(x) // 50 :] for x in scores.error_by_coverage(std, error))
    chart = Chart(
        Axis(0, 1, "share of inputs kept, the surest first", True),
        Axis(0, 1.1 * float(means.max()) or 1.0, "mean error of those"),
    )
    chart.line(_thinned(kept, means), "ours")
    return chart.figure("Does the doubt find the large errors?", words.ERROR_CURVE, _legend([OURS]))
