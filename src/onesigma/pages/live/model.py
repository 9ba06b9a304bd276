"""What the live view needs of a model: windows in, answers of numpy arrays out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onesigma import runtime
from onesigma.errors import InputError, ModelError
from onesigma.tables.windows import Scaling

if TYPE_CHECKING:
    from onesigma.storage.opening import Opened

Window = npt.NDArray[np.float32]
Predict = Callable[[Window], runtime.Prediction]
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

    def __call__(self, window: Window) -> runtime.Prediction:
        """Answer one window (instants, channels)."""
        x = window.T[None]
        x = x if self.scaling is None else self.scaling.apply(x)
        x = x.swapaxes(1, 2) if self.channels_last else x
        return self.predict(np.ascontiguousarray(x).reshape(1, *self.shape))


def load_exported(path: Path, **settings: Any) -> LiveModel:
    """A file of ``onesigma.export``, run by onnxruntime; PyTorch is not imported."""
    model = runtime.load(path, threads=1)
    shape, *others = model.input_shapes
    if others:
        raise ModelError(f"{path.name} takes {len(others) + 1} inputs, but a stream is only one.")
    settings["class_names"] = settings.get("class_names") or model.class_names
    return live_model(path.name, shape, model, rule=model.metadata.get("abstain"), **settings)


def from_opened(opened: Opened, **settings: Any) -> LiveModel:
    """Whatever else ``onesigma.storage.opening`` opens, run by PyTorch."""
    own = None if opened.converted is None else opened.converted.abstain
    rule = None if own is None else own.to_dict()
    settings["class_names"] = settings.get("class_names") or opened.class_names
    return live_model(opened.name, opened.input_shape, opened.predict, rule=rule, **settings)


def live_model(
    name: str,
    shape: Sequence[int | None] | None,
    predict: Predict,
    *,
    class_names: Sequence[str] | None = None,
    rule: Mapping[str, Any] | None = None,
    channels_last: bool = False,
    scaling: Scaling | None = None,
) -> LiveModel:
    """Tried once on zeros, so that what does not fit is refused at the start."""
    sizes = tuple(n for n in (shape or ())[1:] if n is not None)
    if shape is None or not sizes or len(sizes) != len(shape) - 1:
        raise InputError(f"{name}: the shape of its input must be known, except for the batch.")
    model = LiveModel(name, sizes, predict, channels_last, scaling)
    probs = model(np.zeros((model.length, model.channels), np.float32)).probs
    if probs is None or probs.ndim != 2:
        raise ModelError(f"{name} is no classifier: the live view shows one class per window.")
    count = probs.shape[1]
    names = tuple(class_names or (f"class {index}" for index in range(count)))
    if len(names) != count:
        raise InputError(f"{name} has {count} classes, but there are {len(names)} class names.")
    if rule is None:
        return replace(model, class_names=names, threshold=_DEFAULT_SHARE * math.log(count))
    own = {"score": rule["score"], "threshold": float(rule["threshold"]), "own_rule": True}
    return replace(model, class_names=names, **own)
