"""``convert``: the order of the passes, in plain sight."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma import head
from onesigma.errors import InputError, ModelError, NoRandomness, UnsupportedOp
from onesigma.gaussian import Gaussian, Value
from onesigma.passes.capture import Captured, capture, export, plain_module
from onesigma.passes.flow import Flow, trace_noise
from onesigma.passes.fold import fold
from onesigma.passes.functionalize import functionalize
from onesigma.passes.inline import inline
from onesigma.passes.locate import describe
from onesigma.passes.strip import refuse_final_sigmoid, strip_softmax
from onesigma.prediction import Prediction
from onesigma.propagate import Propagate
from onesigma.report import Report, make_report
from onesigma.rules import RULES, RuleTable
from onesigma.rules.dropout import CLASSIC

_PRIOR = "input_variance"


@dataclass(frozen=True)
class Settings:
    """How a model was converted; saved with it."""

    task: str
    class_dim: int
    draws: int
    sampling: str
    dropout: str
    input_shapes: tuple[tuple[int | None, ...], ...]
    input_dtypes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Converted(nn.Module):
    """A network that answers with a ``Prediction``: a plain graph, no interpreter inside.

    Attributes:
        network: the graph, sharing its weights with the original model.
        source: the original network as a graph, dropout sites included (the Monte-Carlo reference).
        report: what was converted, by which rule, and how exactly.
    """

    def __init__(
        self, network: fx.GraphModule, source: fx.GraphModule, report: Report, settings: Settings
    ) -> None:
        super().__init__()
        self.network = network
        # Not a submodule: its weights are those of ``network``, and must not be listed twice.
        self._source = (source,)
        self.report = report
        self.settings = settings

    @property
    def source(self) -> fx.GraphModule:
        return self._source[0]

    def forward(self, *inputs: Tensor) -> Prediction:
        return Prediction(*self.network(*self._checked(inputs)))

    def _checked(self, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        shapes = self.settings.input_shapes
        if len(inputs) != len(shapes):
            raise InputError(f"The model takes {len(shapes)} inputs, not {len(inputs)}.")
        return [
            check_input(x, shape, getattr(torch, dtype))
            for x, shape, dtype in zip(inputs, shapes, self.settings.input_dtypes, strict=True)
        ]

    def extra_repr(self) -> str:
        approximate = len(self.report.approximate)
        return f"sites={len(self.report.sites)}, approximate_ops={approximate}"


def check_input(x: Tensor, shape: tuple[int | None, ...], dtype: torch.dtype) -> Tensor:
    """Refuse what would give a wrong answer or an obscure error; cast half precision up."""
    wanted = ", ".join("batch" if n is None else str(n) for n in shape)
    if not isinstance(x, Tensor):
        raise InputError(f"Expected a tensor of shape ({wanted}), not {type(x).__name__}.")
    if x.dim() != len(shape) or any(
        n is not None and n != m for n, m in zip(shape, x.shape, strict=True)
    ):
        raise InputError(f"Expected an input of shape ({wanted}), not {tuple(x.shape)}.")
    if dtype.is_floating_point != x.is_floating_point():
        raise InputError(f"Expected a {dtype} input, not {x.dtype}. Convert it: x.to({dtype}).")
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def convert(
    model: nn.Module,
    example_input: Tensor | tuple[Tensor, ...],
    *,
    input_std: float | Tensor | None = None,
    task: str = "classification",
    draws: int = 64,
    sampling: str = "quasi",
    class_dim: int | None = None,
    dropout: str = "inverted",
) -> Converted:
    """Turn a trained network into one that also says how sure it is, from one forward pass.

    The model is not changed, its weights are shared, nothing is retrained.

    Args:
        model: a trained network with dropout, returning logits (a final softmax is understood).
        example_input: a tensor shaped like a real batch, or a tuple of them.
        input_std: standard deviation of the input noise (the paper: of the training data), as a
            number, one per channel, or a tensor of the input's shape without batch.
        task: "classification", or "regression" for mean and variance only.
        draws: how many fixed points the head averages the softmax over.
        sampling: "quasi" for low-discrepancy points, "random" for plain draws as in the paper.
        class_dim: dimension of the classes in the output; 1, or that of the final softmax.
        dropout: "inverted" as in PyTorch, Keras and ONNX, or "classic" as in the paper's
            equations, for networks trained without the 1/(1 − p) scaling.

    Raises:
        UnsupportedOp: ops without a rule; the message lists them all with their source lines.
        NoRandomness: no dropout reaches the output and there is no ``input_std``.
    """
    _one_of("task", task, ("classification", "regression"))
    _one_of("dropout", dropout, ("inverted", "classic"))
    rules: RuleTable = RULES if dropout == "inverted" else {**RULES, **CLASSIC}

    captured = capture(model, example_input)
    source, notes = captured.graph, list(captured.notes)
    inline(source)
    functionalize(source)
    if task == "classification":
        refuse_final_sigmoid(source)
        if stripped := strip_softmax(source):
            softmax_dim, note = stripped
            class_dim = softmax_dim if class_dim is None else class_dim
            notes.append(note)

    prior = _prior(input_std, captured)
    flow = trace_noise(source, rules, prior=prior is not None)
    _refuse_unsupported(flow)
    report = make_report(source, flow, rules, notes)
    _require_randomness(report, flow, prior)

    settings = _settings(captured, task, class_dim, draws, sampling, dropout)
    propagated = _Propagated(source, rules, settings, prior, captured)
    network = plain_module(export(propagated, captured.examples, dynamic=captured.dynamic_batch))
    if prior is not None:
        fold(network, _PRIOR)
    return Converted(network, source, report, settings).eval()


class _Propagated(nn.Module):
    """The network as the engine runs it; retraced once, then thrown away."""

    def __init__(
        self,
        source: fx.GraphModule,
        rules: RuleTable,
        settings: Settings,
        prior: Tensor | None,
        captured: Captured,
    ) -> None:
        super().__init__()
        self.source = source
        self.rules = rules
        self.settings = settings
        self.register_buffer(_PRIOR, prior)
        if settings.task == "classification":
            logits = source(*captured.examples)[0]
            classes = _classes(logits, settings.class_dim)
            draws = head.fixed_draws(settings.draws, classes, settings.sampling)
            self.register_buffer("draws", draws.to(logits))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        prior = self.get_buffer(_PRIOR) if self._buffers[_PRIOR] is not None else None
        values: list[Value] = [x if prior is None else Gaussian(x, prior) for x in inputs]
        (out,) = Propagate(self.source, self.rules).run(*values)
        dim = self.settings.class_dim
        if isinstance(out, Tensor):
            doubt = head.certain(out, dim) if self.settings.task == "classification" else ()
            return (out, torch.zeros_like(out), *doubt)
        out = out.expanded()
        if self.settings.task == "regression":
            return out.mean, out.var.contiguous()
        return (out.mean, out.var.contiguous(), *head.classify(out.mean, out.var, self.draws, dim))


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}.")


def _classes(logits: Tensor, class_dim: int) -> int:
    if logits.dim() < 2 or logits.shape[class_dim] < 2:
        raise ModelError(
            f"The model returns a tensor of shape {tuple(logits.shape)}: no class dimension "
            f"{class_dim} with two or more classes. Pass class_dim, or task='regression'."
        )
    return logits.shape[class_dim]


def _settings(
    captured: Captured, task: str, class_dim: int | None, draws: int, sampling: str, dropout: str
) -> Settings:
    batch = [None] if captured.dynamic_batch else [len(captured.examples[0])]
    shapes = tuple((*batch, *x.shape[1:]) for x in captured.examples)
    dtypes = tuple(str(x.dtype).removeprefix("torch.") for x in captured.examples)
    dim = 1 if class_dim is None else class_dim
    return Settings(task, dim, draws, sampling, dropout, shapes, dtypes)


def _prior(input_std: float | Tensor | None, captured: Captured) -> Tensor | None:
    """The variance of the input, with a batch of one and the full shape of a sample."""
    if input_std is None:
        return None
    if len(captured.examples) > 1 or not captured.examples[0].is_floating_point():
        raise InputError("input_std needs a model with one floating-point input.")
    example = captured.examples[0]
    std = torch.as_tensor(input_std, dtype=example.dtype, device=example.device)
    if not bool(torch.isfinite(std).all()) or bool((std < 0).any()):
        raise InputError("input_std must be finite and not negative.")
    sample = tuple(example.shape[1:])
    if std.dim() == 1 and len(sample) > 1 and len(std) == sample[0]:
        std = std.reshape([-1] + [1] * (len(sample) - 1))
    try:
        return std.square().expand(sample).unsqueeze(0).clone()
    except RuntimeError:
        raise InputError(
            f"input_std of shape {tuple(std.shape)} fits neither a number, {sample[0]} channels "
            f"nor a sample of shape {sample}."
        ) from None


def _refuse_unsupported(flow: Flow) -> None:
    missing = flow.unsupported
    if not missing:
        return
    lines = []
    for step in missing:
        why = step.rule.note if step.rule is not None else "no rule yet; add one: rules/README.md"
        lines.append(f"  {describe(step.node)}: {why}")
    raise UnsupportedOp(
        f"{len(missing)} op(s) meet uncertain values and cannot be converted:\n" + "\n".join(lines)
    )


def _require_randomness(report: Report, flow: Flow, prior: Tensor | None) -> None:
    if flow.reaches_output or (report.sites and prior is None and not flow.steps):
        return
    hidden = [note for note in report.notes if "training mode" in note]
    raise NoRandomness(
        "No dropout reaches the output, so there is no doubt to carry. The model must have been "
        "trained with dropout (nn.Dropout or F.dropout(x, p, self.training)); or pass input_std."
        + "".join(f"\n  {note}" for note in hidden)
    )
