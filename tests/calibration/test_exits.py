"""Exits of a fitted network: the pieces are the network, and rows that left change nothing."""

import math

import exit_models
import pytest
import torch
from exit_models import never, waves
from torch import nn

import onesigma
from onesigma.calibration import exits
from onesigma.forms.exits import summary

pytestmark = pytest.mark.xdist_group("exits")  # a worker makes the models once


@pytest.fixture(params=[False, True], ids=["distilled", "energy"])
def keep(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def ready(keep: bool) -> onesigma.Converted:
    return exit_models.ready(keep)


@pytest.fixture
def model(keep: bool) -> onesigma.EarlyExit:
    return exit_models.model(keep)


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
    assert harm.float().mean() <= 0.01


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


def test_an_empty_batch_and_a_single_input(model):
    x, _ = waves(3)
    assert model(x[:0]).exit.shape == (0,)
    torch.testing.assert_close(model(x[:1]).probs, model(x).probs[:1])


def test_foreign_input_is_left_to_the_whole_network(model):
    x, _ = waves(50)
    assert (model(20 * x).exit == len(model.costs) - 1).all()


def test_exits_where_they_are_wanted(ready, monkeypatch):
    monkeypatch.setattr(exits, "STEPS", 10)  # where they are does not depend on what they learn
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


def test_unlabelled_inputs_leave_all_labels_to_the_rule(ready, monkeypatch):
    monkeypatch.setattr(exits, "STEPS", 10)
    monkeypatch.setattr(exits, "_MOST", 50)
    labelled, unlabelled = waves(100), waves(70)[0]
    one = onesigma.early_exit(ready, labelled=labelled, unlabelled=unlabelled, at=[0.5])
    assert one.rule.n == 100
    with pytest.raises(onesigma.InputError):
        onesigma.early_exit(ready, labelled=labelled, unlabelled=unlabelled[:, :2])


def test_heads_read_regions_and_energies():
    h = torch.arange(2 * 3 * 8.0).view(2, 3, 8)
    pairs, energy = h.view(2, 3, 4, 2).mean(-1), h.square().mean(-1).sqrt()
    expected = torch.cat([pairs.flatten(1), energy], 1)
    torch.testing.assert_close(summary([h]), expected)
    torch.testing.assert_close(summary([energy, h]), torch.cat([energy, expected], 1))
    # Two parts of rows, four of columns; of a wide layer one region; what has 5 axes has 4.
    assert summary([torch.ones(2, 3, 6, 8)]).shape == (2, 3 * 9)
    assert summary([torch.ones(2, 512, 6, 8)]).shape == (2, 2 * 512)
    assert torch.equal(summary([h.view(2, 3, 2, 2, 2)]), summary([h.view(2, 3, 4, 2)]))


def test_what_cannot_have_exits():
    converted = onesigma.convert(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), torch.randn(4, 4))
    with pytest.raises(onesigma.InputError, match="no place for an exit"):
        onesigma.early_exit(converted, labelled=(torch.randn(60, 4), torch.zeros(60).long()))
    regression = onesigma.convert(
        nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), torch.randn(4, 4), task="regression"
    )
    with pytest.raises(onesigma.InputError, match="classifier"):
        onesigma.early_exit(regression, labelled=(torch.randn(60, 4), torch.zeros(60).long()))
