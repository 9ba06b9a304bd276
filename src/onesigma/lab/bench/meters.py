"""What the machine itself can tell: energy and memory of an answer, and where its time goes.

**Energy** comes from the meters of the machine. Where there is none, there is no figure.

    RAPL       x86: /sys/class/powercap/intel-rapl:*/energy_uj, a counter that wraps around
    INA3221    Jetson, JetPack 5 and later (hwmon): millivolts and milliamperes per rail
               Jetson, JetPack 4 (iio): milliwatts per rail
    NVML       graphics cards of NVIDIA, where nvidia-ml-py is installed
Sub-zones and rails that are part of another one are shown, but do not enter the total.

**Memory** is that of a fresh process that opens the files and does nothing else: the peak of the
resident memory (VmHWM of Linux, which counts what native code takes too) after some answers, minus
what was resident before the runtime was imported. The plain network is measured in the same way;
what a method costs is the difference.

**Time** by op is ONNX Runtime's own profile, summed up.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import numpy as np

from onesigma.lab.bench.runtimes import Inputs, onnx_session, runtime

NO_METER = "no energy meter on this machine"
# The rails through which all of a board is fed.
_WHOLE_BOARD = ("POM_5V_IN", "VDD_IN")
_PARTS_OF_A_PACKAGE = ("core", "uncore")
_AROUND_PACKAGES = "psys"
_ANSWERS = 5
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Meter:
    """A counter of joules that starts again at ``wraps_at``, or else a gauge of watts."""

    name: str
    read: Callable[[], float]
    wraps_at: float | None = None
    in_total: bool = True

    def joules(self, before: float, after: float, seconds: float) -> float:
        """Between two readings."""
        if self.wraps_at is None:
            return (before + after) / 2 * seconds
        return (after - before) % self.wraps_at


@dataclass(frozen=True)
class Energy:
    """What a stretch of work took. ``parts`` is by meter, in joules like ``joules``."""

    calls: int
    seconds: float
    joules: float
    parts: dict[str, float]

    @property
    def watts(self) -> float:
        return self.joules / self.seconds

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "watts": self.watts,
            "joules_per_call": self.joules / self.calls,
            "parts": {name: joules / self.calls for name, joules in self.parts.items()},
        }


def find_meters(root: Path = Path("/")) -> tuple[list[Meter], str]:
    """The meters that can be read, and why there are none, or not more."""
    meters: list[Meter] = []
    closed = []
    for kind, found in (("RAPL", _rapl(root)), ("INA3221", [*_hwmon(root), *_iio(root)])):
        readable = [meter for meter in found if _can_read(meter)]
        if len(readable) < len(found):
            closed.append(f"{kind} is there but may not be read by this user")
        meters += readable
    meters += _nvml()
    return meters, "; ".join(closed) or ("" if meters else NO_METER)


class Integrator:
    """Adds up what the meters say; ``sample`` often, before a counter wraps twice."""

    def __init__(self, meters: Iterable[Meter]) -> None:
        self.meters = list(meters)
        self.joules = [0.0] * len(self.meters)
        self._last: tuple[float, list[float]] | None = None

    def sample(self, now: float) -> None:
        values = [meter.read() for meter in self.meters]
        if self._last is not None:
            then, before = self._last
            for index, meter in enumerate(self.meters):
                self.joules[index] += meter.joules(before[index], values[index], now - then)
        self._last = (now, values)

    def total(self) -> float:
        pairs = zip(self.meters, self.joules, strict=True)
        return sum(joules for meter, joules in pairs if meter.in_total)


def measure_energy(
    call: Callable[[], object], meters: list[Meter], *, seconds: float = 5.0, interval: float = 0.05
) -> Energy:
    """Run ``call`` over and over for that long, and read the meters meanwhile."""
    integrator, done, calls = Integrator(meters), Event(), 0

    def watch() -> None:
        while not done.wait(interval):
            integrator.sample(time.perf_counter())

    start = time.perf_counter()
    integrator.sample(start)
    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        while not calls or time.perf_counter() - start < seconds:
            call()
            calls += 1
    finally:
        done.set()
        watcher.join()
    end = time.perf_counter()
    integrator.sample(end)
    parts = {m.name: j for m, j in zip(meters, integrator.joules, strict=True)}
    return Energy(calls, end - start, integrator.total(), parts)


def _rapl(root: Path) -> list[Meter]:
    """Packages and their memory count; parts of a package and what is around it do not."""
    meters = []
    for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        name = _text(zone / "name") or zone.name
        whole = name not in (*_PARTS_OF_A_PACKAGE, _AROUND_PACKAGES)
        # A counter whose range is unknown is taken as one that does not wrap within a day.
        wraps_at = 1e-6 * float(_text(zone / "max_energy_range_uj") or 1e18)
        read = _reader(zone / "energy_uj", 1e-6)
        meters.append(Meter(f"{name} ({zone.name})", read, wraps_at, whole))
    return meters


def _hwmon(root: Path) -> list[Meter]:
    """Rails as millivolts and milliamperes, numbered from 1."""
    rails = {}
    for label in sorted((root / "sys/bus/i2c/drivers/ina3221").glob("*/hwmon/hwmon*/in*_label")):
        number = label.name.removeprefix("in").removesuffix("_label")
        current = label.parent / f"curr{number}_input"
        if current.is_file():  # a fourth "rail" is the sum of the others' shunts
            millivolts = _reader(label.parent / f"in{number}_input", 1e-3)
            milliamperes = _reader(current, 1e-3)
            rails[_text(label)] = _product(millivolts, milliamperes)
    return _rails(rails)


def _iio(root: Path) -> list[Meter]:
    """Rails as milliwatts, numbered from 0."""
    rails = {}
    for label in sorted((root / "sys/bus/i2c/drivers/ina3221x").glob("*/iio:device*/rail_name_*")):
        number = label.name.removeprefix("rail_name_")
        rails[_text(label)] = _reader(label.parent / f"in_power{number}_input", 1e-3)
    return _rails(rails)


def _rails(rails: dict[str, Callable[[], float]]) -> list[Meter]:
    whole = [name for name in rails if name in _WHOLE_BOARD] or list(rails)
    return [Meter(name, read, in_total=name in whole) for name, read in rails.items()]


def _nvml() -> list[Meter]:
    """Graphics cards: their counter of millijoules, or on old ones milliwatts."""
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        cards = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except Exception:  # not installed, no driver, no card: each has a class of its own
        return []
    return [_card(nvml, index, card) for index, card in enumerate(cards)]


def _card(nvml: Any, index: int, card: Any) -> Meter:
    name = f"GPU {index}"
    try:
        nvml.nvmlDeviceGetTotalEnergyConsumption(card)
    except Exception:  # before Volta
        return Meter(name, lambda: 1e-3 * float(nvml.nvmlDeviceGetPowerUsage(card)))
    return Meter(
        name, lambda: 1e-3 * float(nvml.nvmlDeviceGetTotalEnergyConsumption(card)), float(2**63)
    )


def _reader(path: Path, unit: float) -> Callable[[], float]:
    return lambda: unit * float(path.read_text())


def _product(one: Callable[[], float], other: Callable[[], float]) -> Callable[[], float]:
    return lambda: one() * other()


def _can_read(meter: Meter) -> bool:
    try:
        meter.read()
    except (OSError, ValueError):
        return False
    return True


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def can_measure_memory() -> bool:
    return STATUS.is_file()


def peak_memory(name: str, files: Sequence[Path], inputs: Inputs, *, processes: int = 3) -> int:
    """Bytes at the peak: the median of several processes, because it varies by some 100 kB.

    Args:
        name: of the runtime.
        files: what it opens and runs for one answer, one after the other; some may be the same.
        inputs: one batch.
        processes: how many are asked.
    """
    job = {
        "runtime": name,
        "files": [str(file) for file in files],
        "inputs": [(x.shape, str(x.dtype)) for x in inputs],
    }
    command = [sys.executable, "-m", __name__, json.dumps(job)]
    found = []
    for _ in range(processes):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        found.append(int(done.stdout.splitlines()[-1]))
    return int(statistics.median(found))


def _answer(job: dict[str, Any]) -> int:
    """What the process is started for."""
    inputs = tuple(np.zeros(shape, dtype) for shape, dtype in job["inputs"])
    module = runtime(job["runtime"])
    before = _resident("VmRSS")
    started = {file: module.start(Path(file), inputs, 1) for file in job["files"]}
    for _ in range(_ANSWERS):
        for file in job["files"]:
            started[file](*inputs)
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), flags=re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{STATUS} has no {field}")
    return 1024 * int(found[1])


@dataclass(frozen=True)
class OpTime:
    """All nodes of one op, per run: how many, how long in microseconds, which share of all."""

    op: str
    nodes: int
    microseconds: float
    share: float


def profile(path: Path, inputs: Inputs, *, threads: int = 1, runs: int = 50) -> list[OpTime]:
    """The ops of an ONNX file, the slowest first; each node counts with its fastest run."""
    with TemporaryDirectory() as folder:
        loaded = onnx_session(path, threads, profile=Path(folder) / "profile")
        names = [each.name for each in loaded.get_inputs()]
        feed = dict(zip(names, inputs, strict=True))
        for _ in range(runs):
            loaded.run(None, feed)
        events: list[dict[str, Any]] = json.loads(Path(loaded.end_profiling()).read_text())
    return sum_by_op(events)


def sum_by_op(events: list[dict[str, Any]]) -> list[OpTime]:
    """From the events of ONNX Runtime's profile."""
    fastest: dict[tuple[str, str], float] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = (event["args"]["op_name"], event["name"])
            fastest[key] = min(event["dur"], fastest.get(key, float("inf")))
    by_op: dict[str, list[float]] = defaultdict(list)
    for (op, _), microseconds in fastest.items():
        by_op[op].append(microseconds)
    total = sum(fastest.values())
    found = [OpTime(op, len(each), sum(each), sum(each) / total) for op, each in by_op.items()]
    return sorted(found, key=lambda each: -each.microseconds)


if __name__ == "__main__":
    print(_answer(json.loads(sys.argv[1])))
