"""The answering graph: a converted model as tensors in, named tensors out.

It is the network that was audited, with the temperature and the abstain rule behind it. Every
target writes this graph and its metadata, and knows nothing else of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from onesigma.converted import SOURCE, Converted, Inputs
from onesigma.errors import ExportError, InputError
from onesigma.graph import capture
from onesigma.graph.append import append
from onesigma.graph.prepare import prepare
from onesigma.importers.keras import as_module
from onesigma.prediction import Prediction
from onesigma.rules.corrections import Factors
from onesigma.runtime.model import FORMAT
from onesigma.version import __version__

aten = torch.ops.aten


@dataclass(frozen=True)
class Answering:
    """All that a target needs.

    Attributes:
        graph: tensors in, a tuple of tensors out.
        examples: inputs to trace and to compare it with.
        inputs: names of the inputs.
        outputs: for each field of ``Prediction`` that the graph returns, its name in the file.
        plain_output: the name of the original network's own output, which comes last; or None.
        metadata: how the model was made, as JSON holds it.
        dynamic: whether the batch is left open.
    """

    graph: fx.GraphModule
    examples: tuple[Tensor, ...]
    inputs: tuple[str, ...]
    outputs: dict[str, str]
    plain_output: str | None
    metadata: dict[str, Any]
    dynamic: bool

    @property
    def output_names(self) -> list[str]:
        return [*self.outputs.values(), *([self.plain_output] if self.plain_output else [])]


def make_answering(
    converted: Converted,
    example_input: Inputs | None = None,
    *,
    class_names: Sequence[str] | None = None,
    input_names: Sequence[str] | None = None,
    plain: tuple[str, nn.Module] | None = None,
) -> Answering:
    """What ``export`` writes; its docstring explains the options."""
    _require_full_precision(converted)
    examples = _examples(converted, example_input)
    answer = converted(*examples)
    columns = list(answer.arrays())
    inputs = tuple(_input_names(converted.source, columns) if input_names is None else input_names)
    _require_texts("input_names", inputs, len(examples))
    if plain is not None and (len(plain) != 2 or not isinstance(plain[0], str)):
        raise InputError(f"plain={plain!r}: give a name and the original model.")
    plain_output = None if plain is None else plain[0]
    outputs = _output_names(columns, inputs, plain_output)
    graph = _trace(converted, examples, columns.index("var"))
    if plain is not None:
        graph = _beside(graph, prepare(as_module(plain[1]), examples, "regression", None).graph)
    metadata = _describe(converted, answer, class_names)
    metadata |= {"outputs": outputs, "plain_output": plain_output}
    dynamic = converted.settings.dynamic_batch
    return Answering(graph, examples, inputs, outputs, plain_output, metadata, dynamic)


def _require_full_precision(converted: Converted) -> None:
    half = {"float16", "bfloat16"} & set(converted.settings.input_dtypes)
    if half:
        raise ExportError(
            f"The model was moved to {half.pop()}, where variances underflow. Export it in float32 "
            "and keep float16 for the weights and convolutions: see docs/onnx.md."
        )


def _examples(converted: Converted, given: Inputs | None) -> tuple[Tensor, ...]:
    """The user's inputs or random ones; at least two, because one would be taken as a constant."""
    if given is None:
        return _random_inputs(converted)
    inputs = tuple(converted.check_inputs(given))
    short = converted.settings.dynamic_batch and len(inputs[0]) < 2
    return tuple(torch.cat([x, x]) for x in inputs) if short else inputs


def _random_inputs(converted: Converted) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    device = next((t.device for t in converted.state_dict().values()), torch.device("cpu"))
    settings, inputs = converted.settings, []
    for shape, dtype in zip(settings.input_shapes, settings.dtypes, strict=True):
        sizes = [3 if n is None else n for n in shape]
        real = dtype.is_floating_point
        x = torch.randn(sizes, generator=generator) if real else torch.zeros(sizes)
        inputs.append(x.to(device, dtype))
    return tuple(inputs)


def _input_names(source: fx.GraphModule, outputs: Sequence[str]) -> list[str]:
    """Those of the model's ``forward``."""
    names = [str(node.target) for node in source.graph.nodes if node.op == "placeholder"]
    return [f"{name}_input" if name in outputs else name for name in names]


def _output_names(
    columns: Sequence[str], inputs: Sequence[str], plain_output: str | None
) -> dict[str, str]:
    taken = [*inputs, *([plain_output] if plain_output else [])]
    names = {column: f"onesigma_{column}" if column in taken else column for column in columns}
    if len({*taken, *names.values()}) < len(taken) + len(names):
        raise InputError(f"Names of inputs and outputs must differ: {', '.join(taken)}.")
    return names


def _require_texts(what: str, texts: Sequence[str], count: int) -> None:
    good = not isinstance(texts, str) and all(isinstance(text, str) for text in texts)
    if not good or len(texts) != count:
        raise InputError(f"{what}: {count} names are needed, one for each; got {texts!r}.")


class _Decided(nn.Module):
    """A converted model whose answer is a tuple: temperature and abstain rule included."""

    def __init__(self, converted: Converted) -> None:
        super().__init__()
        self.network = converted.network
        self.converted = (converted,)  # in a tuple, so that its weights are not listed twice

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        (converted,) = self.converted
        answer = converted.name_outputs(self.network(*inputs))
        return tuple(converted.decide(answer).arrays().values())


def _trace(converted: Converted, examples: tuple[Tensor, ...], var: int) -> fx.GraphModule:
    """All that a file computes; where that is the network alone, nothing is traced again."""
    network, settings = converted.network, converted.settings
    decides = (settings.temperature, settings.abstain, settings.interval, settings.keep_answer)
    if any(decides):
        decided = _Decided(converted)
        traced = capture.export(decided, examples, dynamic=settings.dynamic_batch)
        network = capture.plain_module(traced)
    graph = fx.Graph()
    outputs = list(graph.graph_copy(network.graph, {}))  # type: ignore[arg-type]
    # Where the head takes the root of var, MNN does so in place: what it then returns as var is the
    # root. Abs of what is never negative puts the output in memory of its own.
    if outputs[var].users:
        outputs[var] = graph.call_function(aten.abs.default, (outputs[var],))
    graph.output(tuple(outputs))
    return fx.GraphModule(network, graph)


def _beside(network: fx.GraphModule, plain: fx.GraphModule) -> fx.GraphModule:
    """A graph that computes both on the same inputs; the output of ``plain`` comes last.

    Writers share what both compute alike: in the energy form that is all of it, in moments what
    comes before the first dropout; the rest of the plain network is computed a second time.
    """
    inputs = [node for node in network.graph.nodes if node.op == "placeholder"]
    return append(network, plain, inputs, SOURCE)  # as the network calls the weights they share


def _describe(
    converted: Converted, answer: Prediction, class_names: Sequence[str] | None
) -> dict[str, Any]:
    """How the model was made. No path and no source line is among it."""
    if class_names is None:
        class_names = converted.settings.class_names or None
    if class_names is not None:
        _require_names_of_classes(class_names, answer)
    settings = converted.settings.to_dict()
    del settings["input_shapes"], settings["input_dtypes"]  # the graph itself says so
    settings["corrections"] = _brief_corrections(converted)
    sites = [
        {"node": site.node, "module": site.module, "op": site.op, "rate": site.rate}
        for site in converted.report.sites
    ]
    return {
        "format": FORMAT,
        "version": __version__,
        "noise_sites": sites,
        "covariance": converted.settings.covariance,
        "input_std": _input_std(converted.input_var),
        **settings,
        "class_names": None if class_names is None else list(class_names),
    }


def _brief_corrections(converted: Converted) -> dict[str, list[dict[str, Any]]]:
    """What was corrected, to four digits; of factors, which are many, only how many."""
    return {
        node: [
            {"kind": "Factors", "loadings": list(each.loadings.shape)}
            if isinstance(each, Factors)
            else {name: _brief(value) for name, value in each.to_dict().items()}
            for each in found
        ]
        for node, found in converted.settings.corrections.items()
    }


def _brief(value: Any) -> Any:
    if isinstance(value, list):
        return [_brief(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _input_std(input_var: Tensor | None) -> float | list[float] | dict[str, float] | None:
    """The input's standard deviation: a number, one per channel, or its range."""
    if input_var is None:
        return None
    std = input_var[0].sqrt()
    channels = std.flatten(1) if std.dim() > 1 else std.unsqueeze(1)
    if bool((channels == channels[:, :1]).all()):
        values = [float(value) for value in channels[:, 0]]
        return values[0] if len(set(values)) == 1 else values
    return {"min": float(std.min()), "max": float(std.max())}


def _require_names_of_classes(names: Sequence[str], answer: Prediction) -> None:
    if answer.probs is None:
        raise InputError("A regression model has no classes to name.")
    _require_texts("class_names", names, answer.probs.shape[answer.class_dim])
