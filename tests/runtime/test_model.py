"""``onesigma.runtime``: an exported file with numpy and onnxruntime alone."""

import hashlib
import json
import subprocess
import sys
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import onesigma
from onesigma import FileError, InputError, ModelError, PackageError, runtime
from onesigma.answer import Answer
from onesigma.calibration.guarding import with_guard
from onesigma.decide.threshold import AbstainRule
from onesigma.runtime import model as runtime_model
from onesigma.runtime.model import FORMAT, is_exported, seal

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

X = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0))
NAMES = ["walk", "run", "rest"]


@pytest.fixture(scope="module")
def converted() -> onesigma.Converted:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Dropout(0.4), nn.Flatten(), nn.Linear(10, 3)).eval()
    return onesigma.convert(network, X)


@pytest.fixture(scope="module")
def path(converted, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runtime") / "m.onnx"
    return onesigma.export(converted, path, class_names=NAMES).path


def test_the_same_prediction_in_numpy(converted, path):
    model = runtime.load(path, threads=1)
    answer, expected = model(X.numpy()), converted(X)
    for name in ("mean", "var", "std", "probs", "entropy", "aleatoric", "epistemic", "confidence"):
        value = getattr(answer, name)
        assert isinstance(value, np.ndarray)
        np.testing.assert_allclose(
            value, getattr(expected, name).detach().numpy(), rtol=1e-4, atol=1e-6
        )
    assert answer.label.tolist() == expected.label.tolist()
    assert answer.plain_probs is None
    assert answer.class_dim == expected.class_dim
    assert model.class_names == NAMES
    assert model.input_shapes == [(None, 5, 2)]
    assert model.metadata["noise_sites"][0]["rate"] == 0.4


class Counting:
    """A session that notes how many rows it is given each time."""

    def __init__(self, session):
        self.session, self.rows = session, []

    def __getattr__(self, name):
        return getattr(self.session, name)

    def run(self, names, feed):
        (x,) = feed.values()
        self.rows.append(len(x))
        return self.session.run(names, feed)


@pytest.mark.parametrize("batch", [1, 4, 7, 100])
def test_any_number_of_inputs_is_answered_so_many_at_a_time(batch, path):
    counting = Counting(onnxruntime.InferenceSession(path))
    model = runtime.Model(counting, runtime.load(path).metadata)
    x = np.random.default_rng(0).normal(size=(30, 5, 2)).astype(np.float32)
    wanted = runtime.load(path)(x)
    x[17, 2, 1] = np.nan
    found = model.predict(x, batch=batch)
    assert counting.rows == [min(batch, 30 - start) for start in range(0, 30, batch)]
    assert np.flatnonzero(~found.valid).tolist() == [17]
    for name, value in wanted.arrays().items():
        kept, rest = (np.delete(each, 17, 0) for each in (found.arrays()[name], value))
        np.testing.assert_allclose(kept, rest, rtol=1e-5, atol=1e-6, err_msg=name)


def test_numbers_whose_sum_is_infinite_are_answered():
    class Answering:
        def get_inputs(self):
            return [SimpleNamespace(name="x", type="tensor(float)", shape=["batch", 2])]

        def get_outputs(self):
            return [SimpleNamespace(name="mean"), SimpleNamespace(name="var")]

        def run(self, _names, feed):
            return [np.ones((len(feed["x"]), 3), np.float32)] * 2

    model = runtime.Model(Answering(), {"class_dim": 1})
    assert model(np.full((4, 2), 3e38, np.float32)).valid.all()


@pytest.mark.parametrize(
    ("rows", "batch", "message"), [(0, 32, "The batch is empty"), (3, 0, "batch=0: at least 1")]
)
def test_predict_of_nothing(rows, batch, message, path):
    with pytest.raises(InputError, match=message):
        runtime.load(path).predict(X[:rows].numpy(), batch=batch)


def test_regression_has_no_label():
    answer = runtime.Prediction(np.zeros((2, 1)), np.ones((2, 1)))
    with pytest.raises(AttributeError, match="regression"):
        _ = answer.label


def test_why_not_to_act_for_all_rows_at_once_and_one_by_one():
    places = np.array([[0, 1], [0, 1.1], [-1, 0], [-2, 0], [0, 0], [0, np.nan]], np.float32)
    novelty = np.array([0.5, 0.5, 0.01, 0.01, np.nan, np.nan], np.float32)
    act, zeros = np.array([True, False, False, False, False, False]), np.zeros((6, 2))
    said = runtime.Prediction(zeros, zeros, contract=places, novelty=novelty, act=act)
    words = ["", "broken input", "unfamiliar", "broken input", "unfamiliar", "broken input"]
    assert said.oddness == Answer.oddness.fget(said) == words
    assert said.reason == ["sure", *words[1:]]


def test_inputs_that_lose_nothing_are_cast(path):
    model = runtime.load(path)
    half = X.numpy().astype(np.float16)
    np.testing.assert_array_equal(model(half).mean, model(half.astype(np.float32)).mean)
    strided = np.asfortranarray(X.numpy())
    np.testing.assert_array_equal(model(strided).mean, model(X.numpy()).mean)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "takes 1 inputs, not 0"),
        ((np.zeros((2, 5, 2)),), r"float32 input, not float64.*x\.astype\(np\.float32\)"),
        ((np.zeros((2, 5), np.float32),), r"shape \(batch, 5, 2\), not \(2, 5\)"),
        ((np.zeros((2, 5, 3), np.float32),), r"shape \(batch, 5, 2\), not \(2, 5, 3\)"),
        (([[1.0]],), "not list"),
        ((np.zeros((0, 5, 2), np.float32),), "batch is empty"),
    ],
)
def test_wrong_inputs(path, inputs, message):
    with pytest.raises(InputError, match=message):
        runtime.load(path)(*inputs)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_not_answered(bad, guarded, tmp_path):
    """ReLU makes 0 of minus infinity: without a check the answer would look like any other."""
    network = nn.Sequential(nn.ReLU(), nn.Dropout(0.4), nn.Flatten(), nn.Linear(10, 3)).eval()
    rule = AbstainRule("entropy", np.inf, 0.05, None, 100, 1.0, 0.0)
    model = onesigma.convert(network, X).with_abstain(rule)
    if guarded:
        known = torch.randn(200, *X.shape[1:], generator=torch.Generator().manual_seed(0))
        model = with_guard(model, (torch.cat([known, X]),))
    answers = runtime.load(onesigma.export(model, tmp_path / "m.onnx", example_input=X).path)
    x, good = X.numpy().copy(), answers(X.numpy())
    x[2, 4, 1] = bad
    answer = answers(x)
    assert answer.valid.tolist() == answer.act.tolist() == [True, True, False, True]
    assert good.valid.all()
    assert good.act.all()
    for name in ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"):
        value = getattr(answer, name)
        assert np.isnan(value[2]).all()
        np.testing.assert_allclose(value[[0, 1, 3]], getattr(good, name)[[0, 1, 3]], rtol=1e-5)
    each = np.repeat(X[:1].numpy(), 10, 0)
    np.fill_diagonal(each.reshape(10, 10), bad)  # another number of each input
    assert not answers(each).valid.any()


@pytest.mark.parametrize("shape", [(6,), (3, 8), (2, 3, 4)])
def test_the_guard_shows_that_all_of_an_input_is_finite(shape, tmp_path, monkeypatch):
    network = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Dropout(0.4), nn.Linear(prod(shape), 3))
    known = torch.randn(100, *shape, generator=torch.Generator().manual_seed(0))
    model = with_guard(onesigma.convert(network.eval(), known[:2]), (known,))
    path = onesigma.export(model, tmp_path / "m.onnx", example_input=known[:2]).path
    answers, x = runtime.load(path), known.numpy()
    looked, look = [], runtime_model.hide_rows
    monkeypatch.setattr(
        runtime_model, "hide_rows", lambda made, xs: looked.append(1) or look(made, xs)
    )
    assert answers(x).valid.all()
    assert not looked
    for value in (np.nan, np.inf, -np.inf, 3e38):  # the mean of large numbers may be infinite
        for place in range(x[0].size):
            odd = x.copy()
            odd.reshape(100, -1)[3, place] = value
            kept = np.flatnonzero(~np.isnan(answers(odd).mean).all(1)).tolist()
            assert kept == [row for row in range(100) if row != 3 or value == 3e38]
    assert len(looked) >= 3 * x[0].size
    looked.clear()
    assert runtime.load(path, check=False)(x).valid.all()  # another tool may have changed it
    assert looked


def test_of_several_inputs_each_is_looked_at(tmp_path):
    """A guard measures no integers, and an input of another dtype may be given as such."""

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Sequential(nn.ReLU(), nn.Dropout(0.4), nn.Linear(4, 3))

        def forward(self, a, b):
            return self.last(a + b)

    known = tuple(torch.randn(2, 100, 4, generator=torch.Generator().manual_seed(0)))
    model = onesigma.convert(Sum().eval(), tuple(x[:2] for x in known))
    model = with_guard(model, (known[0], known[1].int()))
    example = tuple(x[:2] for x in known)
    answers = runtime.load(onesigma.export(model, tmp_path / "m.onnx", example_input=example).path)
    for place in range(2):
        given = [x.numpy().copy() for x in known]
        given[place][5, 1] = -np.inf
        assert np.flatnonzero(~answers(*given).valid).tolist() == [5]


def test_threads(path):
    with pytest.raises(InputError, match="at least one"):
        runtime.load(path, threads=0)


def test_missing_file(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        runtime.load(tmp_path / "absent.onnx")
    with pytest.raises(FileError, match=r"a folder, and without exits\.json"):
        runtime.load(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_truncated_anywhere(path, share, tmp_path):
    content = path.read_bytes()
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileError, match=r"cut\.onnx"):
        runtime.load(cut)


def test_a_cut_between_two_fields_is_noticed_too(path, tmp_path):
    """There protobuf sees no error; but our entries come last, so they are gone."""
    content = path.read_bytes()
    whole = onnx.load_from_string(content)
    del whole.metadata_props[:]
    assert content.startswith(whole.SerializeToString())
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(whole.SerializeToString())
    for check in (True, False):
        with pytest.raises(FileError, match="no onesigma metadata"):
            runtime.load(cut, check=check)


def test_any_flipped_bit_is_an_error(path, tmp_path):
    content, other = path.read_bytes(), tmp_path / "m.onnx"
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        other.write_bytes(flipped)
        with pytest.raises(FileError, match=r"m\.onnx is not as onesigma\.export wrote it"):
            runtime.load(other)


def test_bytes_added_behind_the_digest_are_an_error(path, tmp_path):
    other = tmp_path / "m.onnx"
    other.write_bytes(path.read_bytes() + onnx.ModelProto(producer_name="tool").SerializeToString())
    with pytest.raises(FileError, match="its SHA-256 differs"):
        runtime.load(other)


def test_a_file_that_another_tool_changed_is_taken_if_that_is_meant(path, tmp_path):
    other = onnx.load(path)
    other.producer_name = "a tool that optimises"
    onnx.save(other, tmp_path / "m.onnx")
    with pytest.raises(FileError, match=r"another tool changed it.*check=False"):
        runtime.load(tmp_path / "m.onnx")
    answer = runtime.load(tmp_path / "m.onnx", check=False)(X.numpy())
    np.testing.assert_array_equal(answer.probs, runtime.load(path)(X.numpy()).probs)


def test_weights_may_lie_in_a_file_of_their_own_if_that_is_meant(path, tmp_path):
    onnx.save(onnx.load(path), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=100)
    with pytest.raises(FileError, match="SHA-256"):
        runtime.load(tmp_path / "m.onnx")
    answer = runtime.load(tmp_path / "m.onnx", check=False)(X.numpy())
    np.testing.assert_array_equal(answer.probs, runtime.load(path)(X.numpy()).probs)


def test_any_reader_of_onnx_sees_the_digest(path):
    content = path.read_bytes()
    key, digest = onnx.load(path).metadata_props[-1].key, hashlib.sha256(content[:-85]).hexdigest()
    assert (key, content[-64:].decode()) == ("onesigma.sha256", digest)
    assert onnx.load(path).metadata_props[-1].value == digest


def test_a_file_from_before_the_digest_says_so(path, tmp_path):
    old = onnx.load(path)
    old.metadata_props[0].value = old.metadata_props[0].value.replace('"format":2', '"format":1')
    del old.metadata_props[1]
    onnx.save(old, tmp_path / "m.onnx")
    with pytest.raises(FileError, match=r"has format 1, which had no SHA-256. Export it again"):
        runtime.load(tmp_path / "m.onnx")
    with pytest.raises(FileError, match=r"has format 1, this version of onesigma reads 2"):
        runtime.load(tmp_path / "m.onnx", check=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        ([], "damaged"),
        ({}, "damaged"),
        ({"format": 99}, "format 99"),
        ("[" * 100_000, "damaged"),
        ({"format": FORMAT}, "do not fit its graph"),
        ({"format": FORMAT, "class_dim": 1, "outputs": ["mean"]}, "do not fit"),
        ({"format": FORMAT, "class_dim": 1, "outputs": {"mean": "mean"}}, "do not fit"),
        ({"format": FORMAT, "class_dim": 1, "class_names": [3]}, "do not fit"),
    ],
)
def test_metadata_that_are_not_ours(path, content, message, tmp_path):
    """By someone who knows how the digest is made."""
    other = onnx.load(path)
    del other.metadata_props[1]
    text = content if isinstance(content, str) else json.dumps(content)
    other.metadata_props[0].value = text
    (tmp_path / "m.onnx").write_bytes(seal(other.SerializeToString()))
    with pytest.raises(FileError, match=message):
        runtime.load(tmp_path / "m.onnx")


@pytest.mark.parametrize("word", [b"walk", b"onesigma\x12", b"batch", b"mean", b"input"])
def test_text_that_is_no_utf8(path, word, tmp_path, capfd):
    """Class names, keys, sizes and names of tensors."""
    content = path.read_bytes()[:-85]
    assert word in content
    (tmp_path / "m.onnx").write_bytes(seal(content.replace(word, b"\xff\xfe" + word[2:])))
    with pytest.raises(FileError, match=r"m\.onnx .*utf-8"):
        runtime.load(tmp_path / "m.onnx")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("location", ["../secret.bin", "{}/secret.bin", "link.bin"])
def test_weights_outside_the_folder_are_not_read(path, location, tmp_path):
    """ONNX Runtime refuses this; if it ever stops to, this test tells."""
    folder, secret = tmp_path / "models", tmp_path / "secret.bin"
    folder.mkdir()
    (folder / "link.bin").symlink_to(secret)
    other = onnx.load(path)
    weight = max(other.graph.initializer, key=lambda each: len(each.raw_data))
    secret.write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location.format(tmp_path))
    (folder / "m.onnx").write_bytes(other.SerializeToString())
    with pytest.raises(FileError, match=r"m\.onnx cannot be read"):
        runtime.load(folder / "m.onnx", check=False)


def test_a_failure_of_the_runtime_is_an_error_of_ours():
    class Failing:
        def get_inputs(self):
            return [SimpleNamespace(name="x", type="tensor(float)", shape=["batch", 5, 2])]

        def get_outputs(self):
            return []

        def run(self, *_args):
            raise RuntimeError("no kernel")

    model = runtime.Model(Failing(), {"class_dim": 1})
    with pytest.raises(ModelError, match="cannot answer this input: no kernel"):
        model(X.numpy())


def test_onnxruntime_is_asked_for_by_name(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(PackageError, match="pip install onnxruntime"):
        runtime.load(path)


def test_an_exported_file_is_told_from_others(path, tmp_path):
    other = onnx.load(path)
    assert is_exported(path)
    del other.metadata_props[0]
    onnx.save(other, tmp_path / "m.onnx")
    assert is_exported(tmp_path / "m.onnx")  # one entry is damaged: it is still no other's file
    other.metadata_props[0].key = "somebody"
    other.doc_string = "not of onesigma"
    onnx.save(other, tmp_path / "m.onnx")
    assert not is_exported(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").write_bytes(b"")
    assert not is_exported(tmp_path / "m.onnx")


def test_no_torch_is_imported(path):
    """In a process of its own, from the import to the answer."""
    program = f"""
import sys
import numpy as np
from onesigma import runtime
answer = runtime.load({str(path)!r}, threads=1)(np.zeros((2, 5, 2), np.float32))
assert answer.probs.shape == (2, 3)
heavy = {{"torch", "safetensors", "scipy", "onnx", "matplotlib"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
