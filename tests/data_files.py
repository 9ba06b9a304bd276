"""Files of numbers, one of each kind, for the tests of what reads them."""

import wave
from pathlib import Path

import numpy as np
import pytest

TABLE = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)


def write_csv(path: Path, table: np.ndarray = TABLE, header: str = "x,y,z\n") -> Path:
    body = "\n".join(",".join(repr(float(v)) for v in row) for row in table)
    path.write_text(f"{header}{body}\n")
    return path


def write_npy(path: Path, table: np.ndarray = TABLE) -> Path:
    np.save(path, table)
    return path


def write_parquet(path: Path, table: np.ndarray = TABLE) -> Path:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(dict(zip("xyz", table.T, strict=True))), path)
    return path


def write_wav(path: Path, values: np.ndarray, rate: int = 16000, width: int = 2) -> Path:
    """Whole numbers of that many bytes: (instants,) or (instants, channels)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((values[0].size if values.size else 1, width, rate, 0, "NONE", None))
        file.writeframes(values.astype("<i8").reshape(-1, 1).view(np.uint8)[:, :width].tobytes())
    return path


WRITERS = {"t.csv": write_csv, "t.npy": write_npy, "t.parquet": write_parquet}
