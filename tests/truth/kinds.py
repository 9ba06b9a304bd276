"""Odd networks: one for each way in which people write things. None may be silently wrong.

A kind is a function of (x, drop, net): ``drop(x, p)`` is dropout as the network is trained with,
``net.lin(i, out)`` a linear layer of its own. What it returns is flattened into a last layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Kind = Callable[[Tensor, Callable[..., Tensor], "Net"], Tensor]
FLAT, SERIES, IMAGE = (8,), (4, 6), (3, 6, 6)


class Net(nn.Module):
    """A kind as a network: layers are made on first use, from one seed."""

    def __init__(self, kind: Kind, shape: tuple[int, ...], last: bool = True) -> None:
        super().__init__()
        self.kind, self.shape, self.last = kind, shape, last
        self.layers = nn.ModuleDict()
        torch.manual_seed(0)
        self.constant = nn.Parameter(torch.randn(64), requires_grad=False)
        with torch.no_grad():
            self(self.example(2))
        self.eval()

    def example(self, count: int) -> Tensor:
        draw = torch.Generator().manual_seed(1)
        return torch.randn(count, *self.shape, generator=draw) + 0.3

    def layer(self, name: str, make: Callable[[], nn.Module]) -> nn.Module:
        if name not in self.layers:
            self.layers[name] = make()
        return self.layers[name]

    def lin(self, x: Tensor, out: int = 8, name: str = "lin") -> Tensor:
        return self.layer(name, lambda: nn.Linear(x.shape[-1], out))(x)

    def conv(self, x: Tensor, out: int = 4, name: str = "conv", **options: Any) -> Tensor:
        kind = {3: nn.Conv1d, 4: nn.Conv2d}[x.dim()]
        return self.layer(name, lambda: kind(x.shape[1], out, 3, padding=1, **options))(x)

    def forward(self, x: Tensor) -> Tensor:
        def drop(h: Tensor, p: float = 0.4) -> Tensor:
            return F.dropout(h, p, self.training)

        y = self.kind(x, drop, self)
        return self.lin(y.flatten(1), 3, "last") if self.last else y.flatten(1)


def c(net: Net, *shape: int) -> Tensor:
    """A constant of the network."""
    count = int(torch.Size(shape).numel())
    return net.constant[:count].reshape(shape)


# Plain: exact or nearly so.
FLAT_KINDS: dict[str, Kind] = {
    "dropout alone": lambda x, d, n: d(x),
    "dropout, linear": lambda x, d, n: n.lin(d(x)),
    "dropout twice in a row": lambda x, d, n: d(d(x)),
    "dropout, relu": lambda x, d, n: d(x).relu(),
    "dropout, linear, relu": lambda x, d, n: n.lin(d(x)).relu(),
    "two dropouts": lambda x, d, n: d(n.lin(d(x)).relu()),
    "scale": lambda x, d, n: d(x) * 3 + 1,
    "negate": lambda x, d, n: -d(x),
    "1 - x": lambda x, d, n: 1 - d(x),
    "divide by a constant": lambda x, d, n: d(x) / 4,
    "times a vector": lambda x, d, n: d(x) * c(n, 8),
    "plus a certain branch": lambda x, d, n: d(x) + n.lin(x),
    "times a certain branch": lambda x, d, n: d(x) * n.lin(x).sigmoid(),
    "two separate branches": lambda x, d, n: d(n.lin(x, 8, "a")) + d(n.lin(x, 8, "b")),
    "product of separate branches": lambda x, d, n: d(n.lin(x, 8, "a")) * d(n.lin(x, 8, "b")),
    "cat of separate branches": lambda x, d, n: torch.cat([d(x), d(n.lin(x))], 1),
    "cat with a certain branch": lambda x, d, n: torch.cat([d(x), x], 1),
    "reshape": lambda x, d, n: d(x).reshape(-1, 2, 4).transpose(1, 2).flatten(1),
    "slice": lambda x, d, n: d(x)[:, 2:6],
    "select": lambda x, d, n: d(x)[:, 3].unsqueeze(1),
    "flip": lambda x, d, n: d(x).flip(1),
    "roll": lambda x, d, n: d(x).roll(1, 1),
    "constant pad": lambda x, d, n: F.pad(d(x), (1, 2)),
    "constant pad of a value": lambda x, d, n: F.pad(d(x), (1, 2), value=3.0),
    "sum": lambda x, d, n: d(x).sum(1, keepdim=True),
    "mean": lambda x, d, n: d(x).mean(1, keepdim=True),
    "batch norm": lambda x, d, n: n.layer("bn", lambda: nn.BatchNorm1d(8))(d(x)),
    "split, take one": lambda x, d, n: d(x).chunk(2, 1)[0],
    "square of a dropout": lambda x, d, n: d(x) ** 2,
    "leaky relu": lambda x, d, n: F.leaky_relu(n.lin(d(x))),
    "tanh": lambda x, d, n: n.lin(d(x)).tanh(),
    "gelu": lambda x, d, n: F.gelu(n.lin(d(x))),
    "clamp": lambda x, d, n: n.lin(d(x)).clamp(-1, 1),
    "abs": lambda x, d, n: n.lin(d(x)).abs(),
    "exp": lambda x, d, n: (0.2 * n.lin(d(x))).exp(),
    "no grad": lambda x, d, n: _no_grad(x, d),
    "detach": lambda x, d, n: d(x).detach(),
    "double and back": lambda x, d, n: d(x).double().float(),
    "rate 0": lambda x, d, n: d(d(x), 0.0),
    "high rate": lambda x, d, n: d(x, 0.9),
    # Sharing.
    "broadcast a unit over a row": lambda x, d, n: x * d(x)[:, :1],
    "broadcast by adding zeros": lambda x, d, n: d(x)[:, :1] + torch.zeros(8),
    "broadcast by where": lambda x, d, n: torch.where(x > 0, d(x)[:, :1], x),
    "broadcast by expand": lambda x, d, n: d(x)[:, :1].expand(-1, 8),
    "broadcast by repeat": lambda x, d, n: d(x)[:, :2].repeat(1, 4),
    "repeat interleave": lambda x, d, n: d(x)[:, :4].repeat_interleave(2, 1),
    "outer product": lambda x, d, n: d(x).unsqueeze(2) * x.unsqueeze(1)[:, :, :3],
    "outer product with itself": lambda x, d, n: _outer(d(x)),
    "same twice, add": lambda x, d, n: _twice(d(x), torch.add),
    "same twice, sub": lambda x, d, n: _twice(d(x), lambda a, b: a - 0.5 * b),
    "same twice, mul": lambda x, d, n: _twice(d(x), torch.mul),
    "same twice, mul after a layer": lambda x, d, n: _twice(n.lin(d(x)), torch.mul),
    "same twice, cat": lambda x, d, n: _twice(d(x), lambda a, b: torch.cat([a, b], 1)),
    "same twice, stack": lambda x, d, n: _twice(d(x), lambda a, b: torch.stack([a, b], 1)),
    "same twice, maximum": lambda x, d, n: _twice(d(x), torch.maximum),
    "same twice, bmm": lambda x, d, n: _twice(
        d(x).reshape(-1, 2, 4), lambda a, b: torch.bmm(a, b.transpose(1, 2))
    ),
    "same twice, matmul": lambda x, d, n: _twice(
        d(x).reshape(-1, 2, 4), lambda a, b: a @ b.transpose(1, 2)
    ),
    "x and relu of x, add": lambda x, d, n: _twice(n.lin(d(x)), lambda a, b: a + b.relu()),
    "x and relu of x, mul": lambda x, d, n: _twice(n.lin(d(x)), lambda a, b: a * b.relu()),
    "x minus its mean": lambda x, d, n: _twice(d(x), lambda a, b: a - b.mean(1, keepdim=True)),
    "residual": lambda x, d, n: _twice(d(x), lambda a, b: a + n.lin(b).relu()),
    "gate by itself": lambda x, d, n: _twice(n.lin(d(x)), lambda a, b: a * b.sigmoid()),
    "two halves, add": lambda x, d, n: d(x)[:, :4] + d(x)[:, 4:],
    "halves of one dropout, add": lambda x, d, n: _halves(d(x), torch.add),
    "halves of one dropout, mul": lambda x, d, n: _halves(d(x), torch.mul),
    "index with repeats": lambda x, d, n: d(x)[:, torch.tensor([0, 0, 1, 1, 2])],
    "index without repeats": lambda x, d, n: d(x)[:, torch.tensor([3, 1, 2])],
    "index_select with repeats": lambda x, d, n: d(x).index_select(1, torch.tensor([0, 0, 5])),
    "gather": lambda x, d, n: d(x).gather(1, torch.zeros(len(x), 3, dtype=torch.long)),
    "film": lambda x, d, n: x * n.lin(d(x), 1, "a") + n.lin(d(x), 1, "b"),
    "locked mask": lambda x, d, n: x * d(torch.ones_like(x[:, :1])),
    "mask written by hand": lambda x, d, n: x * d(torch.ones_like(x)),
    "drop path": lambda x, d, n: x + n.lin(x).relu() * d(torch.ones(len(x), 1)),
    "softmax": lambda x, d, n: n.lin(d(x)).softmax(1),
    "log softmax": lambda x, d, n: n.lin(d(x)).log_softmax(1),
    "divide by the uncertain": lambda x, d, n: x / (d(x) + 4),
    "normalise": lambda x, d, n: F.normalize(d(x)),
    "layer norm": lambda x, d, n: n.layer("ln", lambda: nn.LayerNorm(8))(d(x)),
    "group norm": lambda x, d, n: n.layer("gn", lambda: nn.GroupNorm(2, 8))(d(x)),
    "hand-written layer norm": lambda x, d, n: _hand_norm(d(x)),
    "max over a dim": lambda x, d, n: d(x).amax(1, keepdim=True),
    "max with values": lambda x, d, n: d(x).max(1, keepdim=True).values,
    "maximum of two layers": lambda x, d, n: torch.maximum(
        n.lin(d(x), 8, "a"), n.lin(d(x), 8, "b")
    ),
    "maximum of one dropout's layers": lambda x, d, n: _shared(
        d(x), lambda h: torch.maximum(n.lin(h, 8, "a"), n.lin(h, 8, "b"))
    ),
    "minimum": lambda x, d, n: torch.minimum(d(x), x),
    "sort": lambda x, d, n: d(x).sort(1).values,
    "topk": lambda x, d, n: d(x).topk(3, 1).values,
    "topk of a layer": lambda x, d, n: n.lin(d(x)).topk(3, 1).values,
    "comparison of a layer": lambda x, d, n: torch.where(n.lin(d(x)) > 0, x, 0),
    "threshold with a jump": lambda x, d, n: F.threshold(n.lin(d(x)), 0.5, -2.0),
    "index add": lambda x, d, n: torch.zeros_like(x).index_add(1, torch.arange(8) % 3, d(x)),
    "var and mean": lambda x, d, n: torch.cat(torch.var_mean(n.lin(d(x)), 1, keepdim=True), 1),
    "hypot": lambda x, d, n: torch.hypot(d(x), d(n.lin(x, 8, "b"))),
    "log1p": lambda x, d, n: torch.log1p(n.lin(d(x)).square()),
    "exp2": lambda x, d, n: 2 ** n.lin(d(x)),
    "nan to num": lambda x, d, n: torch.nan_to_num(n.lin(d(x))),
    "argmax": lambda x, d, n: d(x).argmax(1, keepdim=True).float(),
    "cast to int": lambda x, d, n: (3 * d(x)).int().float(),
    "cast to long": lambda x, d, n: (3 * d(x)).long().float(),
    "cast to bool": lambda x, d, n: d(x).bool().float(),
    "compare": lambda x, d, n: (d(x) > 0.5).float(),
    "round": lambda x, d, n: d(x).round(),
    "floor": lambda x, d, n: d(x).floor(),
    "sign": lambda x, d, n: d(x).sign(),
    "sqrt": lambda x, d, n: (d(x) ** 2 + 1).sqrt(),
    "rsqrt": lambda x, d, n: (d(x) ** 2 + 1).rsqrt(),
    "log": lambda x, d, n: (d(x) ** 2 + 1).log(),
    "sin": lambda x, d, n: d(x).sin(),
    "cos": lambda x, d, n: d(x).cos(),
    "cube": lambda x, d, n: d(x) ** 3,
    "x to the 1.5": lambda x, d, n: d(x).abs() ** 1.5,
    "reciprocal": lambda x, d, n: (d(x) + 5).reciprocal(),
    "cumsum": lambda x, d, n: d(x).cumsum(1),
    "cumprod": lambda x, d, n: d(x).cumprod(1),
    "prod": lambda x, d, n: d(x).prod(1, keepdim=True),
    "std": lambda x, d, n: d(x).std(1, keepdim=True),
    "var": lambda x, d, n: d(x).var(1, keepdim=True),
    "norm": lambda x, d, n: d(x).norm(dim=1, keepdim=True),
    "einsum, a layer": lambda x, d, n: torch.einsum("bi,ij->bj", d(x), c(n, 8, 5)),
    "einsum, a square": lambda x, d, n: _shared(
        d(x), lambda h: torch.einsum("bi,bi->b", h, h).unsqueeze(1)
    ),
    "einsum, outer": lambda x, d, n: _shared(d(x), lambda h: torch.einsum("bi,bj->bij", h, h)),
    "tril": lambda x, d, n: d(x).reshape(-1, 2, 4).tril(),
    "masked fill": lambda x, d, n: d(x).masked_fill(x > 0, 0.5),
    "where of two": lambda x, d, n: torch.where(x > 0, d(x), d(2 * x)),
    "where with an uncertain condition": lambda x, d, n: torch.where(d(x) > 0, x, -x),
    "glu": lambda x, d, n: F.glu(n.lin(d(x))),
    "threshold": lambda x, d, n: F.threshold(d(x), 0.1, -1.0),
    "hard sigmoid": lambda x, d, n: F.hardsigmoid(n.lin(d(x))),
    "hard swish": lambda x, d, n: F.hardswish(n.lin(d(x))),
    "softplus": lambda x, d, n: F.softplus(n.lin(d(x))),
    "elu": lambda x, d, n: F.elu(n.lin(d(x))),
    "prelu": lambda x, d, n: n.layer("prelu", nn.PReLU)(n.lin(d(x))),
    "mish": lambda x, d, n: F.mish(n.lin(d(x))),
    "bilinear": lambda x, d, n: n.layer("bi", lambda: nn.Bilinear(8, 8, 4))(d(x), x),
    "bilinear with itself": lambda x, d, n: _shared(
        d(x), lambda h: n.layer("bi", lambda: nn.Bilinear(8, 8, 4))(h, h)
    ),
    "addmm": lambda x, d, n: torch.addmm(c(n, 5), d(x), c(n, 8, 5)),
    "addcmul": lambda x, d, n: torch.addcmul(x, d(x), x),
    "lerp": lambda x, d, n: torch.lerp(d(x), x, 0.3),
    "baddbmm": lambda x, d, n: torch.baddbmm(
        torch.zeros(len(x), 2, 3), d(x).reshape(-1, 2, 4), c(n, 4, 3).expand(len(x), 4, 3)
    ),
    "cdist": lambda x, d, n: torch.cdist(d(x), c(n, 3, 8)),
    "cosine": lambda x, d, n: F.cosine_similarity(d(x), x).unsqueeze(1),
    "mixes the batch": lambda x, d, n: _shared(d(x), lambda h: h - h.mean(0, keepdim=True)),
    "attention by hand": lambda x, d, n: _attention(d(x).reshape(-1, 4, 2)),
    "in place": lambda x, d, n: _in_place(d(x)),
    "in place through chunk": lambda x, d, n: _chunk_in_place(d(x)),
    "in place through split": lambda x, d, n: _split_in_place(d(x)),
    "in place through unbind": lambda x, d, n: _unbind_in_place(d(x)),
    "in place through a view": lambda x, d, n: _view_in_place(d(x)),
    "assign to a slice": lambda x, d, n: _assign(d(x)),
    "custom autograd function": lambda x, d, n: _Doubled.apply(d(x)),
    "straight-through step": lambda x, d, n: _Step.apply(d(x)),
    "batch size in the value": lambda x, d, n: d(x) / x.shape[0],
    "branch on the batch size": lambda x, d, n: d(x) * (2.0 if x.shape[0] == 1 else 1.0),
    "list of layers": lambda x, d, n: sum(n.lin(d(x), 4, f"l{i}") for i in range(3)),
    "shared layer twice": lambda x, d, n: n.lin(d(n.lin(d(x)))),
}

SERIES_KINDS: dict[str, Kind] = {
    "conv": lambda x, d, n: n.conv(d(x)),
    "conv, relu, dropout": lambda x, d, n: d(n.conv(d(x)).relu()),
    "channel dropout": lambda x, d, n: F.dropout1d(x, 0.4, n.training),
    "channel dropout, conv": lambda x, d, n: n.conv(F.dropout1d(x, 0.4, n.training)),
    "channel dropout, mean": lambda x, d, n: F.dropout1d(x, 0.4, n.training).mean(-1),
    "alpha dropout": lambda x, d, n: F.alpha_dropout(x, 0.4, n.training),
    "feature alpha dropout": lambda x, d, n: F.feature_alpha_dropout(x, 0.4, n.training),
    "reflect pad": lambda x, d, n: n.conv(F.pad(d(x), (2, 2), mode="reflect")),
    "replicate pad": lambda x, d, n: n.conv(F.pad(d(x), (2, 2), mode="replicate")),
    "circular pad": lambda x, d, n: n.conv(F.pad(d(x), (2, 2), mode="circular")),
    "zero pad": lambda x, d, n: n.conv(F.pad(d(x), (2, 2))),
    "average pool": lambda x, d, n: F.avg_pool1d(d(x), 2),
    "overlapping average pool": lambda x, d, n: F.avg_pool1d(d(x), 3, 1),
    "overlapping average pool, mean": lambda x, d, n: F.avg_pool1d(d(x), 3, 1).mean(-1),
    "average pool twice": lambda x, d, n: F.avg_pool1d(F.avg_pool1d(d(x), 3, 1), 2),
    "global mean": lambda x, d, n: d(x).mean(-1),
    "mean of a conv": lambda x, d, n: n.conv(d(x)).mean(-1),
    "max pool": lambda x, d, n: F.max_pool1d(n.conv(d(x)), 2),
    "max pool of one": lambda x, d, n: F.max_pool1d(d(x), 1),
    "adaptive average": lambda x, d, n: F.adaptive_avg_pool1d(d(x), 2),
    "adaptive average, uneven": lambda x, d, n: F.adaptive_avg_pool1d(d(x), 4),
    "adaptive max": lambda x, d, n: F.adaptive_max_pool1d(d(x), 2),
    "upsample nearest": lambda x, d, n: n.conv(F.interpolate(d(x), scale_factor=2)),
    "upsample linear": lambda x, d, n: F.interpolate(d(x), scale_factor=2, mode="linear"),
    "transposed conv": lambda x, d, n: n.layer("t", lambda: nn.ConvTranspose1d(4, 2, 3))(d(x)),
    "depthwise conv": lambda x, d, n: n.conv(d(x), groups=4),
    "locked dropout over time": lambda x, d, n: x * d(torch.ones_like(x[:, :, :1])),
    "locked dropout, conv": lambda x, d, n: n.conv(x * d(torch.ones_like(x[:, :, :1]))),
    "spatial gate": lambda x, d, n: x * n.lin(d(x.mean(-1)), 4).sigmoid().unsqueeze(-1),
    "squeeze and excite": lambda x, d, n: _squeeze(d(x), n),
    "unfold windows": lambda x, d, n: d(x).unfold(2, 3, 1).flatten(2),
    "shift and add": lambda x, d, n: _shared(d(x), lambda h: h[:, :, 1:] + h[:, :, :-1]),
    "positions added": lambda x, d, n: d(x) + c(n, 4, 6),
    "class token": lambda x, d, n: torch.cat([c(n, 1, 1, 6).expand(len(x), 1, 6), d(x)], 1),
    "lstm": lambda x, d, n: n.layer("r", lambda: nn.LSTM(6, 5, batch_first=True))(d(x))[0],
    "gru": lambda x, d, n: n.layer("r", lambda: nn.GRU(6, 5, batch_first=True))(d(x))[0],
    "lstm with its own dropout": lambda x, d, n: n.layer(
        "r", lambda: nn.LSTM(6, 5, 2, batch_first=True, dropout=0.4)
    )(x)[0],
    "gru with its own dropout": lambda x, d, n: n.layer(
        "r", lambda: nn.GRU(6, 5, 2, batch_first=True, dropout=0.4)
    )(x)[0],
    "lstm with its own dropout, dropout": lambda x, d, n: d(
        n.layer("r", lambda: nn.LSTM(6, 5, 2, batch_first=True, dropout=0.4))(x)[0]
    ),
    "rnn": lambda x, d, n: n.layer("r", lambda: nn.RNN(6, 5, batch_first=True))(d(x))[0],
    "lstm cell": lambda x, d, n: n.layer("r", lambda: nn.LSTMCell(6, 5))(d(x)[:, 0])[0],
    "multi-head attention": lambda x, d, n: _multi_head(d(x), n, 0.0),
    "attention with its own dropout": lambda x, d, n: _multi_head(x, n, 0.4),
    "attention with its own dropout, dropout": lambda x, d, n: d(_multi_head(x, n, 0.4)),
    "transformer layer": lambda x, d, n: n.layer(
        "t", lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.3, batch_first=True)
    )(x),
    "scaled dot product attention": lambda x, d, n: _shared(
        d(x), lambda h: F.scaled_dot_product_attention(h, h, h)
    ),
    "embedding bag of positions": lambda x, d, n: d(x) @ c(n, 6, 6),
    "permute": lambda x, d, n: n.lin(d(x).permute(0, 2, 1), 5),
    "batch norm over channels": lambda x, d, n: n.layer("bn", lambda: nn.BatchNorm1d(4))(d(x)),
    "instance norm": lambda x, d, n: n.layer("in", lambda: nn.InstanceNorm1d(4))(d(x)),
    "weight norm": lambda x, d, n: n.layer(
        "w", lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 3, 3))
    )(d(x)),
    "hand-written dropout": lambda x, d, n: _bernoulli(x, n.training),
    "gaussian noise in training": lambda x, d, n: (
        d(x) + 0.3 * torch.randn_like(x) if n.training else d(x)
    ),
    "dropout only in training": lambda x, d, n: F.dropout(d(x), 0.3) if n.training else d(x),
    "stochastic depth": lambda x, d, n: d(x) + _stochastic_depth(n.conv(x), n.training),
    "noise in eval": lambda x, d, n: d(x) + 0.1 * torch.randn_like(x),
    "dropout always on": lambda x, d, n: F.dropout(x, 0.4, True),
    "running state": lambda x, d, n: d(x) + _count(n),
}

IMAGE_KINDS: dict[str, Kind] = {
    "conv 2d": lambda x, d, n: n.conv(d(x)),
    "conv 2d, pool": lambda x, d, n: F.max_pool2d(n.conv(d(x)).relu(), 2),
    "average pool 2d": lambda x, d, n: F.avg_pool2d(d(x), 2),
    "padded average pool 2d": lambda x, d, n: F.avg_pool2d(d(x), 3, 3, 1),
    "pixel shuffle": lambda x, d, n: F.pixel_shuffle(n.conv(d(x)), 2),
    "channel shuffle": lambda x, d, n: n.layer("s", lambda: nn.ChannelShuffle(3))(d(x)),
    "dropout 2d": lambda x, d, n: n.conv(F.dropout2d(x, 0.4, n.training)),
    "reflect pad 2d": lambda x, d, n: F.pad(d(x), (1, 1, 1, 1), mode="reflect").mean((2, 3)),
    "upsample 2d": lambda x, d, n: F.interpolate(d(x), scale_factor=2).mean((2, 3)),
    "upsample bilinear": lambda x, d, n: F.interpolate(d(x), size=(4, 4), mode="bilinear"),
    "global mean 2d": lambda x, d, n: F.adaptive_avg_pool2d(n.conv(d(x)), 1),
    "unfold patches": lambda x, d, n: F.unfold(d(x), 2, stride=2),
    "unfold overlapping": lambda x, d, n: F.unfold(d(x), 3).mean(-1),
    "grid sample": lambda x, d, n: F.grid_sample(
        d(x), torch.zeros(len(x), 2, 2, 2), align_corners=False
    ),
    "local response norm": lambda x, d, n: F.local_response_norm(d(x), 2),
    "max pool with indices": lambda x, d, n: F.max_pool2d(d(x), 2, return_indices=True)[0],
    "dense block": lambda x, d, n: _shared(d(x), lambda h: torch.cat([h, n.conv(h).relu()], 1)),
    "inverted residual": lambda x, d, n: _shared(
        d(x), lambda h: h + n.conv(F.relu6(n.conv(h, 6, "a")), 3, "b")
    ),
}


def _no_grad(x: Tensor, d: Any) -> Tensor:
    with torch.no_grad():
        return d(x) * 2


def _outer(h: Tensor) -> Tensor:
    return h.unsqueeze(2) * h.unsqueeze(1)


def _twice(h: Tensor, op: Any) -> Tensor:
    return op(h, h)


def _shared(h: Tensor, op: Any) -> Tensor:
    return op(h)


def _halves(h: Tensor, op: Any) -> Tensor:
    return op(h[:, :4], h[:, 4:])


def _hand_norm(h: Tensor) -> Tensor:
    centred = h - h.mean(1, keepdim=True)
    return centred / (centred.pow(2).mean(1, keepdim=True) + 1e-5).sqrt()


def _attention(h: Tensor) -> Tensor:
    return (h @ h.transpose(1, 2)).softmax(-1) @ h


def _in_place(h: Tensor) -> Tensor:
    h = h * 2
    h.relu_()
    return h.add_(1)


def _chunk_in_place(h: Tensor) -> Tensor:
    h = h + 0
    a, _ = h.chunk(2, 1)
    a.mul_(3)
    return h


def _split_in_place(h: Tensor) -> Tensor:
    h = h + 0
    _, b = h.split(4, 1)
    b.add_(5)
    return h


def _unbind_in_place(h: Tensor) -> Tensor:
    h = h.reshape(-1, 2, 4) + 0
    a, _ = h.unbind(1)
    a.mul_(2)
    return h


def _view_in_place(h: Tensor) -> Tensor:
    h = h + 0
    h.view(-1, 2, 4)[:, 0].mul_(2)
    return h


def _assign(h: Tensor) -> Tensor:
    h = h + 0
    h[:, 2] = 1.0
    return h


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x > 0.5).float()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def _squeeze(h: Tensor, n: Net) -> Tensor:
    return h * n.lin(h.mean(-1), 4).sigmoid().unsqueeze(-1)


def _multi_head(x: Tensor, n: Net, p: float) -> Tensor:
    attention = n.layer("mha", lambda: nn.MultiheadAttention(6, 2, p, batch_first=True))
    out: Tensor = attention(x, x, x, need_weights=False)[0]
    return out


def _bernoulli(x: Tensor, training: bool) -> Tensor:
    return x * torch.bernoulli(torch.full_like(x, 0.6)) / 0.6 if training else x


def _stochastic_depth(x: Tensor, training: bool) -> Tensor:
    if not training:
        return x
    return x * torch.bernoulli(torch.full((len(x), 1, 1), 0.7)) / 0.7


def _count(n: Net) -> Tensor:
    if not hasattr(n, "calls"):
        n.register_buffer("calls", torch.zeros(1))
    n.calls += 1
    return n.calls


ALL: dict[str, tuple[Kind, tuple[int, ...]]] = {
    **{name: (kind, FLAT) for name, kind in FLAT_KINDS.items()},
    **{name: (kind, SERIES) for name, kind in SERIES_KINDS.items()},
    **{name: (kind, IMAGE) for name, kind in IMAGE_KINDS.items()},
}
