"""Eight bits: close to float, the same in every runtime, and float where uncertainty is made."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma import ExportError, InputError, runtime
from onesigma.exporters import int8
from onesigma.exporters.answering import make_answering
from onesigma.exporters.folding import fold
from onesigma.exporters.onnx.file import make_model
from onesigma.runtime.comparison import checking_runtime

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx.reference import ReferenceEvaluator  # noqa: E402

X = torch.randn(96, 3, 24, generator=torch.Generator().manual_seed(0)).cumsum(2) / 4
TEST = torch.randn(64, 3, 24, generator=torch.Generator().manual_seed(1)).cumsum(2).numpy() / 4


class Small(nn.Module):
    """A layer of each kind: padding, norm, depthwise, a sum, a bend without integers, pools."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(3, 8, 3))
        self.norm = nn.BatchNorm1d(8)
        self.deep = nn.Conv1d(8, 8, 3, padding=1, groups=8)
        self.wide = nn.Conv1d(8, 8, 1)
        self.pool = nn.MaxPool1d(2)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        h = h + nn.functional.hardswish(self.wide(nn.functional.relu6(self.deep(h))))
        h = nn.functional.dropout(torch.relu(self.pool(h)), 0.4, self.training)
        return 3 * self.last(h.mean(2))


@cache
def ready(**options) -> onesigma.Converted:
    torch.manual_seed(0)
    with short_fit(_more_forms=lambda *_: []):
        return onesigma.fit(Small().eval(), X, worth=1, **options)


@cache
def both() -> tuple:
    """The float model and the quantised one."""
    model = make_model(make_answering(ready(), X[:4]), 19)  # onnx's reference has no 18
    return model, int8.quantise(model, [X.numpy()])


def arrays(model) -> dict[str, np.ndarray]:
    return {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}


def answers(session, names: list[str]) -> dict[str, np.ndarray]:
    return dict(zip(names, session.run(names, {"x": TEST}), strict=True))


def test_the_file_is_ours_and_close(tmp_path):
    path = tmp_path / "m.onnx"
    made = onesigma.export(ready(), path, int8=True, example_input=X, class_names=list("abcd"))
    device = runtime.load(path)  # the SHA-256 is checked
    assert device.class_names == list("abcd")
    found, wanted = device(TEST), ready()(torch.from_numpy(TEST))
    probs = wanted.probs.detach().double().numpy()
    kl = (probs * np.log(probs / found.probs)).sum(1).mean()
    ratio = np.median(found.std.mean(1) / wanted.std.detach().numpy().mean(1))
    assert kl < 1e-3
    assert 0.98 < ratio < 1.02
    assert made.int8.inputs == len(X)
    assert made.int8.kl < 1e-3
    assert made.int8.labels > 0.97
    assert "int8 against float on 96 inputs: KL" in str(made)
    assert onesigma.export(ready(), tmp_path / "float.onnx").int8 is None


def test_what_it_says_of_the_cost_is_so():
    """Against another program's answers: those of onnx's own reference."""
    model, quantised = both()
    told = int8.compare(model, quantised, [TEST])
    names = ["probs", "var"]
    wanted, found = (answers(ReferenceEvaluator(each), names) for each in (model, quantised))
    p, q = wanted["probs"].astype(float), found["probs"].astype(float)
    assert told.kl == pytest.approx((p * np.log(p / q)).sum(1).mean(), rel=0.05)
    assert told.change == pytest.approx(np.abs(p - q).max(), rel=0.05)
    assert told.labels == pytest.approx((p.argmax(1) == q.argmax(1)).mean(), abs=0.02)
    std = np.sqrt(found["var"]).mean(1) / np.sqrt(wanted["var"]).mean(1)
    assert told.spread == pytest.approx(np.median(std), rel=1e-3)


def test_layers_are_integers_and_the_uncertainty_is_float():
    model, quantised = both()
    onnx.checker.check_model(quantised, full_check=True)
    stored = arrays(quantised)
    eight = [array for array in stored.values() if array.dtype == np.int8 and array.ndim > 1]
    assert sorted(array.shape for array in eight) == [(8, 1, 3), (8, 3, 3), (8, 8, 1)]
    own = arrays(model)
    for name in own:
        if name.startswith(("guard.", "head.")) or "last" in name:
            np.testing.assert_array_equal(stored[name], own[name])
    kinds = Counter(node.op_type for node in quantised.graph.node)
    assert not kinds["BatchNormalization"]
    assert not kinds["Pad"]
    wanted, found = (
        answers(checking_runtime()[1](each.SerializeToString()), ["contract"])
        for each in (model, quantised)
    )
    np.testing.assert_array_equal(found["contract"], wanted["contract"])  # of the input as it is


def test_weights_are_the_nearest_steps():
    """And sums of two products fit in 16 bits, where many processors add them."""
    model, quantised = both()
    folded, stored = fold(model), arrays(quantised)
    own = {node.output[0]: arrays(folded)[node.input[1]]
           for node in folded.graph.node if node.op_type == "Conv"}  # fmt: skip
    assert len(own) == 3
    made = {node.output[0]: node for node in quantised.graph.node}
    for name, weight in own.items():
        whole, steps = (stored[each] for each in made[made[name].input[1]].input[:2])
        assert (np.abs(whole * steps[:, None, None] - weight) <= 0.501 * steps[:, None, None]).all()
        rows = whole.astype(int).reshape(len(whole), -1)
        assert (np.abs(rows).max(1) >= 63).all()  # at least seven bits are used
        for order in (rows, np.moveaxis(whole, 1, -1).astype(int).reshape(rows.shape)):
            first, second = order[:, :-1:2], order[:, 1::2]
            assert 255 * (np.maximum(first, 0) + np.maximum(second, 0)).max(initial=0) < 2**15
            assert 255 * (np.minimum(first, 0) + np.minimum(second, 0)).min(initial=0) >= -(2**15)


def test_it_means_the_same_on_any_processor():
    """With the slower kernels that cannot overflow, and without."""
    _, quantised = both()
    content, names = quantised.SerializeToString(), ["mean", "var", "probs"]
    fast, slow = (
        answers(checking_runtime(precise=precise)[1](content), names) for precise in (False, True)
    )
    for name in names:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-5, atol=1e-6)


def test_the_mean_error_is_taken_from_the_biases():
    """Of each channel of each layer, over the examples."""
    model, quantised = both()
    names = [node.output[0] for node in fold(model).graph.node if node.op_type == "Conv"]
    wanted, found = (int8.run(each, [X.numpy()], names) for each in (fold(model), quantised))
    for name in names:
        error = found[name] - wanted[name]
        assert (np.abs(error.mean((0, 2))) < 0.05 * error.std((0, 2))).all()


def test_ranges_have_a_smaller_error_than_from_the_least_to_the_most(monkeypatch):
    monkeypatch.setattr(int8, "_MOST_OF_IT", np.inf)  # the inputs are rounded in any case
    x = torch.from_numpy(np.random.default_rng(0).laplace(size=(256, 3, 24)).astype("float32"))
    model, _ = both()
    quantised = int8.quantise(model, [x.numpy()])
    scale, zero = (arrays(quantised)[name] for name in ("x:s", "x:z"))
    seen = x.numpy()

    def error(scale: float, zero: int) -> float:
        rounded = torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255).numpy()
        return float(np.square(rounded - seen).mean())

    step = float(seen.max() - seen.min()) / 255
    plain = error(step, round(float(-seen.min() / step)))
    assert error(float(scale), int(zero)) < 0.98 * plain


def test_the_first_layer_is_float_if_inputs_have_a_few_very_large_values():
    model, quantised = both()
    x = X.numpy().copy()
    x[::2, :, 0] *= 300
    spiky = int8.quantise(model, [x])
    weights = [
        {
            array.shape
            for array in arrays(each).values()
            if array.dtype == np.int8 and array.ndim > 1
        }
        for each in (quantised, spiky)
    ]
    assert weights[0] - weights[1] == {(8, 3, 3)}
    assert int8.compare(model, spiky, [x]).kl < int8.MOST_KL


def test_a_plain_network_is_quantised_in_the_same_way():
    model, _ = both()
    alone = onnx.utils.Extractor(model).extract_model(["x"], ["mean"])
    quantised = int8.quantise(alone, [X.numpy()])
    wanted, found = (int8.run(each, [TEST], ["mean"])["mean"] for each in (both()[1], quantised))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_linear_layer_before_an_op_without_integers():
    model = nn.Sequential(nn.Linear(6, 8), nn.Hardswish(), nn.Dropout(0.3), nn.Linear(8, 3)).eval()
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(3))
    made = make_model(make_answering(onesigma.convert(model, x), x))
    assert int8.compare(made, int8.quantise(made, [x.numpy()]), [x.numpy()]).kl < 1e-3


@pytest.mark.parametrize("keep", [False, pytest.param(True, marks=pytest.mark.long)])
def test_other_forms(keep, tmp_path):
    """Moments, and the energies of what is dropped."""
    model = ready(keep_answer=True) if keep else onesigma.convert(Small().eval(), X[:4])
    made = onesigma.export(model, tmp_path / "m.onnx", int8=True, example_input=X)
    assert made.int8.kl < int8.MOST_KL
    assert 0.9 < made.int8.spread < 1.1


def test_what_cannot_be_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_text("as it was")
    regression = onesigma.convert(Small().eval(), X[:4], task="regression")
    for model, given, error, words in (
        (ready(), None, InputError, "give some as example_input"),
        (ready(), X[:8], InputError, "give 32 or more"),
        (regression, X, ExportError, "for classifiers"),
    ):
        with pytest.raises(error, match=words):
            onesigma.export(model, path, int8=True, example_input=given)
    monkeypatch.setattr(int8, "MOST_KL", 1e-12)
    with pytest.raises(ExportError, match=r"Eight bits change .* Nothing was written\. Give some"):
        onesigma.export(ready(), path, int8=True, example_input=X)
    assert path.read_text() == "as it was"
    assert [*tmp_path.iterdir()] == [path]
