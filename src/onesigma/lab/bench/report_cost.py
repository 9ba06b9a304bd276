"""What one pass costs beside the plain network and Monte Carlo, for a report on a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from onesigma.converted import Converted
from onesigma.lab.bench import programs
from onesigma.lab.bench.contenders import PLAIN, Contender
from onesigma.lab.bench.measurement import Bench, Plan
from onesigma.lab.bench.result import Result
from onesigma.lab.timing import Progress

PASSES = 30
OURS, SAMPLED = "one pass", f"MC dropout, {PASSES} passes"
PLAN = Plan(
    *(("eager", "onnxruntime"), (1,), (1,)),
    repeats=200, seconds=1.0, processes=0, energy_seconds=1.0,
)  # fmt: skip


def measure_cost(
    converted: Converted, inputs: Tensor, progress: Progress = iter, *, plan: Plan = PLAN
) -> Result | str:
    """Times in turn and sizes of files on this machine, or why it was not measured.

    Args:
        converted: the model of the report.
        inputs: of the user; two of them are examples, the first is timed.
        progress: wraps the rounds of timing.
        plan: what is measured.
    """
    if converted.settings.input_shapes[0][0] is not None:
        return "The model fixes its batch, so it was not timed."
    if not converted.report.sites:
        return "The model has no dropout to sample, so it was not timed beside Monte Carlo."
    examples, batch = (inputs[[0, -1]],), (inputs[:1].numpy(),)
    with TemporaryDirectory() as folder:
        entries = list(_contenders(converted, examples, Path(folder)))
        return Bench("", entries, lambda count: batch, plan, progress=progress).run()


def _contenders(
    converted: Converted, examples: tuple[Tensor, ...], folder: Path
) -> Iterator[Contender]:
    plain = programs.plain(converted, examples, folder / "plain.onnx")
    yield Contender(PLAIN, (plain,))
    yield Contender(OURS, (programs.one_pass(converted, examples, folder / "ours.onnx"),))
    sampled = programs.all_masks(converted, examples, PASSES, folder / "sampled.onnx")
    yield Contender(SAMPLED, (sampled,), random=True)
