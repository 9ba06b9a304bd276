"""The whole way, on a small task: data, training, trials, tables, figures, report; then resumed."""

import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
from lab.paper import small_task
from lab.paper.small_task import PLAN

import onesigma
from onesigma.cli import main as cli
from onesigma.errors import InputError
from onesigma.lab.datasets import tasks
from onesigma.lab.paper import methods, pictures, reproduce, trial

pytestmark = pytest.mark.xdist_group("reproduce")  # what is slow to make, once

CALIBRATED = []


def uncalibrated(converted, inputs, **options):
    """In place of ``calibrate``, which takes most of the time and has tests of its own."""
    CALIBRATED.append((inputs, options))
    return converted


def write_empty_pictures(result, folder):
    """In place of ``pictures.draw``, which takes seconds and has tests of its own."""
    for name in pictures.CAPTIONS:
        (folder / f"{name}.svg").write_text("<svg></svg>")


@contextmanager
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw", write_empty_pictures)
        patch.setattr(tasks, "load", small_task.load)
        patch.setattr(reproduce, "plan_for", lambda name, **options: PLAN)
        patch.setattr(reproduce, "HELD_OUT", ())
        patch.setattr(onesigma, "calibrate", uncalibrated)
        yield patch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("out")
    with small():
        report, (result,) = reproduce.reproduce(["hhar"], None, output, quick=True, processes=1)
    return output, report, result


def test_all_columns_on_all_conditions(run):
    _, _, result = run
    (found,) = result["trials"]
    columns = [c for c in methods.COLUMNS if c not in ("DeepEnsemble-5", "DeepEnsemble-10")]
    rows = {(row["method"], row["condition"]) for row in found["labelled"]}
    assert rows == {(m, c) for m in columns for c in result["conditions"]}
    assert list(found["milliseconds"]) == columns
    assert result["held out"] is None


def test_training_learnt_something(run):
    accuracy = {r["method"]: r["accuracy"] for r in run[2]["trials"][0]["labelled"][:1]}
    assert accuracy["Ours"] > 0.5


def test_everything_written_says_whose_data_it_is_and_that_it_is_a_quick_look(run):
    output, report, _ = run
    assert report.name == "report-hhar-quick.html"
    for path in (report, *(output / "hhar-quick" / n for n in ("results.txt", "table1.csv"))):
        text = path.read_text()
        assert "quick look" in text.lower()
        assert small_task.NAME in text
        assert "(the paper's)" not in text
    for name in pictures.CAPTIONS:
        assert (output / "hhar-quick" / f"{name}.svg").is_file()


def test_ours_is_calibrated_on_training_inputs(run):
    (inputs, options), *_ = CALIBRATED
    train = small_task.load("hhar").splits.train.inputs
    assert len(inputs) == PLAN.calibration_inputs
    assert options["passes"] == PLAN.calibration_passes
    assert all((train == row).flatten(1).all(1).any() for row in inputs)


def test_an_activity_is_left_out_of_a_second_training(run):
    studies = []

    def remember(study, *_):
        studies.append(study)
        return {}

    with small() as patch:
        patch.setattr(reproduce, "HELD_OUT", ("jog",))
        patch.setattr(trial, "run_trial", remember)
        found = reproduce.run_task("hhar", None, run[0] / "hhar-quick", PLAN, processes=1)
    assert found["held out"]["activity"] == "jog"
    (study,) = studies  # the other one is kept from before
    assert study.splits.class_names == ("walk", "sit")
    assert len(study.foreign["jog"]) == PLAN.limit
    assert [c.name for c in study.conditions] == ["clean"]
    (network,) = study.pools.convolutional.draw(1, 0)
    assert network(study.foreign["jog"]).shape == (PLAN.limit, 2)


def test_a_second_run_reads_what_the_first_kept(run, capsys):
    output, _, before = run
    with small() as patch:
        patch.setattr(methods, "build_methods", lambda *_, **__: pytest.fail("computed again"))
        after = reproduce.run_task("hhar", None, output / "hhar-quick", PLAN, processes=1)
    assert after["trials"] == before["trials"]
    assert after["about"] == before["about"]  # still what made the figures
    assert "already there" in capsys.readouterr().err


def test_a_run_killed_in_its_second_trial_goes_on_from_there(run, tmp_path):
    folder, plan = tmp_path / "killed", replace(PLAN, trials=3)
    shutil.copytree(run[0] / "hhar-quick", folder)
    done = []

    def run_trial(study, plan, number, say):
        done.append(number)
        if done == [1, 2]:
            raise KeyboardInterrupt
        return {"labelled": [f"trial {number}"]}

    with small() as patch:
        patch.setattr(trial, "run_trial", run_trial)
        with pytest.raises(KeyboardInterrupt):
            reproduce.run_task("hhar", None, folder, plan, processes=1)
        networks = {path: path.stat().st_mtime_ns for path in folder.glob("networks/*/*")}
        assert not (folder / "trial-2.json").exists()
        resumed = reproduce.run_task("hhar", None, folder, plan, processes=1)
    assert done == [1, 2, 2]  # the first was kept from before, the second from before the kill
    assert resumed["trials"][0] == run[2]["trials"][0]
    assert [t["labelled"] for t in resumed["trials"][1:]] == [["trial 1"], ["trial 2"]]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("networks/*/*")} == networks
    assert not list(folder.rglob(".*"))


def test_the_full_plan_is_the_papers_and_the_quick_one_small():
    full, quick = (reproduce.plan_for("speech", quick=q) for q in (False, True))
    assert (full.members, full.trials, full.quick, full.limit) == (12, 3, False, None)
    assert quick.members == 3
    assert quick.settings.epochs < full.settings.epochs
    assert reproduce.plan_for("hhar", trials=20).members == 20
    with pytest.raises(InputError, match="trials=0"):
        reproduce.plan_for("hhar", trials=0)


@pytest.mark.parametrize("task", reproduce.TASKS)
def test_without_data_the_command_says_what_to_fetch(task, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ONESIGMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ONESIGMA_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", task, "--quick"]) == 1
    error = capsys.readouterr().err
    assert "No data for" in error
    assert "http" in error


def test_a_folder_that_cannot_be_made_is_explained(tmp_path, capsys):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "speech", "--output", str(tmp_path / "taken")])
    assert "taken' is no folder" in capsys.readouterr().err
