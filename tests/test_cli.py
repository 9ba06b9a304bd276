"""The command line: what a user types and what comes back."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma import cli
from onesigma.demo import checkpoint, run
from onesigma.errors import DataError


def test_demo_prints_figures_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FOREIGN", 20)
    assert cli.main(["demo", "--quick", "--json", "--output", str(tmp_path)]) == 0
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    plain, one_pass, sampled = (rows[n] for n in ("plain network", "one pass", "MC dropout, 30"))
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    # The shipped network is better than chance (1/7) by far, whichever way it is used.
    assert min(row["accuracy"] for row in rows.values()) > 0.75
    # The point of the product, far outside the noise of 552 windows: less over-confident than
    # the plain network, close to the sampled reference, and alert to foreign input.
    assert one_pass["nll"] < plain["nll"] - 0.05
    assert abs(one_pass["nll"] - sampled["nll"]) < 0.03
    assert one_pass["auroc_walk"] > plain["auroc_walk"] + 0.03
    for row in rows.values():
        assert row["entropy_wrong"] > row["entropy_right"]
    assert plain["time_ratio"] == 1


def test_table_names_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (0.5,) * 10
    result = run.Result((run.Row("one pass", *numbers),), 7, [])
    assert "one pass" in run.show(result)
    assert "50.0 %" in run.show(result)


def saved(folder: Path) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 16), nn.ReLU(),
        nn.Dropout(0.4), nn.Linear(16, 3),
    )  # fmt: skip
    onesigma.save(onesigma.convert(model, torch.randn(2, 6)), folder / "model.safetensors")
    return folder / "model.safetensors"


def test_audit_of_a_saved_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = tmp_path / "inputs.npy"
    np.save(inputs, np.random.default_rng(0).normal(size=(12, 6)))
    command = ["audit", str(saved(tmp_path)), str(inputs), "--passes", "40"]
    assert cli.main([*command, "--json", "--output", str(tmp_path)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["inputs"] == 12
    assert len(figures["layers"]) == 3  # linear, relu, linear after the first dropout
    assert (tmp_path / "audit.png").stat().st_size > 5_000
    assert cli.main(command) == 0
    assert "std ratio" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not an array", "cannot be read as a .npy array"),
        (None, "cannot be read as a .npy array"),
        (np.array(["text"]), "one array of numbers"),
        (np.zeros((3, 5)), "Expected an input of shape"),
    ],
    ids=["garbage", "absent", "text", "wrong shape"],
)
def test_audit_explains_bad_input(
    content: object, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = tmp_path / "inputs.npy"
    if isinstance(content, bytes):
        inputs.write_bytes(content)
    elif content is not None:
        np.save(inputs, content)
    assert cli.main(["audit", str(saved(tmp_path)), str(inputs)]) == 1
    assert says in capsys.readouterr().err


def test_errors_are_one_line_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail() -> None:
        raise DataError("the recordings are absent")

    monkeypatch.setattr(checkpoint, "load", fail)
    assert cli.main(["demo", "--output", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.err == "onesigma: the recordings are absent\n"
    with pytest.raises(DataError):
        cli.main(["--debug", "demo", "--output", str(tmp_path)])


def test_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'tqdm'", name="tqdm")

    monkeypatch.setattr(checkpoint, "load", fail)
    assert cli.main(["demo"]) == 1
    assert "pip install 'onesigma[demo]'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["demo", "--nonsense"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([name, "--help"] for name in ("demo", "convert", "reproduce")), ["--version"]],
)
def test_help_and_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 0
    assert "onesigma" in capsys.readouterr().out
