"""What early exits save, and whether their promise holds.

    python -m onesigma.lab.bench.early_exit --data-root ../shared/data

Held-out inputs (validation and test) are shuffled. One half goes to ``early_exit``, which trains
heads on a half of that. The rest is dealt 200 times into calibration and test, one half each: each
time a rule is made of the first, and asked of the second, how much was saved and how much the error
grew. Students learn for a fraction of the usual time, because how close they are to Monte Carlo is
not the question here.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch

import onesigma
from onesigma import fitting
from onesigma.calibration.exits import everything_said
from onesigma.decide.early_exit import exit_rule
from onesigma.decide.plots import curve
from onesigma.lab.bench.result import kept
from onesigma.lab.bench.trained import CACHE, load_trained
from onesigma.text_table import text_table

NETWORKS = ("watch_cnn", "resnet8", "eegnet", "vgg")
EXCESS = (0.01, 0.03)
RESAMPLINGS = 200
ROWS, STEPS, KNOWN = 1500, 250, 400
Figures = dict[str, float]


def measure(name: str, root: Path | None, cache: Path, pictures: Path) -> list[Figures]:
    """Figures of one network, for each limit of the excess risk."""
    network, data = load_trained(name, root, cache)
    generator = torch.Generator().manual_seed(0)
    ready = onesigma.fit(network, data.train.some(KNOWN, generator), worth=1)
    held_out = (data.validation, data.test)
    x, y = torch.cat([s.inputs for s in held_out]), torch.cat([s.labels for s in held_out])
    order = torch.randperm(len(y), generator=generator)
    used, rest = order[: len(y) // 2], order[len(y) // 2 :]
    model = onesigma.early_exit(ready, labelled=(x[used], y[used]))
    model.plot(x[rest], y[rest], pictures / f"{name}.png")
    said, truth = everything_said(model, [x[rest]]), y[rest]
    found = list[Figures]()
    for excess in EXCESS:
        deals = [_deal(said, truth, model.costs, excess, seed) for seed in range(RESAMPLINGS)]
        costs, errors, whole, left, calibrated = np.array(deals).T
        grown = errors - whole
        found.append(
            {
                "excess_risk": excess,
                "calibration": float(calibrated[0]),
                "error_whole": float(whole.mean()),
                "error": float(errors.mean()),
                "cost": float(costs.mean()),
                "left_early": float(left.mean()),
                "kept": float((grown <= excess).mean()),
            }
        )
    return found


def _deal(
    said: list[onesigma.Prediction],
    truth: torch.Tensor,
    costs: tuple[float, ...],
    excess: float,
    seed: int,
) -> tuple[float, ...]:
    """Cost, error, the whole network's error and the share that left, on the test part."""
    order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(seed))
    parts = order[: len(truth) // 2], order[len(truth) // 2 :]
    *exits, whole = (each.take(parts[0]) for each in said)
    rule = exit_rule(exits, whole, truth[parts[0]], excess_risk=excess)
    test = [each.take(parts[1]) for each in said]
    spent, errors, left = (
        float(values[0])
        for values in curve(test, truth[parts[1]], costs, np.array([rule.threshold]))[1:]
    )
    wrong = float((test[-1].label != truth[parts[1]]).double().mean())
    return spent, errors, wrong, left, len(parts[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="What early exits save.")
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--out", type=Path, default=Path("out") / "early_exit")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    fitting.ROWS, fitting.STEPS = ROWS, STEPS
    given.out.mkdir(parents=True, exist_ok=True)
    ask = partial(measure, root=given.data_root, cache=given.cache, pictures=given.out)
    found = {n: kept(given.out / f"{n}.json", partial(ask, n)) for n in given.networks}
    head = ("network", "excess ≤", "labels", "error", "with exits", "cost", "early", "kept")
    print(text_table(head, [_row(name, each) for name, rows in found.items() for each in rows]))


def _row(name: str, found: Figures) -> tuple[str, ...]:
    shares = ("error_whole", "error", "cost", "left_early", "kept")
    words = (f"{100 * found[key]:.1f} %" for key in shares)
    return name, f"{100 * found['excess_risk']:g} %", f"{found['calibration']:.0f}", *words


if __name__ == "__main__":
    main()
