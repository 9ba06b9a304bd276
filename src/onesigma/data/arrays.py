"""Arrays from files, without running anything in them."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onesigma.errors import DataError


def read_batch(path: Path) -> Tensor:
    """A numeric ``.npy`` array as a tensor, the batch first; float64 becomes float32.

    Raises:
        DataError: the file is absent, damaged, pickled, or holds no numbers.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path.name} cannot be read as a .npy array: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "fiu":
        raise DataError(f"{path.name} must hold one array of numbers, the batch first.")
    tensor = torch.from_numpy(array)
    return tensor.float() if tensor.dtype == torch.float64 else tensor
