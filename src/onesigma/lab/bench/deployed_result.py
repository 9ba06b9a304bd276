"""What ``deployed`` measured of each network, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from onesigma.lab.bench.closeness import Distance, name_of
from onesigma.lab.bench.result import show_ratio
from onesigma.lab.bench.trained import KEPT_ASIDE
from onesigma.text_table import text_table

PLAIN, FITTED, BARE, MOMENTS = "plain network", "fit", "fit, no guard", "moments"
CLEAN = "clean"
PASSES = (10, 30, 100)
LEFT_OUT = {"unet_small": "it answers with a map of logits, which this table has no row for"}


@dataclass(frozen=True)
class Settings:
    """How much is measured. What was measured with others is measured again."""

    fit: int = 800  # unlabelled inputs, of training and validation
    worth: int = 30  # what fit is asked for
    inputs: int = 240  # test inputs: of 60, single ones made up most of the distance
    passes: int = 400  # of the reference
    repeats: int = 300
    seconds: float = 3.0  # at most, for one method in one runtime
    processes: int = 3  # that are asked for their memory
    threads: int = 1  # of PyTorch while it fits and compares
    moments: bool = False  # compare the propagated moments too
    every: bool = False  # batches of 8 and 64 and two threads, too


TIMING = {"repeats", "seconds", "processes", "every"}  # what only the times depend on
QUICK = Settings(fit=100, inputs=32, passes=200, repeats=40, seconds=0.5, processes=0)


@dataclass(frozen=True)
class Measured:
    """One network. ``distances`` by kind of input and method, ``eager`` by method.

    ``eager`` is the time in PyTorch over the plain network's, ``bench`` all of the benchmark in
    ONNX Runtime as JSON holds it; they are empty as long as nothing was timed.
    """

    network: str
    parameters: int
    form: str
    fit_seconds: float
    distances: dict[str, dict[str, Distance]]
    eager: dict[str, float] = field(default_factory=dict)
    eager_plain_us: float = 0.0
    bench: dict[str, Any] = field(default_factory=dict)

    @property
    def kept_aside(self) -> bool:
        return self.network in KEPT_ASIDE

    @property
    def plain_us(self) -> float:
        return 1e3 * float(self._row(PLAIN).get("minimum_ms", "nan"))

    def cost(self, method: str, threads: int = 1, batch: int = 1) -> float:
        """Time over the plain network's in ONNX Runtime; NaN if it was not measured.

        On one thread that of the processor, which a busy machine does not blur.
        """
        which = "cpu_ratio" if threads == 1 else "ratio"
        return float(self._row(method, threads, batch).get(which, "nan"))

    def footprint(self, method: str) -> dict[str, Any]:
        return next((f for f in self.bench["footprints"] if f["contender"] == method), {})

    def worst_shift(self, method: str) -> Distance:
        """On the kind of shifted input where the method is worth fewest passes."""
        found = [each[method] for kind, each in self.distances.items() if kind != CLEAN]
        return min(found, key=lambda each: each.passes)

    def _row(self, method: str, threads: int = 1, batch: int = 1) -> dict[str, Any]:
        wanted = (method, threads, batch)
        rows = self.bench["rows"]
        keys = ("contender", "threads", "batch")
        return next((row for row in rows if tuple(row[key] for key in keys) == wanted), {})

    @staticmethod
    def from_dict(content: dict[str, Any]) -> Measured:
        distances = {
            kind: {method: Distance(**each) for method, each in found.items()}
            for kind, found in content["distances"].items()
        }
        return Measured(**{**content, "distances": distances})


def show(found: Sequence[Measured], settings: Settings) -> str:
    """One line for each network: what fit costs, and how many passes its one is worth."""
    kinds = list(found[0].distances)
    header = ["", "form", "fit s", "plain µs", "no guard ×", "ONNX ×", "PyTorch ×", "MC-30 ×"]
    header += ["file ×", "MB", *kinds, "std ratio"]
    parts = [_NOTE.format(**asdict(settings))]
    for title, aside in (("networks", False), ("kept aside: nothing was tuned on these", True)):
        rows = [_line(each) for each in found if each.kept_aside == aside]
        if rows:
            parts.append(f"{title}\n{text_table(header, rows, numbers=True)}")
    if settings.every:
        parts.append(f"ONNX Runtime, × the plain network at the same setting\n{_settings(found)}")
    parts += [f"left out: {name}: {why}." for name, why in LEFT_OUT.items()]
    return "\n\n".join(parts)


_NOTE = """\
Fitted on {fit} unlabelled inputs of training and validation sets, compared on {inputs} test inputs
of each kind.
no guard × to MC-30 ×: time of one input over the plain network's, one thread, in turn, in ONNX
Runtime and in PyTorch. MC-30 is one batch in ONNX Runtime; no guard is its file cut. file ×, MB:
size of the ONNX file over the plain one's, and memory at the peak beyond its. Then, for each kind
of input, the passes of Monte Carlo that are as close (KL) to {passes} passes as fit is, with 5 and
95 % quantiles when inputs are resampled; the reference's own noise is subtracted, and {passes} is
the most that can be told. std ratio: of the logits, over Monte Carlo's, median on clean inputs."""


def _line(each: Measured) -> list[str]:
    weight = each.footprint(FITTED)
    over = weight.get("over_plain")
    found = [kind[FITTED] for kind in each.distances.values()]
    return [
        each.network,
        each.form,
        f"{each.fit_seconds:.0f}",
        f"{each.plain_us:.0f}",
        *(show_ratio(each.cost(method)) for method in (BARE, FITTED)),
        show_ratio(each.eager[FITTED]),
        show_ratio(each.cost(name_of(30))),
        show_ratio(weight["file_ratio"]) if weight else "–",
        "–" if over is None else f"{over / 1e6:+.1f}",
        *(f"{_few(d.passes)} ({_few(d.low)}–{_few(d.high)})" for d in found),
        f"{found[0].std_ratio:.2f}",
    ]


def _few(passes: float) -> str:
    return f"{passes:.1f}" if passes < 10 else f"{passes:.0f}"


def _settings(found: Sequence[Measured]) -> str:
    places = [(threads, batch) for threads in (1, 2) for batch in (1, 8, 64)]
    header = ["", *(f"{threads} thr., batch {batch}" for threads, batch in places)]
    rows = [
        [each.network, *(show_ratio(each.cost(FITTED, *place)) for place in places)]
        for each in found
    ]
    return text_table(header, rows, numbers=True)


def show_distances(found: Sequence[Measured]) -> str:
    """KL of every method on every kind of input, and the passes it is worth."""
    methods = list(found[0].distances[CLEAN])
    rows = [
        [
            f"{each.network}, {kind}",
            *(
                f"{distances[method].kl:.5f} ({_few(distances[method].passes)})"
                for method in methods
            ),
        ]
        for each in found
        for kind, distances in each.distances.items()
    ]
    return text_table(["KL in nats (passes)", *methods], rows, numbers=True)
