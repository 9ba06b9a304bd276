"""Files of PyTorch, read with suspicion: weights, pickled models, programs of ``torch.export``.

Unpickling runs whatever code a file names, so it is done only for a user who said ``trust``.
Weights need no code: they are read from safetensors, or by ``torch.load(weights_only=True)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, fx, nn

from onesigma.errors import FileError, ModelError
from onesigma.graph.capture import Program, is_site, plain_module
from onesigma.importers.factory import folders_on_path
from onesigma.text_table import first_few

PICKLED = (".pt", ".pth", ".ckpt")
PROGRAM = ".pt2"
_AT_YOUR_RISK = "If you know where the file comes from, --trust (trust=True) allows it."
_SHOWN = 10


def put_weights(model: nn.Module, path: Path, *, trust: bool = False) -> None:
    """Load weights from a ``.safetensors`` or ``.pt`` file into the model, all of them.

    Raises:
        FileError: unreadable, or its weights are not those of the model; lists which.
    """
    weights, own = read_weights(path, trust=trust), model.state_dict()
    shared = weights.keys() & own.keys()
    faults = {
        "missing in the file": sorted(own.keys() - shared),
        "not in the model": sorted(weights.keys() - shared),
        "of another shape": [
            f"{name} is {tuple(weights[name].shape)}, the model has {tuple(own[name].shape)}"
            for name in sorted(shared)
            if weights[name].shape != own[name].shape
        ],
    }
    lines = [f"  {what}: {first_few(names, _SHOWN)}" for what, names in faults.items() if names]
    if lines:
        raise FileError("\n".join([f"{path.name} does not fit the model:", *lines]))
    model.load_state_dict(weights)


def read_weights(path: Path, *, trust: bool = False) -> dict[str, Tensor]:
    """A state dict, also one inside a training checkpoint or, with ``trust``, of a pickled model.

    Raises:
        FileError: absent, damaged, of another format, or readable by running its code only.
    """
    require_file(path)
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except Exception as error:  # torch has its own, on a shape that safetensors lets pass
            raise FileError(f"{path.name} cannot be read as safetensors: {error}") from error
    if path.suffix not in PICKLED:
        raise FileError(f"{path.name}: weights are read from .safetensors and .pt files.")
    content = _unpickle(path, trust=trust)
    content = content.state_dict() if isinstance(content, nn.Module) else content
    for key in ("state_dict", "model_state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(v, Tensor) for v in content.values()):
        raise FileError(
            f"{path.name} holds no weights by name: save the model's state_dict(), best as "
            ".safetensors."
        )
    return dict(content)


def _unpickle(path: Path, *, trust: bool) -> Any:
    """What ``torch.save`` wrote. Without ``trust`` only tensors and plain containers are read."""
    require_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds: what else is in the file decides
        if not trust:
            raise FileError(
                f"{path.name} is damaged, or holds more than weights, as a whole pickled model "
                f"does: reading that runs code from the file. Save its state_dict() instead and "
                f"name the network as package.module:factory. {_AT_YOUR_RISK}"
            ) from error
    try:  # the classes that it names may lie here, or beside the file
        with folders_on_path(Path.cwd(), path.resolve().parent):
            return torch.load(path, map_location="cpu", weights_only=False)
    except ModuleNotFoundError as error:
        raise FileError(
            f"{path.name} was made with the module {error.name!r}, which is neither in "
            f"{Path.cwd()} nor beside the file nor installed. Put it there; or name the network as "
            "package.module:factory and give its weights with --weights."
        ) from error
    except Exception as error:
        raise FileError(f"{path.name} cannot be unpickled: {error}") from error


def read_pickled_model(path: Path, *, trust: bool) -> nn.Module:
    """A whole model that ``torch.save(model, …)`` wrote; only with ``trust``."""
    content = _unpickle(path, trust=trust)
    if not isinstance(content, nn.Module):
        raise FileError(
            f"{path.name} holds {type(content).__name__}, no network. For weights, name the "
            f"network as package.module:factory and give them with --weights {path.name}."
        )
    try:
        content.eval().state_dict()
    except Exception as error:  # of a module that was not made whole
        raise FileError(f"{path.name} holds a damaged network: {error}") from error
    return content


def read_program(path: Path, *, trust: bool) -> tuple[nn.Module, tuple[Tensor, ...] | None]:
    """A network that ``torch.export.save`` wrote, and its example inputs; only with ``trust``."""
    require_file(path)
    if not trust:
        raise FileError(
            f"{path.name}: torch.export.load unpickles parts of a .pt2 file, which runs code from "
            f"it. Use onesigma.save, ONNX or package.module:factory instead. {_AT_YOUR_RISK}"
        )
    try:
        program = torch.export.load(path)
        network = Program(plain_module(program))
    except Exception as error:
        raise FileError(f"{path.name} cannot be read as an exported program: {error}") from error
    _require_eval(network.program, path.name)
    examples = program.example_inputs
    return network, tuple(examples[0]) if examples and examples[0] else None


def _require_eval(program: fx.GraphModule, name: str) -> None:
    """In training mode batch normalisation uses the batch, and answers depend on one another."""
    training = [
        node
        for node in program.graph.nodes
        if (is_site(node) and node.args[2] is True)
        or (node.target is torch.ops.aten.batch_norm.default and node.args[5] is True)
    ]
    if training:
        raise ModelError(f"{name} was exported in training mode: call model.eval() before export.")


def require_file(path: Path) -> None:
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
