"""The student: what it reads, and what its head makes of it."""

import math

import pytest
import torch
from torch import nn

from onesigma.forms.student import Head, RowsHead, Student, as_features, join_rows, without_dropout
from onesigma.graph.prepare import prepare
from onesigma.prediction import OUTPUTS

X = torch.randn(5, 3, 12, generator=torch.Generator().manual_seed(0))


def network(last: int = 48) -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Conv1d(4, last // 8, 3), nn.Tanh()]
    return nn.Sequential(*layers, nn.Dropout1d(0.2), nn.Flatten(), nn.Linear(last, 3)).eval()


def graph(model: nn.Module):
    return prepare(model, X, "classification", None).graph


def fields(model: Student) -> dict[str, torch.Tensor]:
    return dict(zip(OUTPUTS["classification"], model(X), strict=True))


def test_it_reads_the_input_of_the_last_layer_and_of_each_dropout():
    model, seen = network(), []
    for module in (model[-1], model[2], model[5]):
        module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    logits, *read = without_dropout(graph(network()), energies=True)(X)
    assert torch.equal(logits, model(X))
    first, second, row = seen
    for own, theirs in zip(read, (row, first, second), strict=True):
        assert torch.equal(own, theirs)
    (only,) = without_dropout(graph(network()), energies=False)(X)[1:]
    assert torch.equal(only, row)


def test_a_long_row_is_read_before_it_was_flattened():
    _, read = without_dropout(graph(network(last=8 * 100)), energies=False)(X)
    assert read.shape == (5, 100, 8)


def test_without_a_last_linear_layer_the_logits_are_read():
    model = nn.Sequential(nn.Dropout(0.5), nn.Conv1d(3, 4, 12), nn.Flatten()).eval()
    logits, read = without_dropout(graph(model), energies=False)(X)
    assert torch.equal(logits, read)


def test_features_by_hand():
    series, row = torch.tensor([[[3.0, -4.0], [0.0, 2.0]]]), torch.tensor([[-5.0]])
    logits, features = as_features([torch.tensor([[7.0]]), series, row])
    assert logits.item() == 7
    torch.testing.assert_close(features, torch.tensor([[-5.0, 12.5**0.5, 2**0.5]]))


def built(scale: float) -> Student:
    torch.manual_seed(2)
    head = Head(48, classes=3, hidden=8)
    with torch.no_grad():
        head.write.weight[3:] = scale * torch.randn(7, 3 + 48 + 8)
        head.write.bias[3:] *= scale
    return Student(without_dropout(graph(network()), energies=False), head, name="layers")


@torch.no_grad()
def test_a_head_that_adds_nothing_gives_the_plain_network():
    found, logits = fields(built(0.0)), network()(X)
    assert torch.equal(found["mean"], logits)
    assert (found["var"] == 0).all()
    torch.testing.assert_close(found["probs"], logits.softmax(1))
    assert (found["epistemic"] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("scale", [0.1, 3.0, 1e4])
def test_what_it_says_is_lawful_whatever_the_weights(scale):
    found = fields(built(scale))
    for values in found.values():
        assert torch.isfinite(values).all()
    assert (found["var"] >= 0).all()
    torch.testing.assert_close(found["probs"].sum(1), torch.ones(5))
    entropy = torch.special.entr(found["probs"]).sum(1)
    torch.testing.assert_close(found["entropy"], entropy, rtol=1e-4, atol=1e-6)
    assert (found["aleatoric"] <= found["entropy"]).all()
    assert (found["aleatoric"] >= 0).all()
    torch.testing.assert_close(found["aleatoric"] + found["epistemic"], found["entropy"])


@torch.no_grad()
def test_a_signal_that_grows_does_not_make_it_sure():
    """Under dropout the spread grows with the logits: probabilities tend to a limit above 0."""
    head = built(0.5).head
    logits, features = torch.randn(4, 3), torch.rand(4, 48)
    far, further = (head(n * logits, n * features) for n in (1e4, 1e6))
    torch.testing.assert_close(far["probs"], further["probs"], rtol=1e-2, atol=1e-3)
    assert (further["aleatoric"] < 1e-3 * further["entropy"] + 1e-9).all()


@torch.no_grad()
def test_a_head_of_particles_starts_as_what_they_say_by_themselves():
    """Against sums over the rows of each input, one by one."""
    torch.manual_seed(5)
    logits, features = 3 * torch.randn(4 * 6, 3), torch.randn(4 * 6, 7)
    found = RowsHead(7 + 3, 3, hidden=8)(*join_rows(logits, features, 6))
    for index, rows in enumerate(logits.double().split(6)):
        each = torch.distributions.Categorical(logits=rows)
        mean = torch.distributions.Categorical(probs=each.probs.mean(0))
        aleatoric = each.entropy().mean()
        wanted = {
            "mean": rows.mean(0),
            "var": rows.var(0, correction=0),
            "probs": mean.probs,
            "entropy": mean.entropy(),
            "aleatoric": aleatoric,
            "epistemic": mean.entropy() - aleatoric,
        }
        for name, value in wanted.items():
            torch.testing.assert_close(found[name][index].double(), value, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_particles_that_are_all_sure_give_numbers():
    logits = torch.tensor([[200.0, 0.0], [200.0, 0.0], [200.0, 0.0], [0.0, 200.0]])
    found = RowsHead(2 + 2, 2, hidden=8)(*join_rows(logits, logits, 2))
    torch.testing.assert_close(found["probs"], torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    torch.testing.assert_close(found["epistemic"], torch.tensor([0.0, math.log(2)]))
