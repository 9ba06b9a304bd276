"""Which nodes run together, and in what order.

Every node has a level, above those of the nodes that it reads from. An elementwise node may stand
on the level of another that loops over the same elements: all of one level and one shape are then
one loop, so that the whole chain of moments of an activation is, sums over it included. Layers of
one level that share their weights (mean and variance) are one step, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onesigma.exporters.c.elementwise import ELEMENTWISE, REDUCTIONS
from onesigma.exporters.c.values import Graph, Node, Shape, Storage, Value


@dataclass
class Loop:
    """Elementwise nodes and reductions over the same elements."""

    shape: Shape
    nodes: list[Node]
    local: frozenset[Storage] = frozenset()  # what nothing outside reads

    @property
    def reads(self) -> tuple[Value, ...]:
        own = {value.storage for node in self.nodes for value in node.writes}
        values = [value for node in self.nodes for value in node.reads]
        return tuple(dict.fromkeys(value for value in values if value.storage not in own))

    @property
    def writes(self) -> tuple[Value, ...]:
        values = [value for node in self.nodes for value in node.writes]
        return tuple(value for value in values if value.storage not in self.local)

    @property
    def name(self) -> str:
        first, last = self.nodes[0].name, self.nodes[-1].name
        return first if first == last else f"{first} ... {last}"


Step = Loop | Node


def is_looped(node: Node) -> bool:
    return node.kind in ELEMENTWISE or node.kind in REDUCTIONS


def loop_shape(node: Node) -> Shape:
    """What a node loops over, without dimensions of one."""
    shape = node.reads[0].shape if node.kind in REDUCTIONS else node.writes[0].shape
    return tuple(n for n in shape if n > 1)


def fuse(graph: Graph) -> list[Step]:
    """The steps, in order."""
    levels = _levels(graph.nodes)
    groups: dict[Any, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        groups[levels[node], *_companions(node)].append(node)
    steps = [_step(nodes) for _, nodes in sorted(groups.items(), key=lambda item: item[0][0])]
    _find_locals(steps, graph.outputs.values())
    return steps


def _companions(node: Node) -> tuple[Any, ...]:
    """Nodes of a level for which this is the same are one step."""
    if is_looped(node):
        return ("loop", loop_shape(node))
    if "weight" in node.attributes:
        return (node.kind, id(node.attributes["weight"]), node.attributes["geometry"])
    return (id(node),)


def _step(nodes: Sequence[Node]) -> Step:
    if is_looped(nodes[0]):
        return Loop(loop_shape(nodes[0]), list(nodes))
    if "weight" not in nodes[0].attributes:
        return nodes[0]
    reads = tuple(value for node in nodes for value in node.reads)
    writes = tuple(value for node in nodes for value in node.writes)
    name = ", ".join(node.name for node in nodes)
    return Node(nodes[0].kind, reads, writes, {"lanes": list(nodes)}, name)


def _levels(nodes: Iterable[Node]) -> dict[Node, int]:
    levels: dict[Node, int] = {}
    writers: dict[Storage, list[Node]] = defaultdict(list)
    for node in nodes:
        needed = [0]
        for value in node.reads:
            sources = writers.get(value.storage, [])
            for writer in sources:
                together = len(sources) == 1 and _in_one_loop(node, value, writer)
                needed.append(levels[writer] + (0 if together else 1))
        for value in node.writes:
            # One that fills a storage comes before those that write parts of it.
            fillers = [w for w in writers[value.storage] if w.writes[0].whole]
            needed += [levels[writer] + 1 for writer in fillers]
            writers[value.storage].append(node)
        levels[node] = max(needed)
    _sink(list(levels), levels, writers)
    return levels | _late_fills(writers, levels)


def _sink(
    nodes: Sequence[Node], levels: dict[Node, int], writers: Mapping[Storage, Sequence[Node]]
) -> None:
    """Compute in the loop that needs it what only that loop needs: then it is not stored."""
    readers: dict[Storage, list[tuple[Node, Value]]] = defaultdict(list)
    for node in nodes:
        for value in node.reads:
            readers[value.storage].append((node, value))
    for node in reversed(nodes):
        storage = node.writes[0].storage
        users = readers[storage]
        if node.kind not in ELEMENTWISE or not users or len(writers[storage]) > 1:
            continue
        wanted = {levels[user] for user, _ in users}
        if len(wanted) == 1 and all(_in_one_loop(user, value, node) for user, value in users):
            levels[node] = wanted.pop()


def _late_fills(
    writers: Mapping[Storage, Sequence[Node]], levels: Mapping[Node, int]
) -> dict[Node, int]:
    """What only constants fill is filled right before it is used, not at the very beginning."""
    return {
        first: min(levels[node] for node in rest) - 1
        for first, *rest in writers.values()
        if rest and not any(value.storage.data is None for value in first.reads)
    }


def _in_one_loop(reader: Node, value: Value, writer: Node) -> bool:
    """Whether each turn of a loop reads just what the same turn has written."""
    if not is_looped(reader) or writer.kind not in ELEMENTWISE:
        return False
    written = writer.writes[0]
    return (
        loop_shape(reader) == loop_shape(writer)
        and value.whole
        and written.whole
        and tuple(n for n in value.shape if n > 1) == loop_shape(reader)
    )


def _find_locals(steps: Sequence[Step], outputs: Iterable[Value]) -> None:
    readers: dict[Storage, set[int]] = defaultdict(set)
    for index, step in enumerate(steps):
        for node in step.nodes if isinstance(step, Loop) else [step]:
            for value in node.reads:
                readers[value.storage].add(index)
    kept = {value.storage for value in outputs}
    for index, step in enumerate(steps):
        if isinstance(step, Loop):
            elementwise = [node for node in step.nodes if node.kind in ELEMENTWISE]
            written = {node.writes[0].storage for node in elementwise if node.writes[0].whole}
            step.local = frozenset(s for s in written - kept if readers[s] <= {index})
