"""From instants to events, and how the last events are kept for readers."""

import json
import math
from threading import Thread

import numpy as np
import pytest
from pages.live.stand_in import feed, guarded_model, instants, loud_model, predict, stand_in

from onesigma.errors import DataError
from onesigma.pages.live.feed import Feed
from onesigma.pages.live.model import live_model
from onesigma.pages.live.player import Player, Ring
from onesigma.tables.stream import Lines

LEVELS = [-5] * 4 + [0] * 4 + [5] * 4


def events(player):
    """What a viewer sees who comes at the end: name and content."""
    _, found = player.ring.after(0, timeout=0)
    for event in found:
        name, data, *rest = event.decode().split("\n")
        assert rest == ["", ""]  # an event ends with an empty line
        yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def played(source, model=None, **settings):
    player = Player(model or loud_model(), source, **{"rate": 50, "hop": 4} | settings)
    player.watched.set()
    player.run()
    return list(events(player))


def frames(found):
    return [content for name, content in found if name == "frame"]


def test_a_stream_from_end_to_end():
    found = played(feed(LEVELS))
    assert found[0][0] == "hello"
    assert found[-1] == ("end", {"reason": ""})
    answers = [answer for frame in frames(found) for answer in frame["answers"]]
    assert [answer["t"] for answer in answers] == [0.08, 0.16, 0.24]
    assert [answer["top"][0][0] for answer in answers][::2] == [0, 1]
    expected = predict(np.zeros((1, 2, 4), np.float32))
    assert answers[1]["entropy"] == pytest.approx(expected.entropy[0], rel=1e-3)
    assert answers[1]["epistemic"] == pytest.approx(expected.epistemic[0], rel=1e-3)


def test_the_signal_arrives_whole_and_in_order():
    found = frames(played(feed(range(11))))
    points = {}
    for frame in found:
        points |= {frame["from"] + i: values for i, values in enumerate(frame["signal"])}
    assert points == {i: [i, 10 * i] for i in range(11)}


def test_a_fast_signal_is_sent_as_lows_and_highs():
    levels = np.random.default_rng(0).normal(size=1000).round(3)
    found = frames(played(feed(levels), rate=10_000))
    points = [values for frame in found for values in frame["signal"]]
    assert len(points) == 10  # 100 per second
    lows, highs = levels.reshape(10, 100).min(1), levels.reshape(10, 100).max(1)
    np.testing.assert_allclose([p[0] for p in points], lows, rtol=1e-3)
    np.testing.assert_allclose([p[2] for p in points], highs, rtol=1e-3)


def test_what_a_page_is_told_first():
    rule = {"score": "confidence", "threshold": "inf"}
    source = feed(LEVELS, recorded=True, names=("x", "y"), notes=[(0, "loud"), (100, "what?")])
    player = Player(loud_model(rule=rule), source, rate=50, hop=2)
    hello = json.loads(player.hello().decode().split("data: ")[1])
    assert hello["class_names"] == ["quiet", "loud"]
    assert hello["names"] == ["x", "y"]
    assert (hello["window"], hello["hop"], hello["point"]) == (0.08, 0.04, 0.02)
    assert hello["most"] == pytest.approx(math.log(2))
    assert (hello["score"], hello["threshold"], hello["own_rule"]) == ("confidence", 1, True)
    assert hello["notes"] == [[0, "loud"], [2, "what?"]]


def test_malformed_lines_are_counted_and_the_header_is_told():
    lines = Lines(2)
    text = ["x,y", "1,10", "oops", "2,20", "3,30", "nan,1", "4,40"]
    found = played(Feed("text", lines.instants(text), lines=lines))
    assert found[0][1]["names"] == ["x", "y"]
    assert frames(found)[-1]["bad"] == 2
    assert sum(len(frame["answers"]) for frame in frames(found)) == 1


def test_what_is_no_number_is_null():
    def lost(x):
        answer = predict(x)
        return type(answer)(answer.mean, answer.var, answer.probs, answer.entropy * np.nan)

    model = live_model(stand_in(lost))
    (answer,) = (a for frame in frames(played(feed([1] * 4), model)) for a in frame["answers"])
    assert answer["entropy"] is None
    assert answer["epistemic"] is None


ODD = [5] * 4 + [9] * 4 + [30] * 4


def answers(found):
    return [answer for frame in frames(found) for answer in frame["answers"]]


def test_what_the_guard_says_is_told():
    found = played(feed(ODD, names=("ax", "ay")), guarded_model())
    assert found[0][1]["guarded"] is True
    assert [a["novelty"] for a in answers(found)] == [0.5, 0.001, 0.001]
    assert [a["reason"] for a in answers(found)] == ["", "unfamiliar", "broken input"]
    fine, novel, broken = (a["odd"] for a in answers(found))
    assert fine == ""
    assert novel.startswith("channel ax: mean 9, known -10")
    assert broken == "channel ax: mean 30, known -10 … 10: other units?"
    # Without names on either side, the sentence has those of the page.
    found = played(feed(ODD), guarded_model())
    assert found[0][1]["names"][0] == "channel 1"
    assert answers(found)[2]["odd"].startswith("channel 1: ")


def test_drift_is_told_and_instants_are_tested_once():
    found = frames(played(feed([1] * 40 + [9] * 400), guarded_model()))
    assert found[0]["drift"] == "no drift found in 0 inputs"
    assert found[-1]["drift"].startswith("drift: ")
    assert found[-1]["drift"].endswith("by novelty")
    assert found[-1]["drifting"] is True
    player = Player(guarded_model(), feed([1] * 8), rate=50, hop=3)
    assert player._monitor.every == 2


def test_without_a_guard_there_is_nothing_to_tell():
    found = played(feed(LEVELS))
    assert found[0][1]["guarded"] is False
    assert {(a["novelty"], a["reason"], a["odd"]) for a in answers(found)} == {(None, "", "")}
    assert "drift" not in frames(found)[-1]


def test_many_channels_and_classes_are_cut_to_what_is_shown():
    def many(x):
        probs = np.arange(1.0, 41)[None] / 820
        return predict(x[:, :2]).__class__(probs, probs, probs, probs[:, 0], None, probs[:, 0])

    model = live_model(stand_in(many, (None, 30, 4)))
    wide = (np.full(30, level, np.float32) for level in range(4))
    found = played(Feed("wide", wide), model)
    assert len(found[0][1]["names"]) == len(frames(found)[0]["signal"][0]) == 12
    (answer,) = (a for frame in frames(found) for a in frame["answers"])
    assert [label for label, _ in answer["top"]] == list(range(39, 31, -1))


def test_what_breaks_a_stream_is_told():
    def unplugged():
        yield from instants([1, 2])
        raise OSError("the device is gone")

    found = played(Feed("device", unplugged()))
    assert found[-1] == ("end", {"reason": "the device is gone"})
    assert sum(len(frame["signal"]) for frame in frames(found)) == 2

    def damaged():
        raise DataError("row 7 is no number")
        yield

    assert played(Feed("file", damaged()))[-1] == ("end", {"reason": "row 7 is no number"})


def test_a_bug_is_told_and_not_hidden():
    def broken(x):
        if x.any():
            raise ZeroDivisionError("oops")
        return predict(x)

    model = live_model(stand_in(broken))
    player = Player(model, feed([1] * 4), rate=50, hop=4)
    with pytest.raises(ZeroDivisionError):
        player.run()
    assert list(events(player))[-1] == ("end", {"reason": "ZeroDivisionError: oops"})


def test_a_recording_keeps_time_and_can_be_stopped(monkeypatch):
    now, waits = [100.0], []
    player = Player(loud_model(), feed([1.0] * 100, recorded=True), rate=50, hop=4, speed=2)

    def wait(seconds):
        waits.append(seconds)
        now[0] += seconds
        return len(waits) == 50

    monkeypatch.setattr("onesigma.pages.live.player.time.monotonic", lambda: now[0])
    monkeypatch.setattr(player.stop, "wait", wait)
    player.watched.set()
    player.run()
    assert now[0] == pytest.approx(100.5)  # 50 instants at 50 per second, twice as fast
    assert list(events(player))[-1][0] == "end"


def test_a_recording_as_fast_as_can_be():
    found = played(feed([1.0] * 500, recorded=True), speed=math.inf)
    assert sum(len(frame["signal"]) for frame in frames(found)) == 500
    assert found[-1] == ("end", {"reason": ""})


def test_memory_is_bounded():
    player = Player(loud_model(), feed([1.0] * 8_000), rate=50, hop=4)
    player.run()
    _, found = player.ring.after(0, timeout=0)
    assert len(found) == 2400  # while the stream had more frames than that
    assert sum(map(len, found)) < 1 << 20


def test_a_late_reader_gets_what_is_still_there():
    ring = Ring(3)
    for number in range(5):
        ring.append(b"%d" % number)
    assert ring.after(0, timeout=0) == (5, [b"2", b"3", b"4"])
    assert ring.after(4, timeout=0) == (5, [b"4"])
    assert ring.after(5, timeout=0) == (5, [])


def test_a_slow_reader_does_not_make_it_grow():
    ring = Ring(10)
    place, _ = ring.after(0, timeout=0)
    for _ in range(1000):
        ring.append(bytes(100))
    place, events = ring.after(place, timeout=0)
    assert place == 1000
    assert len(events) == 10


def test_readers_keep_their_own_places():
    ring = Ring(10)
    ring.append(b"a")
    first, _ = ring.after(0, timeout=0)
    ring.append(b"b")
    assert ring.after(first, timeout=0) == (2, [b"b"])
    assert ring.after(0, timeout=0) == (2, [b"a", b"b"])


def test_a_reader_waits():
    ring = Ring(10)
    found = []
    reader = Thread(target=lambda: found.append(ring.after(0, timeout=30)))
    reader.start()
    ring.append(b"a")
    reader.join()
    assert found == [(1, [b"a"])]
