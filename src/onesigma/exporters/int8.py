"""Eight bits: the layers of an exported model with 8-bit weights and activations, as QDQ.

    real value = scale · (q − zero)      activations: uint8, one scale and zero for each tensor
                                         weights: int8, zero 0, one scale for each filter
                                         biases: int32, scale that of the input times the weights'

The cut is found in the graph: the layers are what ``mean`` is computed from. All else stays float:
the head, the guard, which reads the input as it is, temperature and rule. So does the last layer if
it is small, and the first if rounding the inputs is most of the error; for ONNX Runtime also what
it is slower at in eight bits, and first layers without which it is not close. Ranges are those with
the least squared error on the examples, and each layer's bias is shifted by the mean error of its
outputs there. Nothing is trained again.

Many processors of PCs add two products of 8 bits in 16 and cut what does not fit. No sum of two
neighbours among the weights is therefore larger than what always fits: the file means the same
everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from onesigma.errors import ExportError, InputError, PackageError, install
from onesigma.exporters.folding import Array, attributes, fold, nodes_before, readers, replace_graph
from onesigma.exporters.head_weights import shrink
from onesigma.runtime.comparison import checking_runtime
from onesigma.runtime.model import METADATA_KEY

_LAYERS = ("Conv", "Gemm", "MatMul")
_JOINS = ("Add", "Mul", "Concat")
_COMPUTE = ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid")
_WHOLE = ("Conv", "AveragePool", "GlobalAveragePool", *_JOINS)  # integers in, integers out
# What moves values about keeps their scale, so that runtimes move the integers.
_MOVES = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")
_CLAMPS = ("Relu", "Clip")  # part of the layer before them: the range does it
FEWEST = 32  # examples
MOST_KL, LEAST_SPREAD, MOST_SPREAD = 0.005, 0.9, 1.1
_GOOD_KL = 3e-4  # on the examples; on other inputs it is two or three times as much
_MOST_SKIPPED = 0.1  # of the weights, in first layers that stay float
_BATCH = 32
_MOST, _FEW = 256, 96  # examples that ranges, and that biases are measured on
_SAMPLES = 50_000  # values of a tensor that its range is chosen by
_SHARES = np.linspace(0.4, 1, 13)  # of the largest values, that a range may end at
_SMALL = 4096  # weights of a last layer that stays float: 16 kB
_PAIR = 127  # two rounded weights: 128 at most, and 128 · 255 fits in 16 bits
_MOST_OF_IT = 0.5  # of the squared error
_LARGEST_BIAS = 2**30


class Level(NamedTuple):
    """What the integers of a tensor stand for."""

    scale: float
    zero: int


@dataclass(frozen=True)
class Fidelity:
    """How far eight bits are from float, on the examples.

    Attributes:
        inputs: how many were compared.
        kl: mean KL(float ‖ int8) of the probabilities, in nats.
        spread: median of std int8 / std float.
        labels: share of the inputs with the same most probable class.
        change: the largest change of a probability.
    """

    inputs: int
    kl: float
    spread: float
    labels: float
    change: float

    def __str__(self) -> str:
        return (
            f"int8 against float on {self.inputs} inputs: KL {self.kl:.2g}, spread × "
            f"{self.spread:.3f}, {100 * self.labels:.1f} % of the labels the same, probabilities "
            f"within {self.change:.2g}"
        )


def quantise(
    model: onnx.ModelProto, examples: Sequence[Array], *, onnx_runtime: bool = False
) -> onnx.ModelProto:
    """The model with its layers in eight bits; inputs, outputs and metadata are the same.

    Args:
        model: what ``make_model`` wrote, or another classifier with one output.
        examples: a batch for each input, on which ranges are measured.
        onnx_runtime: leave float what ONNX Runtime computes faster so, and store the head's weights
            in eight bits, which it makes floats of at load. C has no gain by either.
    """
    _require_examples(examples)
    folded = fold(model)
    few, end = [x[:_MOST] for x in examples], _end(model)
    plan = partial(_Quantiser, folded, end, few, quick=onnx_runtime)
    if plan().suffers_from_inputs():
        plan = partial(plan, first=False)
    if not onnx_runtime:
        quantiser = plan()
        quantiser.correct_biases()
        return quantiser.build()
    made = _close_enough(plan, few)
    shrink(made, _fields(made))
    return made


def _close_enough(plan: Callable[..., _Quantiser], examples: Sequence[Array]) -> onnx.ModelProto:
    """With as few of the first layers in float as bring it close, if it is not close by itself.

    They have few weights and large outputs, which take long to round; and in networks of many thin
    layers most of the error comes from them.
    """

    def attempt(skip: int) -> tuple[onnx.ModelProto, bool]:
        quantiser = plan(skip=skip)
        quantiser.correct_biases()
        made = quantiser.build()
        return made, quantiser.divergence(made, examples) <= _GOOD_KL

    made, good = attempt(0)
    low, most = 0, plan().most_skipped()
    if good or not most:
        return made
    made, _ = attempt(most)
    while most - low > 1:
        middle = (low + most) // 2
        tried, good = attempt(middle)
        if good:
            made, most = tried, middle
        else:
            low = middle
    return made


def require_close(found: Fidelity) -> None:
    """Refuse what eight bits change too much.

    Raises:
        ExportError: it is beyond a limit.
    """
    if found.kl > MOST_KL or not LEAST_SPREAD <= found.spread <= MOST_SPREAD:
        raise ExportError(
            f"Eight bits change the answers too much. {found}. The limits are KL {MOST_KL:g} and "
            f"spread × {LEAST_SPREAD:g} to {MOST_SPREAD:g}. Nothing was written. Give some hundred "
            "real inputs as example_input, on which ranges are measured, or export without int8."
        )


def _require_examples(examples: Sequence[Array]) -> None:
    if find_spec("onnxruntime") is None:
        raise PackageError(f"int8 needs onnxruntime: {install('onnx')}")
    if len(examples[0]) < FEWEST:
        raise InputError(
            f"int8 measures ranges on real inputs: give {FEWEST} or more as example_input, better "
            f"{_MOST}; got {len(examples[0])}."
        )
    if any(x.dtype == np.float64 for x in examples):
        raise ExportError("int8 starts from a model in float32: move it there first.")


def compare(
    model: onnx.ModelProto, quantised: onnx.ModelProto, examples: Sequence[Array]
) -> Fidelity:
    """Both on the same inputs, as the runtime runs them."""
    names = _fields(model)
    wanted, found = (
        run(each, examples, [names["probs"], names["var"]]) for each in (model, quantised)
    )
    p, q = (np.maximum(each[names["probs"]], 1e-12).astype(np.float64) for each in (wanted, found))
    spreads = [np.sqrt(np.maximum(each[names["var"]], 1e-30)) for each in (wanted, found)]
    return Fidelity(
        inputs=len(p),
        kl=float((p * np.log(p / q)).sum(-1).mean()),
        spread=float(np.median(spreads[1].mean(-1) / spreads[0].mean(-1))),
        labels=float((p.argmax(-1) == q.argmax(-1)).mean()),
        change=float(np.abs(p - q).max()),
    )


def run(
    model: onnx.ModelProto, examples: Sequence[Array], names: Sequence[str]
) -> dict[str, Array]:
    """These values of the graph, for all the examples."""
    parts = list(_batches(model, examples, names))
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _batches(
    model: onnx.ModelProto, examples: Sequence[Array], names: Sequence[str]
) -> Iterator[dict[str, Array]]:
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.node[:], exposed.graph.output[:]
    exposed.graph.node.extend(nodes_before(names, model.graph.node))
    exposed.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    session = checking_runtime()[1](exposed.SerializeToString())
    inputs = [each.name for each in model.graph.input]
    for start in range(0, len(examples[0]), _BATCH):
        batch = (x[start : start + _BATCH] for x in examples)
        values = session.run(list(names), dict(zip(inputs, batch, strict=True)))
        yield dict(zip(names, values, strict=True))


def _fields(model: onnx.ModelProto) -> Mapping[str, str]:
    text = {entry.key: entry.value for entry in model.metadata_props}.get(METADATA_KEY)
    outputs: dict[str, str] = {} if text is None else json.loads(text)["outputs"]
    return outputs


def _end(model: onnx.ModelProto) -> str:
    """The output that the layers make: the mean, or what a plain network answers."""
    return _fields(model).get("mean", model.graph.output[0].name)


class _Quantiser:
    """The plan of one model: which values are rounded, how, and by what weights."""

    def __init__(
        self,
        model: onnx.ModelProto,
        end: str,
        examples: Sequence[Array],
        *,
        quick: bool = False,
        first: bool = True,
        skip: int = 0,
    ) -> None:
        self.model, self.examples = model, examples
        graph = model.graph
        self.inputs = {each.name for each in graph.input}
        self.constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        self.count = readers(graph.node, graph)
        self.makers = {name: node for node in graph.node for name in node.output}
        self.end, self.region = end, nodes_before([end], graph.node)
        self.raw = {*self.inputs}  # inputs, also if they were moved
        self.raw |= {
            n.output[0] for n in self.region if n.op_type in _MOVES and n.input[0] in self.raw
        }
        layers = [node for node in self.region if self._is_layer(node)]
        self.layers = [node for node in layers if not self._stays_float(node, layers, first)]
        if quick:
            self.layers = self._quick(self.layers) or self.layers
        self.layers = self.layers[skip:]
        if not self.layers:
            raise ExportError("int8: the network has no convolution or linear layer to quantise.")
        self.same: dict[str, str]  # a value that was only moved → whose scale it has
        self.rounded = self._rounded()
        self.levels = self._measure()
        self.biases = {node.output[0]: self._bias(node) for node in self.layers}

    def _is_layer(self, node: onnx.NodeProto) -> bool:
        if node.op_type not in _LAYERS or not all(n in self.constants for n in node.input[1:]):
            return False
        known = attributes(node)
        usual = known.get("alpha", 1.0) == known.get("beta", 1.0) == 1.0 and not known.get("transA")
        weight, *bias = (self.constants[n] for n in node.input[1:])
        return usual and weight.ndim > 1 and all(each.ndim == 1 for each in bias)

    def _stays_float(
        self, node: onnx.NodeProto, layers: Sequence[onnx.NodeProto], first: bool
    ) -> bool:
        """The last layer, if it is small; those that read inputs, unless ``first``."""
        if node.input[0] in self.raw and not first:
            return True
        small = self.constants[node.input[1]].size <= _SMALL
        return node is layers[-1] and len(layers) > 1 and small

    def _quick(self, layers: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Without those that ONNX Runtime computes faster in float, as measured on EEGNet.

        Its depthwise convolutions with integers are for one filter for each channel. With several,
        each channel is a small product of matrices: 7 times as long as in float. What is then left
        between inputs and such a layer would be rounded, only to be made float again.
        """
        kept = [node for node in layers if not self._has_several_filters(node)]
        whole = {node.output[0] for node in kept}

        def is_alone(node: onnx.NodeProto) -> bool:
            users = [each for each in self.region if node.output[0] in each.input]
            float_layers = (n.op_type in _LAYERS and n.output[0] not in whole for n in users)
            small = self.constants[node.input[1]].size <= _SMALL
            return node.input[0] in self.raw and small and bool(users) and all(float_layers)

        return [node for node in kept if not is_alone(node)]

    def _has_several_filters(self, node: onnx.NodeProto) -> bool:
        """Whether it is a convolution of each channel by itself, to more than one."""
        filters, channels, *_ = self.constants[node.input[1]].shape
        return bool(channels == 1 and 1 < attributes(node).get("group", 1) < filters)

    def suffers_from_inputs(self) -> bool:
        """Whether most of the error at the end is there if nothing but the inputs is rounded.

        So it is with inputs of a few very large values: eight bits are too few for all others.
        """
        first = [node for node in self.layers if node.input[0] in self.raw]
        if len(first) in (0, len(self.layers)):
            return False
        plan = self.rounded, self.layers
        whole = self._error()
        self.rounded, self.layers = {n: None for n in self.rounded if n in self.raw}, []
        alone = self._error()
        self.rounded, self.layers = plan
        return alone > _MOST_OF_IT * whole

    def most_skipped(self) -> int:
        """How many of the first layers may be float: those with a small share of the weights."""
        sizes = np.cumsum([self.constants[node.input[1]].size for node in self.layers])
        return int(np.searchsorted(sizes, _MOST_SKIPPED * sizes[-1], "right"))

    def divergence(self, made: onnx.ModelProto, examples: Sequence[Array]) -> float:
        """Mean KL of the network's own answers, float ‖ int8."""
        p, q = (_as_probs(run(m, examples, [self.end])[self.end]) for m in (self.model, made))
        return float((p * np.log(p / q)).sum(1).mean())

    def _error(self) -> float:
        """Mean squared, of what the layers make."""
        models = (self.model, self.build())
        wanted, found = (run(each, self.examples, [self.end])[self.end] for each in models)
        return float(np.square(found - wanted).mean())

    def _activations(self, node: onnx.NodeProto) -> list[str]:
        return [name for name in node.input if name and name not in self.constants]

    def _is_integer(self, node: onnx.NodeProto, rounded: dict[str, None]) -> bool:
        """Whether runtimes compute it with integers."""
        own = self._activations(node)
        if node.op_type in _LAYERS:
            return any(node is layer for layer in self.layers)
        if node.op_type in _JOINS:
            return len(own) == len(node.input) and any(self._is_ready(n, rounded) for n in own)
        kinds = (*_COMPUTE, *_MOVES, *_CLAMPS)
        return node.op_type in kinds and self._is_ready(own[0], rounded)

    def _is_ready(self, name: str, rounded: dict[str, None]) -> bool:
        return name in rounded or (name in self.makers and self._is_clamped(self.makers[name]))

    def _is_clamped(self, node: onnx.NodeProto) -> bool:
        """Whether the next op only cuts its output at 0, or at both ends."""
        out = node.output[0]
        users = [each for each in self.region if out in each.input]
        return self.count[out] == 1 and len(users) == 1 and users[0].op_type in _CLAMPS

    def _rounded(self) -> dict[str, None]:
        """The values to round, in order."""
        rounded, integer = dict[str, None](), dict[str, onnx.NodeProto]()
        for node in self.region:
            if self._is_integer(node, rounded):
                integer[node.output[0]] = node
                own = [n for n in self._activations(node) if not self._is_ready(n, {})]
                rounded |= dict.fromkeys(own)
                if not self._is_clamped(node) and node.output[0] != self.end:
                    rounded[node.output[0]] = None
        self._leave_float(rounded, integer)
        self.integer = {*integer}
        moved = [node for node in integer.values() if node.op_type in _MOVES]
        self.same = {node.output[0]: node.input[0] for node in moved if node.output[0] in rounded}
        return rounded

    def _leave_float(self, rounded: dict[str, None], integer: dict[str, onnx.NodeProto]) -> None:
        """Do not round what only float ops read, unless its own op needs that to be of integers."""
        for node in reversed(self.region):
            name, maker = node.output[0], node
            if node.op_type in _CLAMPS and self._is_ready(node.input[0], {}):
                maker = self.makers[node.input[0]]
            alone = maker is node and node.op_type not in _WHOLE
            needs = maker.output[0] in integer and not alone
            read = any(name in each.input for each in integer.values())
            if name in rounded and not read and not needs:
                del rounded[name]
                if node.op_type not in _LAYERS:  # these read integers all the same
                    integer.pop(name, None)

    def _measure(self) -> dict[str, Level]:
        """The level of each value: the range with the least squared error."""
        own = [name for name in self.rounded if name not in self.same]
        size = -(-len(self.examples[0]) // _BATCH)
        seen: dict[str, list[Array]] = {name: [] for name in own}
        for batch in _batches(self.model, self.examples, own):
            for name, value in batch.items():
                flat = value.ravel()
                step = max(1, flat.size * size // _SAMPLES)
                ends = np.array([flat.min(), flat.max()], np.float32)
                seen[name].append(np.concatenate([ends, flat[::step]]))
        levels = {name: _level(np.concatenate(parts)) for name, parts in seen.items()}
        for name, origin in self.same.items():
            levels[name] = levels[origin]
        return levels

    def _bias(self, node: onnx.NodeProto) -> Array:
        if len(node.input) > 2:
            return np.array(self.constants[node.input[2]], np.float64)
        weight = self.constants[node.input[1]]
        return np.zeros(weight.shape[self._axis(node)])

    @staticmethod
    def _axis(node: onnx.NodeProto) -> int:
        """Of the filters, in the weights."""
        return 0 if node.op_type == "Conv" or attributes(node).get("transB") else 1

    def correct_biases(self) -> None:
        """Layer by layer, the mean error of each channel is taken from its bias."""
        self.examples = [x[:_FEW] for x in self.examples]
        names = [node.output[0] for node in self.layers if node.op_type != "MatMul"]
        wanted = self._channel_means(self.model, names)
        for name in names:
            found = self._channel_means(self.build(), [name])
            self.biases[name] += wanted[name] - found[name]

    def _channel_means(self, model: onnx.ModelProto, names: Sequence[str]) -> dict[str, Array]:
        sums = dict.fromkeys(names, np.zeros(()))
        for batch in _batches(model, self.examples, names):
            for name, value in batch.items():
                space = tuple(range(2, value.ndim))
                sums[name] = sums[name] + value.mean(space, dtype=np.float64).sum(0)
        return {name: total / len(self.examples[0]) for name, total in sums.items()}

    def build(self) -> onnx.ModelProto:
        """The model as it is planned by now."""
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        constants, nodes = dict(self.constants), list[onnx.NodeProto]()
        inside = {node.output[0] for node in self.region}
        layers = {node.output[0]: node for node in self.layers}
        for name in self.rounded:
            if name in self.inputs:
                nodes += self._round(name, constants)
        for node in made.graph.node:
            name = node.output[0]
            if name in layers:
                nodes += self._eight_bits(node, constants)
            for place, read in enumerate(node.input):
                # Outside of the layers, what was made in float is read as it is: above all inputs.
                if read in self.rounded and (read in self.integer or name in inside):
                    node.input[place] = f"{read}:8"
            nodes.append(node)
            for made_here in node.output:
                if made_here in self.rounded:
                    nodes += self._round(made_here, constants)
        replace_graph(made, nodes, constants)
        return made

    def _round(self, name: str, constants: dict[str, Array]) -> list[onnx.NodeProto]:
        level = [f"{name}:s", f"{name}:z"]
        scale, zero = self.levels[name]
        constants |= {level[0]: np.array(scale, np.float32), level[1]: np.array(zero, np.uint8)}
        return [
            helper.make_node("QuantizeLinear", [name, *level], [f"{name}:q"]),
            helper.make_node("DequantizeLinear", [f"{name}:q", *level], [f"{name}:8"]),
        ]

    def _eight_bits(
        self, node: onnx.NodeProto, constants: dict[str, Array]
    ) -> list[onnx.NodeProto]:
        """Let a layer read integers for its weights and its bias."""
        axis, out = self._axis(node), node.output[0]
        weight = np.moveaxis(self.constants[node.input[1]], axis, 0)
        scale = self.levels[node.input[0]].scale
        bias = self.biases[out]
        least = np.abs(bias) / (scale * _LARGEST_BIAS)
        steps = np.maximum(_steps(weight), np.maximum(least, 1e-30)).astype(np.float32)
        along = np.expand_dims(steps, tuple(range(1, weight.ndim)))
        whole = np.moveaxis(np.rint(weight / along).astype(np.int8), 0, axis)
        zeros = f"{out}:wz"
        constants |= {f"{out}:wq": np.ascontiguousarray(whole), f"{out}:ws": steps}
        constants[zeros] = np.zeros(len(steps), np.int8)  # ONNX Runtime wants them said
        made = [
            helper.make_node(
                "DequantizeLinear", [f"{out}:wq", f"{out}:ws", zeros], [f"{out}:w8"], axis=axis
            )
        ]
        node.input[1] = f"{out}:w8"
        if node.op_type == "MatMul":
            return made
        step = (np.float32(scale) * steps).astype(np.float32)
        constants |= {f"{out}:bq": np.rint(bias / step).astype(np.int32), f"{out}:bs": step}
        made.append(
            helper.make_node("DequantizeLinear", [f"{out}:bq", f"{out}:bs"], [f"{out}:b8"], axis=0)
        )
        node.input[:] = [*node.input[:2], f"{out}:b8"]
        return made


def _as_probs(answers: Array) -> Array:
    """Of logits their softmax; probabilities as they are. Never 0."""
    given = answers.astype(np.float64)
    if given.min() < 0 or not np.allclose(given.sum(1), 1, atol=1e-3):
        given = np.exp(given - given.max(1, keepdims=True))
        given /= given.sum(1, keepdims=True)
    return np.maximum(given, 1e-12)


def _level(values: Array) -> Level:
    """The range, 0 included, whose rounding and cutting has the least squared error."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if low == high:
        return Level(1.0, 0)
    candidates = [_between(share * low, share * high) for share in _SHARES]
    if low < 0 < high:
        candidates += [_between(low, share * high) for share in _SHARES]
        candidates += [_between(share * low, high) for share in _SHARES]
    return min(candidates, key=lambda level: _squared_error(values, level))


def _between(low: float, high: float) -> Level:
    scale = (high - low) / 255
    return Level(float(np.float32(scale)), round(-low / scale))


def _squared_error(values: Array, level: Level) -> float:
    whole = np.clip(np.rint(values / level.scale) + level.zero, 0, 255)
    return float(np.square(level.scale * (whole - level.zero) - values).mean())


def _steps(weight: Array) -> Array:
    """For each filter, what one step is worth: no two neighbours add up to more than ``_PAIR``.

    Neighbours as runtimes lay them out: the positions of a channel, or the channels of a position.
    """
    orders = [weight, np.moveaxis(weight, 1, -1)]
    largest = []
    for order in orders:
        rows = order.reshape(len(weight), -1).astype(np.float64)
        pairs = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2))).reshape(len(rows), -1, 2)
        for sign in (1, -1):
            largest.append(np.maximum(sign * pairs, 0).sum(-1).max(1))
    return np.asarray(np.max(largest, 0) / _PAIR)
