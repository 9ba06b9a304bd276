"""Eager: the code that runs calls other functions than the graph names, with the same results."""

import pytest
import torch
from models import NAMES, converted, inputs_for
from torch import fx


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_the_graph_says_bit_for_bit(name):
    network, inputs = converted(name).network, inputs_for(name, 3)
    with torch.no_grad():
        found, wanted = network(*inputs), fx.Interpreter(network).run(*inputs)
    assert all(isinstance(n.target, torch._ops.OpOverload) for n in _calls(network.graph))
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.equal(mine, theirs)


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [n for n in graph.nodes if n.op == "call_function" and "val" in n.meta]
