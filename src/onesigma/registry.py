"""A table that decorators fill: one entry for each op, and never two."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Entry = TypeVar("Entry")


class Registry(dict[Key, Entry]):
    """What serves which op. A second entry for an op is an error, unless it says ``replace``."""

    def add(self, *keys: Key, replace: bool = False) -> Callable[[Entry], Entry]:
        """Make the decorated function (or the value it is called with) the entry of ``keys``."""

        def register(entry: Entry) -> Entry:
            for key in keys:
                if key in self and not replace:
                    raise ValueError(f"{key} has an entry already; say replace=True to change it.")
                self[key] = entry
            return entry

        return register
