"""The command line as a whole: what a user types and what comes back."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma.cli import main as cli
from onesigma.errors import DataError

PROGRAM = "import sys; from onesigma.cli.main import main; sys.exit(main())"


@pytest.fixture
def demo_does(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Make ``onesigma demo`` do something else."""

    def change(act: Callable[[], None]) -> None:
        changed = replace(cli.commands()["demo"], run=lambda args: act())
        monkeypatch.setitem(cli.commands(), "demo", changed)

    return change


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_errors_are_one_line_without_traceback(demo_does, capsys):
    demo_does(raising(DataError("the recordings are absent")))
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "onesigma: the recordings are absent\n"
    for arguments in (["--debug", "demo"], ["demo", "--debug"]):
        with pytest.raises(DataError):
            cli.main(arguments)


def test_an_error_that_should_not_happen(demo_does, capsys):
    demo_does(raising(ZeroDivisionError("division by zero")))
    assert cli.main(["demo"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("onesigma: ZeroDivisionError: division by zero")
    assert "report it" in error
    with pytest.raises(ZeroDivisionError):
        cli.main(["demo", "--debug"])


def test_an_interruption_exits_with_130(demo_does, capsys):
    demo_does(raising(KeyboardInterrupt()))
    assert cli.main(["demo"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-q", "demo"], ["demo", "--quiet"]])
def test_quiet_silences_processes_too_but_not_errors(arguments, demo_does, capfd):
    def talk() -> None:
        print("progress", file=sys.stderr)
        subprocess.run(["sh", "-c", "echo progress of a child >&2"], check=True)
        raise DataError("the recordings are absent")

    demo_does(talk)
    assert cli.main(arguments) == 1
    assert capfd.readouterr().err == "onesigma: the recordings are absent\n"


def test_missing_extra_says_what_to_install(demo_does, capsys):
    demo_does(raising(ModuleNotFoundError("No module named 'tqdm'", name="tqdm")))
    assert cli.main(["demo"]) == 1
    assert "in a clone of the repository, pip install '.[demo]'" in capsys.readouterr().err


def test_every_extra_that_is_named_exists():
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert set(cli.EXTRAS) <= pyproject["project"]["optional-dependencies"].keys()


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.4), nn.Linear(6, 3)).eval()
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    return onesigma.export(onesigma.convert(model, torch.randn(2, 6)), path).path


def test_a_reader_that_has_seen_enough(exported, tmp_path):
    """``onesigma predict … | head -1``: no error, no traceback, no word of it."""
    np.save(tmp_path / "inputs.npy", np.zeros((20_000, 6), np.float32))
    command = [sys.executable, "-c", PROGRAM, "predict", exported, tmp_path / "inputs.npy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"index,")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_an_exported_model_answers_without_pytorch(exported, tmp_path):
    """In a process of its own, from the words to the answers; onnx is not needed, either."""
    np.savetxt(tmp_path / "data.csv", np.ones((3, 6)), delimiter=",")
    program = """
import sys
from onesigma.cli.main import main
assert main(sys.argv[1:]) == 0
heavy = {"torch", "safetensors", "onnx", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
    command = [sys.executable, "-c", program, "predict", exported, tmp_path / "data.csv"]
    options = ["--abstain-above", "0.5", "--class-names", "a,b,c", "--probs"]
    header, *rows = subprocess.check_output([*command, *options], text=True).splitlines()
    assert header == "index,label,probability,entropy,epistemic,aleatoric,p_a,p_b,p_c,act"
    assert len(rows) == 3


@pytest.mark.parametrize("arguments", [[], ["fly"], ["demo", "--nonsense"]])
def test_wrong_usage_exits_with_2(arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


def show(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_help_and_version(capsys):
    text = show(["--help"], capsys)
    assert all(f"\n    {name} " in text for name in cli.commands())
    assert all(f"\n  onesigma {name} " in text for name in cli.commands())
    assert "exit codes:" in text
    assert onesigma.__version__ in show(["--version"], capsys)


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_has_an_example_and_the_common_options(name, capsys):
    text = show([name, "--help"], capsys)
    assert "example:\n  onesigma " in text
    assert "--quiet" in text
    assert "--debug" in text
    assert ("--json" in text) == (name != "live")  # a live view is a server, without figures


@pytest.mark.parametrize(
    ("name", "saved", "exported"),
    [("predict", True, True), ("audit", True, False), ("report", True, False),
     ("convert", False, False), ("fit", False, False), ("export", True, False)],
)  # fmt: skip
def test_help_offers_only_models_that_the_command_takes(name, saved, exported, capsys):
    text = " ".join(show([name, "--help"], capsys).split())
    assert ("of onesigma.save" in text) == saved
    assert ("of onesigma.export" in text) == exported


def test_both_spellings(capsys):
    for word in ("--standardise", "--standardize"):
        args = cli.build_parser().parse_args(["predict", "m.onnx", "x.csv", word, "s.json"])
        assert args.standardise == Path("s.json")
