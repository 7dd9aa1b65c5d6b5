"""The report in words: sizes, notices, phases, and only the first moves."""

from __future__ import annotations

import json

import pytest

from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment
from zkmigrate.cluster.placement.statistics import statistics
from zkmigrate.cluster.placing import text
from zkmigrate.runbook.model.report import size

CLUSTER = Cluster.of(
    [Broker(1, "a", 0), Broker(2, "b", 3 << 30)],
    [Partition("t", number, (1,), 1 << 20, 512.0) for number in range(25)],
)
MOVES = tuple(Reassignment("t", number, (1,), (2,), 1 << 20) for number in range(25))
PLAN = Plan(CLUSTER, MOVES, limited="a limit")


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (-(3 << 29), "-1.5 GiB"),
        (1 << 61, "2.0 EiB"),
        (1 << 72, "4096.0 EiB"),
    ],
)
def test_sizes(count: int, said: str) -> None:
    assert size(count) == said


def test_r14_what_the_report_says() -> None:
    said = text.lines(PLAN, statistics(CLUSTER, MOVES), ())
    assert said[0] == "25 replica lists change, 25.0 MiB are copied."
    assert "Limited by: a limit." in said
    assert [" ".join(line.split()) for line in said[4:12]] == [
        "before after",
        "lowest free 0 B 25.0 MiB",
        "highest free 3.0 GiB 3.0 GiB",
        "range 3.0 GiB 3.0 GiB",
        "range spread - 12088.0 %",
        "standard deviation 1.5 GiB 1.5 GiB",
        "rate per broker 0 B/s to 12.5 KiB/s 0 B/s to 12.5 KiB/s",
        "leaders per broker 0 to 25 0 to 25",
    ]
    assert said[-1] == "and 5 more"
    assert sum(line.startswith("t-") for line in said) == text.SHOWN


def test_a_plan_that_copies_nothing_says_so() -> None:
    cluster = Cluster.of([Broker(1, "", 1), Broker(2, "", 1)], [Partition("t", 0, (1, 2), 9)])
    moves = (Reassignment("t", 0, (1, 2), (2, 1), 9),)
    said = text.lines(Plan(cluster, moves), statistics(cluster, moves), ())
    assert said[0] == "1 replica list changes, no bytes are copied."
    assert not any("Lower bound" in line for line in said)


def test_phases_and_notices_are_listed() -> None:
    plan = Plan(CLUSTER, MOVES, phases=(MOVES[:1], MOVES[1:]))
    notices = (Notice("placement.a", "one"), Notice("placement.b", "two", refuses=True))
    said = text.lines(plan, statistics(CLUSTER, MOVES), notices)
    at = said.index("2 phases, one after the other:")
    assert said[at + 1 : at + 3] == [
        "  phase 0: 1 partition, 1.0 MiB",
        "  phase 1: 24 partitions, 24.0 MiB",
    ]
    assert said[-2:] == ["notice placement.a: one", "refuses placement.b: two"]


def test_json_has_every_move_and_whole_bytes() -> None:
    body = json.loads(json.dumps(text.body(PLAN, statistics(CLUSTER, MOVES), ())))
    assert len(body["moves"]) == 25
    assert body["moves"][0] == {
        "topic": "t", "partition": 0, "before": [1], "after": [2], "size": 1 << 20, "bytes": 1 << 20,
    }  # fmt: skip
    assert body["statistics"]["after"]["lowest"] == 25 << 20
