"""Wrap: a model that takes names or returns several things, as one of tensors in, one tensor out.

1. Inputs by name are put in the order of ``forward``'s signature, and from there on go by place.
2. Of a tuple, a list, a dict, a dataclass or an object, one tensor is the answer: the one that was
   named, or the only one of floating point. Otherwise the user is told what there is.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onesigma.errors import InputError, ModelError

_DEPTH = 3  # of what lies within what a model returns


class Network(nn.Module):
    """Calls a model by ``names``, if there are any, and picks ``output`` of what it returns."""

    def __init__(self, model: nn.Module, names: Sequence[str], output: str | int | None) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(names)
        self.output = output
        self.train(model.training)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.pick(self.run(*inputs))[1]

    def run(self, *inputs: Tensor) -> Any:
        """All that the model returns."""
        if not self.names:
            return self.model(*inputs)
        return self.model(**dict(zip(self.names, inputs, strict=True)))

    def pick(self, answer: Any) -> tuple[str, Tensor]:
        """The one tensor that is the answer, and its name.

        Raises:
            ModelError: there is none, or there are several; lists them.
        """
        found = _tensors(answer)
        floats = {name: x for name, x in found.items() if x.is_floating_point()}
        wanted = self.output
        if isinstance(wanted, int) and -len(_parts(answer)) <= wanted < len(_parts(answer)):
            wanted = [*_parts(answer)][wanted]
        names = [*floats] if wanted is None else [name for name in floats if name == str(wanted)]
        if len(names) != 1:
            raise ModelError(_which(type(answer).__name__, found, self.output))
        return names[0], floats[names[0]]


class Scaled(nn.Module):
    """A model of standardised inputs as one of raw ones: (x − mean) / std comes first.

    Mean and standard deviation are numbers, one for each channel, or of the shape of an input.
    Channels come first in an input, or else last.
    """

    def __init__(self, model: nn.Module, mean: Any, std: Any, shape: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        for name, given in (("mean", mean), ("std", std)):
            value = torch.as_tensor(given, dtype=torch.get_default_dtype()).detach().clone()
            if value.dim() == 1 and len(value) == shape[0]:  # one for each channel
                value = value.reshape(-1, *[1] * (len(shape) - 1))
            if not _broadcasts(value.shape, shape):
                raise InputError(
                    f"scaling: {name} has the shape {tuple(value.shape)}, an input "
                    f"{tuple(shape)}. Give a number, or one for each channel."
                )
            self.register_buffer(name, value)
        if not bool((self.get_buffer("std") > 0).all()):
            raise InputError("scaling: every standard deviation must be above 0.")
        self.train(model.training)

    def forward(self, x: Tensor) -> Any:
        return self.model((x - self.get_buffer("mean")) / self.get_buffer("std"))


def _broadcasts(given: Sequence[int], shape: Sequence[int]) -> bool:
    pairs = zip(reversed(given), reversed(shape), strict=False)
    return len(given) <= len(shape) and all(n in (1, m) for n, m in pairs)


def in_order(model: nn.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in the order of ``forward``'s signature.

    Raises:
        InputError: ``forward`` has no argument of that name.
    """
    known = inspect.signature(model.forward).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
    unknown = [name for name in given if name not in known]
    if unknown and not takes_any:
        raise InputError(
            f"The model's forward() has no argument {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(known) or 'none'}."
        )
    return {name: given[name] for name in [*known, *unknown] if name in given}


def _parts(answer: Any) -> dict[str, Any]:
    """What an answer holds, by name or by place."""
    if isinstance(answer, Mapping):
        return {str(name): part for name, part in answer.items()}
    if hasattr(answer, "_asdict"):  # a named tuple
        return dict(answer._asdict())
    if isinstance(answer, tuple | list):
        return {str(place): part for place, part in enumerate(answer)}
    if is_dataclass(answer):
        return {each.name: getattr(answer, each.name) for each in fields(answer)}
    return dict(getattr(answer, "__dict__", {}))


def _tensors(answer: Any, name: str = "", depth: int = _DEPTH) -> dict[str, Tensor]:
    """All tensors, those within by dotted names: ``state.0``."""
    if isinstance(answer, Tensor):
        return {name: answer}
    found: dict[str, Tensor] = {}
    for part, value in _parts(answer).items() if depth else ():
        found |= _tensors(value, f"{name}.{part}" if name else part, depth - 1)
    return found


def _which(kind: str, found: dict[str, Tensor], output: str | int | None) -> str:
    if "" in found:
        fit = "leave output out" if found[""].is_floating_point() else "it has to be floating-point"
        return f"The model returns one tensor of {found[''].dtype}: {fit}."
    if not found:
        return f"The model returns {kind} without a tensor in it."
    said = "" if output is None else f"; output={output!r} is no floating-point one of them"
    rows = (
        f"output={int(name) if name.isdigit() else repr(name)}: {tuple(x.shape)} {x.dtype}"
        for name, x in found.items()
    )
    title = f"The model returns {kind}{said}. Say which tensor is the answer:"
    return "\n  ".join([title, *rows])
