"""Exits of a fitted network: the pieces are the network, and rows that left change nothing."""

import dataclasses
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import onesigma
from onesigma import fitting
from onesigma.calibration import exits

GENERATOR = torch.Generator().manual_seed(0)


def waves(count: int) -> tuple[Tensor, Tensor]:
    """Sines of three frequencies, with noise: the class is the frequency."""
    labels = torch.randint(0, 3, (count,), generator=GENERATOR)
    start = 6.28 * torch.rand(count, 3, 1, generator=GENERATOR)
    angle = start + (1 + labels.view(-1, 1, 1)) * torch.arange(48) / 4
    return angle.sin() + 0.7 * torch.randn(count, 3, 48, generator=GENERATOR), labels


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(3, 8, 5), nn.Linear(8, 3)
        self.second, self.third = (nn.Conv1d(8, 8, 5, padding=2) for _ in range(2))
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.first(x).relu())
        h = h + self.drop(self.second(h).relu())
        h = h + self.third(h).relu()
        return self.last(self.drop(h.mean(-1)))


@pytest.fixture(scope="module", params=[False, True], ids=["distilled", "energy"])
def ready(request: pytest.FixtureRequest) -> Iterator[onesigma.Converted]:
    torch.manual_seed(0)
    network, (x, y) = Residual(), waves(600)
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ROWS": 600, "STEPS": 60, "LONGER": 1, "_REFERENCE": 60}.items():
            patch.setattr(fitting, name, value)
        patch.setattr(exits, "STEPS", 150)
        yield onesigma.fit(network.eval(), waves(80)[0], worth=1, keep_answer=request.param)


@pytest.fixture(scope="module")
def model(ready: onesigma.Converted) -> onesigma.EarlyExit:
    return onesigma.early_exit(ready, labelled=waves(800), excess_risk=0.02)


def never(model: onesigma.EarlyExit) -> onesigma.EarlyExit:
    rule = dataclasses.replace(model.rule, threshold=-math.inf)
    return onesigma.EarlyExit(model.whole, [*model.segments], rule, model.costs)


def test_the_pieces_are_the_network_bit_for_bit(ready, model):
    x, _ = waves(33)
    found, wanted = never(model)(x), ready(x)
    assert found.exit.tolist() == [len(model.costs) - 1] * 33
    for name, value in wanted.arrays().items():
        assert torch.equal(found.arrays()[name], value), name


def test_each_row_has_the_answer_of_its_exit(model):
    x, _ = waves(300)
    found, every = model(x), model.answers(x)
    assert len(found.exit.unique()) > 1
    for place, said in enumerate(every):
        for name, value in found.take(found.exit == place).arrays().items():
            expected = said.arrays()[name][found.exit == place]
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    # It leaves at the first exit that lets it, and not before.
    first = torch.stack([*(model.rule(said) for said in every[:-1]), torch.ones(300).bool()])
    assert torch.equal(found.exit, first.int().argmax(0))


def test_most_leave_early_and_few_of_them_wrongly(ready, model):
    x, y = waves(4000)
    found, whole = model(x), ready(x)
    assert (found.exit < len(model.costs) - 1).float().mean() > 0.3
    harm = (found.label != y) & (whole.label == y)
    assert harm.float().mean() <= 0.02


def test_costs_are_those_of_the_layers(ready, model):
    x, _ = waves(20)
    # Of convolutions by hand: outputs × what each is summed over.
    first, block, last = 44 * 8 * 3 * 5, 44 * 8 * 8 * 5, 8 * 3
    head = sum(
        math.prod(tensor.shape)
        for name, tensor in ready.network.state_dict().items()
        if name.startswith("head.") and "bias" not in name
    )
    guard = sum(
        math.prod(tensor.shape)
        for name, tensor in ready.network.state_dict().items()
        if name in ("guard.whiten", "guard.forms")
    )
    total = first + 2 * block + last + head + guard
    shares = [cost * total for cost in model.costs]
    assert len(shares) == 3
    assert first < shares[0] < first + block < shares[1] < first + 2 * block
    assert 1 < model.costs[2] < 1.4
    prediction = model(x)
    wanted = torch.tensor([model.costs[k] for k in prediction.exit.tolist()])
    assert torch.equal(model.cost(prediction), wanted)
    with pytest.raises(onesigma.InputError, match="no exits"):
        model.cost(ready(x))


def test_a_row_of_nan_goes_through_and_harms_no_other(model):
    x, _ = waves(50)
    broken = x.clone()
    broken[7, 1, 5] = math.nan
    found, wanted = model(broken), model(x)
    assert found.exit[7] == len(model.costs) - 1
    assert not bool(found.valid[7])
    rest = torch.arange(50) != 7
    assert torch.equal(found.exit[rest], wanted.exit[rest])
    torch.testing.assert_close(found.probs[rest], wanted.probs[rest])


def test_foreign_input_is_left_to_the_whole_network(model):
    x, _ = waves(50)
    assert (model(20 * x).exit == len(model.costs) - 1).all()


def test_exits_where_they_are_wanted(ready):
    labelled = waves(100)
    one = onesigma.early_exit(ready, labelled=labelled, at=[0.5])
    assert len(one.segments) == 2
    assert one.rule.never_acts
    names = [n.name for n in ready.network.graph.nodes if "relu" in n.name]
    named = onesigma.early_exit(ready, labelled=labelled, at=names[:1])
    assert len(named.segments) == 2
    for wrong in (["nowhere"], [1.5], ["inputs_0"]):
        with pytest.raises(onesigma.InputError, match="at="):
            onesigma.early_exit(ready, labelled=labelled, at=wrong)


def test_what_cannot_have_exits():
    converted = onesigma.convert(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), torch.randn(4, 4))
    with pytest.raises(onesigma.InputError, match="no place"):
        onesigma.early_exit(converted, labelled=(torch.randn(60, 4), torch.zeros(60).long()))
    regression = onesigma.convert(
        nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), torch.randn(4, 4), task="regression"
    )
    with pytest.raises(onesigma.InputError, match="classifier"):
        onesigma.early_exit(regression, labelled=(torch.randn(60, 4), torch.zeros(60).long()))
