"""``Words``: a column of a few words that many rows share. Each row has a number, not a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = slice | npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Words:
    """Row ``i`` has ``words[codes[i]]``."""

    words: tuple[str, ...]
    codes: npt.NDArray[np.integer[Any]]

    dtype = np.dtype(object)  # of ``__array__``

    @staticmethod
    def of(texts: Iterable[str]) -> Words:
        """What a row has in common with others is found out."""
        found: dict[str, int] = {}
        codes = [found.setdefault(text, len(found)) for text in texts]
        return Words(tuple(found), np.array(codes, np.int32))

    @staticmethod
    def at(rows: npt.NDArray[np.intp], texts: Iterable[str], count: int) -> Words:
        """These texts in these rows, "" in all others."""
        some, codes = Words.of(["", *texts]), np.zeros(count, np.int32)
        codes[rows] = some.codes[1:]
        return Words(some.words, codes)

    @staticmethod
    def all(word: str, rows: int) -> Words:
        """The same in every row."""
        return Words((word,), np.zeros(rows, np.int32))

    @staticmethod
    def cat(parts: Sequence[Words]) -> Words:
        """One column after the other."""
        words, codes = dict[str, int](), list[npt.NDArray[np.intp]]()
        for part in parts:
            places = [words.setdefault(word, len(words)) for word in part.words]
            codes.append(np.array(places, np.intp)[part.codes])
        return Words(tuple(words), np.concatenate(codes))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Rows) -> Words:
        return Words(self.words, self.codes[rows])

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.object_]:
        return np.asarray(np.array(self.words, object)[self.codes])

    def tolist(self) -> list[str]:
        return [self.words[code] for code in self.codes.tolist()]

    def are(self, *words: str) -> npt.NDArray[np.bool_]:
        """For each row, whether it has one of these."""
        return np.asarray(np.array([word in words for word in self.words], bool)[self.codes])

    def count(self) -> dict[str, int]:
        """How many rows have each word, the commonest first."""
        counts = np.bincount(self.codes, minlength=len(self.words)).tolist()
        named = Counter({w: n for w, n in zip(self.words, counts, strict=True) if n})
        return dict(named.most_common())

    def where(self, keep: npt.NDArray[np.bool_], other: Words) -> Words:
        """Those of ``other`` in the rows that are not kept."""
        if keep.all():
            return self
        both = Words.cat([self, other])
        return Words(both.words, np.where(keep, both.codes[: len(self)], both.codes[len(self) :]))
