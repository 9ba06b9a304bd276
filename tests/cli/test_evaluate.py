"""``onesigma audit`` and ``onesigma report`` from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma.cli import main as cli
from onesigma.lab.bench import report_cost


@pytest.fixture(scope="module")
def converted() -> onesigma.Converted:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 8), nn.ReLU(),
        nn.Dropout(0.4), nn.Linear(8, 3),
    )  # fmt: skip
    return onesigma.convert(model.eval(), torch.zeros(2, 6))


@pytest.fixture
def folder(converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onesigma.save(converted, "model.safetensors")
    draw = np.random.default_rng(0)
    np.save("x.npy", draw.normal(size=(40, 6)).astype(np.float32))
    np.save("y.npy", draw.integers(0, 3, 40))
    return tmp_path


def test_audit_of_a_saved_model(folder, capsys):
    command = ["audit", "model.safetensors", "x.npy", "--passes", "40"]
    assert cli.main([*command, "--json", "--output", "pictures"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["inputs"] == 40
    assert len(figures["layers"]) == 3  # linear, relu, linear after the first dropout
    assert Path("pictures", "audit.png").stat().st_size > 5_000
    assert cli.main(command) == 0
    assert "std ratio" in capsys.readouterr().out


def test_audit_of_a_factory_on_a_recording(folder, capsys):
    Path("audit_nets.py").write_text(
        "from torch import nn\n\n"
        "net = nn.Sequential(nn.Flatten(), nn.Dropout(0.4), nn.Linear(3 * 8, 2))\n"
    )
    recording = np.random.default_rng(0).normal(size=(80, 3))
    np.savetxt("recording.csv", recording, delimiter=",", header="x,y,z", comments="")
    command = ["audit", "audit_nets:net", "recording.csv", "--window", "8", "--passes", "40"]
    assert cli.main([*command, "--json", "-q"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["inputs"] == 10
    assert captured.err == ""


def test_an_exported_file_cannot_be_audited(converted, folder, capsys):
    pytest.importorskip("onnxruntime")
    onesigma.export(converted, "out.onnx")
    assert cli.main(["audit", "out.onnx", "x.npy"]) == 1
    assert "what it was exported from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not an array", "cannot be read as a .npy array"),
        (None, "there is no such file"),
        (np.array(["text"]), "one array of numbers"),
        (np.zeros((3, 5)), "gives samples of shape (5), the model takes (6)"),
    ],
    ids=["garbage", "absent", "text", "wrong shape"],
)
def test_audit_explains_bad_input(content, says, folder, capsys):
    if isinstance(content, bytes):
        Path("inputs.npy").write_bytes(content)
    elif content is not None:
        np.save("inputs.npy", content)
    assert cli.main(["audit", "model.safetensors", "inputs.npy"]) == 1
    assert says in capsys.readouterr().err


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_cost, "measure_cost", lambda *_, **__: "not timed in this test")


REPORT = ["report", "model.safetensors", "x.npy", "--labels", "y.npy", "--passes", "4"]


def test_a_page_with_labels_and_names(folder, untimed, capsys):
    before = {file.name for file in folder.iterdir()}
    assert cli.main([*REPORT, "--class-names", "one,two,<three>", "-o", "page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<h1>model.safetensors</h1>" in page
    assert "40 inputs of 6 values with labels" in page
    assert "<three>" not in page
    assert "page.html" in capsys.readouterr().err
    assert {file.name for file in folder.iterdir()} == before | {"page.html"}


def test_a_long_file_is_thinned_with_its_labels(converted, folder, untimed, capsys):
    assert cli.main([*REPORT, "--limit", "15", "--json"]) == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "10 inputs (1 of 4 in the file)" in page
    with torch.no_grad():
        said = converted(torch.from_numpy(np.load("x.npy")[::4])).label
    right = (said.numpy() == np.load("y.npy")[::4]).mean()
    figures = json.loads(capsys.readouterr().out)
    assert figures["figures"]["one pass"]["accuracy"] == pytest.approx(right)
    assert figures["audit"]["passes"] == 4
    assert f"<b>{100 * right:.1f} %</b>of the answers are right" in page


def test_foreign_samples_are_told_from_the_others(converted, folder, untimed, capsys):
    from sklearn.metrics import roc_auc_score

    other = 3 * np.load("x.npy")[:20]
    np.save("other.npy", other)
    assert cli.main([*REPORT, "--foreign", "other.npy", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    with torch.no_grad():
        said = converted(torch.from_numpy(np.concatenate([np.load("x.npy"), other]))).entropy
    expected = roc_auc_score(np.arange(60) >= 40, said.numpy())
    assert figures["foreign_auroc"] == pytest.approx(expected)
    assert f"AUROC of {expected:.3f}" in Path("report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (REPORT, "y.npy: 39 labels for 40 samples of x.npy"),
        (["report", "model.safetensors", "x.npy", "--risk", "0.1"], "--risk needs --labels"),
    ],
)
def test_a_report_that_cannot_be_made(arguments, says, folder, untimed, capsys):
    np.save("y.npy", np.zeros(39, dtype=int))
    assert cli.main(arguments) == 1
    assert says in capsys.readouterr().err
    assert not Path("report.html").exists()


def test_pictures_go_to_a_folder(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["audit", "model.safetensors", "data.npy", "--output", "/dev/null"])
    assert "'/dev/null' is no folder" in capsys.readouterr().err
