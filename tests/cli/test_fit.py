"""``onesigma fit`` and ``onesigma export``: one network from its weights to what is shipped."""

import csv
import json
from argparse import Namespace
from collections.abc import Iterator
from inspect import getsource
from pathlib import Path

import numpy as np
import pytest
import torch
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma.cli import main as cli
from onesigma.cli.fit import find_scaling
from onesigma.graph.wrap import Scaled

MEAN, STD = np.array([5.0, -20.0]), np.array([2.0, 30.0])
NAMES = "up,down,rest"


def make() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(2, 6, 3), nn.ReLU(), nn.Dropout(0.3), nn.AdaptiveAvgPool1d(1)),
        *(nn.Flatten(), nn.Linear(6, 3)),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Weights, a recording of 200 windows with a label for each row, and whose they are."""
    folder = tmp_path_factory.mktemp("fit")
    (folder / "fit_nets.py").write_text(f"from torch import nn\n\n{getsource(make)}")
    torch.manual_seed(0)
    model = make().eval()
    torch.save(model.state_dict(), folder / "w.pt")
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 2, 12)) + draw.normal(size=(200, 2, 1))
    with torch.no_grad():
        classes = model(torch.tensor(x, dtype=torch.float32)).argmax(1)
    rows = x.transpose(0, 2, 1).reshape(-1, 2) * STD + MEAN
    np.savetxt(folder / "r.csv", rows, "%.7g", ",", header="ax,gy", comments="")
    np.savetxt(folder / "swapped.csv", rows[:, ::-1], "%.7g", ",", header="gy,ax", comments="")
    words = np.array(NAMES.split(","))[classes].repeat(12)
    (folder / "y.csv").write_text("\n".join(["label", *words]))
    (folder / "g.csv").write_text("\n".join(["who", *(f"p{k // 20}" for k in range(200))]))
    scaling = {"mean": MEAN.tolist(), "std": STD.tolist()}
    (folder / "s.json").write_text(json.dumps(scaling))
    return folder


FIT = ["fit", "fit_nets:make", "--weights", "w.pt", "--unlabelled", "r.csv", "--window", "12"]
LABELLED = ["--labelled", "r.csv", "y.csv", "--groups", "g.csv", "--class-names", NAMES]


@pytest.fixture(scope="module")
def hurried() -> Iterator[None]:
    """A form that is not good, but made in a second."""
    with short_fit():
        yield


@pytest.fixture(scope="module")
def fitted(folder, hurried) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        more = ["--risk", "0.3", "--standardize", "s.json", "--rate", "50", "--worth", "1", "-q"]
        assert cli.main([*FIT, *LABELLED, *more, "-o", "m.safetensors"]) == 0
    return folder / "m.safetensors"


@pytest.fixture
def here(folder, fitted, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_all_that_was_said_is_in_the_file(here, fitted):
    made = onesigma.load(fitted)
    contract = made.settings.contract
    assert made.settings.class_names == ("up", "down", "rest")
    assert (contract.channels, contract.window, contract.rate) == (("ax", "gy"), 12, 50)
    assert made.abstain.risk == 0.3
    # Raw values go in: the answer is that of the network on standardised ones.
    model = make().eval()
    model.load_state_dict(torch.load("w.pt"))
    raw = np.loadtxt("r.csv", delimiter=",", skiprows=1)[:1200].reshape(100, 12, 2)
    standard = torch.tensor(((raw - MEAN) / STD).transpose(0, 2, 1), dtype=torch.float32)
    agree = made.predict(raw.transpose(0, 2, 1)).label == model(standard).argmax(1)
    assert agree.float().mean() > 0.9


def test_predict_needs_the_file_alone(here, capsys):
    """Windows as long as the model's, columns by its channels, classes by name, and its rule."""
    assert cli.main(["predict", "m.safetensors", "r.csv"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert [int(row["start"]) for row in rows] == list(range(0, 2400, 12))
    assert {row["label"] for row in rows} <= {*NAMES.split(",")}
    assert {row["act"] for row in rows} <= {"act", "abstain"}
    assert cli.main(["predict", "m.safetensors", "swapped.csv"]) == 0
    assert rows_of(capsys.readouterr().out) == rows
    assert cli.main(["predict", "m.safetensors", "r.csv", "--hop", "6"]) == 0
    often = rows_of(capsys.readouterr().out)
    assert [row["label"] for row in often[::2]] == [row["label"] for row in rows]


def test_live_knows_rate_and_columns(here, monkeypatch):
    seen = []
    serve = "onesigma.pages.live.server.serve"
    monkeypatch.setattr(serve, lambda model, feed, **options: seen.append(feed))
    assert cli.main(["live", "m.safetensors", "swapped.csv"]) == 0
    assert seen[0].rate == 50
    first = np.loadtxt("r.csv", delimiter=",", skiprows=1)[0]
    np.testing.assert_allclose(next(seen[0].instants), first, rtol=1e-6)


def test_a_report_with_labels_by_name(here, capsys, monkeypatch):
    monkeypatch.setattr("onesigma.lab.bench.report_cost.measure_cost", lambda *_, **__: "untimed")
    labels = Path("y.csv").read_text().splitlines()
    Path("each.csv").write_text("\n".join(labels[1::12]))
    command = [
        "report",
        "m.safetensors",
        "r.csv",
        "--labels",
        "each.csv",
        "--passes",
        "4",
        "--json",
    ]
    assert cli.main(command) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["one pass"]["accuracy"] > 0.8


@pytest.mark.parametrize("output", ["m.onnx", "firmware"])
def test_export(output, here, capsys):
    pytest.importorskip("onnxruntime")
    assert cli.main(["export", "m.safetensors", "-o", output]) == 0
    assert output in capsys.readouterr().out
    if output == "m.onnx":
        assert cli.main(["predict", "m.safetensors", "r.csv"]) == 0
        ours = rows_of(capsys.readouterr().out)
        assert cli.main(["predict", "m.onnx", "r.csv"]) == 0
        theirs = rows_of(capsys.readouterr().out)
        assert [row["label"] for row in theirs] == [row["label"] for row in ours]
        assert [row["start"] for row in theirs] == [row["start"] for row in ours]
    else:
        assert Path(output, "model.c").stat().st_size > 1000


def test_from_onnx_with_a_table_of_features(tmp_path, hurried, capsys):
    pytest.importorskip("onnx")
    from onnx_files import classifier, numbers, write

    path = write(tmp_path / "net.onnx", classifier())
    np.savetxt(tmp_path / "x.csv", numbers(60, 6), delimiter=";")
    command = ["fit", str(path), "--dropout", "every Relu=0.5", "--worth", "1", "--json"]
    output = tmp_path / "m.safetensors"
    files = ["--unlabelled", str(tmp_path / "x.csv"), str(tmp_path / "x.csv"), "-o", str(output)]
    assert cli.main([*command, *files]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["path"], said["abstain"]) == (str(output), None)
    assert [site["rate"] for site in said["report"]["sites"]] == [0.5]
    assert onesigma.load(output).settings.input_shapes == ((None, 6),)


def test_int8_is_measured_on_real_inputs(here, capsys):
    pytest.importorskip("onnxruntime")
    raw = np.random.default_rng(1).normal(size=(40, 2, 12)) * STD[:, None] + MEAN[:, None]
    np.save("x.npy", raw.astype(np.float32))
    command = ["export", "m.safetensors", "-o", "small", "--int8", "--example-input", "x.npy"]
    assert cli.main(command) == 0
    assert "int8 against float on 40 inputs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*FIT, "-o", "m.onnx"], "onesigma export then makes ONNX"),
        ([*FIT, "-o", "none/m.safetensors"], "none is not a folder"),
        ([*FIT, "-o", "a.safetensors", "--risk", "0.1"], "need --labelled"),
        ([*FIT[:2], *FIT[4:], "-o", "a.safetensors"], "random weights"),
        ([*FIT, "-o", "a.safetensors", "--labelled", "r.csv", "y.csv"], "--class-names"),
        ([*FIT, "-o", "a.safetensors", "--labelled", "r.csv", "short.csv"],
         "short.csv has 3 values for 200 samples of r.csv"),
        ([*FIT, "-o", "a.safetensors", "--standardise", "three.json"], "3 means, but"),
        (["fit", "m.safetensors", "--unlabelled", "r.csv", "-o", "a.safetensors"], "already"),
        (["export", "w.pt", "-o", "m.onnx"], "w.pt: export takes a .safetensors file"),
        (["export", "none.safetensors", "-o", "m.onnx"], "there is no such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_or_exported(arguments, says, here, capsys):
    Path("short.csv").write_text("0\n1\n2\n")
    Path("three.json").write_text('{"mean": [1, 2, 3], "std": [1, 1, 1]}')
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not Path("a.safetensors").exists()


@pytest.mark.parametrize(
    ("shape", "window", "channels_last", "axes"),
    [
        ((50, 2, 12), 12, False, (0, 2)),
        ((50, 2, 3, 12), 12, False, (0, 3)),
        ((50, 12, 2), 12, True, (0, 1)),
        ((50, 7), None, False, (0,)),
        ((50, 3, 8, 8), None, False, (0, 2, 3)),
    ],
)
def test_standardise_by_the_data(shape, window, channels_last, axes):
    """What is then standardised has mean 0 and std 1 in every channel."""
    x = np.random.default_rng(0).normal(3, 5, shape).astype(np.float32)
    args = Namespace(standardise=Path("data"), window=window, channels_last=channels_last)
    scaled = Scaled(nn.Identity(), *find_scaling(args, x), shape=x.shape[1:])(
        torch.from_numpy(x)
    ).numpy()
    np.testing.assert_allclose(scaled.mean(axes), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axes), 1, rtol=1e-5)


def test_a_regression_has_intervals(here, capsys):
    """Values for labels, one for each window; the table has both ends."""
    values = np.random.default_rng(1).normal(size=(200, 3))
    np.save("values.npy", values.astype(np.float32))
    options = ["--task", "regression", "--labelled", "r.csv", "values.npy", "--risk", "0.2"]
    assert cli.main([*FIT, *options, "--worth", "1", "-o", "values.safetensors"]) == 0
    assert "At least 80 % of new values lie between low and high" in capsys.readouterr().out
    assert cli.main(["predict", "values.safetensors", "r.csv"]) == 0
    rows = rows_of(capsys.readouterr().out)
    inside = [
        float(row[f"low_{k}"]) <= value <= float(row[f"high_{k}"])
        for row, three in zip(rows, values, strict=True)
        for k, value in enumerate(three)
    ]
    assert 0.7 < np.mean(inside) < 0.95
