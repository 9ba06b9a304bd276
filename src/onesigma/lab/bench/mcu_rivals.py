"""Uncertainty on a microcontroller, several ways: what each costs, and what it is worth.

Instructions (exact), flash and RAM in an emulated Cortex-M4, all in C that one generator wrote;
accuracy, NLL and AUROC on test inputs, of the same ONNX files on this machine. All batch norms are
folded. Early exits and next-activation heads are OUR re-implementations: see ``rival_modules``.

Monte Carlo runs what stands before the first dropout once, and the rest for each pass. The device
makes the masks itself: xorshift32, one word for each element. Not counted: the sum over passes.

    python -m onesigma.lab.bench.mcu_rivals --data-root ../shared/data [--networks ds_cnn resnet8]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from torch import Tensor, nn

import onesigma
from onesigma.exporters.c import Generated, generate
from onesigma.exporters.int8 import quantise
from onesigma.graph.split import cut, nodes_behind
from onesigma.lab import c_verify as verify
from onesigma.lab.bench import programs
from onesigma.lab.bench.int8 import short_fit
from onesigma.lab.bench.rival_modules import ExitEnsemble, Members, Surprise, folded, teach
from onesigma.lab.bench.trained import CACHE, RECIPES, load_trained
from onesigma.lab.datasets.noise import random_walk
from onesigma.lab.datasets.split import Splits
from onesigma.lab.spotting import entropy, spot_errors, spot_foreign
from onesigma.lab.training.train import fingerprint, train
from onesigma.metrics import accuracy, nll
from onesigma.metrics.scoring import FloatArray
from onesigma.runtime.comparison import checking_runtime
from onesigma.text_table import text_table

# The layers behind which an exit stands, and those whose channels are foretold or foretell.
EXITS = {"ds_cnn": (4, 6), "resnet8": (3, 4)}
TAPS = {"ds_cnn": (3, 4, 5, 6, 7), "resnet8": (2, 3, 4, 5)}
PASSES = (10, 30)
SEEDS = (1, 2)  # of the ensemble's other members
FIT, RANGES, FOREIGN = 800, 400, 1000  # inputs: to fit ours, for eight bits, of a random walk
PLAIN, OURS, ENSEMBLE = "plain", "ours", "ensemble of 3"
EXITING, SNAP = "early-exit ensemble (our version)", "next-activation head (our version)"

# In place of a dropout the file has a power of minus its rate, which C computes by this.
DROPOUT = """\
#include <math.h>
#include <stdint.h>
static uint32_t noise = 2463534242u;
static inline float dropped(float x, float power)
{
    const float rate = -power;
    noise ^= noise << 13;
    noise ^= noise >> 17;
    noise ^= noise << 5;
    return noise < (uint32_t)(rate * 4294967296.0f) ? 0.0f : x * (1.0f / (1.0f - rate));
}
#define powf dropped
"""


@dataclass(frozen=True)
class Cost:
    """One answer on the microcontroller; flash and RAM in bytes.

    ``error`` is how far the answer is from ONNX Runtime's, which draws no masks of ours.
    """

    instructions: int
    flash: int
    ram: int
    error: float | None


@dataclass(frozen=True)
class Worth:
    """What the answers are worth on test inputs; ``errors`` and ``foreign`` are AUROCs."""

    accuracy: float
    nll: float
    errors: float
    foreign: float


Scores = Mapping[str, FloatArray]  # "probs", and scores that are higher for more uncertainty
Rows = dict[str, tuple[Cost, Worth]]  # by the rival's name


class _Powered(nn.Module):
    """What stands for a dropout in the file; see DROPOUT."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return x**-self.rate


class _Answer(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.network(x).softmax(1),)


def with_marks(network: nn.Sequential) -> nn.Sequential:
    """The network with a mark in place of each dropout."""
    marked = deepcopy(network)
    for parent in list(marked.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(parent, name, _Powered(child.p))
    return marked


def draw_masks(generated: Generated) -> Generated:
    """Let the generated C drop where a mark stands."""
    code = generated.source.read_text(encoding="ascii")
    generated.source.write_text(DROPOUT + code, encoding="ascii")
    return generated


def write_pass(network: nn.Sequential, x: Tensor, folder: Path) -> list[Generated]:
    """One pass of Monte Carlo in C: what no mask reaches, and the rest, which takes its results."""
    graph = programs.graph_of(_Answer(with_marks(network)), (x[:2],))
    marks = [n for n in graph.graph.nodes if n.target is torch.ops.aten.pow.Tensor_Scalar]
    parts, live = list[Generated](), (x[:2],)
    for place, part in enumerate(cut(graph, [nodes_behind(graph.graph, marks)])):
        path = programs.program(part, live, folder / f"part_{place}.onnx").path
        parts.append(draw_masks(generate(onnx.load(path), folder / f"part_{place}")))
        live = part(*live)
    return parts


def cost_of_passes(network: nn.Sequential, x: Tensor, folder: Path) -> dict[int, Cost]:
    """The first part once, the second once a pass; what crosses is kept in RAM meanwhile."""
    first, second = write_pass(network, x, folder)
    before = verify.run(first, [dict.fromkeys(first.inputs, x[:1].numpy())], "cortex-m4")
    crossing = dict(zip(second.inputs, before.outputs[0].values(), strict=True))
    behind = verify.run(second, [crossing], "cortex-m4")
    flash = verify.flash(first) + verify.flash(second)
    ram = max(first.arena, second.arena) + 4 * sum(second.inputs.values())
    once, each = counted(before), counted(behind)
    return {count: Cost(once + count * each, flash, ram, None) for count in PASSES}


def counted(ran: verify.RunResult) -> int:
    assert ran.instructions is not None  # this emulator counts
    return ran.instructions


def cost_of_file(model: onnx.ModelProto, x: Tensor, folder: Path) -> Cost:
    """One answer of an ONNX file."""
    generated = generate(model, folder)
    samples = [dict.fromkeys(generated.inputs, x[:1].numpy())]
    ran = verify.run(generated, samples, "cortex-m4")
    error = verify.largest_mismatch(model, ran, samples)
    return Cost(counted(ran), verify.flash(generated), generated.arena, error)


def said_by_file(model: onnx.ModelProto, x: Tensor) -> Scores:
    """The file's answers: of ours by name, of others the probabilities and the score, if any."""
    session = checking_runtime()[1](model.SerializeToString())
    names = [each.name for each in model.graph.output]
    chunks = [
        session.run(names, {model.graph.input[0].name: c.numpy()}) for c in torch.split(x, 200)
    ]
    found = dict(zip(names, map(np.concatenate, zip(*chunks, strict=True)), strict=True))
    if "novelty" in found:
        scores = {"errors": found["entropy"], "foreign": -found["novelty"]}
        return {"probs": found["probs"], **scores}
    probs = found["output_0"]
    score = found.get("output_1", entropy(probs))
    return {"probs": probs, "errors": score, "foreign": score}


def said_by_passes(network: nn.Module, count: int, x: Tensor) -> Scores:
    """Monte Carlo in PyTorch."""
    sampled = onesigma.mc_dropout(network, count, seed=0)
    said = [sampled(chunk) for chunk in torch.split(x, 200)]
    probs, entropies = (
        torch.cat([getattr(each, name) for each in said]).numpy() for name in ("probs", "entropy")
    )
    return {"probs": probs, "errors": entropies, "foreign": entropies}


def worth_of(known: Scores, labels: Tensor, foreign: Scores) -> Worth:
    truth = labels.numpy()
    return Worth(
        accuracy(known["probs"], truth),
        nll(known["probs"], truth),
        spot_errors(known["errors"], known["probs"], truth).auroc,
        spot_foreign(known["foreign"], foreign["foreign"]).auroc,
    )


def load_members(name: str, first: nn.Module, data: Splits, cache: Path) -> list[nn.Module]:
    """The network, and others of the same recipe with other seeds; they are kept in the cache."""
    recipe, members = RECIPES[name], [first]
    key = fingerprint(first, data.train, data.validation, recipe.settings, recipe.augment)
    for seed in SEEDS:
        path = cache / f"{name}-{seed}-{key}.safetensors"
        sets = (data.train, data.validation, recipe.settings)
        made = train(recipe.build, *sets, seed=seed, path=path, augment=recipe.augment)
        members.append(made.network)
    return members


def load_ours(
    name: str, network: nn.Module, data: Splits, cache: Path, *, short: bool
) -> onesigma.Converted:
    """The first form that ``fit`` tries, of one row; kept in the cache.

    Whatever it is worth: on DS-CNN ``fit`` would go on to several rows, at several times the cost.
    ``short`` learns for a minute only, which changes no cost.
    """
    path = cache / f"{name}-rivals-{'short-' * short}fit.safetensors"
    if not path.is_file():
        generator = torch.Generator().manual_seed(0)
        some = [each.some(FIT // 2, generator) for each in (data.train, data.validation)]
        fitted = short_fit if short else partial(onesigma.fit, worth=1, seed=0)
        onesigma.save(fitted(network, torch.cat(some)), path)
    return onesigma.load(path)


def write_files(
    members: Sequence[nn.Sequential],
    ours: onesigma.Converted,
    data: Splits,
    places: tuple[Sequence[int], Sequence[int]],
    folder: Path,
) -> dict[str, onnx.ModelProto]:
    """All that is one file, in float and in eight bits."""
    x, labels, plain = data.train.inputs, data.train.labels, members[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        models = {
            PLAIN: _Answer(plain),
            ENSEMBLE: Members(members),
            EXITING: teach(ExitEnsemble(plain, places[0], x[:500]), x, labels),
            SNAP: teach(Surprise(plain, places[1], x[:500]), x, labels),
        }
    files = {}
    for place, (name, model) in enumerate(models.items()):
        path = programs.trace(model.eval(), (x[:2],), folder / f"rival_{place}.onnx").path
        files[name] = onnx.load(path)
    onesigma.export(ours, folder / "ours.onnx", example_input=x[:4])
    files[OURS] = onnx.load(folder / "ours.onnx")
    ranges = data.train.some(RANGES, torch.Generator().manual_seed(1)).numpy()
    eight = {f"{name}, int8": quantise(file, [ranges]) for name, file in files.items()}
    return files | eight


def compare(name: str, root: Path | None, cache: Path, *, short: bool) -> Rows:
    """All rivals on one network."""
    network, data = load_trained(name, root, cache)
    members = [folded(each) for each in load_members(name, network, data, cache)]  # type: ignore[arg-type]
    ours, test = load_ours(name, network, data, cache, short=short), data.test
    strange = random_walk(FOREIGN, test.inputs.shape[1:])
    rows: Rows = {}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = write_files(members, ours, data, (EXITS[name], TAPS[name]), folder)
        for label, file in files.items():
            cost = cost_of_file(file, test.inputs, folder / "c")
            if label.startswith(ENSEMBLE):  # one after the other, its members need the RAM of one
                cost = replace(cost, ram=rows[label.replace(ENSEMBLE, PLAIN)][0].ram)
            known, far = (said_by_file(file, x) for x in (test.inputs, strange))
            rows[label] = cost, worth_of(known, test.labels, far)
        for count, cost in cost_of_passes(members[0], test.inputs, folder).items():
            known, far = (said_by_passes(network, count, x) for x in (test.inputs, strange))
            rows[f"MC-{count}"] = cost, worth_of(known, test.labels, far)
    return rows


def show(rows: Rows) -> str:
    """A table, the float programs first."""
    head = ("", "M instructions", "over plain", "flash kB", "RAM kB", "accuracy %", "NLL")
    plain = rows[PLAIN][0].instructions
    lines = [
        (
            label,
            *(f"{cost.instructions / 1e6:.2f}", f"{cost.instructions / plain:.2f}"),
            *(f"{cost.flash / 1000:.0f}", f"{cost.ram / 1000:.0f}"),
            *(f"{100 * worth.accuracy:.1f}", f"{worth.nll:.3f}"),
            *(f"{worth.errors:.3f}", f"{worth.foreign:.3f}"),
        )
        for label, (cost, worth) in sorted(rows.items(), key=lambda item: "int8" in item[0])
    ]
    return text_table((*head, "AUROC errors", "AUROC foreign"), lines, numbers=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--networks", nargs="+", default=list(EXITS), choices=EXITS)
    parser.add_argument("--short", action="store_true", help="fit ours in a minute")
    parser.add_argument("--output", type=Path, help="write JSON here too")
    options = parser.parse_args()
    missing = verify.TARGETS["cortex-m4"].missing
    if missing:
        print(f"mcu_rivals: {missing}", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    result = {}
    for name in options.networks:
        rows = compare(name, options.data_root, options.cache, short=options.short)
        print(f"{name}\n{show(rows)}\n", flush=True)
        result[name] = {label: asdict(c) | asdict(w) for label, (c, w) in rows.items()}
        if options.output:
            options.output.write_text(json.dumps(result, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
