"""Plays a feed through a model, and tells the viewers by server-sent events."""

import json
import math
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from threading import Condition, Event
from typing import Any

import numpy as np

from onesigma.answer import NOVEL
from onesigma.decide.monitor import Monitor
from onesigma.errors import OnesigmaError
from onesigma.pages.live.feed import Feed
from onesigma.pages.live.model import CHANNEL, LiveModel, Window
from onesigma.tables.stream import Instant, windows

_FRAMES_PER_SECOND = 20
_POINTS_PER_SECOND = 100  # of the drawn signal; a faster one is drawn by its lows and highs
_SHOWN_CHANNELS = 12
_SHOWN_CLASSES = 8
_KEPT_FRAMES = 2400
_FASTEST = 100  # the speed that sets the size of a frame at most: the real one may be infinite


class Ring:
    """The last ``size`` events of a stream; every reader keeps its own place.

    There is no queue per reader, so memory is bounded however many read and however slowly. A
    reader who falls behind misses some events; one who comes late starts with the oldest.
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

    def after(
        self, place: int, timeout: float, most: int = _KEPT_FRAMES
    ) -> tuple[int, list[bytes]]:
        """Wait for events after the first ``place``; returns the next place and those still here.

        ``most`` is how many at the most. None if none came within ``timeout`` seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._count > place, timeout)
            oldest = self._count - len(self._events)
            first = max(0, place - oldest)
            events = list(islice(self._events, first, first + most))
            return oldest + first + len(events), events


class Player:
    """The thread between a feed and its viewers."""

    def __init__(
        self, model: LiveModel, feed: Feed, *, rate: float, hop: int, speed: float = 1
    ) -> None:
        self.ring = Ring(_KEPT_FRAMES)  # the last events: hello, frame …, end
        self.watched = Event()  # set by the first viewer; a recording waits for it
        self.stop = Event()  # set to end a recording early
        self._model, self._feed = model, feed
        self._rate, self._hop = rate, hop
        self._speed = speed if feed.recorded else 1.0
        self._per_point = max(1, round(rate / _POINTS_PER_SECOND))
        pace = rate * min(self._speed, _FASTEST)
        self._per_frame = max(1, round(pace / _FRAMES_PER_SECOND))
        self._signal: list[list[float | None]] = []
        self._answers: list[dict[str, Any]] = []
        self._points = 0
        # Windows that overlap hold the same instants: each of these is tested once.
        every, known = math.ceil(model.length / hop), model.reference
        self._monitor = None if known is None else Monitor(known, every=every)

    def _names(self) -> list[str]:
        """The names of all channels: as the stream says, else as the model does."""
        feed = self._feed
        known = (feed.lines.names if feed.lines else feed.names) or self._model.names
        return list(known or [f"{CHANNEL}{i + 1}" for i in range(self._model.channels)])

    def hello(self) -> bytes:
        """What a page has to know before the first frame."""
        model, feed = self._model, self._feed
        seconds = model.length / self._rate
        kept = _KEPT_FRAMES * self._per_frame / self._rate
        shown = min(model.channels, _SHOWN_CHANNELS)
        content = {
            "model": model.name,
            "source": feed.title,
            "recorded": feed.recorded,
            "class_names": model.class_names,
            "channels": model.channels,
            "names": self._names()[:shown],
            "guarded": model.contract is not None,
            "novel": NOVEL,
            "window": seconds,
            "hop": self._hop / self._rate,
            "point": self._per_point / self._rate,
            # A viewer who comes late is to see all of it; answers have frames of their own.
            "span": min(max(6 * seconds, 10), kept / 2),
            "most": math.log(len(model.class_names)),
            "score": model.score,
            # A rule that always acts, or never, has an infinite threshold: an end of the slider.
            "threshold": min(max(model.threshold, 0.0), model.most),
            "own_rule": model.own_rule,
            "notes": [[at / self._rate, text] for at, text in feed.notes],
        }
        return _event("hello", content)

    def tick(self) -> bytes:
        """For a while in which nothing came, or nothing that could be read."""
        return _event("tick", {"bad": self._bad()})

    def run(self) -> None:
        """Play to the end; the viewers are told whatever ends it."""
        reason = ""
        try:
            if self._feed.recorded:
                self.watched.wait()
            for end, window in windows(self._play(), self._model.length, self._hop):
                self._answer(end, window)
        except (OnesigmaError, OSError) as error:  # a device was unplugged, a file is damaged
            reason = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._flush()
            self.ring.append(_event("end", {"reason": reason}))

    def _play(self) -> Iterator[Instant]:
        """The instants, in time if recorded; on their way they are put into frames."""
        begin, point = time.monotonic(), []
        for count, instant in enumerate(self._feed.instants, start=1):
            if count == 1:
                self.ring.append(self.hello())  # again: now the names of a header are known
            point.append(instant[:_SHOWN_CHANNELS])
            if len(point) == self._per_point:
                self._signal.append(_low_and_high(point))
                point = []
            yield instant
            if count % self._per_frame == 0:
                self._flush()
            if self._feed.recorded:
                due = begin + count / (self._rate * self._speed)
                if self.stop.wait(max(0.0, due - time.monotonic())):
                    return

    def _answer(self, end: int, window: Window) -> None:
        begin = time.perf_counter()
        answer = self._model(window)
        took = time.perf_counter() - begin
        assert answer.probs is not None
        probs = answer.probs[0]
        best = np.argsort(-probs, kind="stable")[:_SHOWN_CLASSES]
        self._answers.append(
            {
                "t": end / self._rate,
                "top": [[int(label), _number(probs[label])] for label in best],
                "entropy": _number(answer.entropy),
                "epistemic": _number(answer.epistemic),
                "novelty": _number(answer.novelty),
                "reason": answer.oddness[0],
                "odd": self._model.explain(answer, self._names()),
                "ms": _number(1e3 * took),
            }
        )
        if self._monitor is not None:
            self._monitor.update(answer)
        self._flush()

    def _flush(self) -> None:
        if self._signal or self._answers:
            content = {"from": self._points, "signal": self._signal, "answers": self._answers}
            self.ring.append(_event("frame", content | {"bad": self._bad()} | self._drift()))
            self._points += len(self._signal)
            self._signal, self._answers = [], []

    def _drift(self) -> dict[str, Any]:
        if self._monitor is None:
            return {}
        return {"drift": self._monitor.verdict, "drifting": self._monitor.drifting}

    def _bad(self) -> int:
        return self._feed.lines.bad if self._feed.lines else 0


def _event(name: str, content: Any) -> bytes:
    """An event as the browser's EventSource reads it."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return f"event: {name}\ndata: {text}\n\n".encode()


def _low_and_high(point: list[Instant]) -> list[float | None]:
    """Per channel the lowest value of the instants, then the highest if there are several."""
    values = np.stack(point)
    rows = values if len(values) == 1 else np.concatenate([values.min(0), values.max(0)])
    return [_number(value) for value in rows.ravel()]


def _number(value: Any) -> float | None:
    """Four digits, which is more than a screen shows; None for what JSON does not know."""
    if value is None:
        return None
    number = float(np.asarray(value).reshape(()))
    return float(f"{number:.4g}") if math.isfinite(number) else None
