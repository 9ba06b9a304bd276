"""How close one pass is to Monte-Carlo dropout: six trained networks, one table, one run.

KL divergence of the predicted probabilities to a reference of many Monte-Carlo passes, for the
plain network, Monte Carlo with few passes, and one pass with and without calibration; and the
median ratio of the logits' standard deviations. Gains are fitted on unlabelled TRAINING inputs.
The same gains are used again on shifted test inputs: with noise, from a turned sensor, in noise of
ESC-10.

    python -m onesigma.lab.bench.fidelity --data-root ../shared/data
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import onesigma
from onesigma.calibration.choice import fit_corrections
from onesigma.calibration.comparison import divergence
from onesigma.conversion import assemble, with_covariance
from onesigma.lab.bench.trained import CACHE, FIRST, NETWORKS, load_trained
from onesigma.lab.datasets import esc, noise, speech
from onesigma.lab.datasets.mfcc import SAMPLE_RATE
from onesigma.lab.datasets.split import Splits
from onesigma.rules.corrections import Corrections, Factors
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
    """How close one method is to the reference."""

    method: str
    kl: float
    std_ratio: float | None = None


def reference(network: nn.Module, x: Tensor, passes: int) -> Reference:
    halves = [onesigma.mc_dropout(network, passes // 2, seed=1000 + i)(x) for i in range(2)]
    first, second = (_probs(half).double() for half in halves)
    std = ((halves[0].var + halves[1].var) / 2).sqrt()
    return Reference((first + second) / 2, std, divergence(first, second) / 4)


def variants(network: nn.Module, fit: Tensor, passes: int) -> dict[str, onesigma.Converted]:
    """One pass as converted; with gains and correlations; with the logits' covariance on top."""
    plain = onesigma.convert(network, fit[:2])
    chosen = onesigma.calibrate(plain, fit, passes=passes)
    found = fit_corrections(plain, fit, passes=passes)  # as calibrate() finds them, kept or not
    made = {"one pass": plain}
    for name, covariance, draws in (("+ gains", False, 64), ("+ gains + covariance", True, 256)):
        settings = replace(plain.settings, corrections=found, draws=draws)
        settings = with_covariance(settings, plain.source) if covariance else settings
        made[name] = assemble(plain.source, (fit[:2],), plain.report, settings, None)
    made["calibrate() chose"] = chosen
    return made


def shift_inputs(name: str, data: Splits, order: Tensor, root: Path | None) -> dict[str, Tensor]:
    """The same test inputs as they are not in training."""
    if name == "keyword_cnn":
        return {"in ESC noise, 10 dB": speech_in_noise(data, 10, root)[order]}
    x = data.test.inputs[order]
    found = {"with noise of 0.5 std": add_noise(x, 0.5)}
    if name not in ("paper_cnn", "digits_cnn"):  # these cannot be turned
        found["sensor turned by 60°"] = turn_sensors(x, data, 60)
    return found


def add_noise(inputs: Tensor, std: float, seed: int = 0) -> Tensor:
    """Inputs plus normal noise of `std`, in units of the training data's standard deviation."""
    return inputs + std * noise.white_noise(len(inputs), inputs.shape[1:], seed)


def turn_sensors(inputs: Tensor, splits: Splits, degrees: float, seed: int = 0) -> Tensor:
    """Windows of a sensor worn turned: by `degrees`, about a random axis for each window.

    For windows (n, 6, time) or (n, 2, 3, time): accelerometer and gyroscope are in one case, so
    they turn alike. The turn is in raw units; standardised axes would not turn rigidly.
    """
    rng, angle = np.random.default_rng(seed), math.radians(degrees)
    turns = np.stack([noise.turn_about(rng.normal(size=3), angle) for _ in inputs])
    raw = inputs * splits.input_std + splits.input_mean
    sensors = raw.reshape(len(inputs), 2, 3, -1)
    turned = torch.einsum("nij,nsjt->nsit", torch.from_numpy(turns).to(raw), sensors)
    return splits.standardise(turned.reshape(inputs.shape))


def speech_in_noise(
    splits: Splits, snr_db: float, root: Path | None = None, seed: int = 0
) -> Tensor:
    """The test clips in real noise (ESC-10), mixed as sound, in the order of `splits.test`."""
    clips, sounds, rng = speech.read(root), esc.read(root), np.random.default_rng(seed)
    test = clips.audio[clips.is_test]
    periods = noise.plan_ambient(test.size / SAMPLE_RATE, tuple(sounds), rng)
    mixed = noise.add_ambient(test, periods, sounds, rng, snr_db)
    return splits.standardise(speech.features(mixed))


@torch.no_grad()
def compare(
    network: nn.Module, models: dict[str, onesigma.Converted], x: Tensor, ref: Reference
) -> list[Row]:
    def kl(probs: Tensor) -> float:
        return divergence(ref.probs, probs.double())

    rows = [Row("plain network", kl(network.eval()(x).softmax(1)), 0.0)]
    for passes in (3, 10, 30, 100):
        runs = [kl(_probs(onesigma.mc_dropout(network, passes, seed=s)(x))) for s in SEEDS]
        rows.append(Row(f"MC dropout, {passes}", sum(runs) / len(runs)))
    for name, model in models.items():
        prediction = model(x)
        ratio = float((prediction.std / ref.std).median())
        rows.append(Row(name, kl(_probs(prediction)), ratio))
    return rows


def _probs(prediction: onesigma.Prediction) -> Tensor:
    assert prediction.probs is not None
    return prediction.probs


def show(title: str, rows: list[Row], left: float) -> str:
    cells = [
        (r.method, f"{r.kl:.4f}", "" if r.std_ratio is None else f"{r.std_ratio:.2f}") for r in rows
    ]
    table = text_table(("", "KL to MC", "std ratio"), cells, numbers=True)
    return f"{title} (noise of the reference {left:.5f})\n{table}\n"


def _summarise(corrections: Corrections) -> dict[str, dict[str, float]]:
    """Per node the mean of each corrected number, without the correlation factors."""
    return {
        node: {
            f"{type(each).__name__}.{field.name}": round(
                float(torch.as_tensor(getattr(each, field.name)).mean()), 2
            )
            for each in found
            for field in fields(each)
            if not isinstance(each, Factors)
        }
        for node, found in corrections.items()
    }


def run(name: str, options: argparse.Namespace) -> dict[str, object]:
    network, data = load_trained(name, options.data_root, options.cache)
    network.eval()
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(data.test.labels), generator=generator)[: options.inputs]
    fit_order = torch.randperm(len(data.train.labels), generator=generator)[: options.fit]
    models = variants(network, data.train.inputs[fit_order], options.fit_passes)
    sets = {"clean": data.test.inputs[order]}
    if not options.clean_only:
        sets |= shift_inputs(name, data, order, options.data_root)
    result: dict[str, object] = {
        "corrections": _summarise(models["+ gains"].settings.corrections),
        "chosen": models["calibrate() chose"].report.notes[-1],
    }
    print(f"{name}: {result['corrections']}\n  {result['chosen']}")
    for title, x in sets.items():
        ref = reference(network, x, options.passes)
        rows = compare(network, models, x, ref)
        print(show(f"{name}, {title}", rows, ref.noise), flush=True)
        result[title] = {"noise": ref.noise, "rows": [asdict(row) for row in rows]}
    return result


def add_options(parser: argparse.ArgumentParser, inputs: int) -> None:
    """What all comparisons with Monte Carlo take."""
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of trained weights")
    parser.add_argument("--inputs", type=int, default=inputs, help="test inputs per set")
    parser.add_argument("--passes", type=int, default=2000, help="passes of the reference")
    parser.add_argument("--fit", type=int, default=200, help="training inputs to fit gains on")
    parser.add_argument("--fit-passes", type=int, default=100, help="passes to fit gains with")
    parser.add_argument("--output", type=Path, help="write the figures there as JSON")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser, inputs=100)
    parser.add_argument("--networks", nargs="+", default=list(FIRST), choices=NETWORKS)
    parser.add_argument("--clean-only", action="store_true", help="leave out shifted inputs")
    options = parser.parse_args()
    torch.set_num_threads(2)
    results = {name: run(name, options) for name in options.networks}
    if options.output:
        options.output.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
