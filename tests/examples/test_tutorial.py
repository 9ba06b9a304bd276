"""The tutorial is written once, in examples/watch.py; page and notebook say the same."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "tutorial.py"))
NOTEBOOK = ROOT / "examples" / "watch.ipynb"


def test_page_and_notebook_are_current():
    again = "run: python tools/tutorial.py"
    assert (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8") == TOOL["page"](), again
    assert NOTEBOOK.read_text(encoding="utf-8") == TOOL["notebook"](), again


@pytest.mark.long
def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    for package in ("seglearn", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
    text = capsys.readouterr().out
    assert "channel az: std" in text
    assert "act if entropy <" in text
    assert (tmp_path / "watch.onnx").is_file()
    assert (tmp_path / "firmware" / "model.c").is_file()
