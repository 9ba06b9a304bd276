"""``open_model``: the same network by each of its names gives the same answer."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import onesigma
from onesigma import runtime
from onesigma.errors import FileError, InputError, NoRandomness
from onesigma.storage.opening import open_model

X = np.random.default_rng(3).normal(size=(9, 6)).astype(np.float32)
SOURCE = """
from torch import nn

def make_net():
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3)
    )

trained = make_net()
without_dropout = nn.Sequential(nn.Linear(6, 3))
"""


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3)).eval()


@pytest.fixture(scope="module")
def converted(model: nn.Module) -> onesigma.Converted:
    return onesigma.convert(model, torch.from_numpy(X))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "source_nets.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("source_nets", None)


def require_same(
    prediction: runtime.Prediction, converted: onesigma.Converted, x: np.ndarray = X
) -> None:
    expected = converted(torch.from_numpy(x))
    for field in ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"):
        found, wanted = getattr(prediction, field), getattr(expected, field).detach().numpy()
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_saved_model(converted, folder):
    onesigma.save(converted, "model.safetensors")
    opened = open_model("model.safetensors")
    assert opened.name == "model.safetensors"
    assert opened.input_shape == (None, 6)
    assert opened.class_names is None
    require_same(opened.predict(X.astype(np.float64)), converted)  # any float will do


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_factory_and_its_weights(kind, model, converted, folder):
    save = save_file if kind == "safetensors" else torch.save
    save(model.state_dict(), f"weights.{kind}")
    opened = open_model("source_nets:make_net", weights=Path(f"weights.{kind}"), example=X[:2])
    require_same(opened.predict(X), converted)
    assert opened.converted.report.sites[0].rate == 0.4


def test_a_factory_with_its_own_weights(model, converted, folder):
    save_file(model.state_dict(), "own.safetensors")
    Path("source_nets.py").write_text(
        f"{SOURCE}\nfrom safetensors.torch import load_file\n\n"
        "def load():\n"
        "    net = make_net()\n"
        "    net.load_state_dict(load_file('own.safetensors'))\n"
        "    return net\n"
    )
    require_same(open_model("source_nets:load", example=X[:2]).predict(X), converted)


def test_random_weights_are_refused(folder):
    with pytest.raises(InputError, match=r"make_net makes a network with random.*--weights"):
        open_model("source_nets:make_net", example=X[:2])


def test_the_task_is_passed_on(folder):
    opened = open_model("source_nets:trained", example=X, task="regression")
    assert opened.converted.settings.task == "regression"


def test_a_pickled_model_and_a_program(model, converted, folder):
    torch.save(model, "model.pt")
    torch.export.save(torch.export.export(model, (torch.from_numpy(X),)), "model.pt2")
    for name in ("model.pt", "model.pt2"):
        with pytest.raises(FileError, match="--trust"):
            open_model(name, example=X)
        require_same(open_model(name, example=X, trust=True).predict(X), converted)
    opened = open_model("model.pt2", trust=True)  # which knows its inputs itself
    assert opened.converted.report.notes == ()
    require_same(opened.predict(X), converted)


class Reshaping(nn.Module):
    """Fixes its batch, as careless code does."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.reshape(4, 6))


def test_a_fixed_batch_takes_any_number(model, converted, folder):
    onesigma.save(onesigma.convert(Reshaping(model), torch.from_numpy(X[:4])), "model.safetensors")
    opened = open_model("model.safetensors")
    assert opened.input_shape == (4, 6)
    for n in (1, 4, 5, 9):
        require_same(opened.predict(X[:n]), converted, X[:n])
    with pytest.raises(InputError, match="one input or more"):
        opened.predict(X[:0])


@pytest.fixture(scope="module")
def exported(converted, tmp_path_factory) -> str:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    rule = onesigma.AbstainRule("entropy", 0.9, 0.1, None, 100, 0.5, 0.05)
    path = tmp_path_factory.mktemp("exported") / "out.onnx"
    onesigma.export(converted.with_abstain(rule), path, class_names=["a", "b", "c"])
    return str(path)


def test_an_exported_file(exported, converted):
    opened = open_model(exported)
    assert opened.converted is None
    assert opened.class_names == ("a", "b", "c")
    assert opened.input_shape == (None, 6)
    prediction = opened.predict(X)
    require_same(prediction, converted)
    np.testing.assert_array_equal(prediction.act, prediction.entropy < 0.9)
    with pytest.raises(InputError, match="--dropout would change nothing"):
        open_model(exported, dropout={"every Relu": 0.5})


def test_another_onnx_file(folder):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx_files import classifier, write

    write(Path("model.onnx"), classifier())
    with pytest.raises(NoRandomness, match="relu1"):
        open_model("model.onnx")
    opened = open_model("model.onnx", dropout={"every Relu": 0.5})
    read = onesigma.read_onnx("model.onnx", dropout={"relu1": 0.5})
    require_same(opened.predict(X), onesigma.convert(read, torch.from_numpy(X)))
    # Dropout before one dense layer: its variance by numpy, p/(1 − p) Σ w² h².
    stored = onnx.load("model.onnx").graph.initializer
    w1, b1, w2, _ = (onnx.numpy_helper.to_array(tensor) for tensor in stored)
    hidden = np.maximum(X @ w1.T + b1, 0)
    np.testing.assert_allclose(opened.predict(X).var, hidden**2 @ (w2**2).T, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "error", "says"),
    [
        ("none.safetensors", {}, FileError, "no such file"),
        ("none.onnx", {}, FileError, "no such file"),
        ("none.pt2", {"trust": True}, FileError, "no such file"),
        (
            "model.foo",
            {},
            InputError,
            "no model: give a .safetensors file .of onesigma fit, or of onesigma.save., an .onnx",
        ),
        ("source_nets", {}, InputError, "no model"),
        ("source_nets:trained", {}, InputError, "an example of its inputs is needed"),
        ("source_nets:without_dropout", {"example": X}, NoRandomness, "No dropout"),
        ("source_nets:make_net", {"example": X, "weights": Path("no.pt")}, FileError, "no such"),
        ("source_nets:trained", {"example": X[:, :5]}, InputError, "does not run on the example"),
        (
            "any.safetensors",
            {"weights": Path("w.pt")},
            InputError,
            "--weights would change nothing",
        ),
        ("any.safetensors", {"dropout": {"a": 0.5}}, InputError, "--dropout would change nothing"),
        ("any.safetensors", {"task": "regression"}, InputError, "--task would change nothing"),
        ("any.pt", {"weights": Path("w.pt")}, InputError, "its own weights"),
        ("any.pt", {"dropout": {"a": 0.5}}, InputError, "its own dropout"),
        ("../my/nets.py:make", {"example": X}, InputError, "names a file.* the module, nets:make"),
    ],
)
def test_what_cannot_be_opened(name, options, error, says, folder):
    Path("any.safetensors").touch()
    with pytest.raises(error, match=says):
        open_model(name, **options)


def test_weights_alone_are_told_from_a_model(folder):
    save_file({"weight": torch.zeros(3)}, "weights.safetensors")
    with pytest.raises(FileError, match=r"factory --weights weights\.safetensors"):
        open_model("weights.safetensors")
