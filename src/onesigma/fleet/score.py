"""``score``: all recordings of a folder, a pattern or an object store, on an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from onesigma.arguments import typed
from onesigma.errors import InputError
from onesigma.fleet.engines import ENGINES
from onesigma.fleet.job import Job, Outcome
from onesigma.fleet.page import summary_page
from onesigma.fleet.places import FILE, Place, find_parts
from onesigma.fleet.recordings import Layout
from onesigma.fleet.scorer import Scorer
from onesigma.fleet.summary import Summary
from onesigma.runtime.model import BATCH
from onesigma.tables.windows import Scaling


@typed
def score(
    model: str | Path | bytes,
    recordings: str | Path,
    output: str | Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    inputs: Sequence[str] | None = None,
    window: int | None = None,
    hop: int | None = None,
    group_by: Sequence[str] = (),
    time: str | None = None,
    time_unit: str = "s",
    gap: float | None = None,
    rate: float | None = None,
    per: str = FILE,
    class_names: Sequence[str] | None = None,
    probs: bool = False,
    batch: int = BATCH,
    shape: tuple[int, ...] | None = None,
    scaling: Scaling | None = None,
    channels_last: bool = False,
    progress: Callable[[Iterable[Outcome], int], Iterable[Outcome]] | None = None,
) -> Summary:
    """Answer every window of every recording; a table for each part, in Parquet.

    A part that is done is not done again: start the same call once more after an interruption. A
    part that cannot be read is named in the summary, and the others are scored.

    Args:
        model: an ``.onnx`` file of ``onesigma.export``, or its bytes.
        recordings: a folder of Parquet files, a pattern such as ``data/*/2026-*.parquet``, or a URL
            such as ``s3://bucket/data``.
        output: a folder or a URL. Tables are named like the files of the recordings, and
            ``_summary.html`` and ``_summary.json`` are beside them.
        engine: "local", "ray" or "spark"; the tables are the same.
        workers: how many parts are scored at the same time; default: one per core here.
        inputs: the columns of the channels; default: those that the model's contract names.
        window: rows of one sample; default: as the contract says, else a row is a sample.
        hop: rows from window to window; default: ``window``.
        group_by: columns, or folders such as ``device=17``, that tell recordings apart.
        time: the column that says when; rows of a recording must lie in its order.
        time_unit: "s", "ms", "us" or "ns", of a time that is a number.
        gap: in seconds, see ``Layout``.
        rate: in Hz; windows of another rate are broken input. Default: as the contract says.
        per: "file" makes a part of every file; "folder" makes one of all files of a folder, in the
            order of their names, for recordings that go on from file to file.
        class_names: see ``Scorer``.
        probs: see ``Scorer``.
        batch: see ``Scorer``.
        shape: of one sample, in place of the shape that the row or window has.
        scaling: is applied to every sample; a model of ``fit(…, scaling=…)`` has its own.
        channels_last: windows (window, channels) in place of (channels, window).
        progress: wraps what is done; takes it and how many parts there are.

    Raises:
        InputError: an option is wrong, or the output lies among the recordings.
        DataError: there are no recordings.
    """
    if engine not in ENGINES:
        raise InputError(f"engine={engine!r}: choose one of {', '.join(ENGINES)}.")
    scorer = Scorer(model, inputs=inputs, class_names=class_names, probs=probs, batch=batch)
    if (known := scorer.model.contract) is not None:
        window, rate = window or known.window, rate or known.rate
    keys = (group_by,) if isinstance(group_by, str) else tuple(group_by)
    hop = (window or 1) if hop is None else hop
    layout = Layout(tuple(scorer.channels), window, hop, keys, time, time_unit, gap)
    source, target = _keep_apart(Place(str(recordings)), Place(str(output)))
    parts = find_parts(source, per)
    job = Job(scorer, layout, source, target, rate, shape, scaling, channels_last)
    done: Iterable[Outcome] = ENGINES[engine](job, parts, workers or os.cpu_count() or 1)
    summary = Summary.of(progress(done, len(parts)) if progress else done, keys)
    (target / "_summary.json").write_text(summary.to_json())
    (target / "_summary.html").write_text(summary_page(summary))
    return summary


def _keep_apart(source: Place, target: Place) -> tuple[Place, Place]:
    """Tables among the recordings would be taken for recordings by the next run."""
    if source.is_remote or target.is_remote:
        inside = (target.address + "/").startswith(source.address.rstrip("/") + "/")
    else:
        folders = [Path(place.address).resolve() for place in (source, target)]
        inside = folders[1] == folders[0] or folders[0] in folders[1].parents
    if inside:
        raise InputError(f"{target.address} lies among the recordings: choose a folder elsewhere.")
    return source, target
