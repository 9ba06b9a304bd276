import dataclasses
import importlib.util

import pytest
import torch
from safetensors.torch import save_file

from onesigma.errors import FileError, InputError
from onesigma.lab.checkpoint import SHIPPED, Checkpoint, load, save, train
from onesigma.lab.datasets import watch

needs_recordings = pytest.mark.skipif(
    importlib.util.find_spec("seglearn") is None, reason="seglearn is not installed"
)


@pytest.fixture(scope="module")
def shipped():
    return load()


def test_the_shipped_file_is_small():
    assert SHIPPED.stat().st_size < 1_500_000


def test_the_shipped_network_is_in_eval_mode_and_finite(shipped):
    assert not shipped.network.training
    assert all(value.isfinite().all() for value in shipped.network.state_dict().values())


@needs_recordings
def test_the_shipped_network_scores_what_its_record_says(shipped):
    data = watch.load()
    for name in ("train", "validation", "test"):
        split = getattr(data, name)
        with torch.no_grad():
            right = shipped.network(split.inputs).argmax(1) == split.labels
        # Another processor may round one borderline window the other way.
        assert right.double().mean().item() == pytest.approx(
            shipped.record.accuracy[name], abs=0.005
        )


@needs_recordings
def test_the_shipped_network_expects_the_inputs_we_load(shipped):
    data, record = watch.load(), shipped.record
    assert record.data_sha256 == watch.SHA256
    assert record.train_subjects == watch.TRAIN_SUBJECTS
    assert record.validation_subjects == watch.VALIDATION_SUBJECTS
    assert record.test_subjects == watch.TEST_SUBJECTS
    assert torch.tensor(record.input_mean) == pytest.approx(data.input_mean.squeeze(-1), abs=1e-6)
    assert torch.tensor(record.input_std) == pytest.approx(data.input_std.squeeze(-1), abs=1e-6)


def test_what_is_saved_is_what_is_loaded(shipped, tmp_path):
    record = dataclasses.replace(shipped.record, seed=12)
    save(Checkpoint(shipped.network, record), tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    assert loaded.record == record
    before, after = shipped.network.state_dict(), loaded.network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut", "foreign"])
def test_a_bad_file_says_what_to_do(damage, tmp_path):
    path = tmp_path / "a.safetensors"
    if damage == "garbage":
        path.write_bytes(b"not a checkpoint")
    elif damage == "cut":
        path.write_bytes(SHIPPED.read_bytes()[:-100])
    elif damage == "foreign":
        save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(FileError, match="onesigma demo --train"):
        load(path)


@needs_recordings
def test_training_repeats_itself_and_leaves_the_random_state(tmp_path, capsys, monkeypatch):
    data = watch.load()
    few = {part: getattr(data, part)[torch.arange(0, 190, 3)] for part in ("validation", "test")}
    some = dataclasses.replace(data, train=data.train[torch.arange(0, len(data.train), 3)], **few)
    monkeypatch.setattr(watch, "load", lambda: some)
    path = tmp_path / "a.safetensors"
    state = torch.get_rng_state()
    first = train(seed=3, epochs=1, progress=False, path=path)
    second = train(seed=3, epochs=1, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.record.accuracy.keys() == {"train", "validation", "test"}
    assert first.record.best_epoch == 1
    weights = [c.network.state_dict() for c in (first, second, load(path))]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        assert torch.equal(value, weights[2][name])
    assert capsys.readouterr().err == ""


@needs_recordings
def test_no_epochs_are_refused():
    with pytest.raises(InputError, match="epochs"):
        train(epochs=0, progress=False)
