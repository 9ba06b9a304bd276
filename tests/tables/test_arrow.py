"""Columns between numpy and pyarrow, against what pyarrow itself makes of them."""

import subprocess
import sys

import numpy as np
import pytest

from onesigma.tables.arrow import to_arrow, to_numpy

pyarrow = pytest.importorskip("pyarrow")
NUMBERS = [np.float32, np.float64, np.int64, np.int32, np.uint8]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers(dtype):
    column = np.arange(14).astype(dtype)
    for part in (column, column[3:9], column[::2], column[:0]):
        made = to_arrow(part)
        assert made.equals(pyarrow.array(part))
        assert np.array_equal(to_numpy(made), part)
        assert to_numpy(made).dtype == dtype
    assert np.array_equal(to_numpy(to_arrow(column).slice(4, 5)), column[4:9])


@pytest.mark.parametrize(
    "words", [["sure", "", "≤ 3 … 4", "sure", "\N{GREEK SMALL LETTER SIGMA}"], ["x"], []]
)
def test_words(words):
    made = to_arrow(np.array(words, object))
    made.validate(full=True)
    assert made.equals(pyarrow.array(words, "string"))
    assert to_numpy(made).tolist() == words


@pytest.mark.parametrize("values", [[1.5, None, 2.0], [True, False, None], [True, False]])
def test_what_is_missing_or_no_number_goes_by_way_of_pyarrow(values):
    column = pyarrow.array(values)
    np.testing.assert_array_equal(to_numpy(column), column.to_numpy(zero_copy_only=False))


def test_pandas_is_not_loaded():
    pytest.importorskip("pandas")
    code = (
        "import sys, numpy as np; from onesigma.tables.arrow import to_arrow, to_numpy; "
        "to_numpy(to_arrow(np.arange(3))); to_arrow(np.array(['a', 'b'], object)); "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
