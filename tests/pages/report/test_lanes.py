"""Lanes: every edge of the graph is drawn, once, and no two values share a lane."""

import random

from onesigma.pages.report.lanes import Row, assign

CHAIN = [("a", ()), ("b", ("a",)), ("c", ("b",))]
SKIP = [("x", ()), ("conv", ("x",)), ("relu", ("conv",)), ("add", ("x", "relu")), ("y", ("add",))]


def test_a_chain_is_one_lane() -> None:
    assert [row.lane for row in assign(CHAIN)] == [0, 0, 0]
    assert assign(CHAIN)[0] == Row(0, (), (), True)
    assert not assign(CHAIN)[-1].goes_on


def test_a_residual_connection_runs_beside_its_branch() -> None:
    rows = assign(SKIP)
    assert [row.lane for row in rows] == [0, 1, 1, 0, 0]
    assert [row.passes for row in rows] == [(), ((0, "x"),), ((0, "x"),), (), ()]
    assert rows[3].joins == ((0, "x"), (1, "relu"))


def test_random_graphs_are_drawn_whole() -> None:
    draw = random.Random(0)
    for _ in range(50):
        names = [str(n) for n in range(draw.randint(1, 25))]
        nodes = [
            (name, tuple(draw.sample(names[:i], draw.randint(0, min(3, i)))))
            for i, name in enumerate(names)
        ]
        below: dict[int, str] = {}
        for (name, reads), row in zip(nodes, assign(nodes), strict=True):
            assert {value for _, value in row.joins} == set(reads)
            assert all(below[lane] == value for lane, value in (*row.joins, *row.passes))
            assert row.lane not in dict(row.passes)  # a dot hides no line
            below = dict(row.passes) | ({row.lane: name} if row.goes_on else {})
