"""The blocks that every page is built of."""

import pytest

from onesigma.pages.html.page import facts, folded, page, table, words

HOSTILE = "<script>alert('x')</script>&\"'"
SAFE = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;&#x27;"


@pytest.mark.parametrize(
    "made",
    [
        page(HOSTILE, []),
        table(["", HOSTILE], [["row", "1"]]),
        table(["", "a"], [[HOSTILE, HOSTILE]]),
        words([HOSTILE], ""),
        facts([(HOSTILE, "")]),
        folded(HOSTILE, ""),
    ],
    ids=["title", "head", "cell", "words", "facts", "folded"],
)
def test_text_is_never_markup(made: str) -> None:
    assert "<script" not in made
    assert SAFE.replace("-", "\u2011") in made


def test_a_table_marks_rows_columns_and_the_best() -> None:
    made = table(["", "a", "b"], [["x", "1", "2"]], best={(0, 2)}, mark={"x": "ours"}.get)
    assert '<tr class="ours"><th scope="row">x</th><td>1</td><td class="best">2</td></tr>' in made
    assert table(["", "x"], [["y", "1"]], mark={"x": "ours"}.get).count('class="ours"') == 2


def test_a_page_has_the_shared_style_and_its_own() -> None:
    made = page("t", ["body"], style=".own { color: red }")
    assert made.index("prefers-color-scheme: dark") < made.index(".own")
