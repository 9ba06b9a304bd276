"""Every kind of file that is read, damaged in many ways: what it held, or an error of ours.

Nothing else may be raised. Our own formats, and archives, answer as before or not at all. The suite
tries a share of the variants of each kind; ``make damage`` tries 1,200 of each, the same in every
run, and prints what came of them.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import TABLE, write_csv, write_npy, write_parquet, write_wav
from fuzz.harness import EFFORT, answered, damage
from fuzz.samples import (
    ESC_TABLE,
    hhar_rows,
    opportunity_rows,
    read_archive,
    read_esc_table,
    read_opportunity,
    recordings,
    tarred,
    zipped,
)
from safetensors.torch import save_file
from torch import nn

import onesigma
from onesigma import runtime
from onesigma.cli.main import build_parser, commands
from onesigma.decide.threshold import AbstainRule
from onesigma.importers import torch_files
from onesigma.lab.datasets import hhar
from onesigma.lab.datasets.motion import read_recordings
from onesigma.lab.datasets.sound import read_wav
from onesigma.tables.files import read_array
from onesigma.tables.labels import read_labels
from onesigma.tables.windows import Scaling, read_samples

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from fuzz.onnx_models import convolutional  # noqa: E402
from onnx_files import model, node, write  # noqa: E402

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp())  # it writes its settings there

SHARE = 40  # variants of each kind in the suite; 30 times as many are all
X = torch.ones(2, 4)
MEMBERS = {"a.txt": b"alpha" * 9, "deep/er/b.bin": bytes(range(200)), "c": b""}


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    Attributes:
        write: makes a good file at the path; it may write others beside it.
        read: reads it as a user would, and returns what was in it.
        checked: it carries a checksum, so that no change may go unseen.
        damaged: the file to damage, if that is another one beside it.
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    checked: bool = False
    damaged: str = ""


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3)).eval()


def converted() -> onesigma.Converted:
    return onesigma.convert(network(), X, input_std=0.1)


def save_external(path: Path) -> None:
    """A network whose weights lie in a file of their own."""
    kept = {"save_as_external_data": True, "size_threshold": 64, "location": "weights.bin"}
    onnx.save(convolutional(), path, **kept)


def read_network(path: Path) -> list[torch.Tensor]:
    module = onesigma.read_onnx(path, dropout={})
    with torch.no_grad():
        return [module(*module.examples(2))]


def save_quantised(path: Path) -> None:
    """A layer of 8-bit numbers, as ONNX Runtime's quantiser writes it."""
    levels = {"s": np.float32(0.05), "z": np.uint8(128), "ws": np.float32(0.1), "wz": np.int8(0)}
    weights = {"w": np.arange(-10, 10, dtype=np.int8).reshape(4, 5)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "s", "z"], ["r"]),
        node("DequantizeLinear", ["r", "s", "z"], ["out"]),
    ]
    arrays = {name: np.asarray(value) for name, value in (levels | weights).items()}
    write(path, model(nodes, {"x": ["batch", 4]}, arrays))


def save_keras(path: Path) -> None:
    keras = pytest.importorskip("keras")
    layers = keras.layers
    dense = layers.Dense(5, activation="relu")
    keras.Sequential([layers.Input((4,)), dense, layers.Dropout(0.3), layers.Dense(3)]).save(path)


def read_keras(path: Path) -> list[torch.Tensor]:
    with torch.no_grad():
        return [onesigma.read_keras(path)(X)]


def read_weights(path: Path) -> list[torch.Tensor]:
    model = network()
    torch_files.put_weights(model, path)
    return list(model.state_dict().values())


def read_program(path: Path) -> list[torch.Tensor]:
    with torch.no_grad():
        return [torch_files.read_program(path, trust=True)[0](X)]


def read_pickled(path: Path) -> list[torch.Tensor]:
    return list(torch_files.read_pickled_model(path, trust=True).state_dict().values())


def samples(path: Path) -> list[np.ndarray]:
    found = list(read_samples(path, window=4, hop=2, batch=3))
    assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in found)
    return found


def write_text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


def write_bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def read_scaling(path: Path) -> list[np.ndarray]:
    scaling = Scaling.read(path)
    assert np.isfinite(scaling.mean).all()
    assert (scaling.std > 0).all()
    return [scaling.mean, scaling.std]


def predicted(option: str, path: Path) -> str:
    """What ``onesigma predict`` writes with that option; its exceptions are not caught."""
    model, data, output = (path.with_name(name) for name in ("m.onnx", "x.npy", "out.csv"))
    if not model.exists():
        onesigma.export(converted(), model)
        np.save(data, X.numpy())
    line = ["predict", str(model), str(data), option, str(path), "-o", str(output)]
    commands()["predict"].run(build_parser().parse_args(line))
    return output.read_text()


def answers(prediction: Any) -> list[Any]:
    return [prediction.mean, prediction.var, prediction.probs, prediction.entropy]


SCALING = json.dumps({"mean": [0.5, 1.0], "std": [1.0, 2.5]})
RULE = json.dumps(AbstainRule("entropy", 0.5, 0.05, None, 100, 0.9, 0.04).to_dict())
CLOCK = "Creation_Time"
NAMES = "walk\nrun\nGehen → Läufer\n"
KINDS = [
    # Our own formats.
    Kind(
        "saved model.safetensors",
        lambda path: onesigma.save(converted(), path),
        lambda path: answers(onesigma.load(path).requires_grad_(False)(X)),
        checked=True,
    ),
    Kind(
        "exported model.onnx",
        lambda path: onesigma.export(converted(), path, class_names=["a", "b", "c"]),
        lambda path: answers(runtime.load(path, threads=1)(X.numpy())),
        checked=True,
    ),
    # Networks.
    Kind("network.onnx", lambda path: onnx.save(convolutional(), path), read_network),
    Kind("network with data.onnx", save_external, read_network, damaged="weights.bin"),
    Kind("quantised.onnx", save_quantised, read_network),
    Kind("network.keras", save_keras, read_keras),
    Kind("network.h5", save_keras, read_keras),
    Kind("weights.pt", lambda path: torch.save(network().state_dict(), path), read_weights),
    Kind("weights.safetensors", lambda path: save_file(network().state_dict(), path), read_weights),
    Kind("pickled.pt", lambda path: torch.save(network(), path), read_pickled),
    Kind(
        "program.pt2",
        lambda path: torch.export.save(torch.export.export(network(), (X,)), path),
        read_program,
    ),
    # Data.
    Kind("array.npy", write_npy, lambda path: [read_array(path)]),
    Kind("samples.npy", write_npy, samples),
    Kind("samples.csv", write_csv, samples),
    Kind("samples.csv.gz", write_bytes(gzip.compress(b"1,2,3\n" * 40)), samples, checked=True),
    Kind("samples.npz", lambda path: np.savez(path, TABLE), samples, checked=True),
    Kind("samples.parquet", write_parquet, samples),
    Kind("labels.csv", write_text("label\n" + "0\n1\n2\n" * 9), lambda p: [read_labels(p)]),
    Kind("samples.wav", lambda path: write_wav(path, np.arange(99) * 99), samples),
    Kind("sound.wav", lambda p: write_wav(p, np.arange(99)), lambda p: [read_wav(p, 16_000)]),
    Kind("scaling.json", write_text(SCALING), read_scaling),
    Kind("rule.json", write_text(RULE), lambda path: predicted("--abstain-rule", path)),
    Kind("names.txt", write_text(NAMES), lambda path: predicted("--class-names", path)),
    # Datasets.
    Kind(
        "recordings.npz", recordings, lambda path: [each.signal for each in read_recordings(path)]
    ),
    Kind(
        "hhar.csv", write_text(hhar_rows()), lambda path: hhar.read_streams(path, "Creation_Time")
    ),
    Kind("opportunity.dat", write_text(opportunity_rows()), read_opportunity),
    Kind("esc table.csv", write_text(ESC_TABLE), read_esc_table),
    Kind("dataset.zip", write_bytes(zipped(MEMBERS)), read_archive, checked=True),
    Kind("dataset.tar", write_bytes(tarred(MEMBERS)), read_archive),
    Kind("dataset.tar.gz", write_bytes(tarred(MEMBERS, "w:gz")), read_archive, checked=True),
    Kind("dataset.tar.bz2", write_bytes(tarred(MEMBERS, "w:bz2")), read_archive, checked=True),
    Kind("dataset.tar.xz", write_bytes(tarred(MEMBERS, "w:xz")), read_archive, checked=True),
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        return np.array_equal(
            np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f"
        )
    if is_dataclass(one):
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged(kind, tmp_path):
    path = tmp_path / kind.name
    kind.write(path)
    target = tmp_path / (kind.damaged or kind.name)
    good, expected = target.read_bytes(), kind.read(path)
    assert same(kind.read(path), expected)
    outcomes: Counter[str] = Counter()
    for number in range(SHARE * EFFORT):
        target.write_bytes(damage(good, number))
        found = answered(lambda: kind.read(path))
        way = "refused" if found is None else "same" if same(found, expected) else "other"
        outcomes[way] += 1
        assert way != "other" or not kind.checked, f"variant {number} is read as something else"
    counts = ", ".join(f"{outcomes[way]} {way}" for way in ("refused", "same", "other"))
    print(f"{kind.name:24} {outcomes.total():5} damaged: {counts}")
    assert outcomes["refused"]
