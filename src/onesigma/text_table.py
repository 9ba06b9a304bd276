"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> str:
    """Columns as wide as they need to be; with ``numbers``, all but the first to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        align = str.rjust if numbers else str.ljust
        return "  ".join([first[0].ljust(first[1]), *(align(c, w) for c, w in rest)]).rstrip()

    # The last column may hold prose: a rule as long as its longest cell would only wrap.
    rules = ["─" * min(width, 40) for width in widths]
    return "\n".join([line(header), "  ".join(rules), *(line(row) for row in rows)])
