"""``onesigma.fit`` on networks as they are deployed: how close to Monte Carlo, and at what cost.

    python -m onesigma.lab.bench.deployed --data-root ../shared/data

One network after the other: fitted on unlabelled inputs, half of the training set and half of the
validation set; compared with Monte Carlo of the original on TEST inputs, clean and shifted
(``closeness``); timed in turn with its plain network and with Monte Carlo as one batch. Each result
is kept as it comes: give the same command again to continue an interrupted run. In the end there
are a table, a JSON file and a picture.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import onesigma
from onesigma.baselines.backbone import original
from onesigma.calibration import corruption
from onesigma.calibration.corruption import Corruption
from onesigma.calibration.exam import Exam
from onesigma.calibration.observation import silent
from onesigma.calibration.teacher import Teacher
from onesigma.lab.bench import closeness, programs
from onesigma.lab.bench.closeness import Distance, name_of
from onesigma.lab.bench.contenders import Contender
from onesigma.lab.bench.deployed_picture import draw
from onesigma.lab.bench.deployed_result import (
    BARE,
    CLEAN,
    FITTED,
    LEFT_OUT,
    MOMENTS,
    PASSES,
    PLAIN,
    QUICK,
    TIMING,
    Measured,
    Settings,
    show,
    show_distances,
)
from onesigma.lab.bench.measurement import Bench, Plan, machine
from onesigma.lab.bench.result import Result
from onesigma.lab.bench.trained import CACHE, KEPT_ASIDE, NETWORKS, load_trained
from onesigma.lab.datasets.split import Splits
from onesigma.lab.timing import time_methods, torch_threads
from onesigma.storage.atomic import write_text

SHIFTS: dict[str, Corruption] = corruption.JUDGED_ON
SEEDS = (1, 2)  # of few passes; the reference has 0
RUNTIME = "onnxruntime"
_FIRST = ("paper_cnn", "ds_cnn", "resnet8", "mobilenet_v1", "tc_resnet", "vgg", "tcn")
DEFAULT = (*_FIRST, "ecg_resnet", "mlp", *sorted(KEPT_ASIDE))


def compare_network(
    name: str,
    network: nn.Module,
    data: Splits,
    settings: Settings,
    folder: Path,
    shifts: Mapping[str, Corruption] = SHIFTS,
) -> Measured:
    """Fit one network, and compare it; what was fitted is kept in the folder."""
    learnt, x = _draw_inputs(data, settings)
    _say(f"{name}: fit")
    start = time.perf_counter()
    ready = onesigma.fit(network, learnt, worth=settings.worth, seed=0)
    seconds = time.perf_counter() - start
    models = {FITTED: ready}
    if settings.moments:
        _say(f"{name}: moments")
        models[MOMENTS] = onesigma.calibrate(onesigma.convert(network, learnt[:4]), learnt, seed=0)
    for method, model in models.items():
        onesigma.save(model, _model_path(folder, name, method))
    generator = torch.Generator().manual_seed(1)
    kinds = {CLEAN: x} | {kind: shift(x, generator) for kind, shift in shifts.items()}
    distances = {}
    teacher = Teacher(original(network, (x[:4],), "classification", None), (x[:4],))
    for kind, inputs in kinds.items():
        _say(f"{name}: {kind} inputs against {settings.passes} passes")
        distances[kind] = compare(network, teacher, models, inputs, settings.passes)
    parameters = sum(p.numel() for p in network.parameters())
    return Measured(name, parameters, ready.settings.form, seconds, distances)


def time_network(
    found: Measured, network: nn.Module, data: Splits, settings: Settings, folder: Path
) -> Measured:
    """Add what it costs, of the models that are kept in the folder."""
    _, x = _draw_inputs(data, settings)
    methods = [method for method in (FITTED, MOMENTS) if method in found.distances[CLEAN]]
    paths = {method: _model_path(folder, found.network, method) for method in methods}
    models = {method: onesigma.load(path) for method, path in paths.items()}
    _say(f"{found.network}: times")
    eager = time_methods(
        {PLAIN: network, **models}, x[:1], reference=PLAIN, repeats=settings.repeats
    )
    return replace(
        found,
        eager={method: timing.ratio for method, timing in eager.items()},
        eager_plain_us=1e6 * eager[PLAIN].minimum,
        bench=time_in_onnxruntime(found.network, models, x, settings).to_dict(),
    )


def _model_path(folder: Path, name: str, method: str) -> Path:
    return folder / f"{name}-{method}.safetensors"


def _draw_inputs(data: Splits, settings: Settings) -> tuple[Tensor, Tensor]:
    """Inputs to fit on, of two sets, and inputs to compare on."""
    generator = torch.Generator().manual_seed(0)
    half = settings.fit // 2
    counts = ((data.train, half), (data.validation, half), (data.test, settings.inputs))
    *learnt, x = (split.some(count, generator) for split, count in counts)
    return torch.cat(learnt), x


@torch.no_grad()
def compare(
    network: nn.Module,
    teacher: Teacher,
    models: Mapping[str, onesigma.Converted],
    x: Tensor,
    passes: int,
) -> dict[str, Distance]:
    """All methods on inputs of one kind."""
    exam = Exam(teacher.teach((x,), passes, 0, silent))
    runs = [teacher.teach((x,), max(PASSES), seed, silent).logits for seed in SEEDS]
    each = torch.stack(runs).softmax(-1)
    few = {count: each[:, :, :count].mean(2) for count in PASSES}
    answers: dict[str, tuple[Tensor, Tensor | None]] = {PLAIN: (network(x).softmax(1), None)}
    for name, model in models.items():
        answer = model(x)
        assert answer.probs is not None
        answers[name] = (answer.probs, answer.std)
    return closeness.compare(exam, few, answers)


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
        made = {PLAIN: programs.plain(ready, examples, folder / "plain.onnx")}
        for method, model in models.items():
            made[method] = programs.one_pass(model, examples, folder / f"{method}.onnx")
        made[BARE] = programs.cut_guard(made[FITTED], folder / "bare.onnx")
        ours = [Contender(method, (program,)) for method, program in made.items()]
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
    timed: bool = True,
) -> list[Measured]:
    """Measure what is not in the folder yet; table, JSON and picture are renewed each time."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Measured] = []
    for name in names:
        path = folder / f"{name}.json"
        kept = None if again else _read(path, settings)
        before = kept
        try:
            if kept is None or (timed and not kept.bench):
                network, data = load_trained(name, root, cache)
                with torch_threads(settings.threads):
                    kept = kept or compare_network(name, network, data, settings, folder)
                    if timed:
                        kept = time_network(kept, network, data, settings, folder)
        except onesigma.OnesigmaError as error:  # the others are still worth measuring
            _say(f"{name}: left out: {error}")
            continue
        if kept is before:
            _say(f"{name}: as kept in {path}")
        content = {"settings": asdict(settings), "measured": asdict(kept)}
        write_text(path, json.dumps(content, indent=2))
        found.append(kept)
        if timed:
            _keep(found, settings, folder)
    return found


def _keep(found: Sequence[Measured], settings: Settings, folder: Path) -> None:
    networks = [asdict(each) for each in found]
    every = {"settings": asdict(settings), "machine": machine(), "networks": networks}
    write_text(folder / "deployed.json", json.dumps(every, indent=2))
    write_text(folder / "deployed.txt", f"{show(found, settings)}\n\n{show_distances(found)}\n")
    draw(found, folder / "deployed.png", settings)


def _read(path: Path, settings: Settings) -> Measured | None:
    """What an earlier run found, if it measured as much; without its times if these differ."""
    if not path.is_file():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    wanted = asdict(settings)
    other = {name for name in wanted if content["settings"].get(name) != wanted[name]}
    if other - TIMING:
        return None
    found = Measured.from_dict(content["measured"])
    return replace(found, bench={}) if other else found


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


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
    parser.add_argument("--inputs", type=int, help="test inputs; default 240")
    parser.add_argument("--worth", type=int, default=30, help="what fit is asked for; default 30")
    parser.add_argument("--moments", action="store_true", help="compare calibrated moments; slow")
    parser.add_argument(
        "--all", action="store_true", help="time batches of 8 and 64 and two threads, too"
    )
    parser.add_argument("--again", action="store_true", help="measure anew what is kept already")
    parser.add_argument("--threads", type=int, default=1, help="to fit and compare; default 1")
    parser.add_argument(
        "--untimed", action="store_true",
        help="fit and compare only, as on a busy machine; the same command without it adds times",
    )  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    size = QUICK if options.quick else Settings()
    settings = replace(
        size,
        inputs=options.inputs or size.inputs,
        worth=options.worth,
        threads=options.threads,
        moments=options.moments,
        every=options.all,
    )
    found = run(
        options.networks,
        settings,
        options.output,
        root=options.data_root,
        cache=options.cache,
        again=options.again,
        timed=not options.untimed,
    )
    if not found:
        raise SystemExit("Nothing could be measured.")
    if options.untimed:
        print(show_distances(found))
        return
    print(show(found, settings), end="\n\n")
    print(show_distances(found))
    _say(f"Picture: {options.output / 'deployed.png'}")


if __name__ == "__main__":
    main()
