"""Other ways to uncertainty, as modules to export: each returns probabilities and a score.

An ensemble, and OUR re-implementations of two single-pass methods, after what their papers describe
and not of their code: an early-exit ensemble (as in QUTE, Ghanathe & Wilton 2025, whose exits serve
in training and end as heads behind the last layer) and a next-activation head (as in SNAP-UQ,
Lamaakal et al. 2026). The network is frozen in both; only the heads are taught.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

HIDDEN, RANK = 32, 16
STEPS, BATCH, RATE = 1500, 256, 3e-3  # of teaching the heads
_LOG_SCALE = (-4.0, 4.0)  # its bounds, so that no channel decides alone


def folded(network: nn.Sequential) -> nn.Sequential:
    """Each batch norm as part of its convolution, as in ours; the layers keep their places."""
    network = deepcopy(network).eval()
    for layers in [m for m in network.modules() if isinstance(m, nn.Sequential)]:
        for place in range(1, len(layers)):
            conv, norm = layers[place - 1], layers[place]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                layers[place - 1], layers[place] = fuse_conv_bn_eval(conv, norm), nn.Identity()
    return network.requires_grad_(False)


class Members(nn.Module):
    """The average softmax of several networks, and its entropy."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return _average([network(x) for network in self.networks])


def _average(logits: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    probs = torch.stack([each.softmax(1) for each in logits]).mean(0)
    return probs, -(probs * probs.clamp(min=1e-30).log()).sum(1)


class Tapped(nn.Module):
    """A network that is cut behind some of its layers; heads read every channel's mean there."""

    def __init__(self, network: nn.Sequential, places: Sequence[int]) -> None:
        super().__init__()
        edges = [0, *(place + 1 for place in places), len(network)]
        self.pieces = nn.ModuleList(network[first:end] for first, end in pairwise(edges))
        self.heads = nn.ModuleList()

    def read(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The means of the channels at each cut, and the logits."""
        features = list[Tensor]()
        for place, piece in enumerate(self.pieces):
            if place:
                features.append(x.mean((2, 3)))
            x = piece(x)
        return features, x

    def loss(self, features: Sequence[Tensor], labels: Tensor) -> Tensor:
        """What the heads learn to make small."""
        raise NotImplementedError


class ExitEnsemble(Tapped):
    """A small classifier at each cut; their softmaxes and the last one are averaged."""

    def __init__(self, network: nn.Sequential, places: Sequence[int], x: Tensor) -> None:
        super().__init__(network, places)
        features, logits = self.read(x)
        for each in features:
            first, last = nn.Linear(each.shape[1], HIDDEN), nn.Linear(HIDDEN, logits.shape[1])
            self.heads.append(nn.Sequential(first, nn.ReLU(), last))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.read(x)
        exits = [head(each) for head, each in zip(self.heads, features, strict=True)]
        return _average([*exits, logits])

    def loss(self, features: Sequence[Tensor], labels: Tensor) -> Tensor:
        pairs = zip(self.heads, features, strict=True)
        return torch.stack([F.cross_entropy(head(each), labels) for head, each in pairs]).sum()


class NextActivation(nn.Module):
    """From a low-rank projection of one cut, mean and log-scale of the next."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.project = nn.Linear(before, RANK, bias=False)
        self.mean, self.log_scale = nn.Linear(RANK, after), nn.Linear(RANK, after)

    def forward(self, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """For every channel the squared error in units of the scale, and the log-scale."""
        seen = self.project(before)
        log_scale = self.log_scale(seen).clamp(*_LOG_SCALE)
        return ((after - self.mean(seen)) * (-log_scale).exp()).square(), log_scale


class Surprise(Tapped):
    """The network's own softmax; its uncertainty is how badly each cut foretells the next."""

    def __init__(self, network: nn.Sequential, places: Sequence[int], x: Tensor) -> None:
        super().__init__(network, places)
        features, _ = self.read(x)
        for place, each in enumerate(features):
            self.register_buffer(f"middle{place}", each.mean(0))
            self.register_buffer(f"spread{place}", each.std(0).clamp(min=1e-3))
        for before, after in pairwise(features):
            self.heads.append(NextActivation(before.shape[1], after.shape[1]))

    def foretell(self, features: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Errors and log-scales at all cuts but the first, in units of the training inputs."""
        scaled = [
            (each - self.get_buffer(f"middle{k}")) / self.get_buffer(f"spread{k}")
            for k, each in enumerate(features)
        ]
        pairs = zip(self.heads, pairwise(scaled), strict=True)
        return [head(before, after) for head, (before, after) in pairs]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = self.read(x)
        errors = [error.mean(1) for error, _ in self.foretell(features)]
        return logits.softmax(1), torch.stack(errors).sum(0)

    def loss(self, features: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Minus the Gaussian log-likelihood; the labels are not looked at."""
        return torch.stack([(e / 2 + s).mean() for e, s in self.foretell(features)]).sum()


def teach(model: Tapped, inputs: Tensor, labels: Tensor, steps: int = STEPS) -> Tapped:
    """Teach the heads on what the frozen network computes, which is computed once."""
    with torch.no_grad():
        chunks = [model.read(x)[0] for x in torch.split(inputs, BATCH)]
    features = [torch.cat(each) for each in zip(*chunks, strict=True)]
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.heads.parameters(), RATE, weight_decay=1e-4)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    for _ in range(steps):
        rows = torch.randint(len(labels), (BATCH,), generator=generator)
        optimizer.zero_grad()
        model.loss([each[rows] for each in features], labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        cycle.step()
    return model.requires_grad_(False).eval()
