"""Whether every replica was in sync when the brokers were stopped, from Kafka's znodes over time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest

from zkmigrate.kafka.rules.replicas import Replicas, TxnTime
from zkmigrate.zookeeper.data.contents import Content

ROOT = "/kafka/brokers"
Row = tuple[int, str, object]
"""When, in seconds; the path under ROOT; what is written there, None for a deletion."""

ASSIGNED = {"version": 1, "partitions": {"0": [1, 2], "1": [2, 1]}}


def state(isr: Sequence[int]) -> dict[str, object]:
    return {"controller_epoch": 1, "leader": isr[0] if isr else -1, "leader_epoch": 3, "isr": list(isr)}


def at(number: int) -> str:
    return f"topics/a.b-c/partitions/{number}/state"


BEGUN: list[Row] = [
    (0, "ids/1", {}),
    (0, "ids/2", {}),
    (0, "topics/a.b-c", ASSIGNED),
    (0, at(0), state([1, 2])),
    (0, at(1), state([2, 1])),
]


def rows(changes: Sequence[Row]) -> Iterator[Content]:
    for zxid, (second, path, value) in enumerate(changes, 1):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        yield Content(zxid, second * 1000, f"{ROOT}/{path}", data, value is not None)


def taken(changes: Sequence[Row]) -> Replicas:
    replicas = Replicas(ROOT)
    for row in rows(changes):
        replicas.take(row)
    return replicas


def test_all_in_sync_with_the_brokers_up() -> None:
    found = taken(BEGUN)
    assert (found.partitions, found.behind, found.short, found.left) == (2, set(), None, None)
    assert (found.registered, found.whole) == ({1, 2}, True)


def test_brokers_stopped_in_order_were_whole_until_the_first_stopped() -> None:
    stopped: list[Row] = [(100, at(0), state([1])), (101, at(1), state([1])), (103, "ids/2", None)]
    found = taken([*BEGUN, *stopped, (110, "ids/1", None)])
    assert (found.whole, found.short, found.left) == (True, TxnTime(6, 100_000), TxnTime(8, 103_000))
    assert found.registered == set()


def test_a_replica_that_fell_behind_long_before_is_short_since_then() -> None:
    found = taken([*BEGUN, (10, at(0), state([1])), (5000, at(1), state([1])), (5001, "ids/2", None)])
    assert (found.short, found.left) == (TxnTime(6, 10_000), TxnTime(8, 5_001_000))


def test_one_that_came_back_counts_anew() -> None:
    back: list[Row] = [(10, at(0), state([1])), (20, at(0), state([1, 2]))]
    assert taken([*BEGUN, *back]).short is None
    assert taken([*BEGUN, *back, (30, at(1), state([2]))]).short == TxnTime(8, 30_000)


def test_a_broker_that_registered_again_must_have_come_back_whole() -> None:
    again: list[Row] = [(10, at(0), state([1])), (11, "ids/2", None), (60, "ids/2", {})]
    found = taken([*BEGUN, *again, (70, "ids/1", None)])
    assert (found.whole, found.left) == (False, TxnTime(9, 70_000))
    found = taken([*BEGUN, *again, (65, at(0), state([1, 2])), (70, "ids/1", None)])
    assert (found.whole, found.left) == (True, TxnTime(10, 70_000))


def test_a_topic_that_is_gone_lacks_nothing() -> None:
    gone: list[Row] = [(5, at(0), None), (5, at(1), None)]
    found = taken([*BEGUN, *gone])
    assert found.behind == {"a.b-c-0", "a.b-c-1"}
    found = taken([*BEGUN, *gone, (6, "topics/a.b-c", None)])
    assert (found.partitions, found.behind) == (0, set())


def test_a_replica_that_is_being_added_is_behind() -> None:
    more = {"partitions": {"0": [1, 2, 3], "1": [2, 1]}, "adding_replicas": {"0": [3]}}
    assert taken([*BEGUN, (9, "topics/a.b-c", more)]).behind == {"a.b-c-0"}


@pytest.mark.parametrize(
    ("path", "value", "behind"),
    [
        (at(0), b"{", {"a.b-c-0"}),
        (at(0), b"[1, 2]", {"a.b-c-0"}),
        (at(0), b'{"isr": ["1", "2"]}', {"a.b-c-0"}),
        (at(0), b'{"isr": [true, 2]}', {"a.b-c-0"}),
        (at(0), b"[" * 100_000, {"a.b-c-0"}),
        ("topics/a.b-c", b"\xff", {"a.b-c-?"}),
        ("topics/a.b-c", b'{"partitions": [1]}', {"a.b-c-?"}),
        ("topics/a.b-c", b'{"partitions": {"0": "12"}}', {"a.b-c-0"}),
        ("topics/a.b-c", b'{"partitions": {"0": []}}', {"a.b-c-0"}),
    ],
)
def test_what_cannot_be_read_is_behind(path: str, value: bytes, behind: set[str]) -> None:
    assert taken([*BEGUN, (9, path, value)]).behind == behind


def test_other_znodes_of_brokers_count_for_nothing() -> None:
    others: list[Row] = [(9, "seqid", {}), (9, "topics", None), (9, "ids/x", None), (9, "ids", None)]
    found = taken([*BEGUN, *others])
    assert (found.registered, found.left, found.partitions) == ({1, 2}, None, 2)
