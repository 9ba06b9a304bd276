"""The scripts that judge and print what was measured, on figures made by hand."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from onesigma.lab.bench.timing import Timing

from onesigma.lab.bench.contenders import CALIBRATED, MODES, PLAIN
from onesigma.lab.bench.result import Footprint, Result, Row

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import overhead
    import page

    yield overhead, page
    for name in ("overhead", "page", "fidelity", "networks", "architectures", "shift"):
        sys.modules.pop(name, None)


def row(contender: str, runtime: str, ratio: float, *, batch: int = 1) -> Row:
    seconds = 1e-3 * ratio
    timing = Timing(50, seconds, seconds, seconds, seconds, ratio, 0.01, cpu_ratio=ratio)
    return Row(contender, runtime, 1, batch, timing)


def result() -> Result:
    full, lowrank, *_ = MODES
    ratios = {PLAIN: 1.0, full: 2.3, lowrank: 1.3, CALIBRATED: 1.25, "MC-30, one batch": 46.0}
    found = Result("the paper's CNN", {"cpu": "a processor", "cores": 2, "load": 0.1})
    found.machine["runtimes"] = {"onnxruntime": "ONNX Runtime 1.0"}
    found.rows = [row(name, "onnxruntime", ratio) for name, ratio in ratios.items()]
    found.rows.append(row(full, "eager", 3.0))
    found.footprints = [Footprint(lowrank, "onnxruntime", 1_040, 1.04, 9_000_000, 1_500_000)]
    return found


def test_ratios_are_held_against_their_bars(scripts):
    overhead, _ = scripts
    full, lowrank, *_ = MODES
    found = {(r["runtime"], r["mode"]): r for r in overhead.ratios(result())}
    assert len(found) == 4
    assert [found["onnxruntime", mode]["met"] for mode in (full, lowrank, CALIBRATED)] == [
        *(True, True, False)
    ]
    assert found["onnxruntime", full]["mc30_over_this"] == pytest.approx(20)
    assert found["onnxruntime", full]["at_least_20"]
    assert found["eager", full]["met"] is None
    assert found["eager", full]["mc30_over_this"] is None


def test_what_misses_a_bar_is_profiled(scripts, monkeypatch):
    overhead, _ = scripts
    full, lowrank, *_ = MODES
    rows = overhead.ratios(result())
    next(r for r in rows if r["mode"] == full)["at_least_20"] = False
    entries = [SimpleNamespace(name=name, programs=[SimpleNamespace(path=None)]) for name in
               (PLAIN, full, lowrank, CALIBRATED)]  # fmt: skip
    monkeypatch.setattr(overhead, "profile", lambda path, inputs: [])
    measured = SimpleNamespace(inputs=lambda batch: ())
    assert set(overhead.profiles(rows, entries, measured)) == {PLAIN, full, CALIBRATED}
    for row in rows:
        row.update(met=True, at_least_20=True)
    assert overhead.profiles(rows, entries, measured) == {}


def test_the_page_has_a_place_for_every_figure(scripts, tmp_path):
    overhead, page = scripts
    measured = result()
    figures = {
        "machine": measured.machine,
        "ratios": overhead.ratios(measured),
        "footprints": overhead.footprints(measured),
        "profiles": {},
    }
    (tmp_path / "overhead.json").write_text(json.dumps(figures))
    (tmp_path / "bench.json").write_text(json.dumps(measured.to_dict()))
    (tmp_path / "litert").mkdir()
    other = Result("", measured.machine | {"runtimes": {"litert": "LiteRT 2"}})
    other.rows = [row(PLAIN, "litert", 1.0)]
    (tmp_path / "litert" / "bench.json").write_text(json.dumps(other.to_dict()))
    text = page.PAGE.read_text(encoding="utf-8")
    filled = page.filled(text, tmp_path)
    assert (
        "| ONNX Runtime | frozen + lowrank, calibrated | 1.25 ± 0.01 | 1.25 | ≤ 1.2: **no** | 37× |"
        in filled
    )
    assert "| one pass, lowrank | 1 | 1.040 | +1.5 |" in filled
    assert "No bar was missed." in filled
    assert "ONNX Runtime 1.0, LiteRT 2." in filled
    assert "| plain network | 1.00 | – | 1.00 |" in filled
    # Nothing else changes, and a second time nothing at all.
    assert page.filled(filled, tmp_path) == filled
    assert filled.split("<!-- overhead -->")[0] == text.split("<!-- overhead -->")[0]


def test_a_page_without_the_place_is_an_error(scripts, tmp_path):
    _, page = scripts
    (tmp_path / "peers.json").write_text(json.dumps({"machine": result().machine, "rows": {}}))
    with pytest.raises(ValueError, match="one section 'peers'"):
        page.filled("no section", tmp_path)
