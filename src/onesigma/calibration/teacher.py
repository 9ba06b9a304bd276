"""The teacher: Monte Carlo of the original, on inputs as they are and on corrupted copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from onesigma.baselines.mc_dropout import own_network, seeded, with_dropout_on
from onesigma.calibration.balanced import BalancedPasses
from onesigma.calibration.corruption import Corruption, Given
from onesigma.calibration.observation import Progress
from onesigma.converted import Converted
from onesigma.forms.places import Places

# Rows at once. Few, because the activations then stay in the cache: four times faster than 256.
_ROWS = 32
# Independent passes; or groups of balanced ones, more where few ops are noisy.
_PASSES, _GROUPS, _MOST_GROUPS = 10, 4, 20


@dataclass(frozen=True)
class Lesson:
    """Inputs, and the logits of the original for them: (n, passes, classes).

    Of a map of logits, n counts the positions of all inputs (``places``).

    The inputs are of one kind or several, one after the other and equally many of each. The passes
    come in groups; of the same group they may depend on each other (``calibration.balanced``).
    """

    inputs: tuple[Tensor, ...]
    logits: Tensor
    kinds: int = 1
    groups: int | None = None  # each pass is one, unless told
    places: Places = field(default_factory=Places)

    @property
    def probs(self) -> Tensor:
        return self.logits.softmax(-1).mean(1)

    @property
    def grouped(self) -> Tensor:
        """The logits: (n, groups, passes of each, classes)."""
        rows, passes, classes = self.logits.shape
        return self.logits.reshape(rows, self.groups or passes, -1, classes)

    @property
    def var(self) -> Tensor:
        """Of the logits, without bias: within groups, and between their means."""
        groups = self.grouped
        return groups.var(2, correction=0).mean(1) + groups.mean(2).var(1)

    @property
    def aleatoric(self) -> Tensor:
        """The expected entropy."""
        log_probs = self.logits.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1).mean(1)

    @property
    def noise(self) -> Tensor:
        """For each input, how far from Monte Carlo one pass is by its kind: Σ Var[p] / 2p."""
        each = self.logits.softmax(-1)
        distance = (each.var(1) / (2 * each.mean(1)).clamp(min=1e-6)).sum(-1)
        rows = len(distance) // self.kinds
        return distance.reshape(self.kinds, rows).mean(1).repeat_interleave(rows)


class Teacher:
    """Answers with the logits of noisy passes of the user's own network.

    ``all_noise_found`` says that its graph shows all of its noise.
    """

    def __init__(
        self,
        original: Converted,
        examples: Sequence[Tensor],
        *,
        all_noise_found: bool = False,
        places: Places | None = None,
    ) -> None:
        self._places = places or Places()
        own = own_network(original, examples)
        graph = None if own else with_dropout_on(original.source, original.settings.dropout)
        self._run = own or (lambda *inputs: graph(*inputs)[0])  # type: ignore[misc]
        self._balanced = BalancedPasses(original.source) if all_noise_found else None

    def teach(self, inputs: Sequence[Tensor], passes: int, seed: int, progress: Progress) -> Lesson:
        """``passes`` for each input, each with masks of its own."""

        def run(*rows: Tensor) -> Tensor:
            with _QuickMasks():
                said = torch.stack([self._run(*rows) for _ in range(passes)], 1)
            return self._places.rows_of_passes(said)

        logits = _in_parts(run, inputs, _ROWS, seed, progress)
        return Lesson(tuple(inputs), logits, places=self._places)

    def teach_cheaply(self, inputs: Sequence[Tensor], seed: int, progress: Progress) -> Lesson:
        """As many passes as are cheap, of the graph if it shows all noise."""
        balanced = self._balanced
        if balanced is None:
            return self.teach(inputs, _PASSES, seed, progress)
        share = balanced.noisy_share([x[:4] for x in inputs])
        groups = int(min(_GROUPS / max(share, 1e-6), _MOST_GROUPS))

        def run(*rows: Tensor) -> Tensor:
            return self._places.rows_of_passes(balanced(*rows, groups=groups))

        logits = _in_parts(run, inputs, _ROWS // 2, seed, progress)
        return Lesson(tuple(inputs), logits, groups=groups, places=self._places)


@torch.no_grad()
def _in_parts(
    run: Callable[..., Tensor], inputs: Sequence[Tensor], count: int, seed: int, progress: Progress
) -> Tensor:
    """What it says of so many rows at a time; each part is seeded by its place."""
    parts = []
    for start in progress(range(0, len(inputs[0]), count)):
        with seeded(seed, start, inputs[0].device):
            parts.append(run(*(x[start : start + count] for x in inputs)))
    return torch.cat(parts)


class _QuickMasks(TorchFunctionMode):
    """Drops by 16 random bits for each element, in half the time that PyTorch takes.

    With the masks of PyTorch, a small network's passes spend half of their time on drawing them.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return (quick_dropout if func is F.dropout else func)(*args, **(kwargs or {}))


def quick_dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """``F.dropout``, its rate rounded to 1/65536; with other masks than that for a seed."""
    if inplace or not training or not 0 < p < 1 or input.device.type != "cpu":
        return F.dropout(input, p, training, inplace)
    size, kept = input.numel(), torch.empty_like(input)
    words = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:size]
    # Each element has bits of its own, so that their order in memory does not matter.
    kept.as_strided((size,), (1,)).copy_(bits >= round(p * 2**16) - 2**15)
    return kept.mul_(input).mul_(1 / (1 - p))


def corrupt(
    inputs: Sequence[Tensor],
    kinds: Iterable[Corruption],
    generator: torch.Generator,
    times: Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """A copy of all inputs for each kind; what is not floating point stays as it is.

    ``times`` are the dims of time, by default the last ones.
    """

    def copy(kind: Corruption, x: Tensor, time: int) -> Tensor:
        if not x.is_floating_point():
            return x
        if isinstance(kind, Given):
            return kind(x, generator)
        return kind(x.movedim(time, -1), generator).movedim(-1, time)

    dims = times or [-1] * len(inputs)
    copies = [[copy(kind, *each) for each in zip(inputs, dims, strict=True)] for kind in kinds]
    return tuple(torch.cat(parts) for parts in zip(*copies, strict=True))
