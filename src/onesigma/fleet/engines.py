"""Who runs the parts: threads here, Ray, or Spark. Every one does the same to each part."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from itertools import islice
from typing import Any, TypeAlias

from onesigma.errors import PackageError, install
from onesigma.fleet.job import Job, Outcome
from onesigma.fleet.places import Part
from onesigma.tables.arrow import import_pyarrow

Run: TypeAlias = Callable[[Job, Sequence[Part], int], Iterator[Outcome]]


def run_here(job: Job, parts: Sequence[Part], workers: int) -> Iterator[Outcome]:
    """Threads: the runtime and pyarrow compute outside of Python's lock."""
    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(job.run, part) for part in parts]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run(job: Job, part: Part) -> Outcome:
    return job.run(part)


def run_on_ray(job: Job, parts: Sequence[Part], workers: int) -> Iterator[Outcome]:
    """A task for each part: a path goes there, and its outcome comes back.

    It joins a cluster that was set up, or starts one here. Ray Data would do the same with a loop
    of its own that schedules, on a core that could score.
    """
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        raise PackageError(f"Ray is missing: {install('ray')}") from error
    own = not ray.is_initialized()
    if own:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        task, sent, rest = ray.remote(_run), ray.put(job), iter(parts)
        waiting = {task.remote(sent, part): part for part in islice(rest, workers)}
        while waiting:
            (done,), _ = ray.wait([*waiting])
            part = waiting.pop(done)
            waiting |= {task.remote(sent, each): each for each in islice(rest, 1)}
            try:
                yield ray.get(done)
            except ray.exceptions.RayError as error:  # it killed its worker, and again three times
                yield Outcome(part.name, error=f"{type(error).__name__}: {error}")
    finally:
        if own:
            ray.shutdown()


def run_on_spark(job: Job, parts: Sequence[Part], workers: int) -> Iterator[Outcome]:
    """A task for each part. It joins the session that there is, or starts one here."""
    try:
        pyarrow, _ = import_pyarrow()
        SparkSession: Any = import_module("pyspark.sql").SparkSession  # noqa: N806
    except ModuleNotFoundError as error:
        raise PackageError(f"Spark is missing: {install('spark')}") from error
    own = SparkSession.getActiveSession() is None
    builder = SparkSession.builder.appName("onesigma")
    if own and not {"SPARK_REMOTE", "MASTER", "SPARK_CONF_DIR"} & {*os.environ}:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 in PATH
        quiet = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
        builder = builder.master(f"local[{workers},4]").config(map=quiet)
    session = builder.getOrCreate()

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            found = [job.run(parts[i]).to_json() for i in batch.column("id").to_pylist()]
            yield pyarrow.RecordBatch.from_pydict({"outcome": found})

    try:
        tasks = session.range(0, len(parts), 1, len(parts)).mapInArrow(run, "outcome string")
        for row in tasks.collect():  # an iterator would run one task after the other
            yield Outcome.from_json(row.outcome)
    finally:
        if own:
            session.stop()


ENGINES: dict[str, Run] = {"local": run_here, "ray": run_on_ray, "spark": run_on_spark}
