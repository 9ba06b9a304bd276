import numpy as np
import pytest

from onesigma.tables.words import Words

TEXTS = ["act", "", "≤ 3", "act", "abstain", "act", ""]


def test_it_holds_what_it_was_given():
    words = Words.of(TEXTS)
    assert words.tolist() == list(words) == TEXTS
    assert len(words) == 7
    assert np.asarray(words).tolist() == TEXTS
    assert np.asarray(words).dtype == words.dtype
    assert sorted(words.words) == ["", "abstain", "act", "≤ 3"]
    assert Words.of([]).tolist() == []
    assert Words.all("x", 3).tolist() == ["x"] * 3


def test_rows_are_taken_as_from_an_array():
    words, array = Words.of(TEXTS), np.array(TEXTS, object)
    for rows in (slice(2, 5), slice(0), np.array([6, 0, 0]), array == "act"):
        assert words[rows].tolist() == array[rows].tolist()


def test_which_rows_have_a_word():
    assert Words.of(TEXTS).are("act", "no such").tolist() == [t == "act" for t in TEXTS]
    assert Words.of(TEXTS).are("", "abstain").sum() == 3


def test_columns_are_joined_whatever_their_numbers():
    parts = [Words(("a", "b"), np.array([1, 0])), Words(("b", "c"), np.array([0, 1, 1]))]
    assert Words.cat(parts).tolist() == ["b", "a", "b", "c", "c"]


def test_count_has_the_commonest_first():
    assert list(Words.of(TEXTS).count().items()) == [
        ("act", 3),
        ("", 2),
        ("≤ 3", 1),
        ("abstain", 1),
    ]
    assert Words(("a", "never"), np.array([0])).count() == {"a": 1}


@pytest.mark.parametrize("kept", [[True] * 7, [False] * 7, [True, False] * 3 + [True]])
def test_where_takes_the_other_one(kept):
    other = Words.all("broken input", 7)
    wanted = [t if keep else "broken input" for t, keep in zip(TEXTS, kept, strict=True)]
    assert Words.of(TEXTS).where(np.array(kept), other).tolist() == wanted
