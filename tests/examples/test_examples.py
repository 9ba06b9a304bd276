"""Each example runs as a user runs it, and prints what it promises."""

import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
SHORT = 80
LONG = ("sensor_stream.py", "watch.py")  # a program with options, a tutorial


@pytest.fixture
def output(tmp_path, monkeypatch, capsys):
    """Run an example in an empty folder; what it printed."""

    def run(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(FOLDER))  # as `python examples/…` does
        monkeypatch.setattr(sys, "argv", [name])
        runpy.run_path(str(FOLDER / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def needs(package: str) -> pytest.MarkDecorator:
    # Not importorskip: Keras may only be imported once its backend is chosen.
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"{package} is not installed")


def figures(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.findall(pattern, text)]


@pytest.mark.long
@needs("onnxruntime")
def test_convert_my_cnn(output, tmp_path):
    text = output("convert_my_cnn.py")
    assert "2 noise sites" in text
    raw, calibrated = figures(r"([\d.]+) from Monte Carlo", text)
    assert calibrated < raw / 3
    assert (tmp_path / "my_cnn.onnx").is_file()
    answers = re.findall(r"(\w+) +[\d.]+  entropy [\d.]+  \(is (\w+)\)", text)
    assert len(answers) == 5
    assert sum(said == true for said, true in answers) >= 4


@pytest.mark.long
@needs("onnxruntime")
@needs("keras")
def test_keras_model(output, tmp_path):
    text = output("keras_model.py")
    assert "spatial_dropout1d" in text
    own, one_pass = figures(r"(?:Keras|pass) (0\.\d+)", text)
    assert min(own, one_pass) > 0.7
    assert abs(own - one_pass) < 0.05
    right, wrong = figures(r"(?:answers|ones) ([\d.]+)", text)
    assert wrong > right
    assert (tmp_path / "keras_model.onnx").is_file()


@needs("seglearn")
def test_abstain_under_risk(output):
    text = output("abstain_under_risk.py")
    without, like, strangers = figures(r"([\d.]+) % of all are", text)
    assert without > 15
    # 5 % were asked for. 276 windows leave a standard error of 1.3 %.
    assert like < 5 + 2 * 1.3
    assert strangers > 7
    assert "act, act" in text


@needs("seglearn")
def test_spot_foreign_input(output):
    text = output("spot_foreign_input.py")
    drift = figures(r"% +(0\.\d+|1\.\d+)", text)  # the column after the last percentage
    plain, entropy, epistemic = drift
    assert epistemic > entropy > plain
    alarms = {score: figures(r"(\d+) %", line) for score, line in alarm_lines(text)}
    for real, drifting, _ in alarms.values():
        assert real < 10 < drifting
    assert alarms["entropy"][2] > 90  # white noise
    assert alarms["epistemic"][2] < 10


def alarm_lines(text: str) -> list[tuple[str, str]]:
    return re.findall(r"alarm if (\w+) > [\d.]+: (.*)", text)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_short_and_listed(path):
    lines = path.read_text().splitlines()
    assert len(lines) < SHORT or path.name in LONG
    assert lines[0].startswith('"""')
    assert f"({path.name})" in (FOLDER / "README.md").read_text()


@needs("sklearn")
def test_regression(output):
    text = output("regression.py")
    (inside,) = figures(r"patients (\d+) % lie inside", text)
    assert inside > 100 * (0.9 - 4 * (0.09 / 122 + 0.09 / 60) ** 0.5)  # errors of both samples
    widths = [
        high - low
        for low, high in re.findall(r"(\d+) … +(\d+)", text)
        for low, high in [(int(low), int(high))]
    ]
    assert widths[-1] > widths[0]


@needs("matplotlib")
def test_segmentation(output, tmp_path):
    text = output("segmentation.py")
    (passes,) = figures(r"worth (\d+)", text)
    assert passes >= 30
    (score,) = figures(r"AUROC of ([\d.]+)", text)
    assert score > 0.8
    assert (tmp_path / "segmentation.png").is_file()
