"""Arguments of public functions: one of the wrong type is an InputError that names it."""

from __future__ import annotations

import inspect
import os
import reprlib
from collections.abc import Callable, Iterable
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from onesigma.errors import InputError

Given = ParamSpec("Given")
Result = TypeVar("Result")
# What passes for a plain type: numbers of numpy too, but a bool is no number.
_PASSES: dict[Any, Any] = {
    int: Integral,
    float: Real,
    bool: bool | np.bool_,
    Path: os.PathLike,
}


def typed(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Check every call against the annotations; of a collection, only that it is one."""
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:
        written = {name: each.annotation for name, each in signature.parameters.items()}
        return get_type_hints(SimpleNamespace(__annotations__=written), function.__globals__)

    @wraps(function)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            kind = hints()[name]
            kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
            if not any(_is(value, each) for each in kinds):
                wanted = signature.parameters[name].annotation
                raise InputError(
                    f"{function.__name__}: {name}={reprlib.repr(value)} is a "
                    f"{type(value).__name__}, expected {wanted}."
                )
        return function(*args, **kwargs)

    return checked


def _is(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Callable:
        return callable(value)
    if origin is not None:
        return isinstance(value, Iterable)
    if kind in (int, float) and isinstance(value, bool):
        return False
    # A network that is no nn.Module gets a better message where it is captured.
    return kind.__name__ == "Module" or isinstance(value, _PASSES.get(kind, kind))
