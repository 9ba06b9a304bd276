"""Meters on a fake sysfs tree; joules by hand."""

import sys
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from lab.bench.small_model import SHAPE, exported

from onesigma.lab.bench import meters
from onesigma.lab.bench.meters import Integrator, Meter, find_meters, measure_energy


def write(root, files: dict[str, object]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


RAPL = "sys/class/powercap"
HWMON = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
IIO = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if not installed
    return tmp_path


def zone(root, name: str, label: str, microjoules: int, limit: int = 1_000_000) -> None:
    folder = f"{RAPL}/{name}"
    write(root, {f"{folder}/name": label, f"{folder}/energy_uj": microjoules})
    write(root, {f"{folder}/max_energy_range_uj": limit})


def test_no_meter_is_said_and_not_made_up(root):
    assert find_meters(root) == ([], "no energy meter on this machine")


def test_rapl_counts_packages_and_their_memory_once(root):
    zone(root, "intel-rapl:0", "package-0", 100)
    zone(root, "intel-rapl:0:0", "core", 60)
    zone(root, "intel-rapl:0:1", "dram", 10)
    zone(root, "intel-rapl:1", "psys", 500)
    found, word = find_meters(root)
    assert word == ""
    totals = {meter.name.split()[0]: meter.in_total for meter in found}
    assert totals == {"package-0": True, "core": False, "dram": True, "psys": False}
    integrator = Integrator(found)
    integrator.sample(0.0)
    zone(root, "intel-rapl:0", "package-0", 2_100, 10_000)
    zone(root, "intel-rapl:0:0", "core", 1_060)
    zone(root, "intel-rapl:0:1", "dram", 510)
    integrator.sample(1.0)
    assert integrator.total() == pytest.approx(2_000e-6 + 500e-6)


def test_a_counter_that_wraps_around(root):
    zone(root, "intel-rapl:0", "package-0", 900_000, limit=1_000_000)
    integrator = Integrator(find_meters(root)[0])
    for moment, microjoules in enumerate((900_000, 100_000, 950_000, 50_000)):
        zone(root, "intel-rapl:0", "package-0", microjoules, limit=1_000_000)
        integrator.sample(float(moment))
    assert integrator.total() == pytest.approx(0.2 + 0.85 + 0.1)


def test_a_meter_that_may_not_be_read(root):
    zone(root, "intel-rapl:0", "package-0", 100)
    (root / RAPL / "intel-rapl:0" / "energy_uj").unlink()
    found, word = find_meters(root)
    assert found == []
    assert word == "RAPL is there but may not be read by this user"


def test_jetson_with_hwmon(root):
    """Volts times amperes; the board's own input is the total, its rails are parts."""
    for number, rail in enumerate(("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"), start=1):
        write(root, {f"{HWMON}/in{number}_label": rail, f"{HWMON}/in{number}_input": 5000})
        write(root, {f"{HWMON}/curr{number}_input": 1000 * number})
    write(root, {f"{HWMON}/in4_label": "sum of shunt voltages", f"{HWMON}/in4_input": 9})
    found, _ = find_meters(root)
    assert [meter.name for meter in found] == ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]
    assert [meter.read() for meter in found] == [pytest.approx(5.0 * n) for n in (1, 2, 3)]
    assert [meter.in_total for meter in found] == [True, False, False]


def test_jetson_with_iio(root):
    for number, rail in enumerate(("POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU")):
        write(root, {f"{IIO}/rail_name_{number}": rail, f"{IIO}/in_power{number}_input": 2500})
    found, _ = find_meters(root)
    assert [(meter.name, meter.in_total) for meter in found] == [
        ("POM_5V_IN", True),
        ("POM_5V_GPU", False),
        ("POM_5V_CPU", False),
    ]
    integrator = Integrator(found)
    integrator.sample(0.0)
    write(root, {f"{IIO}/in_power0_input": 3500})
    integrator.sample(2.0)
    assert integrator.total() == pytest.approx((2.5 + 3.5) / 2 * 2.0)


def test_a_board_without_one_input_is_the_sum_of_its_rails(root):
    for number, rail in enumerate(("VDD_GPU_SOC", "VDD_CPU_CV"), start=1):
        write(root, {f"{HWMON}/in{number}_label": rail, f"{HWMON}/in{number}_input": 12_000})
        write(root, {f"{HWMON}/curr{number}_input": 500})
    assert all(meter.in_total for meter in find_meters(root)[0])


@pytest.mark.parametrize("counts", [True, False], ids=["counter", "gauge"])
def test_a_graphics_card(root, monkeypatch, counts):
    def total(card: int) -> int:
        if not counts:
            raise RuntimeError("not supported")
        return 7_000

    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=total,
        nvmlDeviceGetPowerUsage=lambda card: 40_000,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    ((meter,), word) = find_meters(root)
    assert word == ""
    assert (meter.read(), meter.wraps_at is None) == ((7.0, False) if counts else (40.0, True))


def test_energy_per_call(monkeypatch):
    """A gauge at 3 W, a counter of 2 J per reading, calls of 0.25 s on a clock of our own."""
    now = [0.0]
    monkeypatch.setattr(meters.time, "perf_counter", lambda: now[0])
    counter = count(start=0, step=2)
    both = [
        Meter("gauge", lambda: 3.0),
        Meter("counter", lambda: float(next(counter)), wraps_at=1e9, in_total=False),
    ]

    def call() -> None:
        now[0] += 0.25

    found = measure_energy(call, both, seconds=1.0, interval=60)
    assert found.calls == 4
    assert found.seconds == 1.0
    assert found.watts == pytest.approx(3.0)
    assert found.parts == {"gauge": pytest.approx(3.0), "counter": 2.0}
    assert found.to_dict()["joules_per_call"] == pytest.approx(0.75)


def test_memory_is_that_of_a_process_of_its_own():
    files = exported()
    if not meters.can_measure_memory():
        pytest.skip("no /proc on this system")
    inputs = (np.zeros((1, *SHAPE), np.float32),)
    found = meters.peak_memory("onnxruntime", [files / "full.onnx"] * 2, inputs, processes=1)
    # ONNX Runtime itself takes some megabytes; PyTorch, which must not be there, some hundred.
    assert 1e6 < found < 1e8
    with pytest.raises(RuntimeError, match="absent"):
        meters.peak_memory("onnxruntime", [files / "absent.onnx"], inputs, processes=1)


def test_a_profile_sums_up_nodes_by_op():
    def event(name, op, microseconds):
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": microseconds,
                "args": {"op_name": op}}  # fmt: skip

    events = [event("a", "Conv", 30), event("a", "Conv", 20), event("b", "Conv", 40)]
    events += [event("c", "Mul", 60), {"cat": "Session", "name": "run", "dur": 999}]
    found = meters.sum_by_op(events)
    assert [(each.op, each.nodes, each.microseconds) for each in found] == [
        ("Conv", 2, 60),
        ("Mul", 1, 60),
    ]
    assert [each.share for each in found] == [0.5, 0.5]


def test_a_profile_of_a_file():
    found = meters.profile(exported() / "full.onnx", (np.zeros((1, *SHAPE), np.float32),), runs=2)
    assert "Conv" in {each.op.removeprefix("Fused") for each in found}
    assert sum(each.share for each in found) == pytest.approx(1)
