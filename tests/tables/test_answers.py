"""Predictions as tables: what the columns hold, and that files appear whole or not at all."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from onesigma.errors import InputError, ModelError
from onesigma.runtime import Prediction
from onesigma.tables.answers import table_writer, tabulate

PREDICTION = Prediction(
    mean=np.array([[1.0, 0.0], [0.0, 2.0]]),
    var=np.array([[4.0, 1.0], [0.25, 9.0]]),
    probs=np.array([[0.75, 0.25], [0.125, 0.875]]),
    entropy=np.array([0.5, 0.25]),
    aleatoric=np.array([0.25, 0.125]),
    epistemic=np.array([0.25, 0.125]),
)


def lists(table) -> dict[str, list]:
    return {name: column.tolist() for name, column in table.items()}


def arrays(table) -> dict[str, np.ndarray]:
    """Text as objects, as ``tabulate`` gives it: numpy would cut it at a zero byte."""
    kinds = {name: object if isinstance(v[0], str) else None for name, v in table.items()}
    return {name: np.array(values, kinds[name]) for name, values in table.items()}


def test_classes():
    assert lists(tabulate(PREDICTION)) == {
        "label": [0, 1],
        "probability": [0.75, 0.875],
        "entropy": [0.5, 0.25],
        "epistemic": [0.25, 0.125],
        "aleatoric": [0.25, 0.125],
    }


def test_names_probabilities_and_acts():
    prediction = replace(PREDICTION, act=np.array([False, True]))
    table = lists(tabulate(prediction, ["walk", "run"], probs=True))
    assert table["label"] == ["walk", "run"]
    assert table["p_walk"] == [0.75, 0.125]
    assert table["p_run"] == [0.25, 0.875]
    assert table["act"] == ["abstain", "act"]


def test_regression():
    several = Prediction(PREDICTION.mean, PREDICTION.var)
    assert lists(tabulate(several)) == {
        "mean_0": [1, 0], "std_0": [2, 0.5], "mean_1": [0, 2], "std_1": [1, 3],
    }  # fmt: skip
    one = Prediction(PREDICTION.mean[:, 0], PREDICTION.var[:, 0])
    assert lists(tabulate(one)) == {"mean": [1, 0], "std": [2, 0.5]}


def test_what_is_no_table():
    with pytest.raises(InputError, match=r"3 class names \(a, b, c\) for 2 classes"):
        tabulate(PREDICTION, ["a", "b", "c"])
    with pytest.raises(ModelError, match="one answer per sample"):
        tabulate(replace(PREDICTION, probs=np.ones((2, 2, 5))))


TABLES = [{"index": [0, 1], "label": ["a, b", 'c"']}, {"index": [2], "label": ["→"]}]


def read(path) -> list[dict]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [{**row, "index": int(row["index"])} for row in csv.DictReader(file)]
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


def interrupt(path) -> None:
    with table_writer(path) as write:
        write(arrays(TABLES[1]))
        raise KeyboardInterrupt


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_appear_whole_or_not_at_all(suffix, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{suffix}"
    with table_writer(path) as write:
        for table in TABLES:
            write(arrays(table))
        assert not path.exists()
    expected = [
        {"index": 0, "label": "a, b"},
        {"index": 1, "label": 'c"'},
        {"index": 2, "label": "→"},
    ]
    assert read(path) == expected
    with pytest.raises(KeyboardInterrupt):
        interrupt(path)
    assert read(path) == expected
    assert list(tmp_path.iterdir()) == [path]


def test_standard_output(capsys):
    with table_writer(None) as write:
        write(arrays({"label": [3], "entropy": [0.123456789]}))
    assert capsys.readouterr().out == "label,entropy\n3,0.123457\n"


@pytest.mark.parametrize(
    ("name", "says"), [("out.xlsx", r"as \.csv or \.parquet"), ("none/out.csv", "is not a folder")]
)
def test_where_it_cannot_be_written(name, says, tmp_path):
    with pytest.raises(InputError, match=says), table_writer(tmp_path / name):
        pass


HOSTILE = {
    "=1+1": "'=1+1",
    "+cmd": "'+cmd",
    "-x": "'-x",
    "@SUM(A1)": "'@SUM(A1)",
    "\t=1": r"'\t=1",
    "\r=1": r"'\r=1",
    "\x1b[2J": r"\x1b[2J",
    "a\rb": r"a\rb",
    **{each: each for each in ("-0.5", "+3", "walk", "a=b", "two\nlines", "a,b", "")},
}


def test_class_names_are_text_for_spreadsheets_and_terminals(tmp_path, capsys):
    """None is computed, none is obeyed; numbers stay numbers."""
    table = {"label": list(HOSTILE), "=m": [-0.5] * len(HOSTILE), "index": [-1] * len(HOSTILE)}
    for path in (tmp_path / "a.csv", None):
        with table_writer(path) as write:
            write(arrays(table))
    text = (tmp_path / "a.csv").read_bytes().decode()
    assert capsys.readouterr().out == text
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["label", "'=m", "index"]
    assert [row[0] for row in rows] == list(HOSTILE.values())
    assert {tuple(row[1:]) for row in rows} == {("-0.5", "-1")}
