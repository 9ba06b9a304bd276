"""Who is measured: the plain network, one pass in each mode, and what one pass stands in for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onesigma.calibration.choice import fit_corrections
from onesigma.conversion import assemble, starting_corrections
from onesigma.converted import Converted
from onesigma.graph.flow import trace_noise
from onesigma.lab.bench import programs
from onesigma.lab.bench.programs import Program, behind_runs, class_dim_of
from onesigma.lab.bench.runtimes import Array, Run
from onesigma.lab.networks import fully_connected

PLAIN = "plain network"
PASSES, SIZES = (3, 5, 10, 30), (3, 5, 10)
FASTEST = "one pass, frozen + lowrank"
# ``mean`` and ``variance`` of ``convert``, by name.
MODES = {
    "one pass, full": ("matched", "full"),
    "one pass, lowrank": ("matched", "lowrank"),
    "one pass, frozen + full": ("frozen", "full"),
    FASTEST: ("frozen", "lowrank"),
}
CALIBRATED, AS_SAVED = f"{FASTEST}, calibrated", "one pass, as saved"


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
        return lambda *inputs: summed_up([run(*inputs)[0] for run in runs], self.class_dim)


def contenders(
    converted: Converted,
    examples: tuple[Tensor, ...],
    folder: Path,
    *,
    passes: Sequence[int] = PASSES,
    sizes: Sequence[int] = SIZES,
) -> list[Contender]:
    """All that can be made of one model, the plain network first.

    Args:
        converted: whose original is measured beside it.
        examples: a batch of two or more for each of its inputs.
        folder: where files for the runtimes go.
        passes: of Monte Carlo, as one large batch and as a loop.
        sizes: of ensembles.
    """
    dim = class_dim_of(converted)
    made = [Contender(PLAIN, (programs.plain(converted, examples, folder / "plain.onnx"),))]
    for name, model in one_passes(converted, examples).items():
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


def one_passes(converted: Converted, examples: tuple[Tensor, ...]) -> dict[str, Converted]:
    """The same original in every mode, the fastest of them calibrated, and the model as it is."""
    made = {name: _in_mode(converted, examples, *mode) for name, mode in MODES.items()}
    if class_dim_of(converted) is not None and all(x.is_floating_point() for x in examples):
        made[CALIBRATED] = _calibrated(made[FASTEST], examples)
    if all(converted.settings.to_dict() != model.settings.to_dict() for model in made.values()):
        made[AS_SAVED] = converted
    return made


def _in_mode(
    converted: Converted, examples: tuple[Tensor, ...], mean: str, variance: str
) -> Converted:
    """As ``convert`` would make it: calibration belongs to the mode it was made for."""
    plain = replace(converted.settings, mean=mean, variance=variance, shift=None)
    prior = converted.input_var
    flow = trace_noise(converted.source, plain.rules, prior=prior is not None)
    start = starting_corrections(flow)
    settings = replace(plain, corrections=start, temperature=None, abstain=None)
    if settings.to_dict() == converted.settings.to_dict():
        return converted
    return assemble(converted.source, examples, converted.report, settings, prior)


def _calibrated(model: Converted, examples: tuple[Tensor, ...]) -> Converted:
    """In the form, and at the cost, of what ``calibrate`` makes of real inputs.

    Of random ones it might reject what it finds. The shift of the logits changes nothing.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(16, *x.shape[1:], generator=generator).to(x) for x in examples]
    classes = model.source(*examples)[0].shape[model.settings.class_dim]
    found = fit_corrections(model, tuple(inputs), passes=10)
    shift = torch.eye(classes, classes + 1)
    settings = replace(model.settings, corrections=found, shift=shift)
    return assemble(model.source, examples, model.report, settings, model.input_var)


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


def summed_up(each: Sequence[Array], class_dim: int | None) -> list[Array]:
    """Mean and variance of the logits of several runs; for classes, the doubt of their softmax."""
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
