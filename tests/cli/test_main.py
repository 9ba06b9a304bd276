"""The command line: what a user types and what comes back."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma.cli import main as cli
from onesigma.errors import DataError
from onesigma.lab.demo import checkpoint, figures


def test_demo_prints_figures_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FOREIGN", 20)
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
    result = figures.Result((figures.Row("one pass", *numbers),), 7, [])
    assert "one pass" in figures.show(result)
    assert "50.0 %" in figures.show(result)


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
    audited = json.loads(capsys.readouterr().out)
    assert audited["inputs"] == 12
    assert len(audited["layers"]) == 3  # linear, relu, linear after the first dropout
    assert (tmp_path / "audit.png").stat().st_size > 5_000
    assert cli.main(command) == 0
    assert "std ratio" in capsys.readouterr().out


def test_audit_of_a_factory_on_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cli_nets.py").write_text(
        "from torch import nn\n\n"
        "def make():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Dropout(0.4), nn.Linear(3 * 8, 2))\n"
    )
    recording = np.random.default_rng(0).normal(size=(80, 3))
    np.savetxt("recording.csv", recording, delimiter=",", header="x,y,z", comments="")
    command = ["audit", "cli_nets:make", "recording.csv", "--window", "8", "--passes", "40"]
    assert cli.main([*command, "--json", "-q"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["inputs"] == 10
    assert captured.err == ""


def test_an_exported_file_cannot_be_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    onesigma.export(onesigma.load(saved(tmp_path)), tmp_path / "out.onnx")
    np.save(tmp_path / "inputs.npy", np.zeros((4, 6), np.float32))
    assert cli.main(["audit", str(tmp_path / "out.onnx"), str(tmp_path / "inputs.npy")]) == 1
    assert "what it was exported from" in capsys.readouterr().err


def test_reproduce_prints_its_results_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report, results = tmp_path / "report.html", [{"task": "speech"}]
    monkeypatch.setattr(
        "onesigma.lab.paper.reproduce.reproduce", lambda *_, **__: (report, results)
    )
    assert cli.main(["reproduce", "speech", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(report), "results": results}


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
    for arguments in (["--debug", "demo"], ["demo", "--debug"]):
        with pytest.raises(DataError):
            cli.main([*arguments, "--output", str(tmp_path)])


def test_an_error_that_should_not_happen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(checkpoint, "load", fail)
    assert cli.main(["demo"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("onesigma: ZeroDivisionError: division by zero")
    assert "report it" in error
    with pytest.raises(ZeroDivisionError):
        cli.main(["demo", "--debug"])


def test_an_interruption_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "load", interrupt)
    assert cli.main(["demo"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-q", "demo"], ["demo", "--quiet"]])
def test_quiet_silences_processes_too_but_not_errors(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def talk() -> None:
        print("progress", file=sys.stderr)
        subprocess.run(["sh", "-c", "echo progress of a child >&2"], check=True)
        raise DataError("the recordings are absent")

    monkeypatch.setattr(checkpoint, "load", talk)
    assert cli.main(arguments) == 1
    assert capfd.readouterr().err == "onesigma: the recordings are absent\n"


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """``onesigma predict … | head -1``: no traceback, and no word of it."""
    np.save(tmp_path / "inputs.npy", np.zeros((20_000, 6), np.float32))
    script = "import sys; from onesigma.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "predict", str(saved(tmp_path))]
    with subprocess.Popen(
        [*command, str(tmp_path / "inputs.npy")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline().startswith(b"index,")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'tqdm'", name="tqdm")

    monkeypatch.setattr(checkpoint, "load", fail)
    assert cli.main(["demo"]) == 1
    assert "pip install 'onesigma[demo]'" in capsys.readouterr().err


def test_every_extra_that_is_named_exists() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert set(cli.EXTRAS) <= pyproject["project"]["optional-dependencies"].keys()


@pytest.mark.parametrize("arguments", [[], ["fly"], ["demo", "--nonsense"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


NAMES = [each.__name__.rpartition(".")[2] for each in cli.COMMANDS]


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(["--help"], capsys)
    assert all(f"\n    {name} " in text for name in NAMES)
    assert "exit codes:" in text
    assert onesigma.__version__ in shown(["--version"], capsys)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_an_example_and_the_common_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown([name, "--help"], capsys)
    assert f"example:\n  {'eval' if name == 'completion' else 'onesigma'} " in text
    assert "--quiet" in text
    assert "--debug" in text
    # A live view is a server, completion a script: no figures there.
    assert ("--json" in text) == (name not in ("completion", "live"))
