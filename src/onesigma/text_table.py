"""Text for the terminal: tables, and names from files that a terminal must not obey."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Control characters but for the line break, those that turn the direction of text, lone surrogates.
_OBEYED = re.compile(
    r"[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with escapes in the place of what a terminal would obey and not show."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def first_few(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Some names in a row, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def shape_text(shape: Sequence[int | None]) -> str:
    """``(batch, 3, 32)``: None stands for any batch."""
    return f"({', '.join('batch' if n is None else str(n) for n in shape)})"


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> str:
    """Columns as wide as they need to be; with ``numbers``, all but the first to the right."""
    rows = [[printable(str(cell)).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        align = str.rjust if numbers else str.ljust
        return "  ".join([first[0].ljust(first[1]), *(align(c, w) for c, w in rest)]).rstrip()

    # The last column may hold prose: a rule as long as its longest cell would only wrap.
    rules = ["─" * min(width, 40) for width in widths]
    return "\n".join([line(header), "  ".join(rules), *(line(row) for row in rows)])
