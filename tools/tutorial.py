"""Write docs/tutorial.md and examples/watch.ipynb from examples/watch.py; a test checks them.

python tools/tutorial.py
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "watch.py"
PAGE = ROOT / "docs" / "tutorial.md"
NOTEBOOK = ROOT / "examples" / "watch.ipynb"
_HEAD = re.compile(r"^# %%( \[markdown\])?\n", flags=re.MULTILINE)
_WRITTEN = "<!-- Written by tools/tutorial.py from examples/watch.py; do not edit. -->"
_NEXT = """\
## Next

The same as [a script](../examples/watch.py) and as a notebook, `examples/watch.ipynb`. Then:
[a report on your model](report.md), [the device](deployment.md), [the C code](microcontroller.md),
[what the number means](what-the-number-means.md).
"""


def cells() -> list[tuple[bool, str]]:
    """Whether each cell is text, and what it says; what is before the first one is left out."""
    _, *parts = _HEAD.split(SCRIPT.read_text(encoding="utf-8"))
    found = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        text = re.sub(r"^# ?", "", body, flags=re.MULTILINE) if mark else body
        found.append((bool(mark), text.strip("\n")))
    return found


def page() -> str:
    parts = [text if is_text else f"```python\n{text}\n```" for is_text, text in cells()]
    return "\n\n".join([parts[0], _WRITTEN, *parts[1:], _NEXT])


def notebook() -> str:
    def cell(number: int, is_text: bool, text: str) -> dict[str, object]:
        common = {"id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        if is_text:
            return {"cell_type": "markdown", **common}
        return {"cell_type": "code", "execution_count": None, "outputs": [], **common}

    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": [cell(number, *each) for number, each in enumerate(cells())],
        "metadata": {"kernelspec": python, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
