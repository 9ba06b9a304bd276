"""What the report knows: the plain network, one pass and Monte Carlo on the same inputs."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, fx

from onesigma import metrics
from onesigma.answer import BROKEN, UNFAMILIAR
from onesigma.baselines.backbone import backbone
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.calibration.comparison import Audit, audit
from onesigma.converted import Converted
from onesigma.decide.temperature import checked_labels
from onesigma.decide.threshold import AbstainRule, threshold
from onesigma.engine import Engine, watching
from onesigma.errors import InputError
from onesigma.pages.html.charts import Floats
from onesigma.pages.report.sources import uncertainty_shares
from onesigma.prediction import Prediction

PLAIN, OURS, SAMPLED = "plain network", "one pass", "Monte Carlo"
FAMILIAR = "familiar"
RISK = 0.05
_BATCH = 64
# Inputs for the figures layer by layer: more than a hundred would change no digit shown.
_MOST_AUDITED, _FEWEST_AUDITED = 100, 4
# Values of all layers together, which must fit into memory three times, in float32.
_MOST_VALUES = 50_000_000
# Wraps the steps of long work, with its name; as ``command.show_progress``.
Progress = Callable[[Iterable[int], str], Iterable[int]]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CostRow:
    """What one answer costs in one runtime; ratios are to the plain network in that runtime."""

    contender: str
    runtime: str
    ratio: float
    noise: float | None  # of the ratio; None if the run was too short to tell
    cpu_ratio: float
    median_ms: float
    file_kb: float | None  # None if the runtime opens no file


@dataclass(frozen=True)
class Cost:
    """Times and file sizes, as somebody measured them; the contenders include ``OURS``."""

    machine: str
    rows: tuple[CostRow, ...]
    energy: tuple[tuple[str, str], ...] = ()  # contender and words
    skipped: tuple[tuple[str, str], ...] = ()  # what could not be measured, and why


@dataclass(frozen=True)
class Answers:
    """The answers of one method as arrays; positions of one input count as answers of their own."""

    probs: Floats
    entropy: Floats
    epistemic: Floats
    labels: npt.NDArray[np.int64] | None

    @property
    def wrong(self) -> Flags:
        assert self.labels is not None
        return metrics.is_wrong(self.probs, self.labels)

    def figures(self) -> dict[str, float]:
        """How good the answers are, and how good the uncertainty."""
        assert self.labels is not None
        both = (self.probs, self.labels)
        return {
            "accuracy": metrics.accuracy(*both),
            "F1 macro": metrics.f1_macro(*both),
            "NLL": metrics.nll(*both),
            "Brier": metrics.brier(*both),
            "ECE": metrics.expected_calibration_error(*both),
            "AUROC wrong": metrics.auroc(self.entropy, self.wrong),
            "AURC": metrics.aurc(self.entropy, self.wrong),
        }


@dataclass(frozen=True)
class Findings:
    """What is known of a model on its data; ``write`` makes a page of it."""

    name: str
    converted: Converted
    inputs: Tensor
    labels: Tensor | None  # the true classes, or the true values of a regression
    class_names: tuple[str, ...] | None
    predictions: dict[str, Prediction]  # by method
    shares: dict[str, float]  # of the output's variance, by source of noise
    audit: Audit
    rule: AbstainRule | None  # when to act: the model's own rule, or one fitted to these labels
    passes: int  # of Monte Carlo
    step: int = 1  # the inputs are every step-th of their file
    foreign: Prediction | None = None  # what it says of inputs that it should not know

    @property
    def ours(self) -> Prediction:
        return self.predictions[OURS]

    @property
    def classifies(self) -> bool:
        return self.converted.settings.task == "classification"

    @cached_property
    def acted(self) -> Flags | None:
        """For each input, whether the rule acts on its answer; None without a rule."""
        return None if self.rule is None else self.rule(self.ours).cpu().numpy()

    @cached_property
    def wrong(self) -> Flags | None:
        """For each input, whether its class is wrong; None without labels or with many answers."""
        if self.labels is None or not self.classifies or self.labels.dim() != 1:
            return None
        return (self.ours.label != self.labels).cpu().numpy()

    def foreign_auroc(self) -> float | None:
        """How well novelty, or without a guard the uncertainty, tells foreign inputs from these."""
        if self.foreign is None:
            return None
        scores = [_oddness(p) for p in (self.ours, self.foreign)]
        is_foreign = np.arange(sum(map(len, scores))) >= len(scores[0])
        return metrics.auroc(np.concatenate(scores), is_foreign)

    def answers(self) -> dict[str, Answers]:
        """The answers by method; of a classifier only."""
        return {name: _flatten(p, self.labels) for name, p in self.predictions.items()}

    def figures(self) -> dict[str, dict[str, float]]:
        """By method: how good the answers and the uncertainty are; nothing without labels."""
        if self.labels is None:
            return {}
        if self.classifies:
            return {name: answers.figures() for name, answers in self.answers().items()}
        return {name: _regression(p, self.labels) for name, p in self.predictions.items()}

    def uncertainty(self) -> Floats:
        """One number per input: entropy, or the standard deviation of a regression."""
        return _uncertainty(self.ours)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "inputs": len(self.inputs),
            "figures": self.figures(),
            "rule": None if self.rule is None else self.rule.to_dict(),
            "acted_on": None if self.acted is None else float(self.acted.mean()),
            "foreign_auroc": self.foreign_auroc(),
            "shares": self.shares,
            "audit": self.audit.to_dict(),
            **({"familiarity": self.familiarity()} if self.guarded else {}),
        }

    @property
    def guarded(self) -> bool:
        return self.ours.novelty is not None

    def familiarity(self, said: Prediction | None = None) -> dict[str, int]:
        """How many inputs are familiar, unfamiliar and broken, of a model with a guard."""
        counts = Counter(odd or FAMILIAR for odd in (said or self.ours).oddness)
        return {name: counts[name] for name in (FAMILIAR, UNFAMILIAR, BROKEN)}

    def reasons(self) -> list[str]:
        """For each input, why the rule acts or not."""
        assert self.rule is not None
        return replace(self.ours, act=self.rule(self.ours)).reason

    def class_name(self, index: int) -> str:
        return self.class_names[index] if self.class_names else f"class {index}"


def gather(
    name: str,
    converted: Converted,
    inputs: Tensor,
    labels: Tensor | None = None,
    *,
    class_names: Sequence[str] | None = None,
    passes: int = 100,
    risk: float | None = None,
    step: int = 1,
    foreign: Tensor | None = None,
    progress: Progress = lambda steps, name: steps,
) -> Findings:
    """Measure a model with one input on real data, the batch first; see ``Findings``.

    ``risk`` is the share of wrong answers to accept; by default the model's own rule is taken, or
    0.05. ``foreign`` are inputs that the model should not know.
    """
    inputs, labels = _whole_batches(converted, inputs, labels)
    # What is quick and may be wrong comes first.
    ours = _predict(converted, converted, inputs)
    _require_finite(ours)
    labels = None if labels is None else _check_labels(converted, ours, labels)
    _check_names(class_names, ours)
    rule = _rule(converted, ours, labels, risk)
    some = _spread_out(converted, inputs)
    others = None if foreign is None else _predict(converted, converted, foreign.to(inputs))
    audited = audit(converted, some, passes=passes, progress=lambda p: progress(p, "audit"))
    return Findings(
        name,
        converted,
        inputs,
        labels,
        None if class_names is None else tuple(class_names),
        _compare_methods(converted, inputs, ours, passes, progress),
        uncertainty_shares(converted, some, passes, lambda p: progress(p, "sources")),
        audited,
        rule,
        passes,
        step,
        others,
    )


def _whole_batches(
    converted: Converted, inputs: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The inputs as the model takes them: of its dtype, and a multiple of its batch."""
    inputs = inputs.to(getattr(torch, converted.settings.input_dtypes[0]))
    batch = converted.settings.input_shapes[0][0] or 1
    count = len(inputs) // batch * batch
    if count == 0:
        raise InputError(f"{len(inputs)} inputs: the report needs at least {batch}.")
    if labels is not None and len(labels) != len(inputs):
        raise InputError(f"{len(labels)} labels for {len(inputs)} inputs: give one for each.")
    return inputs[:count], None if labels is None else labels[:count]


def _compare_methods(
    converted: Converted, inputs: Tensor, ours: Prediction, passes: int, progress: Progress
) -> dict[str, Prediction]:
    task = converted.settings.task
    found = {PLAIN: _predict(backbone(converted, task=task), converted, inputs), OURS: ours}
    if converted.report.sites:  # noise of the inputs alone is not what mc_dropout samples
        sampled = mc_dropout(converted, passes, task=task, max_rows=_BATCH)
        found[SAMPLED] = _predict(sampled, converted, inputs, progress)
    return found


@torch.no_grad()
def _predict(
    method: Callable[[Tensor], Prediction],
    converted: Converted,
    inputs: Tensor,
    progress: Progress = lambda steps, name: steps,
) -> Prediction:
    parts = torch.split(inputs, converted.settings.input_shapes[0][0] or _BATCH)
    return Prediction.cat([method(parts[i]) for i in progress(range(len(parts)), SAMPLED)])


def _require_finite(prediction: Prediction) -> None:
    bad = ~(torch.isfinite(prediction.mean) & torch.isfinite(prediction.var)).flatten(1).all(1)
    if bool(bad.any()):
        raise InputError(
            f"{int(bad.sum())} of {len(bad)} inputs give an answer that is not finite; the first "
            f"is number {int(bad.nonzero()[0])} (from 0). Look for NaN or infinity in the data."
        )


def _check_labels(converted: Converted, ours: Prediction, labels: Tensor) -> Tensor:
    if ours.probs is not None:
        return checked_labels(ours.probs, labels, converted.settings.class_dim)
    if labels.numel() != ours.mean.numel() or not bool(torch.isfinite(labels).all()):
        raise InputError(
            f"Expected finite true values of shape {tuple(ours.mean.shape)}; "
            f"got {tuple(labels.shape)}."
        )
    return labels.reshape(ours.mean.shape).to(ours.mean)


def _check_names(class_names: Sequence[str] | None, ours: Prediction) -> None:
    if class_names is not None and ours.probs is not None:
        count = ours.probs.shape[ours.class_dim]
        if len(class_names) != count:
            raise InputError(f"{len(class_names)} names for {count} classes: give one for each.")


def _rule(
    converted: Converted, ours: Prediction, labels: Tensor | None, risk: float | None
) -> AbstainRule | None:
    if converted.abstain is not None and risk is None:
        return converted.abstain
    # Positions of one input are not independent examples: they give no rule.
    if labels is None or ours.entropy is None or ours.entropy.dim() != 1:
        return None
    return threshold(ours, labels, risk=RISK if risk is None else risk)


def _spread_out(converted: Converted, inputs: Tensor) -> Tensor:
    """Some inputs from all over the file, because neighbours in a recording are alike."""
    count = converted.settings.input_shapes[0][0]
    if count is None:
        each = max(1, _count_elements(converted.source, inputs[:1]))
        count = min(_MOST_AUDITED, max(_FEWEST_AUDITED, _MOST_VALUES // each))
    return inputs[torch.linspace(0, len(inputs) - 1, min(count, len(inputs))).long()]


@torch.no_grad()
def _count_elements(graph: fx.GraphModule, inputs: Tensor) -> int:
    """How many numbers all ops of a graph return."""
    sizes = list[int]()

    def count(node: fx.Node, value: Any) -> None:
        sizes.append(value.numel() if isinstance(value, Tensor) else 0)

    Engine(graph, {}, observer=watching(count)).run(inputs)
    return sum(sizes)


def _uncertainty(said: Prediction) -> Floats:
    value = said.std if said.entropy is None else said.entropy
    return np.asarray(to_array(value).reshape(len(value), -1).mean(1))


def _oddness(said: Prediction) -> Floats:
    return _uncertainty(said) if said.novelty is None else -to_array(said.novelty)


def _flatten(prediction: Prediction, labels: Tensor | None) -> Answers:
    assert prediction.probs is not None
    probs = prediction.probs.movedim(prediction.class_dim, -1)
    return Answers(
        to_array(probs.reshape(-1, probs.shape[-1])),
        to_array(prediction.entropy).reshape(-1),
        to_array(prediction.epistemic).reshape(-1),
        None if labels is None else labels.reshape(-1).cpu().numpy().astype(np.int64),
    )


def _regression(prediction: Prediction, truth: Tensor) -> dict[str, float]:
    """As ``Answers.figures``; a method without variance has errors only."""
    mean, std, true = to_array(prediction.mean), to_array(prediction.std), to_array(truth)
    error = np.abs(true - mean)
    known = {"RMSE": float(np.sqrt(np.square(error).mean())), "mean error": float(error.mean())}
    if not std.any():
        return known
    return known | {
        "NLL": metrics.gaussian_nll(mean, std**2, true),
        "within 1 std": float((error <= std).mean()),
        "within 2 std": float((error <= 2 * std).mean()),
    }


def to_array(tensor: Tensor | None) -> Floats:
    assert tensor is not None
    return tensor.detach().double().cpu().numpy()
