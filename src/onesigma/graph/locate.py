"""Where a node comes from: module path, source line, op name, in words for people."""

from __future__ import annotations

import re
from pathlib import PurePath

import torch
from torch import fx

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_TORCH = str(PurePath(torch.__file__).parent)
# Models of Keras, and from a file, have no line of the user's: their layers have names instead.
# Nor has a graph that was captured before: the last is the file name of its generated code.
_IMPORTERS = ("/keras/src/", "/onesigma/importers/", "/onesigma/graph/", "<eval_with_key>")


def op_name(node: fx.Node) -> str:
    """``aten.conv2d`` for ``torch.ops.aten.conv2d.default``."""
    target = node.target
    plain = isinstance(target, str | torch._ops.OpOverload)
    return str(target if plain else getattr(target, "__name__", target)).removesuffix(".default")


def module_path(node: fx.Node) -> str:
    """The dotted path of the module the node was called in, or ''."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [str(entry[0]) for entry in stack.values()]
    return paths[-1] if paths and not paths[-1].startswith("_empty") else ""


def source_line(node: fx.Node) -> str:
    """``net.py:41``: the innermost frame of the user's own code, or ''."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith((_TORCH, "torch/"))]
    own = [frame for frame in own if not any(part in frame[0] for part in _IMPORTERS)]
    return f"{PurePath(own[-1][0]).name}:{own[-1][1]}" if own else ""


def place(node: fx.Node) -> str:
    """``drop1, net.py:41``."""
    return ", ".join(part for part in (module_path(node) or node.name, source_line(node)) if part)


def describe(node: fx.Node) -> str:
    """``aten.dropout (drop1, net.py:41)``."""
    return f"{op_name(node)} ({place(node)})"


def output_of(module: fx.GraphModule) -> fx.Node:
    """The node that makes the one output."""
    outputs = module.graph.output_node().args[0]
    assert isinstance(outputs, tuple | list)
    result = outputs[0]
    assert isinstance(result, fx.Node)
    return result
