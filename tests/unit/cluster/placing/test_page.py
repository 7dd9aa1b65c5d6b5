"""The page of a plan: bars before and after, all moves, nothing that a name could smuggle in."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment
from zkmigrate.cluster.placement.statistics import statistics
from zkmigrate.cluster.placing.page import bars, page

RACK = 'r<script>"&'
CLUSTER = Cluster.of(
    [Broker(1, RACK, 10), Broker(2, RACK, 90), Broker(3, "", 50)],
    [Partition("t", number, (1,), 20) for number in range(2)],
)
MOVES = tuple(Reassignment("t", number, (1,), (3,), 20) for number in range(2))


def widths(drawn: str) -> list[float]:
    """The widths of the bars, in their order."""
    root = ET.fromstring(drawn)
    return [float(one.attrib["width"]) for one in root.iter("{http://www.w3.org/2000/svg}rect")]


def test_bars_are_as_long_as_their_bytes() -> None:
    assert widths(bars("Free", [("1", 100, 50), ("2", 0, -3)])) == [630.0, 315.0, 0.0, 0.0]
    assert widths(bars("Free", [("1", 0, 0)])) == [0.0, 0.0]
    assert widths(bars("Free", [])) == []


def test_a_page_has_bars_per_broker_and_rack_and_every_move() -> None:
    plan = Plan(CLUSTER, MOVES, limited="a limit")
    made = page("Placement: scale", plan, statistics(CLUSTER, MOVES), (Notice("placement.n", "a notice"),))
    by_broker, by_rack = re.findall(r"<svg.*?</svg>", made, flags=re.DOTALL)
    assert len(widths(by_broker)) == 6
    assert widths(by_rack) == [225.0, 45.0, 450.0, 630.0]
    assert "no rack" in by_rack
    assert "2 replica lists change, 40 B are copied." in made
    assert "placement.n: a notice" in made
    assert made.count("<td>t-") == 2
    assert "Phases" not in made
    cut = Plan(CLUSTER, MOVES, phases=(MOVES[:1], MOVES[1:]))
    assert page("t", cut, statistics(CLUSTER, MOVES), ()).count("<td>20 B</td>") == 4


def test_names_are_escaped() -> None:
    made = page("<i>", Plan(CLUSTER, MOVES), statistics(CLUSTER, MOVES), (Notice("placement.n", "<u>"),))
    assert "<script" not in made
    assert "<u>" not in made
    assert "<i>" not in made
    assert "r&lt;script&gt;" in made
