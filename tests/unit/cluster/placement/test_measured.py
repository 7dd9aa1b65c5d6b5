"""Sizes and rates of the table of partitions: bad rows, its age, and what it shares with the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.measured import Measured, Row, completed, table, too_old
from zkmigrate.cluster.placement.plan import Plan, Refused
from zkmigrate.cluster.placement.rebalance import rebalance
from zkmigrate.cluster.placement.request import Balance, Rebalance
from zkmigrate.errors import UsageError

NOW_MS = 1_790_000_000_000
CLUSTER = Cluster.of(
    [Broker(1, "a", 10), Broker(2, "b", 90), Broker(3, "a", 95)],
    [
        Partition("t", 0, (1, 2), None),
        Partition("t", 1, (2, 1), 9, 1.0),
        Partition("u", 0, (1, 3), None),
    ],
)


def row(broker: Any = "1", topic: Any = "t", partition: Any = 0, **other: Any) -> Row:
    values = {"bytes": 20, "rate": 2.5, "until_ms": NOW_MS} | other
    return Row("row 7", broker, topic, partition, **values)


def of(*rows: Row) -> Measured:
    return table(rows, "p.parquet")


def done(*rows: Row) -> tuple[Cluster, list[tuple[str, bool, str]]]:
    found = completed(CLUSTER, of(*rows))
    assert not isinstance(found, Refused)
    cluster, notices = found
    return cluster, [(one.id, one.refuses, one.text) for one in notices]


def test_u1_sizes_and_rates_are_those_of_the_largest_replica_of_the_set() -> None:
    cluster, notices = done(
        row("1"), row("2", bytes=30, rate=1.5), row("3", bytes=99, rate=99.0),
        row("1", partition=1), row("2", partition=1, bytes=0, rate=0.0), row("3", topic="u"),
    )  # fmt: skip
    assert [(one.size, one.rate) for one in cluster.partitions] == [(30, 2.5), (20, 2.5), (20, 2.5)]
    assert cluster.brokers == CLUSTER.brokers
    assert notices == []


def test_what_the_table_and_the_cluster_do_not_share_is_named() -> None:
    cluster, notices = done(row("1"), row("9"), row("1", topic="gone"), row("3", partition=1))
    assert [(one.size, one.rate) for one in cluster.partitions] == [(20, 2.5), (9, 1.0), (None, None)]
    assert [(id, refuses) for id, refuses, _ in notices] == [
        ("placement.table-broker-unknown", True),
        ("placement.table-broker-missing", False),
        ("placement.table-partition-missing", False),
        ("placement.table-partition-unknown", False),
    ]
    said = [text for _, _, text in notices]
    assert ": 9. Next: give" in said[0]
    assert ": 2; sizes" in said[1]
    assert "lacks partitions of the cluster: t-1, u-0; their size" in said[2]
    assert "has partitions that the cluster lacks: gone-0" in said[3]


def test_names_are_cut_after_ten() -> None:
    cluster, notices = done(row(), row("2"), row("3"), *(row(topic=f"x{number:02}") for number in range(12)))
    assert cluster.by_name["t", 0].size == 20
    assert notices[-1][2].endswith("x08-0, x09-0 and 2 more")


def test_a_table_of_another_cluster_is_refused() -> None:
    found = completed(CLUSTER, of(row("3"), row("1", topic="v")))
    assert isinstance(found, Refused)
    assert found.reasons[0].id == "placement.table-other-cluster"
    assert "none of the cluster's 3 partitions" in found.reasons[0].text


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"broker": None}, "broker: seen None; needed: an id, as by --broker-dir ID=DIR"),
        ({"broker": "kafka-1"}, "broker: seen 'kafka-1'; needed: an id"),
        ({"broker": "²"}, "broker: seen '²'"),
        ({"broker": "1" * 11}, "broker: seen '11111111111'"),
        ({"topic": ""}, "topic: seen ''; needed: a name"),
        ({"partition": -1}, "partition: seen -1"),
        ({"partition": None}, "partition: seen None"),
        ({"bytes": -5}, "t-0 on broker 1: bytes: seen -5; needed: bytes from 0 on"),
        ({"bytes": None}, "bytes: seen None"),
        ({"rate": -0.5}, "per_second_day: seen -0.5"),
        ({"rate": float("nan")}, "per_second_day: seen nan"),
        ({"rate": float("inf")}, "per_second_day: seen inf"),
        ({"rate": None}, "per_second_day: seen None"),
        ({"until_ms": None}, "until: seen nothing; needed: when the newest data was written"),
    ],
)
def test_a_bad_row_is_told_with_its_place(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as told:
        of(row("2"), row(**bad))
    assert str(told.value).startswith("p.parquet: row 7: ")
    assert said in str(told.value)


def test_two_rows_of_one_replica_and_no_row_at_all_are_refused() -> None:
    with pytest.raises(UsageError, match="row 7: t-0 on broker 1: seen a second time"):
        of(row("1"), row("1"))
    with pytest.raises(UsageError, match=r"p\.parquet: seen no row"):
        of()


def test_ten_mistakes_are_told_and_that_there_are_more() -> None:
    with pytest.raises(UsageError) as told:
        of(*(row(bytes=-1) for _ in range(40)))
    lines = str(told.value).splitlines()
    assert (len(lines), lines[-1]) == (11, "p.parquet: and more")


@pytest.mark.parametrize(
    ("age_minutes", "said"), [(60, ""), (61, "61 minutes old"), (-60, ""), (-61, "61 minutes ahead")]
)
def test_b15_a_table_that_is_too_old_is_refused(age_minutes: int, said: str) -> None:
    measured = of(row("1"), row("2", until_ms=NOW_MS + 1))
    found = too_old(measured, NOW_MS + age_minutes * 60_000, 60)
    assert bool(found) is bool(said)
    if found:
        assert found.reasons[0].id == "placement.table-old"
        assert said in found.reasons[0].text
        assert "needed: at most 60 minutes" in found.reasons[0].text


def test_u1_rates_of_the_table_are_balanced() -> None:
    """Free bytes are alike, rates are not: only ``rate`` moves something."""
    size = 1 << 30
    cluster = Cluster.of(
        [Broker(id_, "", 100 * size) for id_ in (1, 2)],
        [Partition("t", number, (1 + number % 2,), None) for number in range(8)],
    )
    rows = [
        row(str(1 + number % 2), partition=number, bytes=size, rate=1000.0 * (1 - number % 2) + 1)
        for number in range(8)
    ]
    found = completed(cluster, of(*rows))
    assert not isinstance(found, Refused)
    moved = {}
    for balance in (Balance.STORAGE, Balance.RATE):
        plan = rebalance(found[0], Rebalance(balance=balance))
        assert isinstance(plan, Plan)
        moved[balance] = [(move.before, move.after) for move in plan.moves]
    assert moved == {Balance.STORAGE: [], Balance.RATE: [((1,), (2,))] * 2}
