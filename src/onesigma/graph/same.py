"""Same: the rewritten graph must answer as the model does, on every conversion.

Compared on the examples, on changed ones, and for a batch that is left open on batches of one and
two. Dropout is off in both, whatever the model says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from onesigma.errors import CaptureError
from onesigma.graph.capture import DROPOUTS, Captured, buffers_restored
from onesigma.graph.write import changed

_TOLERANCE = 1e-4  # of the largest output: another batch may be summed in another order


class _DropoutOff(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in DROPOUTS:
            return args[0] if args else kwargs["input"]
        return func(*args, **kwargs)


def answers_alike(captured: Captured) -> bool:
    """Whether the graph, in place, answers as the model does for every batch it is to take.

    Raises:
        CaptureError: it answers differently on the very batch it was captured with.
    """
    model, graph, examples = captured.model, captured.graph, captured.examples
    for inputs in (examples, tuple(changed(x) for x in examples)):
        wanted = _answer(model, inputs)
        error = None if wanted is None else _difference(wanted, graph, inputs)
        if error is not None:
            raise CaptureError(
                f"The captured graph does not answer as the model does ({error}). Usual causes: a "
                "write into a part of a tensor (x.chunk(2)[0].mul_(2)), state that changes from "
                "call to call, or a number computed from the example. Rewrite that part with "
                "ordinary ops (torch.cat, torch.where)."
            )
    for count in (1, 2):
        few = tuple(x[:count] for x in examples)
        wanted = _answer(model, few)
        if wanted is None or _difference(wanted, graph, few) is not None:
            return False
    return True


@torch.no_grad()
def _answer(model: nn.Module, inputs: Sequence[Tensor]) -> Tensor | None:
    """What the model says without dropout; None if it does not take such inputs."""
    try:
        with buffers_restored(model), _DropoutOff():
            answer: Tensor = model(*inputs)
    except Exception:  # whatever a model does with a batch it does not take
        return None
    return answer


@torch.no_grad()
def _difference(wanted: Tensor, graph: fx.GraphModule, inputs: Sequence[Tensor]) -> str | None:
    """How far the graph is from that, in words; None if they agree."""
    try:
        found = graph(*inputs)[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found.shape != wanted.shape:
        return f"shape {tuple(found.shape)}, not {tuple(wanted.shape)}"
    same = torch.isclose(found, wanted, rtol=0, atol=0, equal_nan=True)  # infinities too
    gap = torch.where(same, 0.0, (found - wanted).abs()).max()
    size = torch.where(wanted.isfinite(), wanted.abs(), 0.0).max()
    if bool(gap <= _TOLERANCE * size):
        return None
    return f"off by {float(gap):.3g} where the output is {float(size):.3g} large"
