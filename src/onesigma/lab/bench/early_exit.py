"""What early exits save, and whether their promise holds.

    python -m onesigma.lab.bench.early_exit --data-root ../shared/data

Training inputs, without their labels, teach the exits. All held-out inputs (validation and test)
are asked once. Then two checks are made 200 times each:

drawn  So many as there are held-out inputs are drawn from them, each draw from all of them, and a
       rule is made of these. The promise is about the inputs that examples are drawn from, and here
       these are known: they are the held-out ones. So harm and cost are counted on all of them.
dealt  One half makes the rule. On the other half the error is compared with the network's. That
       half is a sample, too. It can show a growth above the limit where the promise is kept.

Students learn for a fraction of the usual time, because how close they are to Monte Carlo is not
the question here.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import onesigma
from onesigma import fitting
from onesigma.calibration.exits import everything_said
from onesigma.decide.early_exit import ExitRule, exit_rule
from onesigma.lab.bench.result import kept
from onesigma.lab.bench.trained import CACHE, load_trained
from onesigma.text_table import text_table

NETWORKS = ("resnet8", "watch_cnn", "tc_resnet", "inception_time")
EXCESS = (0.01, 0.03)
RESAMPLINGS = 200
ROWS, STEPS, KNOWN = 1500, 250, 400
Figures = dict[str, float]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Asked:
    """What every exit says of the held-out inputs, the whole network last."""

    said: list[onesigma.Prediction]
    truth: torch.Tensor
    costs: tuple[float, ...]

    def rule(self, rows: Rows, excess: float) -> ExitRule:
        """Of some of them."""
        *exits, whole = (each.take(torch.from_numpy(rows)) for each in self.said)
        return exit_rule(exits, whole, self.truth[torch.from_numpy(rows)], excess_risk=excess)

    def under(self, rule: ExitRule, rows: Rows) -> Figures:
        """What it does to some of them."""
        leaves = torch.stack([*map(rule, self.said[:-1]), torch.ones_like(self.truth).bool()])
        place = leaves.int().argmax(0)
        wrong = torch.stack([each.label != self.truth for each in self.said])
        found, whole = wrong.gather(0, place[None])[0], wrong[-1]
        columns = {
            "cost": torch.tensor(self.costs)[place],
            "error": found,
            "error_whole": whole,
            "harm": found & ~whole,
            "left_early": place < len(self.said) - 1,
        }
        return {name: float(each[rows].double().mean()) for name, each in columns.items()}


def measure(name: str, root: Path | None, cache: Path, pictures: Path) -> list[Figures]:
    """Figures of one network, for each limit of the excess risk."""
    network, data = load_trained(name, root, cache)
    generator = torch.Generator().manual_seed(0)
    ready = onesigma.fit(network, data.train.some(KNOWN, generator), worth=1)
    held_out = (data.validation, data.test)
    x, y = torch.cat([s.inputs for s in held_out]), torch.cat([s.labels for s in held_out])
    model = onesigma.early_exit(ready, labelled=(x, y), unlabelled=data.train.inputs)
    model.plot(x, y, pictures / f"{name}.png")
    asked = Asked(everything_said(model, [x]), y, model.costs)
    return [_figures(asked, excess) for excess in EXCESS]


def _figures(asked: Asked, excess: float) -> Figures:
    count = len(asked.truth)
    every, drawn, dealt = np.arange(count), list[Figures](), list[Figures]()
    for seed in range(RESAMPLINGS):
        generator = np.random.default_rng(seed)
        rows = generator.integers(count, size=count)
        drawn.append(asked.under(asked.rule(rows, excess), every))
        half, rest = np.split(generator.permutation(count), [count // 2])
        dealt.append(asked.under(asked.rule(half, excess), rest))
    found = {name: float(np.mean([each[name] for each in drawn])) for name in drawn[0]}
    grown = [each["error"] - each["error_whole"] for each in dealt]
    return found | {
        "excess_risk": excess,
        "labels": count,
        "kept": float(np.mean([each["harm"] <= excess for each in drawn])),
        "dealt_cost": float(np.mean([each["cost"] for each in dealt])),
        "dealt_kept": float(np.mean([each <= excess for each in grown])),
    }


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
    names = ("error", "with exits", "early", "harm", "cost", "kept", "dealt: cost", "kept")
    head = ("network", "excess ≤", "labels", *names)
    print(text_table(head, [_row(name, each) for name, rows in found.items() for each in rows]))


def _row(name: str, found: Figures) -> tuple[str, ...]:
    shares = (
        "error_whole",
        "error",
        "left_early",
        "harm",
        "cost",
        "kept",
        "dealt_cost",
        "dealt_kept",
    )
    words = (f"{100 * found[key]:.1f} %" for key in shares)
    return name, f"{100 * found['excess_risk']:g} %", f"{found['labels']:.0f}", *words


if __name__ == "__main__":
    main()
