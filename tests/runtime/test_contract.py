"""The contract: places between bounds become values and words again."""

import json

import numpy as np
import pytest

from onesigma.errors import InputError
from onesigma.runtime import Prediction
from onesigma.runtime.contract import Contract, name_channels

LOW = {"mean": (-2.0, 9.0), "std": (0.1, 0.2), "peak": (0.2, 0.4), "step": (0.05, 0.1)}
HIGH = {"mean": (2.0, 11.0), "std": (1.0, 2.0), "peak": (4.0, 8.0), "step": (1.0, 2.0)}
KNOWN = Contract(("x", "y"), LOW, HIGH, ("g", "Pa"), window=50, rate=25.0)
MIDDLE = {"mean": (0.0, 10.0), "std": (0.3, 0.6), "peak": (1.0, 2.0), "step": (0.2, 0.4)}


def places(**values):
    """Where values lie between the bounds, computed by interpolation."""
    rows = []
    for name, middle in MIDDLE.items():
        for channel, value in enumerate(values.get(name, middle)):
            ends = [LOW[name][channel], HIGH[name][channel]]
            if name != "mean":
                ends, value = np.log(ends), np.log(max(value, 1e-9))
            rows.append(2 * (value - ends[0]) / (ends[1] - ends[0]) - 1)
    return np.array(rows)


def answer(*rows, novelty=0.5):
    one = np.zeros((len(rows), 2), np.float32)
    return Prediction(one, one, contract=np.stack(rows), novelty=np.full(len(rows), novelty))


def test_without_figures_the_same_oddity_has_the_same_words():
    both = answer(places(std=(0.01, 0.5)), places(std=(0.02, 0.5)))
    assert len({*KNOWN.explain(both)}) == 2
    assert KNOWN.explain(both, figures=False) == ["channel x: std: flat line?"] * 2


def test_places_become_values():
    found = KNOWN.values(places(mean=(1.5, 10.5), std=(0.2, 1.9)))
    np.testing.assert_allclose(found[0, 0], [1.5, 10.5])
    np.testing.assert_allclose(found[0, 1], [0.2, 1.9])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (places(), ""),
        (places(mean=(96.0, 10.0)), "channel x: mean 96 g, known -2 … 2: other units?"),
        (places(std=(0.3, 1e-7)), "channel y: std ≤ 1e-07 Pa, known 0.2 … 2: flat line?"),
        (places(mean=(2.5, 10.0), std=(1e-3, 0.6)), "channel x: std ≤ 0.001 g"),
        (places(mean=(2.5, 10.0)), "channel x: mean 2.5 g, known -2 … 2"),
        (places(mean=(10.0, 0.0)), "swapped with"),
        (places(mean=(np.nan, 10.0)), "not a number"),
    ],
)
def test_what_is_odd_about_which_channel(row, words):
    (found,) = KNOWN.explain(answer(row))
    assert found.startswith(words) if words.startswith("channel") else words in found
    assert bool(found) == bool(words)


def test_the_unfamiliar_are_named_without_a_guess():
    (found,) = KNOWN.explain(answer(places(mean=(1.9, 10.0)), novelty=0.001))
    assert found == "channel x: mean 1.9 g, known -2 … 2"


def test_reasons():
    given = answer(places(), places(mean=(96.0, 10.0)), places())
    with pytest.raises(AttributeError, match="threshold"):
        _ = given.reason
    acted = Prediction(
        *(given.mean, given.var),
        contract=given.contract,
        novelty=np.array([0.5, 0.5, 0.001]),
        act=np.array([False, False, False]),
    )
    assert acted.reason == ["unsure", "broken input", "unfamiliar"]
    assert acted.in_contract.tolist() == [True, False, True]


def test_it_survives_json():
    assert Contract.from_dict(json.loads(json.dumps(KNOWN.to_dict()))) == KNOWN


@pytest.mark.parametrize(
    "change",
    [
        {"units": ["g"]},
        {"low": {"mean": [1.0]}},
        {"low": {"weight": [1.0, 2.0]}},
        {"low": {}, "high": {}},
        {"high": {"mean": [1.0, 2.0]}},
    ],
)
def test_damage_is_refused(change):
    with pytest.raises(InputError):
        Contract.from_dict(KNOWN.to_dict() | change)


def test_names_are_as_many_as_channels():
    assert name_channels(2, None) == ("0", "1")
    for wrong in (["a"], "ab"):
        with pytest.raises(InputError, match="2 names"):
            name_channels(2, wrong)


def test_an_answer_without_a_guard_is_refused():
    one = np.zeros((1, 2), np.float32)
    with pytest.raises(InputError, match="fit"):
        KNOWN.explain(Prediction(one, one))
