"""The last events of a stream, for any number of readers."""

from __future__ import annotations

from collections import deque
from itertools import islice
from threading import Condition


class Ring:
    """Numbered events, the oldest of which give way; every reader keeps its own place.

    There is no queue per reader, so memory is bounded however many read and however slowly: who
    falls behind by more than ``size`` events misses some, who comes late starts with the oldest.
    """

    def __init__(self, size: int) -> None:
        self._events: deque[bytes] = deque(maxlen=size)
        self._count = 0
        self._changed = Condition()

    def append(self, event: bytes) -> None:
        with self._changed:
            self._events.append(event)
            self._count += 1
            self._changed.notify_all()

    def after(self, place: int, timeout: float) -> tuple[int, list[bytes]]:
        """What came after the first ``place`` events, as far as it is still here; waits for it.

        Returns the place to ask from next, and no events if none came within ``timeout`` seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._count > place, timeout)
            oldest = self._count - len(self._events)
            return self._count, list(islice(self._events, max(0, place - oldest), None))
