"""The student: the network's own layers, and a small head that says what Monte Carlo would say.

    a              = relu(U f + c)             f what the head reads
    m, u, t, w     = V [z, a] + d              z the logits
    mean, var      = z, u²
    probs          = softmax(m / max(t, 1))
    aleatoric      = H(probs) / max(w, 1)      H the entropy;  epistemic = H − aleatoric

All of it is fitted to Monte Carlo of the original (``calibration.distillation``). As a signal grows,
m / t tends to a limit and w grows: as under dropout, where the spread grows with the logits. It
needs no draws, a dozen small ops, and works for any layers, in two forms:

distilled   the weights are adapted too, so that z is the mean under dropout; f is what the last
            linear layer reads. Nothing is added to the layers themselves.
energy      the layers are the original's, so that z is its answer bit for bit; f also has the
            energy, √ mean of h² over the positions of each channel, of what each dropout drops.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

from onesigma.graph.capture import is_site, shared_copy
from onesigma.prediction import OUTPUTS

aten = torch.ops.aten

# Sites with more channels than this are left out: they would be most of what the head weighs.
MAX_CHANNELS = 512


class Head(nn.Module):
    """From logits and features to what a prediction holds."""

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.classes = classes
        self.read = nn.Linear(features, hidden)
        self.write = nn.Linear(classes + hidden, 3 * classes + 1)
        weight, bias = self.write.weight.detach(), self.write.bias.detach()
        weight.zero_()
        weight[:classes, :classes] = torch.eye(classes)  # m starts as the logits
        nn.init.normal_(weight[classes:, classes:], std=0.1 / hidden**0.5)
        bias.zero_()
        bias[classes : 2 * classes], bias[2 * classes :] = 0.3, 1.5
        nn.init.zeros_(self.read.bias)

    def forward(self, logits: Tensor, features: Tensor) -> dict[str, Tensor]:
        """The fields of a prediction, and ``log_probs``."""
        count = self.classes
        written = self.write(torch.cat([logits, torch.relu(self.read(features))], 1))
        shrunk = written.narrow(1, 2 * count, count + 1).clamp(min=1)
        log_probs = torch.log_softmax(written.narrow(1, 0, count) / shrunk.narrow(1, 0, count), 1)
        probs, root = log_probs.exp(), written.narrow(1, count, count)
        # Each term of the entropy has one sign; abs, because it takes one node less than a minus.
        entropy = (probs * log_probs).abs().sum(1)
        aleatoric = entropy / shrunk.select(1, count)
        return {
            **{"mean": logits, "var": root * root, "probs": probs, "log_probs": log_probs},
            **{"entropy": entropy, "aleatoric": aleatoric, "epistemic": entropy - aleatoric},
        }


class Student(nn.Module):
    """Layers with a head: what a converted network computes, by the same names."""

    def __init__(self, layers: fx.GraphModule, head: Head, name: str) -> None:
        super().__init__()
        self.name, self.head = name, head
        self.add_module(name, layers)

    @property
    def layers(self) -> fx.GraphModule:
        layers: fx.GraphModule = getattr(self, self.name)
        return layers

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        fields = self.head(*self.read(*inputs))
        return tuple(fields[name] for name in OUTPUTS["classification"])

    def read(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The logits, and the features that the head reads."""
        return as_features(self.layers(*inputs))


def as_features(outputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The logits, and what stands behind them: features as they are, energies of what is dropped."""
    logits, features, *dropped = outputs
    flat = [h * h for h in dropped if h.dim() == 2]
    for rank in sorted({h.dim() for h in dropped if h.dim() > 2}):
        pooled = [_pooled(h * h) for h in dropped if h.dim() == rank]
        flat.append(torch.cat(pooled, 1).flatten(1))
    return logits, torch.cat([features, torch.cat(flat, 1).sqrt()], 1) if flat else features


def _pooled(h: Tensor) -> Tensor:
    return h.mean(list(range(2, h.dim())), keepdim=True)


def without_dropout(source: fx.GraphModule, *, energies: bool) -> fx.GraphModule:
    """The network on the same weights, without its dropout.

    It returns the logits, then what its last linear layer reads (the logits again, if there is
    none), then, for ``energies``, what each dropout is given.
    """
    plain, dropped = shared_copy(source), list[fx.Node]()
    for node in [n for n in plain.graph.nodes if is_site(n)]:
        before = node.args[0]
        shape = before.meta["val"].shape
        if energies and len(shape) > 1 and shape[1] <= MAX_CHANNELS:
            dropped.append(before)
        node.replace_all_uses_with(before)
        plain.graph.erase_node(node)
    output = plain.graph.output_node()
    logits: fx.Node = output.args[0][0]  # type: ignore[index, assignment]
    output.args = ((logits, _read_by(logits), *dropped),)
    plain.graph.eliminate_dead_code()
    plain.recompile()
    return plain


def _read_by(logits: fx.Node) -> fx.Node:
    """What the linear layer that makes the logits reads, if that is one row for each input."""
    layer: fx.Node = logits.args[0] if logits.target is aten.linear.default else logits  # type: ignore[assignment]
    return layer if layer.meta["val"].dim() == 2 else logits
