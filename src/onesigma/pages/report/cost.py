"""What one pass costs beside the plain network and Monte Carlo, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from onesigma.converted import Converted
from onesigma.lab.bench import programs
from onesigma.lab.bench.contenders import PLAIN, Contender
from onesigma.lab.bench.measurement import Bench, Plan
from onesigma.lab.bench.result import Result, Row
from onesigma.lab.bench.result import show_ratio as ratio
from onesigma.lab.bench.runtimes import runtime
from onesigma.lab.timing import Progress
from onesigma.pages.html.page import facts, table

PASSES = 30
OURS, SAMPLED = "one pass", f"MC dropout, {PASSES} passes"
_PLAN = Plan(
    *(("eager", "onnxruntime"), (1,), (1,)),
    repeats=200, seconds=1.0, processes=0, energy_seconds=1.0,
)  # fmt: skip


def measure(
    converted: Converted, inputs: Tensor, *, plan: Plan = _PLAN, progress: Progress = iter
) -> Result | str:
    """Times in turn and sizes of files, or why not."""
    if converted.settings.input_shapes[0][0] is not None:
        return "The model fixes its batch, so it was not timed."
    if not converted.report.sites:
        return "The model has no dropout to sample, so it was not timed beside Monte Carlo."
    examples = (inputs[[0, -1]],)
    with TemporaryDirectory() as folder:
        entries = list(_contenders(converted, examples, Path(folder)))
        batch = (inputs[:1].numpy(),)
        return Bench("", entries, lambda count: batch, plan, progress=progress).run()


def _contenders(
    converted: Converted, examples: tuple[Tensor, ...], folder: Path
) -> Iterator[Contender]:
    plain = programs.plain(converted, examples, folder / "plain.onnx")
    yield Contender(PLAIN, (plain,))
    yield Contender(OURS, (programs.one_pass(converted, examples, folder / "ours.onnx"),))
    sampled = programs.all_masks(converted, examples, PASSES, folder / "sampled.onnx")
    yield Contender(SAMPLED, (sampled,), random=True)


def section(converted: Converted, times: Result | str) -> Iterator[str]:
    """The table, and how it was measured."""
    weights = sum(weight.numel() for weight in converted.source.parameters())
    known = [("weights", f"{weights:,} numbers, the same ones in all three")]
    if isinstance(times, str):
        yield facts([*known, ("time", times)])
        return
    for name in dict.fromkeys(row.runtime for row in times.rows):
        rows = [row for row in times.rows if row.runtime == name]
        head = (runtime(name).title, "time ÷ plain", "processor ÷ plain", "median, ms", "file, kB")
        yield table(head, [_cells(times, row) for row in rows], mark=mark)
    how = (
        "each in turn, in an order drawn anew every round, one thread, batch 1; the ratio is of "
        "the fastest rounds, ± its spread over fifths of the run. Trust the ratios, not the "
        "milliseconds, and on a busy machine the processor’s own time: the load was "
        f"{times.machine['load'] or 0:.1f} on {times.machine['cores']} cores"
    )
    known += [("measured", how), ("machine", f"{times.machine['cpu']}, {times.machine['system']}")]
    known += [(f"energy of {e['contender']}", _energy(e)) for e in times.energy]
    known += [(f"left out: {what}", why) for what, why in times.skipped.items()]
    yield facts((name, escape(text)) for name, text in known)


def _energy(found: dict[str, Any]) -> str:
    name = runtime(found["runtime"]).title
    return f"{1e3 * found['joules_per_call']:.2f} mJ per answer in {name}"


def _cells(times: Result, row: Row) -> list[str]:
    found = row.timing
    sizes = [
        f for f in times.footprints if (f.contender, f.runtime) == (row.contender, row.runtime)
    ]
    size = f"{sizes[0].file / 1e3:,.0f}" if sizes else "–"
    ratios = (ratio(found.ratio, found.noise), ratio(found.cpu_ratio))
    return [row.contender, *ratios, f"{1e3 * found.p50:.2f}", size]


def mark(name: str) -> str:
    return "ours" if name == OURS else ""
