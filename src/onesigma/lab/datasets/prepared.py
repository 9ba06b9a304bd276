"""The folder of prepared datasets: where it is, how its files are read, what a loader returns.

Each dataset is one .npz without pickled parts. The folder is never part of the package; a user
names it by argument, or once and for all by the environment variable ONESIGMA_DATA.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.errors import DataError
from onesigma.lab.datasets.watch import Split
from onesigma.tables.files import DAMAGE

ENVIRONMENT = "ONESIGMA_DATA"
DEFAULT = Path("..") / "shared" / "data"

_WHAT_TO_PASS = f"Pass root, or set {ENVIRONMENT}, to the folder that holds the prepared datasets."


@dataclass(frozen=True)
class Splits:
    """Training, validation and test inputs, standardised: (raw − input_mean) / input_std.

    `name` says whose data it is, as results must print it; a stand-in names itself one.
    """

    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    input_mean: Tensor
    input_std: Tensor
    name: str = ""

    @property
    def prior_std(self) -> Tensor:
        """The paper's input prior: the std of each element of a training input, standardised.

        Over all places that share a mean and an std it is 1 by construction, the paper's prior per
        channel; this is the full tensor, in the shape of one input.
        """
        return self.train.inputs.std(dim=0, correction=0)


def data_root(root: Path | None = None) -> Path:
    """The folder of the prepared datasets.

    Args:
        root: the folder; None takes the environment variable ONESIGMA_DATA, and without it
            ../shared/data beside the current folder.

    Raises:
        DataError: there is no such folder; the message says what to pass.
    """
    if root is not None:
        return _existing(Path(root), "root")
    named = os.environ.get(ENVIRONMENT)
    if named:
        return _existing(Path(named), ENVIRONMENT)
    return _existing(DEFAULT, "by default")


def read_npz(root: Path | None, name: str, keys: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """The arrays `keys` of the file `name` (with its folder) under the data root.

    Raises:
        DataError: the file is absent, damaged, or lacks one of the arrays.
    """
    path = data_root(root) / name
    if not path.is_file():
        raise DataError(f"{name} is not in the data folder {path.parents[1]}. {_WHAT_TO_PASS}")
    try:
        # Opened here, since numpy leaves a file open that turns out to be no archive.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            absent = [key for key in keys if key not in file.files]
            if absent:
                raise DataError(f"{name} lacks {', '.join(absent)}: not the prepared file.")
            return {key: file[key] for key in keys}
    except DAMAGE as error:
        raise DataError(f"{name} cannot be read ({error}). Fetch it again.") from error


def decode_audio(high: npt.NDArray[np.uint8], low: npt.NDArray[np.uint8]) -> npt.NDArray[np.int16]:
    """Sound (n, samples) from its two byte planes: zig-zag coded first differences, lossless."""
    code = (high.astype(np.uint16) << 8) | low
    # Odd codes stand for negative differences. Unsigned throughout: sums wrap as the coder's did.
    difference = (code >> 1) ^ (np.uint16(0) - (code & 1))
    return np.cumsum(difference, axis=1, dtype=np.uint16).view(np.int16)


def standardise(
    train: Split, validation: Split, test: Split, class_names: tuple[str, ...], name: str
) -> Splits:
    """Splits in units of the raw training inputs' spread, one mean and std for all of time.

    Time is the last axis; what never varies is left at its own scale.
    """
    mean = train.inputs.mean(dim=(0, -1), keepdim=True)[0]
    std = train.inputs.std(dim=(0, -1), correction=0, keepdim=True)[0]
    std = torch.where(std > 0, std, 1.0)
    return Splits(
        train=standardised(train, mean, std),
        validation=standardised(validation, mean, std),
        test=standardised(test, mean, std),
        class_names=class_names,
        input_mean=mean.float(),
        input_std=std.float(),
        name=name,
    )


def standardised(split: Split, mean: Tensor, std: Tensor) -> Split:
    return Split(((split.inputs - mean) / std).float(), split.labels, split.subjects)


def choose(split: Split, rows: npt.NDArray[np.bool_]) -> Split:
    """The rows where `rows` is true, in their order."""
    index = torch.from_numpy(np.flatnonzero(rows))
    return Split(split.inputs[index], split.labels[index], split.subjects[index])


def _existing(folder: Path, origin: str) -> Path:
    if not folder.is_dir():
        raise DataError(f"No data folder at {folder} ({origin}). {_WHAT_TO_PASS}")
    return folder
