"""Functionalize: in-place ops become ordinary ones, or are refused where memory is shared."""

import pytest
import torch
from torch import Tensor, nn

import onesigma
from onesigma import (
    UnsupportedOp,
)
from onesigma.graph.capture import export, plain_module
from onesigma.graph.functionalize import functionalize

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class SharedMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x) + 1
        part = x[:, :3]
        part.mul_(2)
        return self.head(x)


def test_in_place_writes_to_shared_memory_are_refused():
    with pytest.raises(UnsupportedOp, match=r"mul_.*test_\w+\.py:\d+.*shares"):
        onesigma.convert(SharedMemory().eval(), X)


class WritesItsDropoutInput(nn.Module):
    """In eval, dropout returns its input itself: writing to the result changes the input too."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        y = self.drop(x)
        y.add_(1)
        return self.head(x + y)


def test_writing_through_an_eval_dropout_is_refused():
    with pytest.raises(UnsupportedOp, match="shares"):
        onesigma.convert(WritesItsDropoutInput().eval(), X)


class Assigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x) + 1
        x[:, 0] = 0.0
        return self.head(x)


def test_assignment_to_a_slice_is_refused():
    with pytest.raises(UnsupportedOp, match=r"test_\w+\.py:\d+"):
        onesigma.convert(Assigns().eval(), X)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = x * 2
        h.relu_()
        return h.add_(1)


def test_in_place_ops_become_ordinary_ones():
    graph = plain_module(export(InPlace(), (X,), dynamic=True))
    functionalize(graph)
    targets = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert targets == ["aten.mul.Tensor", "aten.relu.default", "aten.add.Tensor"]
    assert torch.equal(graph(X)[0], InPlace()(X))
