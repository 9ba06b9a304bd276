"""``read_keras``: a ``.keras`` or ``.h5`` file of Keras, read on the PyTorch backend.

Such a file holds weights and a configuration, which names the classes to make. Keras' safe mode
refuses those that run code from the file. How well it does so depends on its version, so the names
are checked here before Keras sees them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from onesigma.arguments import typed
from onesigma.errors import FileError, OnesigmaError, PackageError, install
from onesigma.importers.keras import KerasNetwork, require_pytorch
from onesigma.importers.torch_files import require_file

_MAX_CONFIG = 2**26  # bytes; that of a large network takes one in a hundred of it
# They hold Python code, pickled modules or programs of other frameworks.
_RUN_CODE = {*("Lambda", "__lambda__", "TorchModuleWrapper", "TFSMLayer", "JaxLayer", "FlaxLayer")}
# The parts of Keras that networks are made of; others load files, or write them.
_PARTS = {
    *("", "activations", "constraints", "dtype_policies", "initializers", "layers", "models"),
    *("ops", "quantizers", "random", "regularizers"),
}
_REWRITE = (
    "Write it in layers of Keras or keras.ops; or load the file in Python, where you trust it, and "
    "hand the model to onesigma.convert."
)


@typed
def read_keras(path: str | Path) -> KerasNetwork:
    """Read a Keras model from a ``.keras`` or ``.h5`` file, dropout and all.

    No code of the file is run. Keras is imported with PyTorch as its backend, if it is not yet.

    Args:
        path: a file of ``model.save``; weights alone do not say what they belong to.

    Returns:
        A module in eval mode, for ``convert`` and ``fit``; ``examples(batch)`` are inputs for it.

    Raises:
        FileError: absent, damaged, or it holds code (Lambda layers) or classes that Keras lacks.
        ModelError: Keras runs on another backend here.
        PackageError: Keras is not installed.
    """
    file = Path(path)
    require_file(file)
    keras = _keras()
    try:
        config = _read_config(file)
        _refuse_code(config, keras.saving.get_registered_object, file.name)
        model = keras.saving.load_model(file, compile=False, safe_mode=True)
    except OnesigmaError:
        raise
    except Exception as error:  # of many kinds: what is wrong with the file decides
        reason = str(error).strip().split("\n")[0][:300]
        raise FileError(
            f"{file.name} cannot be read by Keras {keras.__version__}: {reason} It is damaged, of "
            "an older Keras (save it again there as .keras, or export it to ONNX), or it needs "
            "classes of your own (load it in Python and hand the model to onesigma.convert)."
        ) from error
    return KerasNetwork(model)


def _keras() -> Any:
    if find_spec("keras") is None:
        raise PackageError(f"Reading Keras files needs keras: {install('keras')}")
    # Keras asks for its backend once, when it is imported.
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = import_module("keras")
    require_pytorch(keras)
    return keras


def _read_config(file: Path) -> Any:
    """What the file says the model is made of."""
    if file.suffix.lower() == ".keras":
        try:
            with ZipFile(file) as archive, archive.open("config.json") as content:
                text: str | bytes = content.read(_MAX_CONFIG)
        except (BadZipFile, KeyError) as error:
            raise FileError(f"{file.name} is no .keras file, or is truncated: {error}.") from error
    else:
        with import_module("h5py").File(file, "r") as content:
            text = content.attrs.get("model_config", "")
    if not text:
        raise FileError(
            f"{file.name} holds weights alone, as save_weights writes them. Save the whole model "
            "(model.save), or make it in Python, load the weights and hand it to onesigma.convert."
        )
    return json.loads(text)


def _refuse_code(config: Any, registered: Callable[[str], Any], name: str) -> None:
    for kind, module, custom in _classes(config):
        where = f"{name} holds {kind}"
        if kind in _RUN_CODE:
            raise FileError(f"{where}, which runs code from the file: it is not loaded. {_REWRITE}")
        root, _, rest = module.replace("keras.src", "keras").partition(".")
        known = root == "builtins" or (root == "keras" and rest.partition(".")[0] in _PARTS)
        if not known and registered(custom) is None:
            raise FileError(f"{where} of {module}, no layer of Keras. {_REWRITE}")


def _classes(config: Any) -> Iterator[tuple[str, str, str]]:
    """Everything that the configuration names: class, module, registered name."""
    if isinstance(config, dict):
        if isinstance(kind := config.get("class_name"), str):
            module = config.get("module") or "keras"
            yield kind, str(module), str(config.get("registered_name"))
        for key, value in config.items():
            if key != "compile_config":  # optimiser and losses are not loaded
                yield from _classes(value)
    elif isinstance(config, list):
        for each in config:
            yield from _classes(each)
