"""The deployed networks: each builds, answers, has dropout and can be trained."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from onesigma.lab import deployed_networks as deployed
from onesigma.lab.bench.trained import KEPT_ASIDE, RECIPES
from onesigma.lab.datasets import shapes

SOUND, SPECTRA, SAMPLES, SERIES = (1, 24, 98), (6, 20, 20), (6, 200), (18, 125)
# Name → shape of an input, number of classes, chances of its dropouts.
NETWORKS = {
    "ds_cnn": (SOUND, 10, [0.2, 0.4]),
    "vgg": (SOUND, 10, [0.3, 0.3, 0.3, 0.5]),
    "resnet8": (SPECTRA, 6, [0.3] * 3),
    "tcn": (SAMPLES, 6, [0.2] * 10),
    "mlp": ((1, 8, 8), 10, [0.5] * 3),
    "ecg_resnet": (SAMPLES, 6, [0.2] * 6),
    "mobilenet_v1": (SPECTRA, 6, [0.5]),
    "tc_resnet": (SOUND, 10, [0.5]),
    "eegnet": (SERIES, 4, [0.5, 0.5]),
    "unet_small": ((1, 32, 32), 3, [0.5, 0.2]),
    "inception_time": (SERIES, 4, [0.2, 0.2, 0.3]),
    "mobilenet_v3": (SOUND, 10, [0.2, 0.2]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_dropout_and_one_step(name):
    shape, classes, chances = NETWORKS[name]
    torch.manual_seed(0)
    network, x = getattr(deployed, name)().eval(), torch.randn(2, *shape)
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == chances
    space = shape[1:] if name == "unet_small" else ()
    with torch.no_grad():
        both, one = network(x), network(x[:1])
    assert both.shape == (2, classes, *space)
    torch.testing.assert_close(both[:1], one, rtol=1e-4, atol=1e-5)
    optimizer = torch.optim.SGD(network.train().parameters(), 1e-3)
    F.cross_entropy(network(x), torch.ones(2, *space, dtype=torch.long)).backward()
    assert all(weight.grad is not None for weight in network.parameters())
    optimizer.step()
    assert all(weight.isfinite().all() for weight in network.parameters())


def test_each_has_a_recipe():
    assert set(NETWORKS) <= set(RECIPES)
    assert set(NETWORKS) > KEPT_ASIDE


def test_an_answer_of_the_tcn_knows_no_future():
    network, x = deployed.tcn()[:-2].eval(), torch.randn(1, *SAMPLES)
    changed = x.clone()
    changed[..., 100:] += 1
    with torch.no_grad():
        before, after = network(x), network(changed)
    torch.testing.assert_close(before[..., :100], after[..., :100])
    assert not torch.allclose(before[..., 100:], after[..., 100:])


def test_shapes_are_the_same_each_time_and_hold_every_class():
    first, second = (shapes.draw(50, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first.inputs, second.inputs)
    assert first.inputs.shape == (50, 1, 32, 32)
    shares = torch.bincount(first.labels.flatten()) / first.labels.numel()
    assert len(shares) == len(shapes.CLASS_NAMES)
    assert shares.min() > 0.03
    # The form tells a disc from a bar, not its brightness.
    light = [first.inputs[:, 0][first.labels == label].mean() for label in (1, 2)]
    assert abs(light[0] - light[1]) < 0.2
