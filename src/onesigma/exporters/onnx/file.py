"""ONNX: a converted model as one file of plain standard ops, for any runtime.

The file has a dynamic batch, the model's own input names, one output per field of ``Prediction``,
the original network's own output where that is wanted and, as JSON under the metadata key
``onesigma``, how it was made. Before it is written it is run and compared with PyTorch, every time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma.conversion import assemble
from onesigma.converted import Converted
from onesigma.errors import ExportError, InputError, PackageError
from onesigma.exporters.agreement import columns, largest_mismatch
from onesigma.exporters.metadata import describe
from onesigma.exporters.onnx import Interface
from onesigma.exporters.onnx import torch_writer as torch_onnx
from onesigma.exporters.plain_output import beside
from onesigma.exporters.without_erf import WithoutErf
from onesigma.graph import capture
from onesigma.graph.prepare import prepare
from onesigma.rules.lean import SHORTENED
from onesigma.runtime.model import METADATA_KEY
from onesigma.storage.atomic import replacing

OLDEST_OPSET = 17


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with PyTorch (largest relative error)."""

    path: Path
    opset: int
    nodes: int
    size: int
    checked_by: str
    error: float

    def __str__(self) -> str:
        return (
            f"{self.path}: opset {self.opset}, {self.nodes} nodes, {self.size / 1e3:.0f} kB; "
            f"within {self.error:.1g} of PyTorch ({self.checked_by})"
        )


def export(
    converted: Converted,
    path: str | Path,
    *,
    opset: int = 18,
    erf: bool = True,
    class_names: Sequence[str] | None = None,
    example_input: Tensor | tuple[Tensor, ...] | None = None,
    input_names: Sequence[str] | None = None,
    plain: tuple[str, nn.Module] | None = None,
) -> Exported:
    """Write a converted model as one ONNX file, whole or not at all.

    The outputs are ``mean`` and ``var``, and for classification ``probs``, ``entropy``,
    ``aleatoric`` and ``epistemic`` (with ``act`` if the model has an abstain rule).

    Args:
        converted: what ``convert`` returned.
        path: the file, ending in ``.onnx``.
        opset: version of the ONNX operators, 17 or above.
        erf: False for runtimes without the op Erf: an approximation within 5e-7 takes its place.
        class_names: stored in the file, one per class.
        example_input: real inputs on which to compare with PyTorch; random ones by default.
        input_names: names of the inputs in the file, in the place of those of ``forward``.
        plain: a name and the original model, whose own output is added under that name. It costs a
            second pass through the network, and nothing with ``mean="frozen"``.

    Outputs whose names ``input_names`` or ``plain`` take are prefixed with ``onesigma_``.

    Raises:
        ExportError: the graph cannot be written in ONNX, or gives other answers than PyTorch.
        PackageError: the packages of ``onesigma[onnx]`` are not installed.
    """
    path = Path(path)
    check_target(path, opset)
    _check_precision(converted)
    examples = _examples(converted, example_input)
    answer = converted(*examples)
    metadata = describe(converted, answer, class_names)
    fields = list(columns(answer))
    inputs = list(input_names or _input_names(converted.source, fields))
    names = _output_names(fields, inputs, plain)
    metadata |= {"outputs": names, "plain_output": plain and plain[0]}
    outputs = [*names.values(), *([] if plain is None else [plain[0]])]

    dynamic = _is_dynamic(converted)
    graph = _answering_graph(converted, examples, erf, fields.index("var"))
    if plain is not None:
        graph = beside(graph, prepare(plain[1], examples, "regression", None).graph)
    model = _write(graph, examples, Interface(opset, inputs, outputs, dynamic))
    model.metadata_props.add(key=METADATA_KEY, value=json.dumps(metadata))
    content = _checked(model, opset, erf)
    batches = [examples, tuple(x[:1] for x in examples)] if dynamic else [examples]
    error, runtime = largest_mismatch(content, converted, inputs, batches, names, plain)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return Exported(path, opset, len(model.graph.node), len(content), runtime, error)


def check_target(path: Path, opset: int) -> None:
    """Refuse a file that could not be written, before the work of making it."""
    if find_spec("onnx") is None:
        raise PackageError("Exporting needs onnx. Install it with: pip install 'onesigma[onnx]'")
    from onnx.defs import onnx_opset_version

    if path.suffix != ".onnx":
        raise InputError(f"{path.name}: a file name that ends in .onnx is needed.")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: create it first.")
    if not OLDEST_OPSET <= opset <= onnx_opset_version():
        raise InputError(f"opset={opset}: choose one of {OLDEST_OPSET} to {onnx_opset_version()}.")


def _check_precision(converted: Converted) -> None:
    half = {"float16", "bfloat16"} & set(converted.settings.input_dtypes)
    if half:
        raise ExportError(
            f"The model was moved to {half.pop()}, where variances underflow. Export it in float32 "
            "and keep float16 for the weights and convolutions: see docs/onnx.md."
        )


def _is_dynamic(converted: Converted) -> bool:
    return converted.settings.input_shapes[0][0] is None


def _examples(
    converted: Converted, given: Tensor | tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    """The user's inputs or random ones; at least two, for one would be taken for a constant."""
    if given is None:
        return _random_inputs(converted)
    inputs = tuple(converted.checked(given if isinstance(given, tuple) else (given,)))
    short = _is_dynamic(converted) and len(inputs[0]) < 2
    return tuple(torch.cat([x, x]) for x in inputs) if short else inputs


def _random_inputs(converted: Converted) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    device = next((t.device for t in converted.state_dict().values()), torch.device("cpu"))
    settings, inputs = converted.settings, []
    for shape, name in zip(settings.input_shapes, settings.input_dtypes, strict=True):
        dtype, sizes = getattr(torch, name), [3 if n is None else n for n in shape]
        real = dtype.is_floating_point
        x = torch.randn(sizes, generator=generator) if real else torch.zeros(sizes)
        inputs.append(x.to(device, dtype))
    return tuple(inputs)


def _input_names(source: fx.GraphModule, outputs: Sequence[str]) -> list[str]:
    """Those of the model's ``forward``."""
    names = [str(node.target) for node in source.graph.nodes if node.op == "placeholder"]
    return [f"{name}_input" if name in outputs else name for name in names]


def _output_names(
    fields: Sequence[str], inputs: Sequence[str], plain: tuple[str, nn.Module] | None
) -> dict[str, str]:
    """What each field of the prediction is called in the file."""
    taken = [*inputs, *([] if plain is None else [plain[0]])]
    names = {field: f"onesigma_{field}" if field in taken else field for field in fields}
    if len({*taken, *names.values()}) < len(taken) + len(names):
        raise InputError(f"Names of inputs and outputs must differ: {', '.join(taken)}.")
    return names


class _Answering(nn.Module):
    """A converted model as tensors in, tensors out: temperature and abstain rule included."""

    def __init__(self, converted: Converted, network: fx.GraphModule, erf: bool) -> None:
        super().__init__()
        self.network = network
        self.finished = converted.finished
        self.erf = erf

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.network(*inputs) if self.erf else WithoutErf(self.network).run(*inputs)
        return tuple(columns(self.finished(outputs)).values())


def _lean(converted: Converted, examples: tuple[Tensor, ...]) -> fx.GraphModule:
    """The network in fewer nodes, if there is something to gain."""
    settings, source = converted.settings, converted.source
    ops = {node.target for node in source.graph.nodes}
    if not SHORTENED & ops or (settings.mean, settings.variance) != ("matched", "full"):
        return converted.network
    remade = assemble(
        *(source, examples, converted.report, settings, converted.input_var), lean=True
    )
    return remade.network


def _answering_graph(
    converted: Converted, examples: tuple[Tensor, ...], erf: bool, var: int
) -> fx.GraphModule:
    """All that the file is to compute; where that is the network alone, nothing is traced."""
    network = _lean(converted, examples) if erf else converted.network
    finished = (converted.temperature, converted.abstain, converted.settings.mean)
    if not erf or finished != (None, None, "matched"):
        answering = _Answering(converted, network, erf)
        traced = capture.export(answering, examples, dynamic=_is_dynamic(converted))
        network = capture.plain_module(traced)
    graph = fx.Graph()
    outputs = list(graph.graph_copy(network.graph, {}))  # type: ignore[arg-type]
    # The head takes the root of var, and MNN does so in place: what it then returns as var is the
    # root. Abs of what is never negative puts the output in memory of its own.
    outputs[var] = graph.call_function(torch.ops.aten.abs.default, (outputs[var],))
    graph.output(tuple(outputs))
    return fx.GraphModule(network, graph)


def _write(graph: fx.GraphModule, examples: tuple[Tensor, ...], interface: Interface) -> Any:
    from onesigma.exporters.onnx.ops import UnwritableError
    from onesigma.exporters.onnx.writer import write

    try:
        return write(graph, examples, interface)
    except UnwritableError:
        return torch_onnx.write(graph, examples, interface)


def _checked(model: Any, opset: int, erf: bool) -> bytes:
    """The file's bytes, made sure to hold standard ops of that opset only."""
    from onnx.checker import check_model

    nodes = model.graph.node
    foreign = {f"{node.domain}.{node.op_type}" for node in nodes if node.domain}
    if not erf:
        foreign |= {node.op_type for node in nodes if node.op_type in ("Erf", "Gelu")}
    if foreign or model.functions:
        raise ExportError(f"Ops that the file must not contain: {', '.join(sorted(foreign))}.")
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if versions != {"": opset}:
        raise ExportError(f"The graph cannot be written in opset {opset}, only {versions}.")
    try:
        check_model(model, full_check=True)
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf's own classes too, for a file above 2 GB
        raise ExportError(f"The graph is no valid ONNX: {error}") from error
