"""The stream of ``onesigma live --demo``: it is right on exercises, and does not act on faults."""

from itertools import pairwise

import numpy as np
import pytest

from onesigma.lab.datasets import watch
from onesigma.lab.demo import figures, playback
from onesigma.tables.stream import windows

FAULTS = (figures.DRIFT, figures.DEAD, figures.OTHER_UNITS)


@pytest.fixture(scope="module")
def stream():
    model, feed = playback.demo()
    notes = [*feed.notes, (None, "")]
    answers = []
    for end, window in windows(feed.instants, model.length, hop=125):
        begin = end - model.length
        within = [
            name
            for (start, name), (stop, _) in pairwise(notes)
            if start <= begin and (stop is None or end <= stop)
        ]
        if within:  # the window shows one thing only
            answers.append((within[0], model(window)))
    return model, feed, answers


def test_every_exercise_is_played_and_named(stream):
    model, feed, _ = stream
    assert model.class_names == watch.CLASS_NAMES
    assert [name for _, name in feed.notes if name not in FAULTS] == list(watch.CLASS_NAMES)
    assert playback.PERSON in watch.TEST_SUBJECTS
    assert feed.recorded
    assert len(feed.names) == model.channels


def test_it_acts_on_exercises_and_not_on_faults(stream):
    model, _, answers = stream
    odd = {name: [a.oddness[0] for n, a in answers if n == name] for name in FAULTS}
    for name, reasons in odd.items():
        assert np.mean([reason != "" for reason in reasons]) > 0.8, name
    said = [model.explain(answer, ()) for name, answer in answers if name == figures.DEAD]
    assert any(words.startswith("channel acc z") for words in said)
    known = [(name, answer) for name, answer in answers if name not in FAULTS]
    acts = [bool(answer.act[0]) for _, answer in known]
    assert np.mean(acts) > 0.5
    right = [model.class_names[answer.label[0]] == name for name, answer in known]
    assert np.mean(right) > 0.8
