"""The ten columns of the paper's Table 1, made of the trained networks, and how long each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

import onesigma
from onesigma.baselines.backbone import backbone
from onesigma.baselines.ensemble import ensemble
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.lab.bench.timing import interleaved
from onesigma.lab.paper.apdeepsense import apdeepsense
from onesigma.lab.paper.evaluate import Method
from onesigma.lab.paper.recipes import Pools

OURS, PLAIN, APDEEPSENSE = "Ours", "BackboneDNN", "ApDeepSense"
PASSES, SIZES = (3, 5, 10, 30), (3, 5, 10)
# In the paper's order.
COLUMNS = (
    *(OURS, PLAIN, APDEEPSENSE),
    *(f"MCDrop-{passes}" for passes in PASSES),
    *(f"DeepEnsemble-{size}" for size in SIZES),
)


def build(
    pools: Pools, trial: int, unlabelled: Tensor, *, passes: int = 100, seed: int = 0
) -> dict[str, Method]:
    """The methods of one trial, by column; ensembles that the pool is too small for are left out.

    Args:
        pools: the trained networks.
        trial: which of them to draw.
        unlabelled: training inputs for ``calibrate``.
        passes: Monte-Carlo passes for ``calibrate``.
        seed: of the masks of MC dropout; in each trial they are others.
    """
    network = pools.convolutional.draw(1, trial)[0]
    (mlp,) = pools.fully_connected.draw(1, trial)
    masks = 1000 * seed + trial
    # Of a converted network the baselines run the original, already captured.
    ours = onesigma.convert(network, unlabelled[:2])
    methods: dict[str, Method] = {
        OURS: onesigma.calibrate(ours, unlabelled, passes=passes, seed=masks),
        PLAIN: backbone(ours),
        APDEEPSENSE: apdeepsense(mlp),
    }
    for count in PASSES:
        methods[f"MCDrop-{count}"] = mc_dropout(ours, count, seed=masks)
    for size in SIZES:
        if size <= len(pools.convolutional.members):
            methods[f"DeepEnsemble-{size}"] = ensemble(pools.convolutional.draw(size, trial))
    return methods


@torch.no_grad()
def milliseconds(
    methods: Mapping[str, Method], plain: Callable[[Tensor], Tensor], x: Tensor, repeats: int
) -> dict[str, float]:
    """Fastest of the repeats, methods in turn, on one thread.

    The plain network is timed as it is deployed, network and softmax, without any entropies.
    """
    timed: dict[str, Callable[[Tensor], object]] = {
        **methods,
        PLAIN: lambda inputs: plain(inputs).softmax(1),
    }
    calls = {name: partial(method, x) for name, method in timed.items()}
    samples = interleaved(calls, repeats=repeats)
    return {name: 1000 * float(np.nanmin(clock)) for name, (clock, _) in samples.items()}
