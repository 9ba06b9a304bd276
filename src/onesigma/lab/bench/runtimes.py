"""The runtimes. To add one: a ``Runtime`` with the two functions below, and a line in ``_ALL``.

    translate(program, inputs)        what the runtime opens: a file, or a graph of PyTorch
    start(opened, inputs, threads)    → a function from numpy arrays to a list of them

Nothing is imported before it is asked for, and ``start`` of a runtime that opens files imports no
PyTorch, because its memory is measured in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Inputs = tuple[Array, ...]
Run = Callable[..., Sequence[Array]]


@dataclass(frozen=True)
class Runtime:
    """``title`` is for tables, ``packages`` are the modules that must be installed."""

    title: str
    distribution: str
    packages: tuple[str, ...]
    translate: Callable[[Any, Inputs], Any]
    start: Callable[[Any, Inputs, int], Run]

    def missing(self) -> list[str]:
        """The packages that it needs and that are not installed."""
        return [package for package in self.packages if find_spec(package) is None]

    def with_version(self) -> str:
        return f"{self.title} {version(self.distribution)}"


def runtime(name: str) -> Runtime:
    return _ALL[name]


def shape_suffix(inputs: Inputs) -> str:
    """For the name of a file that is made for these shapes."""
    return "".join("-" + "x".join(map(str, x.shape)) for x in inputs)


def _graph(program: Any, inputs: Inputs) -> Any:
    return program.graph


def _start_eager(opened: Any, inputs: Inputs, threads: int) -> Run:
    """PyTorch as it comes. Threads are those of the process: ``timing.torch_threads`` sets them."""
    import torch

    @torch.inference_mode()
    def run(*inputs: Array) -> list[Array]:
        return [out.numpy() for out in opened(*(torch.from_numpy(x) for x in inputs))]

    return run


def _start_compiled(opened: Any, inputs: Inputs, threads: int) -> Run:
    """PyTorch compiled for the very shapes it is given; needs a C++ compiler."""
    import torch

    return _start_eager(torch.compile(opened, dynamic=False), inputs, threads)


def _onnx_file(program: Any, inputs: Inputs) -> Any:
    return program.path


def onnx_session(path: Path, threads: int, *, profile: Path | None = None) -> Any:
    """A session on the CPU; with ``profile``, it records every op in a file that begins so."""
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin while they wait would take time from what is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    # By default it deletes Dropout, even in training mode: Monte Carlo without any noise.
    return onnxruntime.InferenceSession(
        str(path),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["EliminateDropout"],
    )


def _start_onnxruntime(opened: Path, inputs: Inputs, threads: int) -> Run:
    session = onnx_session(opened, threads)
    names = [each.name for each in session.get_inputs()]

    def run(*inputs: Array) -> list[Array]:
        found: list[Array] = session.run(None, dict(zip(names, inputs, strict=True)))
        return found

    return run


def _without_dropout(program: Any, inputs: Inputs) -> Path:
    """OpenVINO has no Dropout in training mode: masks are made of uniform numbers there."""
    onnx: Any = import_module("onnx")
    model = onnx.load(program.path)
    if all(node.op_type != "Dropout" for node in model.graph.node):
        return Path(program.path)
    nodes = [each for node in model.graph.node for each in _uniform_mask(node, onnx.helper)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    zero = onnx.numpy_helper.from_array(inputs[0].dtype.type(0), "masked:")
    one = onnx.numpy_helper.from_array(inputs[0].dtype.type(1), "all:")
    model.graph.initializer.extend([zero, one])
    target: Path = program.folder / f"{program.name}.uniform.onnx"
    onnx.save(model, target)
    return target


def _uniform_mask(node: Any, helper: Any) -> list[Any]:
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


def _start_openvino(opened: Path, inputs: Inputs, threads: int) -> Run:
    """OpenVINO on the CPU, in float32, for the very shapes it is given."""
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


def _executorch_file(program: Any, inputs: Inputs) -> Path:
    """For ExecuTorch with XNNPACK, for the very shapes it is given."""
    import torch

    from onesigma.graph.capture import shared_copy
    from onesigma.graph.fold import fold

    exir: Any = import_module("executorch.exir")
    xnnpack: Any = import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    graph = shared_copy(program.graph)
    fold(graph, "")  # squared weights must be constants for XNNPACK to take their convolutions
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examples = tuple(torch.from_numpy(x) for x in inputs)
        exported = torch.export.export(graph, examples, strict=False)
        partitioner = [xnnpack.XnnpackPartitioner()]
        lowered = exir.to_edge_transform_and_lower(exported, partitioner=partitioner)
        content = lowered.to_executorch().buffer
    path: Path = program.folder / f"{program.name}{shape_suffix(inputs)}.pte"
    path.write_bytes(content)
    return path


def _start_executorch(opened: Path, inputs: Inputs, threads: int) -> Run:
    import torch

    library: Any = import_module("executorch.extension.pybindings.portable_lib")
    library._unsafe_reset_threadpool(threads)
    module: Any = import_module("executorch.runtime")
    method = module.Runtime.get().load_program(opened).load_method("forward")

    def run(*inputs: Array) -> list[Array]:
        return [out.numpy() for out in method.execute([torch.from_numpy(x) for x in inputs])]

    return run


def _litert_file(program: Any, inputs: Inputs) -> Path:
    """For LiteRT (once TensorFlow Lite) with XNNPACK, for the very shapes it is given."""
    import torch

    litert_torch: Any = import_module("litert_torch")
    path: Path = program.folder / f"{program.name}{shape_suffix(inputs)}.tflite"
    # It prints every step of its work.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        examples = tuple(torch.from_numpy(x) for x in inputs)
        litert_torch.convert(program.graph.eval(), examples).export(str(path))
    return path


def _start_litert(opened: Path, inputs: Inputs, threads: int) -> Run:
    litert: Any = import_module("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(model_path=str(opened), num_threads=threads)
    interpreter.allocate_tensors()
    taken = [each["index"] for each in interpreter.get_input_details()]
    # Named output_0, output_1 …, and listed in any order.
    details = sorted(interpreter.get_output_details(), key=lambda each: each["name"])
    given = [each["index"] for each in details]

    def run(*inputs: Array) -> list[Array]:
        for index, x in zip(taken, inputs, strict=True):
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in given]

    return run


_LITERT_PACKAGES = ("ai_edge_litert", "litert_torch", "torch")
_ALL = {
    "eager": Runtime("PyTorch", "torch", ("torch",), _graph, _start_eager),
    "compiled": Runtime("torch.compile", "torch", ("torch",), _graph, _start_compiled),
    "onnxruntime": Runtime(
        "ONNX Runtime", "onnxruntime", ("onnxruntime", "onnx"), _onnx_file, _start_onnxruntime
    ),
    "openvino": Runtime(
        "OpenVINO", "openvino", ("openvino", "onnx"), _without_dropout, _start_openvino
    ),
    "executorch": Runtime(
        "ExecuTorch", "executorch", ("executorch", "torch"), _executorch_file, _start_executorch
    ),
    "litert": Runtime("LiteRT", "ai-edge-litert", _LITERT_PACKAGES, _litert_file, _start_litert),
}
RUNTIMES = tuple(_ALL)
FROM_ONNX = ("onnxruntime", "openvino")  # the others start from a graph of PyTorch
