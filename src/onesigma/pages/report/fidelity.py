"""The part of the report about fidelity: one pass against Monte Carlo, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from onesigma.calibration.comparison import Audit, LayerAudit
from onesigma.pages.html.page import facts, folded
from onesigma.pages.report import words

_WIDTH, _HEIGHT = 260, 26
_WIDEST = 20.0  # times too large or too small: beyond, a bar ends at the border


def section(found: Audit) -> Iterator[str]:
    yield f"<p>{words.FIDELITY}</p><p><b>{escape(verdict(found))}</b></p>"
    if found.layers:
        yield f'<p class="small">{words.SPREAD}</p>{_table(found)}'
    yield facts(_output(found))
    yield folded("What these figures mean", words.terms(words.AUDIT_FIGURES))


def verdict(found: Audit) -> str:
    """The audit in a sentence, or three."""
    if not found.layers:
        return "No layer has any spread: there was nothing to compare before the output."
    last, worst = found.layers[-1], found.worst
    assert worst is not None
    parts = [f"At the last layer the spread is {_amount(last.std_ratio)}."]
    if worst.node != last.node and not 0.9 <= worst.std_ratio <= 1.1:
        parts.append(f"Furthest off is {worst.where}, where it is {_amount(worst.std_ratio)}.")
    if not 0.8 <= last.std_ratio <= 1.25:
        parts.append("onesigma.calibrate(converted, x) learns the difference from such inputs.")
    return " ".join(parts)


def _amount(ratio: float) -> str:
    if 0.95 <= ratio <= 1.05:
        return "that of Monte Carlo, within 5 %"
    return f"{ratio:.2f} times Monte Carlo’s: {'too sure' if ratio < 1 else 'not sure enough'}"


def _table(found: Audit) -> str:
    low = max(1 / _WIDEST, min(0.5, *(layer.low for layer in found.layers)) / 1.1)
    high = min(_WIDEST, 1.1 * max(2.0, *(layer.high for layer in found.layers)))
    scale = Scale(low, high)
    drawn = f"spread ÷ Monte Carlo’s{scale.ticks()}"
    names = ("layer", drawn, "ratio", "5–95 %", "mean error", "correlation")
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows = "".join(_row(layer, scale) for layer in found.layers)
    return (
        '<div class="scroll audit" tabindex="0"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


@dataclass(frozen=True)
class Scale:
    """Ratios from low to high, by their logarithms."""

    low: float
    high: float

    def __call__(self, ratio: float) -> float:
        share = math.log(max(ratio, 1e-9) / self.low) / math.log(self.high / self.low)
        return round(_WIDTH * min(1.0, max(0.0, share)), 1)

    def ticks(self) -> str:
        """A row of numbers, as SVG."""
        shown = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10) if self.low <= t <= self.high]
        texts = "".join(
            f'<text x="{self(t)}" y="11" text-anchor="middle">{t:g}</text>' for t in shown
        )
        return f'<svg viewBox="0 0 {_WIDTH} 14" aria-hidden="true">{texts}</svg>'


def _row(layer: LayerAudit, scale: Scale) -> str:
    op = layer.op.removeprefix("aten.").partition(".")[0]
    cells = (
        f"{layer.std_ratio:.2f}",
        f"{layer.low:.2f}–{layer.high:.2f}",
        f"{layer.mean_error:.3f}",
        "–" if math.isnan(layer.correlation) else f"{layer.correlation:.2f}",
    )
    numbers = "".join(f"<td>{cell}</td>" for cell in cells)
    return (
        f'<tr><th scope="row">{escape(layer.where)}<small>{escape(op)}</small></th>'
        f"<td>{_range(layer, scale)}</td>{numbers}</tr>"
    )


def _range(layer: LayerAudit, x: Scale) -> str:
    middle, ends = _HEIGHT / 2, f'x1="{x(layer.low)}" x2="{x(layer.high)}"'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f"<title>{escape(layer.where)}: {layer.std_ratio:.2f} times Monte Carlo’s spread</title>"
        f'<rect class="band" x="{x(0.9)}" width="{x(1.1) - x(0.9):.1f}" height="{_HEIGHT}"/>'
        f'<line class="one" x1="{x(1)}" x2="{x(1)}" y2="{_HEIGHT}"/>'
        f'<line class="range" {ends} y1="{middle}" y2="{middle}"/>'
        f'<circle cx="{x(layer.std_ratio)}" cy="{middle}" r="4.5"/></svg>'
    )


def _output(found: Audit) -> Iterator[tuple[str, str]]:
    if found.output is not None:
        out = found.output
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
        f"{found.inputs} inputs, {found.passes} passes; their noise is {found.mean_noise:.3f} on "
        f"a mean error and ± {found.ratio_noise:.3f} on a ratio",
    )
