"""``onesigma reproduce``: the paper's tables and figures, from data to report.

data ──▶ pools of trained networks ──▶ trials (one JSON each) ──▶ tables, figures, report
Whatever is finished is read again, so an interrupted run goes on where it stood. Nothing is chosen
on test data: epochs and temperatures come from validation data, gains from unlabelled training
inputs. Networks are trained on clean input.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onesigma.errors import InputError
from onesigma.lab.datasets import tasks
from onesigma.lab.paper import conditions, methods, pictures, results_page, tables
from onesigma.lab.paper.trial import Plan, Say, Study, read_json, run_or_read
from onesigma.lab.training.pool import MEMBERS
from onesigma.version import __version__

TASKS = ("hhar", "opportunity", "speech")
# Left out of a second training, as foreign input, where the dataset itself has none.
HELD_OUT = ("jog", "bike", "lie")
# A quick look: so many epochs, chosen to finish within three minutes on two cores.
_QUICK_EPOCHS = {"hhar": 3, "opportunity": 1, "speech": 20}


def plan_for(task: str, *, quick: bool = False, trials: int | None = None, seed: int = 0) -> Plan:
    """The work of a run: in full, or as a quick look."""
    if trials is not None and trials < 1:
        raise InputError(f"trials={trials}: at least one is needed.")
    if not quick:
        wanted = methods.TRIALS if trials is None else trials
        return Plan(methods.SETTINGS[task], max(MEMBERS, wanted), wanted, seed)
    wanted = 1 if trials is None else trials
    settings = replace(methods.SETTINGS[task], epochs=_QUICK_EPOCHS[task])
    return Plan(
        *(settings, max(3, wanted), wanted, seed),
        quick=True,
        limit=300,
        calibration_inputs=100,
        calibration_passes=30,
        repeats=60,
    )


def reproduce(
    names: Sequence[str],
    root: Path | None,
    output: Path,
    *,
    quick: bool = False,
    trials: int | None = None,
    seed: int = 0,
    processes: int = 2,
) -> tuple[Path, list[dict[str, Any]]]:
    """Run the tasks and write tables, figures and one report.

    Args:
        names: of TASKS.
        root: the folder of the datasets; see ``prepared.data_root``.
        output: where everything goes: a folder per task, and the report.
        quick: a quick look with tiny pools, labelled as such in every output.
        trials: how many; None for 3, or 1 for a quick look.
        seed: of the noise, the calibration inputs and the masks; member i of a pool has seed i.
        processes: how many networks to train at a time.

    Returns:
        The report, and per task its results.

    Raises:
        DataError: a dataset is absent or damaged.
    """
    plans = {name: plan_for(name, quick=quick, trials=trials, seed=seed) for name in names}
    output.mkdir(parents=True, exist_ok=True)
    for name in names[1:]:  # what is absent is told now, not after hours of training
        if isinstance(tasks.load(name, root), tasks.SpeechTask):
            conditions.ambient_noise(tasks.root_if_any(root))
    label = "-quick" if quick else ""
    results = []
    for name, plan in plans.items():
        folder = output / (name + label)
        result = run_task(name, root, folder, plan, processes=processes)
        tables.write(result, folder)
        pictures.draw(result, folder)
        results.append(result)
    # Tasks run one after the other into the same folder keep their reports.
    kind = f"-{names[0]}" if len(names) == 1 else ""
    report = output / f"report{kind}{label}.html"
    results_page.write(results, [output / (name + label) for name in names], report)
    return report, results


def run_task(
    name: str, root: Path | None, folder: Path, plan: Plan, *, processes: int = 2
) -> dict[str, Any]:
    """All trials of one task; with a second study where foreign input must be held out."""
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)

    def say(line: str) -> None:
        print(f"[{name}{', QUICK LOOK' if plan.quick else ''}] {line}", file=sys.stderr, flush=True)

    say("reading the data")
    task = tasks.load(name, root)
    say(f"data: {task.splits.name}")
    labelled = conditions.make_labelled(
        task, tasks.root_if_any(root), seed=plan.seed, limit=plan.limit
    )
    study = _study(task, labelled, folder, plan, processes, say)
    found = [
        run_or_read(study, plan, trial, folder / f"trial-{trial}.json", say)
        for trial in range(plan.trials)
    ]
    held_out = _held_out(name, root, task, folder, plan, processes, say)
    return {
        "task": name,
        "data": task.splits.name,
        "classes": list(task.splits.class_names),
        "sizes": {
            part: len(getattr(task.splits, part)) for part in ("train", "validation", "test")
        },
        "conditions": {c.name: len(c.labels) for c in labelled},
        "foreign": {kind: len(x) for kind, x in study.foreign.items()},
        "plan": asdict(plan),
        "trials": found,
        "held out": held_out,
        "training": _records(study),
        "about": _about(folder, found, time.perf_counter() - started),
    }


def _study(
    task: tasks.Task,
    labelled: list[conditions.Condition],
    folder: Path,
    plan: Plan,
    processes: int,
    say: Say,
) -> Study:
    say(f"networks: {plan.members} convolutional and {plan.trials} of ApDeepSense, in {folder}")
    pools = methods.train_task(
        *(task.splits, plan.settings, folder / "networks"),
        members=plan.members,
        trials=plan.trials,
        processes=processes,
    )
    foreign = conditions.make_foreign(task, seed=plan.seed, limit=plan.limit)
    return Study(task.splits, pools, labelled, foreign)


def _held_out(
    name: str,
    root: Path | None,
    task: tasks.Task,
    folder: Path,
    plan: Plan,
    processes: int,
    say: Say,
) -> dict[str, Any] | None:
    """The same with an activity that no network has seen, if the data brings none."""
    if not isinstance(task, tasks.MotionTask) or task.foreign:
        return None
    activity = next((a for a in HELD_OUT if a in task.splits.class_names), None)
    if activity is None:
        return None
    say(f"once more without the activity {activity!r}, as foreign input")
    rest = tasks.load(name, root, held_out=activity)
    test = rest.splits.test
    rows = conditions.some_rows(len(test.labels), plan.limit, plan.seed)
    clean = conditions.Condition(conditions.CLEAN, test.inputs[rows], test.labels[rows])
    # Three for the smallest ensemble; a quick look does without.
    fewer = replace(plan, members=plan.trials if plan.quick else max(3, plan.trials))
    study = _study(rest, [clean], folder, fewer, processes, say)
    found = [
        run_or_read(study, fewer, trial, folder / f"held-out-trial-{trial}.json", say)
        for trial in range(plan.trials)
    ]
    return {
        "activity": activity,
        "data": rest.splits.name,
        "trials": found,
        "training": _records(study),
    }


def _records(study: Study) -> list[dict[str, Any]]:
    return [asdict(trained.record) for pool in study.pools for trained in pool.members]


def _about(folder: Path, trials: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What made the figures: this run, or an earlier one whose trials were all read again."""
    earlier = read_json(folder / tables.RESULTS)
    # Times are never twice the same: they tell an evaluation from its repetition.
    made, kept = (
        [(t.get("key"), t.get("milliseconds")) for t in each]
        for each in (trials, earlier.get("trials", []))
    )
    if made == kept:
        about: dict[str, Any] = earlier["about"]
        return about
    return {
        "onesigma": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
        "seconds of this run": round(seconds, 1),
    }
