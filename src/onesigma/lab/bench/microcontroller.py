"""What one pass costs on a microcontroller, over the plain network in the same C: JSON.

Instructions on an emulated Cortex-M4 (exact, the same in every run), flash and RAM, of what
`convert` and what `fit` give, in float and in eight bits; how far the answers are from ONNX
Runtime's, there and on an emulated ARM board; and how fast the plain network's C is on this machine
beside ONNX Runtime with one thread, interleaved. The networks are trained, but fitted shortly, for
the cost alone. `--host` makes only the last, a table, in a minute, and needs no emulator.

    python -m onesigma.lab.bench.microcontroller --data-root ../shared/data [--networks ds_cnn]
    python -m onesigma.lab.bench.microcontroller --host
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

import onesigma
from onesigma.exporters.c import generate
from onesigma.exporters.int8 import quantise
from onesigma.lab import c_verify as verify
from onesigma.lab import checkpoint
from onesigma.lab.bench.int8 import short_fit
from onesigma.lab.bench.programs import plain
from onesigma.lab.bench.runtimes import onnx_session
from onesigma.lab.bench.trained import CACHE, SHIPPED, load_trained
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.noise import random_walk
from onesigma.lab.deployed_networks import ds_cnn, resnet8
from onesigma.lab.networks import INPUT_SHAPE, paper_cnn
from onesigma.runtime.comparison import checking_runtime
from onesigma.text_table import text_table

PASSES = 30
INPUTS = 100  # to fit on, and as many to compare labels on
NETWORKS = (SHIPPED, "paper_cnn", "ds_cnn", "resnet8")
COMPILERS = {"-O3 -march=native": ("-O3", "-march=native"), "-O3": ("-O3",)}
TURNS = 10

TIMER = """\
#include <stdio.h>
#include <time.h>
#include "model.h"
static float x[MODEL_INPUT_SIZE];
static struct model_prediction out;
int main(void)
{
    double best = 1e9;
    for (int i = 0; i < MODEL_INPUT_SIZE; ++i) x[i] = (float)(i * 7919 % 1000) / 500.0f - 1.0f;
    for (int i = 0; i < 100; ++i) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        model_predict(x, &out);
        clock_gettime(CLOCK_MONOTONIC, &b);
        const double took = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        best = took < best ? took : best;
    }
    printf("%g", best);
    return 0;
}
"""


def host_networks() -> Iterator[tuple[str, nn.Module, Tensor]]:
    """The watch network that the package ships; others of random weights."""
    yield "watch", checkpoint.load().network, random_walk(2, watch.INPUT_SHAPE)
    torch.manual_seed(0)
    yield "paper", paper_cnn(), torch.randn(2, *INPUT_SHAPE)
    yield "DS-CNN", ds_cnn().eval(), torch.randn(2, 1, 24, 98)
    yield "ResNet-8", resnet8().eval(), torch.randn(2, *INPUT_SHAPE)


def write_cheap(network: nn.Module, x: Tensor, folder: Path) -> dict[str, Path]:
    """The plain network and its moments as ONNX."""
    converted = onesigma.convert(network, x[:2])
    paths = {"plain": plain(converted, (x[:2],), folder / "plain.onnx").path}
    onesigma.export(converted, folder / "moments.onnx")
    return paths | {"moments": folder / "moments.onnx"}


def write_all(network: nn.Module, x: Tensor, folder: Path) -> dict[str, Path]:
    """These and what `fit` gives; and both in eight bits."""
    ready = short_fit(network, x)  # for its cost alone
    onesigma.export(ready, folder / "fitted.onnx", example_input=x)
    paths = write_cheap(network, x, folder) | {"fitted": folder / "fitted.onnx"}
    for form in ("plain", "fitted"):
        paths[f"{form}, int8"] = folder / f"{form}_int8.onnx"
        onnx.save(quantise(onnx.load(paths[form]), [x.numpy()]), paths[f"{form}, int8"])
    return paths


def on_board(path: Path, x: Tensor, folder: Path) -> dict[str, Any]:
    """One inference in the emulated Cortex-M4, and how far the answer is from ONNX Runtime's."""
    model = onnx.load(path)
    generated = generate(model, folder)
    samples = [{name: x[i : i + 1].numpy() for name in generated.inputs} for i in range(len(x))]
    ran = verify.run(generated, samples[:1], "cortex-m4", profile=True)
    linux = verify.run(generated, samples[:1], "aarch64")
    row: dict[str, Any] = {
        "instructions": ran.instructions,
        "flash": verify.flash(generated),
        "arena": generated.arena,
        "steps": sorted(zip(ran.steps, generated.steps, strict=True), reverse=True)[:12],
        "error": verify.largest_mismatch(model, ran, samples[:1]),
        "error on aarch64": verify.largest_mismatch(model, linux, samples[:1]),
    }
    return row | same_answers(model, verify.run(generated, samples, "cortex-m4"), samples)


def same_answers(
    model: onnx.ModelProto, ran: verify.RunResult, samples: Sequence[verify.Sample]
) -> dict[str, float]:
    """The share of labels that are ONNX Runtime's, and the largest change of a probability."""
    session = checking_runtime()[1](model.SerializeToString())
    name = "probs" if "probs" in ran.outputs[0] else next(iter(ran.outputs[0]))
    wanted = np.stack([session.run([name], dict(sample))[0].ravel() for sample in samples])
    found = np.stack([outputs[name] for outputs in ran.outputs])
    labels = float((wanted.argmax(1) == found.argmax(1)).mean())
    return {"same labels": labels, f"change of {name}": float(np.abs(wanted - found).max())}


def compare(network: nn.Module, x: Tensor, test: Tensor, folder: Path) -> dict[str, Any]:
    """All forms beside the plain network."""
    paths = write_all(network, x, folder)
    rows = {form: on_board(path, test, folder / "c") for form, path in paths.items()}
    base = rows["plain"]
    for row in rows.values():
        for what in ("instructions", "flash", "arena"):
            row[f"{what} ratio"] = round(row[what] / base[what], 3)
        row[f"times fewer than {PASSES} passes"] = round(
            PASSES * base["instructions"] / row["instructions"], 1
        )
    small = rows["fitted, int8"]
    for form in ("plain, int8", "fitted"):
        ratio = small["instructions"] / rows[form]["instructions"]
        small[f"instructions over {form}"] = round(ratio, 3)
    return rows | {"host": on_host(paths["plain"], folder / "host")}


def on_host(path: Path, folder: Path) -> dict[str, Any]:
    """C on this machine over ONNX Runtime: all in turns, the fastest of each."""
    generated = generate(onnx.load(path), folder)
    (folder / "timer.c").write_text(TIMER)
    sources = [str(folder / "timer.c"), str(generated.source), f"-I{folder}"]
    programs = {name: str(folder / f"program{i}") for i, name in enumerate(COMPILERS)}
    for name, program in programs.items():
        command = ["gcc", *COMPILERS[name], *sources, "-o", program, "-lm"]
        subprocess.run(command, check=True)
    session = onnx_session(path, threads=1)
    (value,) = session.get_inputs()
    x = np.random.default_rng(0).standard_normal((1, *value.shape[1:])).astype(np.float32)
    times: dict[str, list[float]] = {name: [] for name in (*programs, "onnxruntime")}
    for _ in range(TURNS):
        for name, program in programs.items():
            done = subprocess.run([program], capture_output=True, check=True)
            times[name].append(float(done.stdout))
        for _ in range(100):
            start = time.perf_counter()
            session.run(None, {value.name: x})
            times["onnxruntime"].append(time.perf_counter() - start)
    runtime = min(times.pop("onnxruntime"))
    ratios = {name: round(min(each) / runtime, 2) for name, each in times.items()}
    return {"C over onnxruntime": ratios, "microseconds of onnxruntime": round(1e6 * runtime, 1)}


def host_table() -> str:
    """Plain networks and moments; of both, how much longer C takes than ONNX Runtime."""
    rows = []
    for name, network, x in host_networks():
        with TemporaryDirectory() as folder:
            for form, path in write_cheap(network, x, Path(folder)).items():
                found = on_host(path, Path(folder) / form)
                ratios = [f"{ratio:.2f}" for ratio in found["C over onnxruntime"].values()]
                runtime = f"{found['microseconds of onnxruntime']:,.0f}"
                rows.append((f"{name}, {form}", runtime, *ratios))
    header = ("", "ONNX Runtime, microseconds", *(f"C {flags}, over it" for flags in COMPILERS))
    return text_table(header, rows, numbers=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    parser.add_argument("--steps", action="store_true", help="with what each step takes")
    parser.add_argument("--host", action="store_true", help="only time C on this machine: a table")
    options = parser.parse_args()
    if options.host:
        print(host_table())
        return 0
    absent = [target.missing for target in verify.TARGETS.values() if target.missing]
    if absent:
        print(f"microcontroller: {'; '.join(absent)}", file=sys.stderr)
        return 1
    result = {}
    for name in options.networks:
        network, data = load_trained(name, options.data_root, options.cache)
        with TemporaryDirectory() as folder:
            x, test = (each.inputs[:INPUTS] for each in (data.train, data.test))
            result[name] = compare(network, x, test, Path(folder))
        if not options.steps:
            for row in result[name].values():
                row.pop("steps", None)
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
