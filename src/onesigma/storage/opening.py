"""A model as a user names it: a file, or ``package.module:factory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onesigma.conversion import convert
from onesigma.converted import Converted
from onesigma.errors import FileError, InputError
from onesigma.importers.factory import from_factory, is_factory
from onesigma.importers.torch_files import (
    PICKLED,
    PROGRAM,
    put_weights,
    read_pickled_model,
    read_program,
    require_file,
)
from onesigma.prediction import Prediction
from onesigma.storage.model_file import load

Predict = Callable[[Tensor], Prediction]
Rates = Mapping[str, float]
KINDS = (
    "a .safetensors file of onesigma.save, an .onnx file (of onesigma.export, or any other with "
    "its dropout), package.module:factory with its weights, or with --trust a .pt or .pt2 file"
)


@dataclass(frozen=True)
class Opened:
    """A model that answers.

    Attributes:
        name: as the user named it.
        predict: a batch in, its answers and their doubt out; without gradients.
        converted: the converted model, or None for a file of ``onesigma.export``, which can answer
            but not be audited.
        labels: names of the classes, if the file has them.
        input_shape: of one batch; None stands for any number.
    """

    name: str
    predict: Predict
    converted: Converted | None = None
    labels: tuple[str, ...] | None = None
    input_shape: tuple[int | None, ...] | None = None


def open_model(
    name: str,
    *,
    weights: Path | None = None,
    example: Tensor | None = None,
    trust: bool = False,
    dropout: Rates | None = None,
    channel_dropout: Rates | None = None,
    task: str = "classification",
    mean: str = "matched",
    variance: str = "full",
) -> Opened:
    """Open a model and convert it, unless it is a converted one.

    Args:
        name: ``*.safetensors`` of ``onesigma.save``, ``*.onnx`` of ``onesigma.export`` or another,
            ``package.module:factory``, or with ``trust`` a pickled ``*.pt`` or a program ``*.pt2``.
        weights: for a factory: ``*.safetensors`` or ``*.pt``. Without, they are the factory's own.
        example: a real batch, which a factory and a pickled model need; the others know theirs.
        trust: allow files to run code on being read. Nothing is unpickled without.
        dropout: for ONNX, see ``read_onnx``.
        channel_dropout: the same for dropout of whole channels.
        task: "classification" or "regression"; this and the next for what is converted here.
        mean: see ``convert``.
        variance: see ``convert``.

    Raises:
        FileError: absent, damaged, needs ``trust``, or weights that are not the network's.
        InputError: the name is of no known kind, no such module, no example.
        ModelError: the factory fails.
        NoRandomness: the network has no dropout.
    """
    if _is_converted(name):
        _refuse_idle(name, weights, dropout or channel_dropout)
        return _of_exported(name) if name.lower().endswith(".onnx") else _of_saved(name)
    network = _network(name, weights, trust, dropout or None, channel_dropout)
    examples = network.examples or (None if example is None else (example,))
    if examples is None:
        raise InputError(f"{name} says nothing of its inputs: an example of them is needed.")
    chosen: dict[str, Any] = {"task": task, "mean": mean, "variance": variance}
    return _of_converted(name, convert(network.module, examples, **chosen))


@dataclass(frozen=True)
class Network:
    """A network in eval mode, not yet converted, and inputs where its file says of what shape."""

    module: nn.Module
    examples: tuple[Tensor, ...] | None = None


def open_network(
    name: str,
    *,
    weights: Path | None = None,
    trust: bool = False,
    dropout: Rates | None = None,
    channel_dropout: Rates | None = None,
) -> Network:
    """The network itself, for ``convert``; arguments and errors as for ``open_model``.

    Of ``dropout``, {} stands for none at all, for use with ``convert(…, input_std=…)``.
    """
    if _is_converted(name):
        raise InputError(f"{name} is converted already.")
    return _network(name, weights, trust, dropout, channel_dropout)


def _network(
    name: str,
    weights: Path | None,
    trust: bool,
    dropout: Rates | None,
    channel_dropout: Rates | None,
) -> Network:
    suffix = Path(name).suffix.lower()
    if suffix == ".onnx":
        _refuse_idle(name, weights, None)
        from onesigma.importers.onnx.read import read_onnx

        module = read_onnx(name, dropout=dropout, channel_dropout=channel_dropout)
        return Network(module, module.examples(module.input_shapes[0][0] or 2))
    if is_factory(name):
        _refuse_idle(name, None, dropout or channel_dropout)
        made = from_factory(name)
        if weights is not None:
            put_weights(made, weights, trust=trust)
        return Network(made.eval())
    _refuse_idle(name, weights, dropout or channel_dropout)
    if suffix == PROGRAM:
        return Network(*read_program(Path(name), trust=trust))
    if suffix in PICKLED:
        return Network(read_pickled_model(Path(name), trust=trust).eval())
    raise InputError(f"{name} is no model: give {KINDS}.")


def _refuse_idle(name: str, weights: Path | None, dropout: Rates | None) -> None:
    """An option that does nothing is a misunderstanding."""
    if weights is not None:
        raise InputError(f"{name} holds its own weights: --weights is for package.module:factory.")
    if dropout:
        raise InputError(f"{name} has its own dropout: --dropout is for .onnx files without.")


def _is_converted(name: str) -> bool:
    path = Path(name)
    if path.suffix.lower() != ".onnx":
        return path.suffix.lower() == ".safetensors"
    from onesigma.importers.onnx.parse import read_model
    from onesigma.runtime.model import METADATA_KEY

    return any(each.key == METADATA_KEY for each in read_model(path).metadata_props)


def _of_saved(name: str) -> Opened:
    require_file(Path(name))
    try:
        return _of_converted(name, load(name))
    except FileError as error:
        raise FileError(
            f"{error} If it holds weights alone: package.module:factory --weights {name}"
        ) from error


def _of_converted(name: str, converted: Converted) -> Opened:
    shape = converted.settings.input_shapes[0]
    dtype = getattr(torch, converted.settings.input_dtypes[0])

    def predict(x: Tensor) -> Prediction:
        with torch.no_grad():
            answer: Prediction = converted(x.to(dtype) if dtype.is_floating_point else x)
        return answer

    return Opened(name, _of_any_batch(predict, shape[0]), converted, input_shape=shape)


def _of_exported(name: str) -> Opened:
    from onesigma import runtime

    model = runtime.load(name)
    shape, names = model.input_shapes[0], model.class_names

    def predict(x: Tensor) -> Prediction:
        answer = model(x.detach().cpu().numpy())
        values: dict[str, Any] = {each.name: getattr(answer, each.name) for each in fields(answer)}
        arrays = {k: torch.from_numpy(v) for k, v in values.items() if isinstance(v, np.ndarray)}
        return Prediction(**arrays, class_dim=answer.class_dim)

    predict_any = _of_any_batch(predict, shape[0])
    return Opened(name, predict_any, None, None if names is None else tuple(names), shape)


def _of_any_batch(predict: Predict, size: int | None) -> Predict:
    """Some models take batches of one size only: the last is filled up, and cut again."""
    if size is None:
        return predict
    fixed = size

    def in_batches(x: Tensor) -> Prediction:
        if len(x) == 0:
            raise InputError("There are no inputs to answer.")
        parts = [predict(_filled(x[i : i + fixed], fixed)) for i in range(0, len(x), fixed)]
        return _first(len(x), Prediction.cat(parts))

    return in_batches


def _filled(x: Tensor, size: int) -> Tensor:
    return x if len(x) == size else torch.cat([x, x[-1:].expand(size - len(x), *x.shape[1:])])


def _first(n: int, prediction: Prediction) -> Prediction:
    columns = {each.name: getattr(prediction, each.name) for each in fields(prediction)}
    cut: dict[str, Any] = {k: v[:n] for k, v in columns.items() if isinstance(v, Tensor)}
    return replace(prediction, **cut)
