"""Energy per answer, from the meters of the machine itself. Where there is none, no figure.

    RAPL       x86: /sys/class/powercap/intel-rapl:*/energy_uj, a counter that wraps around
    INA3221    Jetson, JetPack 5 and later (hwmon): millivolts and milliamperes per rail
               Jetson, JetPack 4 (iio): milliwatts per rail
    NVML       graphics cards of NVIDIA, where nvidia-ml-py is installed

Sub-zones and rails that are part of another one are shown, but do not enter the total.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any

NO_METER = "no energy meter on this machine"
# The rails through which all of a board is fed.
_WHOLE_BOARD = ("POM_5V_IN", "VDD_IN")
_PARTS_OF_A_PACKAGE = ("core", "uncore")
_AROUND_PACKAGES = "psys"


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
    """The meters that can be read, and a word on why there are none, or not more."""
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


def measure(
    call: Callable[[], object],
    meters: list[Meter],
    *,
    seconds: float = 5.0,
    interval: float = 0.05,
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
        while time.perf_counter() - start < seconds:
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
    """Packages and their memory; the parts of a package and what is around it apart."""
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
