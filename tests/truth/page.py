"""The table of verdicts in docs/limits.md: ``test_kinds`` holds it true, and this writes it anew.

PYTHONPATH=tests python -m truth.page
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from truth.kinds import ALL, Net
from truth.verdicts import Verdict, judge

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
_TABLE = re.compile(r"(?<=<!-- verdicts -->\n).*?(?=<!-- end of verdicts -->)", re.DOTALL)
_ROW = re.compile(r"^\| `(.+?)` \| (.+?) \|$", re.MULTILINE)


def verdict_of(name: str) -> Verdict:
    kind, shape = ALL[name]
    net = Net(kind, shape)
    return judge(net, net.example(3))


def read() -> dict[str, str]:
    """What the page says of each kind."""
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found, "docs/limits.md has lost the marks of its table"
    return dict(_ROW.findall(found.group()))


def write(verdicts: dict[str, str]) -> None:
    counts = ", ".join(
        f"{count} {word}" for word, count in Counter(verdicts.values()).most_common()
    )
    rows = [f"| `{name}` | {word} |" for name, word in verdicts.items()]
    table = "\n".join(
        [f"{len(rows)} kinds: {counts}.", "", "| kind | verdict |", "|---|---|", *rows]
    )
    text = _TABLE.sub(lambda _: f"\n{table}\n\n", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write({name: verdict_of(name).word for name in ALL})
    print(f"Wrote {PAGE}")
