"""Eight bits in ONNX Runtime: how far from float, and what ours costs over the plain network.

    python -m onesigma.lab.bench.int8 --data-root ../shared/data

For each network: a SHORT fit (what is asked here is how close int8 comes to float, not how close
float comes to Monte Carlo), ranges measured on training inputs, all figures on TEST inputs. The
plain network is quantised in the same way. All four files are timed in turn, in one run. Each
result is kept as it comes: give the same command again to continue an interrupted run. A model that
``lab.bench.deployed`` fitted is used if it lies in the output folder.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import torch
from torch import Tensor

import onesigma
from onesigma import fitting
from onesigma.exporters.answering import make_answering
from onesigma.exporters.int8 import Fidelity, compare, quantise
from onesigma.exporters.onnx.file import make_model
from onesigma.lab.bench import programs
from onesigma.lab.bench.result import kept
from onesigma.lab.bench.trained import CACHE, NETWORKS, load_trained
from onesigma.lab.datasets.split import Splits
from onesigma.lab.timing import summarise, time_in_turn
from onesigma.text_table import text_table

_SOUND = ("ds_cnn", "tc_resnet", "vgg", "mobilenet_v3")
_MOTION = ("resnet8", "mobilenet_v1", "tcn", "ecg_resnet", "paper_cnn")
DEFAULT = (*_SOUND, *_MOTION, "eegnet", "mlp")
TUNED_ON = ("ds_cnn", "resnet8", "tcn", "mlp", "mobilenet_v1")
ROWS, STEPS = 1000, 100  # of the short fit
_FIT, _TEST = 400, 1000  # inputs
PLAIN, OURS, PLAIN_8, OURS_8 = "plain", "ours", "plain int8", "ours int8"


@dataclass(frozen=True)
class Measured:
    """One network: fidelity on test inputs, ratios of times, and sizes of files in bytes.

    ``rest`` is what ours would be without the guard's numbers and without metadata.
    """

    network: str
    fidelity: Fidelity
    over_plain: float
    over_float: float
    plain_over_float: float
    plain_us: float
    sizes: dict[str, int]
    rest: int

    @staticmethod
    def from_dict(content: dict[str, Any]) -> Measured:
        return Measured(**content | {"fidelity": Fidelity(**content["fidelity"])})

    @property
    def file(self) -> float:
        return self.sizes[OURS_8] / self.sizes[PLAIN_8]


def short_fit(network: torch.nn.Module, inputs: Tensor) -> onesigma.Converted:
    """The usual form, learnt in a minute; no other form is tried."""
    short: dict[str, Any] = {"ROWS": ROWS, "STEPS": STEPS, "LONGER": {}, "_MOST_JUDGED": 30}
    with patch.multiple(fitting, **short | {"_more_forms": lambda *_: []}):
        return onesigma.fit(network, inputs, worth=1, seed=0)


def make_models(
    ready: onesigma.Converted, inputs: Tensor, folder: Path
) -> dict[str, onnx.ModelProto]:
    few = (inputs[:4],)
    plain = onnx.load(programs.plain(ready, few, folder / "plain.onnx").path)
    ours = make_model(make_answering(ready, few))
    examples = [inputs.numpy()]
    eight = {PLAIN_8: quantise(plain, examples), OURS_8: quantise(ours, examples)}
    return {PLAIN: plain, OURS: ours, **eight}


def measure(
    name: str, ready: onesigma.Converted, data: Splits, folder: Path, repeats: int
) -> Measured:
    inputs, x = draw(data)
    models = make_models(ready, inputs, folder)
    contents = {kind: model.SerializeToString() for kind, model in models.items()}
    calls = {kind: _call(content, x[:1].numpy()) for kind, content in contents.items()}
    samples = time_in_turn(calls, repeats=repeats)

    def ratio(kind: str, other: str) -> float:
        return summarise(samples[kind], samples[other]).ratio

    guard = sum(
        each.ByteSize() for each in models[OURS_8].graph.initializer if "guard." in each.name
    )
    about = sum(entry.ByteSize() for entry in models[OURS_8].metadata_props)
    return Measured(
        network=name,
        fidelity=compare(models[OURS], models[OURS_8], [x.numpy()]),
        over_plain=ratio(OURS_8, PLAIN_8),
        over_float=ratio(OURS_8, OURS),
        plain_over_float=ratio(PLAIN_8, PLAIN),
        plain_us=1e6 * summarise(samples[PLAIN_8], samples[PLAIN_8]).minimum,
        sizes={kind: len(content) for kind, content in contents.items()},
        rest=len(contents[OURS_8]) - guard - about,
    )


def _call(content: bytes, x: np.ndarray[Any, Any]) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, feed)


def draw(data: Splits) -> tuple[Tensor, Tensor]:
    """Training inputs to fit and to measure ranges on, and test inputs."""
    generator = torch.Generator().manual_seed(0)
    return data.train.some(_FIT, generator), data.test.some(_TEST, generator)


def run(
    names: Sequence[str],
    folder: Path,
    *,
    root: Path | None = None,
    cache: Path = CACHE,
    repeats: int = 1000,
) -> list[Measured]:
    """Measure what is not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)

    def ask(name: str) -> dict[str, Any]:
        network, data = load_trained(name, root, cache)
        model = folder / f"{name}-fit.safetensors"
        if not model.is_file():
            onesigma.save(short_fit(network, draw(data)[0]), model)
        return asdict(measure(name, onesigma.load(model), data, folder, repeats))

    paths = {name: folder / f"{name}.int8.json" for name in names}
    return [Measured.from_dict(kept(path, partial(ask, name))) for name, path in paths.items()]


def show(found: Sequence[Measured]) -> str:
    head = (
        *("network", "KL", "spread", "labels %", "change", "int8 / int8 plain", "int8 / float"),
        *("plain int8 / float", "plain int8 us", "file", "file, no guard or metadata"),
    )
    rows = [
        (
            each.network if each.network not in TUNED_ON else f"{each.network} (tuned on)",
            *(f"{each.fidelity.kl:.1e}", f"{each.fidelity.spread:.3f}"),
            *(f"{100 * each.fidelity.labels:.1f}", f"{each.fidelity.change:.3f}"),
            *(f"{each.over_plain:.2f}", f"{each.over_float:.2f}", f"{each.plain_over_float:.2f}"),
            *(f"{each.plain_us:.0f}", f"{each.file:.2f}"),
            f"{each.rest / each.sizes[PLAIN_8]:.2f}",
        )
        for each in found
    ]
    mean = math.exp(sum(math.log(each.over_plain) for each in found) / len(found))
    return f"{text_table(head, rows)}\ngeometric mean of int8 / int8 plain: {mean:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure eight bits in ONNX Runtime.")
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--output", type=Path, default=Path("out") / "int8")
    parser.add_argument(
        "--networks", nargs="+", default=list(DEFAULT), choices=NETWORKS, metavar="NAME"
    )
    parser.add_argument("--repeats", type=int, default=1000, help="rounds of timing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = run(
        options.networks,
        options.output,
        root=options.data_root,
        cache=options.cache,
        repeats=options.repeats,
    )
    print(show(found))


if __name__ == "__main__":
    main()
