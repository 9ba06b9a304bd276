"""The rivals of the microcontroller: each against a formula or a mask made by another route."""

from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx")

import onnx

from onesigma.exporters.c import generate
from onesigma.lab import c_verify as verify
from onesigma.lab.bench import mcu_rivals, programs
from onesigma.lab.bench.rival_modules import ExitEnsemble, Members, Surprise, folded, teach
from onesigma.lab.deployed_networks import Residual, image

EMULATED = pytest.mark.skipif(
    verify.TARGETS["cortex-m4"].missing is not None, reason="needs the emulated Cortex-M4"
)
PLACES, CLASSES, ROWS = (2, 3), 3, 64


@cache
def network() -> nn.Sequential:
    """A dropout inside a branch, so that two values cross in front of it; another at the end."""
    torch.manual_seed(0)
    branch = nn.Sequential(*image(4, 4, 3), nn.Dropout(0.3), *image(4, 4, 3, then=nn.Identity))
    made = nn.Sequential(
        *image(1, 4, 3), Residual(branch, None, nn.ReLU), nn.Dropout(0.4), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, CLASSES),
    )  # fmt: skip
    made(inputs())  # in training mode, so that the norms are no identities
    return made.eval()


def inputs() -> torch.Tensor:
    return torch.randn(ROWS, 1, 6, 5, generator=torch.Generator().manual_seed(1))


def labels() -> torch.Tensor:
    return torch.arange(ROWS) % CLASSES


@cache
def rivals() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    plain, other = folded(network()), folded(network())
    for weight in other.parameters():
        weight.mul_(1.2)
    x, y = inputs(), labels()
    return {
        "ensemble": Members([plain, other]),
        "exits": teach(ExitEnsemble(plain, PLACES, x), x, y, steps=30),
        "surprise": teach(Surprise(plain, PLACES, x), x, y, steps=30),
    }


def xorshift(count: int, state: int = 2463534242) -> np.ndarray:
    words = []
    for _ in range(count):
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        words.append(state)
    return np.array(words)


class OneOutput(nn.Sequential):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (super().forward(x),)


class Masked(nn.Module):
    """Dropout by masks of our own, in the order in which they are asked for."""

    def __init__(self, rate: float, words: list[np.ndarray]) -> None:
        super().__init__()
        self.rate, self.words = rate, words

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = self.words.pop(0).reshape(x.shape)
        return x * torch.from_numpy(words >= self.rate * 2**32) / (1 - self.rate)


def test_folding_changes_no_answer_and_no_place() -> None:
    plain = folded(network())
    torch.testing.assert_close(plain(inputs()), network()(inputs()), atol=1e-5, rtol=1e-4)
    assert len(plain) == len(network())
    assert not [m for m in plain.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [m for m in network().modules() if isinstance(m, nn.BatchNorm2d)]


def test_the_exits_answer_is_the_average_of_softmaxes() -> None:
    exits, x = rivals()["exits"], inputs()
    every = [folded(network())(x)]
    for place, head in zip(PLACES, exits.heads, strict=True):
        every.append(head(network()[: place + 1](x).flatten(2).mean(2)))
    z = torch.stack(every).detach().double().numpy()
    p = (np.exp(z) / np.exp(z).sum(2, keepdims=True)).mean(0)
    probs, score = exits(x)
    np.testing.assert_allclose(probs.numpy(), p, atol=1e-5)
    np.testing.assert_allclose(score.numpy(), -(p * np.log(p)).sum(1), atol=1e-4)


def test_an_ensemble_averages_its_members() -> None:
    model, x = rivals()["ensemble"], inputs()
    wanted = sum(member(x).softmax(1) for member in model.networks) / 2
    assert not torch.allclose(*(member(x).softmax(1) for member in model.networks), atol=1e-3)
    torch.testing.assert_close(model(x)[0], wanted)


def test_surprise_is_the_standardised_error_of_the_next_activations() -> None:
    model, x = rivals()["surprise"], inputs()
    f = [network()[: place + 1](x).flatten(2).mean(2).detach().double().numpy() for place in PLACES]
    before, after = ((each - each.mean(0)) / each.std(0, ddof=1) for each in f)
    (head,) = model.heads
    numbers = {name: value.double().numpy() for name, value in head.state_dict().items()}
    seen = before @ numbers["project.weight"].T
    mean = seen @ numbers["mean.weight"].T + numbers["mean.bias"]
    scale = np.exp(seen @ numbers["log_scale.weight"].T + numbers["log_scale.bias"])
    probs, score = model(x)
    np.testing.assert_allclose(score.numpy(), (((after - mean) / scale) ** 2).mean(1), rtol=1e-3)
    torch.testing.assert_close(probs, network()(x).softmax(1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [ExitEnsemble, Surprise])
def test_teaching_lowers_the_loss_and_leaves_the_network_alone(kind: type) -> None:
    torch.manual_seed(0)
    plain, x, y = folded(network()), inputs(), labels()
    model = kind(plain, PLACES, x)
    before, features = deepcopy(plain.state_dict()), model.read(x)[0]
    loss = model.loss(features, y).item()
    teach(model, x, y, steps=100)
    assert model.loss(features, y).item() < loss - 0.01
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())


def test_surprise_needs_no_labels() -> None:
    model = rivals()["surprise"]
    features = model.read(inputs())[0]
    assert model.loss(features, labels()) == model.loss(features, labels() * 0)


@pytest.mark.parametrize("name", ["ensemble", "exits", "surprise"])
def test_c_answers_as_the_module(name, tmp_path) -> None:
    path = programs.trace(rivals()[name], (inputs()[:2],), tmp_path / "rival.onnx").path
    generated = generate(onnx.load(path), tmp_path / "c")
    x = inputs()[:4]
    samples = [dict.fromkeys(generated.inputs, row[None].numpy()) for row in x]
    found = verify.run(generated, samples).outputs
    for column, wanted in zip(("output_0", "output_1"), rivals()[name](x), strict=True):
        for row, expected in zip(found, wanted.numpy(), strict=True):
            np.testing.assert_allclose(row[column], np.ravel(expected), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_masks_in_c_are_those_of_xorshift_and_of_the_right_rate(rate, tmp_path) -> None:
    ones = torch.ones(2, 1, 100, 200)
    layers = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Dropout(rate)).requires_grad_(False)
    layers[0].weight.fill_(3.0)
    layers[0].bias.zero_()
    marked = OneOutput(mcu_rivals.with_marks(layers)).eval()
    path = programs.trace(marked, (ones,), tmp_path / "drop.onnx").path
    generated = mcu_rivals.draw_masks(generate(onnx.load(path), tmp_path / "c"))
    (found,) = verify.run(generated, [dict.fromkeys(generated.inputs, ones[:1].numpy())]).outputs
    kept = xorshift(20_000) >= rate * 2**32
    np.testing.assert_allclose(found["output_0"], kept * 3 / (1 - rate), rtol=1e-6)
    assert abs((found["output_0"] == 0).mean() - rate) < 4 * (rate * (1 - rate) / 20_000) ** 0.5


def test_a_pass_in_c_is_torch_under_the_same_masks(tmp_path) -> None:
    plain, x = folded(network()), inputs()[:1]
    first, second = mcu_rivals.write_pass(plain, inputs(), tmp_path)
    assert first.source.read_text().count("powf") == 1  # in what defines it
    assert [*second.inputs.values()] == [120, 120]  # the branch and the way around it
    (crossing,) = verify.run(first, [dict.fromkeys(first.inputs, x.numpy())]).outputs
    given = dict(zip(second.inputs, crossing.values(), strict=True))
    (found,) = verify.run(second, [given]).outputs
    words = np.split(xorshift(240), 2)
    masked = deepcopy(plain)
    masked[3].branch[3], masked[4] = Masked(0.3, words), Masked(0.4, words)
    wanted = masked(x).softmax(1)[0].numpy()
    assert not words  # each element drew once
    np.testing.assert_allclose(found["output_0"], wanted, rtol=1e-4, atol=1e-6)
    assert np.abs(wanted - plain(x).softmax(1)[0].numpy()).max() > 1e-3


@EMULATED
def test_passes_add_up_and_cost_more_than_one_answer(tmp_path) -> None:
    plain, x = folded(network()), inputs()
    costs = mcu_rivals.cost_of_passes(plain, x, tmp_path)
    path = programs.trace(mcu_rivals._Answer(plain), (x[:2],), tmp_path / "plain.onnx").path
    one = mcu_rivals.cost_of_file(onnx.load(path), x, tmp_path / "c")
    behind = (costs[30].instructions - costs[10].instructions) / 20
    before = costs[10].instructions - 10 * behind
    assert 0 < before < one.instructions < before + behind < 3 * one.instructions
    assert costs[10].ram == costs[30].ram > one.ram
    assert one.error < 1e-4


def test_worth_by_hand() -> None:
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    known = {"probs": probs, "errors": np.array([1.0, 2, 4, 3]), "foreign": np.arange(4.0)}
    foreign = {"foreign": np.array([2.5, 9.0])}
    found = mcu_rivals.worth_of(known, torch.tensor([0, 1, 1, 1]), foreign)
    assert found.accuracy == 0.75
    assert found.nll == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.7]).mean())
    assert found.errors == 1.0  # the one error has the highest score
    assert found.foreign == pytest.approx(7 / 8)  # 2.5 is below one of four


def test_the_table_names_all_rivals() -> None:
    worth = mcu_rivals.Worth(0.5, 0.25, 0.25, 0.25)
    one, nine = (mcu_rivals.Cost(n * 1_000_000, 2000, 4000, None) for n in (3, 9))
    every = {"plain": one, "plain, int8": one, "MC-10": nine}
    text = mcu_rivals.show({name: (cost, worth) for name, cost in every.items()})
    lines = [line.split() for line in text.splitlines()[2:]]
    assert lines[1][:5] == ["MC-10", "9.00", "3.00", "2", "4"]
    assert lines[2][:2] == ["plain,", "int8"]
