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
_DEFAULT_SHARE = 0.4  # of the most doubt there can be: where to abstain unless the model says


@dataclass(frozen=True)
class LiveModel:
    """A classifier of windows.

    Attributes:
        name: to be shown.
        shape: of one input, without the batch.
        predict: a batch as numpy array → Prediction of numpy arrays.
        labels: one name per class.
        score: the doubt its abstain rule looks at, or entropy if it carries none.
        threshold: abstain at and above.
        own_rule: whether score and threshold are the model's own.
        channels_last: time is the first dimension of an input, not the last.
        scaling: what the channels are to be standardised with.
    """

    name: str
    shape: tuple[int, ...]
    predict: Callable[[Window], runtime.Prediction]
    labels: tuple[str, ...]
    score: str
    threshold: float
    own_rule: bool
    channels_last: bool = False
    scaling: Scaling | None = None

    @property
    def length(self) -> int:
        """How many instants a window has; an input of one dimension is a single instant."""
        if len(self.shape) == 1:
            return 1
        return self.shape[0] if self.channels_last else self.shape[-1]

    @property
    def channels(self) -> int:
        return math.prod(self.shape) // self.length

    def __call__(self, window: Window) -> runtime.Prediction:
        """Answer one window (instants, channels)."""
        x = window.T[None]
        x = x if self.scaling is None else self.scaling.apply(x)
        x = x.swapaxes(1, 2) if self.channels_last else x
        return self.predict(np.ascontiguousarray(x).reshape(1, *self.shape))


def exported(path: Path, **settings: Any) -> LiveModel:
    """A file of ``onesigma.export``, run by onnxruntime; PyTorch is not imported."""
    model = runtime.load(path, threads=1)
    shape, *others = model.input_shapes
    if others:
        raise ModelError(f"{path.name} takes {len(others) + 1} inputs, a stream is one.")
    settings["labels"] = settings.get("labels") or model.class_names
    return live_model(path.name, shape, model, rule=model.metadata.get("abstain"), **settings)


def opened_model(opened: Opened, **settings: Any) -> LiveModel:
    """Whatever else ``onesigma.storage.opening`` opens, run by PyTorch."""
    own = None if opened.converted is None else opened.converted.abstain
    rule = None if own is None else own.to_dict()
    settings["labels"] = settings.get("labels") or opened.class_names
    return live_model(opened.name, opened.input_shape, opened.predict, rule=rule, **settings)


def live_model(
    name: str,
    shape: Sequence[int | None] | None,
    predict: Callable[[Window], runtime.Prediction],
    *,
    labels: Sequence[str] | None = None,
    rule: Mapping[str, Any] | None = None,
    channels_last: bool = False,
    scaling: Scaling | None = None,
) -> LiveModel:
    """Tried once on zeros, so that what does not fit is said at the start.

    Raises:
        InputError: the shape of an input is not known, or there are not as many labels as classes.
        ModelError: the model is no classifier.
        DataError: the scaling is for another number of channels.
    """
    sizes = tuple(n for n in (shape or ())[1:] if n is not None)
    if shape is None or not sizes or len(sizes) != len(shape) - 1:
        raise InputError(f"{name}: the shape of its input must be known, but for the batch.")
    model = LiveModel(name, sizes, predict, (), "entropy", 0.0, False, channels_last, scaling)
    probs = model(np.zeros((model.length, model.channels), np.float32)).probs
    if probs is None or probs.ndim != 2:
        raise ModelError(f"{name} is no classifier: the live view shows one class per window.")
    classes = probs.shape[1]
    names = tuple(labels or (f"class {index}" for index in range(classes)))
    if len(names) != classes:
        raise InputError(f"{name} has {classes} classes, and there are {len(names)} labels.")
    if rule is None:
        return replace(model, labels=names, threshold=_DEFAULT_SHARE * math.log(classes))
    threshold = float(rule["threshold"])
    return replace(model, labels=names, score=rule["score"], threshold=threshold, own_rule=True)
