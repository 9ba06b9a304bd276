"""The trained networks of the benchmarks, of different kinds, with their data.

    load_trained(name, root, cache_folder) → network in eval mode, its splits

One is the demo's, shipped with the package. The others are trained the first time (up to three
minutes each on one core, the paper's ten) and read from the cache folder afterwards. The digits are
scikit-learn's and the shapes are made up, so these need no folder of data. To train some or all and
print a table:

    python -m onesigma.lab.bench.trained --data-root ../shared/data --networks ds_cnn tcn
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from onesigma.lab import checkpoint
from onesigma.lab import deployed_networks as deployed
from onesigma.lab import sensing_networks as sensing
from onesigma.lab.datasets import dsads, motionsense, shapes, speech, watch
from onesigma.lab.datasets.split import Split, Splits
from onesigma.lab.networks import KeywordCnn, MotionCnn, ResidualCnn, paper_cnn
from onesigma.lab.training.train import (
    Augment,
    TrainingSettings,
    accuracy,
    epoch_bar,
    fingerprint,
    train,
)
from onesigma.text_table import text_table

CACHE = Path("out") / "benchmarks"
SHIPPED = "watch_cnn"


@dataclass(frozen=True)
class Recipe:
    """How a network is made and trained."""

    build: Callable[[], nn.Module]
    data: Callable[[Path | None], Splits]
    epochs: int
    patience: int
    learning_rate: float = 3e-3
    augment: Augment | None = None

    @property
    def settings(self) -> TrainingSettings:
        rate = self.learning_rate
        return TrainingSettings(
            self.epochs, self.patience, learning_rate=rate, weight_decay=1e-4, one_cycle=True
        )


def load_digits(root: Path | None = None) -> Splits:
    """The 1,797 handwritten digits of 8 × 8 that come with scikit-learn, in their own order."""
    from sklearn import datasets

    images, answers = datasets.load_digits(return_X_y=True)
    inputs, labels = torch.from_numpy(images).float().view(-1, 1, 8, 8), torch.from_numpy(answers)
    mean, std = inputs[:1297].mean(), inputs[:1297].std()
    every = Split((inputs - mean) / std, labels.long(), torch.zeros(len(labels)).long())
    parts = torch.split(torch.arange(len(labels)), [1297, 200, 300])
    train, validation, test = (every[rows] for rows in parts)
    names = tuple("0123456789")
    return Splits(train, validation, test, names, mean, std, "digits of scikit-learn")


def another_take(inputs: Tensor, most: int = 10, colour: float = 0.3) -> Tensor:
    """MFCC images as if spoken earlier or later, into another microphone.

    Each moves by up to `most` frames, the frame at the border repeated; a fixed response of the
    microphone is a constant added to the log spectrum, so to each coefficient.
    """
    frames = inputs.shape[-1]
    moves = torch.randint(-most, most + 1, (len(inputs), 1))
    index = (torch.arange(frames) + moves).clamp(0, frames - 1)
    moved = inputs.gather(-1, index[:, None, None, :].expand_as(inputs))
    return moved + colour * torch.randn(*inputs.shape[:-1], 1)


_samples = partial(motionsense.load, dataset=motionsense.SAMPLES)
RECIPES = {
    "digits_cnn": Recipe(
        partial(paper_cnn, size=8, classes=10, channels=1), load_digits, 20, 20, 1e-3
    ),
    "motion_cnn": Recipe(MotionCnn, _samples, 8, 4),
    "residual_cnn": Recipe(ResidualCnn, _samples, 8, 4),
    "keyword_cnn": Recipe(KeywordCnn, speech.load, 30, 12, augment=another_take),
    "paper_cnn": Recipe(paper_cnn, motionsense.load, 6, 3, 1e-3),
}
# Those that `fidelity` compares unless told otherwise.
FIRST = (SHIPPED, *RECIPES)
_spoken = partial(Recipe, data=speech.load, augment=another_take)
RECIPES |= {
    "ds_cnn": _spoken(deployed.ds_cnn, epochs=18, patience=12),
    "vgg": _spoken(deployed.vgg, epochs=20, patience=12),
    "resnet8": Recipe(deployed.resnet8, motionsense.load, 8, 4),
    "tcn": Recipe(deployed.tcn, _samples, 5, 3),
    "mlp": Recipe(deployed.mlp, load_digits, 60, 20, 1e-3),
    "ecg_resnet": Recipe(deployed.ecg_resnet, _samples, 5, 3),
    "mobilenet_v1": Recipe(deployed.mobilenet_v1, motionsense.load, 18, 9),
    "tc_resnet": _spoken(deployed.tc_resnet, epochs=60, patience=30),
    "eegnet": Recipe(deployed.eegnet, dsads.load_series, 16, 8),
    "unet_small": Recipe(deployed.unet_small, shapes.load, 15, 8),
    "inception_time": Recipe(deployed.inception_time, dsads.load_series, 7, 4),
    "mobilenet_v3": _spoken(deployed.mobilenet_v3, epochs=35, patience=20),
}
RECIPES |= {
    "conv_lstm": Recipe(sensing.ConvLstm, _samples, 10, 5),
    "gru_keywords": _spoken(sensing.GruKeywords, epochs=40, patience=20),
    "transformer": Recipe(sensing.Transformer, _samples, 10, 5, 1e-3),
    "se_cnn": Recipe(sensing.se_cnn, _samples, 10, 5),
}
NETWORKS = (SHIPPED, *RECIPES)
# Nothing is tuned on these: they show what a choice made on the others is worth.
KEPT_ASIDE = frozenset({"eegnet", "inception_time", "mobilenet_v3"})


def load_trained(
    name: str, root: Path | None = None, cache_folder: Path = CACHE, *, progress: bool = True
) -> tuple[nn.Module, Splits]:
    """The network in eval mode, and its data; trained only if it is not in the cache.

    Args:
        name: of NETWORKS.
        root: the folder of the prepared datasets; see `prepared.data_root`.
        cache_folder: where weights are kept, named by a digest of all that makes them.
        progress: show a bar while training.
    """
    if name == SHIPPED:
        return checkpoint.load().network, watch.load()
    if name not in RECIPES:
        raise ValueError(f"No network {name!r}: choose one of {', '.join(NETWORKS)}.")
    recipe = RECIPES[name]
    data = recipe.data(root)
    with torch.random.fork_rng(devices=[]):
        network = recipe.build()
    key = fingerprint(network, data.train, data.validation, recipe.settings, recipe.augment)
    with epoch_bar(f"training {name}", recipe.epochs, show=progress) as on_epoch:
        trained = train(
            *(recipe.build, data.train, data.validation, recipe.settings),
            path=cache_folder / f"{name}-{key}.safetensors",
            augment=recipe.augment,
            on_epoch=on_epoch,
        )
    return trained.network, data


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the networks of the benchmarks.")
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in arguments.networks:
        network, data = load_trained(name, arguments.data_root, arguments.cache)
        splits = (data.train, data.validation, data.test)
        shares = [f"{100 * accuracy(network, split):.1f}" for split in splits]
        rows.append((name, str(sum(p.numel() for p in network.parameters())), *shares))
    print(text_table(("network", "parameters", "train %", "validation %", "test %"), rows))


if __name__ == "__main__":
    main()
