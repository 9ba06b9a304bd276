"""``audit``: the one pass against Monte-Carlo dropout of the original, layer by layer.

Every figure comes with the noise that the finite number of passes puts on it; what lies within
that noise is marked as such.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, fx

from onesigma import head
from onesigma.arguments import typed
from onesigma.calibration.exam import divergences
from onesigma.calibration.observation import Observed, Progress, RunningMoments, observe, silent
from onesigma.converted import Converted, Inputs
from onesigma.engine import watching
from onesigma.errors import InputError
from onesigma.prediction import Prediction
from onesigma.report import Entry
from onesigma.text_table import printable, text_table
from onesigma.values.gaussian import Gaussian, Uncertain

_SEEN = 1e-6  # of a layer's typical MC std: below it an element counts as certain


@dataclass(frozen=True)
class LayerAudit:
    """One layer's output, element by element against the passes.

    Attributes:
        node, where, op: which layer.
        mean_error: median |mean − MC mean| in units of the MC standard deviation.
        std_ratio: median of std / MC std; 1 is perfect, below 1 says it is too sure.
        low, high: the 5th and 95th percentile of that ratio.
        correlation: of log variances: does it know WHERE the uncertainty is?
    """

    node: str
    where: str
    op: str
    mean_error: float
    std_ratio: float
    low: float
    high: float
    correlation: float


@dataclass(frozen=True)
class OutputAudit:
    """The predictive distribution against that of the passes; KL in nats, mean over inputs."""

    kl: float
    kl_noise: float
    plain_kl: float
    entropy_correlation: float
    label_agreement: float


@dataclass(frozen=True)
class Audit:
    """The result of ``audit``: print it, or take it as a dict.

    Attributes:
        layers: each layer's mean and spread against the passes of the graph.
        own: the output's mean and spread against the passes of the user's own network (of its
            graph, if there is nothing else to compare); None without spread.
        own_spread: the standard deviation of that network in units of that of its graph with the
            dropout that was found.
        output: the predicted probabilities against the passes; None for regression.
        passes, inputs: how many there were.
    """

    layers: tuple[LayerAudit, ...]
    own: LayerAudit | None
    own_spread: float | None
    output: OutputAudit | None
    passes: int
    inputs: int

    @property
    def mean_noise(self) -> float:
        """What ``mean_error`` would be of a perfect mean: median |N(0, 1)| / √passes."""
        return 0.6745 / math.sqrt(self.passes)

    @property
    def ratio_noise(self) -> float:
        """The standard error of ``std_ratio`` from the passes alone: of one standard deviation
        1/√(2 passes), of a median 1.25 times a mean's. Only the inputs count as independent, for
        the elements of one share their masks.
        """
        return 1.25 / math.sqrt(2 * (self.passes - 1) * self.inputs)

    @property
    def worst(self) -> LayerAudit | None:
        """The layer whose spread is furthest off; None if no layer has any."""
        return max(self.layers, key=_distance, default=None)

    def to_dict(self) -> dict[str, Any]:
        worst = None if self.worst is None else self.worst.node
        noise = {"mean_noise": self.mean_noise, "ratio_noise": self.ratio_noise}
        return asdict(self) | noise | {"worst": worst}

    def __str__(self) -> str:
        header = ("layer", "op", "mean error", "std ratio", "5 %", "95 %", "log-var corr.")
        rows = [
            (
                layer.where,
                layer.op,
                f"{layer.mean_error:.3f}{_noise(layer.mean_error < 1.5 * self.mean_noise)}",
                f"{layer.std_ratio:.2f}{_noise(abs(layer.std_ratio - 1) < 2 * self.ratio_noise)}",
                *(f"{v:.2f}" for v in (layer.low, layer.high, layer.correlation)),
            )
            for layer in (*self.layers, self.own)
            if layer is not None
        ]
        lines = [
            f"onesigma audit: {self.inputs} inputs, {self.passes} Monte-Carlo passes",
            "",
            text_table(header, rows, numbers=True),
            "",
            "mean error in MC standard deviations; std ratio 1 is perfect, below 1 is too sure "
            f"(± {self.ratio_noise:.3f} from the passes)",
        ]
        return printable("\n".join([*lines, *self._output_lines(), *self._advice()]))

    def _output_lines(self) -> list[str]:
        if self.output is None:
            return []
        out = self.output
        within = " (within it)" if out.kl < 2 * out.kl_noise else ""
        return [
            "",
            f"output: KL to Monte Carlo {out.kl:.4f}, its noise {out.kl_noise:.4f}{within}; "
            f"of the plain network {out.plain_kl:.4f}",
            f"        entropy correlation {out.entropy_correlation:.3f}, "
            f"same label on {100 * out.label_agreement:.1f} %",
        ]

    @property
    def contradicted(self) -> bool:
        """Whether the user's own network is noisier, or less so, than the graph of it."""
        if self.own_spread is None:
            return False
        return abs(self.own_spread - 1) > 0.05 + 4 * self.ratio_noise

    def _advice(self) -> list[str]:
        worst = self.worst
        if self.contradicted:
            return [
                "",
                f"CONTRADICTION: the spread of your own network is {self.own_spread:.2f} times "
                "what the dropout that was found gives. It has noise that is not carried, or "
                "behaves otherwise in training: the notes of the report name what was seen",
            ]
        if worst is None:
            return ["", "no layer carries a spread: only the output is compared"]
        if 0.9 <= worst.std_ratio <= 1.1:
            return ["", "no layer's spread is more than 10 % off"]
        way = "too small" if worst.std_ratio < 1 else "too large"
        return [
            "",
            f"worst layer: {worst.where}, its spread is {way} by a factor {worst.std_ratio:.2f}; "
            "onesigma.calibrate(converted, x) learns from unlabelled inputs what they share",
        ]


@typed
def audit(
    converted: Converted,
    inputs: Inputs,
    *,
    passes: int = 200,
    seed: int = 0,
    progress: Progress = silent,
) -> Audit:
    """Compare a converted model with Monte-Carlo dropout of its original.

    The output is compared with the user's own network in training mode (BatchNorm in eval), which
    may contradict what was captured of it; the layers with its graph, dropout sites on.

    Args:
        converted: the model to check.
        inputs: real inputs without labels, as a tensor or a tuple; a hundred are enough.
        passes: Monte-Carlo passes; errors shrink with their square root.
        seed: of the masks.
        progress: wraps the passes, e.g. ``tqdm.tqdm``.
    """
    if passes < 4:
        raise InputError(f"passes={passes}: an audit needs at least 4, better 200.")
    checked = converted.check_inputs(inputs)
    if len(checked[0]) == 0:
        raise InputError("An audit needs at least one input.")
    layers = layers_of(converted)
    values = carried_at(converted, checked, set(layers))
    observed = observe(converted, checked, set(values), passes, seed=seed, progress=progress)
    audits = [_layer(layers[n], values[n], observed.nodes[n]) for n in layers if n in values]
    with torch.no_grad():
        # Not ``converted(…)``: the passes have no temperature either.
        prediction = converted.answer(*checked)
    own, own_spread = None, None
    is_own = observed.of_graph is not observed.output
    if is_own or not audits:
        name = "your own network" if is_own else "the output"
        row = Entry("output", name, "output", "", "", "", "")
        own = _layer(row, Gaussian(prediction.mean, prediction.var), observed.output)
    if is_own and converted.report.sites:
        own_spread = float((observed.output.var.sum() / observed.of_graph.var.sum()).sqrt())
    output = None
    if converted.settings.task == "classification":
        output = _output(converted, checked, prediction, observed)
    found = tuple(a for a in audits if a is not None)
    return Audit(found, own, own_spread, output, passes, len(checked[0]))


def layers_of(converted: Converted) -> dict[str, Entry]:
    """The report's entries of all ops that compute something uncertain, by node name.

    What moves elements around, or adds the noise itself, tells nothing new.
    """
    rules = converted.settings.rules
    dull = {
        node.name
        for node in converted.source.graph.nodes
        if (rule := rules.get(node.target)) and (rule.moves_only or rule.adds_noise)
    }
    return {
        entry.node: entry
        for entry in converted.report.entries
        if entry.status in ("exact", "approximate") and entry.node not in dull
    }


def carried_at(
    converted: Converted, inputs: Sequence[Tensor], nodes: set[str]
) -> dict[str, Gaussian]:
    """The mean and variance that the engine carries at ``nodes``, as corrected."""
    seen: dict[str, Gaussian] = {}

    def look(node: fx.Node, value: Any) -> None:
        if node.name in nodes and isinstance(value, Uncertain):
            seen[node.name] = value.expanded()

    converted.propagate(inputs, watching(look))
    return seen


def _noise(within: bool) -> str:
    return " (noise)" if within else ""


def _distance(layer: LayerAudit) -> float:
    return abs(math.log(max(layer.std_ratio, 1e-12)))


def _layer(entry: Entry, value: Gaussian, moments: RunningMoments) -> LayerAudit | None:
    std = moments.var.sqrt()
    spread = std > _SEEN * std.max()
    if not bool(spread.any()):
        return None
    ratio = (value.var.double().sqrt() / std)[spread]
    error = ((value.mean.double() - moments.mean).abs() / std)[spread]
    low, middle, high = _quantiles(ratio, (0.05, 0.5, 0.95))
    variances = torch.stack([value.var.double()[spread], moments.var[spread]]).clamp(min=1e-300)
    return LayerAudit(
        entry.node,
        entry.module or entry.node,
        entry.op,
        float(error.median()),
        middle,
        low,
        high,
        _correlation(*variances.log()),
    )


def _output(
    converted: Converted, inputs: Sequence[Tensor], prediction: Prediction, observed: Observed
) -> OutputAudit:
    dim = converted.settings.class_dim
    with torch.no_grad():
        plain = head.classify_certain(converted.source(*inputs)[0], dim)
    assert prediction.probs is not None
    assert prediction.entropy is not None
    reference = observed.reference
    ours, theirs = (p.double().movedim(dim, -1) for p in (prediction.probs, plain.probs))
    first, second = (half.mean for half in observed.probs)
    same = ours.argmax(-1) == reference.probs.argmax(-1)
    return OutputAudit(
        kl=divergence(reference.probs, ours),
        # Two halves differ by four times the variance that the whole has.
        kl_noise=divergence(first, second) / 4,
        plain_kl=divergence(reference.probs, theirs),
        entropy_correlation=_correlation(
            prediction.entropy.double().flatten(), reference.entropy.flatten()
        ),
        label_agreement=float(same.double().mean()),
    )


def divergence(reference: Tensor, probs: Tensor) -> float:
    """The mean of ``divergences``."""
    return float(divergences(reference, probs).mean().detach())


def _correlation(a: Tensor, b: Tensor) -> float:
    if len(a) < 2 or float(a.std()) == 0 or float(b.std()) == 0:
        return float("nan")
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def _quantiles(values: Tensor, at: Sequence[float]) -> list[float]:
    # torch.quantile refuses large inputs; a sort does not.
    ordered = values.sort().values
    return [float(ordered[min(len(ordered) - 1, int(q * len(ordered)))]) for q in at]
