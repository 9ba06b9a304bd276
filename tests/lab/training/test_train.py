"""One training loop: what it keeps, and what it survives."""

import dataclasses
import json
import struct

import pytest
import torch
from lab.training.trainings import EXAMPLES, SETTINGS, VALIDATION, build, split
from safetensors import SafetensorError
from torch import nn
from torch.nn import functional as F

from onesigma.errors import FileError, InputError, ModelError
from onesigma.lab.training.train import Trained, TrainingSettings, train, unfinished_path
from onesigma.storage import tensor_file


class Killed(BaseException):
    """As abrupt as a signal: no handler of ordinary exceptions sees it."""


def fit(path=None, **changes) -> Trained:
    settings = {"seed": 3, "path": path, **changes}
    return train(build, EXAMPLES, VALIDATION, SETTINGS, **settings)


def same(first: Trained, second: Trained) -> bool:
    weights, others = first.network.state_dict(), second.network.state_dict()
    return all(torch.equal(weights[name], others[name]) for name in weights)


def jitter(inputs: torch.Tensor) -> torch.Tensor:
    return inputs + 0.1 * torch.randn_like(inputs)


def after(epochs: int):
    def on_epoch(losses):
        if len(losses) == epochs:
            raise Killed

    return on_epoch


@pytest.fixture(scope="module")
def uninterrupted() -> Trained:
    return fit()


def test_it_learns(uninterrupted):
    record = uninterrupted.record
    assert not uninterrupted.network.training
    assert record.validation_accuracy > 0.7
    assert len(record.losses) == SETTINGS.epochs
    assert record.validation_loss == min(record.losses)


def test_the_best_epoch_is_kept(uninterrupted):
    with torch.no_grad():
        loss = F.cross_entropy(uninterrupted.network(VALIDATION.inputs), VALIDATION.labels)
    assert float(loss) == pytest.approx(uninterrupted.record.validation_loss, rel=1e-6)
    # Trained for no longer than its best epoch, it is the same network.
    short = dataclasses.replace(SETTINGS, epochs=uninterrupted.record.best_epoch)
    assert same(uninterrupted, train(build, EXAMPLES, VALIDATION, short, seed=3))


def test_it_stops_when_nothing_improves():
    # Validation labels that nothing in training can predict.
    hopeless = dataclasses.replace(VALIDATION, labels=(VALIDATION.labels + 1) % 3)
    settings = dataclasses.replace(SETTINGS, epochs=50, patience=2)
    record = train(build, EXAMPLES, hopeless, settings).record
    assert len(record.losses) == record.best_epoch + 2 < 50


def test_the_seed_decides_and_the_random_state_is_left_alone(uninterrupted):
    before = torch.get_rng_state()
    assert same(fit(), uninterrupted)
    assert not same(fit(seed=4), uninterrupted)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("epochs", [1, 3, SETTINGS.epochs])
def test_killed_between_epochs_it_goes_on_to_the_same_weights(epochs, uninterrupted, tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(Killed):
        fit(path, on_epoch=after(epochs))
    assert list(tmp_path.iterdir()) == [unfinished_path(path)]
    torch.manual_seed(99)  # another process has another random state
    seen = []
    resumed = fit(path, on_epoch=lambda losses: seen.append(len(losses)))
    assert seen == list(range(epochs + 1, SETTINGS.epochs + 1))
    assert same(resumed, uninterrupted)
    assert resumed.record.losses == uninterrupted.record.losses
    assert list(tmp_path.iterdir()) == [path]


def test_killed_in_an_epoch_it_goes_on_to_the_same_weights(uninterrupted, tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    step, calls = torch.optim.Adam.step, []

    def mortal(self):
        calls.append(1)
        if len(calls) == 13:  # of 5 steps an epoch: in the third
            raise Killed
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", mortal)
        with pytest.raises(Killed):
            fit(path)
    assert same(fit(path), uninterrupted)


def test_killed_while_writing_the_checkpoint_before_counts(uninterrupted, tmp_path, monkeypatch):
    path, writes = tmp_path / "a.safetensors", []

    def full(*_args, **_kwargs):
        raise OSError("disk full")

    with pytest.raises(FileError, match="disk full"):
        fit(
            path,
            on_epoch=lambda _: monkeypatch.setattr("onesigma.storage.tensor_file.save_file", full),
        )
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [unfinished_path(path)]
    # What a killed writer could not clean up is removed by the next.
    (tmp_path / ".a.unfinished.onesigma-12345678.safetensors").write_bytes(b"half")
    (tmp_path / ".a.onesigma-12345678.safetensors").write_bytes(b"half")
    resumed = fit(path, on_epoch=lambda losses: writes.append(len(losses)))
    assert writes[0] == 2
    assert same(resumed, uninterrupted)
    assert list(tmp_path.iterdir()) == [path]


def test_a_finished_training_is_read_not_repeated(uninterrupted, tmp_path):
    path = tmp_path / "a.safetensors"
    fit(path)
    unfinished_path(path).write_bytes(b"left over: killed before it could be deleted")
    again = fit(path, on_epoch=lambda _: pytest.fail("trained again"))
    assert same(again, uninterrupted)
    assert not again.network.training
    assert dataclasses.replace(again.record, seconds=0) == dataclasses.replace(
        uninterrupted.record, seconds=0
    )
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(params=["finished", "unfinished"])
def written(request, tmp_path):
    """A path, and the file there is of its training."""
    path = tmp_path / "a.safetensors"
    if request.param == "finished":
        fit(path)
        return path, path
    with pytest.raises(Killed):
        fit(path, on_epoch=after(2))
    return path, unfinished_path(path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "empty"])
def test_a_damaged_file_is_named_and_kept(written, damage):
    path, file = written
    content = bytearray(file.read_bytes())
    header = struct.unpack("<Q", content[:8])[0]
    if damage == "flipped":
        content[8 + header + 40] ^= 4  # in the tensors
    file.write_bytes(
        {"cut": content[:-9], "flipped": content, "text": b"hello", "empty": b""}[damage]
    )
    before = file.read_bytes()
    with pytest.raises(FileError, match=rf"Delete .*{file.name} to train anew"):
        fit(path)
    assert file.read_bytes() == before


@pytest.mark.parametrize("other", ["seed", "settings", "data", "network"])
def test_a_file_of_another_training_is_refused(written, other):
    path, _ = written
    network = (lambda: build(width=7)) if other == "network" else build
    examples = split(72, 5) if other == "data" else EXAMPLES
    changed = dataclasses.replace(SETTINGS, batch=8) if other == "settings" else SETTINGS
    with pytest.raises(FileError, match="another training"):
        train(network, examples, VALIDATION, changed, seed=4 if other == "seed" else 3, path=path)


def test_buffers_are_part_of_it(tmp_path):
    def normed() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(2), build())

    path = tmp_path / "a.safetensors"
    whole = train(normed, EXAMPLES, VALIDATION, SETTINGS)
    with pytest.raises(Killed):
        train(normed, EXAMPLES, VALIDATION, SETTINGS, path=path, on_epoch=after(2))
    assert same(train(normed, EXAMPLES, VALIDATION, SETTINGS, path=path), whole)


def test_one_cycle_and_augmentation_survive_being_killed_too(tmp_path):
    settings = dataclasses.replace(SETTINGS, one_cycle=True, weight_decay=1e-3)
    options = {"seed": 3, "augment": jitter}
    whole = train(build, EXAMPLES, VALIDATION, settings, **options)
    path = tmp_path / "a.safetensors"
    with pytest.raises(Killed):
        train(build, EXAMPLES, VALIDATION, settings, path=path, on_epoch=after(2), **options)
    assert same(train(build, EXAMPLES, VALIDATION, settings, path=path, **options), whole)
    with pytest.raises(FileError, match="another training"):
        train(build, EXAMPLES, VALIDATION, settings, seed=3, path=path)


def test_the_files_hold_tensors_and_json_only(tmp_path):
    path = tmp_path / "a.safetensors"
    fit(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    record = json.loads(header["__metadata__"]["content"])["record"]
    assert record["seed"] == 3
    assert record["settings"]["batch"] == 16


def test_a_full_disk_is_named_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    def fill(tensors, path, metadata):
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device")  # as safetensors puts it

    monkeypatch.setattr(tensor_file, "save_file", fill)
    with pytest.raises(FileError, match=r"network\.unfinished.* cannot be written.*No space left"):
        train(build, EXAMPLES, VALIDATION, SETTINGS, path=tmp_path / "network.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_divergence_is_an_error(tmp_path):
    poisoned = dataclasses.replace(EXAMPLES, inputs=EXAMPLES.inputs * float("nan"))
    with pytest.raises(ModelError, match="diverged"):
        train(build, poisoned, VALIDATION, SETTINGS, path=tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["epochs", "patience", "batch", "learning_rate"])
def test_settings_must_make_sense(name):
    with pytest.raises(InputError, match=name):
        TrainingSettings(**{name: 0})
