"""Model files of other kinds: what they are, and the way from there."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile, ZipFile

from onesigma.errors import FileError

_TF2ONNX = "in an environment of its own: pip install tf2onnx, python -m tf2onnx.convert"
_SOURCE = "Start from the network it was made of: PyTorch, Keras or ONNX."
_SAVED_MODEL = (
    f"a TensorFlow SavedModel. Make an ONNX file of it, {_TF2ONNX} --saved-model FOLDER --output "
    "model.onnx, or save the Keras model as .keras."
)
_SCRIPT = (
    "a TorchScript program, of which PyTorch captures no graph. Name the network itself as "
    "package.module:factory with --weights (torch.jit.load(file).state_dict(), saved), or export "
    "it to ONNX."
)
_ENGINE = f"a TensorRT engine, compiled for one GPU: its weights cannot be had back. {_SOURCE}"
_CORE_ML = f"a Core ML model, which has no way back to ONNX. {_SOURCE}"
_KINDS = {
    ".tflite": "a TensorFlow Lite model. Make an ONNX file of it, "
    f"{_TF2ONNX} --tflite model.tflite --output model.onnx",
    ".pb": _SAVED_MODEL,
    **dict.fromkeys((".mlmodel", ".mlpackage", ".mlmodelc"), _CORE_ML),
    **dict.fromkeys((".engine", ".plan", ".trt"), _ENGINE),
    ".pte": f"an ExecuTorch program, compiled for a device. {_SOURCE}",
    ".ort": f"an ONNX Runtime model in its own format. {_SOURCE}",
}


def refuse_foreign(path: Path) -> None:
    """Say what a file of another kind is, and what to do; nothing of it is loaded.

    Raises:
        FileError: it is of a kind that is known and not read.
    """
    kind = _KINDS.get(path.suffix.lower())
    if (path / "saved_model.pb").is_file():
        kind = _SAVED_MODEL
    if _is_script(path):
        kind = _SCRIPT
    if kind is not None:
        raise FileError(f"{path.name} is {kind}")


def _is_script(path: Path) -> bool:
    """TorchScript keeps its source in a folder of its archive, which weights do not have."""
    if path.suffix.lower() not in (".pt", ".pth", ".ts") or not path.is_file():
        return False
    try:
        with ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (BadZipFile, OSError):
        return False  # what it is, its reader says
