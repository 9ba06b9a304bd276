"""``package.module:factory``: a network by the name of the function or class that makes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from onesigma.errors import InputError, ModelError

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_factory(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def from_factory(name: str, *, trained: bool = False) -> nn.Module:
    """The network that ``factory`` returns, called without arguments; or the network it names.

    The current folder is searched first, as ``python -m`` does. If its weights have to be
    ``trained`` ones, it is called twice, because random weights differ each time.

    Raises:
        InputError: no such module, nothing of that name in it, or weights that differ.
        ModelError: the factory raises, or returns something else.
    """
    module_name, _, attribute = name.partition(":")
    with folders_on_path(Path.cwd()):
        factory = _attribute(_module(module_name), attribute)
        if isinstance(factory, nn.Module):
            return factory
        if not callable(factory):
            raise ModelError(f"{name} is a {type(factory).__name__}, not a function or a network.")
        model = _call(factory, name)
        if trained and not _same_weights(model, _call(factory, name)):
            raise InputError(
                f"{name} makes a network with random weights, others at each call: name the file "
                "of the trained ones with --weights."
            )
    return model


def _call(factory: Callable[[], Any], name: str) -> nn.Module:
    try:
        model = factory()
    except Exception as error:
        raise ModelError(
            f"{name}() raised {type(error).__name__}: {error}\n"
            "A factory takes no arguments and returns the network (an nn.Module)."
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name}() returned {type(model).__name__}, not an nn.Module.")
    return model


def _same_weights(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@contextmanager
def folders_on_path(*folders: Path) -> Iterator[None]:
    """Modules that lie there can be imported: those of the first folder first."""
    added = [str(folder) for folder in folders]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # Only if it is this module that is missing, and not one that it imports.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InputError(
                f"There is no module {error.name!r}, neither in {Path.cwd()} nor installed. Go to "
                "the folder that holds it, or name that folder in PYTHONPATH."
            ) from error
        raise InputError(f"{name} cannot be imported: {error}.") from error
    except Exception as error:
        raise InputError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            public = [each for each in vars(found) if not each.startswith("_")]
            near = get_close_matches(name, public, 3) or sorted(public)[:8]
            has = f"; it has {', '.join(near)}" if near else ""
            raise InputError(f"{module.__name__} has no {path!r}{has}.")
        found = getattr(found, name)
    return found
