"""No odd network is silently wrong: each is right, approximate and said so, or refused."""

import pytest
from truth.kinds import ALL, Net
from truth.verdicts import CRASH, SILENT, judge

QUICK = slice(None, None, 12)
NAMES = list(ALL)
KINDS = [n if n in NAMES[QUICK] else pytest.param(n, marks=pytest.mark.long) for n in NAMES]


@pytest.mark.parametrize("name", KINDS)
def test_it_is_not_silently_wrong(name):
    kind, shape = ALL[name]
    net = Net(kind, shape)
    verdict = judge(net, net.example(3))
    assert verdict.word not in (SILENT, CRASH), verdict.why
