"""``fit``: from a trained network and unlabelled inputs to the cheapest form that is worth it.

1. Monte Carlo of the original teaches, on the inputs and on corrupted copies of them.
2. Each form is judged on held-out inputs, clean and corrupted in ways it was not fitted on too.
3. The cheapest that is as close to Monte Carlo as ``worth`` passes is kept; the report shows all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from onesigma.arguments import typed
from onesigma.baselines.backbone import original_of
from onesigma.calibration.choice import calibrate
from onesigma.calibration.corruption import FITTED_ON, JUDGED_ON, Corruption
from onesigma.calibration.observation import Progress, silent
from onesigma.calibration.student import fit_energy
from onesigma.calibration.teacher import Lesson, Teacher, corrupt
from onesigma.conversion import convert
from onesigma.converted import ENERGY, MOMENTS, Converted, Inputs
from onesigma.errors import InputError
from onesigma.graph.capture import as_graph
from onesigma.report import Candidate, Closeness, Entry, Report

FEWEST = 40
_MOST, _MOST_JUDGED = 500, 60  # inputs to learn from, and to judge by; more are left alone
_ROWS = 6000  # to learn from, copies included
# Passes to learn from, to compare with, and to tell how close a few come: their distance falls as
# 1 / passes, so that those of any other number follow.
_PASSES, _REFERENCE, _FEW = 24, 200, 30
CLEAN = "clean"


@typed
def fit(
    model: nn.Module,
    unlabelled: Inputs,
    *,
    worth: int = 30,
    budget: float | None = None,
    corruptions: Sequence[Callable[[Tensor], Tensor]] = (),
    class_dim: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Converted:
    """Make a trained classifier say how sure it is, as cheaply as it can be done well.

    No label, no retraining; the model is not changed. It takes seconds to a few minutes.

    Args:
        model: a trained network with dropout, returning logits (a final softmax is understood).
        unlabelled: real inputs like those it will see, as a tensor or a tuple; a few hundred.
        worth: how close is close enough: as this many Monte-Carlo passes, on held-out inputs,
            clean and with each kind of corruption.
        budget: forms that take more than this many times the plain network are left out.
        corruptions: functions from inputs to corrupted ones, to learn from besides the built-in.
        class_dim: dimension of the classes in the output; 1, or that of the final softmax.
        seed: of masks, corruptions and starts.
        progress: wraps the steps, e.g. ``tqdm.tqdm``.

    Returns:
        The converted model; ``report.candidates`` has every form that was tried.
    """
    if worth < 1:
        raise InputError(f"worth={worth}: at least one pass.")
    given = unlabelled if isinstance(unlabelled, tuple) else (unlabelled,)
    converted = convert(model, tuple(x[:4] for x in given), class_dim=class_dim)
    inputs = converted.check_inputs(given)
    _require_fittable(converted, inputs)
    course = _Course(converted, inputs, seed, progress)
    forms: dict[str, Callable[[], Converted]] = {
        ENERGY: lambda: _energy(converted, course, corruptions),
        MOMENTS: lambda: calibrate(converted, course.examples, seed=seed, progress=progress),
    }
    tried: list[tuple[Candidate, Converted]] = []
    for name, make in forms.items():
        made = make()
        candidate = course.judge(name, made)
        if budget is None or candidate.cost <= budget:
            tried.append((candidate, made))
            if candidate.worst.passes >= worth:
                break
    return _chosen(tried, worth, budget)


@torch.no_grad()
def _require_fittable(converted: Converted, inputs: Sequence[Tensor]) -> None:
    if converted.answer(*(x[:2] for x in inputs)).mean.dim() != 2:
        raise InputError(
            "fit needs one vector of logits for each input. For a map of them use convert, then "
            "calibrate."
        )
    if not all(bool(torch.isfinite(x).all()) for x in inputs):
        raise InputError("unlabelled holds NaN or infinity: leave those inputs out.")
    if not converted.settings.dynamic_batch:
        raise InputError("The model fixes its batch size: fit cannot split the inputs.")
    if len(inputs[0]) < FEWEST:
        raise InputError(f"{len(inputs[0])} inputs: fit needs at least {FEWEST}, better 300.")


def _energy(
    converted: Converted, course: _Course, own: Sequence[Callable[[Tensor], Tensor]]
) -> Converted:
    lesson = course.lesson([_without_generator(kind) for kind in own])
    network = fit_energy(converted.source, lesson, seed=course.seed, progress=course.progress)
    graph = as_graph(network, tuple(x[:4] for x in lesson.inputs), dynamic=True)
    settings = replace(converted.settings, form=ENERGY, corrections={})
    report = _plain_report(converted.report, len(lesson.inputs[0]))
    return Converted(graph, converted.source, report, settings, None, converted.own).eval()


def _without_generator(kind: Callable[[Tensor], Tensor]) -> Corruption:
    return lambda x, generator: kind(x)


def _plain_report(report: Report, rows: int) -> Report:
    """Every op runs as in the plain network; what the head says of them all is approximate."""
    entries = [
        each if each.status == "noise" else replace(each, rule="", status="certain", note="")
        for each in report.entries
    ]
    note = f"fitted to Monte Carlo of the original on {rows} clean and corrupted inputs"
    own = Entry("head", "energy head", "head", "", "energy", "approximate", note)
    return replace(report, entries=(*entries, own))


class _Course:
    """Inputs to learn from and inputs to judge by, with what Monte Carlo says of them."""

    def __init__(
        self,
        converted: Converted,
        inputs: Sequence[Tensor],
        seed: int,
        progress: Progress,
    ) -> None:
        self.seed, self.progress = seed, progress
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(inputs[0]), generator=generator)
        judged = min(_MOST_JUDGED, len(order) // 4)
        held = tuple(x[order[:judged]] for x in inputs)
        self.examples = tuple(x[order[judged:][:_MOST]] for x in inputs)
        self.teacher = Teacher(original_of(converted), tuple(x[:4] for x in inputs))
        self.exams = {CLEAN: self._exam(held)} | {
            name: self._exam(corrupt(held, [kind], generator)) for name, kind in JUDGED_ON.items()
        }

    def _exam(self, inputs: tuple[Tensor, ...]) -> _Exam:
        reference = self.teacher.teach(inputs, _REFERENCE, self.seed + 1, self.progress)
        few = self.teacher.teach(inputs, _FEW, self.seed + 2, silent)
        return _Exam(reference, divergences(reference.probs, few.probs))

    def lesson(self, own: Sequence[Corruption]) -> Lesson:
        """The inputs and corrupted copies of them, as many as make a good number of rows."""
        kinds = [*FITTED_ON.values(), *own]
        generator = torch.Generator().manual_seed(self.seed + 3)
        copies = max(1, _ROWS // (len(self.examples[0]) * (1 + len(kinds))))
        parts = [self.examples]
        parts += [corrupt(self.examples, kinds, generator) for _ in range(copies)]
        rows = tuple(torch.cat(each) for each in zip(*parts, strict=True))
        count = 1 + copies * len(kinds)
        return self.teacher.teach(rows, _PASSES, self.seed + 4, self.progress, count)

    @torch.no_grad()
    def judge(self, name: str, made: Converted) -> Candidate:
        """How close it is on every exam, in passes of Monte Carlo, and what it costs."""
        found = [exam.mark(kind, made) for kind, exam in self.exams.items()]
        return Candidate(name, cost_of(made, self.examples), tuple(found))


@dataclass(frozen=True)
class _Exam:
    """What Monte Carlo says of held-out inputs, and how far a few passes are from it."""

    reference: Lesson
    few: Tensor

    def mark(self, kind: str, made: Converted) -> Closeness:
        answer = made.answer(*self.reference.inputs)
        assert answer.probs is not None
        distance = divergences(self.reference.probs, answer.probs).mean()
        passes = _FEW * float(self.few.mean() / distance.clamp(min=1e-12))
        wanted = self.reference.logits.std(1).mean(1).clamp(min=1e-12)
        ratio = float((answer.var.sqrt().mean(1) / wanted).median())
        return Closeness(kind, float(distance), passes, ratio)


def divergences(reference: Tensor, probs: Tensor) -> Tensor:
    """KL(reference ‖ probs) in nats, for each input."""
    p, q = (each.double().clamp(min=1e-12) for each in (reference, probs))
    return (p * (p / q).log()).sum(-1)


def cost_of(made: Converted, inputs: Sequence[Tensor], repeats: int = 60) -> float:
    """The time of one input, as a multiple of the plain network's; the two in turn."""
    one = [x[:1] for x in inputs]
    fastest = {made.network: float("inf"), made.source: float("inf")}
    for _ in range(repeats):
        for network in fastest:
            start = time.perf_counter()
            network(*one)
            fastest[network] = min(fastest[network], time.perf_counter() - start)
    return fastest[made.network] / fastest[made.source]


def _chosen(
    tried: Sequence[tuple[Candidate, Converted]], worth: int, budget: float | None
) -> Converted:
    """The first that is worth it, else the closest, with a warning."""
    if not tried:
        raise InputError(f"budget={budget}: every form takes more than that; allow more.")
    best = max(tried, key=lambda pair: min(pair[0].worst.passes, worth))
    candidate, made = best
    notes = list(made.report.notes)
    worst = candidate.worst
    if worst.passes < worth:
        notes.append(
            f"WARNING: no form is worth {worth} passes here. The closest, {candidate.form}, is "
            f"worth {worst.passes:.0f} on its worst kind of input ({worst.kind})"
        )
    candidates = tuple(replace(each, chosen=each is candidate) for each, _ in tried)
    return made.with_changes(report=replace(made.report, notes=tuple(notes), candidates=candidates))
