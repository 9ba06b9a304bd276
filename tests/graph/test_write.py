"""Write: the graph that torch.export would give, for any batch, or none at all."""

from collections import Counter

import pytest
import torch
from models import ZOO, fresh_copy, inputs_for
from torch import Tensor, nn

import onesigma
from onesigma.graph import capture
from onesigma.graph.capture import export
from onesigma.graph.write import write

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def module_of(function) -> nn.Module:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return (function(self.layer(x)),)

    return Module()


FOLLOWS = {
    "nothing": lambda x: x.relu() * torch.tensor([2.0] * 6),
    "a view": lambda x: x.view(x.shape[0], 2, 3),
    "twice the batch": lambda x: x.view(2 * len(x), 3),
    "one less": lambda x: x / (6 * len(x) - 1),
    "zeros": lambda x: torch.cat([torch.zeros_like(x), x.new_zeros(len(x), 2)], 1),
    "parts": lambda x: torch.stack(x.chunk(2, 1)),
}
DOES_NOT = {
    "the square of the batch": lambda x: x * len(x) ** 2,
    "a fraction of it": lambda x: x * (1 / len(x)),
    "a half of it": lambda x: x * (len(x) // 2),
    "at most three": lambda x: x * min(len(x), 3),
    "a branch on it": lambda x: x.relu() if len(x) > 2 else x,
    "a branch on values": lambda x: x.relu() if x.sum() > 0 else x,
    "a number read": lambda x: x * x.tolist()[0][0],
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_it_answers_as_the_module_for_any_batch(name):
    module = module_of(FOLLOWS[name])
    network = write(module, (X,), dynamic=True)
    for size in (1, 2, 7):
        x = torch.randn(size, 6)
        assert torch.equal(network(x)[0], module(x)[0])
    assert network.get_parameter("layer.weight") is module.layer.weight


@pytest.mark.parametrize("name", DOES_NOT)
def test_what_two_runs_do_not_tell_is_not_written(name):
    assert write(module_of(DOES_NOT[name]), (X,), dynamic=True) is None


def test_a_fixed_batch_may_be_a_number():
    network = write(module_of(lambda x: x * len(x) ** 2), (X,), dynamic=False)
    assert not any("sym_size" in str(node.target) for node in network.graph.nodes)
    assert write(module_of(DOES_NOT["a number read"]), (X,), dynamic=False) is None


@pytest.mark.parametrize("name", ["mlp", "vgg", "two_inputs"])
def test_the_zoo_is_written_as_torch_export_would(name, monkeypatch):
    model, x = fresh_copy(name), inputs_for(name, 4)
    written = onesigma.convert(model, x, task=ZOO[name].task).network
    monkeypatch.setattr(capture, "write", lambda *_, **__: None)
    traced = onesigma.convert(model, x, task=ZOO[name].task).network
    assert _ops(written) == _ops(traced)
    assert {*written.state_dict()} == {*traced.state_dict()}
    assert all(torch.equal(a, b) for a, b in zip(written(*x), traced(*x), strict=True))


def _ops(network) -> Counter:
    return Counter(str(n.target) for n in network.graph.nodes if n.op == "call_function")


class Odd(nn.Module):
    """The square of the batch, which is not written; torch.export has the last word."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(x) * x.shape[0])


def test_what_is_not_written_is_exported(monkeypatch):
    exported = []
    monkeypatch.setattr(capture, "export", lambda *a, **k: exported.append(1) or export(*a, **k))
    model = Odd().eval()
    converted = onesigma.convert(model, X)
    assert exported
    for size in (1, 3, 7):
        x = torch.randn(size, 6)
        torch.testing.assert_close(converted(x).mean, model(x))


class Clipped(nn.Module):
    """A network that writes into its weights while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.head.weight.data.clamp_(-0.01, 0.01)
        return self.head(self.drop(x))


def test_a_look_at_training_mode_leaves_weights_and_random_numbers_alone():
    model = Clipped().eval()
    before, state = model.head.weight.clone(), torch.get_rng_state()
    onesigma.convert(model, X)
    assert torch.equal(model.head.weight, before)
    assert torch.equal(torch.get_rng_state(), state)
