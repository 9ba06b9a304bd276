"""The energy form: what it reads, and what its head makes of it."""

import torch
from torch import nn

from onesigma.forms.energy import EnergyHead, EnergyNetwork, energies, tapped_graph
from onesigma.graph.prepare import prepare
from onesigma.prediction import OUTPUTS

X = torch.randn(5, 3, 12, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Conv1d(4, 6, 3), nn.Tanh()]
    return nn.Sequential(*layers, nn.Dropout1d(0.2), nn.Flatten(), nn.Linear(48, 3)).eval()


def graph(model: nn.Module):
    return prepare(model, X, "classification", None).graph


def fields(model: EnergyNetwork) -> dict[str, torch.Tensor]:
    return dict(zip(OUTPUTS["classification"], model(X), strict=True))


def test_it_reads_what_each_dropout_is_given():
    model, seen = network(), []
    for module in model:
        if isinstance(module, nn.Dropout | nn.Dropout1d):
            module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    source = graph(network())
    logits, *tapped = tapped_graph(source)(X)
    torch.testing.assert_close(logits, model(X), rtol=0, atol=0)
    assert len(tapped) == len(seen) == 2
    for own, theirs in zip(tapped, seen, strict=True):
        torch.testing.assert_close(own, theirs, rtol=0, atol=0)


def test_energies_by_hand():
    series, flat = torch.tensor([[[3.0, -4.0], [0.0, 2.0]]]), torch.tensor([[-5.0]])
    found = energies([series, flat], torch.tensor([[7.0]]))
    torch.testing.assert_close(found, torch.tensor([[5.0, 12.5**0.5, 2**0.5, 7.0]]))


def built(scale: float) -> EnergyNetwork:
    torch.manual_seed(2)
    head = EnergyHead(4 + 6 + 3, classes=3, hidden=8, draws=64)
    nn.init.normal_(head.write.weight, std=scale)
    return EnergyNetwork(tapped_graph(graph(network())), head)


@torch.no_grad()
def test_a_head_that_adds_nothing_gives_the_plain_network():
    found, logits = fields(built(0.0)), network()(X)
    torch.testing.assert_close(found["mean"], logits, rtol=0, atol=0)
    assert (found["var"] == 0).all()
    torch.testing.assert_close(found["probs"], logits.softmax(1))
    torch.testing.assert_close(found["epistemic"], torch.zeros(5), atol=1e-6, rtol=0)


@torch.no_grad()
def test_the_moments_are_those_of_the_samples():
    """The draws have mean 0 and unit covariance, so those of the samples are exact."""
    model = built(0.5)
    found = fields(model)
    logits, *tapped = model.source(X)
    samples = model.head.samples(model.head(energies(tapped, logits)), logits)
    torch.testing.assert_close(samples.mean(1), found["mean"])
    torch.testing.assert_close(samples.var(1, correction=0), found["var"])
    torch.testing.assert_close(samples.softmax(-1).mean(1), found["probs"])
    assert (found["var"] > 0).all()


@torch.no_grad()
def test_what_the_head_adds_scales_with_the_signal():
    head = built(0.5).head
    read = torch.rand(4, 13)
    torch.testing.assert_close(head(3 * read), 3 * head(read))
