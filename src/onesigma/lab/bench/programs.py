"""What the methods run: tensors in, tensors out, as a graph for PyTorch and as an ONNX file.

All of them are made of one converted model: its network, its original, or its original with the
dropout on.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, fx, nn

from onesigma import head
from onesigma.baselines.mc_dropout import with_dropout_on
from onesigma.conversion import convert
from onesigma.converted import Converted
from onesigma.exporters.answering import make_answering
from onesigma.exporters.folding import nodes_before, replace_graph
from onesigma.exporters.onnx import Interface
from onesigma.exporters.onnx.file import OLDEST_OPSET
from onesigma.exporters.targets import export
from onesigma.graph import capture
from onesigma.runtime.model import METADATA_KEY
from onesigma.storage.atomic import replacing


class Program:
    """A graph, and the ONNX file that is written to a folder once a runtime asks for it."""

    def __init__(
        self, path: Path, graph: fx.GraphModule | None, write: Callable[[Path], object]
    ) -> None:
        self.name, self.folder = path.stem, path.parent
        self.graph = graph
        self._write = write

    @cached_property
    def path(self) -> Path:
        path = self.folder / f"{self.name}.onnx"
        self._write(path)
        return path


def stored_program(path: Path, folder: Path) -> Program:
    """A file of which there is no graph; what is made of it goes to the folder."""
    program = Program(folder / path.name, None, lambda unused: None)
    program.path = path
    return program


def one_pass(converted: Converted, examples: tuple[Tensor, ...], path: Path) -> Program:
    """Ours with all that it answers; the file is what a user would export."""
    graph = make_answering(converted, examples).graph
    return Program(path, graph, partial(export, converted))


def cut_guard(program: Program, path: Path) -> Program:
    """The same file without its guard."""
    return Program(path, None, lambda to: onnx.save(without_guard(onnx.load(program.path)), to))


def without_guard(model: onnx.ModelProto) -> onnx.ModelProto:
    """What ``fit(guard=False)`` would give: its outputs, their nodes and what is said of them."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    (entry,) = (each for each in bare.metadata_props if each.key == METADATA_KEY)
    about = json.loads(entry.value) | {"contract": None, "reference": None}
    fields = about["outputs"]
    gone = [fields.pop(field) for field in ("contract", "novelty") if field in fields]
    entry.value = json.dumps(about, separators=(",", ":"))
    outputs = [each for each in model.graph.output if each.name not in gone]
    del bare.graph.output[:]
    bare.graph.output.extend(outputs)
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes = nodes_before([each.name for each in outputs], model.graph.node)
    replace_graph(bare, nodes, constants)
    return bare


def plain(converted: Converted, examples: tuple[Tensor, ...], path: Path) -> Program:
    """The original as it is deployed: network and softmax, no entropies."""
    return trace(_Plain(converted.source, class_dim_of(converted)), examples, path)


def one_mask(converted: Converted, examples: tuple[Tensor, ...], path: Path) -> Program:
    """One pass of Monte Carlo: the logits under one draw of masks."""
    stochastic = with_dropout_on(converted.source, converted.settings.dropout)
    return program(stochastic, examples, path)


def all_masks(
    converted: Converted, examples: tuple[Tensor, ...], passes: int, path: Path
) -> Program:
    """Monte Carlo as one large batch: every input ``passes`` times, then the summary."""
    stochastic = with_dropout_on(converted.source, converted.settings.dropout)
    return trace(_Repeated(stochastic, passes, class_dim_of(converted)), examples, path)


def member(converted: Converted, examples: tuple[Tensor, ...], seed: int, path: Path) -> Program:
    """A member of an ensemble: the original with its weights in another order, of the same cost."""
    network = copy.deepcopy(converted.source)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            order = torch.randperm(weight.numel(), generator=generator)
            weight.copy_(weight.flatten()[order].view_as(weight))
    return program(network, examples, path)


def moments_and_softmax(network: nn.Module, examples: tuple[Tensor, ...], path: Path) -> Program:
    """ApDeepSense: the moments of a fully connected network, and one softmax of the means."""
    moments = convert(network, examples, task="regression")
    return trace(_OneSoftmax(moments.network), examples, path)


def class_dim_of(converted: Converted) -> int | None:
    """The dimension of the classes, if the model has any."""
    settings = converted.settings
    return settings.class_dim if settings.task == "classification" else None


def behind_runs(class_dim: int) -> int:
    """The same dimension once there is one more in front, for the runs."""
    return class_dim + 1 if class_dim >= 0 else class_dim


class _Plain(nn.Module):
    def __init__(self, network: nn.Module, class_dim: int | None) -> None:
        super().__init__()
        self.network = network
        self.class_dim = class_dim

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        (out,) = self.network(*inputs)
        return (out if self.class_dim is None else out.softmax(self.class_dim),)


class _Repeated(nn.Module):
    def __init__(self, network: nn.Module, passes: int, class_dim: int | None) -> None:
        super().__init__()
        self.network = network
        self.passes = passes
        self.class_dim = class_dim

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        (out,) = self.network(*(self._repeat(x) for x in inputs))
        logits = out.reshape(self.passes, -1, *out.shape[1:])
        mean = logits.mean(0)
        var = (logits - mean).square().sum(0) / (self.passes - 1)
        if self.class_dim is None:
            return mean, var
        log_probs = torch.log_softmax(logits.movedim(behind_runs(self.class_dim), -1), -1)
        return mean, var, *head.average(log_probs.movedim(0, -2), self.class_dim)

    def _repeat(self, x: Tensor) -> Tensor:
        return x.expand(self.passes, *x.shape).reshape(-1, *x.shape[1:])


class _OneSoftmax(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        mean, var = self.network(*inputs)
        return mean, var, mean.softmax(1)


def trace(module: nn.Module, examples: tuple[Tensor, ...], path: Path) -> Program:
    """Any module that returns a tuple of tensors."""
    return program(graph_of(module, examples), examples, path)


def program(graph: fx.GraphModule, examples: tuple[Tensor, ...], path: Path) -> Program:
    return Program(path, graph, partial(_write, graph, examples))


def graph_of(module: nn.Module, examples: tuple[Tensor, ...]) -> fx.GraphModule:
    return capture.plain_module(capture.export(module, examples, dynamic=True))


def _write(graph: fx.GraphModule, examples: tuple[Tensor, ...], path: Path) -> None:
    from onesigma.exporters.onnx.writer import write

    inputs = [f"input_{index}" for index in range(len(examples))]
    results: Any = graph.graph.output_node().args[0]
    outputs = [f"output_{index}" for index in range(len(results))]
    model = write(graph, examples, Interface(OLDEST_OPSET + 1, inputs, outputs, dynamic=True))
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
