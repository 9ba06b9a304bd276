"""A guarded model of three channels, and recordings of devices as Parquet files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

import onesigma
from onesigma.calibration.guarding import Channels, with_guard

CHANNELS = ("ax", "ay", "az")
WINDOW, RATE = 32, 50.0


def signal(rng: np.random.Generator, rows: int) -> np.ndarray:
    """(rows, 3): a movement at one of several speeds, and noise."""
    speed = rng.choice([0.2, 0.4, 0.8])
    phase = rng.uniform(0, 6, size=3)
    wave = np.sin(speed * np.arange(rows)[:, None] * np.array([1, 1.3, 0.7]) + phase)
    return (wave + 0.3 * rng.normal(size=(rows, 3))).astype(np.float32)


def export_model(folder: Path) -> Path:
    """Guarded, with a rule, names of channels and classes, and a rate."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = nn.Sequential(
        *(nn.Conv1d(3, 8, 5, stride=2), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)),
    )
    known = torch.from_numpy(np.stack([signal(rng, WINDOW).T for _ in range(400)]))
    made = onesigma.convert(network.eval(), known[:2])
    limit = float(made(known).entropy.detach().quantile(0.8))
    rule = onesigma.AbstainRule("entropy", limit, 0.1, None, 400, 0.8, 0.05, novelty=0.02)
    made = with_guard(made.with_abstain(rule), (known,), channels=Channels(CHANNELS, None, RATE))
    path = folder / "model.onnx"
    onesigma.export(made, path, example_input=known[:2], class_names=["walk", "run", "sit"])
    return path


def table(rng: np.random.Generator, devices: dict[str, int], *, rate: float = RATE) -> pa.Table:
    """So many rows of each device, one device after the other."""
    parts = []
    for device, rows in devices.items():
        values = signal(rng, rows)
        start = np.datetime64("2026-03-01T00:00:00", "us")
        when = start + (np.arange(rows) * 1e6 / rate).astype("timedelta64[us]")
        columns = {name: values[:, i] for i, name in enumerate(CHANNELS)}
        parts.append(pa.table({"device": [device] * rows, "t": when} | columns))
    return pa.concat_tables(parts)


def write(path: Path, content: pa.Table, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path, **options)


def write_fleet(folder: Path, files: int = 6, rows: int = 2000) -> Path:
    """Two devices in each file."""
    rng = np.random.default_rng(1)
    for i in range(files):
        write(folder / f"day={i}" / "part.parquet", table(rng, {f"a{i}": rows, f"b{i}": rows + 7}))
    return folder
