"""Files of Keras: the model that was saved, or an error, and never code of the file."""

import json
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import onesigma
from onesigma.cli import main as cli
from onesigma.errors import FileError, ModelError, PackageError
from onesigma.importers.keras_files import read_keras
from onesigma.storage.opening import open_model

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp())  # it writes its settings there
keras = pytest.importorskip("keras")
h5py = pytest.importorskip("h5py")
if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend here", allow_module_level=True)
# Keras' own, of numpy's newer ways.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
L = keras.layers
KINDS = pytest.mark.parametrize("kind", ["keras", "h5"])


def network():
    keras.utils.set_random_seed(0)
    x = inputs = L.Input((16, 3))
    x = L.Conv1D(8, 3, activation="relu", kernel_regularizer="l2")(x)
    x = L.BatchNormalization()(x)
    x = L.SpatialDropout1D(0.2, name="channels")(x)
    x = L.Dropout(0.4, name="elements")(L.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs, L.Dense(3)(x))
    model.compile(optimizer="adam", loss="mse")
    return model


def saved(model, path: Path) -> Path:
    model.save(path)
    return path


@KINDS
@torch.no_grad()
def test_a_saved_model(kind, tmp_path):
    model = network()
    module = read_keras(saved(model, tmp_path / f"m.{kind}"))
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 16, 3)).astype("f4"))
    torch.testing.assert_close(module(x), model(x, training=False))
    assert [each.shape for each in module.examples(7)] == [(7, 16, 3)]
    sites = onesigma.convert(module, module.examples(2)).report.sites
    assert [(site.module, site.rate) for site in sites] == [("channels", 0.2), ("elements", 0.4)]


@KINDS
@torch.no_grad()
def test_by_name(kind, tmp_path, monkeypatch):
    """On the command line as any other model; it says itself what it takes."""
    monkeypatch.chdir(tmp_path)
    model = network()
    saved(model, Path(f"m.{kind}"))
    x = np.random.default_rng(0).normal(size=(5, 16, 3)).astype("f4")
    wanted = onesigma.convert(model, torch.from_numpy(x))(torch.from_numpy(x))
    found = open_model(f"m.{kind}").predict(x)
    np.testing.assert_allclose(found.var, wanted.var.numpy(), rtol=1e-4)
    assert cli.main(["convert", f"m.{kind}", "-o", "out.onnx", "-q"]) == 0
    np.testing.assert_allclose(
        onesigma.runtime.load("out.onnx")(x).probs, wanted.probs.numpy(), atol=1e-5
    )
    assert cli.main(["convert", f"m.{kind}", "-o", "b.onnx", "--dropout", "channels=0.5"]) == 1


def test_models_that_do_not_say_what_they_take(tmp_path):
    model = keras.Sequential([L.Input((None, 3)), L.Conv1D(4, 3), L.GlobalMaxPooling1D()])
    assert read_keras(saved(model, tmp_path / "m.keras")).examples(2) is None
    tokens = keras.Sequential([L.Input((5,), dtype="int32"), L.Embedding(9, 4)])
    (example,) = read_keras(saved(tokens, tmp_path / "t.keras")).examples(2)
    assert example.dtype == torch.int32
    assert example.shape == (2, 5)


@KINDS
def test_code_in_a_file_is_not_run(kind, tmp_path):
    marker = tmp_path / "it ran"
    name = str(marker)
    marks = L.Lambda(lambda x: (open(name, "w").close(), x)[1])
    path = saved(keras.Sequential([L.Input((4,)), marks, L.Dense(3)]), tmp_path / f"m.{kind}")
    marker.unlink()  # Keras calls a layer to see what it makes
    with pytest.raises(FileError, match="holds Lambda, which runs code from the file"):
        read_keras(path)
    assert not marker.exists()


def with_config(path: Path, change) -> Path:
    """The same .keras file with another configuration."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(members["config.json"])
    change(config)
    members["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("os", "function"),
        ("keras.utils", "function"),
        ("keras.src.utils.file_utils", "function"),
        ("subprocess", "Popen"),
        ("keras.layers", "TorchModuleWrapper"),
        ("keras.layers", "TFSMLayer"),
        ("builtins", "__lambda__"),
    ],
)
def test_forged_configurations_are_refused_before_keras_sees_them(
    module, kind, tmp_path, monkeypatch
):
    def forge(config):
        forged = {"module": module, "class_name": kind, "config": "system"}
        config["config"]["layers"][1]["config"]["activation"] = forged

    path = with_config(saved(network(), tmp_path / "m.keras"), forge)
    monkeypatch.setattr(keras.saving, "load_model", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(FileError, match=f"holds {kind}"):
        read_keras(path)


def test_classes_of_the_user(tmp_path):
    """Those that are registered are code that runs already; others are not looked for."""

    class Twice(L.Layer):
        def call(self, x):
            return 2 * x

    path = saved(keras.Sequential([L.Input((4,)), Twice()]), tmp_path / "m.keras")
    with pytest.raises(FileError, match=r"holds Twice of .*, no layer of Keras"):
        read_keras(path)
    with keras.saving.custom_object_scope({"Twice": Twice}):
        assert torch.equal(read_keras(path)(torch.ones(1, 4)), torch.full((1, 4), 2.0))


def test_weights_alone(tmp_path):
    network().save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(FileError, match="holds weights alone"):
        read_keras(tmp_path / "m.weights.h5")


@KINDS
def test_damaged_files(kind, tmp_path):
    path = saved(network(), tmp_path / f"m.{kind}")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(FileError, match=rf"m\.{kind} "):
        read_keras(path)
    with pytest.raises(FileError, match="there is no such file"):
        read_keras(tmp_path / f"none.{kind}")


def test_a_file_of_another_keras(tmp_path):
    """Keras says what it does not know; we add what to do."""
    path = saved(network(), tmp_path / "m.keras")
    with_config(path, lambda c: c["config"]["layers"][1]["config"].update(newer=1))
    with pytest.raises(FileError, match=r"cannot be read by Keras 3\..*save it again there"):
        read_keras(path)


def test_without_keras_or_on_another_backend(tmp_path, monkeypatch):
    path = saved(network(), tmp_path / "m.keras")
    with monkeypatch.context() as patch:
        patch.setattr(keras.backend, "backend", lambda: "jax")
        with pytest.raises(ModelError, match=r"Keras runs on jax here\. Set KERAS_BACKEND"):
            read_keras(path)
    monkeypatch.setattr("onesigma.importers.keras_files.find_spec", lambda name: None)
    with pytest.raises(PackageError, match=r"pip install '.\[keras\]'"):
        read_keras(path)
