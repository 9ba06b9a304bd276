"""Ray and Spark on two cores give the tables that threads give, also when a worker is killed."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from fleet_files import CHANNELS, WINDOW, table, write_fleet

from onesigma import fleet
from onesigma.fleet.engines import run_on_ray
from onesigma.fleet.job import Outcome
from onesigma.fleet.places import Part

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs
OPTIONS = {"group_by": ["device"], "time": "t", "workers": 2, "hop": 4}
PARTS = 10


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_fleet(tmp_path_factory.mktemp("fleet") / "data", files=PARTS, rows=60_000)


@pytest.fixture(scope="module")
def here(model, data, tmp_path_factory) -> pa.Table:
    out = tmp_path_factory.mktemp("here")
    fleet.score(model, data, out / "out", **OPTIONS)
    return answers(out / "out")


def answers(folder: Path) -> pa.Table:
    return ds.dataset(folder, partitioning="hive").to_table()


@pytest.fixture(scope="module")
def ray() -> Iterator[object]:
    module = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    module.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield module
    module.shutdown()


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    session = pytest.importorskip("pyspark.sql").SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    started = session.builder.master("local[2,4]").config(map=quiet).getOrCreate()
    yield started
    started.stop()


def processes(words: str) -> list[int]:
    """Those whose command line holds the words."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder.name.isdecimal() and words in line:
            found.append(int(folder.name))
    return found


def kill_one(find: Callable[[], list[int]], out: Path, killed: list[int]) -> None:
    """Once two tables are there, kill a worker that is at work."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        done = [path for path in out.rglob("*.parquet") if not path.name.startswith(".")]
        if 2 <= len(done) < PARTS - 2 and (workers := find()):
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
            return
        time.sleep(0.005)


def spark_workers() -> list[int]:
    """The daemon forks them, so they share its command line: the youngest is no daemon."""
    return sorted(processes("pyspark.daemon"), reverse=True)[:1]


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_the_same_tables_with_a_killed_worker(engine, request, model, data, here, tmp_path):
    request.getfixturevalue(engine)
    find = {"ray": lambda: processes("ray::_run"), "spark": spark_workers}[engine]
    out, killed = tmp_path / "out", []
    killer = threading.Thread(target=kill_one, args=(find, out, killed))
    killer.start()
    summary = fleet.score(model, data, out, engine=engine, **OPTIONS)
    killer.join()
    assert killed, "no worker was killed"
    assert not summary.failed
    assert answers(out).equals(here)
    assert len([*out.rglob("*.parquet")]) == PARTS
    again = fleet.score(model, data, out, engine=engine, **OPTIONS)
    assert again.skipped == PARTS


def test_a_part_that_kills_its_workers_is_named(ray):
    class Deadly:
        def run(self, part: Part) -> Outcome:
            if part.name == "bad":
                os.kill(os.getpid(), signal.SIGKILL)
            return Outcome(part.name)

    parts = [Part(name, (), (), ()) for name in ("a", "bad", "c", "d")]
    found = {each.part: each.error for each in run_on_ray(Deadly(), parts, 2)}
    assert found.pop("bad").startswith("WorkerCrashedError")
    assert found == {"a": "", "c": "", "d": ""}


def windows() -> np.ndarray:
    content = table(np.random.default_rng(8), {"a": 500 * WINDOW})
    rows = np.stack([content[name].to_numpy() for name in CHANNELS], 1)
    return rows.reshape(500, WINDOW, 3).swapaxes(1, 2).copy()


def test_map_batches_of_ray(ray, model):
    x = windows()
    expected = fleet.Scorer(model, inputs="x")({"x": x, "id": np.arange(500)})
    content = [{"x": each, "id": i} for i, each in enumerate(x)]
    answered = ray.data.from_items(content, override_num_blocks=4).map_batches(
        fleet.Scorer,
        fn_constructor_kwargs={"model": model.read_bytes(), "inputs": "x"},
        batch_size=64,
        compute=ray.data.ActorPoolStrategy(size=2),
    )
    found = sorted(answered.take_all(), key=lambda row: row["id"])
    assert [row["id"] for row in found] == [*range(500)]
    for name in ("label", "act", "reason", "odd", "model"):
        assert [row[name] for row in found] == expected[name].tolist()
    entropy = np.array([row["entropy"] for row in found])
    np.testing.assert_allclose(entropy, expected["entropy"], rtol=1e-5)


def test_map_groups_of_ray(ray, model):
    """A recording for each group, cut into windows."""
    content = table(np.random.default_rng(8), {"a": 300, "b": 200})
    numbers = content.set_column(1, "t", pa.array(np.arange(500)))
    options = {"model": model.read_bytes(), "window": WINDOW, "hop": 10}
    answered = (
        ray.data.from_arrow(numbers)
        .groupby("device")
        .map_groups(
            fleet.Scorer, fn_constructor_kwargs=options, batch_format="numpy", concurrency=1
        )
    )
    found = sorted((row["device"], row["t"]) for row in answered.take_all())
    starts = {"a": range(0, 300 - WINDOW + 1, 10), "b": range(300, 500 - WINDOW + 1, 10)}
    assert found == [(device, t) for device, each in starts.items() for t in each]


def test_map_in_arrow_of_spark(spark, model):
    x = windows()
    expected = fleet.Scorer(model, inputs="x")({"x": x})
    rows = [(i, each.ravel().tolist()) for i, each in enumerate(x)]
    rows.append((500, [1.0]))
    frame = spark.createDataFrame(rows, "id long, x array<float>").repartition(3)
    answer = fleet.spark_udf(model, inputs="x")
    found = frame.mapInArrow(answer, answer.schema(frame)).orderBy("id").collect()
    assert [row.id for row in found] == [*range(501)]
    assert found[500].reason == "broken input"
    for name in ("label", "act", "reason", "odd", "model"):
        assert [row[name] for row in found[:500]] == expected[name].tolist()
    entropy = np.array([row.entropy for row in found[:500]])
    np.testing.assert_allclose(entropy, expected["entropy"], rtol=1e-5)
