"""Eight bits in ONNX Runtime: how far from float, and what ours costs over the plain network.

    python -m onesigma.lab.bench.int8 --data-root ../shared/data

For each network: a SHORT fit (what is asked here is how close int8 comes to float, not how close
float comes to Monte Carlo), ranges measured on training inputs, all figures on TEST inputs. The
plain network is quantised in the same way. All files are timed in turn, in one run, ours in eight
bits with its guard and without. Each result is kept as it comes: give the same command again to
continue an interrupted run, or to add times after ``--untimed``.
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
BARE_8 = "ours int8, no guard"
KINDS = (PLAIN, OURS, PLAIN_8, OURS_8, BARE_8)


@dataclass(frozen=True)
class Measured:
    """One network: fidelity on test inputs, sizes of files in bytes, least times in µs if timed."""

    network: str
    fidelity: Fidelity
    sizes: dict[str, int]
    times: dict[str, float]

    def file(self, kind: str) -> float:
        return self.sizes[kind] / self.sizes[PLAIN_8]

    def over(self, kind: str, other: str = PLAIN_8) -> float:
        return self.times[kind] / self.times[other] if self.times else math.nan


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
    eight = [quantise(each, [inputs.numpy()], onnx_runtime=True) for each in (plain, ours)]
    made = (plain, ours, *eight, programs.without_guard(eight[1]))
    return dict(zip(KINDS, made, strict=True))


def compare_network(
    name: str, ready: onesigma.Converted, data: Splits, folder: Path
) -> dict[str, Any]:
    """All but the times; the files stay in the folder."""
    inputs, x = draw(data)
    models = make_models(ready, inputs, folder)
    for kind, model in models.items():
        onnx.save(model, _file(folder, name, kind))
    fidelity = compare(models[OURS], models[OURS_8], [x.numpy()])
    sizes = {kind: model.ByteSize() for kind, model in models.items()}
    return {"fidelity": asdict(fidelity), "sizes": sizes}


def time_files(name: str, folder: Path, repeats: int) -> dict[str, float]:
    """The least time of one answer of each file, in µs."""
    calls = {kind: _call(_file(folder, name, kind)) for kind in KINDS}
    samples = time_in_turn(calls, repeats=repeats)
    return {kind: 1e6 * summarise(own, own).minimum for kind, own in samples.items()}


def _file(folder: Path, name: str, kind: str) -> Path:
    return folder / f"{name}-{kind.replace(', ', '-').replace(' ', '-')}.onnx"


def _call(path: Path) -> Callable[[], object]:
    """As ``onesigma.runtime`` runs it: the names of the outputs are looked up once."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    x = np.random.default_rng(0).standard_normal((1, *given.shape[1:])).astype(np.float32)
    names = [each.name for each in session.get_outputs()]
    return partial(session.run, names, {given.name: x})


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
    timed: bool = True,
) -> list[Measured]:
    """Measure what is not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)

    def ask(name: str) -> dict[str, Any]:
        network, data = load_trained(name, root, cache)
        model = folder / f"{name}-fit.safetensors"
        if not model.is_file():
            onesigma.save(short_fit(network, draw(data)[0]), model)
        return compare_network(name, onesigma.load(model), data, folder)

    found = []
    for name in names:
        about = kept(folder / f"{name}.int8.json", partial(ask, name))
        times = {}
        if timed:
            ask_time = partial(time_files, name, folder, repeats)
            times = kept(folder / f"{name}.int8-times.json", ask_time)
        found.append(Measured(name, Fidelity(**about["fidelity"]), about["sizes"], times))
    return found


def show(found: Sequence[Measured]) -> str:
    head = (
        *("network", "KL", "spread", "labels %", "change"),
        *("plain int8 us", "no guard", "with guard", "plain float", "ours float"),
        *("plain int8 kB", "file, no guard", "with guard"),
    )
    rows = [
        (
            each.network if each.network not in TUNED_ON else f"{each.network} (tuned on)",
            *(f"{each.fidelity.kl:.1e}", f"{each.fidelity.spread:.3f}"),
            *(f"{100 * each.fidelity.labels:.1f}", f"{each.fidelity.change:.3f}"),
            f"{each.times.get(PLAIN_8, math.nan):.1f}",
            *(f"{each.over(kind):.2f}" for kind in (BARE_8, OURS_8, PLAIN, OURS)),
            f"{each.sizes[PLAIN_8] / 1e3:.0f}",
            *(f"{each.file(kind):.2f}" for kind in (BARE_8, OURS_8)),
        )
        for each in found
    ]
    means = (
        math.exp(sum(math.log(each.over(kind)) for each in found) / len(found))
        for kind in (BARE_8, OURS_8)
    )
    said = " and ".join(f"{mean:.2f}" for mean in means)
    return (
        f"{text_table(head, rows)}\ntimes and files over those of plain int8; geometric mean of "
        f"the times without and with guard: {said}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure eight bits in ONNX Runtime.")
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--output", type=Path, default=Path("out") / "int8")
    parser.add_argument(
        "--networks", nargs="+", default=list(DEFAULT), choices=NETWORKS, metavar="NAME"
    )
    parser.add_argument("--repeats", type=int, default=1000, help="rounds of timing")
    parser.add_argument("--untimed", action="store_true", help="as on a busy machine")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = run(
        options.networks,
        options.output,
        root=options.data_root,
        cache=options.cache,
        repeats=options.repeats,
        timed=not options.untimed,
    )
    print(show(found))


if __name__ == "__main__":
    main()
