"""What a trained network makes of foreign input: why a score spots it, or does not.

    python -m onesigma.lab.bench.foreign OUT TASK --data-root DATA
Reads the first network of ``onesigma reproduce TASK --output OUT`` and prints, for clean test input
and each kind of foreign input: the size of the logits (their std over classes), their spread (std
over dropout masks), the mean confidence, the two parts of the entropy, the answer given most often,
and how well entropy and its epistemic part tell the input from clean test input. Per method: the
plain network, ours (calibrated as in the trials) and 30 passes of Monte-Carlo dropout.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

import onesigma
from onesigma.baselines.backbone import backbone
from onesigma.lab.datasets import tasks
from onesigma.lab.paper import conditions, reproduce
from onesigma.lab.paper.conditions import CLEAN, some_rows
from onesigma.lab.paper.methods import Method, train_task
from onesigma.lab.paper.trial import array, predict
from onesigma.lab.spotting import spot_foreign
from onesigma.prediction import Prediction
from onesigma.text_table import text_table

ROWS = 500
HEADER = (
    *("input", "method", "logits", "spread", "confidence", "aleatoric", "epistemic"),
    *("AUROC entropy", "AUROC epistemic", "answer given most"),
)


def methods_of(network: torch.nn.Module, unlabelled: Tensor, passes: int) -> dict[str, Method]:
    converted = onesigma.convert(network, unlabelled[:2])
    return {
        "plain": backbone(converted),
        "ours": onesigma.calibrate(converted, unlabelled, passes=passes, seed=0),
        "MC-30": onesigma.mc_dropout(converted, 30, seed=0),
    }


def rows(
    kinds: dict[str, Tensor], methods: dict[str, Method], names: tuple[str, ...]
) -> Iterator[list[str]]:
    """One line per kind of input and method; the others are compared with the first kind."""
    known: dict[str, Prediction] = {}
    for kind, inputs in kinds.items():
        for name, method in methods.items():
            found = predict(method, inputs)
            yield [kind, name, *figures(known.setdefault(name, found), found, names)]


def figures(known: Prediction, found: Prediction, names: tuple[str, ...]) -> list[str]:
    label, count = torch.unique(found.label, return_counts=True)
    most = int(count.argmax())
    values = [
        found.mean.std(1).mean(),
        found.var.mean().sqrt(),
        found.confidence.mean(),
        *(getattr(found, part).mean() for part in ("aleatoric", "epistemic")),
        *(
            spot_foreign(array(getattr(known, score)), array(getattr(found, score))).auroc
            for score in ("entropy", "epistemic")
        ),
    ]
    answer = f"{names[int(label[most])]}, {int(count[most]) / len(found.label):.0%}"
    return [*(f"{float(value):.3f}" for value in values), answer]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("task", choices=reproduce.TASKS)
    parser.add_argument("--data-root", type=Path, default=None)
    options = parser.parse_args()
    plan = reproduce.plan_for(options.task)
    task = tasks.load(options.task, options.data_root)
    pools = train_task(
        *(task.splits, plan.settings, options.out / options.task / "networks"),
        members=1,
        trials=1,
        processes=1,
    )
    train, test = task.splits.train.inputs, task.splits.test.inputs
    chosen = some_rows(len(train), plan.calibration_inputs, plan.seed)
    network = pools.convolutional.draw(1, 0)[0]
    kinds = {CLEAN: test, **conditions.make_foreign(task, seed=plan.seed)}
    few = {kind: x[some_rows(len(x), ROWS, 0)] for kind, x in kinds.items()}
    compared = methods_of(network, train[chosen], plan.calibration_passes)
    print(text_table(HEADER, list(rows(few, compared, task.splits.class_names)), numbers=True))


if __name__ == "__main__":
    main()
