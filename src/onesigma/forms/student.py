"""The student: the network's own layers, and a small head that says what Monte Carlo would say.

    a              = relu(U f + c)             f what the head reads
    m, u, t, w     = V [z, f, a] + d           z the logits
    mean, var      = z, u²
    probs          = softmax(m / (1 + |t|))
    aleatoric      = H(probs) / (1 + |w|)      H the entropy;  epistemic = H − aleatoric

For regression there is no more than mean and var; of a map of logits each position is a row.

All of it is fitted to Monte Carlo of the original (``calibration.distillation``). As the signal
grows, m / t tends to a limit, and w grows: as under dropout, where the spread grows with the
logits. That is a dozen small ops and no draws. It works for any layers, in two forms:

distilled   the weights are adapted too, so that z is the mean under dropout; f is what the last
            linear layer reads. Nothing is added to the layers themselves.
energy      the layers are the original's, so that z is its answer bit for bit; f also has the
            energy, √ mean of h² over the positions of each channel, of what each dropout drops.

A third form has k rows for each input (``graph.particles``), on the original's layers. Their logits
z_j have a mean z and a spread s; f is their average, and s. Its head moves and scales the rows:

    δ, ρ           = V [z, f, a] + d
    mean, std      = z + s δ, s (1 + ρ)
    probs          = (1/k) Σ_j softmax(mean + std (z_j − z) / s)

and the expected entropy is theirs. With V = 0 and d = 0 that is what the rows say by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

from onesigma.forms.places import all_rows, as_map
from onesigma.graph.capture import is_site, shared_copy
from onesigma.head import average
from onesigma.prediction import OUTPUTS

aten = torch.ops.aten

MAX_CHANNELS = 512
_TINY = 1e-12  # the root of 0 has no slope
_LAST_LAYERS = {
    *(aten.linear.default, aten.conv1d.default, aten.conv2d.default, aten.conv3d.default),
}
_FLATTENS = (aten.flatten.using_ints, aten.view.default, aten.reshape.default)


class Head(nn.Module):
    """From logits and features to what a prediction holds."""

    task = "classification"

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.classes = classes
        self.read = nn.Linear(features, hidden)
        self.write = nn.Linear(classes + features + hidden, 3 * classes + 1)
        weight, bias = self.write.weight.detach(), self.write.bias.detach()
        weight.zero_()
        weight[:classes, :classes] = torch.eye(classes)  # m starts as the logits
        nn.init.normal_(weight[classes:, -hidden:], std=0.1 / hidden**0.5)
        bias.zero_()
        bias[classes : 2 * classes], bias[2 * classes :] = 0.3, 0.5
        nn.init.zeros_(self.read.bias)
        self.register_buffer("minus", torch.full((classes,), -1.0))

    def forward(self, logits: Tensor, features: Tensor) -> dict[str, Tensor]:
        """The fields of a prediction, and ``log_probs``."""
        hidden = torch.relu(self.read(features))
        written = self.write(torch.cat([logits, features, hidden], 1))
        count = self.classes
        level, root, heat = torch.split(written, [count, count, count + 1], 1)
        shrunk = heat.abs() + 1
        log_probs = torch.log_softmax(level / shrunk.narrow(1, 0, count), 1)
        probs = log_probs.exp()
        # A product with −1s: one node, where a sum and a minus are two.
        entropy = (probs * log_probs) @ self.get_buffer("minus")
        aleatoric = entropy / shrunk.select(1, count)
        return {
            "mean": logits,
            "var": root * root,
            "probs": probs,
            "log_probs": log_probs,
            "entropy": entropy,
            "aleatoric": aleatoric,
            "epistemic": entropy - aleatoric,
        }


class RowsHead(nn.Module):
    """From the rows of each input to what a prediction holds; it starts as their average."""

    task = "classification"

    def __init__(self, features: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.read = nn.Linear(features, hidden)
        self.write = nn.Linear(classes + features + hidden, 2 * classes)
        for weight in (self.read.bias, *self.write.parameters()):
            nn.init.zeros_(weight)

    def forward(
        self, logits: Tensor, features: Tensor, spread: Tensor, scores: Tensor
    ) -> dict[str, Tensor]:
        """The fields of a prediction, and ``log_probs``; what it takes, ``join_rows`` makes."""
        hidden = torch.relu(self.read(features))
        move, scale = self.write(torch.cat([logits, features, hidden], 1)).chunk(2, 1)
        mean, root = logits + spread * move, spread * (scale + 1)
        rows = mean.unsqueeze(1) + scores * root.unsqueeze(1)
        said = average(torch.log_softmax(rows, -1), 1)
        log_probs = said.probs.clamp(min=torch.finfo(said.probs.dtype).tiny).log()
        return {"mean": mean, "var": root * root, "log_probs": log_probs, **said._asdict()}


class Spread(nn.Module):
    """The head of a regression: from outputs and features to their variance."""

    task = "regression"

    def __init__(self, features: int, outputs: int, hidden: int) -> None:
        super().__init__()
        self.read = nn.Linear(features, hidden)
        self.write = nn.Linear(outputs + features + hidden, outputs)
        weight, bias = self.write.weight.detach(), self.write.bias.detach()
        weight.zero_()
        nn.init.normal_(weight[:, -hidden:], std=0.1 / hidden**0.5)
        bias.fill_(0.3)
        nn.init.zeros_(self.read.bias)

    def forward(self, outputs: Tensor, features: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.read(features))
        root = self.write(torch.cat([outputs, features, hidden], 1))
        return {"mean": outputs, "var": root * root}


HEADS: dict[str, type[Head | Spread]] = {each.task: each for each in (Head, Spread)}


class Student(nn.Module):
    """Layers with a head: what a converted network computes, by the same names.

    ``name`` is that of the layers: ``SOURCE`` if their weights are the original's. ``particles`` is
    how many rows they have for each input, and ``learnt`` how much of what its head learnt is used.
    """

    def __init__(
        self,
        layers: fx.GraphModule,
        head: Head | RowsHead | Spread,
        *,
        name: str,
        particles: int = 0,
        class_dim: int = 1,
    ) -> None:
        super().__init__()
        self.name, self.head, self.particles, self.class_dim = name, head, particles, class_dim
        self.learnt = 1.0
        self.add_module(name, layers)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        read, dim = self.read(*inputs), self.class_dim
        rows = read if self.particles else tuple(all_rows(each, dim) for each in read)
        fields = self.head(*rows)
        return tuple(as_map(fields[name], read[0], dim) for name in OUTPUTS[self.head.task])

    def read(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What the head takes: the logits, the features that it reads, and so on."""
        outputs = self.get_submodule(self.name)(*inputs)
        read = as_features(outputs, class_dim=self.class_dim)
        return join_rows(*read, self.particles) if self.particles else read


def as_features(outputs: Sequence[Tensor], *, class_dim: int = 1) -> tuple[Tensor, Tensor]:
    """The logits, and what the head reads: rows as they are, the energies of all else.

    Of a map of logits it is what has the same positions.
    """
    logits, *read = outputs
    if logits.dim() > 2:
        return logits, torch.cat(list(read), class_dim)
    flat = [h for h in read if h.dim() == 2]
    for rank in sorted({h.dim() for h in read if h.dim() > 2}):
        squares = [h * h for h in read if h.dim() == rank]
        # Several are joined before they are flattened, so that this is done once.
        pooled = [_pooled(square, keepdim=len(squares) > 1) for square in squares]
        flat.append((torch.cat(pooled, 1).flatten(1) if len(pooled) > 1 else pooled[0]).sqrt())
    return logits, torch.cat(flat, 1) if len(flat) > 1 else flat[0]


def join_rows(logits: Tensor, features: Tensor, particles: int) -> tuple[Tensor, ...]:
    """Of the rows of each input: their mean logits; their mean features and the logits' spread.

    Then that spread by itself, and how many times it each row is away from the mean.
    """
    each, rows = (x.reshape(-1, particles, x.shape[1]) for x in (logits, features))
    mean = each.mean(1)
    apart = each - mean.unsqueeze(1)
    # Balanced masks are drawn together: 1/k makes it unbiased, not 1/(k − 1).
    spread = (apart.square().mean(1) + _TINY).sqrt()
    return mean, torch.cat([rows.mean(1), spread], 1), spread, apart / spread.unsqueeze(1)


def _pooled(h: Tensor, *, keepdim: bool) -> Tensor:
    return h.mean(list(range(2, h.dim())), keepdim=keepdim)


def without_dropout(
    source: fx.GraphModule, *, energies: bool, class_dim: int = 1
) -> fx.GraphModule:
    """The network on the same weights, without its dropout.

    It returns the logits, then what its last linear layer reads, then, for ``energies``, what each
    dropout is given.
    """
    plain, dropped = shared_copy(source), list[fx.Node]()
    for node in [n for n in plain.graph.nodes if is_site(n)]:
        before = node.args[0]
        dropped.append(before)
        node.replace_all_uses_with(before)
        plain.graph.erase_node(node)
    output = plain.graph.output_node()
    logits: fx.Node = output.args[0][0]  # type: ignore[index, assignment]
    read = dict.fromkeys([_read_by(logits), *(dropped if energies else [])])
    if len(_shape(logits)) > 2:
        places = _positions(logits, class_dim)
        found = [n for n in read if n is not logits and _positions(n, class_dim) == places]
        output.args = ((logits, *(found or [logits])),)
    else:
        output.args = ((logits, *(n for n in read if _is_readable(n) or n is logits)),)
    plain.graph.eliminate_dead_code()
    plain.recompile()
    return plain


def _read_by(logits: fx.Node) -> fx.Node:
    """What the linear layer that makes the logits reads; the logits, if there is no such layer.

    A long row that was flattened is read before it was: the energy of each channel.
    """
    if logits.target not in _LAST_LAYERS:
        return logits
    row: fx.Node = logits.args[0]  # type: ignore[assignment]
    while not _is_readable(row) and row.target in _FLATTENS:
        row = row.args[0]  # type: ignore[assignment]
    return row if _is_readable(row) else logits


def _is_readable(node: fx.Node) -> bool:
    """Whether it has a batch, and not too many channels: they would be most of what is weighed."""
    shape = _shape(node)
    return len(shape) > 1 and shape[1] <= MAX_CHANNELS


def _positions(node: fx.Node, class_dim: int) -> list[str]:
    """The shape besides the channels. As texts, because the batch is a symbol."""
    return [str(n) for place, n in enumerate(_shape(node)) if place != class_dim]


def _shape(node: fx.Node) -> torch.Size:
    shape: torch.Size = node.meta["val"].shape
    return shape
