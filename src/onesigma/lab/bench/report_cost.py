"""What ``onesigma report`` says about cost: one pass beside the plain network and Monte Carlo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from onesigma.converted import Converted
from onesigma.lab.bench import programs
from onesigma.lab.bench.contenders import PLAIN, Contender
from onesigma.lab.bench.measurement import Bench, Plan
from onesigma.lab.bench.result import Result, Row
from onesigma.lab.bench.runtimes import runtime
from onesigma.lab.timing import Progress
from onesigma.pages.report.findings import OURS, Cost, CostRow

PASSES = 30
SAMPLING = f"MC dropout, {PASSES} passes"
PLAN = Plan(
    *(("eager", "onnxruntime"), (1,), (1,)),
    repeats=200, seconds=1.0, processes=0, energy_seconds=1.0,
)  # fmt: skip


def measure_cost(
    converted: Converted,
    inputs: Tensor,
    progress: Progress = iter,
    *,
    plan: Plan = PLAN,
    others: Mapping[str, Converted] | None = None,
) -> Cost | str:
    """Times in turn and sizes of files, or why there are none; ``others`` are timed beside it."""
    if converted.settings.input_shapes[0][0] is not None:
        return "The model fixes its batch, so it was not timed."
    if not converted.report.sites:
        return "The model has no dropout to sample, so it was not timed beside Monte Carlo."
    with TemporaryDirectory() as folder:
        models = {**(others or {}), OURS: converted}
        entries = list(_contenders(models, (inputs[[0, -1]],), Path(folder)))
        batch = (inputs[:1].numpy(),)
        return _to_cost(Bench("", entries, lambda count: batch, plan, progress=progress).run())


def _contenders(
    models: Mapping[str, Converted], examples: tuple[Tensor, ...], folder: Path
) -> Iterator[Contender]:
    converted = models[OURS]
    plain = programs.plain(converted, examples, folder / "plain.onnx")
    yield Contender(PLAIN, (plain,))
    for number, (name, model) in enumerate(models.items()):
        path = folder / f"one_pass_{number}.onnx"
        yield Contender(name, (programs.one_pass(model, examples, path),))
    sampled = programs.all_masks(converted, examples, PASSES, folder / "sampled.onnx")
    yield Contender(SAMPLING, (sampled,), random=True)


def _to_cost(result: Result) -> Cost:
    files = {(f.contender, f.runtime): f.file for f in result.footprints}

    def row(found: Row) -> CostRow:
        size, timing = files.get((found.contender, found.runtime)), found.timing
        return CostRow(
            found.contender,
            runtime(found.runtime).title,
            timing.ratio,
            timing.noise,
            timing.cpu_ratio,
            1e3 * timing.p50,
            None if size is None else size / 1e3,
        )

    machine, energy = result.machine, []
    for found in result.energy:
        where = runtime(found["runtime"]).title
        words = f"{1e3 * found['joules_per_call']:.2f} mJ per answer in {where}"
        energy.append((found["contender"], words))
    return Cost(
        f"{machine['cpu']}, {machine['system']}; load {machine['load'] or 0:.1f} on "
        f"{machine['cores']} cores",
        tuple(map(row, result.rows)),
        tuple(energy),
        tuple(result.skipped.items()),
    )
