"""Which nodes run together, in what order, and where in the arena their results lie.

**Steps.** Every node has a level, above the levels of the nodes that it reads from. An elementwise
node may stand on the level of another that loops over the same elements. All nodes of one level and
one shape are one loop: the whole chain of moments of an activation is, sums over it included.
Layers of one level that share their weights (mean and variance) are one step, too.

**Memory.** It is planned when the code is written. The largest storage is placed first, each at the
lowest place that is free as long as it lives. A loop writes over an input that it is the last to
read, if both are read and written in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from onesigma.exporters.c.elementwise import ELEMENTWISE, REDUCTIONS
from onesigma.exporters.c.nodes import Graph, Node, Shape, Storage, Value


@dataclass
class Loop:
    """Elementwise nodes and reductions over the same elements."""

    kind: ClassVar[str] = "loop"
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

    def follows(self, value: Value) -> bool:
        """Whether each turn of the loop uses the next element of a whole storage."""
        return value.whole and value.long_dims == self.shape


Step = Loop | Node


def _is_looped(node: Node) -> bool:
    return node.kind in ELEMENTWISE or node.kind in REDUCTIONS


def _loop_shape(node: Node) -> Shape:
    """What a node loops over, without dimensions of one."""
    return (node.reads[0] if node.kind in REDUCTIONS else node.writes[0]).long_dims


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
    """A key: nodes of one level with the same key are one step."""
    if _is_looped(node):
        return ("loop", _loop_shape(node))
    if "weight" in node.attributes:
        layer = node.attributes
        return (node.kind, id(layer["weight"]), layer["window"], node.reads[0].shape)
    return (id(node),)


def _step(nodes: Sequence[Node]) -> Step:
    if _is_looped(nodes[0]):
        return Loop(_loop_shape(nodes[0]), list(nodes))
    if "weight" not in nodes[0].attributes:
        return nodes[0]
    reads = tuple(value for node in nodes for value in node.reads)
    writes = tuple(value for node in nodes for value in node.writes)
    name = ", ".join(node.name for node in nodes)
    return Node(nodes[0].kind, reads, writes, {}, name, nodes)


def _levels(nodes: Iterable[Node]) -> dict[Node, int]:
    levels: dict[Node, int] = {}
    writers: dict[Storage, list[Node]] = defaultdict(list)
    for node in nodes:
        needed = [0]
        for value in node.reads:
            sources = writers.get(value.storage, [])
            for writer in sources:
                together = len(sources) == 1 and _share_turns(node, value, writer)
                needed.append(levels[writer] + (0 if together else 1))
        for value in node.writes:
            # One that fills a storage comes before those that write parts of it.
            fillers = [w for w in writers[value.storage] if w.writes[0].whole]
            needed += [levels[writer] + 1 for writer in fillers]
            writers[value.storage].append(node)
        levels[node] = max(needed)
    _sink(levels, writers)
    return levels | _late_fills(writers, levels)


def _sink(levels: dict[Node, int], writers: Mapping[Storage, Sequence[Node]]) -> None:
    """Move what only one loop needs into that loop: then it is not stored."""
    readers: dict[Storage, list[tuple[Node, Value]]] = defaultdict(list)
    for node in levels:
        for value in node.reads:
            readers[value.storage].append((node, value))
    for node in reversed(levels):
        storage = node.writes[0].storage
        users = readers[storage]
        wanted = {levels[user] for user, _ in users}
        alone = node.kind in ELEMENTWISE and len(writers[storage]) == 1 and len(wanted) == 1
        if alone and all(_share_turns(user, value, node) for user, value in users):
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


def _share_turns(reader: Node, value: Value, writer: Node) -> bool:
    """Whether each turn of one loop would read just what the same turn has written."""
    shape = _loop_shape(writer)
    looped = _is_looped(reader) and writer.kind in ELEMENTWISE and _loop_shape(reader) == shape
    return looped and value.whole and writer.writes[0].whole and value.long_dims == shape


def _find_locals(steps: Sequence[Step], outputs: Iterable[Value]) -> None:
    """What no other step reads is not stored."""
    kept = {value.storage for step in steps for value in step.reads}
    kept |= {value.storage for value in outputs}
    for step in steps:
        if isinstance(step, Loop):
            results = [node.writes[0] for node in step.nodes if node.kind in ELEMENTWISE]
            step.local = frozenset(value.storage for value in results if value.whole) - kept


@dataclass
class Memory:
    """Places in the arena, in floats; ``scratch`` is by the number of the step.

    Codes of 8-bit values take a quarter of a float each.
    """

    size: int
    places: dict[Storage, int]
    scratch: dict[int, int]


@dataclass(eq=False)
class _Life:
    """Memory that is in use from one step to another, and the storages that lie in it."""

    size: int
    first: int
    last: int
    storages: list[Storage] = field(default_factory=list)


def plan_memory(graph: Graph, steps: Sequence[Step], scratch_of: Callable[[Step], int]) -> Memory:
    """Place everything that is not an input, a constant, an output or local to a loop."""
    lives = _lives(steps, {value.storage for value in graph.outputs.values()})
    for index, step in enumerate(steps):
        if isinstance(step, Loop):
            _overwrite_inputs(step, index, lives)
    sizes = {index: scratch_of(step) for index, step in enumerate(steps)}
    scratch = {index: _Life(size, index, index) for index, size in sizes.items() if size}
    starts = _place([*dict.fromkeys(lives.values()), *scratch.values()])
    size = max((start + life.size for life, start in starts.items()), default=0)
    places = {storage: start for life, start in starts.items() for storage in life.storages}
    return Memory(size, places, {index: starts[life] for index, life in scratch.items()})


def _lives(steps: Sequence[Step], outputs: set[Storage]) -> dict[Storage, _Life]:
    lives: dict[Storage, _Life] = {}
    for index, step in enumerate(steps):
        for value in (*step.writes, *step.reads):
            storage = value.storage
            if storage.computed and storage not in outputs:
                life = lives.setdefault(storage, _Life(storage.floats, index, index, [storage]))
                life.last = index
    return lives


def _overwrite_inputs(loop: Loop, index: int, lives: dict[Storage, _Life]) -> None:
    """Let results of a loop take the place of inputs that end there."""
    crooked = {value.storage for value in loop.reads if not loop.follows(value)}
    straight = dict.fromkeys(v.storage for v in loop.reads if v.storage not in crooked)
    ending = [lives[storage] for storage in straight if storage in lives]
    free = [life for life in ending if life.first < index == life.last]
    for value in loop.writes:
        life = lives.get(value.storage)
        if life is None or life.first != index or not loop.follows(value):
            continue
        kind = value.storage.kind
        same = (old for old in free if old.size == life.size and old.storages[0].kind == kind)
        match = next(same, None)
        if match is not None:
            free.remove(match)
            match.last = life.last
            match.storages += life.storages
            lives |= dict.fromkeys(life.storages, match)


def _place(lives: Sequence[_Life]) -> dict[_Life, int]:
    starts: dict[_Life, int] = {}
    for life in sorted(lives, key=lambda life: (-life.size, life.first)):
        place = 0
        for other, start in sorted(starts.items(), key=lambda pair: pair[1]):
            apart = other.last < life.first or life.last < other.first
            if not apart and start < place + life.size and place < start + other.size:
                place = start + other.size
        starts[life] = place
    return starts
