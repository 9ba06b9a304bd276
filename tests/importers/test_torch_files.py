"""Files of PyTorch: weights go in whole or not at all, and nothing is unpickled unasked."""

import os
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from onesigma.errors import FileError, ModelError
from onesigma.importers.torch_files import (
    put_weights,
    read_pickled_model,
    read_program,
    read_weights,
)


def network(seed: int = 0, width: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(3, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.Linear(width, 2)
    )


def same(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Malicious:
    """Unpickling it writes a file: what an attacker's would do is worse."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self):
        return os.mkdir, (str(self.sentinel),)


WAYS = {
    "weights.safetensors": lambda state, path: save_file(state, path),
    "weights.pt": torch.save,
    "weights.pth": torch.save,
    "trained.ckpt": lambda state, path: torch.save({"epoch": 3, "state_dict": state}, path),
    "other.pt": lambda state, path: torch.save({"model_state_dict": state}, path),
}


@pytest.mark.parametrize("name", WAYS)
def test_weights_are_loaded(name, tmp_path):
    trained, fresh = network(0), network(1)
    WAYS[name](trained.state_dict(), tmp_path / name)
    assert not same(trained, fresh)
    put_weights(fresh, tmp_path / name)
    assert same(trained, fresh)


def test_every_weight_that_does_not_fit_is_listed(tmp_path):
    state = network().state_dict()
    state["extra.weight"] = torch.zeros(1)
    del state["3.bias"]
    state["0.weight"] = torch.zeros(5, 3)
    torch.save(state, tmp_path / "weights.pt")
    model = network(1)
    before = network(1)
    with pytest.raises(FileError) as error:
        put_weights(model, tmp_path / "weights.pt")
    for words in (
        "missing in the file: 3.bias",
        "not in the model: extra.weight",
        "0.weight is (5, 3), the model has (4, 3)",
    ):
        assert words in str(error.value)
    assert same(model, before)  # none of them was loaded


def test_a_long_list_is_cut(tmp_path):
    torch.save({f"layer{i:02}": torch.zeros(1) for i in range(25)}, tmp_path / "weights.pt")
    with pytest.raises(FileError, match="layer09 and 15 more"):
        put_weights(network(), tmp_path / "weights.pt")


@pytest.mark.parametrize("content", ["state", "model"])
def test_a_malicious_pickle_does_not_run(content, tmp_path):
    sentinel, path = tmp_path / "executed", tmp_path / "weights.pt"
    torch.save({"0.weight": Malicious(sentinel)}, path)
    reader = read_weights if content == "state" else read_pickled_model
    with pytest.raises(FileError, match="runs code from the file") as error:
        reader(path, trust=False)
    assert "--trust" in str(error.value)
    assert not sentinel.exists()
    # The trap works: what is forbidden above is what would have run it.
    with pytest.raises(FileError):
        reader(path, trust=True)
    assert sentinel.exists()


def test_the_class_of_a_pickled_model_may_lie_beside_it(tmp_path, monkeypatch):
    (tmp_path / "beside").mkdir()
    module = tmp_path / "beside" / "pickled_nets.py"
    module.write_text("from torch import nn\n\nclass Net(nn.Linear):\n    pass\n")
    monkeypatch.syspath_prepend(module.parent)
    torch.save(import_module("pickled_nets").Net(2, 3), module.parent / "model.pt")
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "pickled_nets")
    path = list(sys.path)
    assert read_pickled_model(module.parent / "model.pt", trust=True).out_features == 3
    assert sys.path == path
    monkeypatch.delitem(sys.modules, "pickled_nets")
    module.unlink()
    with pytest.raises(FileError, match=r"model\.pt was made with the module 'pickled_nets'"):
        read_pickled_model(module.parent / "model.pt", trust=True)


def test_a_pickled_model_needs_trust(tmp_path):
    model = network()
    torch.save(model, tmp_path / "model.pt")
    with pytest.raises(FileError, match="--trust"):
        read_pickled_model(tmp_path / "model.pt", trust=False)
    assert same(read_pickled_model(tmp_path / "model.pt", trust=True), model)
    # As weights, too: those are then taken out of it.
    fresh = network(1)
    put_weights(fresh, tmp_path / "model.pt", trust=True)
    assert same(fresh, model)


def test_weights_are_no_model(tmp_path):
    torch.save(network().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(FileError, match=r"--weights weights\.pt"):
        read_pickled_model(tmp_path / "weights.pt", trust=True)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("absent.pt", None, "no such file"),
        ("garbage.pt", b"not a pickle", "damaged"),
        ("garbage.safetensors", b"not a header", "cannot be read as safetensors"),
        ("weights.h5", b"hdf", r"\.safetensors and \.pt"),
    ],
)
def test_unreadable_weights(name, content, says, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=says):
        read_weights(tmp_path / name)


@pytest.mark.parametrize("content", [[1, 2], {"0.weight": 3.0}, torch.zeros(3)])
def test_what_holds_no_weights_by_name(content, tmp_path):
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(FileError, match="state_dict"):
        read_weights(tmp_path / "weights.pt")


@pytest.fixture
def exported(tmp_path: Path):
    def export(model: nn.Module) -> Path:
        x = torch.randn(4, 3)
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
        torch.export.save(program, tmp_path / "model.pt2")
        return tmp_path / "model.pt2"

    return export


def test_a_program_answers_as_its_model(exported):
    model = network().eval()
    program, examples = read_program(exported(model), trust=True)
    assert [tuple(x.shape) for x in examples] == [(4, 3)]
    x = torch.randn(7, 3)
    torch.testing.assert_close(program(x), model(x))


def test_a_program_needs_trust(exported):
    path = exported(network().eval())
    with pytest.raises(FileError, match=r"unpickles parts of a .pt2 file.*--trust"):
        read_program(path, trust=False)


def test_a_program_in_training_mode_is_refused(exported):
    with pytest.raises(ModelError, match="training mode"):
        read_program(exported(network().train()), trust=True)


def test_a_damaged_program(tmp_path):
    (tmp_path / "model.pt2").write_bytes(b"no archive")
    with pytest.raises(FileError, match="cannot be read as an exported program"):
        read_program(tmp_path / "model.pt2", trust=True)
    with pytest.raises(FileError, match="no such file"):
        read_program(tmp_path / "absent.pt2", trust=True)
