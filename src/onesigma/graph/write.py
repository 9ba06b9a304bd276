"""Write: the graph of what a module computes, noted down while it runs on real tensors.

``torch.export`` traces it with symbols for its sizes, and a propagated network has hundreds of
ops: that took most of a conversion. Here each op is noted as it is called, before PyTorch takes
it apart. A second run, on other values and another batch, has to call the very same ops; a whole
number that differs follows the batch, and is computed from it. The graph is then compared with
the module on a third batch.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import chain
from typing import Any
from weakref import ref

import torch
from torch import Tensor, fx, nn
from torch._dispatch.python import enable_python_dispatcher, no_python_dispatcher
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, PythonKeyTracer

aten = torch.ops.aten

# What a constant made by torch.tensor() goes through; alias: see capture.
NOTHING = (
    *(aten.lift_fresh.default, aten.lift_fresh_copy.default),
    *(aten.detach_.default, aten.alias.default),
)
# What a program may know of a tensor. To look at its numbers is to go another way with others.
_SIZES = (aten.sym_size.int, aten.sym_numel.default, aten.sym_stride.int)
_NESTED = (list, tuple)
# The batches of the two runs, and of the comparison. Not of a run: sizes of 1 are broadcast.
_FEW, _MORE, _ONE = 2, 4, 1


@torch.no_grad()
def write(module: nn.Module, examples: Sequence[Tensor], *, dynamic: bool) -> fx.GraphModule | None:
    """Tensors in, a tuple out, weights shared. None where two runs do not tell what all would do:

    the graph depends on values, or on the batch in another way than in proportion.
    """
    if dynamic and len({len(x) for x in examples}) > 1:
        return None
    few, more = (_rows(examples, n) if dynamic else examples for n in (_FEW, _MORE))
    one = _rows(examples, _ONE) if dynamic else examples
    try:
        first = Writer(module)
        first.run(module, few)
        _Follower(module, first, open_batch=dynamic).run(module, [changed(x) for x in more])
        first.graph.eliminate_dead_code()
        network = fx.GraphModule(first.tensors, first.graph)
        alike = _same(network(*one), module(*one))
    except Exception:  # whatever a module does with a batch that it does not take
        return None
    return network if alike else None


def changed(x: Tensor) -> Tensor:
    """The same kind of input with other values."""
    return 0.7 * x.flip(0) if x.is_floating_point() else x.flip(0)


def _rows(examples: Sequence[Tensor], count: int) -> list[Tensor]:
    return [x[torch.arange(count, device=x.device) % len(x)] for x in examples]


def _same(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    pairs = list(zip(found, wanted, strict=True))
    return all(a.shape == b.shape and torch.allclose(a, b, equal_nan=True) for a, b in pairs)


class Writer(ProxyTorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes each op that is called as a node of ``graph``; ``tensors`` are those it refers to."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(PythonKeyTracer(), "real", pre_dispatch=True)
        named = chain(module.named_parameters(), module.named_buffers())
        self.names = {id(tensor): name for name, tensor in named}
        self.graph = fx.Graph()
        self.tensors: dict[str, Tensor] = {}
        self.steps: list[fx.Node] = []  # in the order in which they came
        # By id, which a tensor that is gone leaves to another.
        self._known: dict[int, tuple[fx.Node, ref[Tensor]]] = {}
        # By address: zeros_like and the like hand out another object than the op returned.
        self._made: dict[int, tuple[fx.Node, Tensor]] = {}

    def run(self, module: nn.Module, inputs: Sequence[Tensor]) -> None:
        for index, x in enumerate(inputs):
            self._top = self.step("placeholder", f"inputs_{index}")
            self._know(x, self._top)
        with enable_python_dispatcher(), self:
            outputs = module(*inputs)
        self.step("output", "output", (self._as_nodes(outputs),))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with no_python_dispatcher():  # which is slow, and has done its part
            out = func(*args, **(kwargs or {}))
            if func in NOTHING:
                self._know(out, self._as_nodes(args[0]))
            elif func not in _SIZES:
                _require(isinstance(out, (Tensor, *_NESTED)))
                nodes = self._as_nodes(args), self._as_nodes(kwargs or {})
                node = self.step("call_function", func, *nodes)
                self._know(out, node)
                if "pin_memory" in nodes[1]:
                    self._made[out.data_ptr()] = node, out
        return out

    def step(self, op: str, target: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> fx.Node:
        """Note the next step; returns its node."""
        packet = getattr(target, "overloadpacket", target)
        name = getattr(packet, "__name__", None)
        self.steps.append(self.graph.create_node(op, target, args, kwargs or {}, name))
        return self.steps[-1]

    def attribute(self, tensor: Tensor) -> fx.Node:
        """The node of a weight, or of a constant made on the way."""
        name = self.names.get(id(tensor))
        if name is None:
            name = f"lifted_tensor_{sum(n.startswith('lifted') for n in self.tensors)}"
        self.tensors[name] = tensor
        node = self.step("get_attr", name)
        self._top.append(node)  # before all ops: a pass may let any of them use it
        self._top = node
        return node

    def _know(self, value: Any, node: fx.Node) -> None:
        if isinstance(value, Tensor):
            self._known[id(value)] = node, ref(value)
            if "val" not in node.meta:
                node.meta["val"] = torch.empty_like(value, device="meta")
            return
        for index, each in enumerate(value):
            self._know(each, self.step("call_function", operator.getitem, (node, index)))

    def _as_nodes(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._node_of(value)
        if isinstance(value, _NESTED):
            return type(value)(self._as_nodes(each) for each in value)
        if isinstance(value, dict):
            return {key: self._as_nodes(each) for key, each in value.items()}
        return value

    def _node_of(self, value: Tensor) -> fx.Node:
        node, known = self._known.get(id(value), (None, None))
        if node is None or known is None or known() is not value:
            node, made = self._made.get(value.data_ptr(), (None, value))
            if node is None or made.shape != value.shape or made.stride() != value.stride():
                node = self.attribute(value)
            self._know(value, node)
        return node


class _Follower(Writer):  # type: ignore[no-untyped-call]
    """A second run, step by step beside the first."""

    def __init__(self, module: nn.Module, first: Writer, *, open_batch: bool) -> None:
        super().__init__(module)
        self.tensors = first.tensors
        self._follows = iter(first.steps)
        self._batch = _Batch(first.graph) if open_batch else None

    def step(self, op: str, target: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> fx.Node:
        node = next(self._follows)
        _require(node.op == op and node.target == target)
        if node.args != args or node.kwargs != (kwargs or {}):
            opened = self._opened((node.args, node.kwargs), (args, kwargs or {}))
            node.args, node.kwargs = opened
        return node

    def attribute(self, tensor: Tensor) -> fx.Node:
        node = next(self._follows)
        known = self.tensors.get(str(node.target))
        _require(known is not None and (known is tensor or torch.equal(known, tensor)))
        return node

    def _opened(self, was: Any, now: Any) -> Any:
        """What there was, with the numbers that follow the batch computed from it."""
        if isinstance(was, _NESTED) and isinstance(now, _NESTED):
            opened = [self._opened(a, b) for a, b in zip(was, now, strict=True)]
            return opened if isinstance(was, list) else tuple(opened)
        if isinstance(was, dict) and isinstance(now, dict):
            _require(was.keys() == now.keys())
            return {key: self._opened(was[key], now[key]) for key in was}
        if type(was) is int and type(now) is int and was != now and self._batch is not None:
            return self._batch.line(was, now)
        _require(was == now)
        return was


class _Batch:
    """The size of the batch, and numbers that are a multiple of it plus another."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._inputs = graph.find_nodes(op="placeholder")
        self._known: dict[tuple[int, int], fx.Node] = {}

    def line(self, few: int, more: int) -> fx.Node:
        """The number that is this at a batch of ``_FEW`` and that at one of ``_MORE``."""
        slope, broken = divmod(more - few, _MORE - _FEW)
        _require(not broken)
        return self._number(slope, few - slope * _FEW)

    def _number(self, slope: int, rest: int) -> fx.Node:
        if (slope, rest) not in self._known:
            if rest:
                call = operator.add, (self._number(slope, 0), rest)
            elif slope != 1:
                call = operator.mul, (self._number(1, 0), slope)
            else:
                call = aten.sym_size.int, (self._inputs[0], 0)
            last = [*self._inputs, *self._known.values()][-1]
            with self._graph.inserting_after(last):
                self._known[slope, rest] = self._graph.call_function(*call)
        return self._known[slope, rest]


def _require(agrees: bool) -> None:
    if not agrees:
        raise RuntimeError("the graph would depend on the example")
