"""Labels and groups: the same from every kind of file, names and numbers."""

from pathlib import Path

import numpy as np
import pytest

from onesigma.errors import DataError
from onesigma.tables.labels import read_groups, read_labels

NAMES = ("walk", "run", "rest")
NUMBERS = [1, 0, 2, 1]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n2\n1\n",
        "label\n1\n0\n2\n1\n",
        "what\n1.0\n0\n2\n1\n\n",
        "run\nwalk\nrest\nrun\n",
        "label\n run\nwalk\nrest\nrun\n",
        "kind\nrun\nwalk\nrest\nrun\n",
        ",label\n0,run\n1,walk\n2,rest\n3,run\n",
        "Label;t\nrun;0,5\nwalk;1\nrest;1,5\nrun;2\n",
    ],
)
def test_labels_from_csv(text, tmp_path):
    assert read_labels(write(tmp_path / "y.csv", text), NAMES).tolist() == NUMBERS


def test_labels_from_arrays(tmp_path):
    np.save(tmp_path / "y.npy", np.array(NUMBERS))
    assert read_labels(tmp_path / "y.npy").tolist() == NUMBERS
    np.save(tmp_path / "y.npy", np.array(NAMES)[NUMBERS])
    assert read_labels(tmp_path / "y.npy", NAMES).tolist() == NUMBERS
    np.savez(tmp_path / "y.npz", NUMBERS)
    assert read_labels(tmp_path / "y.npz").tolist() == NUMBERS


def test_true_values_of_a_regression(tmp_path):
    values = read_labels(write(tmp_path / "y.csv", "y\n0.5\n-1\n"))
    assert values.dtype == np.float32
    assert values.tolist() == [0.5, -1]


def test_classes_whose_names_are_numbers(tmp_path):
    path = write(tmp_path / "y.csv", "2\n1\n3\n")
    assert read_labels(path, ("1", "2", "3")).tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("text", "names", "says"),
    [
        ("run\nwalkk\n", NAMES, "'walkk' is no class; the classes are walk, run, rest"),
        ("run\nwalk\n", (), "holds names such as 'walk': say with --class-names"),
        ("a,b\n1,2\n", NAMES, r"y\.csv has 2 columns \(a, b\)"),
        ("a,label\n1\n", NAMES, "line 2: there is no column 1"),
        ("\n", NAMES, "is empty"),
    ],
)
def test_what_is_wrong_is_named(text, names, says, tmp_path):
    with pytest.raises(DataError, match=says):
        read_labels(write(tmp_path / "y.csv", text), names)


def test_absent_files(tmp_path):
    with pytest.raises(DataError, match=r"y\.csv: there is no such file"):
        read_labels(tmp_path / "y.csv")


@pytest.mark.parametrize("text", ["b\na\nb\n", "who\nb\na\nb\n", "group\n7\n3\n7\n", "7\n3\n7\n"])
def test_groups(text, tmp_path):
    assert read_groups(write(tmp_path / "g.csv", text)).tolist() == [1, 0, 1]
