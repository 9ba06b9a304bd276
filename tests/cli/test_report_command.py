"""``onesigma report`` from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma.cli import main as cli
from onesigma.lab.bench import report_cost


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report_cost, "measure_cost", lambda *_, **__: "not timed in this test")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))
    onesigma.save(onesigma.convert(model.eval(), torch.zeros(2, 6)), "model.safetensors")
    draw = np.random.default_rng(0)
    np.save("x.npy", draw.normal(size=(40, 6)).astype(np.float32))
    np.save("y.npy", draw.integers(0, 3, 40))
    return tmp_path


def test_a_page_with_labels_and_names(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["report", "model.safetensors", "x.npy", "--labels-file", "y.npy"]
    arguments += ["--labels", "one,two,<three>", "--passes", "8", "-o", "page.html"]
    assert cli.main(arguments) == 0
    page = (files / "page.html").read_text(encoding="utf-8")
    assert "<h1>model.safetensors</h1>" in page
    assert "40 inputs of 6 values with labels" in page
    assert "<three>" not in page
    assert "page.html" in capsys.readouterr().err
    assert {f.name for f in files.iterdir()} == {"model.safetensors", "x.npy", "y.npy", "page.html"}


def test_a_long_file_is_thinned_with_its_labels(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["report", "model.safetensors", "x.npy", "--labels-file", "y.npy"]
    assert cli.main([*arguments, "--limit", "15", "--passes", "4", "--json"]) == 0
    page = (files / "report.html").read_text(encoding="utf-8")
    assert "10 inputs (1 of 4 in the file)" in page
    with torch.no_grad():
        said = onesigma.load("model.safetensors")(torch.from_numpy(np.load("x.npy")[::4])).label
    right = (said.numpy() == np.load("y.npy")[::4]).mean()
    figures = json.loads(capsys.readouterr().out)
    assert figures["figures"]["one pass"]["accuracy"] == pytest.approx(right)
    assert figures["audit"]["passes"] == 4
    assert figures["cost"] == "not timed in this test"
    assert f"<b>{100 * right:.1f} %</b>of the answers are right" in page


def test_what_is_wrong_is_said_in_a_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("y.npy", np.zeros(39, dtype=int))
    arguments = ["report", "model.safetensors", "x.npy", "--labels-file", "y.npy", "--passes", "4"]
    assert cli.main(arguments) == 1
    assert "39 labels for 40 inputs" in capsys.readouterr().err
    assert not (files / "report.html").exists()
