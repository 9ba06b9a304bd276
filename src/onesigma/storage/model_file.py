"""Save and load converted models: one safetensors file, the graphs in it as JSON.

Nothing is unpickled and no code is stored. A graph on disk is a list of calls of functional ATen
ops with plain arguments; anything else is refused before a graph is built. The file carries a
SHA-256 of all its content, so a truncated or altered file is an error and not a wrong answer.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from onesigma.arguments import typed
from onesigma.converted import Converted, Settings
from onesigma.decide.early_exit import ExitRule
from onesigma.errors import FileError
from onesigma.forms.exits import EarlyExit
from onesigma.graph.capture import quiet
from onesigma.importers.torch_files import PICKLED, PROGRAM
from onesigma.report import Report
from onesigma.storage import tensor_file
from onesigma.storage.graph_json import decode_graph, encode_graph, referenced_tensors
from onesigma.storage.opening import KERAS
from onesigma.version import __version__

_KIND = "converted model"
_PRIOR = "input_var"
_TORCH = ". Load the network with PyTorch and hand it to onesigma.fit"
_KERAS = ", not Keras. onesigma.read_keras reads the network, for onesigma.fit"
# What reads files of other kinds.
_WAYS = {
    ".onnx": ", not ONNX. A file of onesigma.export is read by onesigma.runtime.load; another "
    "network by onesigma.read_onnx, for onesigma.fit",
    **dict.fromkeys(KERAS, _KERAS),
    **dict.fromkeys((*PICKLED, PROGRAM), _TORCH),
}


@typed
def save(converted: Converted, path: str | Path) -> None:
    """Write a converted model to one ``.safetensors`` file, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    modules = {"network": converted.network, "source": converted.source}
    if isinstance(converted, EarlyExit):
        modules |= {_segment(place): piece for place, piece in enumerate(converted.pieces)}
    graphs = {
        name: encode_graph(module.graph, _collect(module, tensors))
        for name, module in modules.items()
    }
    if converted.input_var is not None:
        tensors[_PRIOR] = converted.input_var
    parameters = {k: v for k, v in tensors.items() if isinstance(v, nn.Parameter)}
    content = {
        "graphs": graphs,
        "parameters": sorted(parameters),
        # PyTorch multiplies by a weight in another way, and rounds otherwise, if it may learn.
        "fixed": sorted(k for k, v in parameters.items() if not v.requires_grad),
        "report": converted.report.to_dict(),
        "settings": converted.settings.to_dict(),
        "version": __version__,
    }
    if isinstance(converted, EarlyExit):
        content["exits"] = {"rule": converted.rule.to_dict(), "costs": converted.costs}
    tensor_file.write(Path(path), _KIND, tensors, content)


@typed
def load(path: str | Path) -> Converted:
    """Read what ``save`` wrote. Runs no code from the file.

    Raises:
        FileError: the file is missing, truncated, altered, or not a converted model.
    """
    path = Path(path)
    _require_saved(path)
    tensors, content = tensor_file.read(path, _KIND, "Convert and save again.")
    try:
        return _build(content, tensors)
    except Exception as error:  # a forged content can fail anywhere
        raise FileError(f"{path.name} holds no model that can be loaded: {error}") from error


def _require_saved(path: Path) -> None:
    """Refuse a file of another kind, and say what reads it."""
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    if way := _WAYS.get(path.suffix.lower()):
        reads = "onesigma.load reads .safetensors files of onesigma.save"
        raise FileError(f"{path.name}: {reads}{way}.")


def _collect(module: fx.GraphModule, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Add the module's tensors to ``tensors``; returns graph attribute → key there."""
    known = {id(tensor): key for key, tensor in tensors.items()}
    keys = {}
    for target in referenced_tensors(module.graph):
        tensor = attrgetter(target)(module)
        key = known.setdefault(id(tensor), target)
        if key in tensors and tensors[key] is not tensor:
            key = known[id(tensor)] = f"{len(tensors)}.{target}"
        tensors[key] = tensor
        keys[target] = key
    return keys


def _build(content: dict[str, Any], tensors: dict[str, Tensor]) -> Converted:
    parameters, fixed = set(content["parameters"]), set(content.get("fixed", ()))
    owned = {
        key: nn.Parameter(t, requires_grad=t.is_floating_point() and key not in fixed)
        if key in parameters
        else t
        for key, t in tensors.items()
    }
    modules, exits = {}, content.get("exits")
    segments = [_segment(place) for place in range(len(content["graphs"]) - 2)]
    for name in ("network", "source", *segments):
        graph, keys = decode_graph(content["graphs"][name])
        root = {target: owned[key] for target, key in keys.items()}
        modules[name] = fx.GraphModule(root, graph)
    settings = Settings.from_dict(content["settings"])
    _require_accepted(modules["source"].graph, settings)
    report = Report.from_dict(content["report"])
    prior = owned.get(_PRIOR)
    made = _tried(Converted(modules["network"], modules["source"], report, settings, prior).eval())
    if exits is None:
        return made
    rule = ExitRule.from_dict(exits["rule"])
    pieces = [modules[name] for name in segments]
    return _tried(EarlyExit(made, pieces, rule, exits["costs"]).eval())


def _segment(place: int) -> str:
    return f"segment_{place}"


@torch.no_grad()
def _tried(model: Converted) -> Converted:
    """Run it once, on shapes alone: a forged graph may fail at any op, and here that is told."""
    settings = model.settings
    sizes = [[2 if n is None else n for n in shape] for shape in settings.input_shapes]
    kinds = zip(sizes, settings.dtypes, strict=True)
    with quiet(), FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.zeros(size, dtype=dtype) for size, dtype in kinds]
        answer, (plain,) = model.answer(*inputs), model.source(*inputs)
        if isinstance(model, EarlyExit):
            answer = model.answers(*inputs)[-1]
        of_classes = plain if answer.entropy is None else plain.select(settings.class_dim, 0)
    hash(model.report)  # fails for anything but texts and numbers
    wanted = (answer.mean if answer.entropy is None else answer.entropy).shape
    if (plain.shape, of_classes.shape) != (answer.mean.shape, wanted):
        raise FileError("its answers have another shape than its settings say")
    return model


def _require_accepted(source: fx.Graph, settings: Settings) -> None:
    """Corrections belong to nodes of the graph, and to rules that take that kind."""
    targets = {node.name: node.target for node in source.nodes if node.op == "call_function"}
    for name, corrections in settings.corrections.items():
        rule = settings.rules.get(targets.get(name))
        for each in corrections:
            if rule is None or type(each) not in rule.accepts:
                raise FileError(f"node {name!r} takes no correction {type(each).__name__}")
