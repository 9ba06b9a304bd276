"""Arguments of public functions: one of the wrong type is an InputError that names it."""

from __future__ import annotations

import inspect
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from onesigma.errors import InputError

Given = ParamSpec("Given")
Result = TypeVar("Result")
# What passes for a type: numbers of numpy too, and lists. Of a collection only that it is one.
_PASSES: dict[Any, Any] = {int: Integral, float: Real, bool: bool | np.bool_, Path: os.PathLike}
_PASSES |= {tuple: tuple | list, dict: Mapping, Callable: Callable}


def typed(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Check every call of the function against its annotations."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if not _fits(value, _hints(function)[name]):
                raise InputError(
                    f"{function.__name__}: {name}={reprlib.repr(value)} is a "
                    f"{type(value).__name__}, expected {function.__annotations__[name]}."
                )
        return function(*args, **kwargs)

    return checked


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    written = {name: each for name, each in function.__annotations__.items() if name != "return"}
    return get_type_hints(SimpleNamespace(__annotations__=written), function.__globals__)


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if isinstance(value, bool) and kind in (int, float):
        return False
    origin = get_origin(kind)
    # A network that is no nn.Module gets a better message where it is captured.
    anything = getattr(kind, "__name__", "") == "Module"
    return anything or isinstance(value, _PASSES.get(origin or kind, Iterable if origin else kind))
