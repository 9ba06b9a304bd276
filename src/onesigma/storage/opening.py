"""A model as a user names it: a file, or ``package.module:factory``.

PyTorch is imported only for what needs it, so a file of ``onesigma.export`` answers without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy.typing as npt

from onesigma import runtime
from onesigma.errors import FileError, InputError, ModelError
from onesigma.runtime.contract import Contract
from onesigma.runtime.model import is_exported
from onesigma.runtime.reference import Reference

if TYPE_CHECKING:
    from torch import Tensor, nn

    from onesigma.converted import Converted

Array: TypeAlias = npt.NDArray[Any]
Predict: TypeAlias = Callable[[Array], runtime.Prediction]
Rates: TypeAlias = Mapping[str, float]
KERAS = (".keras", ".h5", ".hdf5")
# What a name may stand for.
SAVED = "a .safetensors file (of onesigma fit, or of onesigma.save)"
EXPORTED = "an .onnx file of onesigma.export"
NETWORK = (
    "a network that is not converted yet: an .onnx, .keras or .h5 file, package.module:factory "
    "with --weights or, with --trust, a pickled .pt or an exported .pt2 file"
)


@dataclass(frozen=True)
class Opened:
    """A model that answers.

    Attributes:
        name: as the user named it.
        predict: takes a batch of any size, returns its answers and their uncertainty.
        converted: the converted model, or None for a file of ``onesigma.export``, which can answer
            but cannot be audited.
        class_names: if the file has them.
        input_shape: of one batch; None stands for any number.
        abstain: the rule that says when to act, as ``AbstainRule.to_dict``, if the model has one.
        contract: what is known of the inputs, if the model has a guard.
        reference: what the model says of known inputs, if it was fitted.
    """

    name: str
    predict: Predict
    converted: Converted | None = None
    class_names: tuple[str, ...] | None = None
    input_shape: tuple[int | None, ...] | None = None
    abstain: Mapping[str, Any] | None = None
    contract: Contract | None = None
    reference: Reference | None = None


@dataclass(frozen=True)
class Network:
    """A network in eval mode, not converted yet, and example inputs if its file knows them."""

    module: nn.Module
    examples: tuple[Tensor, ...] | None = None


def open_model(
    name: str,
    *,
    weights: Path | None = None,
    example: Array | None = None,
    trust: bool = False,
    dropout: Rates | None = None,
    channel_dropout: Rates | None = None,
    task: str | None = None,
    threads: int | None = None,
    check: bool = True,
) -> Opened:
    """Open what ``SAVED``, ``EXPORTED`` or ``NETWORK`` describe; convert it if it is a network.

    ``weights`` are for a factory; without, it must load its own. With ``trust``, files may run code
    when they are read; without it nothing is unpickled. ``example`` is a real batch, which a
    factory and a pickled model need. ``dropout`` is as for ``read_onnx``, ``task`` as for
    ``convert``; ``threads`` and ``check`` are those of ``runtime.load``.

    Raises:
        FileError: absent, damaged, needs ``trust``, or the weights are not the network's.
        InputError: the name is of no known kind, there is no such module, no example, or an
            option changes nothing.
        ModelError: the factory fails.
        NoRandomness: the network has no dropout.
    """
    if is_converted(name):
        exported = _suffix(name) == ".onnx"
        idle: dict[str, Any] = {"weights": weights, "no-check": not (check or exported)}
        idle |= {"dropout": dropout, "channel-dropout": channel_dropout, "task": task}
        if used := [f"--{key}" for key, value in idle.items() if value]:
            raise InputError(
                f"{name} is converted already: {', '.join(used)} would change nothing."
            )
        return _open_exported(name, threads, check) if exported else _open_saved(name)
    import torch

    from onesigma.conversion import convert

    network = open_network(
        name, weights=weights, trust=trust, dropout=dropout or None, channel_dropout=channel_dropout
    )
    if network.examples is None and example is None:
        raise InputError(f"{name} does not say what it takes: an example of its inputs is needed.")
    examples = network.examples or (torch.from_numpy(example),)
    return wrap_converted(name, convert(network.module, examples, task=task or "classification"))


def open_network(
    name: str,
    *,
    weights: Path | None = None,
    trust: bool = False,
    dropout: Rates | None = None,
    channel_dropout: Rates | None = None,
) -> Network:
    """The network itself, for ``convert``; arguments and errors as for ``open_model``.

    ``dropout={}`` stands for no dropout at all, for use with ``convert(…, input_std=…)``.
    """
    if is_converted(name):
        raise InputError(f"{name} is converted already: give the network that it was made of.")
    from onesigma.importers import torch_files
    from onesigma.importers.factory import from_factory, is_factory
    from onesigma.importers.foreign_files import refuse_foreign

    _refuse_idle(name, weights=weights is not None, dropout=bool(dropout or channel_dropout))
    if _suffix(name) == ".onnx":
        from onesigma.importers.onnx.read import read_onnx

        module = read_onnx(name, dropout=dropout, channel_dropout=channel_dropout)
        return Network(module, module.examples(module.input_shapes[0][0] or 2))
    if _suffix(name) in KERAS:
        from onesigma.importers.keras_files import read_keras

        keras = read_keras(name)
        return Network(keras, keras.examples(2))
    if is_factory(name):
        made = from_factory(name, trained=weights is None)
        if weights is not None:
            torch_files.put_weights(made, weights, trust=trust)
        return Network(made.eval())
    if _suffix(name) == torch_files.PROGRAM:
        return Network(*torch_files.read_program(Path(name), trust=trust))
    if _suffix(name) in torch_files.PICKLED:
        refuse_foreign(Path(name))
        return Network(torch_files.read_pickled_model(Path(name), trust=trust).eval())
    refuse_foreign(Path(name))
    raise InputError(f"{name} is no model: give {SAVED}, {EXPORTED}, or {NETWORK}.")


def _refuse_idle(name: str, *, weights: bool, dropout: bool) -> None:
    """Options that would change nothing, and the file of a module in its place."""
    from onesigma.importers.factory import is_factory

    file, _, attribute = name.rpartition(":")
    if _suffix(file) == ".py":
        raise InputError(
            f"{name} names a file: go to its folder, and name the module, {Path(file).stem}:"
            f"{attribute}."
        )
    if weights and not is_factory(name):
        raise InputError(f"{name} holds its own weights: --weights is for package.module:factory.")
    if dropout and _suffix(name) != ".onnx":
        raise InputError(f"{name} has its own dropout: --dropout is for .onnx files.")


def wrap_converted(name: str, converted: Converted) -> Opened:
    """A converted model under a name: numpy in, numpy out, without gradients."""

    def answer(x: Array) -> runtime.Prediction:
        said = converted.predict(x)
        arrays = {name: tensor.numpy() for name, tensor in said.arrays().items()}
        return runtime.Prediction(**arrays, class_dim=said.class_dim)

    settings, rule = converted.settings, converted.abstain
    return Opened(
        *(name, answer, converted),
        class_names=settings.class_names or None,
        input_shape=settings.input_shapes[0],
        abstain=None if rule is None else rule.to_dict(),
        contract=settings.contract,
        reference=settings.reference,
    )


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def is_converted(name: str) -> bool:
    """Whether it is a file of ``onesigma.save`` or ``onesigma.export``."""
    if _suffix(name) not in (".safetensors", ".onnx"):
        return False
    if not Path(name).exists():
        raise FileError(f"{name}: there is no such file.")
    return _suffix(name) == ".safetensors" or is_exported(Path(name))


def _open_saved(name: str) -> Opened:
    from onesigma.storage.model_file import load

    try:
        return wrap_converted(name, load(name))
    except FileError as error:
        raise FileError(
            f"{error} If it holds weights alone: package.module:factory --weights {name}"
        ) from error


def _open_exported(name: str, threads: int | None, check: bool) -> Opened:
    model = runtime.load(name, threads=threads, check=check)
    shape, *others = model.input_shapes
    if others:
        raise ModelError(
            f"{name} takes {len(others) + 1} inputs, and a file of data is one: call "
            "onesigma.runtime.load(file).predict in Python."
        )
    return Opened(
        name,
        lambda x: model.predict(x, batch=max(1, len(x))),
        class_names=tuple(model.class_names or ()) or None,
        input_shape=shape,
        abstain=model.metadata.get("abstain"),
        contract=model.contract,
        reference=model.reference,
    )
