"""The energy form: the plain network, and a small head that reads what it computes anyway.

    e = √ mean of h² over the positions of each channel, at every dropout site: its energy
    a = relu(U [e, z])                              z the plain logits
    m = z + b(a),   L = l(a),   logits ∼ N(m, L Lᵀ)   b and l linear, without bias

The variance that dropout adds grows with the energy of what it drops. Nothing has a bias, so that
all the head adds scales with the signal. U, b and l are fitted to Monte Carlo of the original
(``calibration.student``). Any architecture has this form, because only activations are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

from onesigma import head
from onesigma.graph.capture import is_site, shared_copy
from onesigma.prediction import OUTPUTS

# Sites with more values than this are left out: they would be most of what the head weighs.
MAX_FEATURES = 512


class EnergyHead(nn.Module):
    """From energies and logits to the mean and a root of the covariance of the logits."""

    def __init__(self, inputs: int, classes: int, hidden: int, draws: int) -> None:
        super().__init__()
        self.classes = classes
        self.read = nn.Linear(inputs, hidden, bias=False)
        self.write = nn.Linear(hidden, (classes + 1) * classes, bias=False)
        points = head.fixed_draws(draws, classes).float()
        # The mean is one more row of the root, which every draw takes once.
        self.draws: Tensor
        self.register_buffer("draws", torch.cat([torch.ones(len(points), 1), points], 1))

    def forward(self, energies: Tensor) -> Tensor:
        """The shift of the mean, then the columns of the root: (n, 1 + classes, classes)."""
        parts: Tensor = self.write(torch.relu(self.read(energies)))
        return parts.reshape(-1, self.classes + 1, self.classes)

    def samples(self, parts: Tensor, logits: Tensor) -> Tensor:
        """One sample of the logits for each draw: (n, draws, classes)."""
        return self.draws @ parts + logits.unsqueeze(1)


class EnergyNetwork(nn.Module):
    """The plain network with its head: what a converted network computes, by the same names."""

    def __init__(self, source: fx.GraphModule, energy_head: EnergyHead) -> None:
        super().__init__()
        self.source = source
        self.head = energy_head

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        logits, *tapped = self.source(*inputs)
        parts = self.head(energies(tapped, logits))
        samples = self.head.samples(parts, logits)
        fields = head.average(torch.log_softmax(samples, -1), 1)._asdict()
        root = parts.narrow(1, 1, self.head.classes)
        fields |= {"mean": logits + parts.select(1, 0), "var": (root * root).sum(1)}
        return tuple(fields[name] for name in OUTPUTS["classification"])


def energies(tapped: Sequence[Tensor], logits: Tensor) -> Tensor:
    """What the head reads: the energy of every channel at the sites, and the logits."""
    flat = [h * h for h in tapped if h.dim() == 2]
    for rank in sorted({h.dim() for h in tapped if h.dim() > 2}):
        pooled = [_pooled(h * h) for h in tapped if h.dim() == rank]
        flat.append(torch.cat(pooled, 1).flatten(1))
    return torch.cat([torch.cat(flat, 1).sqrt(), logits], 1) if flat else logits


def _pooled(h: Tensor) -> Tensor:
    return h.mean(list(range(2, h.dim())), keepdim=True)


def tapped_graph(source: fx.GraphModule) -> fx.GraphModule:
    """The network without its dropout, on the same weights; behind its logits, what is dropped."""
    plain, tapped = shared_copy(source), list[fx.Node]()
    for node in [n for n in plain.graph.nodes if is_site(n)]:
        before = node.args[0]
        if before.meta["val"].dim() > 1 and before.meta["val"].shape[1] <= MAX_FEATURES:
            tapped.append(before)
        node.replace_all_uses_with(before)
        plain.graph.erase_node(node)
    output = plain.graph.output_node()
    output.args = ((*output.args[0], *tapped),)  # type: ignore[misc]
    plain.recompile()
    return plain
