"""``onesigma.fit`` on networks as they are deployed: how close to Monte Carlo, and at what cost.

    python -m onesigma.lab.bench.deployed --data-root ../shared/data

One network after the other: fitted on unlabelled TRAINING inputs; compared with Monte Carlo of the
original on TEST inputs, clean and shifted (``closeness``); timed in turn with its plain network and
with Monte Carlo as one batch. Each result is kept as it comes: give the same command again to
continue an interrupted run. In the end there are a table, a JSON file and a picture.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import onesigma
from onesigma.calibration import corruption
from onesigma.calibration.corruption import Corruption
from onesigma.lab.bench import closeness, programs
from onesigma.lab.bench.closeness import Distance, name_of
from onesigma.lab.bench.contenders import Contender
from onesigma.lab.bench.measurement import Bench, Plan, machine
from onesigma.lab.bench.result import Result, show_ratio
from onesigma.lab.bench.trained import CACHE, KEPT_ASIDE, NETWORKS, load_trained
from onesigma.lab.datasets.split import Splits
from onesigma.lab.timing import time_methods
from onesigma.storage.atomic import replacing
from onesigma.text_table import text_table

PLAIN, FITTED, MOMENTS = "plain network", "fit", "moments"
CLEAN = "clean"
SHIFTS: dict[str, Corruption] = {
    "noise": corruption.noise,
    "walk": corruption.walk,
    "reversed time": corruption.reversed_time,
    "saturation": corruption.saturation,
}
PASSES = (10, 30, 100)
SEEDS = (1, 2, 3)  # of few passes; the reference has 0
RUNTIME = "onnxruntime"
LEFT_OUT = {"unet_small": "it answers with a map of logits, which fit does not take yet"}
_FIRST = ("paper_cnn", "ds_cnn", "resnet8", "mobilenet_v1", "tc_resnet", "vgg", "tcn")
DEFAULT = (*_FIRST, "ecg_resnet", "mlp", *sorted(KEPT_ASIDE))


@dataclass(frozen=True)
class Settings:
    """How much is measured. What was measured with others is measured again."""

    fit: int = 400  # unlabelled training inputs
    inputs: int = 200  # test inputs
    passes: int = 1000  # of the reference
    repeats: int = 300
    seconds: float = 3.0  # at most, for one method in one runtime
    processes: int = 3  # that are asked for their memory
    threads: int = 1  # of PyTorch while it fits and compares
    moments: bool = False  # compare the propagated moments too
    every: bool = False  # batches of 8 and 64 and two threads, too


QUICK = Settings(fit=100, inputs=32, passes=200, repeats=40, seconds=0.5, processes=0)


@dataclass(frozen=True)
class Measured:
    """One network. ``distances`` by kind of input and method, ``eager`` by method.

    ``eager`` is the time in PyTorch over the plain network's, ``bench`` all of the benchmark in
    ONNX Runtime as JSON holds it.
    """

    network: str
    parameters: int
    form: str
    fit_seconds: float
    distances: dict[str, dict[str, Distance]]
    eager: dict[str, float]
    eager_plain_us: float
    bench: dict[str, Any]

    @property
    def kept_aside(self) -> bool:
        return self.network in KEPT_ASIDE

    @property
    def plain_us(self) -> float:
        return 1e3 * float(self._row(PLAIN)["minimum_ms"])

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


def measure(
    name: str,
    network: nn.Module,
    data: Splits,
    settings: Settings,
    shifts: Mapping[str, Corruption] = SHIFTS,
) -> Measured:
    """Fit one network, compare it and time it."""
    torch.set_num_threads(settings.threads)
    network.eval()
    generator = torch.Generator().manual_seed(0)
    learnt, x = (
        split.inputs[torch.randperm(len(split), generator=generator)[:count]]
        for split, count in ((data.train, settings.fit), (data.test, settings.inputs))
    )
    _say(f"{name}: fit")
    start = time.perf_counter()
    ready = onesigma.fit(network, learnt, seed=0)
    seconds = time.perf_counter() - start
    models = {FITTED: ready}
    if settings.moments:
        _say(f"{name}: moments")
        models[MOMENTS] = onesigma.calibrate(onesigma.convert(network, learnt[:4]), learnt, seed=0)
    kinds = {CLEAN: x} | {kind: shift(x, generator) for kind, shift in shifts.items()}
    distances = {}
    for kind, inputs in kinds.items():
        _say(f"{name}: {kind} inputs against {settings.passes} passes")
        distances[kind] = compare(network, models, inputs, settings.passes)
    eager = time_methods(
        {PLAIN: network, **models}, x[:1], reference=PLAIN, repeats=settings.repeats
    )
    return Measured(
        *(name, sum(p.numel() for p in network.parameters()), ready.settings.form, seconds),
        distances,
        {method: timing.ratio for method, timing in eager.items()},
        1e6 * eager[PLAIN].minimum,
        time_in_onnxruntime(name, models, x, settings).to_dict(),
    )


@torch.no_grad()
def compare(
    network: nn.Module, models: Mapping[str, onesigma.Converted], x: Tensor, passes: int
) -> dict[str, Distance]:
    """All methods on inputs of one kind."""
    reference = closeness.make_reference(closeness.noisy_logits(network, x, passes, seed=0))
    runs = [closeness.noisy_logits(network, x, max(PASSES), seed) for seed in SEEDS]
    each = torch.stack(runs).softmax(-1)
    few = {count: each[:, :count].mean(1) for count in PASSES}
    answers: dict[str, tuple[Tensor, Tensor | None]] = {PLAIN: (network(x).softmax(1), None)}
    for name, model in models.items():
        answer = model(x)
        assert answer.probs is not None
        answers[name] = (answer.probs, answer.std)
    return closeness.compare(reference, few, answers)


def time_in_onnxruntime(
    name: str, models: Mapping[str, onesigma.Converted], x: Tensor, settings: Settings
) -> Result:
    """In turn with the plain network and, one input at a time, with Monte Carlo as one batch."""
    ready, examples = models[FITTED], (x[:2],)
    plan = Plan(
        *((RUNTIME,), (1,), (1,), settings.repeats, settings.seconds), processes=settings.processes
    )

    def inputs(batch: int) -> tuple[Any, ...]:
        return (x[torch.arange(batch) % len(x)].numpy(),)

    with TemporaryDirectory() as place:
        folder = Path(place)
        ours = [Contender(PLAIN, (programs.plain(ready, examples, folder / "plain.onnx"),))]
        for method, model in models.items():
            path = folder / f"{method}.onnx"
            ours.append(Contender(method, (programs.one_pass(model, examples, path),)))
        drawn = []
        for count in PASSES:
            path = folder / f"{name_of(count)}.onnx"
            program = programs.all_masks(ready, examples, count, path)
            drawn.append(Contender(name_of(count), (program,), random=True))
        result = Bench(name, [*ours, *drawn], inputs, plan, say=_say).run()
        if settings.every:
            wide = replace(plan, threads=(1, 2), batches=(8, 64), processes=0)
            for more in (wide, replace(wide, threads=(2,), batches=(1,))):
                result.rows += Bench(name, ours, inputs, more, say=_say).run().rows
    for what, why in result.skipped.items():
        _say(f"{name}: left out: {what}: {why}")
    return result


def run(
    names: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    root: Path | None = None,
    cache: Path = CACHE,
    again: bool = False,
) -> list[Measured]:
    """Measure what is not in the folder yet; table, JSON and picture are renewed each time."""
    from onesigma.lab.bench.deployed_picture import draw

    folder.mkdir(parents=True, exist_ok=True)
    found: list[Measured] = []
    for name in names:
        path = folder / f"{name}.json"
        kept = None if again else _read(path, settings)
        if kept is None:
            network, data = load_trained(name, root, cache)
            kept = measure(name, network, data, settings)
            content = {"settings": asdict(settings), "measured": asdict(kept)}
            _write(path, json.dumps(content, indent=2))
        else:
            _say(f"{name}: as kept in {path}")
        found.append(kept)
        every = {
            "settings": asdict(settings),
            "machine": machine(),
            "networks": [asdict(each) for each in found],
        }
        _write(folder / "deployed.json", json.dumps(every, indent=2))
        _write(folder / "deployed.txt", f"{show(found, settings)}\n\n{show_distances(found)}\n")
        draw(found, folder / "deployed.png", settings)
    return found


def _read(path: Path, settings: Settings) -> Measured | None:
    """What an earlier run found, if it measured as much."""
    if not path.is_file():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["settings"] != asdict(settings):
        return None
    return Measured.from_dict(content["measured"])


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def show(found: Sequence[Measured], settings: Settings) -> str:
    """One line for each network: what fit costs, and how many passes its one is worth."""
    kinds = list(found[0].distances)
    header = ["", "form", "fit s", "plain µs", "ONNX ×", "PyTorch ×", "MC-30 ×", "file ×", "MB"]
    header += [*kinds, "std ratio"]
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
Fitted on {fit} unlabelled training inputs, compared on {inputs} test inputs of each kind.
ONNX ×, PyTorch ×, MC-30 ×: time of one input over the plain network's, one thread, in turn;
MC-30 is one batch in ONNX Runtime. file ×, MB: size of the ONNX file over the plain one's, and
memory at the peak beyond its. Then, for each kind of input, the passes of Monte Carlo that are as
close (KL) to {passes} passes as fit is, with 5 and 95 % quantiles when inputs are resampled; the
reference's own noise is subtracted, and {passes} is the most that can be told. std ratio: of the
logits, over Monte Carlo's, median on clean inputs."""


def _line(each: Measured) -> list[str]:
    weight = each.footprint(FITTED)
    over = weight.get("over_plain")
    found = [kind[FITTED] for kind in each.distances.values()]
    return [
        each.network,
        each.form,
        f"{each.fit_seconds:.0f}",
        f"{each.plain_us:.0f}",
        *(show_ratio(each.cost(FITTED)), show_ratio(each.eager[FITTED])),
        show_ratio(each.cost(name_of(30))),
        show_ratio(weight["file_ratio"]) if weight else "–",
        "–" if over is None else f"{over / 1e6:+.1f}",
        *(f"{d.passes:.0f} ({d.low:.0f}–{d.high:.0f})" for d in found),
        f"{found[0].std_ratio:.2f}",
    ]


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
            *(f"{distances[method].kl:.5f} ({distances[method].passes:.0f})" for method in methods),
        ]
        for each in found
        for kind, distances in each.distances.items()
    ]
    return text_table(["KL in nats (passes)", *methods], rows, numbers=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure fit on networks as they are deployed.")
    choices = [name for name in NETWORKS if name not in LEFT_OUT]
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--output", type=Path, default=Path("out") / "deployed")
    parser.add_argument(
        "--networks", nargs="+", default=list(DEFAULT), choices=choices, metavar="NAME",
        help=f"some of {', '.join(choices)}",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="for a look, not for figures")
    parser.add_argument("--moments", action="store_true", help="compare calibrated moments; slow")
    parser.add_argument(
        "--all", action="store_true", help="time batches of 8 and 64 and two threads, too"
    )
    parser.add_argument("--again", action="store_true", help="measure anew what is kept already")
    parser.add_argument("--threads", type=int, default=1, help="to fit and compare; default 1")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    size = QUICK if options.quick else Settings()
    settings = replace(size, threads=options.threads, moments=options.moments, every=options.all)
    found = run(
        options.networks,
        settings,
        options.output,
        root=options.data_root,
        cache=options.cache,
        again=options.again,
    )
    print(show(found, settings), end="\n\n")
    print(show_distances(found))
    _say(f"Picture: {options.output / 'deployed.png'}")


if __name__ == "__main__":
    main()
