"""Lines become instants, instants become windows."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onesigma.tables import stream
from onesigma.tables.stream import Lines, lines, windows


def test_windows():
    found = list(windows(([float(i)] for i in range(9)), length=4, hop=2))
    assert [end for end, _ in found] == [4, 6, 8]
    assert found[1][1].ravel().tolist() == [2, 3, 4, 5]
    assert found[0][1].dtype == np.float32


def test_a_window_is_not_overwritten_by_the_next():
    first, second = (w for _, w in windows(([i] for i in range(3)), length=2, hop=1))
    assert first.ravel().tolist() == [0, 1]
    assert second.ravel().tolist() == [1, 2]


@given(st.text(alphabet="1,\n", max_size=40), st.lists(st.integers(0, 40), max_size=8))
def test_lines_do_not_depend_on_how_the_text_is_cut(text, cuts):
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b].encode() for a, b in pairwise(places)]
    assert list(lines(pieces)) == text.removesuffix("\n").split("\n") * bool(text)


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(stream, "LONGEST_LINE", 10)
    found = list(lines([b"1,2,3,4,5,6,", b"7,8\n", b"1,2\n"]))
    assert found == ["1,2,3,4,5,6,", "?7,8", "1,2"]  # the rest does not pass for two channels
    reader = Lines(2)
    assert [list(instant) for instant in reader.instants(found)] == [[1, 2]]
    assert reader.bad == 2


@pytest.mark.parametrize("line", ["1,2.5", "1;2.5", "1 2.5", "1\t 2.5", " 1 , 2.5\r", "1e0,25e-1"])
def test_what_an_instant_looks_like(line):
    reader = Lines(2)
    (instant,) = reader.instants([line])
    assert instant.tolist() == [1, 2.5]
    assert instant.dtype == np.float32
    assert reader.bad == 0


@pytest.mark.parametrize(
    "line", ["1", "1,2,3", "1,", ",", "1,x", "nan,1", "1,-inf", "1,1e300", "?"]
)
def test_what_is_none_is_counted(line):
    reader = Lines(2)
    assert [list(instant) for instant in reader.instants(["0,0", line, "", "3,4"])] == [
        [0, 0],
        [3, 4],
    ]
    assert reader.bad == 1


def test_bytes_that_are_no_text():
    reader = Lines(1)
    assert len(list(reader.instants(lines([b"\xff\xfe\x00\n1\n"])))) == 1


def test_a_header_names_the_channels():
    reader = Lines(2, columns=["y", "0"])
    found = list(reader.instants(['"t", x, y', "1,2,3", "t,x,y"]))
    assert [list(instant) for instant in found] == [[3, 1]]
    assert reader.names == ["y", "t"]
    assert reader.bad == 1  # a header is the first line, or none


def test_columns_that_a_line_lacks():
    reader = Lines(2, columns=["1-2"])
    assert [list(instant) for instant in reader.instants(["0,1,2", "0,1"])] == [[1, 2]]
    assert reader.bad == 1


def test_no_pytorch_is_imported():
    """By the tables, the command line and the live view."""
    code = (
        "import sys, onesigma.pages.live.server, onesigma.cli.main, onesigma.tables.answers; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_decimal_comma_after_semicolons():
    reader = Lines(2)
    found = list(reader.instants(["0,5;1", "-1,25;2"]))
    assert np.array(found).tolist() == [[0.5, 1], [-1.25, 2]]
    assert (reader.bad, reader.header) == (0, None)
