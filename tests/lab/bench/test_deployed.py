"""The figures of ``deployed`` by hand, what a rerun skips, and the picture."""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from lab.bench.small_model import CLASSES, SHAPE
from torch import nn

import onesigma
from onesigma.calibration.exam import Exam
from onesigma.calibration.teacher import Lesson
from onesigma.lab.bench import closeness, deployed
from onesigma.lab.bench.closeness import Distance
from onesigma.lab.bench.deployed_picture import draw, spread
from onesigma.lab.bench.deployed_result import (
    BARE,
    CLEAN,
    FITTED,
    MOMENTS,
    PLAIN,
    Measured,
    Settings,
)
from onesigma.lab.datasets.split import Split, Splits

TINY = Settings(fit=8, inputs=6, passes=40, repeats=5, seconds=0.05, processes=0)


def logits(*probs: float) -> torch.Tensor:
    return torch.tensor(probs).log()


def exam_of(passes: torch.Tensor) -> Exam:
    return Exam(Lesson((torch.zeros(len(passes)),), passes))


def test_passes_are_those_of_a_hand_computation():
    """A reference without noise: every pass says one half."""
    exam = exam_of(logits(0.5, 0.5).expand(4, 100, 2))
    assert exam.one_pass.abs().max() < 1e-12
    few = torch.tensor([0.4, 0.6]).expand(3, 4, 2)
    answers = {
        "far": (torch.tensor([0.25, 0.75]).expand(4, 2), None),
        "near": (torch.tensor([0.499, 0.501]).expand(4, 2), None),
    }
    found = closeness.compare(exam, {30: few}, answers)
    kl_few = 0.5 * math.log(0.5 / 0.4) + 0.5 * math.log(0.5 / 0.6)
    kl_far = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert found["MC-30"].kl == pytest.approx(kl_few, rel=1e-5)
    assert found["MC-30"].passes == pytest.approx(30)
    assert found["far"].kl == pytest.approx(kl_far, rel=1e-5)
    passes = 30 * kl_few / kl_far
    for quantile in (found["far"].passes, found["far"].low, found["far"].high):
        assert quantile == pytest.approx(passes, rel=1e-5)  # the inputs are all alike
    assert found["near"].passes == 100  # as many as the reference has


def test_the_std_ratio_is_a_median():
    noisy = torch.randn(5, 200, 3, generator=torch.Generator().manual_seed(0))
    probs = noisy.softmax(-1).mean(1)
    found = closeness.compare(
        exam_of(noisy), {30: probs[None]}, {"a": (probs, 2 * noisy.double().std(1))}
    )
    assert found["a"].std_ratio == pytest.approx(2)


def small_splits() -> Splits:
    inputs = torch.randn(20, *SHAPE, generator=torch.Generator().manual_seed(0))
    split = Split(inputs, torch.zeros(20).long(), torch.zeros(20).long())
    return Splits(split, split, split, ("a", "b", "c"), torch.zeros(1), torch.ones(1))


@pytest.mark.filterwarnings("default")  # of what ONNX imports
def test_a_network_is_fitted_compared_and_timed(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    # What fit does has tests of its own, and takes longer.
    monkeypatch.setattr(onesigma, "fit", lambda network, x, **_: onesigma.convert(network, x[:4]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout(0.4), nn.Flatten()]
        network = nn.Sequential(*layers, nn.Linear(16, CLASSES))
    only = {"noise": deployed.SHIFTS["noise"]}
    network.eval()
    compared = deployed.compare_network("ds_cnn", network, small_splits(), TINY, tmp_path, only)
    assert not compared.bench
    found = deployed.time_network(compared, network, small_splits(), TINY, tmp_path)
    assert found.distances == compared.distances
    assert set(found.distances) == {CLEAN, "noise"}
    assert set(found.distances[CLEAN]) == {PLAIN, FITTED, "MC-10", "MC-30", "MC-100"}
    assert found.cost(PLAIN) == found.eager[PLAIN] == 1
    assert all(found.cost(name) > 0 for name in (BARE, FITTED, "MC-10", "MC-30"))
    assert math.isnan(found.cost(FITTED, batch=8))
    assert found.footprint(FITTED)["file_ratio"] > 1
    assert Measured.from_dict(json.loads(json.dumps(asdict(found)))) == found


def made_up(name: str, cost: float, worth: float) -> Measured:
    figures = {PLAIN: 2.0, FITTED: worth, MOMENTS: 50.0, "MC-30": 30.0}
    kinds = {
        kind: {
            method: Distance(0.1, passes, passes, passes, 1.0) for method, passes in figures.items()
        }
        for kind in (CLEAN, "noise")
    }
    costs = {PLAIN: 1.0, FITTED: cost, MOMENTS: 8.0, "MC-10": 9.0, "MC-30": 27.0, "MC-100": 95.0}
    rows = [
        {"contender": method, "threads": 1, "batch": 1, "minimum_ms": 0.2, "cpu_ratio": ratio}
        for method, ratio in costs.items()
    ]
    bench = {"rows": rows, "footprints": []}
    return Measured(name, 1000, "energy", 3.0, kinds, {FITTED: 1.2}, 300.0, bench)


def test_a_rerun_skips_what_is_finished(monkeypatch, tmp_path, capsys):
    measured, timed = [], []

    def compare(name, network, data, settings, folder):
        if name == "mlp":
            raise onesigma.InputError("made to fail")
        measured.append(name)
        return replace(made_up(name, 1.1, 100.0 + len(measured)), bench={})

    def add_times(found, network, data, settings, folder):
        timed.append(found.network)
        return replace(found, bench=made_up("", 1.1, 1.0).bench)

    monkeypatch.setattr(deployed, "load_trained", lambda *names: (None, None))
    monkeypatch.setattr(deployed, "compare_network", compare)
    monkeypatch.setattr(deployed, "time_network", add_times)
    deployed.run(["ds_cnn"], TINY, tmp_path, timed=False)
    assert (measured, timed) == (["ds_cnn"], [])
    (first,) = deployed.run(["ds_cnn"], TINY, tmp_path)
    again = deployed.run(["ds_cnn", "eegnet"], TINY, tmp_path)
    assert again[0] == first
    assert measured == timed == ["ds_cnn", "eegnet"]
    kept = json.loads((tmp_path / "deployed.json").read_text())
    assert [each["network"] for each in kept["networks"]] == ["ds_cnn", "eegnet"]
    assert "kept aside" in (tmp_path / "deployed.txt").read_text()
    deployed.run(["ds_cnn"], TINY, tmp_path, again=True)
    deployed.run(["ds_cnn"], replace(TINY, inputs=5), tmp_path)
    assert measured[2:] == ["ds_cnn", "ds_cnn"]
    deployed.run(["ds_cnn"], replace(TINY, inputs=5, every=True), tmp_path)
    assert (len(measured), len(timed)) == (4, 5)
    (left,) = deployed.run(["mlp", "ds_cnn"], replace(TINY, inputs=5), tmp_path)
    assert left.network == "ds_cnn"
    assert "mlp: left out: made to fail" in capsys.readouterr().err


def test_the_picture_and_the_table_take_what_was_measured(tmp_path):
    found = [made_up("tcn", 1.1, 200), made_up("vgg", 9.0, 40), made_up("eegnet", 1.2, 1000)]
    draw(found, tmp_path / "deployed.png", Settings())
    for kind in ("png", "svg"):
        assert (tmp_path / f"deployed.{kind}").stat().st_size > 10_000
    table = deployed.show(found, Settings(every=True))
    assert "200 (200–200)" in table
    assert found[0].plain_us == pytest.approx(200)
    assert "unet_small" in table
    assert "0.10000 (200)" in deployed.show_distances(found)


def test_names_keep_their_distance():
    assert spread([0.0, 5.0], 1.0, 9.0) == [0.0, 5.0]
    assert spread([2.0, 2.0], 1.0, 9.0) == [1.5, 2.5]
    assert spread([8.9, 9.0, 9.0], 1.0, 9.0) == [6.5, 7.5, 8.5]


def test_the_command_takes_its_options():
    options = deployed.parse(["--networks", "tcn", "--quick"])
    assert options.networks == ["tcn"]
    assert options.quick
    assert "unet_small" not in deployed.DEFAULT
    with pytest.raises(SystemExit):
        deployed.parse(["--networks", "unet_small"])
