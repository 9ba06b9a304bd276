"""How fast are recordings scored, beside a bare loop over the same windows?

    python -m onesigma.lab.bench.fleet --windows 1000000
    python -m onesigma.lab.bench.fleet --stub

A network of six channels with dropout before its last layer and a guard (random weights: only its
time counts). The recordings are made up: windows of 128 rows, every 64 rows, one device in each
file. The bare loop is ONNX Runtime with one thread in each of two processes, on windows that lie in
memory; it reads nothing and keeps nothing. Each engine reads Parquet, cuts windows, answers, tests
for drift and writes Parquet, all of it in one job. A machine's speed drifts, so the two take turns:
one is stopped for two seconds while the other runs, and each has a clock of its own. What counts is
the engine's windows per second as a share of the bare loop's. Ray and Spark are started before the
clock is, workers are not. Memory is that of all processes of an engine. Every round is noted in the
output folder: after an interruption, the same command goes on.

With ``--stub`` the network is left out: the processor time that is left, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from multiprocessing import get_context, parent_process
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from onesigma import fleet, runtime
from onesigma.fleet import scorer
from onesigma.runtime.model import BATCH
from onesigma.storage.atomic import replacing
from onesigma.tables.arrow import import_pyarrow
from onesigma.tables.files import Array
from onesigma.text_table import text_table

CHANNELS = tuple(f"c{k}" for k in range(6))
WINDOW, HOP, RATE = 128, 64, 50.0
WORKERS, FILES, SLICE = 2, 16, 2.0
NETWORKS: dict[str, tuple[str, dict[str, int]]] = {
    "tcn": ("tcn", {}),
    "ecg_resnet": ("ecg_resnet", {}),
    "wide_ecg_resnet": ("ecg_resnet", {"width": 40}),
}


def signal_of(rng: np.random.Generator, rows: int) -> Array:
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
    rows = signal_of(np.random.default_rng(0), 800 * WINDOW)
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
            values = signal_of(np.random.default_rng(i), rows)
            columns: dict[str, Any] = dict(zip(CHANNELS, values, strict=True))
            device = pyarrow.array([f"device {i}"]).take(pyarrow.array(np.zeros(rows, np.int8)))
            parquet.write_table(pyarrow.table({"device": device, "t": when} | columns), path)
    return each * FILES


def loop(model: Path, done: Any) -> None:
    """In a process of its own, as long as the one that started it; counts the windows."""
    session = runtime.load(model, threads=1)._session
    x = signal_of(np.random.default_rng(1), 512 * WINDOW)
    x = x.reshape(6, 512, WINDOW).swapaxes(0, 1).copy()
    name, start = session.get_inputs()[0].name, 0
    parent = parent_process()
    while parent is not None and parent.is_alive():
        session.run(None, {name: x[start : start + BATCH]})
        start = (start + BATCH) % 512
        done.value += BATCH


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


def run_when_told(
    engine: str, ready: Any, go: Any, done: Any, model: Path, data: Path, output: Path
) -> None:
    """In a process of its own: what an engine needs is started, then it waits."""
    with STARTS.get(engine, nullcontext)():
        ready.set()
        go.wait()
        run_engine(engine, model, data, output)
        done.set()


class Runners:
    """Processes and those that they start, which run for a while and are stopped again.

    Attributes:
        seconds: by the clock, while they run.
        seen: megabytes, each time that they are stopped.
    """

    def __init__(self, processes: Sequence[Any]) -> None:
        self.processes, self.seconds, self.seen = processes, 0.0, list[float]()

    def run(self, wait: Callable[[float], Any]) -> None:
        """For two seconds, if ``wait`` does not return before."""
        self.tell(signal.SIGCONT)
        begin = time.perf_counter()
        wait(SLICE)
        self.seconds += time.perf_counter() - begin
        self.seen.append(self.tell(signal.SIGSTOP))

    def tell(self, what: signal.Signals) -> float:
        """Send a signal to all; returns their megabytes."""
        return sum(_tell(each.pid, what) for each in self.processes if each.is_alive())

    @property
    def memory(self) -> str:
        """The median of the second quarter of the time and that of the last."""
        quarter = max(1, len(self.seen) // 4)
        early, late = self.seen[quarter : 2 * quarter], self.seen[-quarter:]
        return f"{median(early):.0f} → {median(late):.0f}" if early else ""


def _tell(process: int, what: signal.Signals) -> float:
    """To it and to its children; returns MB, without those that they may share."""
    folder = Path(f"/proc/{process}")
    try:
        _, resident, shared, *_ = (folder / "statm").read_text().split()
        tasks = (folder / "task").iterdir()
        children = [int(c) for task in tasks for c in (task / "children").read_text().split()]
        os.kill(process, what)  # last: who is killed has no children to be found
    except (OSError, ValueError):
        return 0  # it ended
    own = (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return own + sum(_tell(child, what) for child in children)


class Round(NamedTuple):
    """Windows per second of both, the share, µs of a core per window more than bare, memory."""

    bare: float
    rate: float
    share: float
    more: float
    memory: str


def compare(engine: str, model: Path, data: Path, output: Path, windows: int) -> Round:
    """One round: the bare loop and the engine in turns."""
    spawned = get_context("spawn")
    ready, go, done = (spawned.Event() for _ in range(3))
    counts = [spawned.Value("q", 0, lock=False) for _ in range(WORKERS)]
    bare = Runners([spawned.Process(target=loop, args=(model, count)) for count in counts])
    arguments = (engine, ready, go, done, model, data, output)
    own = Runners([spawned.Process(target=run_when_told, args=arguments)])
    try:
        for process in (*bare.processes, *own.processes):
            process.start()
        ready.wait(120)
        while not all(count.value for count in counts):
            time.sleep(0.1)
        bare.tell(signal.SIGSTOP)
        before = sum(count.value for count in counts)
        go.set()
        while not done.is_set() and own.processes[0].is_alive():
            own.run(done.wait)
            bare.run(time.sleep)
        if not done.is_set():
            raise SystemExit(f"{engine} failed.")
    finally:
        for runners in (bare, own):
            runners.tell(signal.SIGKILL)
    rates = (sum(count.value for count in counts) - before) / bare.seconds, windows / own.seconds
    more = 1e6 * WORKERS * (1 / rates[1] - 1 / rates[0])
    return Round(*rates, rates[1] / rates[0], more, own.memory)


def measure(engines: list[str], rounds: int, compare: Callable[[str], Round], notes: Path) -> None:
    done: dict[str, list[Any]] = json.loads(notes.read_text()) if notes.exists() else {}
    rows = []
    for place in range(1, rounds + 1):
        for name in engines:
            key = f"{name}, round {place}"
            if key not in done:
                done[key] = [*compare(name)]
                with replacing(notes) as temporary:
                    temporary.write_text(json.dumps(done, indent=1))
                print(key, done[key], file=sys.stderr)
    for name in engines:
        found = [Round(*done[f"{name}, round {place}"]) for place in range(1, rounds + 1)]
        rows += [_show(f"{name}, round {place}", [each]) for place, each in enumerate(found, 1)]
        rows.append(_show(f"{name}, median", found))
    head = ["", "bare loop, windows/s", "engine, windows/s", "share", "µs more"]
    print(text_table([*head, "MB, early → late"], rows, numbers=True))


def _show(name: str, rounds: list[Round]) -> list[str]:
    bare, rate, share, more = (median(each) for each in [*zip(*rounds, strict=True)][:4])
    return [name, f"{bare:,.0f}", f"{rate:,.0f}", f"{share:.3f}", f"{more:.1f}", rounds[-1].memory]


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
    if not model.exists():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
            apart.submit(export_model, model, args.network).result()
    windows = write_recordings(data, args.windows)
    if args.stub:
        measure_stub(model, data, args.output / "stub", windows, args.rounds)
        return
    turns = partial(compare, model=model, data=data, output=args.output / "tables", windows=windows)
    measure(args.engines, args.rounds, turns, args.output / f"{data.name}-{args.network}.json")


if __name__ == "__main__":
    main()
