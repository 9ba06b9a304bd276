"""The stream of ``onesigma live --demo``: uncertainty rises where the sensor drifts."""

from itertools import pairwise

import numpy as np
import pytest

from onesigma.lab.datasets import watch
from onesigma.lab.demo import playback
from onesigma.tables.stream import windows


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
    assert [name for _, name in feed.notes if name != playback.DRIFT] == list(watch.CLASS_NAMES)
    assert playback.PERSON in watch.TEST_SUBJECTS
    assert feed.recorded
    assert len(feed.names) == model.channels


def test_uncertainty_rises_where_the_sensor_drifts(stream):
    model, _, answers = stream
    drift = [answer for name, answer in answers if name == playback.DRIFT]
    known = [(name, answer) for name, answer in answers if name != playback.DRIFT]
    for score in ("entropy", "epistemic"):
        during = np.mean([getattr(answer, score) for answer in drift])
        assert during > 2 * np.mean([getattr(answer, score) for _, answer in known])
    acts = [answer.entropy[0] < model.threshold for _, answer in known]
    assert np.mean(acts) > 0.6
    right = [model.class_names[answer.label[0]] == name for name, answer in known]
    assert np.mean(right) > 0.8
