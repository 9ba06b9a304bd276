"""``onesigma.export``: names, metadata, options, and that nothing wrong is ever written."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor, nn

import onesigma
from onesigma import Converted, ExportError, InputError, PackageError, runtime
from onesigma.decide.temperature import Temperature
from onesigma.decide.threshold import AbstainRule
from onesigma.exporters import agreement, targets
from onesigma.exporters.answering import make_answering
from onesigma.exporters.onnx import file as target
from onesigma.exporters.onnx import torch_writer as torch_onnx
from onesigma.rules.corrections import Factors, Gain
from onesigma.runtime import comparison
from onesigma.runtime.comparison import mismatch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))


def linear(**options) -> Converted:
    """The smallest model there is: exported in about a second."""
    torch.manual_seed(0)
    return onesigma.convert(nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 3)).eval(), X, **options)


@cache
def shared() -> Converted:
    return linear()


def run(path: Path, *inputs: Tensor) -> dict[str, np.ndarray]:
    answer = runtime.load(path, threads=1)(*(x.numpy() for x in inputs))
    return {k: v for k, v in vars(answer).items() if isinstance(v, np.ndarray)}


def assert_agrees(path: Path, converted: Converted, *inputs: Tensor) -> None:
    with torch.no_grad():
        expected = converted(*inputs).arrays()
    found = run(path, *inputs)
    assert list(found) == list(expected)
    assert max(mismatch(k, found[k], value) for k, value in expected.items()) < 1e-4


def metadata(path: Path) -> dict:
    entry, digest = onnx.load(path).metadata_props
    assert digest.key == "onesigma.sha256"
    assert entry.key == "onesigma"
    return json.loads(entry.value)


def ops(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def names(values) -> list[str]:
    return [value.name for value in values]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> target.Exported:
    path = tmp_path_factory.mktemp("shared") / "m.onnx"
    return onesigma.export(shared(), path, class_names=["a", "b", "c"])


def test_it_says_what_it_wrote(exported):
    assert exported.path.stat().st_size == exported.size
    assert exported.opset == 18
    assert exported.error < 1e-4
    assert exported.checked_by.startswith("onnxruntime ")
    assert "m.onnx: opset 18" in str(exported)
    assert list(exported.path.parent.iterdir()) == [exported.path]


def test_the_file_tells_nothing_of_the_machine_it_was_made_on(exported):
    content = exported.path.read_bytes()
    assert str(Path.home()).encode() not in content
    assert b"stack_trace" not in content
    assert Path(__file__).name.encode() not in content


class Named(nn.Module):
    """An input and an inner op that have the names of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, mean: Tensor, other: Tensor) -> Tensor:
        return self.layer(nn.functional.dropout(mean.mean(1) + other, 0.3, self.training))


def test_names_that_clash(tmp_path):
    inputs = (torch.randn(3, 2, 4), torch.randn(3, 4))
    converted = onesigma.convert(Named().eval(), inputs)
    path = onesigma.export(converted, tmp_path / "m.onnx").path
    graph = onnx.load(path).graph
    assert names(graph.input) == ["mean_input", "other"]
    assert names(graph.output)[:2] == ["mean", "var"]
    assert "layer.weight" in names(graph.initializer)
    assert_agrees(path, converted, *inputs)


def test_metadata(exported):
    found = metadata(exported.path)
    assert found["version"] == onesigma.__version__
    assert found["class_names"] == ["a", "b", "c"]
    assert [(site["module"], site["rate"]) for site in found["noise_sites"]] == [("0", 0.4)]
    assert found["input_std"] is None
    settings = json.loads(json.dumps(shared().settings.to_dict()))
    del settings["class_names"]  # those that export was given
    assert found == found | {k: v for k, v in settings.items() if not k.startswith("input_")}
    assert found["draws"] == 64


@pytest.mark.parametrize(
    ("std", "written"),
    [
        (0.5, 0.5),
        (torch.tensor([1.0, 2, 3, 4, 5]), [1.0, 2.0, 3.0, 4.0, 5.0]),
        (torch.arange(1.0, 11.0).reshape(5, 2), {"min": 1.0, "max": 10.0}),
    ],
)
def test_the_prior_in_the_metadata(std, written):
    """A number, one per channel, or else its range."""
    x = torch.zeros(2, 5, 2)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.4), nn.Linear(10, 3)).eval()
    answering = make_answering(onesigma.convert(model, x, input_std=std))
    assert answering.metadata["input_std"] == pytest.approx(written)


class Pooled(nn.Module):
    """Reductions, whose axes moved between opsets, and a GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(2, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(self.conv(x)).mean(-1)
        return self.head(nn.functional.dropout(x, 0.2, self.training))


@cache
def pooled() -> tuple[Converted, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 2, 9)
    return onesigma.convert(Pooled().eval(), x), x


@pytest.mark.parametrize("opset", [17, 18, 19, 20, 21])
def test_opsets(opset, tmp_path):
    converted, x = pooled()
    path = onesigma.export(converted, tmp_path / "m.onnx", opset=opset).path
    assert [entry.version for entry in onnx.load(path).opset_import] == [opset]
    assert_agrees(path, converted, x)


def test_the_left_tail_survives_an_export(tmp_path):
    """ReLU units from 0 to 10 deviations below zero, element by element against scipy.

    ONNX has no Erfc, and 1 − Erf is exactly 0 in float32 from 5.5 deviations on: no formula of
    ours needs either.
    """
    torch.manual_seed(0)
    p, below = 0.5, torch.linspace(0, 10, 41)
    layer = nn.Linear(16, 41)
    x = torch.rand(2, 16) + 0.5
    x[1] = x[0]
    with torch.no_grad():
        std = nn.functional.linear(x[0].square(), layer.weight.square()).sqrt()  # p/(1 − p) = 1
        layer.bias.copy_(-below * std - layer.weight @ x[0])
    model = nn.Sequential(nn.Dropout(p), layer, nn.ReLU()).eval()
    converted = onesigma.convert(model, x, task="regression")
    path = onesigma.export(converted, tmp_path / "m.onnx").path
    assert "Erf" not in ops(path)
    found = run(path, x)

    weight, bias, row = (t.detach().double().numpy() for t in (layer.weight, layer.bias, x[0]))
    s = np.sqrt(weight**2 @ row**2)
    x = -(weight @ row + bias) / s
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    mean, square = (s**n * density * [_tail(each, n) for each in x] for n in (1, 2))
    np.testing.assert_allclose(found["mean"][0], mean, rtol=1e-4)
    np.testing.assert_allclose(found["var"][0], square - mean**2, rtol=1e-4)
    assert found["var"][0, -1] < 1e-22


def _tail(x: float, power: int) -> float:
    """E[(z − x)₊ⁿ] / φ(x) by quadrature."""
    return quad(lambda t: t**power * math.exp(-x * t - t * t / 2), 0, 40)[0]


def test_an_existing_file_survives_a_failed_export(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"precious")
    other = linear()
    with torch.no_grad():
        other.network.get_parameter("source.1.weight").mul_(1.01)
    monkeypatch.setattr(
        targets, "compare", lambda model, _, *rest: agreement.compare(model, other, *rest)
    )
    with pytest.raises(ExportError, match=r"output 'mean' is off by .* Nothing was written"):
        onesigma.export(linear(), path)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def test_without_onnxruntime_the_reference_checks(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "find_spec", lambda name: None)
    exported = onesigma.export(shared(), tmp_path / "m.onnx")
    assert exported.checked_by.startswith("onnx.reference ")
    assert exported.error < 1e-4


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "find_spec", lambda name: None)
    with pytest.raises(PackageError, match=r"needs onnx.*\.\[onnx\]"):
        onesigma.export(shared(), tmp_path / "m.onnx")


class Halved(nn.Module):
    """An op without an entry in our table."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.sinh().chunk(2, 1)
        return self.layer(nn.functional.dropout(a * b, 0.3, self.training))


@pytest.fixture(scope="module")
def halved() -> Converted:
    return onesigma.convert(Halved().eval(), torch.randn(3, 8))


def test_pytorch_writes_what_our_table_lacks(halved, tmp_path):
    path = onesigma.export(halved, tmp_path / "m.onnx").path
    assert_agrees(path, halved, torch.randn(5, 8, generator=torch.Generator().manual_seed(0)))
    assert b"stack_trace" not in path.read_bytes()
    shape = onnx.load(path).graph.input[0].type.tensor_type.shape
    assert [dim.dim_param or dim.dim_value for dim in shape.dim] == ["batch", 8]


def test_the_limits_of_that(halved, tmp_path, monkeypatch):
    with pytest.raises(ExportError, match="below opset 18"):
        onesigma.export(halved, tmp_path / "m.onnx", opset=17)
    monkeypatch.setattr(torch_onnx, "find_spec", lambda name: None)
    with pytest.raises(PackageError, match="onnxscript"):
        onesigma.export(halved, tmp_path / "m.onnx")


class Sized(nn.Module):
    """Sizes that are computed when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.size(0) * 2, -1).view(x.size(0), -1, 2).flatten(1)
        return self.layer(nn.functional.dropout(x, 0.3, self.training))


def test_computed_sizes_stay_open(tmp_path, monkeypatch):
    monkeypatch.delattr(torch_onnx, "write")
    x = torch.randn(7, 2, 2)
    converted = onesigma.convert(Sized().eval(), x[:3])
    assert_agrees(onesigma.export(converted, tmp_path / "m.onnx").path, converted, x)


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("m.pt", {}, r"ends in \.onnx, or a folder"),
        ("absent/m.onnx", {}, "not a folder"),
        ("m.onnx", {"opset": 16}, "17 to"),
        ("m.onnx", {"opset": 99}, "17 to"),
        ("m.onnx", {"class_names": ["a", "b"]}, "3 names"),
        ("m.onnx", {"class_names": "abc"}, "3 names"),
        ("m.onnx", {"example_input": torch.zeros(2, 4)}, r"shape \(batch, 5\)"),
    ],
)
def test_wrong_options(file, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        onesigma.export(shared(), tmp_path / file, **options)
    assert not list(tmp_path.iterdir())


def test_regression_has_no_class_names(tmp_path):
    with pytest.raises(InputError, match="no classes"):
        onesigma.export(linear(task="regression"), tmp_path / "m.onnx", class_names=["a"])


def test_half_precision_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"float16.*underflow"):
        onesigma.export(linear().half(), tmp_path / "m.onnx")


def test_double_precision(tmp_path):
    converted = linear().double()
    path = onesigma.export(converted, tmp_path / "m.onnx").path
    assert run(path, X.double())["mean"].dtype == np.float64
    assert_agrees(path, converted, X.double())


def test_temperature_and_abstain_rule_travel(tmp_path):
    warm = shared().with_temperature(Temperature(1.7))
    threshold = float(warm(X).entropy.detach().mean())
    rule = AbstainRule("entropy", threshold, 0.1, 0.1, 100, 0.8, 0.05)
    converted = warm.with_abstain(rule)
    path = onesigma.export(converted, tmp_path / "m.onnx").path
    assert_agrees(path, converted, X)
    act = run(path, X)["act"]
    assert act.dtype == np.bool_
    assert 0 < act.sum() < len(X)
    assert metadata(path)["temperature"] == {"value": 1.7, "shift": 0.0}
    assert metadata(path)["abstain"]["threshold"] == threshold


def test_the_covariance_of_the_logits(tmp_path):
    converted = linear(covariance=True)
    assert_agrees(onesigma.export(converted, tmp_path / "m.onnx").path, converted, X)


class FixedBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(nn.functional.dropout(x.reshape(3, 10), 0.3, self.training))


def test_a_fixed_batch_stays_fixed(tmp_path):
    converted = onesigma.convert(FixedBatch().eval(), X)
    path = onesigma.export(converted, tmp_path / "m.onnx").path
    shape = onnx.load(path).graph.input[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [6, 5]
    assert_agrees(path, converted, X)


def test_integer_inputs(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8, 3)).eval()
    words = torch.randint(9, (4, 2))
    converted = onesigma.convert(model, words)
    path = onesigma.export(converted, tmp_path / "m.onnx", example_input=words[:1]).path
    assert_agrees(path, converted, words)


def test_a_saved_model_exports_too_and_is_not_changed(tmp_path):
    onesigma.save(linear(input_std=0.5), tmp_path / "m.safetensors")
    converted = onesigma.load(tmp_path / "m.safetensors")
    before = {name: tensor.clone() for name, tensor in converted.state_dict().items()}
    code = converted.network.code
    path = onesigma.export(converted, tmp_path / "m.onnx").path
    assert_agrees(path, converted, X)
    assert metadata(path)["input_std"] == pytest.approx(0.5)
    assert converted.network.code == code
    assert all(torch.equal(before[k], tensor) for k, tensor in converted.state_dict().items())


def test_the_file_tells_what_was_corrected_in_few_words(tmp_path):
    converted = linear()
    gain, factors = torch.tensor([[1.23456], [2.0]]), torch.full((40, 16), 0.1)
    found = {"linear": (Factors(factors, 0.0), Gain(gain))}
    settings = replace(converted.settings, corrections=found)
    path = onesigma.export(converted.with_changes(settings=settings), tmp_path / "m.onnx").path
    assert metadata(path)["corrections"] == {
        "linear": [
            {"kind": "Factors", "loadings": [40, 16]},
            {"kind": "Gain", "factor": [[1.235], [2.0]]},
        ]
    }
