"""An ``fx.Graph`` as JSON and back, refusing on the way back whatever we would not have written.

``fx.GraphModule`` turns a graph into Python source, so a graph from a file must not be able to
choose that source: names are identifiers (keyword arguments' too, for they are written into it as
they are), targets come from a fixed set, and arguments are numbers, strings, torch dtypes and
references to earlier nodes.
"""

from __future__ import annotations

import keyword
import math
import operator
import re
from typing import Any

import torch
from torch import fx

from onesigma.errors import FileError

_OPERATORS = {
    f"operator.{function.__name__}": function
    for function in (
        *(operator.getitem, operator.add, operator.sub, operator.mul, operator.neg),
        *(operator.floordiv, operator.truediv, operator.mod, operator.pow),
    )
}
_NAMED = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_DENIED = {"from_file"}  # an ATen op that reads the file system
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBERED = re.compile(r"[A-Za-z0-9_]+")  # modules in an nn.Sequential have numbers for names


class MalformedGraphError(FileError):
    """A graph that we do not write, or JSON that describes none that we would have written."""


def referenced_tensors(graph: fx.Graph) -> list[str]:
    """The attributes a graph reads, each once, in order."""
    return list(dict.fromkeys(str(n.target) for n in graph.find_nodes(op="get_attr")))


def encode_graph(graph: fx.Graph, keys: dict[str, str]) -> dict[str, Any]:
    """The graph as plain data; ``keys`` says under which key each attribute's tensor is stored."""
    nodes = []
    for node in graph.nodes:
        target = _target_name(node.target) if node.op == "call_function" else str(node.target)
        entry = {"op": node.op, "name": node.name, "target": target}
        entry |= {"args": _encode(node.args), "kwargs": _encode(dict(node.kwargs))}
        stack = node.meta.get("nn_module_stack")
        if stack:
            entry["module"] = str(list(stack.values())[-1][0])
        nodes.append(entry)
    return {"nodes": nodes, "tensors": keys}


def decode_graph(content: dict[str, Any]) -> tuple[fx.Graph, dict[str, str]]:
    """Rebuild a graph and its attribute → tensor key map."""
    graph = fx.Graph()
    known: dict[str, fx.Node] = {}
    keys = {str(target): str(key) for target, key in content["tensors"].items()}
    for entry in content["nodes"]:
        name, op = _identifier(entry["name"]), entry["op"]
        if name in known:
            raise MalformedGraphError(f"two nodes are called {name!r}")
        args, kwargs = _decode(entry["args"], known), _decode(entry["kwargs"], known)
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise MalformedGraphError(f"the arguments of {name!r} are no arguments")
        if op == "placeholder":
            # Arguments of the generated function: not even their names come from the file.
            node = graph.placeholder(f"input_{len(known)}")
        elif op == "get_attr":
            node = graph.create_node("get_attr", _attribute(entry["target"], keys))
        elif op == "call_function":
            target = _target(entry["target"])
            node = graph.create_node("call_function", target, args, kwargs, name=name)
        elif op == "output":
            node = graph.output(args[0])
        else:
            raise MalformedGraphError(f"{op!r} is no kind of node")
        if "module" in entry:
            node.meta["nn_module_stack"] = {"saved": (str(entry["module"]), "")}
        known[name] = node
    if not known or node.op != "output":
        raise MalformedGraphError("the graph returns nothing")
    graph.lint()
    return graph, keys


def _identifier(name: object) -> str:
    text = str(name)
    if not _IDENTIFIER.fullmatch(text) or keyword.iskeyword(text) or text == "self":
        raise MalformedGraphError(f"{text!r} is no name for a node or an argument")
    return text


def _attribute(target: object, keys: dict[str, str]) -> str:
    name = str(target)
    if name not in keys or not all(_NUMBERED.fullmatch(part) for part in name.split(".")):
        raise MalformedGraphError(f"{name!r} is no tensor of this file")
    return name


def _target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    name = f"operator.{getattr(target, '__name__', target)}"
    if _OPERATORS.get(name) is not target:
        raise MalformedGraphError(f"{target} cannot be saved")
    return name


def _target(name: str) -> Any:
    if name in _OPERATORS:
        return _OPERATORS[name]
    space, _, rest = str(name).partition("::")
    packet, _, overload = rest.partition(".")
    found = None
    if space == "aten" and packet not in _DENIED:
        found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload) or not _is_computation(found):
        raise MalformedGraphError(f"{name!r} is no op that a saved model may call")
    return found


def _is_computation(op: torch._ops.OpOverload) -> bool:
    """It writes to none of its arguments, returns something, and is a real operator.

    TorchScript has functions under aten:: too, save(item, filename) among them; the dispatcher
    knows none of those.
    """
    schema = op._schema
    name = f"{schema.name}.{schema.overload_name}".removesuffix(".")
    known = torch._C._dispatch_has_kernel(name)
    return known and bool(schema.returns) and not schema.is_mutable


def _encode(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": {str(key): _encode(item) for key, item in value.items()}}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind, cls in _NAMED.items():
        if isinstance(value, cls):
            return {kind: str(value).removeprefix("torch.")}
    raise MalformedGraphError(f"an argument of type {type(value).__name__} cannot be saved")


def _decode(value: Any, known: dict[str, fx.Node]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_decode(item, known) for item in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise MalformedGraphError(f"{value!r} is no argument")
    ((kind, content),) = value.items()
    if kind == "node":
        return known[content]
    if kind == "tuple":
        return tuple(_decode(item, known) for item in content)
    if kind == "dict":
        return {_identifier(key): _decode(item, known) for key, item in content.items()}
    if kind == "float":
        return float(content)
    if kind == "device":
        return torch.device(content)
    named = getattr(torch, str(content), None) if kind in _NAMED else None
    if named is None or not isinstance(named, _NAMED[kind]):
        raise MalformedGraphError(f"{value!r} is no argument")
    return named
