import re

import numpy as np
import pytest

from onesigma.errors import DataError
from onesigma.lab.datasets import opportunity
from onesigma.lab.datasets.prepared import data_root

ROWS = 75


def table():
    """Column c of row i holds 1000 c + i; the person stands for half of the run and then walks."""
    values = 1000.0 * np.arange(1, 251) + np.arange(ROWS)[:, None]
    values[:, 243] = np.where(np.arange(ROWS) < 45, 1, 2)
    return values


def write(folder, run, values):
    folder.mkdir(parents=True, exist_ok=True)
    lines = (" ".join("NaN" if np.isnan(v) else f"{v:.0f}" for v in row) for row in values)
    (folder / f"{run}.dat").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opportunity") / "dataset"
    write(folder, "S1-ADL1", table())
    for run in opportunity.RUNS[1:]:
        (folder / f"{run}.dat").write_bytes((folder / "S1-ADL1.dat").read_bytes())
    return folder


@pytest.fixture
def one(tmp_path, dataset):
    """The dataset in a folder of its own, and a way to change the run S1-ADL1."""
    for path in dataset.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())

    def change(values):
        write(tmp_path, "S1-ADL1", values)
        return opportunity.recordings(tmp_path)[0]

    return change


def test_all_runs_are_read(dataset):
    found = opportunity.recordings(dataset)
    assert len(found) == 24
    assert [found[i].name for i in (0, 5, 23)] == ["S1-ADL1", "S1-Drill", "S4-Drill"]
    first = found[0]
    assert (first.user, first.rate) == ("S1", 30.0)
    assert first.triads == tuple((i, i + 1, i + 2) for i in range(0, 15, 3))
    # Hip 5–7, left lower arm 90–95, right shoe 125–130.
    columns = [5, 6, 7, 90, 91, 92, 93, 94, 95, 125, 126, 127, 128, 129, 130]
    assert first.signal[3].tolist() == [1000 * c + 3 for c in columns]
    assert first.labels.tolist() == [0] * 45 + [1] * 30


def test_windows_are_of_a_second_and_most_instants_decide(dataset):
    split = opportunity.OPPORTUNITY.windows(opportunity.recordings(dataset)[:1])
    # The window from 30 on would be half standing and half walking: nothing decides.
    assert split.inputs[:, 0, 0, 0].tolist() == [5000, 5015, 5045]
    assert split.inputs.shape == (3, 5, 3, 30)
    assert split.labels.tolist() == [0, 0, 1]


def parts(motion_set, found):
    return {part: [r.name for r in runs] for part, runs in motion_set.parts(found).items()}


def test_the_split_is_the_papers_sentence(dataset):
    found = parts(opportunity.OPPORTUNITY, opportunity.recordings(dataset))
    assert found["test"] == ["S1-ADL2", "S2-ADL4", "S2-ADL5", "S3-ADL4", "S3-ADL5"]
    assert found["validation"] == ["S2-ADL3"]
    assert len(found["train"]) == 18


def test_the_other_reading_is_that_of_its_sizes(dataset):
    found = parts(opportunity.OPPORTUNITY_BY_SIZE, opportunity.recordings(dataset))
    assert found["test"] == ["S2-ADL4", "S2-ADL5", "S3-ADL4", "S3-ADL5"]
    assert found["validation"] == ["S1-ADL2"]
    assert len(found["train"]) == 13
    assert not [name for name in found["train"] if name.startswith("S4")]


def test_lost_readings_lie_on_the_line_between_their_neighbours(one):
    values = table()
    values[10:20, 4] = np.nan
    values[:3, 5] = np.nan
    values[-2:, 5] = np.nan
    values[40, 200] = np.nan
    found = one(values)
    assert found.signal[:, 0].tolist() == (5000.0 + np.arange(ROWS)).tolist()
    assert found.signal[:4, 1].tolist() == [6003] * 4
    assert found.signal[-3:, 1].tolist() == [6072] * 3
    assert -1 not in found.labels


def test_a_sensor_silent_for_a_second_leaves_no_label(one):
    values = table()
    values[10:39, 4] = np.nan
    assert -1 not in one(values).labels
    values[10:40, 4] = np.nan
    assert np.flatnonzero(one(values).labels == -1).tolist() == list(range(10, 40))
    values[45:, 4] = np.nan
    assert np.flatnonzero(one(values).labels == -1)[-30:].tolist() == list(range(45, 75))


def test_null_and_the_other_modes_have_their_numbers(one):
    values = table()
    values[:5, 243] = [0, 1, 2, 4, 5]
    assert one(values).labels[:5].tolist() == [-1, 0, 1, 2, 3]


def spoilt(change):
    values = table()
    change(values)
    return values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (table()[:, :249], "expected 250 columns, found 249"),
        (spoilt(lambda v: v[:, 243].fill(3)), r"column 244 holds \{3.0\}"),
        (spoilt(lambda v: v[:, 243].fill(np.nan)), "column 244 holds"),
        (spoilt(lambda v: v[:, 90].fill(np.nan)), "column 91 holds no number"),
    ],
)
def test_another_layout_is_refused(one, values, message):
    with pytest.raises(DataError, match=f"S1-ADL1.*{message}"):
        one(values)


def test_a_truncated_run_is_refused(one, tmp_path):
    path = tmp_path / "S3-ADL2.dat"
    path.write_text(path.read_text()[:-500])
    with pytest.raises(DataError, match=r"S3-ADL2\.dat cannot be read"):
        opportunity.recordings(tmp_path)
    path.write_text("")
    with pytest.raises(DataError, match="expected 250 columns, found 0"):
        opportunity.recordings(tmp_path)


def test_absent_runs_are_all_named(one, tmp_path):
    for run in ("S2-ADL1", "S4-Drill"):
        (tmp_path / f"{run}.dat").unlink()
    with pytest.raises(DataError, match="lacks S2-ADL1, S4-Drill"):
        opportunity.recordings(tmp_path)


@pytest.fixture(scope="module")
def layout():
    try:
        folder = data_root() / "opportunity_layout"
    except DataError as error:
        pytest.skip(str(error))
    if not folder.is_dir():
        pytest.skip(f"no {folder.name} in the data folder")
    return folder


def test_the_official_names_of_the_columns(layout):
    text = (layout / "column_names.txt").read_text(encoding="latin-1")
    names = {int(n): name for n, name in re.findall(r"Column: (\d+) ([^;\r\n]+)", text)}
    assert len(names) == opportunity.COLUMN_COUNT
    assert [names[column] for column in opportunity.COLUMNS] == [
        *(f"Accelerometer HIP acc{axis}" for axis in "XYZ"),
        *(f"InertialMeasurementUnit LLA {s}{axis}" for s in ("acc", "gyro") for axis in "XYZ"),
        *(f"InertialMeasurementUnit R-SHOE Body_A{axis}" for axis in "xyz"),
        *(f"InertialMeasurementUnit R-SHOE AngVelBodyFrame{axis}" for axis in "XYZ"),
    ]
    assert names[opportunity.LABEL_COLUMN] == "Locomotion"


def test_the_official_numbers_of_the_modes(layout):
    text = (layout / "label_legend.txt").read_text(encoding="latin-1")
    legend = dict(re.findall(r"(\d+)\s+-\s+Locomotion\s+-\s+(\w+)", text))
    ours = {str(n): opportunity.CLASS_NAMES[c] for n, c in opportunity.LABELS.items() if c >= 0}
    assert {number: name.lower() for number, name in legend.items()} == ours
