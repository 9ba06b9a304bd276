"""Arrays from files, without running anything in them."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onesigma.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

# What numpy, and zipfile below it, raise on bytes that are no array: a header of numpy's is parsed
# as Python, and may state a size beyond all memory.
DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, RuntimeError, SyntaxError, tokenize.TokenError),
    *(MemoryError, OverflowError, zipfile.BadZipFile, zlib.error),
)


def read_batch(path: Path) -> Tensor:
    """A numeric ``.npy`` array as a tensor, the batch first; float64 becomes float32.

    Raises:
        DataError: the file is absent, damaged, pickled, or holds no numbers.
    """
    import torch  # here: what else is in this file serves devices without PyTorch

    try:
        array = np.load(path, allow_pickle=False)
    except DAMAGE as error:
        raise DataError(f"{path.name} cannot be read as a .npy array: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "fiu":
        raise DataError(f"{path.name} must hold one array of numbers, the batch first.")
    tensor = torch.from_numpy(array)
    return tensor.float() if tensor.dtype == torch.float64 else tensor
