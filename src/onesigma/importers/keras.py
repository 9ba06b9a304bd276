"""Keras models on the PyTorch backend, as modules that ``torch.export`` captures well.

Keras leaves dropout out when it does not train, calls its layers past ``nn.Module`` and holds its
weights where an export does not see them. So for the time of a call its dropout layers become
PyTorch's, each layer runs inside a module of its name, and the weights are handed in from here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesigma.errors import ModelError, UnsupportedOp


def as_module(model: Any) -> Any:
    """A Keras model as a module of its own on the same weights; anything else as it is.

    Raises:
        ModelError: the model runs on another backend than PyTorch.
    """
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, getattr(keras, "Model", ())):
        return model
    require_pytorch(keras)
    return KerasNetwork(model)


def require_pytorch(keras: Any) -> None:
    """Refuse Keras on another backend than PyTorch."""
    backend = keras.backend.backend()
    if backend != "torch":
        raise ModelError(
            f"Keras runs on {backend} here. Set KERAS_BACKEND=torch before keras is imported and "
            "load the model again, or export it to ONNX (docs/onnx.md)."
        )


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
        # A function is not copied with this module; Keras would copy itself by its configuration.
        self._model: Callable[[], Any] = lambda: model
        self.weights = nn.Module()
        self._scopes: dict[int, str] = {}
        for layer in layers:
            self._scopes[id(layer)] = name = _free_name(self, layer.name)
            self.add_module(name, _Scope())
        self._trainable = [self._weight(v) for v in model.trainable_variables]
        self._others = [self._weight(v) for v in model.non_trainable_variables]
        self.notes = _not_carried(layers)
        declared = getattr(model, "inputs", None) or ()  # a model of one's own class has none
        self._inputs = [(tuple(each.shape), str(each.dtype)) for each in declared]
        self.eval()  # as Keras itself does, unless it is told to train

    def examples(self, batch: int) -> tuple[Tensor, ...] | None:
        """Random inputs of the shapes that the model declares, zeros where it takes integers.

        None if it does not say what it takes.
        """
        if not self._inputs or any(None in shape[1:] for shape, _ in self._inputs):
            return None
        draw, inputs = torch.Generator().manual_seed(0), []
        for (_, *sizes), dtype in self._inputs:
            shape = (batch, *sizes)
            x = torch.randn(shape, generator=draw) if "float" in dtype else torch.zeros(shape)
            inputs.append(x.to(getattr(torch, dtype)))
        return tuple(inputs)

    def _weight(self, variable: Any) -> str:
        name = _free_name(self.weights, variable.path)
        value = variable.value
        if isinstance(value, nn.Parameter):
            self.weights.register_parameter(name, value)
        else:
            self.weights.register_buffer(name, value)
        return name

    def forward(self, *inputs: Tensor) -> Any:
        groups = (self._trainable, self._others)
        variables = [[getattr(self.weights, name) for name in names] for names in groups]
        given = inputs[0] if len(inputs) == 1 else list(inputs)
        scopes = {layer: self.get_submodule(name) for layer, name in self._scopes.items()}
        if self.training and not torch.compiler.is_exporting():
            # Keras draws from seeds among its variables, which a stateless call does not advance.
            variables[1] = [_new_seed(v) if _is_seed(v) else v for v in variables[1]]
        model = self._model()
        with _as_pytorch(model, scopes, self.training):
            return model.stateless_call(*variables, given, training=self.training)[0]


class _Scope(nn.Module):
    """Runs what it is given, under its own name."""

    def forward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


def _is_seed(value: Tensor) -> bool:
    return not value.is_floating_point() and value.shape == (2,)


def _new_seed(value: Tensor) -> Tensor:
    return torch.randint(2**31 - 1, (2,)).to(value)


@contextmanager
def _as_pytorch(model: Any, scopes: dict[int, nn.Module], training: bool) -> Iterator[None]:
    """Make Keras' layers as they are to be captured; afterwards they are as before."""
    layers = sys.modules["keras"].layers
    original = layers.Layer.__call__
    # What the cells have in common, and spatial dropouts; Keras does not name them in public.
    masks, spatial = layers.LSTMCell.__bases__[1], layers.SpatialDropout1D.__bases__[0]

    def in_scope(layer: Any, *args: Any, **kwargs: Any) -> Any:
        scope = scopes.get(id(layer))
        if isinstance(layer, layers.BatchNormalization):
            kwargs["training"] = False  # noise is wanted, not other statistics
        elif isinstance(layer, (layers.RNN, masks)):
            kwargs["training"] = True  # they ask for their masks then, which are ours
        if scope is None:
            return original(layer, *args, **kwargs)
        return scope(original, layer, *args, **kwargs)

    changes: list[tuple[Any, str, Any]] = [
        (layers.Layer, "__call__", in_scope),
        (layers.Dropout, "call", _drop_with(F.dropout, training)),
        (layers.AlphaDropout, "call", _drop_with(F.alpha_dropout, training)),
        (masks, "_create_dropout_mask", _make_masks(training)),
        (spatial, "call", _drop_channels(training)),
    ]
    inner = model._flatten_layers(include_self=False)
    # Keras' other loop takes the rows of a batch apart, so that the batch would be fixed.
    changes += [(layer, "unroll", True) for layer in inner if isinstance(layer, layers.RNN)]
    with ExitStack() as afterwards:
        for owner, name, function in changes:
            afterwards.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, function)
        yield


def _drop_with(function: Callable[..., Tensor], on: bool) -> Callable[..., Tensor]:
    def call(layer: Any, inputs: Tensor, training: bool = False) -> Tensor:
        return function(inputs, layer.rate, on)

    return call


def _drop_channels(on: bool) -> Callable[..., Tensor]:
    """Channels drop as a whole; PyTorch wants them second."""

    def call(layer: Any, inputs: Tensor, training: bool = False) -> Tensor:
        if getattr(layer, "data_format", "channels_last") == "channels_first":
            return torch.feature_dropout(inputs, layer.rate, on)
        return torch.feature_dropout(inputs.movedim(-1, 1), layer.rate, on).movedim(1, -1)

    return call


def _make_masks(on: bool) -> Callable[..., Any]:
    """The masks of a recurrent cell, which it uses at every step: one, or one for each gate."""

    def create(cell: Any, step: Tensor, rate: float) -> Any:
        count, ones = getattr(cell, "dropout_mask_count", None), torch.ones_like(step)
        masks = [F.dropout(ones, rate, on) for _ in range(count or 1)]
        return masks[0] if count is None else masks

    return create


def _refuse_shared_masks(layers: list[Any]) -> None:
    for layer in layers:
        if getattr(layer, "noise_shape", None) is not None:
            raise UnsupportedOp(
                f"{type(layer).__name__} '{layer.name}' has noise_shape={layer.noise_shape}: only "
                "dropout of single elements (None) and of channels (SpatialDropout) has a rule."
            )


def _not_carried(layers: list[Any]) -> tuple[str, ...]:
    """A note for each layer whose noise acts in training only and has no rule."""
    notes = []
    for layer in layers:
        kind, rate = type(layer).__name__, getattr(layer, "dropout", 0)
        # Some models hold a layer under that name, which is found by itself.
        drops_inside = isinstance(rate, int | float) and rate > 0 and "Attention" in kind
        if kind in ("GaussianDropout", "GaussianNoise") or drops_inside:
            notes.append(f"{layer.name} ({kind}) acts in training only and is NOT carried")
    return tuple(notes)


def _free_name(module: nn.Module, name: str) -> str:
    name = re.sub(r"\W", "_", name)
    while hasattr(module, name):
        name += "_"
    return name
