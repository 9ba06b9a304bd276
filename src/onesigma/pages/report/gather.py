"""All figures of the report: the plain network, one pass and Monte Carlo on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from onesigma.baselines.backbone import backbone
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.calibration.comparison import Audit, audit
from onesigma.converted import Converted
from onesigma.decide.labels import checked_labels
from onesigma.decide.threshold import AbstainRule, threshold
from onesigma.errors import InputError
from onesigma.lab.bench.result import Result
from onesigma.pages.report import cost
from onesigma.pages.report.doubt_flow import Stop, doubt_flow
from onesigma.pages.report.scores import answers, of_classes, of_numbers
from onesigma.pages.report.shares import shares
from onesigma.prediction import Prediction

PLAIN, OURS, SAMPLED = "plain network", "one pass", "Monte Carlo"
RISK = 0.05
_BATCH = 64
# Inputs for the figures layer by layer: more than a hundred would change no digit shown, and all
# layers' values together are to fit into memory (three times, in float32).
_LOOKED_INTO, _FEWEST, _ELEMENTS = 100, 4, 50_000_000
Method: TypeAlias = Callable[[Tensor], Prediction]


class Progress(Protocol):
    """Wraps long work, with its name; as ``commands.options.bar``."""

    def __call__(self, steps: Iterable[int], label: str) -> Iterable[int]: ...


@dataclass(frozen=True)
class Findings:
    """What is known of a model and its data; ``write`` makes a page of it.

    Attributes:
        name: of the model.
        converted: the model.
        inputs: all of them.
        labels: the true classes, or the true values of a regression; or None.
        classes: names of the classes, if known.
        predictions: by method, of all inputs.
        flow: the graph, and the doubt at each node.
        shares: of the output's variance, by source of noise.
        audit: layer by layer against Monte Carlo.
        rule: when to act; the model's own, or fitted to these labels.
        passes: of Monte Carlo.
        times: what it costs, or why that was not measured.
        step: the inputs are so far apart in their file.
    """

    name: str
    converted: Converted
    inputs: Tensor
    labels: Tensor | None
    classes: tuple[str, ...] | None
    predictions: dict[str, Prediction]
    flow: tuple[Stop, ...]
    shares: dict[str, float]
    audit: Audit
    rule: AbstainRule | None
    passes: int
    times: Result | str
    step: int = 1

    @property
    def ours(self) -> Prediction:
        return self.predictions[OURS]

    @property
    def classifies(self) -> bool:
        return self.converted.settings.task == "classification"

    def figures(self) -> dict[str, dict[str, float]]:
        """By method: how good the answers are, and the doubt; nothing without labels."""
        if self.labels is None:
            return {}
        if not self.classifies:
            return {name: of_numbers(p, self.labels) for name, p in self.predictions.items()}
        return {name: of_classes(answers(p, self.labels)) for name, p in self.predictions.items()}

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "inputs": len(self.inputs),
            "figures": self.figures(),
            "rule": None if self.rule is None else self.rule.to_dict(),
            "shares": self.shares,
            "audit": self.audit.to_dict(),
            "times": self.times if isinstance(self.times, str) else self.times.to_dict(),
        }

    def class_name(self, index: int) -> str:
        return self.classes[index] if self.classes else f"class {index}"


def gather(
    name: str,
    converted: Converted,
    inputs: Tensor,
    labels: Tensor | None = None,
    *,
    classes: Sequence[str] | None = None,
    passes: int = 100,
    risk: float | None = None,
    step: int = 1,
    progress: Progress = lambda steps, label: steps,
) -> Findings:
    """Measure a model on its data.

    Args:
        name: what to call it.
        converted: the model, with one input.
        inputs: real ones, the batch first.
        labels: their true classes, or the true values of a regression.
        classes: names of the classes.
        passes: of Monte Carlo.
        risk: the share of wrong answers to accept; the model's own rule, or 0.05.
        step: how far apart the inputs lie in their file.
        progress: wraps long work, with its name.
    """
    inputs, labels = _whole_batches(converted, inputs, labels)
    methods = _methods(converted, passes)
    # What is quick and may be wrong comes first.
    predictions = {OURS: _predicted(methods.pop(OURS), converted, inputs)}
    ours = predictions[OURS]
    _require_finite(ours)
    labels = None if labels is None else _checked(converted, ours, labels)
    _require_names(classes, ours)
    rule = _rule(converted, ours, labels, risk)
    looked = _looked_into(converted, inputs)
    audited = audit(converted, looked, passes=passes, progress=lambda p: progress(p, "audit"))
    for each, method in methods.items():
        predictions[each] = _predicted(method, converted, inputs, partial(progress, label=each))
    return Findings(
        name,
        converted,
        inputs,
        labels,
        None if classes is None else tuple(classes),
        {each: predictions[each] for each in (PLAIN, OURS, SAMPLED) if each in predictions},
        doubt_flow(converted, [looked]),
        shares(converted, looked, passes, lambda p: progress(p, "sources of doubt")),
        audited,
        rule,
        passes,
        cost.measure(converted, inputs, progress=lambda rounds: progress(rounds, "timing")),
        step,
    )


def _whole_batches(
    converted: Converted, inputs: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The inputs as the model takes them: of its dtype, and as many as its batch asks for."""
    inputs = inputs.to(getattr(torch, converted.settings.input_dtypes[0]))
    batch = converted.settings.input_shapes[0][0] or 1
    count = len(inputs) // batch * batch
    if count == 0:
        raise InputError(f"{len(inputs)} inputs: the report needs at least {batch}.")
    if labels is not None and len(labels) != len(inputs):
        raise InputError(f"{len(labels)} labels for {len(inputs)} inputs: one each is needed.")
    return inputs[:count], None if labels is None else labels[:count]


def _methods(converted: Converted, passes: int) -> dict[str, Method]:
    task = converted.settings.task
    methods: dict[str, Method] = {PLAIN: backbone(converted, task=task), OURS: converted}
    if converted.report.sites:  # noise of the inputs alone is not what mc_dropout samples
        methods[SAMPLED] = mc_dropout(converted, passes, task=task, max_rows=_BATCH)
    return methods


@torch.no_grad()
def _predicted(
    method: Method,
    converted: Converted,
    inputs: Tensor,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Prediction:
    parts = torch.split(inputs, converted.settings.input_shapes[0][0] or _BATCH)
    return Prediction.cat([method(parts[index]) for index in progress(range(len(parts)))])


def _require_finite(prediction: Prediction) -> None:
    bad = ~(torch.isfinite(prediction.mean) & torch.isfinite(prediction.var)).flatten(1).all(1)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise InputError(
            f"{int(bad.sum())} of {len(bad)} inputs give no finite answer, number {first} (from 0) "
            "the first of them: look for NaN or infinity in the data."
        )


def _checked(converted: Converted, ours: Prediction, labels: Tensor) -> Tensor:
    if ours.probs is not None:
        return checked_labels(ours.probs, labels, converted.settings.class_dim)
    if labels.numel() != ours.mean.numel() or not bool(torch.isfinite(labels).all()):
        raise InputError(
            f"Expected finite true values of shape {tuple(ours.mean.shape)}; "
            f"got {tuple(labels.shape)}."
        )
    return labels.reshape(ours.mean.shape).to(ours.mean)


def _require_names(classes: Sequence[str] | None, ours: Prediction) -> None:
    if classes is None or ours.probs is None:
        return
    count = ours.probs.shape[ours.class_dim]
    if len(classes) != count:
        raise InputError(f"{len(classes)} names for {count} classes: one each is needed.")


def _looked_into(converted: Converted, inputs: Tensor) -> Tensor:
    """Some of the inputs, from all over: recordings lie in the order they were made."""
    count = converted.settings.input_shapes[0][0]
    if count is None:
        elements = sum(math.prod(stop.shape) for stop in doubt_flow(converted, [inputs[:1]]))
        count = min(_LOOKED_INTO, max(_FEWEST, _ELEMENTS // elements))
    return inputs[torch.linspace(0, len(inputs) - 1, min(count, len(inputs))).long()]


def _rule(
    converted: Converted, ours: Prediction, labels: Tensor | None, risk: float | None
) -> AbstainRule | None:
    if converted.abstain is not None and risk is None:
        return converted.abstain
    # Positions of one input are not independent examples: of these no rule can be made.
    if labels is None or ours.entropy is None or ours.entropy.dim() != 1:
        return None
    return threshold(ours, labels, risk=RISK if risk is None else risk)
