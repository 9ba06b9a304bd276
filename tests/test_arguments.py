"""Arguments of the wrong type: an InputError that names them, from every public function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma import InputError, ModelError, OnesigmaError, runtime
from onesigma.arguments import typed

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
MODEL = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3)).eval()
CONVERTED = onesigma.convert(MODEL, X)
# None of these fits a number, a name, a switch or a model.
WRONG = ["x", 1.5, [], {}, (1, "a"), b"b", object(), np.zeros(2), torch.zeros(2), np.nan, True]


@typed
def example(count: int, share: float = 0.5, *, name: str | Path = "", yes: bool = False) -> None:
    pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": "x"}, r"example: count='x' is a str, expected int\."),
        ({"count": True}, "count=True is a bool"),
        ({"count": 1.0}, "count=1.0 is a float"),
        ({"count": 1, "share": None}, "share=None is a NoneType, expected float"),
        ({"count": 1, "name": b"x"}, r"name=b'x' is a bytes, expected str \| Path"),
        ({"count": 1, "yes": "no"}, "yes='no' is a str, expected bool"),
        ({"count": "x" * 10_000}, r"count='x+\.\.\.x+' is a str"),
    ],
)
def test_a_wrong_type_is_named(given, message):
    with pytest.raises(InputError, match=message):
        example(**given)


def test_names_of_numpy_are_texts(tmp_path):
    pytest.importorskip("onnx")
    names = np.array(["a", "b", "c"])
    onesigma.export(CONVERTED, tmp_path / "m.onnx", class_names=names, input_names=("x",))
    assert runtime.load(tmp_path / "m.onnx").class_names == ["a", "b", "c"]


def test_right_types_pass():
    example(1, 2, name=Path("a"), yes=True)
    example(np.int64(1), np.float32(0.5), name="a", yes=np.bool_(True))


def test_a_wrong_name_is_an_error_of_python():
    with pytest.raises(TypeError, match="unexpected"):
        example(1, nonsense=2)


CALLS = {
    "convert": (onesigma.convert, {"model": MODEL, "example_input": X}),
    "calibrate": (onesigma.calibrate, {"converted": CONVERTED, "inputs": X, "passes": 4}),
    "audit": (onesigma.audit, {"converted": CONVERTED, "inputs": X, "passes": 4}),
    "mc_dropout": (onesigma.mc_dropout, {"model": MODEL, "passes": 2}),
    "ensemble": (lambda **given: onesigma.ensemble(**given)(X), {"models": [MODEL]}),
    "export": (onesigma.export, {"converted": CONVERTED, "path": "m.onnx"}),
    "export to C": (onesigma.export, {"converted": CONVERTED, "path": "c"}),
    "save": (onesigma.save, {"converted": CONVERTED, "path": "m.safetensors"}),
    "load": (onesigma.load, {"path": "m.safetensors"}),
    "read_onnx": (onesigma.read_onnx, {"path": "m.onnx"}),
    "runtime.load": (runtime.load, {"path": "m.onnx"}),
}
ARGUMENTS = [
    *(("convert", name) for name in ("model", "example_input", "input_std")),
    *(("convert", name) for name in ("task", "draws", "sampling", "class_dim", "dropout")),
    *(("calibrate", name) for name in ("converted", "inputs", "passes", "seed", "progress")),
    *(("audit", name) for name in ("converted", "inputs", "passes", "seed", "progress")),
    *(("mc_dropout", name) for name in ("passes", "form", "seed", "task", "class_dim", "max_rows")),
    *(("ensemble", name) for name in ("models", "task", "class_dim")),
    *(("export", name) for name in ("converted", "path", "class_names", "example_input", "opset")),
    *(("export", name) for name in ("input_names", "plain")),
    *(("export to C", name) for name in ("class_names", "input_shape", "name", "int8")),
    *(("save", name) for name in ("converted", "path")),
    *((name, "path") for name in ("load", "read_onnx", "runtime.load")),
    *(("runtime.load", name) for name in ("threads", "check")),
]


@pytest.mark.parametrize(("call", "argument"), ARGUMENTS)
def test_wrong_types_are_refused(call, argument, tmp_path, monkeypatch):
    """Some fit after all (1.5 is an input_std): no exception but ours may come out."""
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[call]
    refused = []
    for wrong in WRONG:
        try:
            function(**given | {argument: wrong})
        except OnesigmaError as error:
            refused.append(str(error))
    assert all(refused)
    assert len(refused) >= len(WRONG) - 4


def test_what_is_no_network_is_told_so():
    for call in (lambda: onesigma.convert("x", X), lambda: onesigma.mc_dropout("x")(X)):
        with pytest.raises(ModelError, match=r"is a str, no nn\.Module"):
            call()
