"""Where in the arena each storage lies: fixed when the code is written, memory used again.

The largest first, each at the lowest place that is free as long as it lives. A loop writes over an
input that it is the last to read, where both are read and written in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onesigma.exporters.c.fuse import Loop, Step
from onesigma.exporters.c.values import Graph, Storage, Value


@dataclass
class Plan:
    """Offsets in floats; ``scratch`` by the number of the step."""

    size: int = 0
    places: dict[Storage, int] = field(default_factory=dict)
    scratch: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class _Life:
    """Some floats from one step to another, and whose they are."""

    size: int
    first: int
    last: int
    storages: list[Storage] = field(default_factory=list)
    step: int | None = None


def plan(graph: Graph, steps: Sequence[Step], scratch_of: Callable[[Step], int]) -> Plan:
    """Place everything that is neither an input, a constant, an output nor local to a loop."""
    lives = _overwriting(steps, _lives(steps, {v.storage for v in graph.outputs.values()}))
    unique = list({id(life): life for life in lives.values()}.values())
    for index, step in enumerate(steps):
        if size := scratch_of(step):
            unique.append(_Life(size, index, index, step=index))
    return _placed(unique)


def _lives(steps: Sequence[Step], outputs: set[Storage]) -> dict[Storage, _Life]:
    lives: dict[Storage, _Life] = {}
    for index, step in enumerate(steps):
        for value in (*step.writes, *step.reads):
            storage = value.storage
            if storage.computed and storage not in outputs:
                life = lives.setdefault(storage, _Life(storage.size, index, index, [storage]))
                life.last = index
    return lives


def _overwriting(steps: Sequence[Step], lives: dict[Storage, _Life]) -> dict[Storage, _Life]:
    """Let results of loops take the place of inputs that end there."""
    for index, step in enumerate(steps):
        if not isinstance(step, Loop):
            continue
        free = _ending_inputs(step, index, lives)
        for value in step.writes:
            life = lives.get(value.storage)
            if life is None or life.first != index or not _follows(value, step):
                continue
            match = next((old for old in free if old.size == life.size), None)
            if match is not None:
                free.remove(match)
                match.last = life.last
                match.storages += life.storages
                for storage in life.storages:
                    lives[storage] = match
    return lives


def _ending_inputs(step: Loop, index: int, lives: Mapping[Storage, _Life]) -> list[_Life]:
    """Storages that the loop reads only element by element, and nobody after it."""
    crooked = {value.storage for value in step.reads if not _follows(value, step)}
    found = dict.fromkeys(v.storage for v in step.reads if v.storage not in crooked)
    ending = [lives[s] for s in found if s in lives and lives[s].last == index]
    return [life for life in ending if life.first < index]


def _follows(value: Value, step: Loop) -> bool:
    return value.whole and tuple(n for n in value.shape if n > 1) == step.shape


def _placed(lives: Sequence[_Life]) -> Plan:
    result = Plan()
    done: list[tuple[_Life, int]] = []
    for life in sorted(lives, key=lambda life: (-life.size, life.first)):
        place = 0
        for other, start in sorted(done, key=lambda pair: pair[1]):
            apart = other.last < life.first or life.last < other.first
            if not apart and start < place + life.size and place < start + other.size:
                place = start + other.size
        done.append((life, place))
        result.size = max(result.size, place + life.size)
        if life.step is not None:
            result.scratch[life.step] = place
        result.places |= dict.fromkeys(life.storages, place)
    return result
