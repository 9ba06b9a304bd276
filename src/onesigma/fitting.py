"""``fit``: from a trained network and unlabelled inputs to the cheapest form that is worth it.

1. Monte Carlo of the original teaches, on the inputs and on corrupted copies of them.
2. Each form is judged on held-out inputs, clean and corrupted in ways it was not fitted on too.
3. The cheapest that is as close to Monte Carlo as ``worth`` passes is kept; the report shows all.
4. A guard learns what the inputs are like; labels, if there are any, add when to act.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from onesigma.arguments import typed
from onesigma.calibration.choice import calibrate
from onesigma.calibration.corruption import (
    FITTED_ON,
    JUDGED_ON,
    Corruption,
    Given,
    two_at_once,
)
from onesigma.calibration.distillation import (
    Training,
    distil,
    fit_energy,
    fit_particles,
    needs_particles,
)
from onesigma.calibration.exam import Exam
from onesigma.calibration.guarding import Channels, add_guard, with_reference
from onesigma.calibration.labelled import Labelled, learn_from_labels
from onesigma.calibration.observation import Progress, silent
from onesigma.calibration.soft_pools import has_noisy_pools
from onesigma.calibration.teacher import Lesson, Teacher, corrupt
from onesigma.conversion import TASKS, as_captured, convert, require_one_of
from onesigma.converted import (
    DISTILLED,
    ENERGY,
    MOMENTS,
    PARTICLES,
    Converted,
    Inputs,
)
from onesigma.errors import InputError, NoRandomness, UnsupportedOp
from onesigma.forms.places import Places
from onesigma.graph.capture import as_graph
from onesigma.graph.wrap import Scaled
from onesigma.importers.keras import as_module
from onesigma.report import SILENT, Candidate
from onesigma.storage.stages import Stages
from onesigma.version import __version__

Scale = float | Sequence[float] | Tensor
FEWEST = 40
_MOST, _MOST_JUDGED = 2000, 120  # inputs to learn from, and to judge by; more are left alone
ROWS, STEPS = 12000, 1500  # to learn from, copies included; steps of learning
# Times as many of both, for a student that may not be worth it yet: times as many passes at most.
LONGER = {2: 3.0, 4: 1.5}
_CALIBRATED_ON = 200  # inputs, in moments
_MORE_WITH_POOLS = 3.0  # times as many passes at most, with soft max pools
_ANSWERS = 8  # of one input, if it has many, teach as much as those of so many inputs
_PAIRS = 3  # as often as one corruption, two at once are learnt from
_REFERENCE = 120  # passes to compare with
_ROWS_EACH = (2, 4, 8, 16)  # particles, until they are worth it
_FEWER_THAN_MOMENTS = 2  # of these take less time than moments
_ABOUT = 0.8  # of the closest one's passes: what is measured is not more certain than that
CLEAN = "clean"
_TAUGHT = "learnt from Monte Carlo"
_TURNED = "an input is read as (instants, channels): name its channels if that is wrong"


@typed
def fit(
    model: nn.Module,
    unlabelled: Inputs,
    *,
    task: str = "classification",
    output: str | int | None = None,
    worth: int = 30,
    budget: float | None = None,
    keep_answer: bool = False,
    corruptions: Sequence[Callable[[Tensor], Tensor]] = (),
    labelled: Labelled | None = None,
    groups: Tensor | None = None,
    risk: float | None = None,
    class_names: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    units: Sequence[str] | None = None,
    rate: float | None = None,
    scaling: tuple[Scale, Scale] | None = None,
    guard: bool = True,
    class_dim: int | None = None,
    seed: int = 0,
    resume: str | Path | None = None,
    progress: Progress = silent,
) -> Converted:
    """Make a trained network say how sure it is, as cheaply as it can be done well.

    It needs no label; the model is not changed. It takes a minute or a few.

    Args:
        model: a trained network with dropout, returning logits (a final softmax is understood), one
            vector or a map of them, or the values of a regression.
        unlabelled: real inputs like those it will see, as a tensor, a tuple or a dict by the names
            of the model's arguments; a few hundred.
        task: "classification" or "regression".
        output: which one is the answer, of a model that returns several tensors: a name or an
            index, e.g. "logits" or 0.
        worth: how close is close enough: as this many Monte-Carlo passes, on held-out inputs,
            clean and with each kind of corruption.
        budget: forms that take more than this many times the plain network are left out.
        keep_answer: ``mean`` is the model's own answer bit for bit, and ``plain_probs`` its
            softmax, with the uncertainty beside them. That is further from Monte Carlo.
        corruptions: functions from inputs to corrupted ones, to learn from besides the built-in.
        labelled: inputs that neither training nor ``unlabelled`` has, and their classes. One half
            gives the probabilities a temperature, if that helps; the other half makes the rule. For
            regression their values: with ``risk`` they give an interval, ``low`` to ``high``.
        groups: for each labelled input a number, such as that of a person: the rule then holds for
            new people.
        risk: the share of wrong answers to accept; with it, ``act`` says when to (``threshold``).
            For regression, the share of values to accept outside of the interval.
        class_names: kept with the model.
        channels: names of the input's channels, for what the guard says; default: numbers. If
            there are as many in the last dim only, inputs are (instants, channels).
        units: of the channels.
        rate: of the input's series, in Hz.
        scaling: mean and standard deviation of the inputs, as numbers, one for each channel or of
            an input's shape. Inputs are then raw: the model takes (x − mean) / std of them.
        guard: add ``novelty`` and the input ``contract``, learnt from ``unlabelled``.
        class_dim: dimension of the classes in the output; 1, or that of the final softmax.
        seed: of masks, corruptions and starts.
        resume: a folder that keeps what is finished. After an interruption, the same call goes on
            from there. With ``corruptions``, name a new one when you change them.
        progress: wraps the steps, e.g. ``tqdm.tqdm``.

    Returns:
        The converted model; ``report.candidates`` has every form that was tried.
    """
    _check_promise(worth, risk, labelled)
    asked = _Asked(task, class_dim, output)
    network = model if scaling is None else _scaled(model, unlabelled, scaling)
    named = None if channels is None else len(channels)
    course = _begin(network, unlabelled, asked, corruptions, named, seed, resume, progress)
    made = _try_in_turn(_forms(network, course, asked, keep_answer), course, worth, budget)
    known, held_out = [x[:_MOST] for x in course.inputs], None
    if guard:
        about = Channels(channels, units, rate)
        made, held_out = add_guard(made, known, channels=about, seed=seed)
    made = _named(made, class_names, course.classes)
    if labelled is not None:
        made = learn_from_labels(made, labelled, groups=groups, risk=risk, seed=seed)
    # Last, because temperature and rule change what it notes.
    return made if held_out is None else with_reference(made, known, held_out)


@dataclass(frozen=True)
class _Form:
    """A form to try.

    Attributes:
        gain: it is worth at most so many times the passes of the one tried before it.
        margin: it must be worth it by so many standard errors, because the next costs no more.
    """

    name: str
    make: Callable[[], Converted]
    gain: float = math.inf
    margin: int = 0


@dataclass(frozen=True)
class _Asked:
    """How the network's output is to be read."""

    task: str
    class_dim: int | None
    output: str | int | None


def _check_promise(worth: int, risk: float | None, labelled: Labelled | None) -> None:
    if worth < 1:
        raise InputError(f"worth={worth}: at least one pass.")
    if risk is not None and labelled is None:
        raise InputError("risk needs labelled inputs: labelled=(inputs, classes).")


def _begin(
    model: nn.Module,
    unlabelled: Inputs,
    asked: _Asked,
    corruptions: Sequence[Callable[[Tensor], Tensor]],
    named: int | None,
    seed: int,
    resume: str | Path | None,
    progress: Progress,
) -> _Course:
    """Capture the network, check the inputs, and ask Monte Carlo about those to judge by.

    ``named`` is how many channels were named.
    """
    require_one_of("task", asked.task, TASKS)
    plain = _plain(model, _first(unlabelled, 4), asked)
    inputs = plain.check_inputs(unlabelled)
    _require_fittable(plain, inputs)
    times = plain.time_dims(inputs, named)
    if any(time < x.dim() - 1 for time, x in zip(times, inputs, strict=True)):
        notes = (*plain.report.notes, _TURNED)
        plain.report = replace(plain.report, notes=notes)
    stages = _stages(resume, plain, inputs, (asked, seed, len(corruptions), times))
    kinds = [Given(kind) for kind in corruptions]
    return _Course(plain, inputs, times, kinds, seed, stages, progress)


def _forms(model: nn.Module, course: _Course, asked: _Asked, keep_answer: bool) -> list[_Form]:
    """What may be tried, about the cheapest first."""
    taught, plain = ENERGY if keep_answer else DISTILLED, course.plain
    teach = partial(_taught, plain, course, taught)
    forms = [_Form(taught, teach, margin=1)]
    if not keep_answer and has_noisy_pools(plain.source):
        teach = partial(teach, soft_pools=True)
        forms.append(_Form(f"{taught}, soft max pools", teach, _MORE_WITH_POOLS, margin=1))
    forms += [
        _Form(f"{taught}, taught {times}× as long", partial(teach, longer=times), gain, margin=1)
        for times, gain in LONGER.items()
    ]
    forms[-1] = replace(forms[-1], margin=0)
    if keep_answer:
        return forms
    return forms + _more_forms(plain, course, partial(_moments, model, plain, course, asked))


def _scaled(model: nn.Module, unlabelled: Inputs, scaling: tuple[Scale, Scale]) -> nn.Module:
    if not isinstance(unlabelled, Tensor):
        raise InputError("scaling is for models with one input, given as a tensor.")
    return Scaled(as_module(model), *scaling, shape=unlabelled.shape[1:])


def _named(made: Converted, class_names: Sequence[str], classes: int) -> Converted:
    if class_names and (isinstance(class_names, str) or len(class_names) != classes):
        raise InputError(f"class_names: {classes} names are needed; got {class_names!r}.")
    settings = replace(made.settings, class_names=tuple(map(str, class_names)))
    return made.with_changes(settings=settings)


def _more_forms(plain: Converted, course: _Course, moments: Callable[[], Converted]) -> list[_Form]:
    """Those that take several times as long as the network, about the cheapest first."""
    rows_of_classes = plain.settings.task == "classification" and course.places.chosen is None
    counts = _ROWS_EACH if rows_of_classes and needs_particles(plain.source) else ()
    forms = [
        _Form(f"{count} {PARTICLES}", partial(_taught, plain, course, PARTICLES, particles=count))
        for count in counts
    ]
    forms.insert(_FEWER_THAN_MOMENTS, _Form(MOMENTS, moments))
    return forms


def _moments(model: nn.Module, plain: Converted, course: _Course, asked: _Asked) -> Converted:
    """The paper's pass, calibrated."""
    few = tuple(x[:_CALIBRATED_ON] for x in course.examples)
    named = dict(zip(plain.settings.input_names, few, strict=False))
    dim = plain.settings.class_dim
    converted = convert(model, named or few, task=asked.task, class_dim=dim, output=asked.output)
    return calibrate(converted, few, seed=course.seed, progress=course.progress)


def _try_in_turn(
    forms: Sequence[_Form], course: _Course, worth: int, budget: float | None
) -> Converted:
    """The forms, the cheapest first, until one is worth it."""
    tried, refusals = list[tuple[Candidate, Converted]](), list[str]()
    for form in forms:
        if tried and form.gain * tried[-1][0].worst.passes < worth:
            continue
        try:
            made = course.stages.model(form.name, form.make)
            made.own = made.own or course.plain.own
        except (UnsupportedOp, NoRandomness) as refusal:  # only moments need rules
            refusals.append(f"{form.name}: {refusal}")
            continue
        candidate = course.judge(form.name, made)
        if budget is None or candidate.cost <= budget:
            tried.append((candidate, made))
            if any(each.is_worth(worth, form.margin) for each, _ in tried):
                break
    return _chosen(tried, worth, budget, refusals)


def _stages(
    folder: str | Path | None,
    plain: Converted,
    inputs: Sequence[Tensor],
    settings: tuple[object, ...],
) -> Stages:
    """What is kept of a call depends on the network, the inputs, the settings and our version."""
    given = {f"input {place}": x for place, x in enumerate(inputs)}
    settings = (__version__, ROWS, STEPS, LONGER, _MOST_JUDGED, _REFERENCE, *settings)
    return Stages(folder, f"{settings} {plain.source.graph}", plain.source.state_dict() | given)


def _first(inputs: Inputs, rows: int) -> Inputs:
    if isinstance(inputs, Mapping):
        return {name: x[:rows] for name, x in inputs.items()}
    return inputs[:rows] if isinstance(inputs, Tensor) else tuple(x[:rows] for x in inputs)


def _plain(model: nn.Module, examples: Inputs, asked: _Asked) -> Converted:
    plain = as_captured(model, examples, asked.task, asked.class_dim, asked.output)
    if plain.own is not None:  # noise that only training mode shows is taught like any other
        notes = tuple(note.replace("NOT carried", _TAUGHT) for note in plain.report.notes)
        plain.report = replace(plain.report, notes=notes)
    return plain


@torch.no_grad()
def _require_fittable(plain: Converted, inputs: Sequence[Tensor]) -> None:
    shape = plain.source(*(x[:2] for x in inputs))[0].shape
    if len(shape) < 2 or not 0 < plain.settings.class_dim < len(shape):
        raise InputError(
            f"The model returns {tuple(shape)} for 2 inputs: fit needs a row of logits or values "
            "for each, as (2, 1). Leave out the squeeze, or pass class_dim."
        )
    if not all(bool(torch.isfinite(x).all()) for x in inputs):
        raise InputError("unlabelled holds NaN or infinity: leave those inputs out.")
    if not plain.settings.dynamic_batch:
        raise InputError("The model fixes its batch size: fit cannot split the inputs.")
    if len(inputs[0]) < FEWEST:
        raise InputError(f"{len(inputs[0])} inputs: fit needs at least {FEWEST}, better 300.")


def _taught(
    plain: Converted,
    course: _Course,
    form: str,
    *,
    longer: int = 1,
    soft_pools: bool = False,
    particles: int = 0,
) -> Converted:
    """A student of the course, in one of its forms; so many times longer than usual."""
    few = min(course.places.count, _ANSWERS)
    lesson = course.lesson(longer * ROWS // few)
    training = Training(longer * STEPS, course.seed, course.progress, plain.settings.task)
    if form == DISTILLED:
        options = {"hidden_noise": _hides(plain), "soft_pools": soft_pools}
        student = distil(plain.source, lesson, training, **options)
    elif form == PARTICLES:
        student = fit_particles(plain.source, particles, lesson, training)
    else:
        student = fit_energy(plain.source, lesson, training)
    graph = as_graph(student, tuple(x[:4] for x in lesson.inputs), dynamic=True)
    kept = form == ENERGY
    settings = replace(plain.settings, form=form, keep_answer=kept, particles=particles)
    note = (
        f"fitted to Monte Carlo of the original on {len(lesson.inputs[0])} clean and corrupted "
        "inputs"
    )
    if soft_pools:
        note = f"max pools that know of the noise, {note}"
    if particles:
        note = (
            f"{particles} rows with fixed masks for each input, which is sampling; their average, "
            f"and {student.learnt:.0%} of what a head learnt to add to it, {note}"
        )
    report = plain.report.with_head(form, note)
    return Converted(graph, plain.source, report, settings, None, plain.own).eval()


def _hides(plain: Converted) -> bool:
    """Whether there is noise that the graph does not show, as inside of a recurrent layer."""
    return not plain.report.sites or any(_TAUGHT in note for note in plain.report.notes)


def _unchanged(x: Tensor, generator: torch.Generator) -> Tensor:
    return x


class _Course:
    """Inputs to learn from and inputs to judge by, with what Monte Carlo says of them."""

    def __init__(
        self,
        plain: Converted,
        inputs: Sequence[Tensor],
        times: Sequence[int],
        corruptions: Sequence[Corruption],
        seed: int,
        stages: Stages,
        progress: Progress,
    ) -> None:
        self.seed, self.stages, self.progress = seed, stages, progress
        self.plain, self.inputs, self.times = plain, inputs, times
        self.kinds = [*FITTED_ON.values(), *corruptions, *[two_at_once] * _PAIRS]
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(inputs[0]), generator=generator)
        judged = min(_MOST_JUDGED, len(order) // 4)
        held = tuple(x[order[:judged]] for x in inputs)
        self.examples = tuple(x[order[judged:][:_MOST]] for x in inputs)
        few = tuple(x[:4] for x in inputs)
        with torch.no_grad():
            shape = plain.source(*few)[0].shape
        self.places = Places.of(shape, plain.settings.class_dim, generator)
        self.teacher = Teacher(*(plain, few), all_noise_found=not _hides(plain), places=self.places)
        exams = {CLEAN: held} | {
            name: corrupt(held, [kind], generator, times) for name, kind in JUDGED_ON.items()
        }
        self.exams = {name: self._exam(name, each) for name, each in exams.items()}
        if not any(bool(exam.reference.logits.var(1).any()) for exam in self.exams.values()):
            raise NoRandomness(
                SILENT.removeprefix("WARNING: ")
                if plain.report.is_silent
                else "No dropout changes the output, so there is no uncertainty to learn. The "
                "model must have been trained with dropout: nn.Dropout or F.dropout(x, p, "
                "self.training)."
            )

    @property
    def classes(self) -> int:
        return self.exams[CLEAN].reference.logits.shape[-1]

    def _exam(self, name: str, inputs: tuple[Tensor, ...]) -> Exam:
        def ask() -> Tensor:
            return self.teacher.teach(inputs, _REFERENCE, self.seed + 1, self.progress).logits

        said = self.stages.tensor(f"exam {name}", ask)
        return Exam(Lesson(inputs, said, places=self.places), self.plain.settings.task)

    def lesson(self, rows: int) -> Lesson:
        """So many rows in all, equally many of each kind; the first kind are clean inputs."""
        generator = torch.Generator().manual_seed(self.seed + 3)
        kinds, count = [_unchanged, *self.kinds], len(self.examples[0])
        each, parts = -(-rows // len(kinds)), []
        for kind in kinds:
            turns = [torch.randperm(count, generator=generator) for _ in range(-(-each // count))]
            which = torch.cat(turns)[:each]
            chosen = [x[which] for x in self.examples]
            parts.append(corrupt(chosen, [kind], generator, self.times))
        inputs = tuple(torch.cat(part) for part in zip(*parts, strict=True))

        def ask() -> Tensor:
            return self.teacher.teach_cheaply(inputs, self.seed + 4, self.progress).grouped

        grouped = self.stages.tensor(f"lesson {rows}", ask)
        logits, groups = grouped.flatten(1, 2), grouped.shape[1]
        return Lesson(inputs, logits, len(kinds), groups, self.places)

    @torch.no_grad()
    def judge(self, name: str, made: Converted) -> Candidate:
        """How close it is on every exam, in passes of Monte Carlo, and what it costs."""
        found = [exam.mark(kind, made) for kind, exam in self.exams.items()]
        return Candidate(name, cost_of(made, self.examples), tuple(found))


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


def _cheapest(
    tried: Sequence[tuple[Candidate, Converted]], enough: float
) -> tuple[Candidate, Converted]:
    """The cheapest form that is worth so many passes, as it was best taught."""
    # In their order, not by the measured time, so that the same call gives the same model.
    first = next(made.settings for each, made in tried if each.worst.passes >= enough)
    alike = (first.form, first.particles)
    same = [pair for pair in tried if (pair[1].settings.form, pair[1].settings.particles) == alike]
    return max(same, key=lambda pair: pair[0].worst.passes)


def _chosen(
    tried: Sequence[tuple[Candidate, Converted]],
    worth: int,
    budget: float | None,
    refusals: Sequence[str],
) -> Converted:
    """The cheapest that is worth it; else, with a warning, one that is nearly the closest."""
    if not tried:
        raise InputError(f"budget={budget}: every form takes more than that; allow more.")
    most = max(each.worst.passes for each, _ in tried)
    candidate, made = _cheapest(tried, worth if most >= worth else _ABOUT * most)
    notes = [*made.report.notes, *refusals]
    worst = candidate.worst
    if not candidate.is_worth(worth):
        notes.append(
            f"WARNING: no form is worth {worth} passes here. The cheapest of the closest, "
            f"{candidate.form}, is worth {worst.passes:.0f} on its worst kind of input "
            f"({worst.kind})"
        )
    candidates = tuple(replace(each, chosen=each is candidate) for each, _ in tried)
    return made.with_changes(report=replace(made.report, notes=tuple(notes), candidates=candidates))
