"""The six trained networks of the benchmarks, of different kinds, with their data.

    NETWORKS[name](root, cache_folder) → network in eval mode, its splits

Five are trained here the first time (a minute or two each on one core, the paper's ten minutes) and
read from the cache folder afterwards; the sixth is the demo's, shipped with the package. The digits
are scikit-learn's, so that these two need no folder of data. Run this file to train them all and
print a table.
"""

import argparse
import copy
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from architectures import KeywordCnn, MotionCnn, ResidualCnn
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from onesigma.lab.bench.network import paper_cnn
from onesigma.lab.datasets import motionsense, speech, watch
from onesigma.lab.datasets.prepared import Splits
from onesigma.lab.datasets.watch import Split
from onesigma.lab.demo import checkpoint
from onesigma.storage.atomic import replacing
from onesigma.text_table import text_table

CACHE = Path("out") / "benchmarks"
Loaded = tuple[nn.Module, Splits]


def another_take(inputs: Tensor, most: int = 10, colour: float = 0.3) -> Tensor:
    """MFCC images as if spoken earlier or later, into another microphone.

    Each moves by up to `most` frames, the frame at the border repeated; a fixed response of the
    microphone is a constant added to the log spectrum, hence to each coefficient.
    """
    frames = inputs.shape[-1]
    moves = torch.randint(-most, most + 1, (len(inputs), 1))
    index = (torch.arange(frames) + moves).clamp(0, frames - 1)
    moved = inputs.gather(-1, index[:, None, None, :].expand_as(inputs))
    return moved + colour * torch.randn(*inputs.shape[:-1], 1)


def unchanged(inputs: Tensor) -> Tensor:
    return inputs


@dataclass(frozen=True)
class Recipe:
    """How a network is made and trained; all of it enters the name of the cached file.

    `learning_rate` is the peak of one cycle (Smith & Topin 2019) over all the epochs.
    """

    build: Callable[[], nn.Module]
    data: Callable[[Path | None], Splits]
    epochs: int
    patience: int
    augment: Callable[[Tensor], Tensor] = unchanged
    batch: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4


def spectra(root: Path | None) -> Splits:
    """MotionSense as the paper takes its motion data: images of 6 × 20 × 20."""
    recordings = motionsense.recordings(root)
    return motionsense.MOTIONSENSE.splits(motionsense.MOTIONSENSE.parts(recordings))


def digits(root: Path | None) -> Splits:
    """The 1,797 handwritten digits of 8 × 8 that come with scikit-learn, in their own order."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(images).float().view(-1, 1, 8, 8)
    answers = torch.from_numpy(labels).long()
    mean, std = inputs[:1297].mean(), inputs[:1297].std()
    parts = [
        Split((inputs[rows] - mean) / std, answers[rows], torch.zeros(len(answers[rows])).long())
        for rows in (slice(1297), slice(1297, 1497), slice(1497, None))
    ]
    return Splits(*parts, tuple("0123456789"), mean, std, "digits of scikit-learn")


RECIPES = {
    "digits_cnn": Recipe(
        partial(paper_cnn, size=8, classes=10, channels=1),
        *(digits, 20, 20),
        learning_rate=1e-3,
    ),
    "motion_cnn": Recipe(MotionCnn, motionsense.load, epochs=8, patience=4),
    "residual_cnn": Recipe(ResidualCnn, motionsense.load, epochs=8, patience=4),
    "keyword_cnn": Recipe(KeywordCnn, speech.load, epochs=30, patience=12, augment=another_take),
    "paper_cnn": Recipe(paper_cnn, spectra, epochs=6, patience=3, learning_rate=1e-3),
}


def train_cached(
    name: str,
    seed: int = 0,
    epochs: int | None = None,
    root: Path | None = None,
    cache_folder: Path = CACHE,
) -> Loaded:
    """The trained network `name` in eval mode, and its data; trained only if not in the cache.

    Adam on cross-entropy, one cycle of the learning rate; the epoch with the best validation loss
    is kept. The same seed gives the same weights on the same machine, and the caller's random
    state is left as it was.

    Args:
        name: a key of RECIPES.
        seed: of the initial weights, the order of the batches and the dropout masks.
        epochs: at most; None takes the recipe's.
        root: the folder of the prepared datasets; see `prepared.data_root`.
        cache_folder: where weights are kept, named by a hash of all that makes them.
    """
    if name not in RECIPES:
        raise ValueError(f"No network {name!r}: choose one of {', '.join(RECIPES)}.")
    recipe = RECIPES[name]
    data = recipe.data(root)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = recipe.build()
        limit = recipe.epochs if epochs is None else epochs
        path = cache_folder / f"{name}-{_key(recipe, network, data, seed, limit)}.safetensors"
        if not _restored(network, path):
            network, record = _fit(network, recipe, data, limit, name)
            _keep(network, record, path)
    return network.eval(), data


def watch_cnn(root: Path | None = None, cache_folder: Path = CACHE) -> Loaded:
    """The demo's shipped network and its data: nothing to find or to train, both names unused."""
    data = watch.load()
    splits = Splits(
        data.train,
        data.validation,
        data.test,
        data.class_names,
        data.input_mean,
        data.input_std,
    )
    return checkpoint.load().network, splits


def _trained(name: str, root: Path | None = None, cache_folder: Path = CACHE) -> Loaded:
    return train_cached(name, root=root, cache_folder=cache_folder)


NETWORKS: dict[str, Callable[[Path | None, Path], Loaded]] = {
    "watch_cnn": watch_cnn,
    **{name: partial(_trained, name) for name in RECIPES},
}


def _key(recipe: Recipe, network: nn.Module, data: Splits, seed: int, epochs: int) -> str:
    """A digest of architecture as printed, data and settings: change one, and train anew."""
    settings = [repr(network), recipe.patience, recipe.batch, recipe.learning_rate]
    settings += [recipe.weight_decay, recipe.augment.__name__, seed, epochs]
    digest = hashlib.sha256(json.dumps(settings).encode())
    for split in (data.train, data.validation):
        digest.update(split.inputs.numpy().tobytes())
        digest.update(split.labels.numpy().tobytes())
    return digest.hexdigest()[:16]


def _restored(network: nn.Module, path: Path) -> bool:
    """Whether the cache had the weights; a damaged file counts as none and is written anew."""
    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            network.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, RuntimeError):
        return False
    return True


def _keep(network: nn.Module, record: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(network.state_dict(), temporary, metadata={"record": json.dumps(record)})


def _fit(
    network: nn.Module, recipe: Recipe, data: Splits, epochs: int, name: str
) -> tuple[nn.Module, dict[str, Any]]:
    """The network as it was after the best epoch, and a record of the training."""
    optimizer = torch.optim.Adam(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    steps = epochs * math.ceil(len(data.train) / recipe.batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.learning_rate, steps)
    started, best_loss, best_epoch, best = time.perf_counter(), float("inf"), 0, network
    bar = tqdm(range(1, epochs + 1), desc=f"training {name}", unit="epoch")
    for epoch in bar:
        _run_epoch(network, optimizer, cycle, recipe, data.train)
        validation = logits(network, data.validation.inputs)
        loss = float(F.cross_entropy(validation, data.validation.labels))
        bar.set_postfix(validation_loss=f"{loss:.3f}", best=f"{min(loss, best_loss):.3f}")
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, copy.deepcopy(network)
        elif epoch - best_epoch >= recipe.patience:
            break
    bar.close()
    seconds = round(time.perf_counter() - started, 1)
    return best, {"best_epoch": best_epoch, "epochs": epoch, "seconds": seconds}


def _run_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    cycle: torch.optim.lr_scheduler.LRScheduler,
    recipe: Recipe,
    split: Split,
) -> None:
    network.train()
    for batch in torch.split(torch.randperm(len(split)), recipe.batch):
        optimizer.zero_grad()
        outputs = network(recipe.augment(split.inputs[batch]))
        F.cross_entropy(outputs, split.labels[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        cycle.step()


@torch.no_grad()
def logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """The plain network's answer, in eval mode."""
    network.eval()
    return torch.cat([network(chunk) for chunk in torch.split(inputs, 256)])


def accuracy(network: nn.Module, split: Split) -> float:
    return float((logits(network, split.inputs).argmax(dim=1) == split.labels).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the networks of the benchmarks.")
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, load in NETWORKS.items():
        network, data = load(arguments.data_root, arguments.cache)
        splits = (data.train, data.validation, data.test)
        shares = [f"{100 * accuracy(network, split):.1f}" for split in splits]
        rows.append((name, str(sum(p.numel() for p in network.parameters())), *shares))
    print(text_table(("network", "parameters", "train %", "validation %", "test %"), rows))


if __name__ == "__main__":
    main()
