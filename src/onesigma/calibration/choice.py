"""``calibrate``: what elements share, learnt from unlabelled inputs.

The diagonal pass takes elements as independent, but they share dropped units: it under-states the
spread, the deeper the layer the more, and over-states maxima. Layer by layer, in order, gains and
correlations are fitted to Monte-Carlo dropout of the original (``fitter.py``). No label, no
retraining; at run time they cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, fx

from onesigma.arguments import typed
from onesigma.calibration.comparison import divergence, layers_of
from onesigma.calibration.fitter import Fitter, is_fitted
from onesigma.calibration.observation import Observed, Progress, RunningCovariance, observe, silent
from onesigma.conversion import FIXED_BATCH, assemble, has_linear_logits, with_covariance
from onesigma.converted import MOMENTS, Converted, Inputs
from onesigma.errors import InputError
from onesigma.graph.locate import output_of
from onesigma.rules.corrections import Corrections
from onesigma.values.gaussian import Gaussian

# With the covariance right, the error of 64 draws is what would be left of the distance.
_DRAWS = 256
_SEEN = 1e-12  # of the largest variance: below it an output counts as certain
# Beyond, the covariance of the features would take calibrate too long.
MAX_FEATURES = 2048


@typed
def calibrate(
    converted: Converted,
    inputs: Inputs,
    *,
    passes: int = 100,
    seed: int = 0,
    progress: Progress = silent,
) -> Converted:
    """Fit gains and correlations on unlabelled inputs; returns a new converted model.

    Half of the inputs fit them, the other half decides: none, gains, the covariance of the logits,
    or both, whichever is closest to Monte Carlo there in mean, spread and probabilities. The report
    says which, and says loudly if nothing helped.

    Args:
        converted: the model; it stays as it is.
        inputs: real inputs without labels, as a tensor or a tuple; a hundred or two are enough.
        passes: Monte-Carlo passes of the original.
        seed: of the masks.
        progress: wraps the passes, e.g. ``tqdm.tqdm``.
    """
    checked = converted.check_inputs(inputs)
    _require_calibratable(converted, checked)
    half = len(checked[0]) // 2
    observed = _observe_layers(converted, checked, passes, half, seed, progress)
    found = _fit(converted, checked, observed, half)
    candidates = {"none": converted, "gains": _variant(converted, checked, found)}
    if _knows_covariance(converted):
        as_it_is = converted.settings.corrections
        candidates |= {
            "covariance": _variant(converted, checked, as_it_is, covariance=True),
            "gains and covariance": _variant(converted, checked, found, covariance=True),
        }
    errors = {name: _misfit(m, checked, observed, half) for name, m in candidates.items()}
    best = min(errors, key=lambda name: errors[name].score)
    tried = "; ".join(f"{name}: {error}" for name, error in errors.items())
    notes = [f"calibrated with {best}. Against Monte Carlo on held-out inputs, {tried}"]
    if errors[best].is_off:
        notes.append(
            f"WARNING: after calibration it is still off ({errors[best]}). Do not trust this "
            "spread; print(onesigma.audit(converted, x)) shows the layer where it goes wrong"
        )
    chosen = candidates[best]
    return chosen.with_changes(report=replace(chosen.report, notes=(*chosen.report.notes, *notes)))


def _require_calibratable(converted: Converted, inputs: Sequence[Tensor]) -> None:
    if not converted.settings.dynamic_batch:
        raise InputError(f"calibrate splits the inputs. {FIXED_BATCH}")
    if converted.settings.form != MOMENTS:
        raise InputError("This model was fitted already: calibrate is for what convert returns.")
    if converted.temperature is not None or converted.abstain is not None:
        raise InputError(
            "Calibration changes the uncertainty that the temperature and the abstain rule were "
            "fitted on. Calibrate with_abstain(None).with_temperature(None), then fit them again."
        )
    if len(inputs[0]) < 4:
        raise InputError("calibrate needs at least 4 inputs: half of them check the gains.")


def fit_corrections(
    converted: Converted, inputs: Inputs, *, passes: int, seed: int = 0
) -> Corrections:
    """Corrections alone, fitted on all the inputs and not checked."""
    checked = converted.check_inputs(inputs)
    observed = _observe_layers(converted, checked, passes, len(checked[0]), seed, silent)
    return _fit(converted, checked, observed, len(checked[0]))


def _variant(
    converted: Converted,
    inputs: Sequence[Tensor],
    corrections: Corrections,
    *,
    covariance: bool = False,
) -> Converted:
    settings = replace(converted.settings, corrections=corrections)
    if covariance:
        settings = with_covariance(settings, converted.source)
        if corrections is not converted.settings.corrections:
            settings = replace(settings, draws=max(settings.draws, _DRAWS))
    examples = tuple(x[:2] for x in inputs)
    made_of = converted.source, examples, converted.report, settings
    return assemble(*made_of, converted.input_var, converted.own)


def _observe_layers(
    converted: Converted,
    inputs: Sequence[Tensor],
    passes: int,
    rows: int,
    seed: int,
    progress: Progress,
) -> Observed:
    if passes < 4:
        raise InputError(f"passes={passes}: a variance needs at least 4, better 100.")
    rules, known = converted.settings.rules, layers_of(converted)
    nodes = [node for node in converted.source.graph.nodes if node.name in known]
    layers = {node.name for node in nodes if is_fitted(rules[node.target])}
    features = _features_of_logits(converted.source) if _knows_covariance(converted) else None
    covary = {} if features is None else {features: rows}
    return observe(converted, inputs, layers, passes, seed=seed, progress=progress, covary=covary)


def _features_of_logits(source: fx.GraphModule) -> str | None:
    """The node that feeds a last linear layer, if that has few enough inputs."""
    features = output_of(source).args[0]
    assert isinstance(features, fx.Node)
    return features.name if int(features.meta["val"].shape[1]) <= MAX_FEATURES else None


def _knows_covariance(converted: Converted) -> bool:
    is_classifier = converted.settings.task == "classification"
    return is_classifier and has_linear_logits(converted.source)


@torch.no_grad()
def _fit(
    converted: Converted, inputs: Sequence[Tensor], observed: Observed, half: int
) -> Corrections:
    seen = {name: m for name, m in observed.nodes.items() if m.count}  # not those of two outputs
    targets = {name: Gaussian(m.mean[:half], m.var[:half]) for name, m in seen.items()}
    covariances = {n: m for n, m in observed.nodes.items() if isinstance(m, RunningCovariance)}
    return Fitter(converted, targets, covariances).run([x[:half] for x in inputs])


class Misfit(NamedTuple):
    """How far an answer is from Monte Carlo. Probabilities alone hide a spread that is wrong.

    Attributes:
        kl: of the probabilities, in nats; None for regression.
        plain_kl: that of the plain network.
        mean_error: median |mean − MC mean| of the outputs in MC standard deviations.
        std_ratio: median std / MC std of the outputs.
        normal_kl: of the outputs taken as normal: mean and spread in one number.
    """

    kl: float | None
    plain_kl: float
    mean_error: float
    std_ratio: float
    normal_kl: float

    @property
    def score(self) -> float:
        """Smaller is closer: what is left of the plain network's distance, and the normals'."""
        return (self.kl or 0.0) / max(self.plain_kl, 1e-12) + self.normal_kl

    @property
    def is_off(self) -> bool:
        return not 0.8 <= self.std_ratio <= 1.25 or self.mean_error > 0.5

    def __str__(self) -> str:
        kl = "" if self.kl is None else f"KL {self.kl:.4f}, "
        return f"{kl}mean off by {self.mean_error:.2f} std, spread {self.std_ratio:.2f} of it"


@torch.no_grad()
def _misfit(
    converted: Converted, inputs: Sequence[Tensor], observed: Observed, half: int
) -> Misfit:
    """How far off the answers are on the inputs from ``half`` on."""
    held = [x[half:] for x in inputs]
    prediction, output = converted(*held), observed.output
    mean, var = output.mean[half:], output.var[half:].clamp(min=1e-30)
    ours = prediction.var.double().clamp(min=1e-30)
    off = prediction.mean.double() - mean
    normal_kl = 0.5 * (var / ours + off.square() / ours - 1 - (var / ours).log())
    kl, plain_kl = None, 1.0
    if prediction.probs is not None:
        dim, reference = converted.settings.class_dim, observed.reference.probs[half:]
        plain = converted.source(*held)[0].softmax(dim)
        kl, plain_kl = (
            divergence(reference, probs.double().movedim(dim, -1))
            for probs in (prediction.probs, plain)
        )
    seen = var > _SEEN * var.max()
    return Misfit(
        kl,
        plain_kl,
        float((off.abs() / var.sqrt())[seen].median()),
        float((ours / var).sqrt()[seen].median()),
        float(normal_kl[seen].mean()),
    )
