"""How close is one pass to Monte-Carlo dropout? Six trained networks, one table, one run.

KL divergence of the predicted probabilities to a reference of many Monte-Carlo passes, for the
plain network, Monte Carlo with few passes, and one pass with and without calibration; and the
median ratio of the logits' standard deviations. Gains are fitted on unlabelled TRAINING inputs.
On shifted test inputs the same gains are used again.

    python benchmarks/fidelity.py --data-root ../shared/data
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from networks import CACHE, NETWORKS
from shift import add_noise, rotate, speech_in_noise
from torch import Tensor, nn
from tqdm import tqdm

import onesigma
from onesigma.calibration.choice import fit_tuning
from onesigma.calibration.comparison import divergence
from onesigma.conversion import assemble
from onesigma.lab.datasets.prepared import Splits
from onesigma.text_table import text_table

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Reference:
    """Probabilities and logits' std over all passes, and the KL noise that is left in them."""

    probs: Tensor
    std: Tensor
    noise: float


@dataclass(frozen=True)
class Row:
    method: str
    kl: float
    std_ratio: float | None = None


def reference(network: nn.Module, x: Tensor, passes: int) -> Reference:
    halves = [onesigma.mc_dropout(network, passes // 2, seed=1000 + i)(x) for i in range(2)]
    first, second = (h.probs.double() for h in halves)
    std = ((halves[0].var + halves[1].var) / 2).sqrt()
    return Reference((first + second) / 2, std, divergence(first, second) / 4)


def variants(network: nn.Module, fit: Tensor, passes: int) -> dict[str, onesigma.Converted]:
    """One pass as converted; with gains and correlations; with the logits' covariance on top."""
    plain = onesigma.convert(network, fit[:2])
    chosen = onesigma.calibrate(plain, fit, passes=passes)
    tuning = chosen.settings.tuning
    if tuning == plain.settings.tuning:  # calibrate() kept none: show what it rejected
        tuning = fit_tuning(plain, fit, passes=passes)
    made = {"one pass": plain}
    for name, covariance, draws in (("+ gains", False, 64), ("+ gains + covariance", True, 256)):
        settings = replace(plain.settings, tuning=tuning, covariance=covariance, draws=draws)
        made[name] = assemble(plain.source, (fit[:2],), plain.report, settings, None)
    made["calibrate() chose"] = chosen
    return made


def shifted(name: str, data: Splits, order: Tensor, root: Path | None) -> dict[str, Tensor]:
    """The same test inputs as they are not in training."""
    if name == "keyword_cnn":
        return {"in ESC noise, 10 dB": speech_in_noise(data, 10, root)[order]}
    x = data.test.inputs[order]
    if name in ("paper_cnn", "digits_cnn"):  # these cannot be turned
        return {"with noise of 0.5 std": add_noise(x, 0.5)}
    return {
        "with noise of 0.5 std": add_noise(x, 0.5),
        "sensor turned by 60°": rotate(x, data, 60),
    }


@torch.no_grad()
def compare(
    network: nn.Module, models: dict[str, onesigma.Converted], x: Tensor, ref: Reference
) -> list[Row]:
    def kl(probs: Tensor) -> float:
        return divergence(ref.probs, probs.double())

    rows = [Row("plain network", kl(network.eval()(x).softmax(1)), 0.0)]
    for passes in (3, 10, 30, 100):
        runs = [kl(onesigma.mc_dropout(network, passes, seed=s)(x).probs) for s in SEEDS]
        rows.append(Row(f"MC dropout, {passes}", sum(runs) / len(runs)))
    for name, model in models.items():
        prediction = model(x)
        ratio = float((prediction.std / ref.std).median())
        rows.append(Row(name, kl(prediction.probs), ratio))
    return rows


def show(title: str, rows: list[Row], noise: float) -> str:
    cells = [
        (r.method, f"{r.kl:.4f}", "" if r.std_ratio is None else f"{r.std_ratio:.2f}") for r in rows
    ]
    table = text_table(("", "KL to MC", "std ratio"), cells, numbers=True)
    return f"{title} (noise of the reference {noise:.5f})\n{table}\n"


def _summary(tuning: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Per node the mean of each tuned number, without the correlation factors."""
    return {
        node: {
            option: round(float(torch.tensor(number).mean()), 2)
            for option, number in options.items()
            if option != "factors"
        }
        for node, options in tuning.items()
    }


def run(name: str, options: argparse.Namespace) -> dict[str, object]:
    network, data = NETWORKS[name](options.data_root, options.cache)
    network.eval()
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(data.test.labels), generator=generator)[: options.inputs]
    fit_order = torch.randperm(len(data.train.labels), generator=generator)[: options.fit]
    models = variants(network, data.train.inputs[fit_order], options.fit_passes)
    sets = {"clean": data.test.inputs[order]}
    if not options.clean_only:
        sets |= shifted(name, data, order, options.data_root)
    result: dict[str, object] = {
        "tuning": _summary(models["+ gains"].settings.tuning),
        "chosen": models["calibrate() chose"].report.notes[-1],
    }
    print(f"{name}: {result['tuning']}\n  {result['chosen']}")
    for title, x in sets.items():
        ref = reference(network, x, options.passes)
        rows = compare(network, models, x, ref)
        print(show(f"{name}, {title}", rows, ref.noise), flush=True)
        result[title] = {"noise": ref.noise, "rows": [asdict(row) for row in rows]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--inputs", type=int, default=100, help="test inputs per set")
    parser.add_argument("--passes", type=int, default=2000, help="passes of the reference")
    parser.add_argument("--fit", type=int, default=200, help="training inputs to fit gains on")
    parser.add_argument("--fit-passes", type=int, default=100, help="passes to fit gains with")
    parser.add_argument("--clean-only", action="store_true", help="leave out shifted inputs")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(2)
    results = {name: run(name, options) for name in tqdm(options.networks, unit="network")}
    if options.output:
        options.output.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
