"""A job keeps its promises on threads: nothing lost, nothing twice, every fault named."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fleet_files import CHANNELS, RATE, WINDOW, table, write, write_fleet

from onesigma import runtime
from onesigma.cli import main as cli
from onesigma.errors import DataError, InputError
from onesigma.fleet import job as job_module
from onesigma.fleet import score

OPTIONS = {"group_by": ["device"], "time": "t", "workers": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_fleet(tmp_path_factory.mktemp("fleet") / "data")


def answers(folder: Path) -> pa.Table:
    return ds.dataset(folder, partitioning="hive").to_table()


def stamps(folder: Path) -> dict[str, int]:
    """When each table was written."""
    found = [path for path in folder.rglob("*.parquet") if not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in found}


def test_every_window_is_answered_as_the_runtime_would(model, data, tmp_path):
    summary = score(model, data, tmp_path / "out", hop=16, **OPTIONS)
    found = answers(tmp_path / "out")
    assert summary.windows == found.num_rows == 6 * 2 * ((2000 - WINDOW) // 16 + 1)
    rows = pq.read_table(data / "day=2" / "part.parquet", partitioning=None)
    own = rows.filter(pa.compute.equal(rows["device"], "b2"))
    x = np.stack([own[name].to_numpy() for name in CHANNELS])
    starts = np.arange(0, x.shape[1] - WINDOW + 1, 16)
    windows = np.stack([x[:, start : start + WINDOW] for start in starts])
    expected = runtime.load(model, threads=1)(windows)
    mine = found.filter(pa.compute.equal(found["device"], "b2"))
    assert mine["start"].to_pylist() == own["t"].take(starts).to_pylist()
    assert set(mine["day"].to_pylist()) == {2}
    np.testing.assert_allclose(mine["entropy"], expected.entropy, rtol=1e-5)
    assert mine["reason"].to_pylist() == expected.reason
    reasons = found["reason"].to_pylist()
    assert summary.reasons == {name: reasons.count(name) / len(reasons) for name in summary.reasons}
    assert summary.coverage == pytest.approx(found["act"].to_pylist().count("act") / len(reasons))


def test_what_is_done_is_not_done_again(model, data, tmp_path):
    out = tmp_path / "out"
    first = score(model, data, out, **OPTIONS)
    before, content = stamps(out), answers(out)
    again = score(model, data, out, **OPTIONS)
    assert stamps(out) == before
    assert (first.skipped, again.skipped) == (0, 6)
    assert again.to_dict() | {"skipped": 0} == first.to_dict()
    (out / "day=3" / "part.parquet").unlink()
    damaged = out / "day=4" / "part.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    mended = score(model, data, out, **OPTIONS)
    assert mended.skipped == 4
    assert answers(out).equals(content)
    assert score(model, data, out, hop=8, **OPTIONS).skipped == 0  # another job
    assert answers(out).num_rows > content.num_rows


def test_a_recording_that_grew_is_scored_again(model, tmp_path):
    data = write_fleet(tmp_path / "data", files=2)
    score(model, data, tmp_path / "out", **OPTIONS)
    write(data / "day=1" / "part.parquet", table(np.random.default_rng(9), {"a1": 4000}))
    again = score(model, data, tmp_path / "out", **OPTIONS)
    assert again.skipped == 1
    assert {device.name: device.windows for device in again.devices} == {
        "a0": 62,
        "b0": 62,
        "a1": 125,
    }


def test_recordings_that_go_on_from_file_to_file(model, tmp_path):
    whole = table(np.random.default_rng(2), {"a": 1000})
    for i, cut in enumerate((slice(0, 333), slice(333, 700), slice(700, 1000))):
        write(
            tmp_path / "data" / "d" / f"{i}.parquet", whole.slice(cut.start, cut.stop - cut.start)
        )
    apart = score(model, tmp_path / "data", tmp_path / "apart", **OPTIONS)
    joined = score(model, tmp_path / "data", tmp_path / "joined", per="folder", **OPTIONS)
    assert (apart.windows, joined.windows) == (10 + 11 + 9, 31)
    assert (tmp_path / "joined" / "d" / "all.parquet").is_file()


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Three good files, and one for each thing that goes wrong."""
    data, rng = write_fleet(tmp_path / "data", files=3), np.random.default_rng(4)
    good = table(rng, {"nan": 10 * WINDOW})
    holes = good["ay"].to_numpy().copy()
    holes[3 * WINDOW + 1] = np.nan
    write(data / "nan.parquet", good.set_column(3, "ay", pa.array(holes)))
    write(data / "slow.parquet", table(rng, {"slow": 10 * WINDOW}, rate=RATE / 2))
    write(data / "missing.parquet", good.drop_columns(["az"]))
    write(data / "text.parquet", good.set_column(2, "ax", pa.array(["?"] * len(good))))
    write(data / "wide.parquet", table(rng, {"wide": 10 * WINDOW}).cast(pa.schema(
        [("device", pa.string()), ("t", pa.timestamp("ns")), *((c, pa.float64()) for c in CHANNELS)]
    )))  # fmt: skip
    write(data / "short.parquet", table(rng, {"short": 5}))
    later = table(rng, {"back": 4 * WINDOW})
    write(data / "back.parquet", pa.concat_tables([later.slice(64), later.slice(0, 64)]))
    write(data / "damaged.parquet", good, write_page_checksum=True)
    content = (data / "damaged.parquet").read_bytes()
    middle = len(content) // 3
    (data / "damaged.parquet").write_bytes(content[:middle] + bytes(300) + content[middle + 300 :])
    (data / "empty.parquet").write_bytes(b"")
    return data


def test_faults_are_named_and_the_rest_is_scored(model, faulty, tmp_path):
    out = tmp_path / "out"
    summary = score(model, faulty, out, **OPTIONS)
    lost = ("damaged", "empty", "missing", "text")
    assert {*summary.failed} == {f"{name}.parquet" for name in lost}
    assert summary.failed["missing.parquet"].startswith("missing.parquet has no column 'az'")
    assert "column 'ax' holds string" in summary.failed["text.parquet"]
    devices = {device.name: device for device in summary.devices}
    good = ("a0", "b0", "a1", "b1", "a2", "b2", "nan", "slow", "wide", "short", "back")
    assert {*devices} == {*good}
    assert devices["nan"].windows == devices["wide"].windows == 10
    assert devices["slow"].reasons == {"broken input": 10}
    odd = {row["device"]: row["odd"] for row in answers(out).to_pylist() if row["odd"]}
    assert odd["slow"] == "rate 25 Hz, known 50 Hz"
    assert not any((out / part).exists() for part in summary.failed)
    with pytest.raises(DataError, match="4 of 12 parts not scored; the others were"):
        summary.require_all()


def test_faults_are_named_everywhere(model, faulty, tmp_path):
    summary = score(model, faulty, tmp_path / "out", **OPTIONS)
    remarks = "\n".join(summary.remarks)
    assert "slow has another rate: 25 rows per second, most have 50." in remarks
    assert "back: time does not go on, 1 time;" in remarks
    assert "short has no window: 5 rows, 0 gaps." in remarks
    page = (tmp_path / "out" / "_summary.html").read_text(encoding="utf-8")
    for part in summary.failed:
        assert f"{part} was not scored: " in remarks
        assert part in page
    noted = json.loads((tmp_path / "out" / "_summary.json").read_text(encoding="utf-8"))
    assert noted["remarks"] == summary.remarks


def test_the_nan_row_alone_is_broken(model, faulty, tmp_path):
    score(model, faulty / "nan.parquet", tmp_path / "out", **OPTIONS)
    rows = answers(tmp_path / "out").to_pylist()
    assert [row["odd"].startswith("not a number") for row in rows] == [i == 3 for i in range(10)]
    assert (rows[3]["label"], rows[3]["act"], rows[3]["reason"]) == ("", "abstain", "broken input")
    assert np.isnan(rows[3]["entropy"])


def test_files_without_rows_and_rows_without_a_key(model, tmp_path):
    content = table(np.random.default_rng(5), {"7": 3 * WINDOW})
    devices = pa.array([7] * 2 * WINDOW + [None] * WINDOW)
    content = content.set_column(0, "device", devices)
    write(tmp_path / "data" / "keys.parquet", content)
    write(tmp_path / "data" / "none.parquet", content.slice(0, 0))
    summary = score(model, tmp_path / "data", tmp_path / "out", **OPTIONS)
    assert not summary.failed
    found = pq.read_table(tmp_path / "out" / "keys.parquet")["device"]
    assert found.type == pa.int64()
    assert found.to_pylist() == [7, 7, None]
    assert pq.read_table(tmp_path / "out" / "none.parquet").num_rows == 0


def test_a_device_that_drifts_is_found(model, tmp_path):
    rng = np.random.default_rng(6)
    content = table(rng, {"still": 400 * WINDOW, "drifts": 400 * WINDOW})
    values = content["ax"].to_numpy().copy()
    values[600 * WINDOW :] *= 1.8
    write(tmp_path / "data" / "a.parquet", content.set_column(2, "ax", pa.array(values)))
    summary = score(model, tmp_path / "data", tmp_path / "out", **OPTIONS)
    assert [device.name for device in summary.drifting] == ["drifts"]
    drifts = summary.drifting[0]
    begin = np.datetime64("2026-03-01T00:00:00") + np.timedelta64(int(200 * WINDOW / RATE), "s")
    assert begin <= np.datetime64(drifts.drift_at) <= begin + np.timedelta64(40, "s")
    assert len(drifts.points) == 24
    before, after = drifts.points[:12], drifts.points[12:]
    assert np.mean([odd for *_, odd in before]) < 0.1
    assert np.mean([odd for *_, odd in after]) > 0.4


def test_an_error_of_ours_costs_one_part(model, data, tmp_path, monkeypatch):
    """Also one that nobody thought of."""
    whole = job_module.Job._score

    def score_most(self, part):
        if "day=1" in part.name:
            raise ZeroDivisionError("no idea")
        return whole(self, part)

    monkeypatch.setattr(job_module.Job, "_score", score_most)
    summary = score(model, data, tmp_path / "out", **OPTIONS)
    assert summary.failed == {"day=1/part.parquet": "ZeroDivisionError: no idea"}
    assert len(stamps(tmp_path / "out")) == 5


def test_to_and_from_a_url(model, data, tmp_path):
    score(model, data, tmp_path / "here", **OPTIONS)
    (tmp_path / "there").mkdir()
    for i in range(6):  # an object store has no folders
        (tmp_path / "there" / f"day={i}").mkdir()
    out = f"file://{tmp_path}/there"
    assert score(model, f"file://{data}", out, **OPTIONS).windows == 744
    assert score(model, f"file://{data}", out, **OPTIONS).skipped == 6
    assert answers(tmp_path / "there").equals(answers(tmp_path / "here"))


def test_hostile_names_are_shown_and_not_obeyed(model, tmp_path, capsys):
    hostile = "<script>alert(1)</script>\x1b[2J"
    write(tmp_path / "data" / "a.parquet", table(np.random.default_rng(1), {hostile: 5}))
    options = ["--group-by", "device", "--time", "t", "-o", tmp_path / "out"]
    assert predict(model, tmp_path / "data", *options) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "<script>" not in (tmp_path / "out" / "_summary.html").read_text(encoding="utf-8")
    (row,) = score(model, tmp_path / "data", tmp_path / "out", **OPTIONS).devices
    assert row.key == (hostile,)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "dask"}, "choose one of local, ray, spark"),
        ({"time_unit": "h"}, "choose one of s, ms, us, ns"),
        ({"hop": 0}, "hop=0"),
        ({"per": "day"}, "a part is a file or a folder"),
        ({"workers": "2"}, "workers='2' is a str"),
    ],
)
def test_wrong_options(model, data, tmp_path, options, says):
    with pytest.raises(InputError, match=says):
        score(model, data, tmp_path / "out", **OPTIONS | options)
    assert not (tmp_path / "out").exists()


def test_tables_never_lie_among_the_recordings(model, data):
    for out in (data, data / "out", f"file://{data}/out"):
        source = f"file://{data}" if isinstance(out, str) else data
        with pytest.raises(InputError, match="lies among the recordings"):
            score(model, source, out, **OPTIONS)


# What a user types


def predict(*arguments: object) -> int:
    return cli.main(["predict", *map(str, arguments)])


def test_the_command(model, data, tmp_path, capsys):
    options = ["--group-by", "device", "--time", "t", "-o", tmp_path / "out"]
    assert predict(model, data, *options) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("744 windows of 12 recordings, acts on ")
    assert "Tables, _summary.html and _summary.json: " in shown.err
    assert predict(model, f"{data}/*/*.parquet", *options, "--json") == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == 6


def test_the_command_says_what_failed(model, faulty, tmp_path, capsys):
    options = ["--group-by", "device", "--time", "t", "-o", tmp_path / "out"]
    assert predict(model, faulty, *options) == 1
    shown = capsys.readouterr()
    assert "4 of 12 parts not scored; the others were." in shown.err
    assert "missing.parquet has no column 'az'" in shown.err
    assert "! slow has another rate" in shown.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "Recordings need -o"),
        (["-o", "out", "--abstain-above", "1"], "--abstain-above is for one file"),
        (["-o", "out", "--no-check"], "--no-check is for one file"),
        (["-o", "out", "--columns", "ax,ay"], "samples of shape (2, 32), the model takes (3, 32)"),
    ],
)
def test_the_command_refuses(model, data, tmp_path, monkeypatch, capsys, options, says):
    monkeypatch.chdir(tmp_path)
    assert predict(model, data, *options) == 1
    assert says in capsys.readouterr().err


def test_a_killed_driver_loses_nothing_and_repeats_nothing(model, tmp_path):
    data = write_fleet(tmp_path / "data", files=12, rows=20_000)
    score(model, data, tmp_path / "whole", **OPTIONS)
    out = tmp_path / "out"
    program = Path(sys.executable).with_name("onesigma")
    command = [program, "predict", model, data, "--workers", "1"]
    command += ["--group-by", "device", "--time", "t", "-o", out]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(stamps(out)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done = stamps(out)
    assert 3 <= len(done) < 12, "killed too late"
    summary = score(model, data, out, **OPTIONS)
    assert summary.skipped == len(done)
    assert done.items() <= stamps(out).items()
    assert answers(out).equals(answers(tmp_path / "whole"))
    assert not [path for path in out.rglob("*") if "onesigma-" in path.name], "leftovers"
