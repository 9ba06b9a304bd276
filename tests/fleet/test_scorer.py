"""A scorer answers as the runtime does, goes to other processes, and survives every row."""

import pickle  # noqa: TID251 - as the engines do
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from fleet_files import CHANNELS, WINDOW, signal
from torch import nn

import onesigma
from onesigma import runtime
from onesigma.errors import DataError, FileError, InputError
from onesigma.fleet import Scorer

RNG = np.random.default_rng(3)
X = np.stack([signal(RNG, WINDOW).T for _ in range(150)])


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)


def test_it_says_what_the_runtime_says(model):
    answers = Scorer(model, inputs="x", batch=150)({"x": X, "device": np.arange(150)})
    expected = runtime.load(model, threads=1)(X)
    names = np.array(["walk", "run", "sit"])
    np.testing.assert_array_equal(answers["device"], np.arange(150))
    np.testing.assert_array_equal(answers["label"], names[expected.label])
    np.testing.assert_array_equal(answers["probability"], expected.confidence)
    for name in ("entropy", "epistemic", "aleatoric", "novelty"):
        np.testing.assert_array_equal(answers[name], getattr(expected, name))
    np.testing.assert_array_equal(answers["act"] == "act", expected.act)
    assert answers["reason"].tolist() == expected.reason
    assert len(set(answers["model"])) == 1


def test_it_goes_to_another_process_before_and_after_it_ran(model):
    scorer = Scorer(model, inputs="x")
    before = pickle.loads(pickle.dumps(scorer))
    expected = scorer({"x": X})
    same(before({"x": X}), expected)
    after = pickle.dumps(scorer)
    assert len(after) < len(scorer.content) + 2000, "the runtime went with it"
    same(pickle.loads(after)({"x": X}), expected)
    same(Scorer(model.read_bytes(), inputs="x")({"x": X}), expected)


def test_it_runs_without_pytorch_and_on_one_thread(model, monkeypatch, tmp_path):
    code = (
        "import sys, numpy as np; sys.modules['torch'] = None; from onesigma.fleet import Scorer;"
        f"x = np.zeros((2, 3, {WINDOW}), np.float32);"
        f"print(Scorer({str(model)!r}, inputs='x')({{'x': x}})['reason'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['broken input' 'broken input']\n"
    seen, start = [], onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda a, o, **k: seen.append(o) or start(a, o, **k)
    )
    new = tmp_path / "new.onnx"  # not yet open in this process
    new.write_bytes(model.read_bytes())
    for _ in range(2):
        Scorer(new, inputs="x")({"x": X})
    assert [options.intra_op_num_threads for options in seen] == [1]


def test_what_passes_through(model):
    data = {"x": X[:4], "a": np.arange(4), "b": np.array(["q"] * 4)}
    assert [*Scorer(model, inputs="x")(data)][:2] == ["a", "b"]
    assert "a" not in Scorer(model, inputs="x", keep=["b"])(data)
    assert next(iter(Scorer(model, inputs="x", keep=[])(data))) == "label"
    with pytest.raises(InputError, match="both have a column 'label'"):
        Scorer(model, inputs="x")(data | {"label": np.arange(4)})
    with pytest.raises(InputError, match="no column 'y'; there are x, a, b"):
        Scorer(model, inputs="y")(data)


def test_windows_of_one_recording(model):
    rows = signal(np.random.default_rng(5), 100)
    columns = {name: rows[:, i] for i, name in enumerate(CHANNELS)}
    expected = Scorer(model, inputs="x")(
        {"x": np.stack([rows[s : s + WINDOW].T for s in (0, 20, 40, 60)])}
    )
    data = {"t": np.arange(100.0)} | columns
    found = Scorer(model, window=WINDOW, hop=20)(data)  # the contract names the columns
    np.testing.assert_array_equal(found.pop("t"), [0, 20, 40, 60])
    same(found, expected)
    short = Scorer(model, window=WINDOW)({name: each[:9] for name, each in data.items()})
    assert short.keys() == {"t", *expected}
    assert all(len(column) == 0 for column in short.values())


BROKEN = {
    "nan": np.full((3, WINDOW), np.nan),
    "infinite": np.full((3, WINDOW), np.inf),
    "one number": 3.0,
    "nothing": None,
    "empty": np.empty(0),
    "short": np.zeros((3, WINDOW - 1)),
    "text": np.full((3, WINDOW), "a"),
    "words": "words",
    "flat line": np.zeros((3, WINDOW)),
    "uneven": [[1.0, 2.0], [3.0]],
    "turned": np.ones((WINDOW, 3)),
}


def test_no_row_stops_a_job(model):
    column = np.empty(len(BROKEN) + 2, object)
    column[:] = [X[0], *BROKEN.values(), X[1].ravel().tolist()]
    answers = Scorer(model, inputs="x")({"x": column})
    assert answers["reason"][1:-1].tolist() == ["broken input"] * len(BROKEN)
    assert answers["act"][1:-1].tolist() == ["abstain"] * len(BROKEN)
    assert all(answers["odd"][1:-1])
    said = dict(zip(BROKEN, answers["odd"][1:-1], strict=True))
    assert said["one number"] == f"an array of shape (), the model takes (3, {WINDOW})"
    assert said["short"] == f"an array of shape (3, {WINDOW - 1}), the model takes (3, {WINDOW})"
    assert said["turned"] == f"an array of shape ({WINDOW}, 3), the model takes (3, {WINDOW})"
    assert said["uneven"] == said["text"] == said["words"] == "no array of numbers"
    assert answers["label"][1:9].tolist() == [""] * 8
    whole = Scorer(model, inputs="x")({"x": X[:2]})
    for name in ("label", "reason", "model"):
        assert answers[name][[0, -1]].tolist() == whole[name].tolist()
    np.testing.assert_allclose(answers["entropy"][[0, -1]], whole["entropy"], rtol=1e-5)


class OneSize(nn.Module):
    """Takes a batch of two only."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.reshape(2, 2))


def test_a_batch_of_another_shape_stops_no_job(model):
    """Windows of a device that all have another length lie in one plain array."""
    answers = Scorer(model, inputs="x")({"x": X[:, :, 1:]})
    assert set(answers["reason"]) == {"broken input"}
    assert set(answers["odd"]) == {
        f"an array of shape (3, {WINDOW - 1}), the model takes (3, {WINDOW})"
    }


def test_arrays_of_arrays_are_one(model):
    """As pyarrow gives a column of lists of lists."""
    nested = np.empty(5, object)
    for i in range(5):
        nested[i] = np.empty(3, object)
        nested[i][:] = [*X[i]]
    same(Scorer(model, inputs="x")({"x": nested}), Scorer(model, inputs="x")({"x": X[:5]}))


@pytest.mark.parametrize("fixed", [False, True])
def test_rows_of_a_model_without_guard_and_with_one_batch_size(fixed, tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    network, x = (OneSize(network) if fixed else network).eval(), torch.zeros(2, 2)
    onesigma.export(onesigma.convert(network, x), tmp_path / "m.onnx", example_input=x)
    assert runtime.load(tmp_path / "m.onnx").input_shapes == [(2 if fixed else None, 2)]
    scorer = Scorer(tmp_path / "m.onnx", inputs=["a", "b"])
    answers = scorer({"a": np.array([1, 2, np.nan]), "b": np.array([1.0, 2.0, 3.0])})
    assert answers["reason"].tolist() == ["", "", "broken input"]
    assert answers["label"][2] == -1
    assert answers["label"][0] in (0, 1, 2)
    assert "act" not in answers
    with pytest.raises(InputError, match="does not name its channels"):
        Scorer(tmp_path / "m.onnx")({"a": np.zeros(3)})
    with pytest.raises(DataError, match=r"samples of shape \(1\), the model takes \(2\)"):
        Scorer(tmp_path / "m.onnx", inputs=["a"])({"a": np.zeros(3)})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"window": 0}, "window=0: at least 1"),
        ({"batch": 0}, "batch=0: at least 1"),
        ({"hop": 2}, "hop is for windows"),
        ({"window": 4, "inputs": "x"}, "name them as a list"),
    ],
)
def test_options_that_make_no_sense(model, options, says):
    with pytest.raises(InputError, match=says):
        Scorer(model, **options)


def test_what_is_no_exported_model(tmp_path):
    for name, says in {"m.safetensors": "is no .onnx file", "m.onnx": "no such file"}.items():
        with pytest.raises(FileError, match=says):
            Scorer(tmp_path / name)
    with pytest.raises(FileError, match="carries no onesigma metadata"):
        Scorer(b"nothing")({"x": X})
