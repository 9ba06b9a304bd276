"""The firmware as its README says: prepared, built and started in an emulated Cortex-M4."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("onnx")

from onesigma.lab import c_verify as verify
from onesigma.lab.datasets import watch

FOLDER = Path(__file__).parents[2] / "examples" / "firmware"
MISSING = verify.TARGETS["cortex-m4"].missing or (None if shutil.which("make") else "no make")
if importlib.util.find_spec("seglearn") is None:
    MISSING = "the recordings come with the package seglearn"


@pytest.fixture(scope="module")
def prepare():
    spec = importlib.util.spec_from_file_location("prepare", FOLDER / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}")
def test_it_answers_as_pytorch_does(prepare, tmp_path):
    make = ["make", "-C", str(FOLDER), "run", f"BUILD={tmp_path / 'build'}"]
    done = subprocess.run(
        [*make, f"PYTHON={sys.executable}"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    data = watch.load()
    model, windows = prepare.model(data), prepare.windows(data)
    with torch.no_grad():
        answer = model(torch.stack(list(windows.values())))
    pattern = r"(.+): (.+) ([\d.]+), entropy ([\d.]+), epistemic ([\d.]+) -> (act|abstain) \((\d+)"
    said = re.findall(pattern, done.stdout)
    assert [line[0] for line in said] == list(windows)
    for i, (_, name, probability, entropy, epistemic, decision, instructions) in enumerate(said):
        assert name == watch.CLASS_NAMES[int(answer.label[i])]
        assert float(probability) == pytest.approx(float(answer.confidence[i]), abs=2e-3)
        assert float(entropy) == pytest.approx(float(answer.entropy[i]), abs=2e-3)
        assert float(epistemic) == pytest.approx(float(answer.epistemic[i]), abs=2e-3)
        assert (decision == "act") == bool(answer.act[i])
        assert 1e6 < int(instructions) < 1e7
    assert {line[5] for line in said} == {"act", "abstain"}


@pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}")
def test_it_exits_early_and_survives_power_cuts(tmp_path):
    make = ["make", "-C", str(FOLDER), "exits", f"BUILD={tmp_path / 'build'}"]
    done = subprocess.run(
        [*make, f"PYTHON={sys.executable}"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    pattern = r"window .+ at exit (\d) of (\d) \((\d+) instructions\), after power cuts (.+)"
    said = re.findall(pattern, done.stdout)
    places, spent = [int(line[0]) for line in said], [int(line[2]) for line in said]
    assert {places[0], places[-1]} == {0, int(said[0][1])}
    assert {line[3] for line in said} == {"the same"}
    # What leaves at once costs less than half of what does not.
    assert spent[0] < 0.5 * spent[-1]
