"""An ONNX file, read with suspicion, as a graph in plain Python: nodes in order, one output.

The file decides neither how much memory is taken nor which other files are opened: weights kept
outside of it must lie in its own folder, and must be as large there as the file says. Sizes must be
known except for the batch. The rest is left to the check of onnx (``read.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import prod
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import FileError, ModelError, PackageError, UnsupportedOp, install

Array = npt.NDArray[Any]
OLDEST_OPSET = 9
# What protobuf holds in one message, of the file that is read and of the one that is written.
MAX_BYTES = 2**31 - 1
# TensorProto.DataType by its number, as numpy calls it. Half precision is left out, because a
# variance underflows in it, and so are integers of four bits.
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 11: "float64",
}  # fmt: skip
_STANDARD = ("", "ai.onnx")
# Ops of ONNX Runtime that are as in the standard, or of its quantiser; each name has one meaning.
_MICROSOFT = ("Gelu", "QGemm", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
_QUANTISED = ("QLinear", "QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, eq=False)
class Node:
    """One op: its attributes are the keywords of its function, '' an input that is left out."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"node '{self.name}' ({self.op})"


@dataclass(frozen=True)
class Input:
    """What the model takes; None stands for any batch."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """A whole file. ``batch`` is None if it is open, else the number the file fixes it at."""

    file: str
    opset: int
    inputs: tuple[Input, ...]
    output: str
    nodes: tuple[Node, ...]
    constants: dict[str, Array]

    @property
    def batch(self) -> int | None:
        return self.inputs[0].shape[0]

    def with_nodes(self, nodes: list[Node], constants: dict[str, Array]) -> OnnxGraph:
        return replace(self, nodes=tuple(nodes), constants=constants)


def read_model(path: Path) -> Any:
    """The file as an ``onnx.ModelProto`` with all its weights inside.

    Raises:
        FileError: absent, truncated, of an unknown version, or with data missing or out of bounds.
        UnsupportedOp: it holds functions of its own.
    """
    if find_spec("onnx") is None:
        raise PackageError(f"Reading ONNX needs onnx: {install('onnx')}")
    import onnx

    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    if path.stat().st_size > MAX_BYTES:
        raise FileError(f"{path.name} is larger than 2 GB: store its weights beside it.")
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
    opsets = _opsets(model)
    if len(opsets) != 1:
        raise FileError(f"{name} does not say which opset it is written in.")
    if not OLDEST_OPSET <= opsets[0] <= onnx_opset_version():
        raise FileError(
            f"{name} is written in opset {opsets[0]}; opsets {OLDEST_OPSET} to "
            f"{onnx_opset_version()} can be read. Export the model again with one of these."
        )
    if model.functions:
        raise UnsupportedOp(
            f"{name} holds functions of its own ({model.functions[0].name}, …). Write them out "
            "first: onnx.inliner.inline_local_functions(model)."
        )


def _opsets(model: Any) -> list[int]:
    return [int(entry.version) for entry in model.opset_import if entry.domain in _STANDARD]


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


def _tensors(model: Any) -> Iterator[tuple[Any, str]]:
    """All stored tensors, and what to call each in an error."""
    for tensor in model.graph.initializer:
        yield tensor, f"weight '{tensor.name}'"
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t, f"node '{_name(node)}'"


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
            f"only {file.stat().st_size}: it is truncated, or the model's file is wrong."
        )
    return start, length


def _byte_size(tensor: Any, where: str) -> int:
    if any(n < 0 for n in tensor.dims):
        raise FileError(f"{where}: a negative size in shape {tuple(tensor.dims)}.")
    return int(prod(tensor.dims)) * np.dtype(numpy_dtype(tensor.data_type, where)).itemsize


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


def _array(tensor: Any, where: str) -> Array:
    """The values of a stored tensor, as many as its shape says, and all of them numbers."""
    from onnx import numpy_helper

    size = _byte_size(tensor, where)
    if tensor.raw_data and len(tensor.raw_data) != size:
        raise FileError(f"{where}: {len(tensor.raw_data)} bytes, where its shape needs {size}.")
    try:
        values: Array = numpy_helper.to_array(tensor)
    except Exception as error:
        raise FileError(f"{where}: its values do not fill its shape ({error}).") from error
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ModelError(f"{where} holds NaN: the training diverged or the file is damaged.")
    return values


def parse(model: Any, file: str) -> OnnxGraph:
    """Read the graph of a model that holds all its weights.

    Raises:
        FileError: names that are no text, two nodes of one name.
        ModelError: sizes other than the batch left open, several outputs, NaN weights.
        UnsupportedOp: control flow.
    """
    graph = model.graph
    _check_text(graph, file)
    if graph.sparse_initializer:
        raise UnsupportedOp(f"{file} holds sparse weights: store them densely.")
    constants = {t.name: _array(t, f"{file}, weight '{t.name}'") for t in graph.initializer}
    given = [value for value in graph.input if value.name not in constants]
    output = _output(graph, file)
    needed = tuple(_needed(_nodes(graph, file), output))
    return OnnxGraph(file, _opsets(model)[0], _inputs(given, file), output, needed, constants)


def _check_text(graph: Any, file: str) -> None:
    """Protobuf hands out what is no UTF-8 as bytes, and lets it pass."""
    names = [each.name for each in (*graph.node, *graph.initializer, *graph.input, *graph.output)]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise FileError(f"{file}: the name {wrong[0]!r} is no text; the file is damaged.")


def _nodes(graph: Any, file: str) -> list[Node]:
    nodes: dict[str, Node] = {}
    for each in graph.node:
        name = _name(each)
        if name in nodes:
            raise FileError(f"{file}: two nodes are called '{name}'.")
        node = Node(name, _op(each), tuple(each.input), tuple(each.output))
        attributes = {a.name: _attribute(a, f"{file}, {node}") for a in each.attribute}
        nodes[name] = replace(node, attributes=attributes)
    return list(nodes.values())


def _name(node: Any) -> str:
    """ONNX demands no names, and an output that is not used may have none."""
    return str(node.name or next(filter(None, node.output), ""))


def _op(node: Any) -> str:
    """Its name; with its domain if that is a foreign one, so that no op is taken for another."""
    known = node.op_type in _MICROSOFT or node.op_type.startswith(_QUANTISED)
    if node.domain in _STANDARD or (node.domain == "com.microsoft" and known):
        return str(node.op_type)
    return f"{node.domain}.{node.op_type}"


def _attribute(attribute: Any, where: str) -> Any:
    from onnx import AttributeProto
    from onnx.helper import get_attribute_value

    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        return _array(attribute.t, where)
    if kind in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise UnsupportedOp(f"{where} has branches or loops; only straight graphs are converted.")
    if kind == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")
    if kind == AttributeProto.STRINGS:
        return [text.decode(errors="replace") for text in attribute.strings]
    if kind in (AttributeProto.FLOATS, AttributeProto.INTS):
        return list(get_attribute_value(attribute))
    if kind in (AttributeProto.FLOAT, AttributeProto.INT):
        return get_attribute_value(attribute)
    raise FileError(f"{where}: attribute '{attribute.name}' is of a kind that is not read.")


def _output(graph: Any, file: str) -> str:
    names = [str(value.name) for value in graph.output]
    if len(names) != 1:
        raise ModelError(
            f"{file} has {len(names)} outputs ({', '.join(names)}); one is needed, the logits or "
            "their softmax. Cut it out: onnx.utils.extract_model(file, new_file, inputs, [output])."
        )
    return names[0]


def _inputs(given: list[Any], file: str) -> tuple[Input, ...]:
    inputs = tuple(_input(value, f"{file}, input '{value.name}'") for value in given)
    if not inputs:
        raise ModelError(f"{file} takes no input.")
    if len({each.shape[0] for each in inputs}) > 1:
        raise ModelError(f"{file}: its inputs disagree about the batch: leave it open in all.")
    return inputs


def _input(value: Any, where: str) -> Input:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise ModelError(f"{where} is no tensor of a known shape: export the model with one.")
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    words = ", ".join(str(d.dim_param or d.dim_value or "?") for d in tensor.shape.dim)
    if len(dims) < 2 or None in dims[1:]:
        raise ModelError(
            f"{where} has shape ({words}). The first dimension must be the batch, and the others "
            "fixed: export the model for the size that you run it at."
        )
    if any(n is not None and n < 1 for n in dims):
        raise ModelError(f"{where} has shape ({words}): there is nothing in it.")
    return Input(value.name, tuple(dims), numpy_dtype(tensor.elem_type, where))


def _needed(nodes: list[Node], output: str) -> list[Node]:
    """The nodes that the output depends on."""
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if wanted & set(node.outputs):
            wanted |= {name for name in node.inputs if name}
            kept.append(node)
    return kept[::-1]
