"""``History``: a stream of any length in 512 blocks, which become longer when all are full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.runtime.reference import SHOWN, Values

BLOCKS = 512


class History:
    """Averages over blocks of inputs tested.

    Attributes:
        length: how many inputs a block holds; it doubles when there are 512 blocks.
        count: how many inputs there were.
    """

    def __init__(self) -> None:
        self.length, self.count = 1, 0
        # Of each block: sums of what is shown, how many inputs are valid, the greatest evidence.
        self._blocks = np.zeros((BLOCKS, len(SHOWN) + 2))

    def add(self, rows: Values, valid: npt.NDArray[np.bool_], evidence: Values) -> None:
        """Take what is shown of the next inputs, NaN where there is nothing to show."""
        while len(rows):
            if self.count == BLOCKS * self.length:
                self._double()
            part = min(len(rows), BLOCKS * self.length - self.count)
            block = (self.count + np.arange(part)) // self.length
            sums = np.column_stack([np.nan_to_num(rows[:part]), valid[:part]])
            first = np.flatnonzero(np.diff(block, prepend=-1))
            self._blocks[block[first], :-1] += np.add.reduceat(sums, first)
            most = np.maximum.reduceat(evidence[:part], first)
            self._blocks[block[first], -1] = np.maximum(self._blocks[block[first], -1], most)
            self.count += part
            rows, valid, evidence = rows[part:], valid[part:], evidence[part:]

    def _double(self) -> None:
        pairs = self._blocks.reshape(-1, 2, self._blocks.shape[1])
        self._blocks = np.zeros_like(self._blocks)
        self._blocks[: len(pairs), :-1] = pairs[..., :-1].sum(1)
        self._blocks[: len(pairs), -1] = pairs[..., -1].max(1)
        self.length *= 2

    def arrays(self) -> dict[str, Values]:
        """For each block: where it ends, in inputs tested; averages; the greatest evidence."""
        used = self._blocks[: -(-self.count // self.length)]
        end = np.minimum(self.length * np.arange(1.0, len(used) + 1), self.count)
        valid = used[:, -2]
        with np.errstate(invalid="ignore"):  # no valid input: NaN
            means = {name: used[:, i] / valid for i, name in enumerate(SHOWN)}
        invalid = 1 - valid / np.diff(end, prepend=0)
        return {"end": end, **means, "invalid": invalid, "evidence": used[:, -1].copy()}

    def to_dict(self) -> dict[str, Any]:
        used = self._blocks[: -(-self.count // self.length)]
        return {"length": self.length, "count": self.count, "blocks": used.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> History:
        history = cls()
        history.length, history.count = int(content["length"]), int(content["count"])
        rows = np.array(content["blocks"], float).reshape(-1, history._blocks.shape[1])
        if history.length < 1 or len(rows) != -(-history.count // history.length):
            raise ValueError("the history is cut short")
        history._blocks[: len(rows)] = rows
        return history
