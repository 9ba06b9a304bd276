"""What ``onesigma inspect`` shows: the nodes of a file, their rules, where dropout is or may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from onesigma.graph.capture import export, plain_module
from onesigma.graph.locate import module_path
from onesigma.importers.onnx.dropout_sites import Dropout, candidates, shape_text
from onesigma.importers.onnx.file import read_model
from onesigma.importers.onnx.graph import Graph, parse
from onesigma.importers.onnx.module import OnnxModule
from onesigma.importers.onnx.read import Reading, is_known
from onesigma.rules import RULES
from onesigma.text_table import text_table

_HEAD = ("Softmax", "LogSoftmax")


@dataclass(frozen=True)
class Row:
    """One node; ``rule`` is the family its doubt is carried by, or why it is not."""

    name: str
    op: str
    output: str
    rule: str
    dropout: str


@dataclass(frozen=True)
class Inspection:
    """A file at a glance. Print it, or take it as a dict."""

    file: str
    opset: int
    inputs: tuple[str, ...]
    output: str
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        title = (
            f"{self.file}: opset {self.opset}, input {', '.join(self.inputs)}, output {self.output}"
        )
        cells = [(row.name, row.op, row.output, row.rule, row.dropout) for row in self.rows]
        return f"{title}\n\n" + text_table(("node", "op", "output", "rule", "dropout"), cells)


def inspect_onnx(
    path: Path,
    dropout: Mapping[str, float] | None = None,
    channel_dropout: Mapping[str, float] | None = None,
) -> Inspection:
    """The table of a file's nodes. Ops that cannot be read are among it, and then no shapes."""
    graph = parse(read_model(path), path.name)
    unknown = [node for node in graph.nodes if not is_known(node.op)]
    if unknown:
        rows = _unread(graph)
    else:
        reading = Reading.of(path)
        rows = _rows(reading, reading.sites(dropout or {}, channel_dropout or {}))
    inputs = tuple(f"{x.name} {shape_text(x.shape)} {x.dtype}" for x in graph.inputs)
    return Inspection(graph.file, graph.opset, inputs, graph.output, tuple(rows))


def _unread(graph: Graph) -> list[Row]:
    return [
        Row(node.name, node.op, "", "" if is_known(node.op) else "not read", "")
        for node in graph.nodes
        if node.op != "Constant"
    ]


def _rows(reading: Reading, sites: Mapping[str, Dropout]) -> list[Row]:
    fused = reading.fused_around(sites)
    possible = {node.name for node in candidates(fused)}
    families = _families(fused)
    rows = []
    for node in fused.nodes:
        value = reading.values.get(node.outputs[0])
        ends = node.op in _HEAD and node.outputs[0] == fused.output
        rule = "head" if ends else families.get(node.name, "sizes" if value is None else "certain")
        place = str(sites[node.name]) if node.name in sites else ""
        place = place or ("candidate" if node.name in possible else "")
        text = "" if value is None else shape_text((None, *value.shape[1:]))
        rows.append(Row(node.name, node.op, text, rule, place))
    return rows


@torch.no_grad()
def _families(graph: Graph) -> dict[str, str]:
    """By node, the families of the rules of the torch ops that it consists of."""
    module = OnnxModule(graph).eval()
    captured = plain_module(export(module, module.examples(graph.batch or 2), dynamic=False))
    names = module.paths()
    found: dict[str, list[str]] = {}
    for node in captured.graph.nodes:
        step = names.get(module_path(node))
        if step is not None and node.op == "call_function":
            found.setdefault(step, []).append(_family(node))
    return {step: " + ".join(dict.fromkeys(each)) for step, each in found.items()}


def _family(node: fx.Node) -> str:
    rule = RULES.get(node.target) if callable(node.target) else None
    return "no rule" if rule is None or rule.refuses else rule.family
