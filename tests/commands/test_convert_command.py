"""``onesigma convert`` and ``onesigma inspect``: what a user types and what comes back."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from onesigma import cli, runtime

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
sys.path.insert(0, str(Path(__file__).parents[1] / "frontends"))

from onnx_files import classifier, model, node, numbers, run, written  # noqa: E402

FIELDS = ["mean", "var", "probs", "entropy", "aleatoric", "epistemic"]
X = numbers(40, 6, seed=9)


@pytest.fixture
def path(tmp_path) -> Path:
    return written(tmp_path / "model.onnx", classifier())


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


def test_the_own_output_can_be_left_out(path):
    out = convert(path, "--dropout", "a=0.5", "--no-keep-output")
    assert [each.name for each in onnx.load(out).graph.output] == FIELDS


def test_options_are_passed_on(path, tmp_path, capsys):
    np.save(tmp_path / "x.npy", X)
    options = ["--draws", "32", "--mean", "frozen", "--variance", "lowrank", "--opset", "17"]
    options += ["--input-std", "0.1", "--calibrate", str(tmp_path / "x.npy"), "--json"]
    out = convert(path, "--dropout", "relu1=0.5", *options)
    result = json.loads(capsys.readouterr().out)
    assert (result["path"], result["opset"]) == (str(out), 17)
    assert [site["rate"] for site in result["report"]["sites"]] == [0.5]
    metadata = runtime.load(out).metadata
    assert metadata["input_std"] == pytest.approx(0.1)
    assert (metadata["mean"], metadata["variance"]) == ("frozen", "lowrank")
    assert metadata["plain_output"] == "out"


def test_an_input_prior_is_noise_enough(path):
    out = convert(path, "--input-std", *["0.1"] * 6)
    assert runtime.load(out).metadata["noise_sites"] == []
    assert (run(out, X)["var"] > 0).all()


def test_regression(path):
    out = convert(path, "--dropout", "every Relu=0.5", "--task", "regression")
    assert [each.name for each in onnx.load(out).graph.output] == ["mean", "var", "out"]


def test_names_that_clash(tmp_path):
    """An input called mean, an output called probs that is a softmax: those of the user stay."""
    nodes = [
        node("Relu", ["mean"], ["r"]),
        node("Gemm", ["r", "w"], ["logits"]),
        node("Softmax", ["logits"], ["probs"]),
    ]
    proto = model(nodes, {"mean": ["n", 6]}, {"w": numbers(6, 3)}, outputs=["probs"])
    path = written(tmp_path / "model.onnx", proto)
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
