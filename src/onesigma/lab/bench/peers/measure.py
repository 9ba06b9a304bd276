"""Runs inside the peers' environment. The paper's CNN, batch 1, one thread, eager."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from onesigma.conversion import convert
from onesigma.lab.bench.contenders import make_contenders
from onesigma.lab.bench.measurement import machine
from onesigma.lab.bench.runtimes import runtime
from onesigma.lab.networks import CLASSES, INPUT_SHAPE, seeded_cnn
from onesigma.lab.timing import summarise, time_in_turn

PASSES = 30
Method = Callable[[Tensor], object]


def declare_torchvision_ops() -> None:
    """Let the peers import torchvision beside a CPU build of PyTorch.

    Its public build fails there, because two ops of object detection are missing. Nobody calls
    them here, so it is enough to declare them.
    """
    library: Any = torch.library.Library(  # type: ignore[no-untyped-call]
        "torchvision", "FRAGMENT"
    )
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_kept"] = library  # what a library defines ends with it


def torch_uncertainty(network: nn.Module) -> Method:
    methods: Any = import_module("torch_uncertainty.methods")
    model = methods.mc_dropout(network, num_estimators=PASSES, on_batch=True).eval()
    return lambda x: model(x).reshape(PASSES, len(x), -1).softmax(-1).mean(0)


def baal(network: nn.Module) -> Method:
    patched: Any = import_module("baal.bayesian.dropout").patch_module(network, inplace=False)
    library: Any = import_module("baal.modelwrapper")
    wrapper = library.ModelWrapper(patched, library.TrainingArgs(use_cuda=False))
    return lambda x: wrapper.predict_on_batch(x, iterations=PASSES).softmax(1).mean(-1)


def lightning_uq_box(network: nn.Module) -> Method:
    methods: Any = import_module("lightning_uq_box.uq_methods")
    model: Any = methods.MCDropoutClassification(network, PASSES, nn.CrossEntropyLoss()).eval()
    predict: Method = model.predict_step
    return predict


def laplace(network: nn.Module) -> Method:
    """Last layer, diagonal: the full factor of 25,600 inputs would take 2.6 GB."""
    from torch.utils.data import DataLoader, TensorDataset

    x, y = torch.randn(64, *INPUT_SHAPE), torch.arange(64) % CLASSES
    library: Any = import_module("laplace")
    model = library.Laplace(
        network, "classification", subset_of_weights="last_layer", hessian_structure="diag"
    )
    model.fit(DataLoader(TensorDataset(x, y), batch_size=16))
    return partial(model, link_approx="probit")


PEERS: dict[str, tuple[str, Callable[[nn.Module], Method]]] = {
    "torch-uncertainty": (f"MC-{PASSES}, one batch", torch_uncertainty),
    "baal": (f"MC-{PASSES}", baal),
    "lightning-uq-box": (f"MC-{PASSES}", lightning_uq_box),
    "laplace-torch": ("Laplace, last layer, diagonal, probit", laplace),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    declare_torchvision_ops()
    x = torch.randn(1, *INPUT_SHAPE, generator=torch.Generator().manual_seed(0))
    calls: dict[str, Callable[[], object]] = {}
    skipped = {}
    examples = (torch.zeros(2, *INPUT_SHAPE),)
    with TemporaryDirectory() as folder:
        converted = convert(seeded_cnn(), examples[0])
        for entry in make_contenders(converted, examples, Path(folder), passes=(PASSES,), sizes=()):
            run = entry.run(lambda program: runtime("eager").start(program.graph, (), 1))
            calls[f"onesigma: {entry.name}"] = partial(run, x.numpy())
    for name, (what, make) in PEERS.items():
        try:
            call = partial(torch.no_grad()(make(seeded_cnn())), x)
            call()
        except Exception as error:  # a peer that does not work here is left out
            skipped[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        calls[f"{name} {version(name)}: {what}"] = call
    samples = time_in_turn(calls, repeats=options.repeats, seconds=20)
    plain = next(iter(samples.values()))
    rows = {name: asdict(summarise(own, plain)) for name, own in samples.items()}
    json.dump({"machine": machine(), "rows": rows, "skipped": skipped}, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
