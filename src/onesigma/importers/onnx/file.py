"""An ONNX file as a model in memory, read with suspicion.

The file decides neither how much memory is taken nor which other files are opened: weights kept
outside of it must lie in its own folder, and must be as large there as the file says. What is
returned holds all its weights itself, so nobody after this opens another file.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from math import prod
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import FileError, ModelError, PackageError, UnsupportedOp

OLDEST_OPSET = 9
# What protobuf holds in one message, of the file that is read and of the one that is written.
MAX_BYTES = 2**31 - 1
# TensorProto.DataType by its number, as numpy calls it. Half precision and quantised types are
# left out: a variance underflows in them.
DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    11: "float64",
}


def read_model(path: Path) -> Any:
    """The file as an ``onnx.ModelProto`` with all its weights inside.

    Raises:
        FileError: absent, truncated, of an unknown version, or with data missing or out of bounds.
        UnsupportedOp: it holds functions of its own, or ops of a foreign domain.
    """
    if find_spec("onnx") is None:
        raise PackageError("Reading ONNX needs onnx: pip install 'onesigma[onnx]'")
    import onnx

    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    if path.stat().st_size > MAX_BYTES:
        raise FileError(f"{path.name} is larger than 2 GB, more than an ONNX file can be.")
    try:
        model = onnx.ModelProto.FromString(path.read_bytes())
    except Exception as error:  # protobuf's own class, of a module that moves between versions
        raise FileError(
            f"{path.name} cannot be read as ONNX: it is truncated, damaged or of another format "
            f"({error})."
        ) from error
    _check_versions(model, path.name)
    _load_external(model, path)
    return model


def _check_versions(model: Any, name: str) -> None:
    from onnx import IR_VERSION
    from onnx.defs import onnx_opset_version

    if not model.ir_version or not model.graph.node:
        raise FileError(f"{name} holds no ONNX graph: it is empty, truncated or of another format.")
    if model.ir_version > IR_VERSION:
        raise FileError(f"{name} has IR version {model.ir_version}; update onnx to read it.")
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if len(versions) != 1:
        raise FileError(f"{name} does not say which opset it is written in.")
    if not OLDEST_OPSET <= versions[0] <= onnx_opset_version():
        raise FileError(
            f"{name} is written in opset {versions[0]}; opsets {OLDEST_OPSET} to "
            f"{onnx_opset_version()} can be read. Export the model again with one of these."
        )
    if model.functions:
        raise UnsupportedOp(
            f"{name} holds functions of its own ({model.functions[0].name}, …). Write them out "
            "first: onnx.inliner.inline_local_functions(model)."
        )


def opset_of(model: Any) -> int:
    return next(int(e.version) for e in model.opset_import if e.domain in ("", "ai.onnx"))


def _tensors(model: Any) -> Iterator[tuple[Any, str]]:
    """All stored tensors, and what to call each in an error."""
    for tensor in model.graph.initializer:
        yield tensor, f"weight '{tensor.name}'"
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t, f"node '{node.name or node.output[0]}'"


def _load_external(model: Any, path: Path) -> None:
    """Put the weights that other files hold into the model."""
    from onnx import TensorProto

    total = 0
    for tensor, name in _tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        where = f"{path.name}, {name}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        file = _external_file(entries.get("location", ""), path.parent, where)
        start, length = _external_range(entries, _byte_size(tensor, where), file, where)
        # Weights may share their bytes; so few bytes could become many large tensors.
        total += length
        if total > MAX_BYTES:
            raise FileError(f"{path.name}: its weights take more than 2 GB.")
        with file.open("rb") as content:
            content.seek(start)
            tensor.raw_data = content.read(length)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _external_file(location: str, folder: Path, where: str) -> Path:
    # As Windows reads it, which is the stricter way: both kinds of slash, and drives.
    lexical = PureWindowsPath(location)
    if not location or lexical.anchor or ".." in lexical.parts:
        raise FileError(
            f"{where}: its data are said to be in '{location}', outside the model's folder. "
            "Such a file is not opened; store the weights beside the model."
        )
    file = (folder / location).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise FileError(
            f"{where}: '{location}' is a link that leads out of the model's folder. It is not "
            "followed; copy the file itself there."
        )
    if not file.is_file():
        raise FileError(f"{where}: its data file '{location}' is missing beside the model.")
    return file


def _external_range(
    entries: dict[str, str], needed: int, file: Path, where: str
) -> tuple[int, int]:
    try:
        start, length = int(entries.get("offset", 0)), int(entries.get("length", needed))
    except ValueError as error:
        raise FileError(f"{where}: offset or length of its data is no number.") from error
    if start < 0 or length != needed:
        raise FileError(f"{where}: takes {needed} bytes, but {length} are declared in {file.name}.")
    if start + length > file.stat().st_size:
        raise FileError(
            f"{where}: bytes {start} to {start + length} of {file.name} are declared, which has "
            f"only {file.stat().st_size}: it is truncated, or the file lies."
        )
    return start, length


def _byte_size(tensor: Any, where: str) -> int:
    if any(n < 0 for n in tensor.dims):
        raise FileError(f"{where}: a negative size in shape {tuple(tensor.dims)}.")
    itemsize = np.dtype(numpy_dtype(tensor.data_type, where)).itemsize
    return int(prod(tensor.dims)) * itemsize


def numpy_dtype(number: int, where: str) -> str:
    """The dtype of a stored tensor or an input; refuses those that variances do not fit in."""
    if number not in DTYPES:
        from onnx import TensorProto

        known = number in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(number) if known else f"of unknown type {number}"
        raise ModelError(
            f"{where} is {name}. Convert the float32 (or float64) file, before it is quantised or "
            "cast to half precision."
        )
    return DTYPES[number]


def array(tensor: Any, where: str) -> npt.NDArray[Any]:
    """A stored tensor's values.

    Raises:
        FileError: there are more or fewer of them than its shape says, or some are not numbers.
    """
    from onnx import numpy_helper

    size = _byte_size(tensor, where)
    if tensor.raw_data and len(tensor.raw_data) != size:
        raise FileError(f"{where}: {len(tensor.raw_data)} bytes, where its shape needs {size}.")
    try:
        values: npt.NDArray[Any] = numpy_helper.to_array(tensor)
    except Exception as error:
        raise FileError(f"{where}: its values do not fill its shape ({error}).") from error
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ModelError(f"{where} holds NaN: the training diverged or the file is damaged.")
    return values
