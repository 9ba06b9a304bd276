"""Where an ONNX file drops units: as it says itself, or as the user does.

    relu_1              the node, or the value, of that name
    block*/relu         all whose names fit the pattern
    every Relu          all nodes of that op

Exporters leave dropout out of the files they write, because it does nothing in inference. So the
user, who trained the network, has to say where it was and at which rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from torch import Tensor

from onesigma.errors import InputError, ModelError, NoRandomness
from onesigma.importers.onnx.parse import Array, Node, OnnxGraph
from onesigma.text_table import shape_text, text_table

Rates: TypeAlias = Mapping[str, float]
_EVERY = "every "
_ACTIVATIONS = {
    *("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Swish", "Mish", "HardSwish"),
    *("Clip", "Sigmoid", "HardSigmoid", "Tanh", "Softplus", "Shrink"),
}
_LAYERS = {"Linear", "Gemm", "MatMul", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN"}
_SHOWN = 40


class Dropout(NamedTuple):
    """What is dropped after a node: single elements, or whole channels (dimension 1)."""

    rate: float
    channels: bool = False

    def __str__(self) -> str:
        return f"p = {self.rate:g}" + (" of channels" if self.channels else "")


def _rate(node: Node, constants: Mapping[str, Array]) -> float:
    """An input since opset 12, an attribute before; a half where there is none."""
    name = node.inputs[1] if len(node.inputs) > 1 else ""
    if name and name not in constants:
        raise ModelError(f"{node}: its rate is computed when it runs; it must be a constant.")
    if name and constants[name].size != 1:
        raise ModelError(f"{node}: its rate is one number, not {constants[name].size}.")
    rate = constants[name].item() if name else node.attributes.get("ratio", 0.5)
    return _check_rate(round(rate, 7), str(node))  # 0.2 in float32 is 0.20000000298


def _check_rate(rate: float, what: str) -> float:
    if not 0 <= rate < 1:
        raise InputError(f"{what}: a dropout rate is at least 0 and below 1, not {rate:g}.")
    return float(rate)


def find_sites(
    graph: OnnxGraph,
    fused: OnnxGraph,
    values: Mapping[str, Tensor],
    dropout: Rates | None,
    channel_dropout: Rates | None,
) -> dict[str, Dropout]:
    """By node, what is dropped after it: as the file says, then as the user does.

    Names are those of ``graph``, the file as it is; ops those of ``fused``, layers put together.
    Where two names fit one node, the later wins.

    Raises:
        InputError: a name fits no node (the message suggests some), or one that cannot drop.
    """
    in_file = [node for node in graph.nodes if node.op == "Dropout"]
    sites = {node.name: Dropout(_rate(node, graph.constants)) for node in in_file}
    named = [(pattern, rate, False) for pattern, rate in (dropout or {}).items()]
    named += [(pattern, rate, True) for pattern, rate in (channel_dropout or {}).items()]
    for pattern, rate, channels in named:
        found = _find(pattern, graph, fused)
        if not found:
            raise InputError(f"dropout: {_explain_miss(pattern, graph, fused)}")
        site = Dropout(_check_rate(rate, f"dropout '{pattern}'"), channels)
        for node in found:
            value = values.get(node.outputs[0])
            if value is None or not value.is_floating_point() or value.dim() < 2 + channels:
                what = "channels" if channels else "elements"
                raise InputError(f"dropout '{pattern}': {node} makes no {what} to drop.")
            sites[node.name] = site
    return sites


def _find(pattern: str, graph: OnnxGraph, fused: OnnxGraph) -> list[Node]:
    if pattern.startswith(_EVERY):
        return [node for node in fused.nodes if node.op == pattern.removeprefix(_EVERY)]
    exact = [node for node in graph.nodes if pattern in (node.name, node.outputs[0])]
    return exact or [
        node
        for node in graph.nodes
        if fnmatchcase(node.name, pattern) or fnmatchcase(node.outputs[0], pattern)
    ]


def _explain_miss(pattern: str, graph: OnnxGraph, fused: OnnxGraph) -> str:
    if pattern.startswith(_EVERY):
        ops, op = sorted({node.op for node in fused.nodes}), pattern.removeprefix(_EVERY)
        return f"there is no op '{op}' in {graph.file}, but {_quote(ops)}."
    names = [name for node in graph.nodes for name in (node.name, node.outputs[0])]
    close = get_close_matches(pattern, names, n=3, cutoff=0.5)
    hint = f" Did you mean {_quote(dict.fromkeys(close))}?" if close else ""
    return (
        f"no node or value of {graph.file} is called '{pattern}'.{hint} "
        "`onesigma inspect` lists them all."
    )


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def candidates(fused: OnnxGraph) -> list[Node]:
    """Activations that a layer with weights still comes after: where dropout usually stands."""
    reaching: set[str] = set()  # values from which such a layer is reached
    found = []
    for node in reversed(fused.nodes):
        ahead = bool(reaching & set(node.outputs))
        if ahead and node.op in _ACTIVATIONS:
            found.append(node)
        if ahead or node.op in _LAYERS:
            reaching |= set(node.inputs)
    return found[::-1]


def no_dropout(fused: OnnxGraph, values: Mapping[str, Tensor]) -> NoRandomness:
    """The error for a file without dropout: why, and what can be named."""
    listed = candidates(fused)
    shapes = [shape_text((None, *values[node.outputs[0]].shape[1:])) for node in listed]
    rows = [(n.name, n.op, shape) for n, shape in zip(listed, shapes, strict=True)][:_SHOWN]
    table = text_table(("node", "op", "output"), rows)
    if len(listed) > _SHOWN:
        table += f"\n… and {len(listed) - _SHOWN} more: `onesigma inspect` lists them"
    example = listed[0].op if listed else "Relu"
    return NoRandomness(
        f"{fused.file} holds no Dropout. Exporters leave it out, because it does nothing in "
        "inference, so neither its place nor its rate is in the file. Say where the network had it "
        f"in training: --dropout NODE=RATE, or --dropout 'every {example}=0.5' "
        "(dropout={'NODE': RATE} in Python); or give an input standard deviation. "
        f"Dropout usually stands after an activation:\n\n{table}"
    )
