"""The page of the benchmarks is written from figures made by hand."""

import json
from pathlib import Path

import pytest
from lab.bench.test_overhead import make_result, make_row

from onesigma.lab.bench import benchmarks_page as page
from onesigma.lab.bench import overhead
from onesigma.lab.bench.contenders import PLAIN
from onesigma.lab.bench.result import Result

ROOT = Path(__file__).parents[3]


def test_the_page_has_a_place_for_every_figure(tmp_path):
    measured = make_result()
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
    other.rows = [make_row(PLAIN, "litert", 1.0)]
    (tmp_path / "litert" / "bench.json").write_text(json.dumps(other.to_dict()))
    text = (ROOT / page.PAGE).read_text(encoding="utf-8")
    filled = page.fill(text, tmp_path)
    assert "| ONNX Runtime | moments | 2.50 ± 0.01 | 2.50 | ≤ 2.4: **no** | 18× |" in filled
    assert "| one pass, fitted | 1 | 1.040 | +1.5 |" in filled
    assert "No bar was missed." in filled
    assert "ONNX Runtime 1.0, LiteRT 2." in filled
    assert "| plain network | 1.00 | – | 1.00 |" in filled
    # Nothing else changes, and a second time nothing at all.
    assert page.fill(filled, tmp_path) == filled
    assert filled.split("<!-- overhead -->")[0] == text.split("<!-- overhead -->")[0]


def test_a_page_without_the_place_is_an_error(tmp_path):
    (tmp_path / "peers.json").write_text(json.dumps({"machine": make_result().machine, "rows": {}}))
    with pytest.raises(ValueError, match="one section 'peers'"):
        page.fill("no section", tmp_path)
