"""The folder of prepared datasets: where it is, and how its files are read.

Each dataset is one .npz file without pickled parts. The folder is never part of the package. The
user names it by argument, or once for all by the environment variable ONESIGMA_DATA.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.tables.files import DAMAGE

ENVIRONMENT = "ONESIGMA_DATA"
DEFAULT = Path("..") / "shared" / "data"

_WHAT_TO_PASS = f"Pass root, or set {ENVIRONMENT}, to the folder that holds the prepared datasets."


def data_root(root: Path | None = None) -> Path:
    """The folder of the prepared datasets.

    Args:
        root: the folder; None takes the environment variable ONESIGMA_DATA, and without it
            ../shared/data beside the current folder.
    """
    named = os.environ.get(ENVIRONMENT)
    if root is not None:
        folder, origin = Path(root), "root"
    elif named:
        folder, origin = Path(named), ENVIRONMENT
    else:
        folder, origin = DEFAULT, "by default"
    if not folder.is_dir():
        raise DataError(f"No data folder at {folder} ({origin}). {_WHAT_TO_PASS}")
    return folder


def read_npz(root: Path | None, name: str, keys: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """The arrays `keys` of the file `name` (with its folder) under the data root."""
    path = data_root(root) / name
    if not path.is_file():
        raise DataError(f"{name} is not in the data folder {path.parents[1]}. {_WHAT_TO_PASS}")
    try:
        # Opened here, because numpy leaves a file open that is no archive.
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
