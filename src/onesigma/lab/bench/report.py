"""A benchmark as text."""

from __future__ import annotations

from collections.abc import Iterable

from onesigma.lab.bench.result import Result, Row
from onesigma.lab.bench.runtimes import runtime
from onesigma.lab.bench.timing import Timing
from onesigma.text_table import text_table


def show(result: Result) -> str:
    """Tables of times and of footprints, energy if there is a meter, and what was left out."""
    machine = result.machine
    parts = [
        f"{result.model} on {machine['cpu']}, {machine['cores']} cores\n"
        "× is time relative to the plain network in the same runtime and run (ratio of minima, "
        "± over fifths of the run);\ncpu × the same of the processor's own time, which a busy "
        "machine does not blur; ms the median for the whole batch."
    ]
    for threads, batch in dict.fromkeys((row.threads, row.batch) for row in result.rows):
        rows = [row for row in result.rows if (row.threads, row.batch) == (threads, batch)]
        parts.append(f"threads {threads}, batch {batch}\n{_times(rows)}")
    if result.footprints:
        parts.append(f"files and memory (batch {result.rows[0].batch})\n{_footprints(result)}")
    if result.energy:
        parts.append(f"energy\n{_energy(result)}")
    left_out = [f"left out: {what}: {why}" for what, why in result.skipped.items()]
    return "\n\n".join([*parts, "\n".join([*left_out, *result.notes])]).rstrip()


def ratio(value: float, noise: float | None = None) -> str:
    digits = 2 if value < 10 else 1
    tail = "" if noise is None else f" ± {noise:.{digits}f}"
    return f"{value:.{digits}f}{tail}"


def _times(rows: list[Row]) -> str:
    names = _in_order(row.runtime for row in rows)
    header = ["", *(cell for name in names for cell in (f"{runtime(name).NAME} ms", "×", "cpu ×"))]
    found = {(row.contender, row.runtime): row.timing for row in rows}
    lines = []
    for contender in _in_order(row.contender for row in rows):
        cells = [contender]
        for name in names:
            timing = found.get((contender, name))
            cells += _cells(timing) if timing else ["–"] * 3
        lines.append(cells)
    return text_table(header, lines, numbers=True)


def _cells(timing: Timing) -> list[str]:
    return [f"{1e3 * timing.p50:.2f}", ratio(timing.ratio, timing.noise), ratio(timing.cpu_ratio)]


def _footprints(result: Result) -> str:
    lines = [
        [
            f"{each.contender}, {runtime(each.runtime).NAME}",
            f"{each.file / 1e3:.0f}",
            ratio(each.file_ratio),
            "–" if each.peak is None else f"{each.peak / 1e6:.1f}",
            "–" if each.over_plain is None else f"{each.over_plain / 1e6:+.1f}",
        ]
        for each in result.footprints
    ]
    return text_table(("", "file kB", "×", "peak MB", "over plain MB"), lines, numbers=True)


def _energy(result: Result) -> str:
    lines = [
        [
            f"{each['contender']}, {runtime(each['runtime']).NAME}, threads {each['threads']}",
            f"{1e3 * each['joules_per_call']:.2f}",
            f"{each['watts']:.2f}",
            f"{each['idle_watts']:.2f}",
        ]
        for each in result.energy
    ]
    return text_table(("", "mJ per answer", "W", "W idle"), lines, numbers=True)


def _in_order(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
