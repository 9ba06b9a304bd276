"""The example runs as it stands; its parts on a stand-in for the model."""

import importlib.util
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from onesigma.runtime import Prediction

FILE = Path(__file__).parents[2] / "examples" / "sensor_stream.py"


@pytest.fixture(scope="module")
def stream():
    spec = importlib.util.spec_from_file_location("sensor_stream", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prediction(probs, act=None) -> Prediction:
    probs = np.array([probs])
    entropy = -(probs * np.log(probs)).sum(1)
    return Prediction(np.log(probs), probs, probs, entropy, entropy, 0 * entropy, act=act)


class Loud:
    """Sure of "loud" or "quiet" by the mean of the window; torn between the two near zero."""

    input_shapes = ((None, 2, 1, 4),)
    class_names = ("quiet", "loud")

    def __call__(self, x):
        assert x.shape == (1, 2, 1, 4)
        assert (x[0, 1] == 10 * x[0, 0]).all()  # channels are not mixed up
        loud = 1 / (1 + np.exp(-x[0, 0].mean()))
        return prediction([1 - loud, loud])


def test_it_abstains_where_it_is_in_doubt(stream):
    assert stream.decide(prediction([0.02, 0.98]), ["a", "b"], 0.5) == "b 0.98"
    assert stream.decide(prediction([0.02, 0.98]), None, 0.5) == "1 0.98"
    assert stream.decide(prediction([0.5, 0.5]), ["a", "b"], 0.5).startswith("unsure (entropy 0.69")


def test_the_rule_of_the_model_has_the_word(stream):
    assert stream.decide(prediction([0.5, 0.5], np.array([True])), ["a", "b"], 0.5) == "a 0.50"
    assert "unsure" in stream.decide(prediction([0.01, 0.99], np.array([False])), ["a", "b"], 0.5)


def test_a_stream_from_end_to_end(stream, monkeypatch, capsys):
    levels = [-5] * 4 + [0] * 4 + [5] * 4
    text = "a,b\n" + "".join(f"{level},{10 * level}\n" for level in levels) + "1,2,3\n"
    monkeypatch.setattr(stream.runtime, "load", lambda path, threads: Loud())
    monkeypatch.setattr(sys, "argv", ["sensor_stream", "m.onnx", "--rate", "2", "--hop", "4"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert stream.main() == 0
    out = capsys.readouterr()
    lines = [line.split(maxsplit=2)[2] for line in out.out.splitlines()]
    assert lines[0] == "quiet 0.99"
    assert lines[1].startswith("unsure")
    assert lines[2] == "loud 0.99"
    assert "3 windows" in out.err
    assert "1 lines could not be read" in out.err


def test_a_missing_model_is_explained(stream, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sensor_stream", "absent.onnx"])
    assert stream.main() == 1
    assert "no such file" in capsys.readouterr().err
