"""Does the guard keep a network from acting on input that it should not be trusted on?

    python -m onesigma.lab.bench.guard --data-root ../shared/data

Three tasks (``guard_inputs``; ``body`` is kept aside: nothing was tuned on it), two kinds of
network each, three seeds. Each is trained, fitted on unlabelled inputs (of the training set and of
one half of the validation set), and given the labels of the other half for temperature and rule.
Test inputs are of other people: clean, shifted, of unknown classes, far from all, broken. Beside
it: the rule without guard, the temperature-scaled plain network, the ensemble of the three seeds,
and ``rivals``, which see training labels. Results are kept as they come; the same command goes on.

Students learn for a third of the usual time, because how close they are to Monte Carlo is not the
question here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import onesigma
from onesigma import fitting
from onesigma.calibration.guarding import with_guard
from onesigma.calibration.labelled import learn_from_labels
from onesigma.decide.temperature import fit_temperature
from onesigma.decide.threshold import joint
from onesigma.lab import deployed_networks as deployed
from onesigma.lab import guard_inputs, rivals
from onesigma.lab import sensing_networks as sensing
from onesigma.lab.bench.result import kept
from onesigma.lab.bench.trained import another_take
from onesigma.lab.guard_inputs import GuardTask
from onesigma.lab.training.train import Augment, TrainingSettings, logits, train
from onesigma.metrics import auroc, expected_calibration_error
from onesigma.metrics.scoring import FloatArray
from onesigma.prediction import Prediction
from onesigma.text_table import text_table

SEEDS = (0, 1, 2)
RISK = 0.05
KNOWN = 1000  # unlabelled inputs of each of two sets, at most
RIVALS = 3000  # labelled inputs of the training set for each rival, at most
Figures = dict[str, float]
Kinds = dict[str, Figures]


class Recipe(NamedTuple):
    """How a network is made and trained."""

    build: Callable[[], nn.Module]
    epochs: int
    augment: Augment | None = None


RECIPES = {
    "motion": {
        "tcn": Recipe(partial(deployed.tcn, 6, 5), 5),
        "se_cnn": Recipe(partial(sensing.se_cnn, 6, 5), 8),
    },
    "speech": {
        "tc_resnet": Recipe(deployed.tc_resnet, 60, another_take),
        "gru": Recipe(sensing.GruKeywords, 40, another_take),
    },
    "body": {
        "eegnet": Recipe(deployed.eegnet, 16),
        "tcn": Recipe(partial(deployed.tcn, 18, 4), 8),
    },
}


@dataclass(frozen=True)
class Rows:
    """Which inputs are for what: to know, and to learn from with their labels."""

    unlabelled: Tensor
    labelled: Tensor
    labels: Tensor

    @staticmethod
    def of(task: GuardTask) -> Rows:
        generator = torch.Generator().manual_seed(0)
        train, validation = task.splits.train, task.splits.validation
        some = torch.randperm(len(train), generator=generator)[:KNOWN]
        order = torch.randperm(len(validation), generator=generator)
        seen, rest = order[: len(order) // 2][:KNOWN], order[len(order) // 2 :]
        known = torch.cat([train.inputs[some], validation.inputs[seen]])
        return Rows(known, validation.inputs[rest], validation.labels[rest])


class Contestant:
    """One network in all its versions: plain, of three seeds, fitted, guarded."""

    def __init__(self, task: GuardTask, name: tuple[str, str], seed: int, folder: Path) -> None:
        recipe, rows = RECIPES[name[0]][name[1]], Rows.of(task)
        settings = TrainingSettings(
            *(recipe.epochs, (recipe.epochs + 1) // 2),
            learning_rate=3e-3,
            weight_decay=1e-4,
            one_cycle=True,
        )
        networks = []
        for each in SEEDS:
            path = folder / "nets" / f"{name[0]}-{name[1]}-{each}.safetensors"
            splits = (task.splits.train, task.splits.validation)
            made = train(
                *(recipe.build, *splits, settings),
                seed=each,
                path=path,
                augment=recipe.augment,
            )
            networks.append(made.network)
        self.networks, self.plain = networks, networks[seed]
        path = folder / "fits" / f"{name[0]}-{name[1]}-{seed}.safetensors"
        self.fitted = _fit_shortly(self.plain, rows.unlabelled, path)
        guarded = with_guard(self.fitted, (rows.unlabelled,))
        self.ready = learn_from_labels(guarded, (rows.labelled, rows.labels), risk=RISK)
        seen = self.fitted.predict(rows.labelled)
        wrong = (seen.label != rows.labels).numpy()
        self.cut = joint(_array(seen.entropy).astype(np.float64), wrong, RISK)
        self.heat = fit_temperature(self._softmax(rows.labelled), rows.labels).value
        some = torch.randperm(len(task.splits.train), generator=torch.Generator().manual_seed(1))
        examples = task.splits.train[some[:RIVALS]]
        self.rivals = rivals.fit_rivals(self.plain, examples.inputs, examples.labels)

    def _softmax(self, x: Tensor, heat: float = 1.0) -> Tensor:
        return (logits(self.plain, x) / heat).softmax(1)

    def scaled(self, x: Tensor) -> Tensor:
        """The plain network's probabilities with its temperature."""
        return self._softmax(x, self.heat)

    def together(self, x: Tensor) -> Tensor:
        """Those of the ensemble."""
        return torch.stack([logits(n, x).softmax(1) for n in self.networks]).mean(0)

    def unguarded(self, prediction: Prediction) -> Tensor:
        """Where the rule without guard and cap would act."""
        assert prediction.entropy is not None
        return prediction.entropy < self.cut


def _fit_shortly(network: nn.Module, unlabelled: Tensor, path: Path) -> onesigma.Converted:
    """What is kept under that path, or else is fitted now."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        before = fitting.ROWS, fitting.STEPS
        fitting.ROWS, fitting.STEPS = before[0] // 3, before[1] // 3
        try:
            onesigma.save(onesigma.fit(network, unlabelled, worth=1, guard=False), path)
        finally:
            fitting.ROWS, fitting.STEPS = before
    return onesigma.load(path)


def measure(task: GuardTask, who: Contestant) -> dict[str, Kinds]:
    test = task.splits.test
    clean = _labelled(who, test.inputs, test.labels) | _own_errors(who, test.inputs, test.labels)
    found: dict[str, Kinds] = {"clean": {"clean": clean}, "shifted": {}}
    for kind, x in task.shifted.items():
        found["shifted"][kind] = _labelled(who, x, test.labels)
    known = _scores(who, test.inputs)
    for group in ("unknown", "far", "broken"):
        kinds: Mapping[str, Tensor] = getattr(task, group)
        found[group] = {kind: _foreign(who, known, x) for kind, x in kinds.items()}
    return found


def _labelled(who: Contestant, x: Tensor, labels: Tensor) -> Figures:
    """How often it acts, and wrongly; how good the probabilities are."""
    found, before = who.ready.predict(x), who.fitted.predict(x)
    assert found.act is not None
    wrong, wrong_before = found.label != labels, before.label != labels
    free = who.unguarded(before)
    probs = {"ours": found.probs, "scaled": who.scaled(x), "ensemble": who.together(x)}
    figures = {
        "accuracy": _share(~wrong),
        "acts": _share(found.act),
        "acts wrongly": _share(found.act & wrong),
        "acts, no guard": _share(free),
        "acts wrongly, no guard": _share(free & wrong_before),
    }
    for name, each in probs.items():
        assert each is not None
        chosen = each.clamp(min=1e-12).gather(1, labels.unsqueeze(1))
        figures[f"NLL {name}"] = -float(chosen.log().mean())
        figures[f"ECE {name}"] = expected_calibration_error(each.numpy(), labels.numpy())
    return figures


def _own_errors(who: Contestant, x: Tensor, labels: Tensor) -> Figures:
    plain, found = who.scaled(x), who.ready.predict(x)
    return {
        "errors, confidence": auroc(-_array(found.confidence), (found.label != labels).numpy()),
        "errors, plain": auroc(-plain.amax(1).numpy(), (plain.argmax(1) != labels).numpy()),
    }


def _scores(who: Contestant, x: Tensor) -> dict[str, FloatArray]:
    """All that may tell foreign input, higher for more foreign."""
    found, activations = who.ready.predict(x), rivals.read_activations(who.plain, x)
    assert found.novelty is not None
    assert found.act is not None
    return {
        "novelty": -_array(found.novelty),
        "entropy": _array(found.entropy),
        "epistemic": _array(found.epistemic),
        **{name: score(activations) for name, score in who.rivals.items()},
    }


def _foreign(who: Contestant, known: Mapping[str, FloatArray], x: Tensor) -> Figures:
    found, strange = who.ready.predict(x), _scores(who, x)
    assert found.act is not None
    figures = {
        name: auroc(
            np.concatenate([values, strange[name]]), np.arange(len(values) + len(x)) >= len(values)
        )
        for name, values in known.items()
    }
    free = who.unguarded(who.fitted.predict(x))
    named = [bool(words) for words in who.ready.explain(found)]
    return figures | {
        "acts": _share(found.act),
        "acts, no guard": _share(free),
        "channel named": float(np.mean(named)),
    }


def _share(mask: Tensor) -> float:
    return float(mask.float().mean())


def _array(tensor: Tensor | None) -> FloatArray:
    assert tensor is not None
    return tensor.double().numpy()


def run(tasks: Sequence[str], root: Path | None, folder: Path) -> dict[str, dict[str, Kinds]]:
    """Measure what is not in the folder yet."""
    load = lru_cache(1)(partial(guard_inputs.load, root=root))

    def ask(name: str, network: str, seed: int) -> dict[str, Kinds]:
        return measure(load(name), Contestant(load(name), (name, network), seed, folder))

    wanted = [(name, each, seed) for name in tasks for each in RECIPES[name] for seed in SEEDS]
    keys = {"-".join(map(str, one)): one for one in wanted}
    return {key: kept(folder / f"{key}.json", partial(ask, *one)) for key, one in keys.items()}


def show(found: Mapping[str, dict[str, Kinds]]) -> str:
    """Tables of means over networks and kinds, for all and for each task."""
    groups = {"all": [*found.values()]}
    for key, each in found.items():
        groups.setdefault(key.split("-")[0], []).append(each)
    parts = []
    for group in ("clean", "shifted", "unknown", "far", "broken"):
        names = [*next(iter(groups["all"][0][group].values()))]
        rows = [
            (name, *(f"{_mean(each, group, name):.3f}" for each in groups.values()))
            for name in names
        ]
        parts.append(text_table((group, *groups), rows))
    rows = [
        (task, kind, f"{_of_kind(each, group, kind, 'acts'):.3f}")
        for task, each in groups.items()
        if task != "all"
        for group in ("far", "broken")
        for kind in each[0][group]
    ]
    return "\n\n".join([*parts, text_table(("task", "input", "acts"), rows)])


def _mean(each: Sequence[dict[str, Kinds]], group: str, name: str) -> float:
    return float(np.mean([np.mean([f[name] for f in one[group].values()]) for one in each]))


def _of_kind(each: Sequence[dict[str, Kinds]], group: str, kind: str, name: str) -> float:
    return float(np.mean([one[group][kind][name] for one in each]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the guard.")
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--output", type=Path, default=Path("out") / "guard")
    parser.add_argument("--tasks", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with torch.no_grad():
        found = run(options.tasks, options.data_root, options.output)
    print(show(found))


if __name__ == "__main__":
    main()
