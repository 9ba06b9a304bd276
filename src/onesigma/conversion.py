"""``convert``: the order of the passes, in plain sight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma import head
from onesigma.converted import Converted, Settings
from onesigma.engine import Rehearse
from onesigma.errors import InputError, ModelError, NoRandomness, UnsupportedOp
from onesigma.graph.capture import export, plain_module
from onesigma.graph.flow import Flow, trace_noise
from onesigma.graph.fold import fold, fold_sums
from onesigma.graph.prepare import Prepared, prepare
from onesigma.graph.scale import scale_weights
from onesigma.importers.keras import as_module
from onesigma.logits import MAX_CLASSES, PropagateToLogits, has_linear_logits
from onesigma.report import Report, make_report
from onesigma.rules import RuleTable, rules_for
from onesigma.rules.modes import DROPOUTS, MEANS, VARIANCES
from onesigma.rules.table import INDEPENDENT, SEPARATE
from onesigma.values.gaussian import Gaussian, Value

_PRIOR = "input_variance"
TASKS = ("classification", "regression")


def convert(
    model: nn.Module,
    example_input: Tensor | tuple[Tensor, ...],
    *,
    input_std: float | Tensor | None = None,
    mean: str = "matched",
    variance: str = "full",
    task: str = "classification",
    draws: int = 64,
    sampling: str = "quasi",
    class_dim: int | None = None,
    dropout: str = "inverted",
    covariance: bool = False,
) -> Converted:
    """Turn a trained network into one that also says how sure it is, from one forward pass.

    The model is not changed, its weights are shared, nothing is retrained.

    Args:
        model: a trained network with dropout, returning logits (a final softmax is understood).
        example_input: a tensor shaped like a real batch, or a tuple of them.
        input_std: standard deviation of the input noise (the paper: of the training data), as a
            number, one per channel, or a tensor of the input's shape without batch.
        mean: "matched" as in the paper; "frozen" keeps the model's own answer bit for bit as the
            mean (and gives ``plain_probs``), with only the variance carried along, to first order.
        variance: "full" with w² of every layer; "lowrank" with its closed-form product of sums,
            at a fraction of the cost (docs/modes.md). Its small constants are computed once: they
            do not follow later changes of the weights.
        task: "classification", or "regression" for mean and variance only.
        draws: how many fixed points the head averages the softmax over.
        sampling: "quasi" for low-discrepancy points, "random" for plain draws as in the paper.
        class_dim: dimension of the classes in the output; 1, or that of the final softmax.
        dropout: "inverted" as in PyTorch, Keras and ONNX, or "classic" as in the paper's
            equations, for networks trained without the 1/(1 − p) scaling.
        covariance: let the head see how the logits vary together, where the last op is a linear
            layer (of at most 64 classes). It helps after ``calibrate``, which turns it on where
            it does; without gains it makes an under-stated spread worse.

    Raises:
        UnsupportedOp: ops without a rule; the message lists them all with their source lines.
        NoRandomness: no dropout reaches the output and there is no ``input_std``.
    """
    choices = {"task": TASKS, "dropout": DROPOUTS, "mean": MEANS, "variance": VARIANCES}
    chosen: dict[str, Any] = {"task": task, "dropout": dropout, "mean": mean, "variance": variance}
    for name, value in chosen.items():
        _one_of(name, value, choices[name])
    rules = rules_for(dropout, variance, mean)

    prepared = prepare(as_module(model), example_input, task, class_dim)
    source, prior = prepared.graph, _prior(input_std, prepared)
    _refuse_unsupported(prepared, rules, prior)
    flow = trace_noise(source, rules, prior=prior is not None)
    report = make_report(source, flow, rules, _notes(prepared, covariance))
    _require_randomness(report, flow)

    chosen |= {"draws": draws, "sampling": sampling, "covariance": covariance}
    settings = Settings(**chosen, **_inputs(prepared), tuning=untuned(flow))
    return assemble(source, prepared.examples, report, settings, prior)


def _notes(prepared: Prepared, covariance: bool) -> list[str]:
    if not covariance or has_linear_logits(prepared.graph):
        return list(prepared.notes)
    missing = f"no last linear layer of at most {MAX_CLASSES} classes"
    return [*prepared.notes, f"no covariance of the logits: {missing}"]


def untuned(flow: Flow) -> dict[str, dict[str, Any]]:
    """What holds before ``calibrate`` has looked: members of a maximum that share noise are taken
    as correlated by a half, which fits better than not at all (docs/fidelity.md).
    """
    return {
        node.name: {"correlation": 0.5}
        for node, step in flow.steps.items()
        if step.rule and step.rule.family == "maximum" and {INDEPENDENT, SEPARATE} & {*step.broken}
    }


def assemble(
    source: fx.GraphModule,
    examples: tuple[Tensor, ...],
    report: Report,
    settings: Settings,
    prior: Tensor | None,
    *,
    lean: bool = False,
) -> Converted:
    """Propagate, re-trace, fold: from a prepared graph to the deliverable (or a lean one)."""
    propagated = _Propagated(source, examples, settings, prior, lean)
    dynamic = settings.input_shapes[0][0] is None
    network = plain_module(export(propagated, examples, dynamic=dynamic))
    if prior is not None:
        fold(network, _PRIOR)
    scale_weights(network)
    if settings.variance == "lowrank":
        fold_sums(network)
    return Converted(network, source, report, settings, prior).eval()


class _Propagated(nn.Module):
    """The network as the engine runs it; retraced once, then thrown away."""

    def __init__(
        self,
        source: fx.GraphModule,
        examples: tuple[Tensor, ...],
        settings: Settings,
        prior: Tensor | None,
        lean: bool,
    ) -> None:
        super().__init__()
        self.source = source
        self.settings = settings
        self.lean = lean
        self.register_buffer(_PRIOR, prior)
        if settings.task == "classification":
            logits = source(*examples)[0]
            classes = _classes(logits, settings.class_dim)
            draws = head.fixed_draws(settings.draws, classes, settings.sampling)
            self.register_buffer("draws", draws.to(logits))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = uncertain(inputs, getattr(self, _PRIOR))
        engine = PropagateToLogits(self.source, **self.settings.engine(lean=self.lean))
        (out,) = engine.run(*values)
        dim = self.settings.class_dim
        if isinstance(out, Tensor):
            doubt = head.certain(out, dim) if self.settings.task == "classification" else ()
            return (out, torch.zeros_like(out), *doubt)
        out = out.expanded()
        if self.settings.task == "regression":
            return out.mean, out.var.contiguous()
        draws, mean = self.get_buffer("draws"), head.shifted(out.mean, self.settings.shift, dim)
        if self.settings.covariance and engine.covariance is not None:
            doubt = head.classify_correlated(mean, engine.covariance, draws)
        else:
            doubt = head.classify(mean, out.var, draws, dim)
        return (out.mean, out.var.contiguous(), *doubt)


def uncertain(inputs: Sequence[Tensor], prior: Tensor | None) -> list[Value]:
    """The inputs as the engine takes them: with the prior, if there is one."""
    return [x if prior is None else Gaussian(x, prior) for x in inputs]


def _one_of(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise InputError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}.")


def _classes(logits: Tensor, class_dim: int) -> int:
    known = -logits.dim() <= class_dim < logits.dim()
    if logits.dim() < 2 or not known or logits.shape[class_dim] < 2:
        raise ModelError(
            f"The model returns a tensor of shape {tuple(logits.shape)}: no class dimension "
            f"{class_dim} with two or more classes. Pass class_dim, or task='regression'."
        )
    return logits.shape[class_dim]


def _inputs(prepared: Prepared) -> dict[str, Any]:
    batch = [None] if prepared.dynamic_batch else [len(prepared.examples[0])]
    shapes = tuple((*batch, *x.shape[1:]) for x in prepared.examples)
    dtypes = tuple(str(x.dtype).removeprefix("torch.") for x in prepared.examples)
    return {"class_dim": prepared.class_dim, "input_shapes": shapes, "input_dtypes": dtypes}


def _prior(input_std: float | Tensor | None, prepared: Prepared) -> Tensor | None:
    """The variance of the input, with a batch of one and the full shape of a sample."""
    if input_std is None:
        return None
    if len(prepared.examples) > 1 or not prepared.examples[0].is_floating_point():
        raise InputError("input_std needs a model with one floating-point input.")
    example = prepared.examples[0]
    std = torch.as_tensor(input_std, dtype=example.dtype, device=example.device)
    if not bool(torch.isfinite(std).all()) or bool((std < 0).any()):
        raise InputError("input_std must be finite and not negative.")
    sample = tuple(example.shape[1:])
    if std.dim() == 1 and len(sample) > 1 and len(std) == sample[0]:
        std = std.reshape([-1] + [1] * (len(sample) - 1))
    # No other broadcasting: a vector along the last dim would pass for one along the channels.
    if std.dim() in (0, len(sample)):
        with suppress(RuntimeError):
            return std.square().expand(sample).unsqueeze(0).clone()
    raise InputError(
        f"input_std of shape {tuple(std.shape)} fits neither a number, {sample[0]} channels "
        f"nor a sample of shape {sample}."
    )


@torch.no_grad()
def _refuse_unsupported(prepared: Prepared, rules: RuleTable, prior: Tensor | None) -> None:
    rehearsal = Rehearse(prepared.graph, rules)
    rehearsal.run(*uncertain(prepared.examples, prior))
    if refusals := rehearsal.refusals:
        title = f"{len(refusals)} op(s) meet uncertain values and cannot be converted:"
        raise UnsupportedOp("\n  ".join([title, *refusals]))


def _require_randomness(report: Report, flow: Flow) -> None:
    # Sites whose rates are all 0 are no mistake: the report says that they add nothing.
    if flow.reaches_output or (report.sites and all(site.rate == 0 for site in report.sites)):
        return
    hidden = [note for note in report.notes if "training mode" in note]
    raise NoRandomness(
        "No dropout reaches the output, so there is no doubt to carry. The model must have been "
        "trained with dropout (nn.Dropout or F.dropout(x, p, self.training)); or pass input_std."
        + "".join(f"\n  {note}" for note in hidden)
    )
