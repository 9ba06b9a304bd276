import numpy as np
import pytest
from lab.datasets import hhar_files
from lab.datasets.hhar_files import row, walk, write

from onesigma.errors import DataError
from onesigma.lab.datasets import hhar
from onesigma.lab.datasets.prepared import data_root


def phones(folder, accelerometer, gyroscope):
    return write(folder, Phones_accelerometer=accelerometer, Phones_gyroscope=gyroscope)


def test_pairs_are_read_off_at_40_hz(tmp_path):
    folder = phones(tmp_path, walk(6.0), walk(6.0, lag=0.004))
    (found,) = hhar.recordings(folder)
    assert (found.rate, found.user, found.triads) == (40.0, "a", ((0, 1, 2), (3, 4, 5)))
    assert len(found.signal) == 240
    # A pair's time is the mean of the two: 2 ms after the accelerometer, 2 ms before the gyroscope.
    time = np.arange(240) / 40
    expected = np.stack([time, 2 * time, -time, time, 2 * time, -time], axis=1)
    expected[:, 3:] += 0.004 * np.array([1, 2, -1])
    assert found.signal == pytest.approx(expected, abs=1e-4)
    assert set(found.labels.tolist()) == {3}


def test_rows_in_disorder_and_readings_without_a_partner_do_no_harm(tmp_path):
    generator = np.random.default_rng(0)
    rows = walk(6.0)
    accelerometer = [rows[i] for i in generator.permutation(len(rows))]
    gyroscope = [line for i, line in enumerate(rows) if i % 3]
    (found,) = hhar.recordings(phones(tmp_path, accelerometer, gyroscope))
    assert found.signal[:, 0] == pytest.approx(0.01 + np.arange(len(found.signal)) / 40, abs=1e-4)


@pytest.mark.parametrize(("lag", "count"), [(0.0095, 1), (0.0105, 0)])
def test_pairs_lie_within_10_ms(tmp_path, lag, count):
    folder = phones(tmp_path, walk(6.0, rate=20.0), walk(6.0, rate=20.0, lag=lag))
    assert len(hhar.recordings(folder)) == count


def test_each_reading_is_used_once():
    fast = hhar.Stream(
        *(np.arange(40) / 200, np.arange(40) / 200, np.arange(40.0)[:, None], np.zeros(40, "i1"))
    )
    slow = hhar.Stream(
        *(np.arange(10) / 50, np.arange(10) / 50, np.arange(10.0)[:, None], np.zeros(10, "i1"))
    )
    pairs = hhar.pair(fast, slow)
    assert pairs.values.tolist() == [[4 * i, i] for i in range(10)]


def test_a_gap_ends_a_recording_and_short_ones_are_left_out(tmp_path):
    rows = [
        line
        for start, stop in ((0, 5.5), (6.2, 8.0), (9.0, 15.0))
        for line in walk(stop - start, lag=start)
    ]
    found = hhar.recordings(phones(tmp_path, rows, rows))
    assert [r.name for r in found] == ["user a, nexus4_1, stretch 0", "user a, nexus4_1, stretch 2"]
    assert [r.seconds for r in found] == [5.5, 6.0]


def test_a_clock_that_stood_still_does_not_join_what_was_apart(tmp_path):
    # The watch sleeps for 30 s; its clock goes on half a second before it stopped.
    before = [(t / 100, t / 100) for t in range(600)]
    after = [(5.5 + t / 100, 36 + t / 100) for t in range(600)]
    rows = [
        row(t, (0, 0, int(arrival > 30)), device="gear_1", arrival=arrival)
        for t, arrival in before + after
    ]
    found = hhar.recordings(write(tmp_path, Watch_accelerometer=rows, Watch_gyroscope=rows))
    assert [set(r.signal[:, 2].tolist()) for r in found] == [{0.0}, {1.0}]


def test_null_is_no_class_and_no_missing_value(tmp_path):
    rows = [
        *walk(6.0, activity="sit"),
        *walk(5.99, lag=6.01, activity="null"),
        *walk(6.0, lag=12.01, activity="bike"),
    ]
    (found,) = hhar.recordings(phones(tmp_path, rows, rows))
    assert found.labels[[0, 230, 250, 470, 490]].tolist() == [1, 1, -1, -1, 0]
    assert hhar.HHAR.windows([found]).labels.tolist() == [1, 0]


def test_where_the_two_disagree_there_is_no_class(tmp_path):
    rows = phones(tmp_path, walk(6.0), walk(6.0, activity="stand"))
    (found,) = hhar.recordings(rows)
    assert set(found.labels.tolist()) == {-1}


def test_people_and_devices_are_kept_apart_and_bad_devices_dropped(tmp_path):
    devices = ("nexus4_1", "s3mini_2", "s3_1")
    rows = [
        line
        for mixed in zip(
            *(walk(6.0, user=user, device=d) for d in devices for user in "bc"), strict=True
        )
        for line in mixed
    ]
    watch = [*walk(6.0, user="c", device="lgwatch_1"), *walk(6.0, device="gear_2")]
    folder = write(
        tmp_path,
        **dict.fromkeys(("Phones_accelerometer", "Phones_gyroscope"), rows),
        **dict.fromkeys(("Watch_accelerometer", "Watch_gyroscope"), watch),
    )
    names = [(r.user, r.name.split(", ")[1]) for r in hhar.recordings(folder)]
    assert names == [
        ("a", "gear_2"),
        *(("b", "nexus4_1"), ("b", "s3_1"), ("c", "nexus4_1"), ("c", "s3_1")),
    ]


def test_small_pieces_give_the_same(tmp_path, monkeypatch):
    folder = phones(tmp_path, walk(6.0), walk(6.0, lag=0.001))
    (whole,) = hhar.recordings(folder)
    monkeypatch.setattr(hhar, "ROWS_AT_ONCE", 7)
    (pieced,) = hhar.recordings(folder)
    assert np.array_equal(whole.signal, pieced.signal)
    assert np.array_equal(whole.labels, pieced.labels)


def test_the_test_user_is_a_and_samples_are_spectra(tmp_path):
    rows = [
        line
        for user in "abi"
        for activity in hhar.CLASS_NAMES
        for line in walk(
            5.1, user=user, activity=activity, lag=100 * hhar.CLASS_NAMES.index(activity)
        )
    ]
    parts = hhar.HHAR.parts(hhar.recordings(phones(tmp_path, rows, rows)))
    assert {part: {r.user for r in found} for part, found in parts.items()} == {
        "train": {"b"},
        "validation": {"i"},
        "test": {"a"},
    }
    splits = hhar.HHAR.splits(parts)
    assert splits.test.inputs.shape == (6, 6, 20, 20)
    assert splits.test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert splits.name == "HHAR"


LINE = row(0.0, (1, 2, 3))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([hhar_files.HEADER.replace("Creation_Time,", ""), LINE], "lacks the columns Creation_T"),
        ([hhar_files.HEADER.replace("User,", "").replace(",gt", ""), LINE], "User, gt"),
        (["", LINE], "lacks the columns"),
        ([hhar_files.HEADER, LINE, LINE.replace(",2,", ",nan,")], "row 2 holds no number"),
        ([hhar_files.HEADER, LINE, LINE.replace(",2,", ",,")], "cannot be read after row 0"),
        ([hhar_files.HEADER, LINE, LINE[:40]], "cannot be read"),
        ([hhar_files.HEADER, LINE[:-2]], "gt holds wa, no activity"),
        ([hhar_files.HEADER, LINE.replace("1424696631913248572", "1.42E+018")], "spreadsheet"),
    ],
)
def test_another_layout_is_refused(tmp_path, lines, message):
    folder = write(tmp_path)
    (folder / "Phones_gyroscope.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=f"Phones_gyroscope.*{message}"):
        hhar.recordings(folder)


def test_an_absent_file_and_strangers_are_named(tmp_path):
    folder = phones(tmp_path, walk(6.0, user="z"), walk(6.0, user="z"))
    with pytest.raises(DataError, match="users z are not of HHAR"):
        hhar.recordings(folder)
    (folder / "Watch_gyroscope.csv").unlink()
    with pytest.raises(DataError, match=r"Watch_gyroscope\.csv"):
        hhar.recordings(folder)


def streams(folder, kind, clock="Creation_Time"):
    """Accelerometer and gyroscope of the one device of an excerpt."""
    for sensor in hhar.SENSORS:
        path = folder / f"{kind}_{sensor}.csv"
        (stream,) = hhar.read_streams(path, clock).values()
        yield stream


@pytest.fixture(scope="module")
def excerpt():
    try:
        folder = data_root() / "hhar_excerpt"
    except DataError as error:
        pytest.skip(str(error))
    if not folder.is_dir():
        pytest.skip(f"no {folder.name} in the data folder")
    return folder


def test_real_rows_of_the_official_files(excerpt):
    found = hhar.recordings(excerpt / "official_head")
    # Of the four bursts of the phone one is long enough; of the watch's, the one of 7.4 s.
    assert [r.name.split(", ")[1] for r in found] == ["nexus4_1", "gear_1"]
    assert [r.seconds for r in found] == pytest.approx([9.1, 7.4], abs=0.1)
    for recording in found:
        assert set(recording.labels.tolist()) == {hhar.CLASS_NAMES.index("stand")}
        gravity = np.linalg.norm(recording.signal[:, :3], axis=1)
        assert np.median(gravity) == pytest.approx(9.81, abs=0.5)
        assert np.median(np.abs(recording.signal[:, 3:])) < 0.1
    assert hhar.HHAR.windows(found).labels.tolist() == [2, 2, 2]
    for kind in hhar.KINDS:
        pairs = hhar.pair(*streams(excerpt / "official_head", kind))
        assert len(pairs.seconds) > 0.99 * 4000


def test_real_rows_of_six_activities(excerpt, tmp_path):
    for name in hhar_files.FILES[:2]:
        source = excerpt / "six_activities" / f"{name}.csv"
        (tmp_path / source.name).write_bytes(source.read_bytes())
    for name in hhar_files.FILES[2:]:
        (tmp_path / f"{name}.csv").write_text(hhar_files.HEADER)
    with pytest.raises(DataError, match="Arrival_Time can still be read"):
        hhar.recordings(tmp_path)
    found = hhar.recordings(tmp_path, clock="Arrival_Time")
    labels = [hhar.CLASS_NAMES[i] for i in hhar.HHAR.windows(found).labels]
    assert labels == ["sit", "stairsup"]
    pairs = hhar.pair(*streams(tmp_path, "Phones", "Arrival_Time"))
    stretches = hhar.stretches(pairs)
    assert [np.median(stretch.labels) for stretch in stretches] == [2, 2, 1, -1, 3, 3, 4, 5, 0]
    # 5 s of each at 200 Hz; several rows arrive in the same millisecond, of which one is paired.
    assert len(pairs.seconds) > 5000
