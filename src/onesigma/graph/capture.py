"""Capture: from an ``nn.Module`` to a graph of high-level ATen ops, dropout sites included.

1. The user's model is never touched: a copy of its module tree is captured that SHARES its
   parameters and buffers, so that mode flags can be set freely.
2. Eval mode, and never ``run_decompositions``: decomposing turns eval dropout into a copy, and
   its rate would be gone.
3. The batch is dynamic. If the model fixes it, so does the capture, and the report says so.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from pathlib import PurePath
from traceback import walk_stack
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.overrides import TorchFunctionMode

from onesigma.errors import CaptureError, InputError, ModelError
from onesigma.graph.locate import describe, source_line
from onesigma.graph.wrap import Network, in_order
from onesigma.graph.write import NOTHING, Writer, write
from onesigma.rules.dropout import RATE_ARGUMENT
from onesigma.rules.table import RULES

DROPOUTS = {
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.dropout, torch.dropout_, torch.alpha_dropout, torch.feature_dropout),
}
RECURRENT = (
    *(torch.ops.aten.lstm.input, torch.ops.aten.gru.input),
    *(torch.ops.aten.rnn_tanh.input, torch.ops.aten.rnn_relu.input),
)
# Ops that hold a dropout, and the place of its rate among their arguments.
_HOLDERS = {torch.ops.aten.scaled_dot_product_attention.default: 4, **dict.fromkeys(RECURRENT, 5)}
ModuleT = TypeVar("ModuleT", bound=nn.Module)
# In training they would use the batch, or change what they have learnt.
_FIXED = (nn.modules.batchnorm._NormBase, nn.utils.parametrize.ParametrizationList)
_TALKATIVE = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
_HALF = (torch.float16, torch.bfloat16)
_LONGEST = 500  # letters of an error of torch.export
_BRANCH = re.compile(r'File "([^"]+)", line (\d+), in \w+\n *(.+)')
_AROUND = (nn.DataParallel, nn.parallel.DistributedDataParallel)


@dataclass(frozen=True)
class Captured:
    """A captured graph, the examples it was captured with, and what the user should know.

    ``model`` is a copy of the user's in eval mode on the same weights, to compare the graph with.
    ``rows_apart`` says that all noise was found and that each row of a batch draws its own.
    ``in_training`` says that the graph is that of training mode.
    ``input_names`` are those of inputs that were given by name.
    """

    model: nn.Module
    graph: fx.GraphModule
    examples: tuple[Tensor, ...]
    input_names: tuple[str, ...]
    dynamic_batch: bool
    rows_apart: bool
    notes: tuple[str, ...]
    in_training: bool = False


def capture(
    model: Any, example_input: Any, output: str | int | None = None, *, show_hidden: bool = True
) -> Captured:
    """Capture ``model`` in eval mode.

    ``example_input`` is a tensor, a tuple of tensors or a dict of them by the names of ``forward``;
    ``output`` says which one of several outputs is the answer. With ``show_hidden``, a graph of
    training mode, its noise off, if only that shows all of it.
    """
    model, notes = _as_network(model)
    notes += getattr(model, "notes", ())
    _require_finite(model)
    shared = shared_copy(model).eval()
    dtype = next((p.dtype for p in model.parameters() if p.dtype in _HALF), None)
    if dtype is not None:
        notes.append(f"weights are {dtype}: a float32 copy is used, because variances underflow")
        shared = own_copy(shared).float()
    names: tuple[str, ...] = ()
    if isinstance(example_input, Mapping):
        named = in_order(model, example_input)
        names, example_input = tuple(named), tuple(named.values())
    examples = _examples(example_input, shared)
    with buffers_restored(shared):
        shared, chosen = _answering(Network(shared, names, output), examples)
    with buffers_restored(shared):
        exported, dynamic = _export(shared, examples)
        notes += [*chosen, *_always_on(exported)]
        off, hidden, shown = _look_at_training(shared, examples, exported, dynamic, show_hidden)
        exported = shown or exported
    rows_apart = not hidden and all(_has_own_rows(n) for n in _nodes(exported) if is_site(n))
    notes = list(dict.fromkeys([*notes, *off, *hidden]))  # one line for many alike
    graph, in_training = plain_module(exported), shown is not None
    return Captured(shared, graph, examples, names, dynamic, rows_apart, tuple(notes), in_training)


def _as_network(model: Any) -> tuple[nn.Module, list[str]]:
    """The network in what was given, and what is lost with it.

    Raises:
        ModelError: there is none in it.
    """
    if isinstance(model, torch.export.ExportedProgram):
        if any(map(_draws, _nodes(model))):
            raise ModelError("The program was exported in training mode: call eval() before that.")
        return Program(plain_module(model)), [
            "an exported program: its noise is taken as found, what acts in training only and the "
            "names of its outputs are lost"
        ]
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    model = model.module if isinstance(model, _AROUND) else model
    if isinstance(model, torch.jit.ScriptModule):  # noqa: TID251  (to refuse it)
        raise ModelError(
            "The model is TorchScript, whose ops cannot be captured. Pass the nn.Module it was "
            "made of; if only the file is left, write it as ONNX first (docs/onnx.md)."
        )
    if isinstance(model, Mapping):
        raise ModelError(
            "The model is a dict of weights (a state_dict), no network. Make the network, call "
            "network.load_state_dict(weights) and pass the network."
        )
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"The model is a {type(model).__name__}, no nn.Module. Pass the network itself; files "
            "are read by onesigma.load, read_onnx and read_keras."
        )
    return model, []


class Program(nn.Module):
    """An exported program that returns one tensor as such, where its graph returns a tuple."""

    def __init__(self, program: fx.GraphModule) -> None:
        super().__init__()
        self.program = program

    def forward(self, *inputs: Tensor) -> Any:
        outputs = self.program(*inputs)
        return outputs[0] if len(outputs) == 1 else outputs


@contextmanager
def buffers_restored(model: nn.Module) -> Iterator[None]:
    """Undo what a run of the model writes into its buffers, which are the user's own.

    Raises:
        ModelError: it does write into one, so that its answer depends on what came before.
    """
    before = [(name, tensor, tensor.clone()) for name, tensor in model.named_buffers()]
    try:
        yield
        now = dict(model.named_buffers())
        changed = [name for name, _, old in before if not torch.equal(now.get(name, old), old)]
    finally:  # of a run that failed half way, too
        with torch.no_grad():
            for _, tensor, old in before:
                tensor.copy_(old)
    if changed:
        raise ModelError(
            f"The model changes its own state ({', '.join(changed)}) when it answers, in eval mode "
            "too: the same input would not get the same answer. Move that out of forward()."
        )


def export(
    model: nn.Module, examples: tuple[Tensor, ...], *, dynamic: bool
) -> torch.export.ExportedProgram:
    """``torch.export`` with the house settings."""
    # By tensor, so that forward(*args) works too.
    shapes: Any = torch.export.ShapesCollection()  # type: ignore[no-untyped-call]
    for example in examples:
        shapes[example] = {0: torch.export.Dim.AUTO} if dynamic else {}
    # Sizes are symbols, so that hardly any two calls are the same, and to look is slow.
    uncached = torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
    # When it fails, it prints the graph so far.
    with quiet(), redirect_stderr(StringIO()), _OwnOutputs(), _recurrent_by_shape(), uncached:
        program = torch.export.export(model, examples, dynamic_shapes=shapes, strict=False)
    program.graph.eliminate_dead_code(_acts)
    return program


@contextmanager
def _recurrent_by_shape() -> Iterator[None]:
    """Recurrent layers are traced by the shapes of their results alone.

    PyTorch takes them apart into the ops of every instant only to learn those, though the graph
    holds the layer whole: a window of a hundred instants then takes half a minute.
    """
    key, before = torch._C.DispatchKey.CompositeImplicitAutograd, dict[Any, Any]()
    for op in RECURRENT:
        before[op], op.py_kernels[key] = op.py_kernels[key], _recurrent_shapes
    try:
        yield
    finally:
        for op, kernel in before.items():
            op.py_kernels[key] = kernel


def _recurrent_shapes(x: Tensor, state: Any, *options: Any) -> tuple[Tensor, ...]:
    states = state if isinstance(state, list | tuple) else [state]
    *_, bidirectional, _ = options
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return x.new_empty(*x.shape[:-1], width), *(each.new_empty(each.shape) for each in states)


def _acts(node: fx.Node) -> bool:
    """Whether it does something even if nobody uses its value. To draw a random number does not."""
    return node.is_impure(impure_random=False)


def as_graph(model: nn.Module, examples: tuple[Tensor, ...], *, dynamic: bool) -> fx.GraphModule:
    """The graph of a module of ours: written as it runs, or exported where that does not tell."""
    written = write(model, examples, dynamic=dynamic)
    if written is not None:
        return written
    return plain_module(export(model, examples, dynamic=dynamic))


def plain_module(exported: torch.export.ExportedProgram) -> fx.GraphModule:
    """The exported graph as an ordinary module: tensors in, a tuple out, weights shared."""
    with quiet():
        module = exported.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    graph = module.graph
    graph.set_codegen(fx.graph.CodeGen())
    for node in list(graph.nodes):
        # A constant made by torch.tensor() arrives as a copy of itself; alias: see _OwnOutputs.
        if node.target in NOTHING:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        # The dtype at capture, asserted at run time, would forbid .double() and the like.
        elif node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    graph.eliminate_dead_code(_acts)
    # A module of our own: the exported one refuses .eval() and keeps constants off .to().
    return fx.GraphModule(module, graph)


class _OwnOutputs(TorchFunctionMode):
    """Most dropouts return their very input in eval mode, which tracing then takes for the output.

    Whatever used the input later, a residual, would be noisy. They get an alias of it instead.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in DROPOUTS and args:
            args = (torch.ops.aten.alias.default(args[0]), *args[1:])
        return func(*args, **(kwargs or {}))


def shared_copy(model: ModuleT) -> ModuleT:
    """A copy of the module tree on the same parameters and buffers."""
    return _copy_around(chain(model.parameters(), model.buffers()), model)


def training_copy(model: ModuleT, *, own_weights: bool = False) -> ModuleT:
    """A copy in training mode on the same parameters, its buffers its own. Norms stay in eval."""
    return _as_in_training(_copy_around(() if own_weights else model.parameters(), model))


def _as_in_training(model: ModuleT) -> ModuleT:
    model.train()
    for module in model.modules():
        hooks = module._forward_pre_hooks.values()
        if isinstance(module, _FIXED) or any(isinstance(hook, SpectralNorm) for hook in hooks):
            module.eval()
    return model


def own_copy(model: ModuleT) -> ModuleT:
    """A copy that shares no weights, in the same mode."""
    return _copy_around((), model)


def _copy_around(kept: Iterable[Tensor], model: ModuleT) -> ModuleT:
    """A copy of the module tree in which the tensors of ``kept`` are still themselves."""
    # Plain attributes too: the old weight_norm keeps a computed weight, which cannot be copied.
    plain = (value for module in model.modules() for value in vars(module).values())
    tensors = {id(t): t for t in chain(kept, plain) if isinstance(t, Tensor)}
    try:
        return copy.deepcopy(model, tensors)
    except Exception as error:
        raise CaptureError(
            f"The model cannot be copied ({error}). onesigma copies the module tree (not the "
            "weights) so as not to touch yours; drop what holds open files or hooks first."
        ) from error


def _require_finite(model: nn.Module) -> None:
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_meta:
            raise ModelError(f"{name} is on the meta device, without values: load weights first.")
        # A buffer may hold −∞ on purpose, as a mask.
        fit = torch.isfinite if isinstance(tensor, nn.Parameter) else lambda x: ~torch.isnan(x)
        if tensor.is_floating_point() and not bool(fit(tensor).all()):
            raise ModelError(
                f"{name} holds NaN or infinity: the training diverged or the file is bad."
            )


def _examples(example_input: Any, model: nn.Module) -> tuple[Tensor, ...]:
    given = example_input if isinstance(example_input, tuple | list) else (example_input,)
    if not given or not all(isinstance(x, Tensor) for x in given):
        kinds = ", ".join(type(x).__name__ for x in given) or "nothing"
        raise InputError(f"example_input must be a tensor or a tuple of tensors, not {kinds}.")
    if any(x.dim() == 0 for x in given):
        raise InputError("example_input must have a batch dimension first.")
    weight = next(chain(model.parameters(), model.buffers()), None)
    examples = []
    for x in given:
        if weight is not None:
            dtype = weight.dtype if x.is_floating_point() and weight.is_floating_point() else None
            x = x.to(weight.device, dtype)
        # A batch of one would be taken for a constant.
        examples.append(x.detach().repeat([2] + [1] * (x.dim() - 1)) if len(x) == 1 else x.detach())
    return tuple(examples)


def _answering(network: Network, examples: tuple[Tensor, ...]) -> tuple[nn.Module, list[str]]:
    """The network as one of tensors in, one tensor out, and a note if that one was chosen here."""
    shapes = ", ".join(f"{tuple(x.shape)} {x.dtype}" for x in examples)
    try:
        answer = network.run(*examples)
    except Exception as error:
        raise InputError(
            f"The model does not run on the example input ({shapes}): {error}\n"
            "Pass an example shaped like a real batch, the batch first."
        ) from error
    if not network.names and network.output is None and isinstance(answer, Tensor):
        network.pick(answer)
        return network.model, []
    name, _ = network.pick(answer)
    taken = f"of what the model returns {name} is taken, its one floating-point tensor"
    return network, [taken] if network.output is None and name else []


def _export(
    model: nn.Module, examples: tuple[Tensor, ...]
) -> tuple[torch.export.ExportedProgram, bool]:
    with suppress(Exception):
        exported = export(model, examples, dynamic=True)
        return exported, _has_dynamic_batch(exported)
    try:
        return export(model, examples, dynamic=False), False
    except Exception as error:
        raise CaptureError(_why(str(error))) from error


def _why(error: str) -> str:
    """What torch.export says in a page, in a sentence."""
    if "data-dependent" not in error:
        return (
            f"torch.export cannot capture this model: {error[:_LONGEST]}\n"
            "Data-dependent Python control flow is the usual cause; write it with torch.where or "
            "move it out of forward()."
        )
    at = _BRANCH.findall(error)
    where = f", in {PurePath(at[-1][0]).name}:{at[-1][1]}: {at[-1][2].strip()!r}" if at else ""
    return (
        f"The model branches on the values of its input{where}. A graph has one way for all "
        "inputs: write it with torch.where, or move it out of forward()."
    )


def _has_dynamic_batch(exported: torch.export.ExportedProgram) -> bool:
    names = set(exported.graph_signature.user_inputs)
    inputs = [n for n in exported.graph.find_nodes(op="placeholder") if n.name in names]
    return all(isinstance(n.meta["val"].shape[0], torch.SymInt) for n in inputs)


def _always_on(exported: torch.export.ExportedProgram) -> list[str]:
    """Dropout that is on in eval mode is a site like any other; other random numbers are refused.

    Raises:
        ModelError: the model draws random numbers in eval mode that are no dropout.
    """
    nodes = _nodes(exported)
    drawing = [describe(node) for node in nodes if not is_site(node) and _draws(node)]
    if drawing:
        raise ModelError(
            f"The model draws random numbers in eval mode ({', '.join(drawing)}): its own answer "
            "changes from call to call. Draw them only `if self.training:`, or write the noise as "
            "dropout, which is carried."
        )
    return [
        f"{describe(node)} is on in eval mode, too: it is carried like any other dropout"
        for node in nodes
        if is_site(node) and _draws(node)
    ]


def _look_at_training(
    model: nn.Module,
    examples: tuple[Tensor, ...],
    exported: torch.export.ExportedProgram,
    dynamic: bool,
    show_hidden: bool,
) -> tuple[list[str], list[str], torch.export.ExportedProgram | None]:
    """What training mode tells of the noise: two lists of notes, and its graph if that has it all.

    Dropout behind ``if self.training:``, that of attention and of recurrent layers, random masks
    written by hand: the training-mode graph is compared with the one of eval mode.
    """
    sites = [node for node in _nodes(exported) if is_site(node)]
    if _trains_alike(model, examples, sites):
        return [], [], None
    training = _export_training(model, examples, dynamic=dynamic and show_hidden)
    if training is None:
        unseen = "dropout hidden behind `if self.training:` would go unseen"
        return [], [f"the training-mode graph cannot be captured: {unseen}"], None
    off, hidden = _noise_not_carried(model, sites, _nodes(training))
    if hidden and show_hidden and not is_captured(model) and _shows_all(training, dynamic):
        return off, [], training
    return off, hidden, None


def _export_training(
    model: nn.Module, examples: tuple[Tensor, ...], *, dynamic: bool
) -> torch.export.ExportedProgram | None:
    for open_batch in (True, False) if dynamic else (False,):
        with suppress(Exception):
            training = _as_in_training(shared_copy(model))
            return export(training, examples, dynamic=open_batch)
    return None


def _noise_not_carried(
    model: nn.Module, sites: list[fx.Node], nodes: list[fx.Node]
) -> tuple[list[str], list[str]]:
    """Dropout that is off in training mode, too, and noise that only training mode shows."""
    hidden = Counter(_place(n) for n in nodes if is_site(n)) - Counter(map(_place, sites))
    off = _switch_off(model, sites, {_place(n) for n in nodes if is_site(n) and _draws(n)})
    return off, [
        *(
            f"{place} runs only in training mode and is NOT carried; write it as "
            "F.dropout(x, p, self.training)"
            for place in hidden.elements()
        ),
        *(
            f"{describe(node)} draws random numbers in training mode; this noise is NOT carried"
            for node in nodes
            if not is_site(node) and _draws(node)
        ),
    ]


def _shows_all(training: torch.export.ExportedProgram, dynamic: bool) -> bool:
    """Whether all that is random in the graph of training mode is dropout.

    That of attention's weights, between recurrent layers and behind ``if self.training:`` is there
    to be seen. It is switched off later (``expand``).
    """
    random = [node for node in _nodes(training) if _draws(node)]
    for node in _nodes(training):
        if is_site(node) and node not in random:  # F.dropout(x, p, False)
            node.update_arg(RATE_ARGUMENT, 0.0)
    known = bool(random) and all(is_site(node) or held_rate(node) for node in random)
    return known and _has_dynamic_batch(training) == dynamic


def held_rate(node: fx.Node) -> float:
    """The rate of a dropout that another op holds: between recurrent layers, in attention."""
    if node.target not in _HOLDERS or is_site(node):
        return 0.0
    place = _HOLDERS[node.target]
    rate = node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)
    one_layer = node.target in RECURRENT and node.args[4] == 1
    return 0.0 if one_layer else float(rate)  # type: ignore[arg-type]


def _trains_alike(model: nn.Module, examples: tuple[Tensor, ...], sites: list[fx.Node]) -> bool:
    """Whether a run in training mode draws at all of these sites, and nowhere else."""
    try:
        training = training_copy(model, own_weights=True)  # it may write into them
        writer = _WithLines(training)
        with torch.random.fork_rng([x.device for x in examples[:1] if x.is_cuda]):
            writer.run(training, [x[:2] for x in examples])
    except Exception:  # a closer look then says why
        return False
    drawing = [node for node in writer.graph.nodes if _draws(node)]
    return all(map(is_site, drawing)) and Counter(map(_line, drawing)) == Counter(map(_line, sites))


class _WithLines(Writer):  # type: ignore[no-untyped-call]
    """A writer that notes the source lines of ops that may draw, in the form of torch.export."""

    def step(self, op: str, target: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> fx.Node:
        node = super().step(op, target, args, kwargs)
        if _draws(node):
            frames = [frame for frame, _ in walk_stack(None) if frame.f_code.co_name == "forward"]
            lines = (f'File "{f.f_code.co_filename}", line {f.f_lineno}' for f in frames[::-1])
            node.meta["stack_trace"] = "\n".join(lines)
        return node


def _line(site: fx.Node) -> tuple[object, ...]:
    return source_line(site), functional_form(site.target), site.args[RATE_ARGUMENT]


def _switch_off(model: nn.Module, sites: list[fx.Node], acting: set[str]) -> list[str]:
    """Dropout that is off in training too, F.dropout(x, p, False), is no noise: its rate is 0."""
    if is_captured(model):
        return []
    off = [node for node in sites if _place(node) not in acting and rate_of(node)]
    notes = [f"{_place(node)} is off in training mode, too: it adds no noise" for node in off]
    for node in off:
        node.update_arg(RATE_ARGUMENT, 0.0)
    return notes


def is_captured(model: nn.Module) -> bool:
    """Whether it is a graph of eval mode already, whose flags say nothing of training."""
    return any(isinstance(module, fx.GraphModule) for module in model.modules())


def _has_own_rows(site: fx.Node) -> bool:
    shape = site.meta["val"].shape
    return len(shape) > 0 and isinstance(shape[0], torch.SymInt)


def _nodes(exported: torch.export.ExportedProgram) -> list[fx.Node]:
    """All nodes, of nested graphs too."""
    graphs = [m.graph for m in exported.graph_module.modules() if isinstance(m, fx.GraphModule)]
    return [node for graph in graphs for node in graph.nodes]


def _place(site: fx.Node) -> str:
    return f"{describe(site).replace('dropout_', 'dropout')} p={site.args[RATE_ARGUMENT]}"


def _draws(node: fx.Node) -> bool:
    """Whether the op draws random numbers with these arguments."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [argument.name for argument in target._schema.arguments]
    given = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    given |= dict(zip(names, node.args, strict=False)) | node.kwargs
    if "num_layers" in given:  # a recurrent layer, whose dropout stands between its layers
        return bool(given["train"] and given["dropout"] and given["num_layers"] != 1)
    switches = [given[name] for name in ("dropout_p", "train", "training") if name in given]
    return all(switches)


def is_site(node: fx.Node) -> bool:
    """Whether the node is a source of noise (in its in-place form too)."""
    if node.op != "call_function":
        return False
    rule = RULES.get(functional_form(node.target))
    return rule is not None and rule.adds_noise


def rate_of(site: fx.Node) -> float:
    """The share of its input that a dropout drops."""
    return float(site.args[RATE_ARGUMENT])  # type: ignore[arg-type]


def functional_form(target: Any) -> Any:
    """``aten.relu.default`` for ``aten.relu_.default``; any other target as it is."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return target
    packet = target._schema.name.removeprefix("aten::")
    functional = getattr(torch.ops.aten, packet.removesuffix("_"), None)
    return getattr(functional, target._overloadname, target) if packet.endswith("_") else target


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Exporters warn and log about their own internals. Nothing in it is for the user to act on."""
    loggers = [logging.getLogger(name) for name in names or _TALKATIVE]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)  # of those below it, too
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
