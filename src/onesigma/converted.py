"""``Converted``: the deliverable, and how it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma.decide.temperature import Temperature
from onesigma.decide.threshold import AbstainRule
from onesigma.errors import InputError
from onesigma.graph.capture import shared_copy
from onesigma.prediction import Prediction
from onesigma.report import Report
from onesigma.rules import rules_for

# The captured network keeps this name inside the retraced one: its weights are "source.…" there.
SOURCE = "source"


@dataclass(frozen=True)
class Settings:
    """How a model was converted; saved with it.

    ``shift`` is what calibrate found for a frozen mean: see ``head.shifted``.
    """

    task: str
    class_dim: int
    draws: int
    sampling: str
    dropout: str
    input_shapes: tuple[tuple[int | None, ...], ...]
    input_dtypes: tuple[str, ...]
    tuning: dict[str, dict[str, Any]] = field(default_factory=dict)
    covariance: bool = False
    shift: list[list[float]] | None = None
    mean: str = "matched"
    variance: str = "full"
    temperature: Temperature | None = None
    abstain: AbstainRule | None = None

    def engine(self, *, lean: bool = False) -> dict[str, Any]:
        """How the engine is to run: its arguments but for the graph."""
        rules = rules_for(self.dropout, self.variance, self.mean, lean=lean)
        return {"rules": rules, "tuning": self.tuning, "keep_means": self.mean == "frozen"}

    def to_dict(self) -> dict[str, Any]:
        rule = None if self.abstain is None else self.abstain.to_dict()
        return asdict(self) | {"abstain": rule}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Settings:
        temperature, rule = content.get("temperature"), content.get("abstain")
        values = {
            "input_shapes": tuple(tuple(shape) for shape in content["input_shapes"]),
            "input_dtypes": tuple(content["input_dtypes"]),
            "temperature": None if temperature is None else Temperature(**temperature),
            "abstain": None if rule is None else AbstainRule.from_dict(rule),
        }
        return cls(**{**content, **values})


class Converted(nn.Module):
    """A network that answers with a ``Prediction``: a plain graph, no interpreter inside.

    Attributes:
        network: the graph, sharing its weights with the original model.
        source: the original network as a graph, dropout sites included (the Monte-Carlo reference).
        report: what was converted, by which rule, and how exactly.
        settings: how it was converted.
        input_var: variance of the input prior, with a batch of one, or None.
    """

    def __init__(
        self,
        network: fx.GraphModule,
        source: fx.GraphModule,
        report: Report,
        settings: Settings,
        input_var: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.input_var: Tensor | None
        self.register_buffer("input_var", input_var)
        # Not a submodule: its weights are those of ``network``, and are not to be listed twice.
        self._source = (source,)
        self.report = report
        self.settings = settings

    @property
    def source(self) -> fx.GraphModule:
        return self._source[0]

    def forward(self, *inputs: Tensor) -> Prediction:
        return self.finished(self.network(*self.checked(inputs)))

    def finished(self, outputs: Sequence[Tensor]) -> Prediction:
        """What ``network`` returned as a Prediction; the temperature first, then the rule."""
        dim = self.settings.class_dim
        prediction = Prediction(*outputs, class_dim=dim)
        if self.settings.mean == "frozen" and prediction.probs is not None:
            prediction = replace(prediction, plain_probs=prediction.mean.softmax(dim))
        if self.temperature is not None:
            prediction = self.temperature.apply(prediction)
        if self.abstain is not None:
            prediction = replace(prediction, act=self.abstain(prediction))
        return prediction

    @property
    def temperature(self) -> Temperature | None:
        return self.settings.temperature

    @property
    def abstain(self) -> AbstainRule | None:
        return self.settings.abstain

    def with_temperature(self, temperature: Temperature | None) -> Converted:
        """A model of its own (on the same weights) whose probabilities have that temperature."""
        if self.abstain is not None:
            raise InputError(
                "The abstain rule was fitted on other probabilities. Set the temperature on "
                "with_abstain(None), then fit the rule on that model's predictions."
            )
        self._require_classes("temperature")
        return self.replaced(settings=replace(self.settings, temperature=temperature))

    def with_abstain(self, rule: AbstainRule | None) -> Converted:
        """A model of its own (on the same weights) whose predictions say when to ``act``."""
        self._require_classes("abstain rule")
        return self.replaced(settings=replace(self.settings, abstain=rule))

    def _require_classes(self, what: str) -> None:
        if self.settings.task != "classification":
            raise InputError(f"A {self.settings.task} model has no classes for {what}s.")

    def replaced(
        self, *, report: Report | None = None, settings: Settings | None = None
    ) -> Converted:
        """A model of its own on the same weights: moving it does not move this one."""
        return Converted(
            shared_copy(self.network),
            shared_copy(self.source),
            report or self.report,
            settings or self.settings,
            self.input_var,
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
        moved = (fn(torch.empty(0, dtype=getattr(torch, d))) for d in self.settings.input_dtypes)
        dtypes = tuple(str(x.dtype).removeprefix("torch.") for x in moved)
        self.settings = replace(self.settings, input_dtypes=dtypes)
        return self

    def checked(self, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """The inputs as the network takes them; raises InputError if they do not fit."""
        dtypes = tuple(getattr(torch, name) for name in self.settings.input_dtypes)
        return check_inputs(inputs, self.settings.input_shapes, dtypes)

    def extra_repr(self) -> str:
        approximate = len(self.report.approximate)
        parts = [f"sites={len(self.report.sites)}", f"approximate_ops={approximate}"]
        if self.temperature is not None:
            parts.append(f"temperature={self.temperature.value:.3f}")
        if self.abstain is not None:
            parts.append(f"acts_on={self.abstain.score} < {self.abstain.threshold:.4g}")
        return ", ".join(parts)


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
    wanted = ", ".join("batch" if n is None else str(n) for n in shape)
    if not isinstance(x, Tensor):
        raise InputError(f"Expected a tensor of shape ({wanted}), not {type(x).__name__}.")
    if x.dim() != len(shape) or any(
        n is not None and n != m for n, m in zip(shape, x.shape, strict=True)
    ):
        raise InputError(f"Expected an input of shape ({wanted}), not {tuple(x.shape)}.")
    if x.dtype in (torch.float16, torch.bfloat16) and dtype.is_floating_point:
        return x.to(dtype)
    mismatch = x.dtype != dtype if dtype.is_floating_point else x.is_floating_point()
    if mismatch:
        raise InputError(f"Expected a {dtype} input, not {x.dtype}. Convert it: x.to({dtype}).")
    return x


def share_tensors(network: nn.Module, source: nn.Module) -> None:
    """Make ``source`` use the tensors of ``network`` wherever both have one of that name."""
    for kind in ("parameters", "buffers"):
        owned = dict(getattr(network, f"named_{kind}")())
        for name, _ in list(getattr(source, f"named_{kind}")()):
            tensor = owned.get(f"{SOURCE}.{name}")
            if tensor is not None:
                path, _, leaf = name.rpartition(".")
                setattr(source.get_submodule(path), leaf, tensor)
