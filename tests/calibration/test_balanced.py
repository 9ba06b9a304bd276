"""Balanced passes: each is one of dropout, and together they vary less."""

import pytest
import torch
from torch import nn

from onesigma.baselines.backbone import original
from onesigma.calibration.balanced import BalancedPasses, balanced_dropout
from onesigma.calibration.observation import silent
from onesigma.calibration.teacher import Lesson, Teacher

X = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))


def graph_of(model: nn.Module) -> torch.fx.GraphModule:
    return original(model.eval(), (X[:4],), "classification", None).source


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.37, 0.5, 0.9])
def test_the_rate_holds_in_every_pass_and_over_the_passes(rate):
    torch.manual_seed(0)
    passes, count = 5, 200_000
    found = balanced_dropout(torch.ones(2 * passes, count), rate, passes).view(2, passes, count)
    dropped = (found == 0).double()
    assert {*found.unique().tolist()} == {0.0, float(torch.tensor(1 / (1 - rate)))}
    error = (rate * (1 - rate) / count) ** 0.5
    assert ((dropped.mean(2) - rate).abs() < 5 * error + 1e-3 / passes).all()
    times = dropped.sum(1)
    assert float(times.min()) >= int(rate * passes)
    assert float(times.max()) <= int(rate * passes) + 1


def test_elements_and_inputs_are_independent():
    torch.manual_seed(0)
    kept = (balanced_dropout(torch.ones(10, 100_000), 0.5, 5) > 0).double().view(2, 5, -1) - 0.5
    pairs = [(kept[0, 0], kept[1, 0]), (kept[0, 0][1:], kept[0, 0][:-1])]
    for a, b in pairs:
        assert abs(float((a * b).mean())) < 5 * 0.25 / len(a) ** 0.5


def test_whole_channels_are_dropped_together():
    torch.manual_seed(0)
    found = balanced_dropout(torch.ones(10, 40, 3, 3), 0.5, 5, 2)
    assert ((found == found[..., :1, :1]).all(-1).all(-1)).all()
    assert 0 < float(found.mean()) < 2


@pytest.mark.parametrize(("rate", "wanted"), [(0.0, 1.0), (1.0, 0.0)])
def test_the_two_ends(rate, wanted):
    assert (balanced_dropout(torch.ones(10, 4), rate, 5) == wanted).all()


def test_what_is_linear_in_the_masks_cancels():
    """Two in five are dropped, always: the average over a group is the plain network's answer."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3)).eval()
    passes = BalancedPasses(graph_of(model))
    with torch.no_grad():
        torch.testing.assert_close(passes(X).mean(1), model(X))


class RowsOfInstants(nn.Module):
    """Dropout of a row for each instant: masks of one pass must not be balanced over time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = nn.functional.dropout(self.first(x.reshape(-1, 1)), 0.4, self.training)
        return self.last(rows.reshape(-1, 6, 4).mean(1).relu())


NETWORKS = {
    "rows of instants": RowsOfInstants,
    "ends in dropout": lambda: nn.Sequential(
        *(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 16), nn.ReLU()),
        *(nn.Dropout(0.5), nn.Linear(16, 3)),
    ),
    "does not": lambda: nn.Sequential(
        *(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 16), nn.ReLU()),
        *(nn.AlphaDropout(0.2), nn.Linear(16, 3)),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_they_say_what_independent_passes_say(name):
    """Mean and variance without bias, against the user's own network; with fewer passes as well."""
    torch.manual_seed(2)
    model = NETWORKS[name]().eval()
    network = original(model, (X[:4],), "classification", None)
    asked = Teacher(network, (X[:4],), all_noise_found=True)
    truth = asked.teach((X,), 4000, 0, silent)
    rows = X.repeat_interleave(200, 0)
    found = asked.teach_cheaply((rows,), 1, silent)

    def differs(values: torch.Tensor, wanted: torch.Tensor) -> float:
        """In standard errors, the largest."""
        each = values.view(len(X), 200, -1)
        error = (each.var(1) / 200 + wanted.var(1) / wanted.shape[1]).sqrt()
        return float(((each.mean(1) - wanted.mean(1)).abs() / error).max())

    assert differs(found.probs, truth.logits.softmax(-1)) < 5
    centred = truth.logits - truth.logits.mean(1, keepdim=True)
    assert differs(found.var, centred.square()) < 5
    passes = found.logits.shape[1] // found.groups
    assert passes == (15 if name == "ends in dropout" else 5)
    if name == "ends in dropout":  # the other kind's own noise is not balanced
        own = found.logits.softmax(-1)[:, :passes].mean(1).view(len(X), 200, -1).var(1).mean()
        assert own < truth.logits.softmax(-1).var(1).mean() / passes


def test_the_variance_of_a_lesson_by_hand():
    logits = torch.tensor([[[1.0], [3.0], [4.0], [8.0]]])
    assert float(Lesson((X,), logits, groups=2).var) == (1 + 4) / 2 + (6 - 2) ** 2 / 2
    torch.testing.assert_close(Lesson((X,), logits).var, logits.var(1))


def test_the_noisy_share_counts_what_is_behind_the_first_dropout():
    last = nn.Sequential(nn.Linear(6, 90), nn.ReLU(), nn.Dropout(0.4), nn.Linear(90, 10))
    assert BalancedPasses(graph_of(last)).noisy_share([X]) == pytest.approx(
        3 * 900 / (540 + 3 * 900)
    )
