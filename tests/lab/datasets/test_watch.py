import hashlib
import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch

from onesigma.errors import DataError
from onesigma.lab.datasets import watch

needs_recordings = pytest.mark.skipif(
    importlib.util.find_spec("seglearn") is None, reason="seglearn is not installed"
)


@pytest.fixture(scope="module")
def data():
    return watch.load()


@needs_recordings
def test_the_file_is_the_published_one():
    assert hashlib.sha256(watch.locate().read_bytes()).hexdigest() == watch.SHA256


@needs_recordings
def test_every_person_is_in_one_split_only(data):
    splits = [
        (data.train, watch.TRAIN_SUBJECTS),
        (data.validation, watch.VALIDATION_SUBJECTS),
        (data.test, watch.TEST_SUBJECTS),
    ]
    seen = [set(split.subjects.tolist()) for split, _ in splits]
    assert seen == [set(subjects) for _, subjects in splits]
    assert sorted(person for people in seen for person in people) == list(range(1, 11))


@needs_recordings
def test_shapes_types_and_classes(data):
    for split in (data.train, data.validation, data.test):
        assert split.inputs.shape == (len(split), *watch.INPUT_SHAPE)
        assert split.labels.shape == split.subjects.shape == (len(split),)
        assert split.inputs.dtype == torch.float32
        assert split.labels.dtype == split.subjects.dtype == torch.int64
        assert split.inputs.isfinite().all()
        assert set(split.labels.tolist()) == set(range(len(data.class_names)))


@needs_recordings
def test_training_windows_alone_set_the_standard(data):
    inputs = data.train.inputs.double()
    assert inputs.mean(dim=(0, 3)) == pytest.approx(np.zeros((2, 3)), abs=1e-5)
    assert inputs.std(dim=(0, 3), correction=0) == pytest.approx(np.ones((2, 3)), abs=1e-5)
    # Strangers move differently: were they standardised by themselves, these would be 0 as well.
    assert data.test.inputs.mean(dim=(0, 3)).abs().max() > 0.01


@needs_recordings
def test_a_window_is_the_recording_it_was_cut_from(data):
    first = next(r for r in watch.recordings() if int(r.user) in watch.TEST_SUBJECTS)
    raw = data.test.inputs[1] * data.input_std + data.input_mean
    series = first.signal[125:375]
    assert data.test.labels[1] == first.labels[0]
    # Gyroscope, second axis, is column 4 of the file.
    assert raw[1, 1].numpy() == pytest.approx(series[:, 4], abs=1e-5)
    assert raw.reshape(6, -1).T.numpy() == pytest.approx(series, abs=1e-5)


@needs_recordings
def test_loading_does_not_run_the_package():
    code = (
        "import sys; from onesigma.lab.datasets import watch; watch.recordings(); "
        "sys.exit('seglearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_recordings
def test_one_altered_byte_is_refused(tmp_path):
    content = bytearray(watch.locate().read_bytes())
    content[-1] ^= 1
    path = tmp_path / "watch_dataset.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match="not the published file"):
        watch.read_verified(path)


def test_a_foreign_file_is_refused_before_it_is_unpickled(tmp_path, monkeypatch):
    path = tmp_path / "watch_dataset.npy"
    np.save(path, np.array({"X": []}, dtype=object), allow_pickle=True)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("unpickled an unverified file"))
    with pytest.raises(DataError, match="sha256"):
        watch.read_verified(path)


def test_an_absent_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install .\.\[demo\]"):
        watch.load()


def test_a_package_without_the_file_says_so(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_loader("seglearn", loader=None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(DataError, match="lacks"):
        watch.load()
