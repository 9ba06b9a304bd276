"""What the live view needs of a model: windows in, answers of numpy arrays out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma import runtime
from onesigma.errors import InputError, ModelError
from onesigma.runtime.contract import Contract, name_channels
from onesigma.runtime.reference import Reference
from onesigma.storage.opening import Opened, Predict
from onesigma.tables.windows import Scaling

Window = npt.NDArray[np.float32]
CHANNEL = "channel "  # how those without a name are called
_DEFAULT_SHARE = 0.4  # of the largest entropy: where to abstain unless the model says


@dataclass(frozen=True)
class LiveModel:
    """A classifier of windows."""

    name: str
    shape: tuple[int, ...]  # of one input, without the batch
    predict: Predict
    channels_last: bool = False  # time is the first dimension of an input, not the last
    scaling: Scaling | None = None  # how the channels are standardised
    class_names: tuple[str, ...] = ()
    score: str = "entropy"  # the uncertainty that the abstain rule compares
    threshold: float = 0.0  # abstain at and above
    own_rule: bool = False  # whether score and threshold are the model's own
    contract: Contract | None = None  # what is known of the inputs, if it has a guard
    reference: Reference | None = None  # what it says of known inputs

    @property
    def length(self) -> int:
        """How many instants a window has; an input of one dimension is a single instant."""
        if len(self.shape) == 1:
            return 1
        return self.shape[0] if self.channels_last else self.shape[-1]

    @property
    def channels(self) -> int:
        return math.prod(self.shape) // self.length

    @property
    def most(self) -> float:
        """The largest value that the score can have."""
        return 1.0 if self.score == "confidence" else math.log(len(self.class_names))

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the channels, if it was fitted with some."""
        known = () if self.contract is None else self.contract.channels
        return known if known and known != name_channels(len(known), None) else None

    def explain(self, answer: runtime.Prediction, names: Sequence[str]) -> str:
        """What is odd about the window, "" if nothing; ``names`` are those on the page."""
        contract = self.contract
        if contract is None or answer.contract is None:
            return ""
        if self.names is None and len(names) == len(contract.channels):
            contract = replace(contract, channels=tuple(n.removeprefix(CHANNEL) for n in names))
        return contract.explain(answer)[0]

    def __call__(self, window: Window) -> runtime.Prediction:
        """Answer one window (instants, channels)."""
        x = window.T[None]
        x = x if self.scaling is None else self.scaling.apply(x)
        x = x.swapaxes(1, 2) if self.channels_last else x
        return self.predict(np.ascontiguousarray(x).reshape(1, *self.shape))


def live_model(
    opened: Opened,
    *,
    class_names: Sequence[str] | None = None,
    channels_last: bool = False,
    scaling: Scaling | None = None,
) -> LiveModel:
    """Tried once on zeros, so that what does not fit is refused at the start."""
    name, shape, rule = Path(opened.name).name, opened.input_shape or (), opened.abstain
    sizes = tuple(n for n in shape[1:] if n is not None)
    if not sizes or len(sizes) != len(shape) - 1:
        raise InputError(f"{name}: the shape of its input must be known, except for the batch.")
    model = LiveModel(name, sizes, opened.predict, channels_last, scaling)
    model = replace(model, contract=opened.contract, reference=opened.reference)
    probs = model(np.zeros((model.length, model.channels), np.float32)).probs
    if probs is None or probs.ndim != 2:
        raise ModelError(f"{name} is no classifier, which live needs: use onesigma predict.")
    count = probs.shape[1]
    known = class_names or opened.class_names or [f"class {index}" for index in range(count)]
    if len(known) != count:
        raise InputError(f"{name} has {count} classes, but there are {len(known)} class names.")
    model = replace(model, class_names=tuple(known))
    if rule is None:
        return replace(model, threshold=_DEFAULT_SHARE * math.log(count))
    score, threshold = rule["score"], float(rule["threshold"])
    return replace(model, score=score, threshold=threshold, own_rule=True)
