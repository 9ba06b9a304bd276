"""What the methods are tested on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lab.paper import small_task

from onesigma.errors import DataError
from onesigma.lab.datasets import esc, noise, speech, tasks
from onesigma.lab.datasets.noise import Period
from onesigma.lab.paper import conditions


@pytest.fixture(scope="module")
def task():
    return small_task.load("hhar")


def test_clean_input_comes_first_and_is_the_test_split(task):
    clean, *noisy = conditions.make_labelled(task, None)
    assert clean.name == conditions.CLEAN
    assert torch.equal(clean.inputs, task.splits.test.inputs)
    assert [c.name for c in noisy] == [f"noise, strength {s}" for s in ("0.5", "1", "2")]
    assert len({len(c.labels) for c in noisy}) == 1


def test_only_windows_wholly_in_noise_count(task):
    # From 3 to 9 s: of the windows of 2 s, those from 4, 6 (and none cut by an edge).
    found = conditions.wholly_noisy(task, (Period(3.0, 9.0, "jitter"),))
    assert found.nonzero().flatten().tolist() == [2, 3]


def test_every_noisy_window_was_altered_and_keeps_its_label(task):
    strongest = conditions.make_labelled(task, None)[-1]
    clean = task.splits.test
    # Jitter, scaling and so on leave no window as it was, so no row is found among the clean.
    same = (strongest.inputs[:, None] == clean.inputs[None]).flatten(2).all(-1)
    assert not same.any()
    assert set(strongest.labels.tolist()) <= {0, 1, 2}


def test_stronger_noise_is_the_same_noise(task, monkeypatch):
    """With the strength at 0 the rows are clean windows, in their order, labels included."""
    monkeypatch.setattr(conditions, "STRENGTHS", (0.0,))
    monkeypatch.setattr(conditions, "SCHEDULES", 1)
    noisy = conditions.make_labelled(task, None)[1]
    periods = noise.plan_motion(task.recordings["test"], np.random.default_rng([0, 0, 0]))
    rows = conditions.wholly_noisy(task, periods)
    torch.testing.assert_close(noisy.inputs, task.splits.test.inputs[rows], atol=1e-4, rtol=0)
    assert torch.equal(noisy.labels, task.splits.test.labels[rows])


def test_recordings_too_short_for_noise_are_an_error(task):
    test = [replace(r, signal=r.signal[:40], labels=r.labels[:40]) for r in task.recordings["test"]]
    short = replace(task, recordings=task.recordings | {"test": test})
    with pytest.raises(DataError, match="no test window lies wholly in noise"):
        conditions.make_labelled(short, None, seed=2)


def test_a_limit_draws_rows_in_order(task):
    assert conditions.some_rows(5, None, 0).tolist() == [0, 1, 2, 3, 4]
    rows = conditions.some_rows(100, 10, 0).tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == 10
    assert {len(c.labels) for c in conditions.make_labelled(task, None, limit=20)} == {20}


def test_random_data_has_the_shape_of_an_input(task):
    found = conditions.make_foreign(task, limit=30)
    assert list(found) == [conditions.NOISE, conditions.DRIFT]
    assert {tuple(x.shape) for x in found.values()} == {(30, 1, 3, 20)}
    walk = found[conditions.DRIFT]
    torch.testing.assert_close(walk.std(-1), torch.ones(30, 1, 3))


def test_speech_is_mixed_with_noise_at_the_stated_ratio(monkeypatch):
    rng = np.random.default_rng(0)
    audio = rng.integers(-9000, 9000, (40, 16000)).astype(np.int16)
    clips = speech.Clips(
        audio,
        np.arange(40) % 10,
        np.array([f"speaker {i}" for i in range(40)]),
        np.arange(40) >= 20,
        audio[:3],
    )
    made = speech.splits(clips, 0.3)
    task = tasks.SpeechTask(made, clips, {"unknown words": made.unknown})
    sounds = {"rain": rng.integers(-500, 500, (2, 32000)).astype(np.int16)}
    monkeypatch.setattr(esc, "load", lambda root: sounds)
    clean, *noisy = conditions.make_labelled(task, None)
    distance = [float((c.inputs - clean.inputs).square().mean()) for c in noisy]
    assert [c.name for c in noisy] == ["noise, 20 dB", "noise, 10 dB", "noise, 0 dB"]
    assert distance == sorted(distance)
    assert distance[0] > 0
    assert torch.equal(noisy[0].labels, clean.labels)
    assert next(iter(conditions.make_foreign(task))) == "unknown words"


def test_without_ambient_noise_the_error_says_what_to_fetch(tmp_path, monkeypatch):
    monkeypatch.setenv("ONESIGMA_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"ambient noise, and there is none.*ESC-50"):
        conditions.ambient_noise(tmp_path)
