"""Model files that are not read: the error says what they are and the way from there."""

import warnings
import zipfile

import pytest
import torch

from onesigma.cli import main as cli
from onesigma.errors import FileError
from onesigma.storage.opening import open_model

WAYS = {
    "m.tflite": r"TensorFlow Lite.*tf2onnx\.convert --tflite model\.tflite --output model\.onnx",
    "m.pb": "SavedModel.*--saved-model",
    "m.mlmodel": "Core ML",
    "m.mlpackage": "Core ML",
    "m.engine": "TensorRT",
    "m.plan": "TensorRT",
    "m.pte": "ExecuTorch",
    "m.ORT": "ONNX Runtime model in its own format",
}


@pytest.mark.parametrize("name", WAYS)
def test_by_its_ending(name, tmp_path, capsys):
    (tmp_path / name).write_bytes(b"whatever")
    with pytest.raises(FileError, match=WAYS[name]):
        open_model(str(tmp_path / name))
    assert cli.main(["inspect", str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith(f"onesigma: {name} is a")


def test_a_saved_model_is_a_folder(tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(FileError, match="exported is a TensorFlow SavedModel"):
        open_model(str(tmp_path / "exported"))


@pytest.mark.parametrize("trust", [False, True])
def test_torchscript(trust, tmp_path):
    path = tmp_path / "m.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and that is why it is refused
        torch.jit.trace(torch.nn.Linear(3, 2), torch.ones(1, 3)).save(path)  # noqa: TID251
    with pytest.raises(FileError, match=r"m\.pt is a TorchScript program.*state_dict"):
        open_model(str(path), trust=trust)


def test_other_archives_are_left_to_their_reader(tmp_path):
    for name in ("m.pt", "m.pth"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("data.pkl", b"")
        with pytest.raises(FileError, match="damaged, or holds more than weights"):
            open_model(str(tmp_path / name))
