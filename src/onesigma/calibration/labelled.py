"""What labels add to a fitted network: a temperature, and a rule when to act.

One half of the labelled inputs, of other people if there are groups, is for the temperature, the
other for the rule: a promise needs examples that nothing else was fitted on. How much the
temperature grows with novelty is fitted on corrupted copies of the first half, whose labels hold.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from onesigma.calibration.corruption import LABEL_HOLDS
from onesigma.calibration.teacher import corrupt
from onesigma.converted import Converted
from onesigma.decide.interval import fit_interval
from onesigma.decide.temperature import Temperature, checked_labels, fit_temperature, logs
from onesigma.decide.threshold import threshold
from onesigma.errors import InputError
from onesigma.prediction import Prediction

FEWEST = 40
_SHIFTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
_WORSE = 0.01  # nats that the temperature may cost on clean inputs, if it gains more on others
Labelled = tuple[Tensor | tuple[Tensor, ...], Tensor]


def learn_from_labels(
    made: Converted,
    labelled: Labelled,
    *,
    groups: Tensor | None = None,
    risk: float | None = None,
    seed: int = 0,
) -> Converted:
    """The network with a temperature, if that helps, and with a rule, if there is a ``risk``."""
    inputs, labels = checked_labelled(made, labelled, groups)
    first = first_half(len(labels), groups, seed)
    if made.settings.task == "regression":
        if groups is not None:
            raise InputError(
                "groups: an interval promises nothing for new people. Leave groups out; it then "
                "holds for inputs like the labelled ones."
            )
        return _with_interval(made, inputs, labels, first, risk)
    made = made.with_abstain(None).with_temperature(None)
    heat = _temperature(made, tuple(x[first] for x in inputs), labels[first], seed)
    if heat is not None:
        made = made.with_temperature(heat)
    if risk is None:
        return made
    seen = made.predict(tuple(x[~first] for x in inputs))
    theirs = None if groups is None else groups[~first]
    return made.with_abstain(threshold(seen, labels[~first], risk=risk, groups=theirs))


def _with_interval(
    made: Converted, inputs: tuple[Tensor, ...], values: Tensor, first: Tensor, risk: float | None
) -> Converted:
    if risk is None:
        raise InputError("labelled needs risk: the share of values that may lie outside, as 0.1.")
    seen = made.predict(inputs)
    one = seen.mean.shape[seen.class_dim] == 1 and values.dim() == seen.mean.dim() - 1
    values = values.unsqueeze(seen.class_dim) if one else values
    interval = fit_interval(seen, values, first, risk)
    return made.with_changes(settings=replace(made.settings, interval=interval))


def checked_labelled(
    made: Converted, labelled: Labelled, groups: Tensor | None
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The inputs and their labels, if there are enough and one group for each."""
    inputs, labels = tuple(made.check_inputs(labelled[0])), torch.as_tensor(labelled[1])
    if len(labels) != len(inputs[0]) or len(labels) < FEWEST:
        raise InputError(
            f"labelled: {len(inputs[0])} inputs and {len(labels)} labels. Give a label for each "
            f"input, and at least {FEWEST} of them."
        )
    if groups is not None and len(groups) != len(labels):
        raise InputError(f"groups: {len(groups)} numbers for {len(labels)} labelled inputs.")
    return inputs, labels


def first_half(count: int, groups: Tensor | None, seed: int) -> Tensor:
    """A mask of about half of the rows; nobody is in both halves."""
    names = torch.arange(count) if groups is None else torch.as_tensor(groups)
    each = sorted({*names.tolist()})
    if len(each) < 4:  # one person alone would make the rule
        each, names = [*range(count)], torch.arange(count)
    order = torch.randperm(len(each), generator=torch.Generator().manual_seed(seed))
    chosen = {each[k] for k in order[: len(each) // 2].tolist()}
    return torch.tensor([name in chosen for name in names.tolist()])


def _temperature(
    made: Converted, inputs: tuple[Tensor, ...], labels: Tensor, seed: int
) -> Temperature | None:
    """The one that is best on inputs it was not fitted on; None if that is none at all."""
    generator = torch.Generator().manual_seed(seed)
    clean = made.predict(inputs)
    assert clean.probs is not None
    labels = checked_labels(clean.probs, labels, 1)
    shifted = made.predict(corrupt(inputs, LABEL_HOLDS, generator, made.time_dims(inputs)))
    part = torch.randperm(len(labels), generator=generator) % 2 == 0
    halves = [(part, ~part), (~part, part)]
    fitted = [fit_temperature(clean.probs[a], labels[a]) for a, _ in halves]
    again = torch.cat([labels] * len(LABEL_HOLDS))

    def loss(prediction: Prediction, truth: Tensor, shift: float | None) -> float:
        """The NLL on the half that each temperature was not fitted on."""
        total, times = 0.0, len(truth) // len(labels)
        for (_, b), heat in zip(halves, fitted, strict=True):
            chosen = Temperature(1.0) if shift is None else replace(heat, shift=shift)
            rows = b.repeat(times)
            total += nll(chosen.apply(prediction.take(rows)), truth[rows])
        return total / 2

    allowed = loss(clean, labels, None) + _WORSE
    shifts = _SHIFTS if clean.novelty is not None else _SHIFTS[:1]
    scores = {
        shift: loss(shifted, again, shift)
        for shift in shifts
        if loss(clean, labels, shift) < allowed
    }
    if not scores:
        return None
    best = min(scores, key=scores.__getitem__)
    gain = loss(shifted, again, None) - scores[best]
    if gain <= 0 and loss(clean, labels, best) >= loss(clean, labels, None):
        return None
    return replace(fit_temperature(clean.probs, labels), shift=best)


def nll(prediction: Prediction, labels: Tensor) -> float:
    assert prediction.probs is not None
    found = -float(logs(prediction.probs).gather(1, labels.unsqueeze(1)).mean())
    return found if math.isfinite(found) else math.inf
