"""What ``onesigma inspect`` shows: the nodes of a file, their rules, where dropout is or may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from onesigma.graph.capture import export, plain_module
from onesigma.graph.locate import module_path
from onesigma.importers.onnx.dropout_sites import Dropout, Rates, candidates
from onesigma.importers.onnx.module import OnnxModule, Step
from onesigma.importers.onnx.parse import OnnxGraph, parse, read_model
from onesigma.importers.onnx.read import Reading, unknown_ops
from onesigma.importers.onnx.rewrite import fuse
from onesigma.rules import RULES
from onesigma.text_table import printable, shape_text, text_table

_HEAD = ("Softmax", "LogSoftmax")


@dataclass(frozen=True)
class Row:
    """One node; ``rule`` is the family its uncertainty is carried by, or why it is not."""

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
        inputs, cells = ", ".join(self.inputs), [astuple(row) for row in self.rows]
        title = f"{self.file}: opset {self.opset}, input {inputs}, output {self.output}"
        table = text_table(("node", "op", "output", "rule", "dropout"), cells)
        return f"{printable(title)}\n\n{table}"


def inspect_onnx(
    path: Path, dropout: Rates | None = None, channel_dropout: Rates | None = None
) -> Inspection:
    """The table of a file's nodes. If some ops cannot be read it says so, and has no shapes."""
    model = read_model(path)
    graph = parse(model, path.name)
    if unknown := unknown_ops(graph):
        shown = [node for node in graph.nodes if node.op != "Constant"]
        rows = [Row(n.name, n.op, "", "not read" if n in unknown else "", "") for n in shown]
    else:
        reading = Reading.of(model, graph)
        rows = _rows(reading, reading.sites(dropout, channel_dropout))
    inputs = tuple(f"{x.name} {shape_text(x.shape)} {x.dtype}" for x in graph.inputs)
    return Inspection(graph.file, graph.opset, inputs, graph.output, tuple(rows))


def _rows(reading: Reading, sites: Mapping[str, Dropout]) -> list[Row]:
    fused = fuse(reading.graph, reading.values, sites)
    places = {node.name: "candidate" for node in candidates(fused)}
    places |= {name: str(dropout) for name, dropout in sites.items()}
    families = _families(fused)
    rows = []
    for node in fused.nodes:
        value = reading.values.get(node.outputs[0])
        ends = node.op in _HEAD and node.outputs[0] == fused.output
        rule = "head" if ends else families.get(node.name, "sizes" if value is None else "certain")
        text = "" if value is None else shape_text((None, *value.shape[1:]))
        rows.append(Row(node.name, node.op, text, rule, places.get(node.name, "")))
    return rows


@torch.no_grad()
def _families(graph: OnnxGraph) -> dict[str, str]:
    """By node, the families of the rules of the torch ops that it consists of."""
    module = OnnxModule(graph).eval()
    captured = plain_module(export(module, module.examples(graph.batch or 2), dynamic=False))
    steps = {path: step for path, step in module.named_modules() if isinstance(step, Step)}
    found: dict[str, list[str]] = {}
    for node in captured.graph.nodes:
        step = steps.get(module_path(node))
        if step is not None and node.op == "call_function":
            found.setdefault(step.node.name, []).append(_family(node))
    return {name: " + ".join(dict.fromkeys(each)) for name, each in found.items()}


def _family(node: fx.Node) -> str:
    rule = RULES.get(node.target)
    return "no rule" if rule is None or rule.refuses else rule.family
