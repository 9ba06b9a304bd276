"""The whole zoo as ONNX: the same answers in onnxruntime, in C, and in other runtimes if installed.

Each network is converted and exported once: its tests stand next to each other.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from models import NAMES, converted, inputs_for

import onesigma
from onesigma import runtime
from onesigma.exporters.onnx import torch_writer as torch_onnx
from onesigma.runtime.comparison import mismatch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onesigma.exporters.c import generate  # noqa: E402
from onesigma.lab import c_verify as verify  # noqa: E402

BATCHES = (1, 3, 8)
# MNN interpolates in an order of its own.
MNN_TOLERANCE = {"unet": 2e-2}


@pytest.fixture(scope="module", params=NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def path(name, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("zoo") / f"{name}.onnx"
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(torch_onnx, "write")  # our own table is to suffice
        return onesigma.export(converted(name), path).path


def largest_mismatch(name: str, run) -> float:
    """Of all outputs and batches; ``run`` takes numpy inputs and returns arrays by output name."""
    worst = 0.0
    for batch in BATCHES:
        inputs = inputs_for(name, batch)
        with torch.no_grad():
            expected = converted(name)(*inputs).arrays()
        found = run(*(x.numpy() for x in inputs))
        assert set(found) == set(expected)
        worst = max([worst, *(mismatch(k, found[k], value) for k, value in expected.items())])
    return worst


def test_onnxruntime_agrees(name, path):
    model = runtime.load(path, threads=1)

    def run(*inputs):
        answer = model(*inputs)
        return {k: v for k, v in vars(answer).items() if isinstance(v, np.ndarray)}

    assert largest_mismatch(name, run) < 1e-4


def test_the_graph_is_plain(name, path):
    """Standard ops, no functions, the batch left open, outputs named after the prediction."""
    model = onnx.load(path)
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions
    assert [o.name for o in model.graph.output] == list(
        converted(name)(*inputs_for(name, 2)).arrays()
    )
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_c_agrees(name, path, tmp_path):
    if verify.TARGETS["host"].missing:
        pytest.skip(verify.TARGETS["host"].missing)
    model = onnx.load(path)
    generated = generate(model, tmp_path)
    inputs = [x.numpy() for x in inputs_for(name, 3)]
    samples = [
        {k: x[i : i + 1] for k, x in zip(generated.inputs, inputs, strict=True)} for i in range(3)
    ]
    ran = verify.run(generated, samples, flags=["-O0"])
    assert verify.largest_mismatch(model, ran, samples) < 1e-4


def test_openvino_agrees(name, path):
    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(*inputs):
        return {key.get_any_name(): array for key, array in compiled(inputs).items()}

    assert largest_mismatch(name, run) < 1e-4


def test_mnn_agrees(name, path):
    pytest.importorskip("MNN")
    from MNN import expr, nn

    target = path.with_suffix(".mnn")
    files = ["--modelFile", str(path), "--MNNModel", str(target)]
    command = [sys.executable, "-m", "MNN.tools.mnnconvert", "-f", "ONNX", *files]
    subprocess.run(command, check=True, capture_output=True)
    graph = onnx.load(path).graph
    outputs = [value.name for value in graph.output]
    model = nn.load_module_from_file(str(target), [v.name for v in graph.input], outputs)

    def run(*inputs):
        answers = model.forward([expr.const(x.copy(), x.shape, expr.NCHW) for x in inputs])
        plain = [expr.convert(a, expr.NCHW) if a.data_format == expr.NC4HW4 else a for a in answers]
        # MNN adds dimensions of 1 at the end.
        return {
            value.name: np.array(a.read()).reshape(a.shape[: len(value.type.tensor_type.shape.dim)])
            for value, a in zip(graph.output, plain, strict=True)
        }

    assert largest_mismatch(name, run) < MNN_TOLERANCE.get(name, 1e-4)
