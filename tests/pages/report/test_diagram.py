"""The drawn graph: every node and every edge is there, once, and no two values share a lane."""

import random
import re
from dataclasses import replace

from pages.report.small_reports import labelled, residual

from onesigma.pages.report.diagram import Row, assign_lanes, show_graph

CHAIN = [("a", ()), ("b", ("a",)), ("c", ("b",))]
SKIP = [("x", ()), ("conv", ("x",)), ("relu", ("conv",)), ("add", ("x", "relu")), ("y", ("add",))]


def test_a_chain_is_one_lane() -> None:
    rows = assign_lanes(CHAIN)
    assert [row.lane for row in rows] == [0, 0, 0]
    assert rows[0] == Row(0, (), (), True)
    assert not rows[-1].goes_on


def test_a_residual_connection_runs_beside_its_branch() -> None:
    rows = assign_lanes(SKIP)
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
        for (name, reads), row in zip(nodes, assign_lanes(nodes), strict=True):
            assert {value for _, value in row.joins} == set(reads)
            assert all(below[lane] == value for lane, value in (*row.joins, *row.passes))
            assert row.lane not in dict(row.passes)  # a dot hides no line
            below = dict(row.passes) | ({row.lane: name} if row.goes_on else {})


def test_every_node_is_drawn_and_says_what_it_rests_on() -> None:
    drawn = "".join(show_graph(labelled()))
    report = residual().report
    assert drawn.count("<tr ") == 1 + len(report.entries)  # and the input
    assert drawn.count('class="ring"') == len(report.sites) == 2
    for entry in report.entries:
        assert f'title="{entry.node}: {entry.op}' in drawn
        assert entry.note in drawn
    # The residual connection: one row with a line that bends into its dot from another lane.
    bends = re.findall(r"M([\d.]+) 0C[\d. ]+ ([\d.]+) [\d.]+\"", drawn)
    assert any(start != end for start, end in bends)


def test_colours_follow_the_uncertainty() -> None:
    flow = labelled().flow
    sizes = (0.0, 0.05, 0.1, 0.49, 0.5, 1.0)
    made = tuple(replace(flow[0], signal=1.0, spread=size) for size in sizes)
    drawn = "".join(show_graph(replace(labelled(), flow=(*made, replace(made[1], signal=0.0)))))
    assert re.findall(r'<i class="(d\d)"', drawn) == ["d1", "d2", "d3", "d4", "d5", "d5"]
    assert 'class="none">certain' in drawn
    assert "∞" in drawn
    for key in ("0–10 %", "25–50 %", "100 % and more"):
        assert f">{key}</li>" in drawn


def test_a_long_network_scrolls_in_its_own_frame() -> None:
    first = labelled().flow[0]
    names = [f"n{index}" for index in range(60)]
    flow = tuple(
        replace(first, entry=replace(first.entry, node=name), inputs=tuple(names[:i][-1:]))
        for i, name in enumerate(names)
    )
    assert 'class="scroll flow long"' in "".join(show_graph(replace(labelled(), flow=flow)))
    assert 'class="scroll flow"' in "".join(show_graph(labelled()))
