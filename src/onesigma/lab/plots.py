"""How sure each method is when right, when wrong, and when fed noise: the motivation figure."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from onesigma.lab.figures import save
from onesigma.metrics import auroc

Groups = Mapping[str, npt.ArrayLike]
Result = tuple[str, Mapping[str, Groups]]
FloatArray = npt.NDArray[np.float64]


class Style(NamedTuple):
    """How a group is drawn; `dashes` is matplotlib's (offset, (on, off)), None a solid line."""

    colour: str
    dashes: tuple[float, Sequence[float]] | None
    label: str


# Okabe & Ito's colours, told apart with any colour vision; line styles say it again in grey.
STYLE = {
    "right": Style("#0072B2", None, "right answers"),
    "wrong": Style("#D55E00", (0, (5, 1.5)), "wrong answers"),
    "random": Style("#4D4D4D", (0, (1.5, 1.2)), "random input"),
}
INK = "#222222"
SOFT = "#555555"
FAINT = "#8A8A8A"
BINS = 30
SURE = 0.9
# Heights are drawn up to CUT times the lowest group's peak, plus room for the panel's note.
CUT = 2.2
HEADROOM = 1.3
TITLE = "How sure is it when right, when wrong, and when fed noise?"
FOOTNOTE = "Every curve has area 1. ▲ marks a peak taller than its panel."
CONFIDENCE = "confidence (largest probability)"
HEADINGS = (
    ("Confidence, real input", "wrong answers should sit left of right ones", CONFIDENCE),
    ("Confidence, random input", "nothing to recognise: it should not be sure", CONFIDENCE),
    ("Predictive entropy", "wrong and random should sit right of right ones", "entropy (nats)"),
)


class Peak(NamedTuple):
    """Where a group's density is highest."""

    height: float
    position: float
    colour: str


def confidence_and_entropy(
    results: Sequence[Result], path: Path | str, classes: int | None = None, random_is: str = ""
) -> None:
    """Draw one row per method and write the figure to `path` as PNG, and as SVG beside it.

    Histograms and kernel densities have area 1 per group, so that groups of unequal size compare.
    Each panel has its own height, with an arrow where a peak is taller. A group may be empty; the
    panel then says so.

    Args:
        results: per method its name and {"confidence": groups, "entropy": groups}, where groups
            maps "right", "wrong" and "random" to one number per sample; entropy in nats.
        path: the PNG to write, whole or not at all; its folder must exist.
        classes: number of classes, which bounds entropy by its logarithm; None takes the largest
            entropy seen.
        random_is: what the random inputs are, for the footnote.
    """
    if not results:
        raise ValueError("No results to draw: pass at least one (method name, values) pair.")
    values = [(name, _arrays(name, quantities)) for name, quantities in results]
    highest = _highest_entropy(values) if classes is None else float(np.log(classes))
    # A bare Figure draws with Agg and touches no global state, unlike pyplot.
    figure = Figure(figsize=(13.5, 2.15 + 2.35 * len(values)), dpi=150, facecolor="white")
    axes = figure.subplots(len(values), 3, squeeze=False)
    for row, (name, quantities) in enumerate(values):
        _draw_row(axes[row], name, quantities, highest)
    _dress(axes)
    _caption(figure, random_is)
    save(figure, path)


def _arrays(name: str, quantities: Mapping[str, Groups]) -> dict[str, dict[str, FloatArray]]:
    arrays: dict[str, dict[str, FloatArray]] = {}
    for quantity in ("confidence", "entropy"):
        arrays[quantity] = {}
        for group in STYLE:
            values = np.asarray(quantities[quantity][group], dtype=np.float64).ravel()
            if not np.isfinite(values).all():
                raise ValueError(f"{quantity} of the {group} group of {name!r} is not finite.")
            arrays[quantity][group] = values
    return arrays


def _highest_entropy(values: Sequence[tuple[str, dict[str, dict[str, FloatArray]]]]) -> float:
    seen = np.concatenate([v for _, q in values for v in q["entropy"].values()])
    return float(seen.max()) if seen.size and seen.max() > 0 else 1.0


def _draw_row(
    axes: Sequence[Axes], name: str, quantities: dict[str, dict[str, FloatArray]], highest: float
) -> None:
    confidence, entropy = quantities["confidence"], quantities["entropy"]
    _draw_groups(axes[0], {g: confidence[g] for g in ("right", "wrong")}, 1.0)
    _draw_groups(axes[1], {"random": confidence["random"]}, 1.0)
    _draw_groups(axes[2], entropy, highest)
    axes[0].set_ylabel(
        textwrap.fill(name, 12),
        fontsize=13,
        fontweight="bold",
        color=INK,
        rotation=0,
        ha="right",
        va="center",
        labelpad=14,
    )
    _note(axes[0], "wrong answers", confidence["wrong"])
    _note(axes[1], "random inputs", confidence["random"])
    _note_ranking(axes[2], entropy)


def _draw_groups(axis: Axes, groups: Mapping[str, FloatArray], upper: float) -> None:
    edges = np.linspace(0.0, upper, BINS + 1)
    grid = np.linspace(0.0, upper, 601)
    peaks: list[Peak] = []
    for group, values in groups.items():
        if values.size == 0:
            continue
        colour, dashes, _ = STYLE[group]
        inside = np.clip(values, 0.0, upper)
        heights, _ = np.histogram(inside, edges, density=True)
        curve = reflected_density(inside, grid, upper)
        axis.stairs(heights, edges, fill=True, color=colour, alpha=0.22, linewidth=0)
        axis.plot(grid, curve, color=colour, linestyle=dashes, linewidth=2.0)
        bin_top = int(heights.argmax())
        peaks.append(
            Peak(
                height=max(float(heights.max()), float(curve.max())),
                position=float((edges[bin_top] + edges[bin_top + 1]) / 2),
                colour=colour,
            )
        )
    axis.set_xlim(0.0, upper)
    if peaks:
        _cut_spikes(axis, peaks)


def _cut_spikes(axis: Axes, peaks: Sequence[Peak]) -> None:
    """Limit the height so that one needle at a bound does not flatten the other groups to a line.

    A sure network puts nearly all its right answers in one bin. An arrow marks what is cut.
    """
    lowest, highest = (pick(peak.height for peak in peaks) for pick in (min, max))
    limit = HEADROOM * min(highest, CUT * lowest)
    axis.set_ylim(0.0, limit)
    for peak in peaks:
        if peak.height > limit:
            axis.annotate(
                "▲",
                (peak.position, limit),
                annotation_clip=False,
                ha="center",
                va="bottom",
                fontsize=9,
                color=peak.colour,
            )


def _note(axis: Axes, what: str, confidence: FloatArray) -> None:
    if confidence.size == 0:
        _write(axis, f"no {what}")
        return
    share = float(np.mean(confidence > SURE))
    _write(axis, f"{share:.0%} of {what}\nget over {SURE:.0%} confidence")


def _note_ranking(axis: Axes, entropy: Mapping[str, FloatArray]) -> None:
    lines = []
    for group in ("wrong", "random"):
        scores = np.concatenate([entropy["right"], entropy[group]])
        positives = np.repeat([False, True], [entropy["right"].size, entropy[group].size])
        area = auroc(scores, positives)
        # NaN: one of the two groups is empty, and there is nothing to tell apart.
        lines.append(f"{group} from right: " + ("–" if np.isnan(area) else f"{area:.2f}"))
    _write(axis, "AUROC\n" + "\n".join(lines), side="right")


def _write(axis: Axes, text: str, side: str = "left") -> None:
    axis.text(
        0.03 if side == "left" else 0.97,
        0.95,
        text,
        transform=axis.transAxes,
        ha=side,
        va="top",
        fontsize=9.5,
        color=INK,
        linespacing=1.35,
    )


def _dress(axes: npt.NDArray[np.object_]) -> None:
    for axis in axes.ravel():
        axis.set_yticks([])
        axis.spines[["left", "right", "top"]].set_visible(False)
        axis.spines["bottom"].set_color(FAINT)
        axis.tick_params(axis="x", colors=INK, labelsize=9.5, length=3)
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5]))
    for column, (heading, advice, unit) in enumerate(HEADINGS):
        top, bottom = axes[0, column], axes[-1, column]
        top.set_title(heading, loc="left", pad=34, fontsize=13, fontweight="bold", color=INK)
        top.text(0, 1.11, advice, transform=top.transAxes, fontsize=10, color=SOFT)
        bottom.set_xlabel(unit, fontsize=10, color=INK)


def _caption(figure: Figure, random_is: str) -> None:
    """Title, legend and footnote, a fixed number of inches from the edges for any row count."""
    height = float(figure.get_size_inches()[1])
    top = 1 - 0.3 / height
    figure.text(0.012, top, TITLE, fontsize=16, fontweight="bold", color=INK, va="center")
    footnote = f"{FOOTNOTE} Random input: {random_is}." if random_is else FOOTNOTE
    figure.text(0.012, 0.12 / height, footnote, fontsize=9, color=SOFT)
    handles = [
        Line2D([], [], color=style.colour, linestyle=style.dashes, linewidth=2.5, label=style.label)
        for style in STYLE.values()
    ]
    figure.legend(
        handles=handles,
        loc="center right",
        bbox_to_anchor=(0.99, top),
        ncols=3,
        frameon=False,
        fontsize=11,
    )
    figure.subplots_adjust(
        left=0.12, right=0.98, top=1 - 1.35 / height, bottom=0.8 / height, hspace=0.3, wspace=0.12
    )


def bandwidth(values: FloatArray, upper: float) -> float:
    """Silverman's rule, 0.9 min(std, IQR / 1.34) n^(−1/5), at least 1.5 % of the interval.

    The floor gives a nearly constant group, such as the confidence of a sure network, a narrow
    hill instead of an infinite spike.
    """
    low, high = np.quantile(values, (0.25, 0.75))
    spread = float(np.std(values))
    if high > low:
        spread = min(spread, float(high - low) / 1.34)
    return float(max(0.9 * spread * values.size ** (-0.2), 0.015 * upper))


def reflected_density(values: FloatArray, grid: FloatArray, upper: float) -> FloatArray:
    """Gaussian kernel density of values in 0..upper, at the points of `grid`.

        f(x) = (1/n) Σᵢ [k(x − xᵢ) + k(x + xᵢ) + k(x − (2·upper − xᵢ))]
    Mass that a kernel puts beyond a bound is folded back inside, so the density integrates to 1
    over the interval. A plain kernel density would lose up to half of a group that sits at the
    bound, and confidence sits at 1.
    """
    width = bandwidth(values, upper)
    images = np.concatenate([values, -values, 2.0 * upper - values])
    scaled = (grid[:, None] - images[None, :]) / width
    kernels = np.exp(-0.5 * scaled**2).sum(axis=1)
    density: FloatArray = kernels / (values.size * width * np.sqrt(2.0 * np.pi))
    return density
