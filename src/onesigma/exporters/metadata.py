"""What an exported file says of itself, beside its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from onesigma.converted import Converted
from onesigma.errors import InputError
from onesigma.prediction import Prediction
from onesigma.runtime.model import FORMAT
from onesigma.version import __version__


def describe(
    converted: Converted, answer: Prediction, class_names: Sequence[str] | None
) -> dict[str, Any]:
    """How the model was made, as JSON holds it. No path and no source line is among it."""
    if class_names is not None:
        _check_class_names(class_names, answer)
    settings = converted.settings.to_dict()
    del settings["input_shapes"], settings["input_dtypes"]  # the graph itself says so
    settings["tuning"] = _brief(settings["tuning"])
    sites = [
        {"node": site.node, "module": site.module, "op": site.op, "rate": site.rate}
        for site in converted.report.sites
    ]
    return {
        "format": FORMAT,
        "version": __version__,
        "noise_sites": sites,
        "input_std": input_std(converted.input_var),
        "class_names": None if class_names is None else list(class_names),
        **settings,
    }


def _brief(tuning: Any) -> Any:
    """What was tuned, to four digits; of factors, which are many, only how many."""
    if isinstance(tuning, dict):
        return {
            key: [len(value), len(value[0])] if key == "factors" else _brief(value)
            for key, value in tuning.items()
        }
    if isinstance(tuning, list):
        return [_brief(value) for value in tuning]
    return float(f"{tuning:.4g}")


def input_std(input_var: Tensor | None) -> float | list[float] | dict[str, float] | None:
    """The input's standard deviation: a number, one per channel, or its range."""
    if input_var is None:
        return None
    std = input_var[0].sqrt()
    channels = std.flatten(1) if std.dim() > 1 else std.unsqueeze(1)
    if bool((channels == channels[:, :1]).all()):
        values = [float(value) for value in channels[:, 0]]
        return values[0] if len(set(values)) == 1 else values
    return {"min": float(std.min()), "max": float(std.max())}


def _check_class_names(names: Sequence[str], answer: Prediction) -> None:
    if answer.probs is None:
        raise InputError("A regression model has no classes to name.")
    classes = answer.probs.shape[answer.class_dim]
    if isinstance(names, str) or len(names) != classes:
        raise InputError(f"class_names: {classes} names are needed, one per class; got {names!r}.")
