"""What was measured, judged: on figures made by hand."""

from types import SimpleNamespace

import pytest

from onesigma.lab.bench import overhead
from onesigma.lab.bench.contenders import CONVERTED, FITTED, PLAIN
from onesigma.lab.bench.result import Footprint, Result, Row
from onesigma.lab.timing import Timing


def make_row(contender: str, runtime: str, ratio: float, *, batch: int = 1) -> Row:
    seconds = 1e-3 * ratio
    timing = Timing(50, seconds, seconds, seconds, seconds, ratio, 0.01, cpu_ratio=ratio)
    return Row(contender, runtime, 1, batch, timing)


def make_result() -> Result:
    ratios = {PLAIN: 1.0, CONVERTED: 2.5, FITTED: 2.3, "MC-30, one batch": 46.0}
    found = Result("the paper's CNN", {"cpu": "a processor", "cores": 2, "load": 0.1})
    found.machine["runtimes"] = {"onnxruntime": "ONNX Runtime 1.0"}
    found.rows = [make_row(name, "onnxruntime", ratio) for name, ratio in ratios.items()]
    found.rows.append(make_row(CONVERTED, "eager", 3.0))
    found.footprints = [Footprint(FITTED, "onnxruntime", 1_040, 1.04, 9_000_000, 1_500_000)]
    return found


def test_ratios_are_held_against_their_bars():
    found = {(r["runtime"], r["form"]): r for r in overhead.ratios(make_result())}
    assert len(found) == 3
    assert [found["onnxruntime", form]["met"] for form in (CONVERTED, FITTED)] == [False, None]
    assert found["onnxruntime", FITTED]["mc30_over_this"] == pytest.approx(20)
    assert found["onnxruntime", FITTED]["at_least_20"]
    assert not found["onnxruntime", CONVERTED]["at_least_20"]
    assert found["eager", CONVERTED]["met"] is None
    assert found["eager", CONVERTED]["mc30_over_this"] is None


def test_what_misses_a_bar_is_profiled(monkeypatch):
    rows = overhead.ratios(make_result())
    entries = [SimpleNamespace(name=name, programs=[SimpleNamespace(path=None)]) for name in
               (PLAIN, CONVERTED, FITTED)]  # fmt: skip
    monkeypatch.setattr(overhead, "profile", lambda path, inputs: [])
    measured = SimpleNamespace(inputs=lambda batch: (), contenders=entries)
    assert set(overhead.profiles(rows, measured)) == {PLAIN, CONVERTED}
    for row in rows:
        row.update(met=True, at_least_20=True)
    assert overhead.profiles(rows, measured) == {}
