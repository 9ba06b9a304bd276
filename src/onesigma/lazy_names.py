"""Public names imported on first use, so that ``import onesigma.runtime`` imports no PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

_HOMES = "_homes"


def import_on_use(package: str, homes: Mapping[str, str]) -> None:
    """Let the names in ``homes`` be attributes of the package; each value is a name's module."""
    module = sys.modules[package]
    vars(module)[_HOMES] = homes
    module.__class__ = _LazyPackage


class _LazyPackage(ModuleType):
    def __getattr__(self, name: str) -> Any:
        home = vars(self)[_HOMES].get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{self.__name__}.{home}"), name)
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the file convert.py would bind it over the function of that name.
        if not (isinstance(value, ModuleType) and name in vars(self)[_HOMES]):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *vars(self)[_HOMES]})
