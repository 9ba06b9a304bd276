"""Who is measured: the plain network, one pass in each form, and what one pass stands in for.

They are made of the paper's network or of a saved model; or they are ONNX files as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onesigma.conversion import DRAWS, SAMPLING, assemble, convert, starting_corrections
from onesigma.converted import MOMENTS, Converted, Settings
from onesigma.errors import FileError, InputError, PackageError, UnsupportedOp, install
from onesigma.fitting import FEWEST, fit
from onesigma.graph.flow import trace_noise
from onesigma.lab.bench import programs
from onesigma.lab.bench.programs import Program, behind_runs, class_dim_of, stored_program
from onesigma.lab.bench.runtimes import Array, Run
from onesigma.lab.networks import INPUT_SHAPE, fully_connected, seeded_cnn
from onesigma.storage.model_file import load

# One input: its shape without the batch, and its dtype.
Input = tuple[tuple[int, ...], str]

PLAIN = "plain network"
PASSES, SIZES = (3, 5, 10, 30), (3, 5, 10)
# What ``convert`` gives, what ``fit`` gives, and the model itself if it is neither.
CONVERTED, FITTED, AS_SAVED = "one pass, moments", "one pass, fitted", "one pass, as saved"


@dataclass(frozen=True)
class Contender:
    """A method: the programs it runs for one answer, one after the other.

    A loop runs one program many times, an ensemble many programs once.
    """

    name: str
    programs: tuple[Program, ...]
    class_dim: int | None = None
    random: bool = False

    def run(self, start: Callable[[Program], Run]) -> Run:
        """How to answer an input, given how to start a program."""
        runs = [start(program) for program in self.programs]
        if len(runs) == 1:
            return runs[0]
        return lambda *inputs: sum_up([run(*inputs)[0] for run in runs], self.class_dim)


def make_contenders(
    converted: Converted,
    examples: tuple[Tensor, ...],
    folder: Path,
    *,
    passes: Sequence[int] = PASSES,
    sizes: Sequence[int] = SIZES,
    fitted: bool = True,
) -> list[Contender]:
    """All that can be made of one model, the plain network first.

    Args:
        converted: whose original is measured beside it.
        examples: a batch of two or more for each of its inputs.
        folder: where files for the runtimes go.
        passes: of Monte Carlo, as one large batch and as a loop.
        sizes: of ensembles.
        fitted: whether to fit one, which takes minutes.
    """
    dim = class_dim_of(converted)
    made = [Contender(PLAIN, (programs.plain(converted, examples, folder / "plain.onnx"),))]
    for name, model in one_passes(converted, examples, fitted=fitted).items():
        path = folder / f"{_slug(name)}.onnx"
        made.append(Contender(name, (programs.one_pass(model, examples, path),)))
    single = programs.one_mask(converted, examples, folder / "one_mask.onnx")
    for count in passes:
        path = folder / f"mc_{count}.onnx"
        repeated = programs.all_masks(converted, examples, count, path)
        made.append(Contender(f"MC-{count}, one batch", (repeated,), random=True))
        made.append(Contender(f"MC-{count}, loop", (single,) * count, dim, random=True))
    members = [
        programs.member(converted, examples, seed, folder / f"member_{seed}.onnx")
        for seed in range(max(sizes, default=0))
    ]
    for size in sizes:
        made.append(Contender(f"ensemble of {size}", tuple(members[:size]), dim))
    return made + _apdeepsense(converted, examples, folder)


def one_passes(
    converted: Converted, examples: tuple[Tensor, ...], *, fitted: bool = True
) -> dict[str, Converted]:
    """The same original as ``convert`` and as ``fit`` make it, and the model as it is."""
    made = dict[str, Converted]()
    with suppress(UnsupportedOp):  # a fitted network may have ops without a rule
        made[CONVERTED] = _as_converted(converted, examples)
    logits: Tensor = converted.source(*examples)[0]
    real = all(x.is_floating_point() for x in examples)
    fittable = class_dim_of(converted) is not None and logits.dim() == 2 and real
    # A file holds no network to learn from.
    if fitted and fittable and converted.own is not None:
        made[FITTED] = _fit(converted.own.model, examples)
    if all(converted.settings.to_dict() != model.settings.to_dict() for model in made.values()):
        made[AS_SAVED] = converted
    return made


def _as_converted(converted: Converted, examples: tuple[Tensor, ...]) -> Converted:
    """In moments, without calibration."""
    settings = converted.settings
    plain = replace(settings, corrections={}, temperature=None, abstain=None)
    if settings.form != MOMENTS:  # nothing of a fitted model's own
        plain = Settings(
            *(settings.task, settings.class_dim, DRAWS, SAMPLING, settings.dropout),
            *(settings.input_shapes, settings.input_dtypes, settings.input_names),
        )
    prior = converted.input_var
    flow = trace_noise(converted.source, plain.rules, prior=prior is not None)
    plain = replace(plain, corrections=starting_corrections(flow))
    if plain.to_dict() == settings.to_dict():
        return converted
    return assemble(converted.source, examples, converted.report, plain, prior)


def _fit(network: nn.Module, examples: tuple[Tensor, ...]) -> Converted:
    """On random inputs, for its cost alone: whatever the first form is worth will do."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(FEWEST, *x.shape[1:], generator=generator).to(x) for x in examples]
    return fit(network, tuple(inputs), worth=1)


def _apdeepsense(
    converted: Converted, examples: tuple[Tensor, ...], folder: Path
) -> list[Contender]:
    """Its fully connected network, where the model is a classifier of one input."""
    logits: Tensor = converted.source(*examples)[0]
    if len(examples) != 1 or logits.dim() != 2 or class_dim_of(converted) is None:
        return []
    network = fully_connected(examples[0].shape[1:], logits.shape[1]).to(examples[0]).eval()
    path = folder / "apdeepsense.onnx"
    return [Contender("ApDeepSense", (programs.moments_and_softmax(network, examples, path),))]


def sum_up(each: Sequence[Array], class_dim: int | None) -> list[Array]:
    """Mean and variance of the logits of several runs; for classes, also their uncertainty."""
    logits = np.stack(each)
    moments = [logits.mean(0), logits.var(0, ddof=1)]
    if class_dim is None:
        return moments
    dim = behind_runs(class_dim)
    probs = np.exp(logits - logits.max(dim, keepdims=True))
    probs /= probs.sum(dim, keepdims=True)
    mean = probs.mean(0)
    entropy, aleatoric = _entropy(mean, class_dim), _entropy(probs, dim).mean(0)
    return [*moments, mean, entropy, aleatoric, entropy - aleatoric]


def _entropy(probs: Array, axis: int) -> Array:
    tiny = np.finfo(probs.dtype).tiny
    return np.asarray(-(probs * np.log(np.maximum(probs, tiny))).sum(axis))


def _slug(name: str) -> str:
    return "_".join(name.replace(",", "").replace("+", "").split())


@dataclass(frozen=True)
class Subject:
    """The contenders, the reference first, and what they take."""

    name: str
    contenders: list[Contender]
    taken: tuple[Input, ...]

    def inputs(self, batch: int) -> tuple[Array, ...]:
        """Random inputs, the same each time."""
        return _random(self.taken, batch)


def make_subject(
    paths: Sequence[Path],
    folder: Path,
    *,
    passes: Sequence[int] = PASSES,
    sizes: Sequence[int] = SIZES,
    fitted: bool = True,
) -> Subject:
    """What the command line names; ``folder`` is for files that runtimes need.

    Args:
        paths: nothing for the paper's network, one ``.safetensors`` file for a model that
            ``onesigma.save`` wrote, or ``.onnx`` files, which are compared with the first of them.
        folder: where files go.
        passes: of Monte Carlo.
        sizes: of ensembles.
        fitted: whether to fit one, which takes minutes; not of a saved model.
    """
    given: Any = {"passes": passes, "sizes": sizes, "fitted": fitted}
    if not paths:
        example = torch.zeros(2, *INPUT_SHAPE)
        return subject_of_model("the paper's CNN", convert(seeded_cnn(), example), folder, **given)
    kinds = {path.suffix for path in paths}
    if kinds == {".onnx"}:
        return subject_of_files(paths, folder)
    if kinds == {".safetensors"} and len(paths) == 1:
        return subject_of_model(paths[0].name, load(paths[0]), folder, **given)
    raise InputError(
        "Pass one .safetensors file that onesigma.save wrote, or .onnx files, or nothing."
    )


def subject_of_model(name: str, model: Converted, folder: Path, **options: Any) -> Subject:
    """``options`` are those of ``make_contenders``."""
    settings = model.settings
    if settings.input_shapes[0][0] is not None:
        raise InputError("This model fixes its batch; Monte Carlo as one batch needs an open one.")
    shapes = [tuple(n or 1 for n in shape[1:]) for shape in settings.input_shapes]
    taken = tuple(zip(shapes, settings.input_dtypes, strict=True))
    examples = tuple(torch.from_numpy(x) for x in _random(taken, 2))
    entries = make_contenders(model, examples, folder, **options)
    return Subject(name, entries, taken)


def subject_of_files(paths: Sequence[Path], folder: Path) -> Subject:
    """ONNX files as they are; all must take what the first takes."""
    taken = [_taken(path) for path in paths]
    for path, each in zip(paths, taken, strict=True):
        if each != taken[0]:
            raise InputError(f"{path.name} takes other inputs than {paths[0].name}.")
    names = [path.stem for path in paths]
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    entries = [
        Contender(label, (stored_program(path, folder),))
        for label, path in zip(labels, paths, strict=True)
    ]
    return Subject(labels[0], entries, taken[0])


def _taken(path: Path) -> tuple[Input, ...]:
    """The inputs of an ONNX file, which must have an open batch and be fixed otherwise."""
    try:
        onnx: Any = import_module("onnx")
    except ModuleNotFoundError as error:
        raise PackageError(f"An .onnx file needs onnx: {install('onnx')}") from error
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf's own classes among them
        raise FileError(f"{path.name} cannot be read as an ONNX model: {error}") from error
    stored_values = {value.name for value in graph.initializer}
    found = []
    for value in graph.input:
        if value.name in stored_values:  # before IR 4 every weight is an input, too
            continue
        kind = value.type.tensor_type
        sizes = [dim.dim_value for dim in kind.shape.dim]
        if not sizes or sizes[0] or not all(sizes[1:]):
            raise InputError(
                f"{path.name}: input '{value.name}' needs an open batch and fixed sizes otherwise."
            )
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        found.append((tuple(sizes[1:]), str(dtype)))
    return tuple(found)


def _random(taken: Sequence[Input], batch: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(0)
    return tuple(_draw(generator, (batch, *shape), dtype) for shape, dtype in taken)


def _draw(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype)
