"""Strip: a final softmax moves into the head, where it is marginalised instead of approximated."""

from __future__ import annotations

import torch
from torch import fx

from onesigma.errors import ModelError
from onesigma.graph.locate import describe, output_of

aten = torch.ops.aten

_FINAL_SOFTMAX = (aten.softmax.int, aten.log_softmax.int)


def strip_softmax(module: fx.GraphModule) -> tuple[int, str] | None:
    """Remove a softmax that ends the graph; returns its dim and a line for the report."""
    last = output_of(module)
    if last.target not in _FINAL_SOFTMAX:
        return None
    logits, dim = last.args[0], last.args[1]
    assert isinstance(logits, fx.Node)
    assert isinstance(dim, int)
    note = f"{describe(last)} is taken over by the head, which averages it over the logits"
    last.replace_all_uses_with(logits)
    module.graph.erase_node(last)
    module.recompile()
    return dim, note


def refuse_final_sigmoid(module: fx.GraphModule) -> None:
    """A sigmoid output is no set of logits: a softmax on top of it would be nonsense."""
    last = output_of(module)
    if last.target is aten.sigmoid.default:
        raise ModelError(
            f"The model ends in {describe(last)}: its outputs are probabilities, not logits, and "
            "the classification head would put a softmax on them. Pass task='regression' for the "
            "mean and variance of each probability, or end the model before the sigmoid."
        )
