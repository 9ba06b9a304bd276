"""Text for the terminal: names from a file are shown, and never obeyed."""

import pytest

from onesigma.text_table import printable, text_table

OBEYED = {
    "\x1b[2J": r"\x1b[2J",  # clears the screen
    "\x1b]0;owned\x07": r"\x1b]0;owned\x07",
    "\x9b31m": r"\x9b31m",
    "a\rb": r"a\rb",
    "a\tb\x00\x7f": r"a\tb\x00\x7f",
    "\u202egnp.exe": r"\u202egnp.exe",
    "\u2066x\u2069": r"\u2066x\u2069",
    "\u2028": r"\u2028",
    "\udcff": r"\udcff",
}


@pytest.mark.parametrize("text", OBEYED)
def test_what_a_terminal_would_obey_is_escaped(text):
    assert printable(text) == OBEYED[text]
    assert OBEYED[text] in text_table(("name",), [(text,)])


@pytest.mark.parametrize(
    "text", ["relu_1", "Gehen → Läufer", "می‌خواهم", "👩‍👩‍👧", "歩く", "two\nlines"]
)
def test_text_stays(text):
    assert printable(text) == text


def test_a_row_stays_on_its_line():
    assert text_table(("name", "op"), [("a\nb", "Relu"), ("c", "Add\x1b")]).splitlines() == [
        "name  op",
        "────  ───────",
        r"a\nb  Relu",
        r"c     Add\x1b",
    ]
