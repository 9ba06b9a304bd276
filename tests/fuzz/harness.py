"""What the fuzz tests share: how long to look, and how to damage what was good.

In the suite each looks at a fixed set of examples for a few seconds, the same in every run. With
ONESIGMA_FUZZ=N (``make fuzz``) it looks at N times as many, new ones in every run; a failure is
shrunk, printed, and kept in ``.hypothesis`` to be tried first the next time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from onesigma.errors import OnesigmaError

Result = TypeVar("Result")
EFFORT = int(os.environ.get("ONESIGMA_FUZZ", "1"))


def examples(count: int) -> settings:
    """So many examples in the suite, a multiple of it by ``make fuzz``."""
    longer = {} if EFFORT > 1 else {"derandomize": True, "database": None}
    return settings(
        max_examples=count * EFFORT,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **longer,
    )


def answered(
    read: Callable[[], Result], refusal: type[Exception] = OnesigmaError, naming: str = ""
) -> Result | None:
    """What ``read`` returns, or None if it refuses as it should; anything else raised is a bug."""
    try:
        return read()
    except refusal as error:
        message = str(error)
    assert message
    assert naming in message
    return None


# Lengths and counts at the limits of 32 and 64 bits, in both orders of bytes.
_LIMITS = [2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
_BYTES = [
    *(b"\0", b"\xff", b"\n", b"-", b"/../", b"\xc3\x28"),
    *(n.to_bytes(8, order) for n in _LIMITS for order in ("little", "big")),
]


def damage(content: bytes, number: int) -> bytes:
    """One of many damaged variants, the same for the same number; never the content itself."""
    draw, result = Random(number), content
    while result == content:
        result = bytes(_WAYS[number % len(_WAYS)](bytearray(content), draw))
    return result


def _piece(content: bytearray, draw: Random) -> tuple[int, int]:
    """Where a piece begins and ends: mostly a few bytes, at times a quarter of all."""
    longest = draw.choice((1, 4, 16, max(1, len(content) // 4)))
    start = draw.randrange(len(content))
    return start, min(len(content), start + draw.randint(1, longest))


def _flip(content: bytearray, draw: Random) -> bytearray:
    for _ in range(draw.choice((1, 1, 1, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return content


def _cut(content: bytearray, draw: Random) -> bytearray:
    return content[: draw.randrange(len(content))]


def _remove(content: bytearray, draw: Random) -> bytearray:
    start, end = _piece(content, draw)
    return content[:start] + content[end:]


def _repeat(content: bytearray, draw: Random) -> bytearray:
    start, end = _piece(content, draw)
    return content[:end] + content[start:]


def _zero(content: bytearray, draw: Random) -> bytearray:
    start, end = _piece(content, draw)
    return content[:start] + bytes(end - start) + content[end:]


def _swap(content: bytearray, draw: Random) -> bytearray:
    (a, b), (c, d) = sorted((_piece(content, draw), _piece(content, draw)))
    b = min(b, c)
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _insert(content: bytearray, draw: Random) -> bytearray:
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.choice(_BYTES) + content[place:]


def _overwrite(content: bytearray, draw: Random) -> bytearray:
    place, added = draw.randrange(len(content)), draw.choice(_BYTES)
    return content[:place] + added + content[place + len(added) :]


_WAYS = (_flip, _cut, _remove, _repeat, _zero, _swap, _insert, _overwrite)


numbers = st.sampled_from(
    [0, 1, -1, 2, 3, 7, 1000, *_LIMITS, -(2**63), 10**30, 0.5, -0.5, 1e-300, 1e300]
) | st.sampled_from([math.nan, math.inf, -math.inf])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@st.composite
def altered(draw: st.DrawFn, content: Any) -> Any:
    """The JSON with some of its values removed, replaced, or put in each other's place."""
    result = deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(result))
        if not places:
            return draw(json_values)
        where, key = places[draw(st.integers(0, len(places) - 1))]
        kind = draw(st.sampled_from(["remove", "replace", "copy", "nest"]))
        if kind == "remove":
            del where[key]
        elif kind == "replace":
            where[key] = draw(json_values)
        elif kind == "copy":
            other, its_key = places[draw(st.integers(0, len(places) - 1))]
            where[key] = deepcopy(other[its_key])
        else:
            where[key] = nested(where[key], draw(st.sampled_from([1, 300])))
    return result


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key (or index) in it, from the outside in."""
    keys = content if isinstance(content, dict) else range(len(content))
    for key in list(keys):
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])
