"""Keras models on the PyTorch backend, as modules that ``torch.export`` captures well.

Keras leaves dropout out when it does not train, calls its layers past ``nn.Module`` and holds its
weights where an export does not see them. So for the time of a call its dropout layers become
PyTorch's, each layer runs inside a module of its name, and the weights are handed in from here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesigma.errors import ModelError, UnsupportedOp

_NOT_CARRIED = ("GaussianDropout", "GaussianNoise")


def as_module(model: Any) -> Any:
    """A Keras model as a module of its own on the same weights; anything else as it is.

    Raises:
        ModelError: the model runs on another backend than PyTorch.
    """
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, getattr(keras, "Model", ())):
        return model
    if keras.backend.backend() != "torch":
        raise ModelError(
            f"This Keras model runs on {keras.backend.backend()}. Set KERAS_BACKEND=torch before "
            "keras is imported and load it again, or export it to ONNX (docs/onnx.md)."
        )
    return KerasNetwork(model)


class KerasNetwork(nn.Module):
    """A Keras model: tensors in, its output out, dropout where Keras has it.

    Attributes:
        notes: what acts in training only and is not carried.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        # Keras has no public way to all layers, those of nested models included.
        layers = list(model._flatten_layers(include_self=False))
        _refuse_shared_masks(layers)
        self._keras = _Shared(model)
        self.weights = nn.Module()
        self._scopes: dict[int, str] = {}
        for layer in layers:
            self._scopes[id(layer)] = name = _free_name(self, layer.name)
            self.add_module(name, _Scope())
        self._trainable = [self._weight(v) for v in model.trainable_variables]
        self._others = [self._weight(v) for v in model.non_trainable_variables]
        self.notes = _not_carried(layers)

    def _weight(self, variable: Any) -> str:
        name = _free_name(self.weights, variable.path)
        value = variable.value
        if isinstance(value, nn.Parameter):
            self.weights.register_parameter(name, value)
        else:
            self.weights.register_buffer(name, value)
        return name

    def forward(self, *inputs: Tensor) -> Any:
        model = self._keras.model
        groups = (self._trainable, self._others)
        variables = [[getattr(self.weights, name) for name in names] for names in groups]
        given = inputs[0] if len(inputs) == 1 else list(inputs)
        with _as_pytorch(self._scope_of):
            return model.stateless_call(*variables, given, training=False)[0]

    def _scope_of(self, layer: Any) -> nn.Module | None:
        name = self._scopes.get(id(layer))
        return None if name is None else self.get_submodule(name)


class _Shared:
    """Not copied with the module that holds it: Keras would copy itself by its configuration."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return self


class _Scope(nn.Module):
    """Runs what it is given, under its own name."""

    def forward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


@contextmanager
def _as_pytorch(scope_of: Callable[[Any], nn.Module | None]) -> Iterator[None]:
    """Keras' layers as they are to be captured; afterwards as they were."""
    layers = sys.modules["keras"].layers
    original = layers.Layer.__call__

    def in_scope(layer: Any, *args: Any, **kwargs: Any) -> Any:
        scope = scope_of(layer)
        if scope is None:
            return original(layer, *args, **kwargs)
        return scope(original, layer, *args, **kwargs)

    changes = [
        (layers.Layer, "__call__", in_scope),
        (layers.Dropout, "call", _dropout),
        (layers.AlphaDropout, "call", _alpha_dropout),
        # Their common base, which Keras does not name in public.
        (layers.SpatialDropout1D.__bases__[0], "call", _spatial_dropout),
    ]
    before = [getattr(owner, name) for owner, name, _ in changes]
    try:
        for owner, name, function in changes:
            setattr(owner, name, function)
        yield
    finally:
        for (owner, name, _), function in zip(changes, before, strict=True):
            setattr(owner, name, function)


def _dropout(layer: Any, inputs: Tensor, training: bool = False) -> Tensor:
    return F.dropout(inputs, layer.rate, False)


def _alpha_dropout(layer: Any, inputs: Tensor, training: bool = False) -> Tensor:
    return F.alpha_dropout(inputs, layer.rate, False)


def _spatial_dropout(layer: Any, inputs: Tensor, training: bool = False) -> Tensor:
    """Channels drop as a whole; PyTorch wants them second."""
    if getattr(layer, "data_format", "channels_last") == "channels_first":
        return torch.feature_dropout(inputs, layer.rate, False)
    return torch.feature_dropout(inputs.movedim(-1, 1), layer.rate, False).movedim(1, -1)


def _refuse_shared_masks(layers: list[Any]) -> None:
    for layer in layers:
        if getattr(layer, "noise_shape", None) is not None:
            raise UnsupportedOp(
                f"{type(layer).__name__} '{layer.name}' has noise_shape={layer.noise_shape}: only "
                "dropout of single elements (None) and of channels (SpatialDropout) has a rule."
            )


def _not_carried(layers: list[Any]) -> tuple[str, ...]:
    return tuple(
        f"{layer.name} ({type(layer).__name__}) acts in training only and is NOT carried"
        for layer in layers
        if type(layer).__name__ in _NOT_CARRIED or _drops_inside(layer)
    )


def _drops_inside(layer: Any) -> bool:
    """A rate of its own, as attention and recurrent layers have; a layer of that name is seen."""
    rate = getattr(layer, "dropout", 0)
    return isinstance(rate, int | float) and rate > 0


def _free_name(module: nn.Module, name: str) -> str:
    name = re.sub(r"\W", "_", name)
    while hasattr(module, name):
        name += "_"
    return name
