"""OpenVINO on the CPU, in float32, for the very shapes it is given."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from onesigma.lab.bench.runtimes import Array, Run

NAME, DISTRIBUTION, PACKAGES = "OpenVINO", "openvino", ("openvino", "onnx")


def translate(program: Any, inputs: tuple[Array, ...]) -> Path:
    """It has no Dropout in training mode: masks are made of uniform numbers there."""
    onnx: Any = import_module("onnx")
    model = onnx.load(program.path)
    if all(node.op_type != "Dropout" for node in model.graph.node):
        return Path(program.path)
    nodes = [each for node in model.graph.node for each in _without_dropout(node, onnx.helper)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    zero = onnx.numpy_helper.from_array(inputs[0].dtype.type(0), "masked:")
    one = onnx.numpy_helper.from_array(inputs[0].dtype.type(1), "all:")
    model.graph.initializer.extend([zero, one])
    target: Path = program.folder / f"{program.name}.uniform.onnx"
    onnx.save(model, target)
    return target


def _without_dropout(node: Any, helper: Any) -> list[Any]:
    if node.op_type != "Dropout":
        return [node]
    (x, rate, _), (out,) = node.input, node.output
    uniform, kept, some, share = (f"{out}:{part}" for part in ("uniform", "kept", "some", "share"))
    return [
        helper.make_node("RandomUniformLike", [x], [uniform]),
        helper.make_node("GreaterOrEqual", [uniform, rate], [kept]),
        helper.make_node("Where", [kept, x, "masked:"], [some]),
        helper.make_node("Sub", ["all:", rate], [share]),
        helper.make_node("Div", [some, share], [out]),
    ]


def start(opened: Path, inputs: tuple[Array, ...], threads: int) -> Run:
    openvino: Any = import_module("openvino")
    core = openvino.Core()
    model = core.read_model(opened)
    shapes = zip(model.inputs, inputs, strict=True)
    model.reshape({port: list(x.shape) for port, x in shapes})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def run(*inputs: Array) -> list[Array]:
        return list(request.infer(inputs, share_inputs=True).values())

    return run
