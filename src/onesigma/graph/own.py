"""The user's own network with its noise on: what Monte Carlo is asked of.

Not the captured graph: whatever the capture misread, that graph would misread as well. Only where
there is no network, as in a saved file, its graph has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from onesigma.errors import ModelError
from onesigma.graph.capture import own_copy, training_copy

_SOFTMAXES = (
    *(F.softmax, F.log_softmax, torch.softmax, torch.log_softmax),
    *(Tensor.softmax, Tensor.log_softmax),
)


@dataclass(frozen=True)
class OwnNetwork:
    """A copy of the user's network on the same weights, in eval mode.

    Attributes:
        model: the copy.
        ends_in_softmax: its output is a softmax, which the head has taken over.
        rows_apart: each row of a batch draws its own noise, so that passes can share a batch.
    """

    model: nn.Module
    ends_in_softmax: bool
    rows_apart: bool

    @torch.no_grad()
    def noisy(self, inputs: Sequence[Tensor]) -> Callable[..., Tensor] | None:
        """A function from inputs like these to logits, dropout on; None if it has no logits."""
        plain, noisy = _like(inputs[0], self.model), _like(inputs[0], training_copy(self.model))
        wanted = _logits(plain, inputs, self.ends_in_softmax)
        if wanted is None:
            return None
        found = _logits(noisy, inputs, self.ends_in_softmax)
        if found is None or found.shape != wanted.shape:
            # In training it returns something else, as with auxiliary outputs: modules only.
            noisy.eval()
            for module in noisy.modules():
                module.train(isinstance(module, nn.modules.dropout._DropoutNd))

        def answer(*given: Tensor) -> Tensor:
            logits = _logits(noisy, given, self.ends_in_softmax)
            assert logits is not None
            return logits

        return answer


def _logits(model: nn.Module, inputs: Sequence[Tensor], ends_in_softmax: bool) -> Tensor | None:
    """What the model returns, before its last softmax if it ends in one."""
    if not ends_in_softmax:
        return _answer(model, inputs)
    with _LastSoftmax() as last:
        answer = _answer(model, inputs)
    return last.argument if answer is not None and answer is last.result else None


def _answer(model: nn.Module, inputs: Sequence[Tensor]) -> Tensor | None:
    """None if it is no tensor, or has not the output that was chosen: both are so in training."""
    try:
        answer = model(*inputs)
    except ModelError:
        return None
    return answer if isinstance(answer, Tensor) else None


class _LastSoftmax(TorchFunctionMode):
    """Remembers what the last softmax was given and what it made of it."""

    argument: Tensor | None = None
    result: Any = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _SOFTMAXES:
            self.argument, self.result = args[0] if args else kwargs["input"], result
        return result


def _like(x: Tensor, model: nn.Module) -> nn.Module:
    """The model where the input is and in its precision; a copy if it has to move."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    dtype = x.dtype if x.is_floating_point() else None
    if weight is None or (weight.device == x.device and dtype in (None, weight.dtype)):
        return model
    return own_copy(model).to(x.device, dtype)
