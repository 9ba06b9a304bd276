"""``onesigma predict``: what a user types and what comes back."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma.calibration.guarding import Channels, with_guard
from onesigma.cli import main as cli

X = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def converted() -> onesigma.Converted:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3))
    return onesigma.convert(model, torch.randn(2, 6))


@pytest.fixture
def folder(converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onesigma.save(converted, tmp_path / "model.safetensors")
    np.savetxt(tmp_path / "data.csv", X, delimiter=",", fmt="%.9g")
    np.save(tmp_path / "data.npy", X)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predict(*arguments: str) -> int:
    return cli.main(["predict", *arguments])


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def numbers(rows: list[dict[str, str]], column: str) -> np.ndarray:
    return np.array([float(row[column]) for row in rows])


def test_csv_to_standard_output(converted, folder, capsys):
    assert predict("model.safetensors", "data.csv", "--batch", "4", "--probs") == 0
    captured = capsys.readouterr()
    rows, expected = table(captured.out), converted(torch.from_numpy(X))
    assert captured.err == ""
    assert [row["index"] for row in rows] == [str(i) for i in range(10)]
    assert [int(row["label"]) for row in rows] == expected.label.tolist()
    np.testing.assert_allclose(
        numbers(rows, "probability"), expected.confidence.detach(), rtol=1e-4
    )
    for column in ("entropy", "epistemic", "aleatoric"):
        values = getattr(expected, column).detach()
        np.testing.assert_allclose(numbers(rows, column), values, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(sum(numbers(rows, f"p_{i}") for i in range(3)), 1, atol=1e-4)


def test_a_file_a_threshold_and_a_summary(converted, folder, capsys):
    entropy = converted(torch.from_numpy(X)).entropy.detach().numpy()
    limit = float(np.quantile(entropy, 0.35))
    command = ["model.safetensors", "data.npy", "--class-names", "a,b,c"]
    command += ["--abstain-above", str(limit)]
    assert predict(*command, "-o", "out.csv", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    rows = table((folder / "out.csv").read_text())
    acts = entropy <= limit
    assert acts.sum() == 4
    assert [row["act"] for row in rows] == ["act" if act else "abstain" for act in acts]
    assert {row["label"] for row in rows} <= {"a", "b", "c"}
    assert summary["samples"] == 10
    assert summary["output"] == "out.csv"
    assert summary["coverage"] == pytest.approx(acts.mean())
    assert summary["averages"]["entropy"] == pytest.approx(entropy.mean(), rel=1e-5)
    assert sum(summary["labels"].values()) == 10
    # The same without a file: the summary alone.
    assert predict(*command, "--json") == 0
    assert json.loads(capsys.readouterr().out) == summary | {"output": None}
    assert predict(*command, "-o", "out.csv") == 0
    assert f"10 samples, acts on {100 * acts.mean():.1f} % → out.csv" in capsys.readouterr().err
    assert predict(*command, "-o", "out.csv", "-q") == 0
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_a_sample_that_is_not_finite_when_scaled_is_not_answered(folder, capsys):
    data = X.copy()
    data[3, 2] = 3e38
    np.save("large.npy", data)
    Path("scale.json").write_text('{"mean": 0, "std": 0.01}')
    command = ["model.safetensors", "large.npy", "--standardise", "scale.json"]
    command += ["--abstain-above", "99", "-o", "out.csv"]
    assert predict(*command, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    rows = table((folder / "out.csv").read_text())
    assert [row["act"] for row in rows] == ["act"] * 3 + ["abstain"] + ["act"] * 6
    assert [i for i, row in enumerate(rows) if row["probability"] == "nan"] == [3]
    assert (summary["samples"], summary["valid"]) == (10, 9)
    good = [float(row["entropy"]) for row in rows if row["entropy"] != "nan"]
    assert summary["averages"]["entropy"] == pytest.approx(np.mean(good), rel=1e-4)


def test_parquet_in_and_out(folder):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = dict(zip("abcdef", X.T, strict=True)) | {"who": ["me"] * 10}
    parquet.write_table(arrow.table(columns), "data.parquet")
    assert predict("model.safetensors", "data.parquet", "-o", "out.parquet") == 1
    assert not Path("out.parquet").exists()
    command = ["model.safetensors", "data.parquet", "--columns", "a,b,2-5", "-o", "out.parquet"]
    assert predict(*command) == 0
    assert predict("model.safetensors", "data.csv", "-o", "out.csv") == 0
    rows = parquet.read_table("out.parquet").to_pylist()
    entropy = numbers(table(Path("out.csv").read_text()), "entropy")
    np.testing.assert_allclose([row["entropy"] for row in rows], entropy, rtol=1e-4)


def test_the_rule_of_the_model_and_one_of_a_file(converted, folder, capsys):
    epistemic = converted(torch.from_numpy(X)).epistemic.detach()
    limit = float(epistemic.median())
    rule = onesigma.AbstainRule("epistemic", limit, 0.1, None, 100, 0.5, 0.05)
    onesigma.save(converted.with_abstain(rule), "rule.safetensors")
    Path("rule.json").write_text(json.dumps(rule.to_dict()))
    expected = ["act" if act else "abstain" for act in epistemic < limit]
    assert expected.count("act") == 4  # the median itself, the fifth, is not below
    for command in (["rule.safetensors"], ["model.safetensors", "--abstain-rule", "rule.json"]):
        assert predict(*command, "data.npy") == 0
        assert [row["act"] for row in table(capsys.readouterr().out)] == expected


def test_regression(folder, capsys):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 1))
    converted = onesigma.convert(model, torch.randn(2, 6), task="regression")
    onesigma.save(converted, "model.safetensors")
    assert predict("model.safetensors", "data.npy") == 0
    rows = table(capsys.readouterr().out)
    assert list(rows[0]) == ["index", "mean", "std"]
    std = converted(torch.from_numpy(X)).std.detach()[:, 0]
    np.testing.assert_allclose(numbers(rows, "std"), std, rtol=1e-4)
    assert predict("model.safetensors", "data.npy", "--abstain-above", "1") == 1
    assert "regression" in capsys.readouterr().err


SENSORS = """
from torch import nn

def make():
    layers = nn.Conv2d(2, 4, (3, 5)), nn.ReLU(), nn.Flatten(), nn.Dropout(0.4), nn.Linear(24, 3)
    return nn.Sequential(*layers)
"""


def test_a_network_by_name_on_a_recording(folder, capsys):
    """Six columns become the three axes of two sensors; weights and class names from files."""
    Path("sensor_nets.py").write_text(SENSORS)
    Path("names.txt").write_text("walk\nrun\nrest\n")
    scope: dict[str, Any] = {}
    exec(SENSORS, scope)
    network = scope["make"]().eval()
    torch.save(network.state_dict(), "weights.pt")
    recording = np.random.default_rng(0).normal(size=(28, 6)).astype(np.float32)
    np.savetxt("watch.csv", recording, delimiter=",", fmt="%.9g", header="a,b,c,d,e,f", comments="")
    command = ["sensor_nets:make", "--weights", "weights.pt", "watch.csv"]
    cut = ["--window", "10", "--hop", "8", "--shape", "2,3,10"]
    assert predict(*command, *cut, "--class-names", "names.txt") == 0
    rows = table(capsys.readouterr().out)
    assert [int(row["start"]) for row in rows] == [0, 8, 16]
    windows = [recording[s : s + 10].T.reshape(2, 3, 10) for s in (0, 8, 16)]
    x = torch.from_numpy(np.stack(windows))
    expected = onesigma.convert(network, x)(x)
    np.testing.assert_allclose(numbers(rows, "entropy"), expected.entropy.detach(), rtol=1e-3)
    names = ["walk", "run", "rest"]
    assert [row["label"] for row in rows] == [names[i] for i in expected.label]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.safetensors", "data.csv"], "none.safetensors: there is no such file"),
        (["model.safetensors", "none.csv"], "none.csv: there is no such file"),
        (["model.safetensors", "five.csv"], "five.csv gives samples of shape (5), the model takes"),
        (["model.safetensors", "data.csv", "-o", "data.csv"], "is the data itself"),
        (["model.safetensors", "data.csv", "-o", "out.txt"], "as .csv or .parquet"),
        (["model.safetensors", "data.csv", "--class-names", "a,b"], "2 class names (a, b) for"),
        (["model.safetensors", "data.csv", "--abstain-rule", "data.csv"], "is no abstain rule"),
        (["model.safetensors", "data.csv", "--standardise", "data.csv"], "a mean and a std"),
        (["model.safetensors", "data.csv", "--task", "regression"], "already: --task would"),
        (["model.safetensors", "data.csv", "--window", "99"], "fewer rows than one window"),
        (["model.safetensors", "late.csv", "-o", "out.csv"], "late.csv, line 70, column 5"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(arguments, says, folder, capsys):
    np.savetxt("five.csv", X[:, :5], delimiter=",")
    Path("late.csv").write_text("1,2,3,4,5,6\n" * 69 + "1,2,3,4,5,?\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert predict(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("onesigma: ")
    assert says in captured.err
    assert "Traceback" not in captured.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [["--window", "0"], ["--shape", "2,x"], ["--batch", "-1"], ["--abstain-above", "low"],
     ["--abstain-above", "1", "--abstain-rule", "rule.json"]],
)  # fmt: skip
def test_wrong_usage(arguments, folder):
    with pytest.raises(SystemExit) as stop:
        predict("model.safetensors", "data.csv", *arguments)
    assert stop.value.code == 2


def test_a_malicious_pickle_does_not_run(folder, capsys):
    """Neither as a model nor as weights, without --trust."""

    class Trap:
        def __reduce__(self):
            return Path("executed").touch, ()

    (folder / "predict_nets.py").write_text("from torch import nn\nnet = nn.Linear(6, 3)\n")
    torch.save({"weight": Trap()}, "model.pt")
    assert predict("model.pt", "data.csv") == 1
    assert predict("predict_nets:net", "--weights", "model.pt", "data.csv") == 1
    assert "--trust" in capsys.readouterr().err
    assert not Path("executed").exists()
    assert predict("model.pt", "data.csv", "--trust") == 1  # it holds no network
    assert Path("executed").exists()


def test_where_the_answers_go(folder, capsys):
    """A link stays, a device is written to, a circle of links is refused."""
    (folder / "real").mkdir()
    (folder / "link.csv").symlink_to("real/out.csv")
    (folder / "nothing.csv").symlink_to("/dev/null")
    (folder / "circle.csv").symlink_to("circle.csv")
    for name, code in {"link.csv": 0, "nothing.csv": 0, "circle.csv": 1}.items():
        assert predict("model.safetensors", "data.npy", "-o", name) == code
    assert len(table((folder / "link.csv").read_text())) == len(X)
    assert (folder / "link.csv").is_symlink()
    assert (folder / "nothing.csv").is_symlink()
    assert "leads in a circle" in capsys.readouterr().err


def test_a_file_that_another_tool_changed(converted, folder, capsys):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    onesigma.export(converted, folder / "out.onnx")
    changed = onnx.load("out.onnx")
    changed.producer_name = "a tool that optimises"
    onnx.save(changed, "changed.onnx")
    assert predict("out.onnx", "data.npy") == 0
    expected = capsys.readouterr().out
    assert predict("changed.onnx", "data.npy") == 1
    assert "--no-check" in capsys.readouterr().err
    assert predict("changed.onnx", "data.npy", "--no-check") == 0
    assert capsys.readouterr().out == expected
    assert predict("model.safetensors", "data.npy", "--no-check") == 1
    assert "--no-check would change nothing" in capsys.readouterr().err


@pytest.fixture(scope="module")
def guarded() -> onesigma.Converted:
    torch.manual_seed(0)
    layers = (nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(112, 3))
    known = torch.randn(400, 2, 16, generator=torch.Generator().manual_seed(1))
    model = onesigma.convert(nn.Sequential(*layers), known[:2])
    return with_guard(model, (known,), channels=Channels(("a", "b")))


def recorded(name: str, rows: int = 640) -> np.ndarray:
    """Windows of 16 that are known, with a channel that is stuck from the second half on."""
    x = np.random.default_rng(2).normal(size=(rows, 2)).astype(np.float32)
    x[rows // 2 :, 1] = 0
    np.savetxt(name, x, delimiter=",")
    return x


@pytest.mark.parametrize("option", ["--abstain-above", "--abstain-rule"])
def test_what_is_odd_is_never_acted_on(guarded, tmp_path, monkeypatch, capsys, option):
    """Neither with a rule that was made for a model without a guard."""
    monkeypatch.chdir(tmp_path)
    onesigma.save(guarded, "model.safetensors")
    recorded("data.csv")
    rule = onesigma.AbstainRule("entropy", 9.0, 0.05, None, 100, 1.0, 0.0)
    Path("rule.json").write_text(json.dumps(rule.to_dict()))
    value = "9" if option == "--abstain-above" else "rule.json"
    command = ["model.safetensors", "data.csv", "--window", "16", option, value, "-o", "out.csv"]
    assert predict(*command) == 0
    rows = table(Path("out.csv").read_text())
    assert {row["act"] for row in rows[20:]} == {"abstain"}
    assert {row["reason"] for row in rows[20:]} == {"broken input"}
    assert all(row["odd"].startswith("channel b: ") for row in rows[20:])
    assert sum(row["act"] == "act" for row in rows[:20]) >= 17
    said = capsys.readouterr().err
    assert "; broken input 50" in said
    assert "drift: " in said
    assert "in 40 inputs, last at 3" in said


@pytest.mark.parametrize(("hop", "every"), [("16", 1), ("5", 4)])
def test_the_verdict_on_drift(guarded, tmp_path, monkeypatch, capsys, hop, every):
    """Instants are tested once: of windows that overlap, only each k-th one."""
    monkeypatch.chdir(tmp_path)
    onesigma.export(guarded, "model.onnx")
    x = recorded("data.csv")
    np.savetxt("known.csv", np.random.default_rng(3).normal(size=x.shape), delimiter=",")
    options = ["--window", "16", "--hop", hop, "--json"]
    assert predict("model.onnx", "data.csv", *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drift"]["every"] == every
    assert found["drift"]["alarms"] > 0
    assert found["drift"]["verdict"].startswith("drift: ")
    assert "at most one false alarm in 1000 inputs" in found["drift"]["guarantee"]
    assert found["reasons"]["broken input"] == pytest.approx(0.5, abs=0.03)
    assert sum(found["reasons"].values()) == pytest.approx(1)
    assert "familiar" in found["reasons"]  # there is no rule
    assert predict("model.onnx", "known.csv", *options) == 0
    assert json.loads(capsys.readouterr().out)["drift"]["alarms"] == 0


def test_without_a_guard_the_summary_is_as_before(folder, capsys):
    assert predict("model.safetensors", "data.npy", "--abstain-above", "1", "--json") == 0
    names = ["model", "data", "samples", "valid", "labels", "coverage", "averages", "output"]
    assert [*json.loads(capsys.readouterr().out)] == names
