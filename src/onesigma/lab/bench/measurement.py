"""One benchmark: contenders × runtimes, for each number of threads and each batch.

All contenders in all runtimes are timed in one interleaved run; a ratio is to the plain network in
the same runtime and the same run. What cannot be run is left out, with the reason.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import PackageError
from onesigma.lab.bench import meters
from onesigma.lab.bench.contenders import Contender
from onesigma.lab.bench.programs import Program
from onesigma.lab.bench.result import Footprint, Result, Row
from onesigma.lab.bench.runtimes import Inputs, Run, runtime, shape_suffix
from onesigma.lab.timing import Progress, summarise, time_in_turn, torch_threads
from onesigma.version import __version__

Say = Callable[[str], None]
# By how much, relative to the largest value, a runtime may differ from PyTorch and still count.
_TOLERANCE = 1e-2


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long."""

    runtimes: tuple[str, ...]
    threads: tuple[int, ...] = (1, 2)
    batches: tuple[int, ...] = (1, 8, 64)
    repeats: int = 200
    seconds: float = 3.0  # at most, for one contender in one runtime
    processes: int = 3  # that are asked for their memory; 0: none
    energy_seconds: float = 5.0


class Bench:
    """A benchmark under way; ``result`` is complete once ``run`` has returned.

    Args:
        model: what to call it.
        entries: the contenders; ratios are to the first.
        inputs: makes the inputs of a batch.
        plan: what is measured.
        say: is told what is being done.
        progress: wraps the rounds of timing.
    """

    def __init__(
        self,
        model: str,
        entries: Sequence[Contender],
        inputs: Callable[[int], Inputs],
        plan: Plan,
        *,
        say: Say = lambda words: None,
        progress: Progress = iter,
    ) -> None:
        self.entries, self.inputs, self.plan = entries, inputs, plan
        self.say, self.progress = say, progress
        self.result = Result(model, machine())
        self._opened: dict[tuple[str, int, str], Any] = {}
        self._meters, word = meters.find_meters()
        self.result.notes += [word] if word else []

    def run(self, on_part: Callable[[Result], None] = lambda result: None) -> Result:
        """Measure all; ``on_part`` is given the result each time there is more of it."""
        names = self._installed()
        for threads in self.plan.threads:
            for batch in self.plan.batches:
                self._time(names, threads, batch)
                on_part(self.result)
        self._weigh(names, self.inputs(self.plan.batches[0]))
        on_part(self.result)
        return self.result

    def _installed(self) -> list[str]:
        lacking = {name: runtime(name).missing() for name in self.plan.runtimes}
        for name, packages in lacking.items():
            if packages:
                words = f"not installed ({', '.join(packages)})"
                self.result.skipped[runtime(name).title] = words
        names = [name for name, packages in lacking.items() if not packages]
        if not names:
            words = "; ".join(f"{name}: {why}" for name, why in self.result.skipped.items())
            raise PackageError(f"None of the runtimes can be used. {words}.")
        self.result.machine["runtimes"] = {name: runtime(name).with_version() for name in names}
        return names

    def _time(self, names: Sequence[str], threads: int, batch: int) -> None:
        inputs = self.inputs(batch)
        self.say(f"threads {threads}, batch {batch}: preparing {len(self.entries)} contenders")
        # Compiled code depends on the number of threads, too.
        with torch_threads(threads):
            runs = {
                (name, entry.name): run
                for name in names
                for entry in self.entries
                if (run := self._prepare(name, entry, inputs, threads))
            }
        self.say(f"threads {threads}, batch {batch}: timing {len(runs)} in turn")
        samples = time_in_turn(
            {key: partial(run, *inputs) for key, run in runs.items()},
            repeats=self.plan.repeats,
            seconds=self.plan.seconds,
            threads=threads,
            progress=self.progress,
        )
        for name, contender in runs:
            reference = samples.get((name, self.entries[0].name))
            if reference is None:
                continue
            found = summarise(samples[name, contender], reference)
            self.result.rows.append(Row(contender, name, threads, batch, found))
        if self._meters and batch == self.plan.batches[0]:
            with torch_threads(threads):
                self._meter(runs, inputs, threads, batch)

    def _prepare(self, name: str, entry: Contender, inputs: Inputs, threads: int) -> Run | None:
        module = runtime(name)
        started: dict[int, Run] = {}

        def start(program: Program) -> Run:
            if id(program) not in started:
                opened = self._open(name, program, inputs)
                started[id(program)] = module.start(opened, inputs, threads)
            return started[id(program)]

        try:
            run = entry.run(start)
            check(entry, run, inputs)
        except Exception as error:  # a runtime raises whatever its parts raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.result.skipped.setdefault(f"{entry.name} in {module.title}", reason[:200])
            return None
        return run

    def _open(self, name: str, program: Program, inputs: Inputs) -> Any:
        """What the runtime opens, made once."""
        key = (name, id(program), shape_suffix(inputs))
        if key not in self._opened:
            self._opened[key] = runtime(name).translate(program, inputs)
        return self._opened[key]

    def _weigh(self, names: Sequence[str], inputs: Inputs) -> None:
        """Files and memory of what was timed, in the runtimes that open files."""
        threads, batch = self.plan.threads[0], self.plan.batches[0]
        for name in names:
            plain: Footprint | None = None
            for entry in self.entries:
                if self.result.row(entry.name, name, threads, batch) is None:
                    continue
                opened = [self._open(name, program, inputs) for program in entry.programs]
                files = [file for file in opened if isinstance(file, Path)]
                if len(files) == len(opened):
                    found = self._footprint(entry.name, name, files, inputs, plain)
                    plain = plain or found
                    self.result.footprints.append(found)

    def _footprint(
        self, contender: str, name: str, files: list[Path], inputs: Inputs, plain: Footprint | None
    ) -> Footprint:
        size = sum(file.stat().st_size for file in set(files))
        peak = self._peak(f"memory of {contender} in {runtime(name).title}", name, files, inputs)
        reference = plain.peak if plain else peak
        over = None if peak is None or reference is None else peak - reference
        return Footprint(contender, name, size, size / plain.file if plain else 1.0, peak, over)

    def _peak(self, what: str, name: str, files: list[Path], inputs: Inputs) -> int | None:
        if not self.plan.processes or not meters.can_measure_memory():
            return None
        self.say(what)
        try:
            return meters.peak_memory(name, files, inputs, processes=self.plan.processes)
        except RuntimeError as error:
            self.result.skipped[what] = str(error)
            return None

    def _meter(
        self, runs: dict[tuple[str, str], Run], inputs: Inputs, threads: int, batch: int
    ) -> None:
        seconds = self.plan.energy_seconds
        idle = meters.measure_energy(lambda: time.sleep(0.1), self._meters, seconds=seconds)
        for (name, contender), run in runs.items():
            self.say(f"energy of {contender} in {runtime(name).title}")
            found = meters.measure_energy(partial(run, *inputs), self._meters, seconds=seconds)
            where = {"contender": contender, "runtime": name, "threads": threads, "batch": batch}
            self.result.energy.append(where | found.to_dict() | {"idle_watts": idle.watts})


def check(entry: Contender, run: Run, inputs: Inputs) -> None:
    """A wrong answer is not worth timing: one that differs from PyTorch's, or noise without noise.

    Raises:
        ValueError: the runtime gives other answers.
    """
    found = run(*inputs)
    if entry.random:
        if all(np.array_equal(a, b) for a, b in zip(found, run(*inputs), strict=True)):
            raise ValueError("it gives the same answer twice: the dropout was removed")
        return
    eager = runtime("eager")
    if any(program.graph is None for program in entry.programs):
        return
    expected = entry.run(lambda program: eager.start(program.graph, inputs, 1))(*inputs)
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape or not _is_close(a, b):
            raise ValueError("it gives other answers than PyTorch")


def _is_close(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    if expected.dtype == np.bool_:  # whether to act
        return bool((found == expected).all())
    return bool(np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max() + 1e-5)


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy it was then."""
    about = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*: (.*)", about.read_text() if about.is_file() else "", re.M)
    return {
        "cpu": name[1] if name else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "onesigma": __version__,
    }
