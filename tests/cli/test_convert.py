"""``onesigma convert`` and ``onesigma inspect``: what a user types and what comes back."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma import runtime
from onesigma.cli import main as cli

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_files import classifier, model, node, numbers, run, write  # noqa: E402

FIELDS = ["mean", "var", "probs", "entropy", "aleatoric", "epistemic"]
X = numbers(40, 6, seed=9)


@pytest.fixture
def path(tmp_path) -> Path:
    return write(tmp_path / "model.onnx", classifier())


def convert(path: Path, *options: str) -> Path:
    out = path.parent / "out.onnx"
    assert cli.main(["convert", str(path), "-o", str(out), *options]) == 0
    return out


def test_names_are_kept_and_outputs_added(path, capsys):
    out = convert(path, "--dropout", "every Relu=0.5")
    printed = capsys.readouterr().out
    assert "relu1" in printed
    assert "out.onnx: opset 18" in printed
    graph = onnx.load(out).graph
    assert [each.name for each in graph.input] == ["x"]
    assert [each.name for each in graph.output] == [*FIELDS, "out"]
    old, new = run(path, X), run(out, X)
    np.testing.assert_allclose(new["out"], old["out"], rtol=1e-4, atol=1e-5)
    # One dense layer after the dropout: mean and variance are exact, by numpy.
    w1, b1, w2, b2 = (onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer)
    hidden = np.maximum(X @ w1.T + b1, 0)
    np.testing.assert_allclose(new["mean"], hidden @ w2.T + b2, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new["var"], hidden**2 @ (w2**2).T, rtol=1e-4)
    # The device's runtime reads the fields, and does not stumble over the file's own output.
    answer = runtime.load(out)(X)
    np.testing.assert_array_equal(answer.var, new["var"])


@pytest.mark.parametrize("output", ["link.onnx", "link.safetensors", "firmware"])
def test_where_it_is_written(path, output):
    """A link stays, an old file keeps its permissions, what a killed run left is removed."""
    (path.parent / "real").mkdir()
    real = path.parent / "real" / (output if "." in output else "model.c")
    real.touch(0o600)
    leftover = real.with_name(f".{real.stem}.onesigma-0123abcd{real.suffix}")
    leftover.touch()
    link = path.parent / output
    link.symlink_to(real if "." in output else real.parent)
    line = ["convert", str(path), "--dropout", "every Relu=0.5", "-q"]
    assert cli.main([*line, "-o", str(link)]) == 0
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert real.stat().st_size > 0
    assert not leftover.exists()


def test_devices(path, capsys):
    line = ["convert", str(path), "--dropout", "every Relu=0.5"]
    (path.parent / "nothing.onnx").symlink_to("/dev/null")
    assert cli.main([*line, "-o", str(path.parent / "nothing.onnx")]) == 0
    assert (path.parent / "nothing.onnx").is_symlink()
    assert cli.main([*line, "-o", "/dev/null"]) == 1
    assert "/dev/null is a file: give a folder" in capsys.readouterr().err


def test_quiet_and_without_the_own_output(path, capfd):
    out = convert(path, "--dropout", "a=0.5", "--no-keep-output", "-q")
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert [each.name for each in onnx.load(out).graph.output] == FIELDS
    assert cli.main(["inspect", str(path), "-q"]) == 0
    assert "relu1" in capfd.readouterr().out  # what was asked for


def test_options_are_passed_on(path, capsys):
    options = ["--draws", "32", "--opset", "17", "--input-std", "0.1", "--json"]
    out = convert(path, "--dropout", "relu1=0.5", *options)
    result = json.loads(capsys.readouterr().out)
    assert (result["path"], result["opset"]) == (str(out), 17)
    assert [site["rate"] for site in result["report"]["sites"]] == [0.5]
    metadata = runtime.load(out).metadata
    assert metadata["input_std"] == pytest.approx(0.1)
    assert metadata["draws"] == 32
    assert metadata["plain_output"] == "out"


def test_an_input_prior_is_noise_enough_for_a_regression(path):
    out = convert(path, "--input-std", *["0.1"] * 6, "--task", "regression")
    assert [each.name for each in onnx.load(out).graph.output] == ["mean", "var", "out"]
    assert runtime.load(out).metadata["noise_sites"] == []
    assert (run(out, X)["var"] > 0).all()


def test_names_that_clash(tmp_path):
    """An input called mean, an output called probs that is a softmax: those of the user stay."""
    nodes = [
        node("Relu", ["mean"], ["r"]),
        node("Gemm", ["r", "w"], ["logits"]),
        node("Softmax", ["logits"], ["probs"]),
    ]
    proto = model(nodes, {"mean": ["n", 6]}, {"w": numbers(6, 3)}, outputs=["probs"])
    path = write(tmp_path / "model.onnx", proto)
    out = convert(path, "--dropout", "r=0.5")
    names = [each.name for each in onnx.load(out).graph.output]
    assert names[:3] == ["onesigma_mean", "var", "onesigma_probs"]
    assert names[-1] == "probs"
    new = run(out, X)
    np.testing.assert_allclose(new["probs"], run(path, X)["probs"], rtol=1e-4)
    answer = runtime.load(out)(X)
    np.testing.assert_array_equal(answer.probs, new["onesigma_probs"])
    assert np.abs(answer.probs - new["probs"]).max() > 0.01


def test_without_dropout_it_says_why(path, capsys):
    assert cli.main(["convert", str(path), "-o", str(path.parent / "out.onnx")]) == 1
    error = capsys.readouterr().err
    assert "holds no Dropout" in error
    assert "relu1" in error
    assert not (path.parent / "out.onnx").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "{model}"], "is the model itself"),
        (["-o", "{folder}/out.pt"], "ends in .onnx"),
        (["-o", "{folder}/none/out.onnx"], "is not a folder"),
        (["-o", "{folder}/out.onnx", "--opset", "3"], "opset=3"),
        (["-o", "{folder}/out.onnx", "--calibrate", "{folder}/none.npy"], "none.npy cannot be"),
        (["-o", "{folder}/out.onnx", "--draws", "1"], "draws=1"),
        (["-o", "{folder}/out.safetensors", "--opset", "17"], "--opset and --keep-output are for"),
    ],
)
def test_wrong_options_change_nothing(options, message, path, capsys):
    before = path.read_bytes()
    filled = [each.format(model=path, folder=path.parent) for each in options]
    assert cli.main(["convert", str(path), "--dropout", "a=0.5", *filled]) == 1
    assert message in capsys.readouterr().err
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("text", ["relu1", "relu1=", "=0.5", "relu1=half"])
def test_a_rate_is_a_number(text, path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["inspect", str(path), "--dropout", text])
    assert stop.value.code == 2
    assert "is not NODE=RATE, as in relu_1=0.5" in capsys.readouterr().err


def test_inspect(path, capsys):
    assert cli.main(["inspect", str(path), "--dropout", "a=0.5"]) == 0
    assert "p = 0.5" in capsys.readouterr().out
    assert cli.main(["inspect", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["dropout"] for row in rows] == ["", "candidate", ""]


@pytest.fixture
def torch_model(tmp_path, monkeypatch) -> nn.Module:
    """A network in the current folder, by name and with weights."""
    monkeypatch.chdir(tmp_path)
    Path("convert_nets.py").write_text(
        "from torch import nn\n\n"
        "def make():\n"
        "    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))\n"
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    torch.save(model.state_dict(), "weights.pt")
    yield model
    sys.modules.pop("convert_nets", None)


FACTORY = ["convert", "convert_nets:make", "--weights", "weights.pt"]


def test_a_torch_model_by_name(torch_model, capsys):
    command = [*FACTORY, "--input-shape", "6", "-o", "out.onnx", "--keep-output"]
    assert cli.main(command) == 0
    assert "out.onnx: opset 18" in capsys.readouterr().out
    expected = onesigma.convert(torch_model, torch.from_numpy(X))(torch.from_numpy(X))
    answers = run(Path("out.onnx"), X)
    np.testing.assert_allclose(answers["var"], expected.var.detach(), rtol=1e-4)
    np.testing.assert_allclose(
        answers["plain"], torch_model(torch.from_numpy(X)).detach(), rtol=1e-4, atol=1e-5
    )


def test_a_torch_model_to_a_saved_one(torch_model, capsys):
    np.save("x.npy", X[:8])  # which also says what the network takes
    command = [*FACTORY, "--calibrate", "x.npy", "-o", "out.safetensors", "--json"]
    assert cli.main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["path"] == "out.safetensors"
    stored = onesigma.load("out.safetensors").report.to_dict()
    assert json.loads(json.dumps(stored)) == result["report"]
    assert cli.main(["convert", "out.safetensors", "-o", "out.onnx"]) == 1
    assert "converted already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*FACTORY, "-o", "out.onnx"], "give --input-shape"),
        ([*FACTORY, "-o", "none/out.safetensors", "--input-shape", "6"], "is not a folder"),
        ([*FACTORY, "-o", "out.onnx", "--input-shape", "5"], "does not run on the example"),
        ([*FACTORY, "-o", "out.onnx", "--input-shape", "6", "--dropout", "a=1"], "own dropout"),
        (["convert", "m.onnx", "-o", "out.onnx", "--input-shape", "6", "--dropout", "a=0.5"],
         "says itself what it takes"),
    ],
)  # fmt: skip
def test_a_torch_model_that_cannot_be_converted(arguments, message, torch_model, capsys):
    write(Path("m.onnx"), classifier())
    before = sorted(Path.cwd().iterdir())
    assert cli.main(arguments) == 1
    assert message in capsys.readouterr().err
    assert sorted(each for each in Path.cwd().iterdir() if each.name != "__pycache__") == before


def test_names_from_the_file_are_shown_and_not_obeyed(tmp_path, capsys):
    """In the table of inspect, in the report of convert, and in errors."""
    hostile, escaped = "\x1b[2J\x9b\u202ea", r"\x1b[2J\x9b\u202ea"
    made = classifier()
    for each in made.graph.node:
        each.name = f"{hostile}_{each.name}"
    write(tmp_path / "m.onnx", made)
    line = [str(tmp_path / "m.onnx"), "--dropout", "every Relu=0.5"]
    assert cli.main(["inspect", *line]) == 0
    assert cli.main(["convert", *line, "-o", str(tmp_path / "out.onnx")]) == 0
    assert cli.main(["convert", *line[:1], "-o", str(tmp_path / "out.onnx")]) == 1
    captured = capsys.readouterr()
    assert escaped in captured.out
    assert escaped in captured.err
    assert not {"\x1b", "\x9b", "\u202e"} & set(captured.out + captured.err)


def test_dropout_of_rate_0_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "silent_net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 3)).eval()\n"
    )
    monkeypatch.chdir(tmp_path)
    command = ["convert", "silent_net:net", "--input-shape", "2,4", "-o", "out.onnx"]
    assert cli.main(command) == 1
    assert "every dropout has the rate p = 0" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()
