"""``Converted``: the deliverable, and how it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma.decide.interval import Interval
from onesigma.decide.temperature import Temperature
from onesigma.decide.threshold import AbstainRule
from onesigma.engine import Engine, Observer, watching
from onesigma.errors import FileError, InputError
from onesigma.graph.capture import shared_copy
from onesigma.graph.eager import quicken
from onesigma.graph.instants import time_dims
from onesigma.graph.own import OwnNetwork
from onesigma.prediction import GUARDED, OUTPUTS, Prediction, hide_rows
from onesigma.report import Report
from onesigma.rules.corrections import Corrections, Together, decode_corrections, encode_corrections
from onesigma.rules.dropout import rules_for
from onesigma.rules.table import RuleTable
from onesigma.runtime.contract import Contract
from onesigma.runtime.reference import ABSTAINED, Reference
from onesigma.text_table import shape_text
from onesigma.values.gaussian import Gaussian, Value

# The captured network keeps this name inside the propagated one: its weights are "source.…" there.
SOURCE = "source"
_FEW = 2  # inputs, to see the sizes of all values
Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
# How uncertainty is carried: from op to op; or not at all, and read off by a head, which follows
# layers that are adapted to it, or the original's own; or as a few rows for each input.
MOMENTS, DISTILLED, ENERGY, PARTICLES = "moments", "distilled", "energy", "particles"
# Settings that older files have, and the one value of each that is left.
_RETIRED = {"mean": "matched", "variance": "full", "shift": None}
# Settings that say themselves how they are written.
_PARTS: dict[str, Any] = {
    "abstain": AbstainRule, "interval": Interval, "contract": Contract, "reference": Reference
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How a model was converted; saved with it.

    ``particles`` is how many rows with fixed masks stand for each input.
    ``input_names`` are those of inputs that the original takes by name; without, they go by place.
    ``contract`` is what is known of the inputs: a network that has one also says ``novelty``.
    ``reference`` is what the model says of known inputs, for a ``Monitor``.
    ``keep_answer`` promises that ``mean`` is the original network's own output, bit for bit.
    """

    task: str
    class_dim: int
    draws: int
    sampling: str
    dropout: str
    input_shapes: tuple[tuple[int | None, ...], ...]
    input_dtypes: tuple[str, ...]
    input_names: tuple[str, ...] = ()
    corrections: Corrections = field(default_factory=dict)
    form: str = MOMENTS
    particles: int = 0
    keep_answer: bool = False
    temperature: Temperature | None = None
    abstain: AbstainRule | None = None
    interval: Interval | None = None
    contract: Contract | None = None
    class_names: tuple[str, ...] = ()
    reference: Reference | None = None

    @property
    def rules(self) -> RuleTable:
        """None for a form that carries nothing from op to op: the engine then runs it plainly."""
        if self.form != MOMENTS:
            return {}
        return rules_for(self.dropout)

    @property
    def covariance(self) -> bool:
        """Whether the head sees how the logits vary together."""
        return any(
            isinstance(each, Together) for kind in self.corrections.values() for each in kind
        )

    @property
    def dynamic_batch(self) -> bool:
        return self.input_shapes[0][0] is None

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return tuple(getattr(torch, name) for name in self.input_dtypes)

    def to_dict(self) -> dict[str, Any]:
        without: dict[str, Any] = dict.fromkeys(_PARTS)
        found = {name: getattr(self, name) for name in _PARTS}
        return asdict(replace(self, corrections={}, **without)) | {
            "corrections": encode_corrections(self.corrections),
            **{name: part and part.to_dict() for name, part in found.items()},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Settings:
        for name, left in _RETIRED.items():
            if content.get(name, left) != left:
                raise FileError(
                    f"it was converted with {name}={content[name]!r}, which was removed: make it "
                    "anew of the original model, with onesigma.fit"
                )
        heat, parts = content.get("temperature"), {name: content.get(name) for name in _PARTS}
        values: dict[str, Any] = {
            "input_shapes": tuple(tuple(shape) for shape in content["input_shapes"]),
            "input_dtypes": tuple(content["input_dtypes"]),
            "input_names": tuple(content.get("input_names", ())),
            "corrections": decode_corrections(content["corrections"]),
            "temperature": None if heat is None else Temperature(**heat),
            "class_names": tuple(content.get("class_names") or ()),
        }
        for name, part in parts.items():
            values[name] = None if part is None else _PARTS[name].from_dict(part)
        known = {name: value for name, value in content.items() if name not in _RETIRED}
        return cls(**{**known, **values})


class Converted(nn.Module):
    """A network that answers with a ``Prediction``: a plain graph, no interpreter inside.

    Attributes:
        network: the graph, sharing its weights with the original model.
        source: the original network as a graph, dropout sites included (the Monte-Carlo reference).
        report: what was converted, by which rule, and how exactly.
        settings: how it was converted.
        input_var: variance of the input prior, with a batch of one, or None.
        own: the user's own network, which Monte Carlo is asked of; None after loading a file.
    """

    def __init__(
        self,
        network: fx.GraphModule,
        source: fx.GraphModule,
        report: Report,
        settings: Settings,
        input_var: Tensor | None = None,
        own: OwnNetwork | None = None,
    ) -> None:
        super().__init__()
        quicken(network)
        self.network = network
        self.own = own
        self.input_var: Tensor | None
        self.register_buffer("input_var", input_var)
        # Not a submodule: its weights are those of ``network``, and are not to be listed twice.
        self._source = (source,)
        self.report = report
        self.settings = settings

    @property
    def source(self) -> fx.GraphModule:
        return self._source[0]

    def forward(self, *inputs: Tensor, **named: Tensor) -> Prediction:
        """Of inputs as the original takes them; those with names also as one dict."""
        checked = self.check_inputs(named or inputs)
        return self.decide(hide_rows(self.answer(*checked), checked))

    @torch.no_grad()
    def predict(self, inputs: Any, *, batch: int = 256) -> Prediction:
        """Answer any number of inputs, ``batch`` at a time and without gradients.

        Args:
            inputs: an array of numpy or a tensor; a tuple or a dict for a model of several inputs.
            batch: inputs at a time; a model that fixes its batch takes its own.

        Returns:
            All answers as one, on the CPU.
        """
        if batch < 1:
            raise InputError(f"batch={batch}: at least one input at a time.")
        settings = self.settings
        tensors = [self._as_tensor(x) for x in by_place(inputs, settings.input_names)]
        counts = {len(x) if x.dim() else 0 for x in tensors}
        if len(counts) != 1 or 0 in counts:
            shapes = ", ".join(str(tuple(x.shape)) for x in tensors) or "none"
            raise InputError(f"predict needs one input or more, as many of each; got {shapes}.")
        (count,), size = counts, settings.input_shapes[0][0] or batch
        filled = count if settings.dynamic_batch else -(-count // size) * size
        rows = torch.arange(filled).clamp(max=count - 1)  # the last one again, and cut off below
        parts = [self(*(x[part] for x in tensors)).detach() for part in torch.split(rows, size)]
        return Prediction.cat(parts).take(slice(count))

    def _as_tensor(self, x: Any) -> Tensor:
        """On the model's device and, because numpy's numbers are float64, in its precision."""
        try:
            tensor = torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"Inputs are arrays or tensors, not {type(x).__name__}.") from error
        weights = chain(self.parameters(), self.buffers())
        weight = next((t for t in weights if t.is_floating_point()), None)
        if weight is None:
            return tensor
        return tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else None)

    def answer(self, *inputs: Tensor) -> Prediction:
        """What the network itself says, before any temperature or rule."""
        return self.name_outputs(self.network(*inputs))

    def name_outputs(self, outputs: Sequence[Tensor]) -> Prediction:
        """The outputs of ``network`` by name."""
        names = OUTPUTS[self.settings.task] + (GUARDED if self.settings.contract else ())
        fields = dict(zip(names, outputs, strict=True))
        return Prediction(**fields, class_dim=self.settings.class_dim)

    def decide(self, prediction: Prediction) -> Prediction:
        """Add what follows from an answer: the plain softmax, the temperature, then the rule."""
        if self.settings.keep_answer and prediction.probs is not None:
            plain = prediction.mean.softmax(self.settings.class_dim)
            prediction = replace(prediction, plain_probs=plain)
        if self.temperature is not None:
            prediction = self.temperature.apply(prediction)
        if self.abstain is not None:
            prediction = replace(prediction, act=self.abstain(prediction))
        if self.settings.interval is not None:
            prediction = self.settings.interval.apply(prediction)
        return prediction

    def explain(self, prediction: Prediction) -> list[str]:
        """For each input that is broken or unfamiliar, what is odd about which channel; else ""."""
        if self.settings.contract is None:
            raise InputError("The model has no input contract: make it with onesigma.fit.")
        return self.settings.contract.explain(prediction.detach())

    @torch.no_grad()
    def propagate(self, inputs: Sequence[Tensor], observer: Observer) -> None:
        """Run the engine once on checked inputs, with someone to look at each node."""
        settings = self.settings
        engine = Engine(self.source, settings.rules, settings.corrections, observer)
        engine.run(*with_prior(inputs, self.input_var))

    @torch.no_grad()
    def time_dims(self, inputs: Sequence[Tensor], named: int | None = None) -> list[int]:
        """The dim of time in each input: the last, or that before the channels.

        ``named`` is how many channels were named; by default those of the contract.
        """
        contract, sizes = self.settings.contract, dict[fx.Node, torch.Size]()
        if named is None and contract is not None and len(inputs) == 1:
            named = len(contract.channels)

        def note(node: fx.Node, value: Any) -> None:
            if isinstance(value, Tensor):
                sizes[node] = value.shape

        Engine(self.source, {}, observer=watching(note)).run(*(x[:_FEW] for x in inputs))
        return time_dims(self.source, sizes, named)

    @property
    def temperature(self) -> Temperature | None:
        return self.settings.temperature

    @property
    def abstain(self) -> AbstainRule | None:
        return self.settings.abstain

    @property
    def reference(self) -> Reference | None:
        return self.settings.reference

    def with_temperature(self, temperature: Temperature | None) -> Converted:
        """A model of its own (on the same weights) whose probabilities have that temperature."""
        if self.abstain is not None:
            raise InputError(
                "The abstain rule was fitted on other probabilities. Set the temperature on "
                "with_abstain(None), then fit the rule on that model's predictions."
            )
        self._require_classes("temperature")
        # Entropies change, so that those of known inputs are no longer what they were.
        settings = replace(self.settings, temperature=temperature, reference=None)
        return self.with_changes(settings=settings)

    def with_abstain(self, rule: AbstainRule | None) -> Converted:
        """A model of its own (on the same weights) whose predictions say when to ``act``."""
        self._require_classes("abstain rule")
        usual = None if self.reference is None else self.reference.without(ABSTAINED)
        return self.with_changes(settings=replace(self.settings, abstain=rule, reference=usual))

    def _require_classes(self, what: str) -> None:
        if self.settings.task != "classification":
            raise InputError(f"A {self.settings.task} model has no classes for {what}s.")

    def with_changes(
        self,
        *,
        report: Report | None = None,
        settings: Settings | None = None,
        network: fx.GraphModule | None = None,
    ) -> Converted:
        """A model of its own on the same weights: moving it does not move this one."""
        return Converted(
            shared_copy(network or self.network),
            shared_copy(self.source),
            report or self.report,
            settings or self.settings,
            self.input_var,
            self.own,
        ).eval()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Converted:
        """``.to()``, ``.double()`` …: by default these write into parameters, which we share.

        The original model must stay as it is, so changed parameters become new ones here.
        """
        before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            self.source._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(before)
        share_tensors(self.network, self.source)
        moved = (fn(torch.empty(0, dtype=dtype)) for dtype in self.settings.dtypes)
        dtypes = tuple(str(x.dtype).removeprefix("torch.") for x in moved)
        self.settings = replace(self.settings, input_dtypes=dtypes)
        return self

    def check_inputs(self, inputs: Inputs) -> list[Tensor]:
        """The inputs as the network takes them; raises InputError if they do not fit."""
        given = by_place(inputs, self.settings.input_names)
        return check_inputs(given, self.settings.input_shapes, self.settings.dtypes)

    def extra_repr(self) -> str:
        approximate = len(self.report.approximate)
        parts = [f"sites={len(self.report.sites)}", f"approximate_ops={approximate}"]
        if self.temperature is not None:
            parts.append(f"temperature={self.temperature.value:.3f}")
        if self.abstain is not None:
            parts.append(f"acts_on={self.abstain.score} < {self.abstain.threshold:.4g}")
        return ", ".join(parts)


def with_prior(inputs: Sequence[Tensor], input_var: Tensor | None) -> list[Value]:
    """The inputs as the engine takes them: with the prior's variance, if there is one."""
    return [x if input_var is None else Gaussian(x, input_var) for x in inputs]


def by_place(inputs: Any, names: Sequence[str]) -> tuple[Tensor, ...]:
    """The inputs in order: of one, of several, or of a dict, which may come as the only one."""
    given = inputs if isinstance(inputs, tuple | list) else (inputs,)
    if len(given) != 1 or not isinstance(given[0], Mapping):
        return tuple(given)
    if {*given[0]} != {*names}:
        found, known = ", ".join(map(str, given[0])), ", ".join(names) or "places, not names"
        raise InputError(f"Expected inputs by {known}; got {found or 'none'}.")
    return tuple(given[0][name] for name in names)


def check_inputs(
    inputs: tuple[Tensor, ...],
    shapes: tuple[tuple[int | None, ...], ...],
    dtypes: tuple[torch.dtype, ...],
) -> list[Tensor]:
    """``check_input`` for each; a shape's None stands for any batch."""
    if len(inputs) != len(shapes):
        raise InputError(f"The model takes {len(shapes)} inputs, not {len(inputs)}.")
    return [check_input(*each) for each in zip(inputs, shapes, dtypes, strict=True)]


def check_input(x: Tensor, shape: tuple[int | None, ...], dtype: torch.dtype) -> Tensor:
    """Refuse what would give a wrong answer or an obscure error; cast half precision up."""
    if not isinstance(x, Tensor):
        raise InputError(
            f"Expected a tensor of shape {shape_text(shape)}, not {type(x).__name__}. Arrays are "
            "taken by predict(x)."
        )
    if x.dim() != len(shape) or any(
        n is not None and n != m for n, m in zip(shape, x.shape, strict=True)
    ):
        raise InputError(f"Expected an input of shape {shape_text(shape)}, not {tuple(x.shape)}.")
    if x.dtype in (torch.float16, torch.bfloat16) and dtype.is_floating_point:
        return x.to(dtype)
    mismatch = x.dtype != dtype if dtype.is_floating_point else x.is_floating_point()
    if mismatch:
        raise InputError(f"Expected a {dtype} input, not {x.dtype}. Convert it: x.to({dtype}).")
    return x


def share_tensors(network: nn.Module, source: nn.Module) -> None:
    """Make ``source`` use the tensors of ``network`` wherever both have one of that name."""
    owned = dict(chain(network.named_parameters(), network.named_buffers()))
    for name, _ in [*source.named_parameters(), *source.named_buffers()]:
        tensor = owned.get(f"{SOURCE}.{name}")
        if tensor is not None:
            path, _, leaf = name.rpartition(".")
            setattr(source.get_submodule(path), leaf, tensor)
