"""What the live view makes of a model; PyTorch and ONNX Runtime give the same answers."""

import math

import numpy as np
import pytest
import torch
from pages.live.stand_in import loud_model, predict, stand_in
from torch import nn

import onesigma
from onesigma.errors import DataError, InputError, ModelError
from onesigma.pages.live.model import live_model
from onesigma.runtime import Prediction
from onesigma.storage.opening import open_model, wrap_converted
from onesigma.tables.windows import Scaling


def converted():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 14, 5)
    )
    return onesigma.convert(model, torch.randn(2, 3, 16))


def test_a_window_reaches_the_network_channels_first(tmp_path):
    pytest.importorskip("onnxruntime")
    network = converted()
    rule = onesigma.threshold(network(torch.randn(200, 3, 16)), torch.arange(200) % 5, risk=0.9)
    network = network.with_abstain(rule)
    names = ["a", "b", "c", "d", "e"]
    onesigma.export(network, tmp_path / "m.onnx", class_names=names)
    window = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    expected = network(torch.from_numpy(window.T.copy())[None])
    on_device = live_model(open_model(str(tmp_path / "m.onnx")))
    in_torch = live_model(wrap_converted("m", network), class_names=names)
    for model in (on_device, in_torch):
        assert (model.length, model.channels, list(model.class_names)) == (16, 3, names)
        assert (model.score, model.own_rule) == ("entropy", True)
        assert model.threshold == pytest.approx(rule.threshold)
        answer = model(window)
        np.testing.assert_allclose(answer.probs, expected.probs.detach(), rtol=1e-4)
        np.testing.assert_allclose(answer.epistemic, expected.epistemic.detach(), rtol=1e-4)


def test_channels_last():
    def first_instant(x):
        assert x.shape == (1, 4, 2)
        return predict(x.swapaxes(1, 2))

    model = live_model(stand_in(first_instant, (None, 4, 2)), channels_last=True)
    window = np.array([[1, 9], [2, 9], [3, 9], [4, 9]], np.float32)
    assert (model.length, model.channels) == (4, 2)
    np.testing.assert_allclose(model(window).probs, predict(window.T[None]).probs)


def test_one_dimension_is_one_instant():
    def rows(x):
        return predict(x[:, None])

    model = live_model(stand_in(rows, (None, 6)))
    assert (model.length, model.channels) == (1, 6)
    window = np.arange(6, dtype=np.float32)[None]
    np.testing.assert_allclose(model(window).probs, rows(window).probs)


def test_scaling_is_applied_to_the_channels():
    mean, std = np.array([1.0, 20.0]), np.array([2.0, 0.5])
    window = np.random.default_rng(0).normal(size=(4, 2))
    answer = loud_model(scaling=Scaling(mean, std))(window * std + mean)
    np.testing.assert_allclose(answer.probs, loud_model()(window).probs, rtol=1e-5)
    with pytest.raises(DataError, match="one per channel"):
        loud_model(scaling=Scaling(np.zeros(3), np.ones(3)))


def test_a_window_that_is_not_finite_when_scaled_is_not_answered():
    small = Scaling(np.zeros(3, np.float32), np.full(3, 1e-3, np.float32))
    model = live_model(wrap_converted("m", converted()), scaling=small)
    window = np.zeros((16, 3), np.float32)
    assert model(window).valid.all()
    window[4, 1] = 1e38
    answer = model(window)
    assert not answer.valid.any()
    assert np.isnan(answer.entropy).all()


def test_without_a_rule_it_abstains_by_entropy():
    model = loud_model()
    assert (model.score, model.own_rule) == ("entropy", False)
    assert model.threshold == pytest.approx(0.4 * math.log(2))
    assert live_model(stand_in(predict)).class_names == ("class 0", "class 1")


@pytest.mark.parametrize("shape", [None, (None,), (None, 2, None)])
def test_a_shape_that_is_not_known(shape):
    with pytest.raises(InputError, match="must be known"):
        live_model(stand_in(predict, shape))


def test_as_many_names_as_classes():
    with pytest.raises(InputError, match="2 classes, but there are 3 class names"):
        live_model(stand_in(predict), class_names=("a", "b", "c"))


def test_regression_is_refused():
    with pytest.raises(ModelError, match="no classifier"):
        live_model(stand_in(lambda x: Prediction(x[:, 0], x[:, 0])))
