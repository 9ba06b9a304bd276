"""No odd network is silently wrong: each is right, approximate and said so, or refused."""

import pytest
from truth import page
from truth.kinds import ALL
from truth.verdicts import CRASH, RIGHT, SILENT

QUICK = slice(None, None, 12)
NAMES = list(ALL)
KINDS = [n if n in NAMES[QUICK] else pytest.param(n, marks=pytest.mark.long) for n in NAMES]
STATED = page.read()


@pytest.mark.parametrize("name", KINDS)
def test_it_is_not_silently_wrong(name):
    verdict = page.verdict_of(name)
    assert verdict.word not in (SILENT, CRASH), verdict.why
    assert verdict.word == STATED[name], f"{verdict.why}; write the page anew: see truth/page.py"


def test_the_page_lists_every_kind():
    assert set(STATED) == set(ALL)
    assert list(STATED.values()).count(RIGHT) >= 60
