"""``convert``: the order of the passes, in plain sight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma import head
from onesigma.arguments import typed
from onesigma.converted import PARTICLES, Converted, Inputs, Settings, with_prior
from onesigma.engine import Engine
from onesigma.errors import InputError, ModelError, NoRandomness, UnsupportedOp
from onesigma.graph.capture import as_graph, quiet
from onesigma.graph.flow import Flow, trace_noise
from onesigma.graph.fold import fold
from onesigma.graph.locate import describe, op_name, output_of, place
from onesigma.graph.own import OwnNetwork
from onesigma.graph.particles import spread
from onesigma.graph.prepare import Prepared, prepare
from onesigma.graph.scale import scale_weights
from onesigma.graph.split import last_dropout, nodes_behind
from onesigma.importers.keras import as_module
from onesigma.prediction import OUTPUTS
from onesigma.report import Report, make_report, plain_report
from onesigma.rules import RULES, RuleTable
from onesigma.rules.affine import MAX_CLASSES
from onesigma.rules.corrections import Corrections, MaximumCorrelation, Together
from onesigma.rules.dropout import DROPOUTS, rules_for
from onesigma.rules.table import INDEPENDENT, SEPARATE
from onesigma.text_table import first_few
from onesigma.values.gaussian import Gaussian, Value, mapped

_PRIOR = "input_variance"
_SHOWN = 3  # places of one refusal
TASKS = tuple(OUTPUTS)
DRAWS, SAMPLING = 64, "quasi"
FIXED_BATCH = "The model fixes its batch size: write forward() for any batch and convert it again."


@typed
def convert(
    model: nn.Module,
    example_input: Inputs,
    *,
    output: str | int | None = None,
    input_std: float | Tensor | None = None,
    task: str = "classification",
    draws: int = DRAWS,
    sampling: str = SAMPLING,
    class_dim: int | None = None,
    dropout: str = "inverted",
    covariance: bool = False,
    particles: int = 0,
) -> Converted:
    """Turn a trained network into one that also says how sure it is, from one forward pass.

    The model is not changed, its weights are shared, nothing is retrained.

    Args:
        model: a trained network with dropout, returning logits (a final softmax is understood).
        example_input: a tensor shaped like a real batch, a tuple of them, or a dict of them by the
            names of the model's arguments.
        output: which one is the answer, of a model that returns several tensors: a name or an
            index, e.g. "logits" or 0. Not needed if only one of them is floating-point.
        input_std: standard deviation of the input noise (the paper: of the training data), as a
            number, one per channel, or a tensor of the input's shape without batch.
        task: "classification", or "regression" for mean and variance only.
        draws: how many fixed points the head averages the softmax over.
        sampling: "quasi" for low-discrepancy points, "random" for plain draws as in the paper.
        class_dim: dimension of the classes in the output; 1, or that of the final softmax.
        dropout: "inverted" as in PyTorch, Keras and ONNX, or "classic" as in the paper's
            equations, for networks trained without the 1/(1 − p) scaling.
        covariance: let the head see how the logits vary together, where the last op is a linear
            layer (of at most 64 classes). It helps after ``calibrate``, which turns it on where
            it does; without gains it makes an under-stated spread worse.
        particles: let so many rows with fixed masks stand for each input, in place of moments: for
            ops that have no good rule, as recurrent layers and attention. It takes so many times
            as long, and is stratified sampling, not a closed form.

    Raises:
        UnsupportedOp: ops without a rule; the message lists them all with their source lines.
        NoRandomness: no dropout reaches the output and there is no ``input_std``.
    """
    require_one_of("task", task, TASKS)
    require_one_of("dropout", dropout, DROPOUTS)
    has_prior = input_std is not None
    prepared = prepare(
        as_module(model), example_input, task, class_dim, prior=has_prior, output=output
    )
    source, prior = prepared.graph, _prior(input_std, prepared)
    settings = Settings(
        task=task, dropout=dropout, draws=draws, sampling=sampling, **describe_inputs(prepared)
    )
    if particles:
        return _with_particles(prepared, settings, particles, prior)
    rules = settings.rules
    _refuse_unsupported(prepared, rules, prior)
    flow = trace_noise(source, rules, prior=prior is not None)
    report = make_report(source, flow, rules, _notes(prepared, covariance))
    _require_randomness(report, flow)

    settings = replace(settings, corrections=starting_corrections(flow))
    if covariance:
        settings = with_covariance(settings, source)
    return assemble(source, prepared.examples, report, settings, prior, prepared.own)


def as_captured(
    model: nn.Module, examples: Inputs, task: str, class_dim: int | None, output: str | int | None
) -> Converted:
    """The network as it is; what is missing is its uncertainty. It needs no rules."""
    prepared = prepare(as_module(model), examples, task, class_dim, output=output)
    settings = Settings(task, draws=0, sampling="", dropout="inverted", **describe_inputs(prepared))
    report = plain_report(prepared.graph, prepared.notes)
    return Converted(prepared.graph, prepared.graph, report, settings, None, prepared.own).eval()


def _with_particles(
    prepared: Prepared, settings: Settings, count: int, prior: Tensor | None
) -> Converted:
    """Rows with fixed masks up to the last dropout; that one in closed form where it can be."""
    if count < 2 or prior is not None or settings.dropout != "inverted":
        raise InputError(
            f"particles={count}: give two or more, with inverted dropout and without input_std."
        )
    if not prepared.dynamic_batch:
        raise InputError(f"Particles need an open batch. {FIXED_BATCH}")
    last = closed_form_dropout(prepared.graph)
    rows = spread(prepared.graph, count, keep=last)
    flow = trace_noise(prepared.graph, settings.rules, prior=False)
    report = plain_report(prepared.graph, prepared.notes)
    _require_randomness(report, flow)
    note = f"{count} rows with fixed masks for each input: stratified sampling, not a closed form"
    report = report.with_head(PARTICLES, note)
    settings = replace(settings, form=PARTICLES, particles=count)
    propagated = _Propagated(rows, prepared.examples, settings, None)
    network = as_graph(propagated, prepared.examples, dynamic=True)
    return Converted(network, prepared.graph, report, settings, None, prepared.own).eval()


def closed_form_dropout(source: fx.GraphModule) -> fx.Node | None:
    """The last dropout, if all noise passes through it and then through linear ops alone."""
    last = last_dropout(source.graph)
    if last is None:
        return None
    behind = nodes_behind(source.graph, [last]) - {last}
    rules = [RULES.get(node.target) for node in behind]
    linear = all(r is not None and (r.linear_in_variance or r.moves_only) for r in rules)
    return last if linear else None


def _notes(prepared: Prepared, covariance: bool) -> list[str]:
    if not covariance or has_linear_logits(prepared.graph):
        return list(prepared.notes)
    missing = f"no last linear layer of at most {MAX_CLASSES} classes"
    return [*prepared.notes, f"no covariance of the logits: {missing}"]


def starting_corrections(flow: Flow) -> Corrections:
    """Members of a maximum that share noise are taken as correlated by a half.

    That fits better than not at all (docs/fidelity.md), until ``calibrate`` has looked.
    """
    return {
        node.name: (MaximumCorrelation(0.5),)
        for node, step in flow.steps.items()
        if step.rule and step.rule.is_maximum and {INDEPENDENT, SEPARATE} & {*step.broken}
    }


def has_linear_logits(source: fx.GraphModule) -> bool:
    """Whether a linear layer of few enough classes makes the output."""
    output = output_of(source)
    rule = RULES.get(output.target)
    if rule is None or Together not in rule.accepts:
        return False
    logits = output.meta["val"]
    return logits.dim() == 2 and int(logits.shape[1]) <= MAX_CLASSES


def with_covariance(settings: Settings, source: fx.GraphModule) -> Settings:
    """Settings in which the last layer keeps how its outputs vary together, where it can."""
    if not has_linear_logits(source):
        return settings
    last, corrections = output_of(source).name, dict(settings.corrections)
    kept = tuple(c for c in corrections.get(last, ()) if not isinstance(c, Together))
    return replace(settings, corrections=corrections | {last: (*kept, Together())})


def assemble(
    source: fx.GraphModule,
    examples: tuple[Tensor, ...],
    report: Report,
    settings: Settings,
    prior: Tensor | None,
    own: OwnNetwork | None = None,
) -> Converted:
    """Propagate, write down, fold: from a prepared graph to the deliverable."""
    propagated = _Propagated(source, examples, settings, prior)
    network = as_graph(propagated, examples, dynamic=settings.dynamic_batch)
    if prior is not None:
        fold(network, _PRIOR)
    scale_weights(network)
    return Converted(network, source, report, settings, prior, own).eval()


class _Propagated(nn.Module):
    """The network as the engine runs it; written down once, then thrown away."""

    def __init__(
        self,
        source: fx.GraphModule,
        examples: tuple[Tensor, ...],
        settings: Settings,
        prior: Tensor | None,
    ) -> None:
        super().__init__()
        self.source = source
        self.settings = settings
        self.register_buffer(_PRIOR, prior)
        if settings.task == "classification":
            logits = source(*examples)[0]
            classes = _count_classes(logits, settings.class_dim)
            draws = head.fixed_draws(settings.draws, classes, settings.sampling)
            self.register_buffer("draws", draws.to(logits))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        settings = self.settings
        engine = Engine(self.source, rules_for(settings.dropout), settings.corrections)
        (out,) = engine.run(*with_prior(inputs, getattr(self, _PRIOR)))
        fields = self._moments(out)
        if settings.task == "classification":
            fields |= self._classify(out)._asdict()
        if settings.particles:
            fields = head.join_particles(fields, settings.particles, settings.class_dim)
        return tuple(fields[name] for name in OUTPUTS[settings.task])

    def _moments(self, out: Value) -> dict[str, Tensor]:
        if isinstance(out, Tensor):
            return {"mean": out, "var": torch.zeros_like(out)}
        return {"mean": out.mean, "var": out.expanded().var.contiguous()}

    def _classify(self, logits: Value) -> head.Classification:
        dim = self.settings.class_dim
        if isinstance(logits, Tensor):
            return head.classify_certain(logits, dim)
        return head.classify(logits, self.get_buffer("draws"), dim)


def require_one_of(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise InputError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}.")


def _count_classes(logits: Tensor, class_dim: int) -> int:
    known = -logits.dim() <= class_dim < logits.dim()
    if logits.dim() < 2 or not known or logits.shape[class_dim] < 2:
        raise ModelError(
            f"The model returns a tensor of shape {tuple(logits.shape)}: no class dimension "
            f"{class_dim} with two or more classes. Pass class_dim, or task='regression'."
        )
    return logits.shape[class_dim]


def describe_inputs(prepared: Prepared) -> dict[str, Any]:
    """What ``Settings`` say of the inputs, and of the classes."""
    batch = [None] if prepared.dynamic_batch else [len(prepared.examples[0])]
    shapes = tuple((*batch, *x.shape[1:]) for x in prepared.examples)
    dtypes = tuple(str(x.dtype).removeprefix("torch.") for x in prepared.examples)
    return {
        "class_dim": prepared.class_dim,
        "input_shapes": shapes,
        "input_dtypes": dtypes,
        "input_names": prepared.input_names,
    }


def _prior(input_std: float | Tensor | None, prepared: Prepared) -> Tensor | None:
    """The variance of the input, with a batch of one and the full shape of a sample."""
    if input_std is None:
        return None
    if len(prepared.examples) > 1 or not prepared.examples[0].is_floating_point():
        raise InputError("input_std needs a model with one floating-point input.")
    example = prepared.examples[0]
    std = torch.as_tensor(input_std, dtype=example.dtype, device=example.device)
    if not bool((torch.isfinite(std.square()) & (std >= 0)).all()):
        raise InputError("input_std must not be negative, and it and its square must be finite.")
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
    """A trial run that notes every refusal and goes on, so that all are told at once."""
    refusals: dict[tuple[str, str], list[str]] = {}

    def note_refusal(engine: Engine, node: fx.Node, compute: Callable[[], Any]) -> Any:
        try:
            return compute()
        except UnsupportedOp as refusal:
            reason = str(refusal).removeprefix(f"{describe(node)}: ")
            refusals.setdefault((op_name(node), reason), []).append(place(node))
            # In place of a mean, one of two values, which has the right dtype.
            means: Any = mapped(
                engine.fetch_args_kwargs_from_env(node), lambda x: getattr(x, "kept", x.mean)
            )
            return _as_if_uncertain(node.target(*means[0], **means[1]))  # type: ignore[operator]

    rows = 1 if prepared.dynamic_batch else None
    inputs = with_prior([x[:rows] for x in prepared.examples], prior)
    with quiet():  # behind a refusal, numbers need not make sense
        Engine(prepared.graph, rules, observer=note_refusal).run(*inputs)
    if refusals:
        title = (
            f"{sum(map(len, refusals.values()))} op(s) meet uncertain values and cannot be "
            "converted (onesigma.fit needs no rules, and takes the network as it is):"
        )
        told = {key: first_few(at, _SHOWN, "; ") for key, at in refusals.items()}
        lines = (f"{op} ({at}): {reason}" for (op, reason), at in told.items())
        raise UnsupportedOp("\n  ".join([title, *lines]))


def _as_if_uncertain(output: Any) -> Any:
    """What follows a refused op is uncertain too, and its own refusals are to be heard."""
    if isinstance(output, list | tuple):
        return [_as_if_uncertain(value) for value in output]
    if isinstance(output, Tensor) and output.is_floating_point():
        return Gaussian(output, torch.zeros_like(output))
    return output


def _require_randomness(report: Report, flow: Flow) -> None:
    # With all rates 0 it is the original network, and the report carries a WARNING.
    if flow.reaches_output or report.is_silent:
        return
    hidden = [note for note in report.notes if "training mode" in note]
    raise NoRandomness(
        "No dropout reaches the output, so there is no uncertainty to carry. The model must have "
        "been trained with dropout (nn.Dropout or F.dropout(x, p, self.training)); or pass "
        "input_std." + "".join(f"\n  {note}" for note in hidden)
    )
