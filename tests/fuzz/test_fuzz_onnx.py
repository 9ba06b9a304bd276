"""The ONNX reader on damaged and forged files: a network that agrees with the runtime, or an error.

``read_onnx`` compares every network it returns with ONNX Runtime, so a file that is read at all is
read rightly; what is looked for here is any other exception, a crash, or memory out of proportion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.harness import answered, examples
from hypothesis import given
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from fuzz.onnx_models import convolutional  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from onnx_files import classifier, ints  # noqa: E402

from onesigma import read_onnx  # noqa: E402
from onesigma.importers.onnx.inspection import inspect_onnx  # noqa: E402
from onesigma.importers.onnx.ops import OPS  # noqa: E402

MODELS = {"dense": classifier(), "convolutional": convolutional()}


def read_or_refuse(path: Path) -> None:
    answered(lambda: read_onnx(path, dropout={}))
    answered(lambda: inspect_onnx(path))


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "m.onnx"


@pytest.mark.parametrize("name", MODELS)
def test_the_files_themselves_are_good(name, path):
    path.write_bytes(MODELS[name].SerializeToString())
    assert read_onnx(path, dropout={}).input_names == ["x"]


@pytest.mark.parametrize("way", ["fields", "meaning"])
@pytest.mark.parametrize("name", MODELS)
@examples(60)
@given(data=st.data())
def test_forged(name, way, path, data):
    proto = onnx.ModelProto()
    proto.CopyFrom(MODELS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        (change_field if way == "fields" else change_meaning)(data.draw, proto)
    path.write_bytes(proto.SerializeToString())
    read_or_refuse(path)


NAMES = sorted(
    {n for m in MODELS.values() for each in m.graph.node for n in (*each.input, each.name)}
)
INTEGERS = [
    *(0, 1, 2, 3, 5, 7, 10, 11, 16, -1, -2, 1000),
    *(2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63)),
]
FLOATS = [0.0, -1.0, 0.5, 1e30, 1e-30, math.nan, math.inf, -math.inf]


def change_meaning(draw: Any, proto: Any) -> None:
    """Another op, input, attribute, constant or size: files that get far before they fail."""
    each = draw(st.sampled_from(list(proto.graph.node)))
    kind = draw(st.sampled_from(["op", "input", "attribute", "attribute", "constant", "size"]))
    if kind == "op":
        each.op_type = draw(st.sampled_from(sorted(OPS)))
        del each.attribute[draw(st.integers(0, 3)) :]
    elif kind == "input":
        each.input[draw(st.integers(0, len(each.input) - 1))] = draw(st.sampled_from(NAMES))
    elif kind == "attribute":
        for attribute in each.attribute:
            if attribute.type == attribute.FLOAT:
                attribute.f = draw(st.sampled_from(FLOATS))
            elif attribute.type == attribute.INT:
                attribute.i = draw(st.sampled_from(INTEGERS))
            attribute.ints[:] = [draw(st.sampled_from(INTEGERS)) for _ in attribute.ints]
    elif kind == "constant":
        weight = draw(st.sampled_from(list(proto.graph.initializer)))
        size = numpy_helper.to_array(weight).size
        drawn = [draw(st.sampled_from(INTEGERS)) for _ in range(min(size, 8))]
        weight.CopyFrom(numpy_helper.from_array(ints(*drawn), weight.name))
    else:
        dims = proto.graph.input[0].type.tensor_type.shape.dim
        draw(st.sampled_from(list(dims))).dim_value = draw(st.sampled_from(INTEGERS))


def change_field(draw: Any, proto: Any) -> None:
    """Set, clear, drop or repeat one field, anywhere in the message."""
    places = list(fields(proto))
    message, field, index = places[draw(st.integers(0, len(places) - 1))]
    values = getattr(message, field.name)
    if field.message_type is not None:
        if index is None:
            message.ClearField(field.name)
        elif draw(st.booleans()):
            del values[index]
        else:
            values.add().CopyFrom(values[draw(st.integers(0, len(values) - 1))])
        return
    value = draw(scalar(field))
    if value is None:
        message.ClearField(field.name)
    elif index is None:
        setattr(message, field.name, value)
    else:
        values[index] = value


def fields(message: Any) -> Iterator[tuple[Any, Any, int | None]]:
    """Every field that is set: its message, its descriptor, and its index if it is repeated."""
    for field, value in message.ListFields():
        items = [(None, value)] if not field.is_repeated else list(enumerate(value))
        for index, item in items[:40]:
            yield message, field, index
            if field.message_type is not None:
                yield from fields(item)


def scalar(field: Any) -> st.SearchStrategy[Any]:
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return st.none() | st.binary(max_size=48)
        return st.none() | st.sampled_from(NAMES) | st.sampled_from(sorted(OPS))
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return st.none() | st.sampled_from(FLOATS)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return st.none() | st.sampled_from([v.number for v in field.enum_type.values])
    limit = 31 if field.cpp_type == field.CPPTYPE_INT32 else 63
    fitting = [n for n in INTEGERS if -(2**limit) <= n < 2**limit]
    return st.none() | st.sampled_from(fitting)
