"""Made-up sensor windows for the examples, so that they need no data: three waves, in noise."""

import torch
from torch import Tensor

CLASS_NAMES = ("sine", "square", "sawtooth")


def waves(n: int, *, seed: int, noise: float = 0.8) -> tuple[Tensor, Tensor]:
    """Windows (n, 1 channel, 128 instants) of any phase and of 3 to 6 periods, and their labels."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(CLASS_NAMES), (n,), generator=draw)
    phase, periods = torch.rand(n, 1, generator=draw), 3 + 3 * torch.rand(n, 1, generator=draw)
    turn = (phase + periods * torch.linspace(0, 1, 128)) % 1
    shapes = torch.stack([torch.sin(2 * torch.pi * turn), (turn < 0.5) * 2.0 - 1, 2 * turn - 1])
    chosen = shapes[labels, torch.arange(n)]
    return (chosen + noise * torch.randn(n, 128, generator=draw)).unsqueeze(1), labels
