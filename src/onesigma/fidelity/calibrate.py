"""``calibrate``: one variance gain per layer, from unlabelled inputs.

The diagonal pass under-states the spread because elements share dropped units; the deeper the
layer, the more. Layer by layer, in order,

    gain = (mean Monte-Carlo variance of the layer's output) / (mean propagated variance there)

with the gains of the layers before it already applied. No label, no retraining; at run time a gain
is part of the squared weights and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from onesigma.convert import assemble, rules_for, uncertain
from onesigma.converted import Converted
from onesigma.errors import InputError
from onesigma.fidelity.audit import divergence
from onesigma.fidelity.observe import Observed, Progress, observe, silent
from onesigma.fidelity.watch import layers_of
from onesigma.gaussian import Gaussian
from onesigma.passes.capture import shared_copy
from onesigma.propagate import Propagate

_LAYERS = {"linear", "product"}  # where elements mix, and where the weights can take a gain


def calibrate(
    converted: Converted,
    *inputs: Tensor,
    passes: int = 100,
    seed: int = 0,
    progress: Progress = silent,
) -> Converted:
    """Fit one gain per layer on unlabelled inputs; returns a new converted model.

    Half of the inputs fit the gains, the other half decides: no gains, gains, or gains and the
    covariance of the logits, whichever is closest to Monte Carlo there. The report says which.

    Args:
        converted: the model; it stays as it is.
        inputs: real inputs without labels; a hundred or two are enough.
        passes: Monte-Carlo passes of the original.
        seed: of the masks.
        progress: wraps the passes, e.g. ``tqdm.tqdm``.
    """
    checked = converted.checked(inputs)
    if converted.settings.input_shapes[0][0] is not None:
        raise InputError("The model fixes its batch size: calibrate cannot split the inputs.")
    if len(checked[0]) < 4:
        raise InputError("calibrate needs at least 4 inputs: half of them check the gains.")
    observed = _observe_layers(converted, checked, passes, seed, progress)
    half = len(checked[0]) // 2
    gains = _fit(converted, checked, observed, half)
    candidates = {"none": converted}
    for name, covariance in (("gains", False), ("gains and covariance", True)):
        settings = replace(converted.settings, gains=gains, covariance=covariance)
        candidates[name] = assemble(
            converted.source, _examples(checked), converted.report, settings, converted.input_var
        )
    errors = {name: _error(m, checked, observed, half) for name, m in candidates.items()}
    best = min(errors, key=errors.__getitem__)
    tried = ", ".join(f"{name} {error:.4f}" for name, error in errors.items())
    note = f"calibrated with {best}: KL to Monte Carlo on held-out inputs: {tried}"
    return _with_note(candidates[best], note)


def fit_gains(
    converted: Converted,
    *inputs: Tensor,
    passes: int = 100,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, float]:
    """The gains alone, fitted on all the inputs and not checked."""
    checked = converted.checked(inputs)
    observed = _observe_layers(converted, checked, passes, seed, progress)
    return _fit(converted, checked, observed, len(checked[0]))


def _observe_layers(
    converted: Converted, inputs: Sequence[Tensor], passes: int, seed: int, progress: Progress
) -> Observed:
    if passes < 4:
        raise InputError(f"passes={passes}: a variance needs at least 4, better 100.")
    layers = {name for name, entry in layers_of(converted).items() if entry.rule in _LAYERS}
    return observe(converted, inputs, layers, passes, seed=seed, progress=progress)


def _examples(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(x[:2] for x in inputs)


@torch.no_grad()
def _fit(
    converted: Converted, inputs: Sequence[Tensor], observed: Observed, half: int
) -> dict[str, float]:
    fit = _Fit(converted, {name: m.var[:half] for name, m in observed.nodes.items()})
    fit.run(*uncertain([x[:half] for x in inputs], converted.input_var))
    return fit.found


class _Fit(Propagate):
    """One run of the engine that, at each layer, first corrects the variance, then goes on."""

    def __init__(self, converted: Converted, targets: dict[str, Tensor]) -> None:
        super().__init__(converted.source, rules_for(converted.settings.dropout))
        self.targets = targets
        self.found: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name not in self.targets or not isinstance(value, Gaussian):
            return value
        carried, wanted = float(value.expanded().var.mean()), float(self.targets[n.name].mean())
        gain = wanted / carried if carried > 0 and wanted > 0 else 1.0
        self.found[n.name] = gain
        return Gaussian(value.mean, gain * value.var)


@torch.no_grad()
def _error(converted: Converted, inputs: Sequence[Tensor], observed: Observed, half: int) -> float:
    """KL to the passes on the inputs from ``half`` on; for regression, of the two normals."""
    held_out = [x[half:] for x in inputs]
    prediction = converted(*held_out)
    if prediction.probs is not None:
        probs = prediction.probs.double().movedim(converted.settings.class_dim, -1)
        return divergence(observed.reference.probs[half:], probs)
    output = observed.output
    mean, var = output.mean[half:], output.var[half:].clamp(min=1e-30)
    ours = prediction.var.double().clamp(min=1e-30)
    ratio = var / ours
    shift = (prediction.mean.double() - mean).square() / ours
    return float(0.5 * (ratio + shift - 1 - ratio.log()).mean())


def _with_note(converted: Converted, note: str) -> Converted:
    """A model of its own (on the same weights): moving it must not move the one it came from."""
    report = replace(converted.report, notes=(*converted.report.notes, note))
    network, source = shared_copy(converted.network), shared_copy(converted.source)
    return Converted(network, source, report, converted.settings, converted.input_var).eval()
