"""Do two programs compute the same? How a graph is run to be checked, and how far off it may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-4
# A value much smaller than its neighbours is the rounded difference of larger ones: it is held to
# the tolerance at this share of the largest one. Entropies are rounded at the scale of one nat.
_FLOOR = 1e-2
# Novelty is a probability, and contract has 1 at its bounds.
_NATS = ("entropy", "aleatoric", "epistemic", "novelty", "contract")


def mismatch(name: str, found: npt.NDArray[Any], expected: npt.ArrayLike) -> float:
    """The largest error of one output, relative to its value or to the floor; ∞ for a NaN."""
    wanted = np.asarray(expected)
    if found.shape != wanted.shape:
        return float("inf")
    if wanted.dtype == np.bool_:
        return 0.0 if bool((found == wanted).all()) else float("inf")
    wanted = wanted.astype(np.float64)
    size = np.abs(wanted)
    scale = max(size.max(initial=0), 1.0 if name in _NATS else np.finfo(np.float32).tiny)
    # Infinities that agree are no error; their difference would be NaN.
    with np.errstate(invalid="ignore"):
        error = np.where(found == wanted, 0.0, np.abs(found - wanted) / (size + _FLOOR * scale))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0))


def checking_runtime(*, precise: bool = False) -> tuple[str, Callable[[bytes], Any]]:
    """onnxruntime where installed, else onnx's own reference: its name, and how to start it.

    Sums of products of 8-bit numbers saturate on many processors of PCs, unless it is ``precise``.
    """
    if find_spec("onnxruntime") is None:
        evaluator = import_module("onnx.reference").ReferenceEvaluator
        return f"onnx.reference {version('onnx')}", evaluator
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # warnings are about its own optimiser, and errors are raised
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    start = partial(
        onnxruntime.InferenceSession, sess_options=options, providers=["CPUExecutionProvider"]
    )
    return f"onnxruntime {version('onnxruntime')}", start
