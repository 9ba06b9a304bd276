"""How fast are recordings scored, beside a bare loop over the same windows?

    python -m onesigma.lab.bench.fleet --windows 1000000
    python -m onesigma.lab.bench.fleet --stub

A network of six channels with dropout before its last layer and a guard (random weights: only its
time counts). The recordings are made up: windows of 128 rows, every 64 rows, one device in each
file. The bare loop is ONNX Runtime with one thread in each of two processes, on windows that lie in
memory; it reads nothing and keeps nothing. Each engine reads Parquet, cuts windows, answers, tests
for drift and writes Parquet. The bare loop runs before and after each engine, on a quarter of the
windows, because a machine's speed drifts: what counts is the share of the rate of these two. Ray
and Spark are started before the clock is, their workers are not.
Memory and processor time are those of all processes of this program. Every turn is noted in the
output folder: after an interruption, the same command goes on.

With ``--stub`` the network is left out: the processor time that is left, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from onesigma import fleet, runtime
from onesigma.fleet import scorer
from onesigma.fleet.scorer import BATCH
from onesigma.storage.atomic import replacing
from onesigma.tables.arrow import import_pyarrow
from onesigma.tables.files import Array
from onesigma.text_table import text_table

CHANNELS = tuple(f"c{k}" for k in range(6))
WINDOW, HOP, RATE = 128, 64, 50.0
WORKERS, FILES = 2, 16
BARE = "bare loop"
Turn = tuple[Callable[[], None], int]  # what to do, and to how many windows
NETWORKS: dict[str, tuple[str, dict[str, int]]] = {
    "tcn": ("tcn", {}),
    "ecg_resnet": ("ecg_resnet", {}),
    "wide_ecg_resnet": ("ecg_resnet", {"width": 40}),
}


def signal(rng: np.random.Generator, rows: int) -> Array:
    """(6, rows): movements of changing speed, and noise."""
    speed = np.repeat(rng.uniform(0.1, 0.6, rows // WINDOW + 1), WINDOW)[:rows].cumsum()
    waves = np.sin(speed * np.linspace(0.6, 1.4, 6)[:, None] + rng.uniform(0, 6, (6, 1)))
    return np.asarray(waves + 0.2 * rng.normal(size=(6, rows)), np.float32)


def export_model(path: Path, network: str) -> None:
    # Here, in a process of its own: those that are timed run without PyTorch, as a user's do.
    import torch
    from torch import nn

    import onesigma
    from onesigma.calibration.guarding import Channels, with_guard
    from onesigma.lab import deployed_networks

    torch.manual_seed(0)
    name, options = NETWORKS[network]
    *layers, last = getattr(deployed_networks, name)(**options)
    for layer in nn.Sequential(*layers).modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    model = nn.Sequential(*layers, nn.Dropout(0.3), last).eval()
    rows = signal(np.random.default_rng(0), 800 * WINDOW)
    known = torch.from_numpy(rows.reshape(6, 800, WINDOW).swapaxes(0, 1).copy())
    made = onesigma.convert(model, known[:2])
    limit = float(made(known).entropy.detach().quantile(0.8))
    rule = onesigma.AbstainRule("entropy", limit, 0.1, None, 800, 0.8, 0.05, novelty=0.02)
    made = with_guard(made.with_abstain(rule), (known,), channels=Channels(CHANNELS, None, RATE))
    onesigma.export(made, path, example_input=known[:2])


def write_recordings(folder: Path, windows: int) -> int:
    """So many windows, or a few less; returns how many."""
    pyarrow, parquet = import_pyarrow()
    each = windows // FILES
    rows = (each - 1) * HOP + WINDOW
    when = np.datetime64("2026-01-01", "us") + np.arange(rows) * np.timedelta64(20_000, "us")
    for i in range(FILES):
        path = folder / f"{i:02}.parquet"
        if not path.exists():
            values = signal(np.random.default_rng(i), rows)
            columns: dict[str, Any] = dict(zip(CHANNELS, values, strict=True))
            device = pyarrow.array([f"device {i}"]).take(pyarrow.array(np.zeros(rows, np.int8)))
            parquet.write_table(pyarrow.table({"device": device, "t": when} | columns), path)
    return each * FILES


def loop(model: Path, windows: int) -> None:
    """In a process of its own."""
    session = runtime.load(model, threads=1)._session
    x = signal(np.random.default_rng(1), 512 * WINDOW).reshape(6, 512, WINDOW).swapaxes(0, 1).copy()
    name, start = session.get_inputs()[0].name, 0
    for _ in range(windows // BATCH):
        session.run(None, {name: x[start : start + BATCH]})
        start = (start + BATCH) % 512


def run_bare(pool: ProcessPoolExecutor, model: Path, windows: int) -> None:
    done = [pool.submit(loop, model, windows // WORKERS) for _ in range(WORKERS)]
    for each in done:
        each.result()


def run_engine(engine: str, model: Path, data: Path, output: Path, workers: int = WORKERS) -> None:
    shutil.rmtree(output, ignore_errors=True)
    options: dict[str, Any] = {"group_by": ["device"], "time": "t", "hop": HOP, "workers": workers}
    fleet.score(model, data, output, engine=engine, **options).require_all()


@contextmanager
def ray() -> Iterator[None]:
    module: Any = import_module("ray")
    module.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    yield
    module.shutdown()


@contextmanager
def spark() -> Iterator[None]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = import_module("pyspark.sql").SparkSession.builder
    session = builder.master(f"local[{WORKERS},4]").config("spark.ui.enabled", "false")
    started = session.config("spark.log.level", "ERROR").getOrCreate()
    yield
    started.stop()


STARTS: dict[str, Callable[[], AbstractContextManager[None]]] = {"ray": ray, "spark": spark}


class Watched:
    """Megabytes of this process and those it started, every two seconds; their processor time."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watched:
        self.seconds -= _usage(os.getpid())[1]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += _usage(os.getpid())[1]
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(2):
            self.seen.append(_usage(os.getpid())[0])

    def __str__(self) -> str:
        """The median of the second quarter of the time and that of the last."""
        quarter = max(1, len(self.seen) // 4)
        early, late = self.seen[quarter : 2 * quarter], self.seen[-quarter:]
        return f"{median(early):.0f} → {median(late):.0f}" if early else ""


def _usage(process: int) -> tuple[float, float]:
    """MB of its own and of its children, without those that it may share; processor seconds."""
    folder = Path(f"/proc/{process}")
    try:
        _, resident, shared, *_ = (folder / "statm").read_text().split()
        ticks = (folder / "stat").read_text().rpartition(")")[2].split()[11:15]  # its dead, too
        tasks = (folder / "task").iterdir()
        children = [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return 0, 0  # it ended
    own = (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1e6
    found = [(own, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")), *map(_usage, children)]
    return sum(size for size, _ in found), sum(seconds for _, seconds in found)


def measure(calls: dict[str, Turn], rounds: int, notes: Path) -> None:
    """``calls`` has the bare loop and the engines."""
    done: dict[str, list[Any]] = json.loads(notes.read_text()) if notes.exists() else {}
    engines = [name for name in calls if name != BARE]
    for round in range(1, rounds + 1):
        for name in engines:
            for turn in (f"before {name}", name, f"after {name}"):
                call, windows = calls.get(turn, calls[BARE])
                _take_turn(f"round {round}, {turn}", name, call, windows, done, notes)
    rows = []
    for name in engines:
        own = [done[f"round {round}, {name}"] for round in range(1, rounds + 1)]
        beside = [
            sum(done[f"round {round}, {when} {name}"][0] for when in ("before", "after")) / 2
            for round in range(1, rounds + 1)
        ]
        rates, times, memory = zip(*own, strict=True)
        shares = [rate / bare for rate, bare in zip(rates, beside, strict=True)]
        row = [name, f"{median(rates):,.0f}", f"{median(beside):,.0f}", f"{median(shares):.3f}"]
        row += [f"{min(shares):.3f} … {max(shares):.3f}", f"{median(times):.1f}", memory[-1]]
        rows.append(row)
    head = ["", "windows/s", "bare loop's", "share", "least … most", "processor µs per window"]
    print(text_table([*head, "MB, early → late"], rows, numbers=True))


def _take_turn(
    turn: str,
    name: str,
    call: Callable[[], None],
    windows: int,
    done: dict[str, list[Any]],
    notes: Path,
) -> None:
    if turn in done:
        return
    start = STARTS.get(name, nullcontext) if turn.endswith(f", {name}") else nullcontext
    with start(), Watched() as watched:
        begin = time.perf_counter()
        call()
        rate = windows / (time.perf_counter() - begin)
    done[turn] = [rate, 1e6 * watched.seconds / windows, str(watched)]
    with replacing(notes) as temporary:
        temporary.write_text(json.dumps(done, indent=1))
    print(f"{turn}: {rate:,.0f} windows/s, {done[turn][1]:.1f} µs", file=sys.stderr)


class Stub:
    """A session that answers every batch alike, at once."""

    def __init__(self, session: Any) -> None:
        self._session, self._answers = session, dict[int, Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, names: list[str], feed: dict[str, Array]) -> Any:
        (x,) = feed.values()
        if len(x) not in self._answers:
            self._answers[len(x)] = self._session.run(names, feed)
        return self._answers[len(x)]


def measure_stub(model: Path, data: Path, output: Path, windows: int, rounds: int) -> None:
    """The least of some rounds: other programs make it more, never less."""
    made, found = scorer.Scorer(model).model, list[float]()
    made._session = Stub(made._session)
    with patch.object(scorer, "_open", lambda *_: made):
        for _ in range(rounds):
            begin = time.process_time()
            run_engine("local", model, data, output, workers=1)
            found.append(1e6 * (time.process_time() - begin) / windows)
    print(f"processor µs per window without the network: {', '.join(f'{t:.2f}' for t in found)}")
    print(f"least: {min(found):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--network", choices=NETWORKS, default="tcn")
    parser.add_argument("--output", type=Path, default=Path("out/fleet"))
    parser.add_argument("--engines", nargs="*", default=["local", "ray", "spark"])
    parser.add_argument("--stub", action="store_true")
    args = parser.parse_args()
    model, data = args.output / f"{args.network}.onnx", args.output / f"data-{args.windows}"
    data.mkdir(parents=True, exist_ok=True)
    spawned = get_context("spawn")
    if not model.exists():
        with ProcessPoolExecutor(1, mp_context=spawned) as apart:
            apart.submit(export_model, model, args.network).result()
    windows = write_recordings(data, args.windows)
    if args.stub:
        measure_stub(model, data, args.output / "stub", windows, args.rounds)
        return
    with ProcessPoolExecutor(WORKERS, mp_context=spawned) as pool:
        few = windows // 4
        calls: dict[str, Turn] = {BARE: (partial(run_bare, pool, model, few), few)}
        for engine in args.engines:
            run = partial(run_engine, engine, model, data, args.output / engine)
            calls[engine] = (run, windows)
        run_bare(pool, model, 4 * BATCH)  # the processes are there, and the sessions were opened
        measure(calls, args.rounds, args.output / f"{args.network}-{args.windows}.json")


if __name__ == "__main__":
    main()
