"""Writes docs/architectures.md from the table; ``test_architectures`` keeps both true."""

from __future__ import annotations

from pathlib import Path

from architectures import ARCHITECTURES, OUTCOMES, build

PAGE = Path(__file__).parents[1] / "docs" / "architectures.md"
_STAGES = {"fit": "fit", "onnx": "ONNX", "c": "C", "convert": "convert"}
_NEEDS_FIT = ("onnx", "c")
_HEADER = """\
# Architectures

Networks as people in sensing write them, after their papers, and what becomes of each. All are
small and untrained ([code](../tests/sensing)). The tables are written from what the
[tests](../tests/test_architectures.py) expect:

- **fit**: `fit` runs, and so does an `audit` of what it made;
- **ONNX**, **C**: what was fitted gives the same answer in ONNX Runtime, and as compiled C;
- **convert**: the spread of `convert` was compared with Monte Carlo. Noise that is drawn by hand,
  as in drop-path, is not carried by `convert`, and its report says so; `fit` learns it. Where a
  recurrent layer has no rule, `convert(…, particles=4)` takes it.
"""


def text() -> str:
    parts, notes = [_HEADER], dict[str, int]()
    for kind in dict.fromkeys(each.kind for each in ARCHITECTURES.values()):
        rows = [f"## {kind}", "", f"| | weights | {' | '.join(_STAGES.values())} |"]
        rows += ["|---|---|" + "---|" * len(_STAGES)]
        for name, each in ARCHITECTURES.items():
            if each.kind == kind:
                weights = sum(p.numel() for p in build(name).parameters())
                cells = [_cell(stage, name, notes) for stage in _STAGES]
                rows.append(f"| {name} | {weights:,} | {' | '.join(cells)} |")
        parts.append("\n".join(rows) + "\n")
    reasons = [f"{number}. {words}" for words, number in notes.items()]
    return "\n".join([*parts, "\n".join(["## Why not", "", *reasons]) + "\n"])


def _cell(stage: str, name: str, notes: dict[str, int]) -> str:
    if stage in _NEEDS_FIT and name in OUTCOMES["fit"]:
        return "–"
    words = OUTCOMES[stage].get(name)
    if words is not None:
        return f"no ({notes.setdefault(words, len(notes) + 1)})"
    return "yes"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
