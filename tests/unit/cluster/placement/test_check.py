"""The independent checker: each rule that no map may break is found broken in a map that breaks it."""

from __future__ import annotations

import json

import pytest

from zkmigrate.cluster.placement.check import faults, sets_of
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition

T = ("t", 0)
U = ("u", 0)
CLUSTER = Cluster.of(
    (Broker(1, "a", 10), Broker(2, "b", 10), Broker(3, "c", 10), Broker(4, "c", 10), Broker(5, "", 3)),
    (Partition(*T, (1, 2), 6), Partition(*U, (2, 9), 5), Partition("v", 0, (1,), None)),
)


def test_x21_maps_that_keep_all_rules_have_no_fault() -> None:
    assert faults(CLUSTER, [{T: (2, 3), U: (2, 4)}, {T: (1, 3), U: (1, 4)}, {("v", 0): (1,)}]) == ()


def test_b12_the_old_leader_may_stand_before_the_set_that_follows() -> None:
    assert faults(CLUSTER, [{T: (1, 3, 2)}, {T: (3, 2)}]) == ()


@pytest.mark.parametrize(
    ("maps", "text"),
    [
        ([{T: (2, 2)}], "reassignment 1, t-0, [2, 2]: broker 2 occurs twice"),
        ([{T: (1, 7)}], "reassignment 1, t-0, [1, 7]: broker 7 gets a copy, but is not registered"),
        ([{T: (1,)}], "reassignment 1, t-0, [1]: 1 replicas; needed: 2"),
        ([{T: (1, 2, 3)}], "reassignment 1, t-0, [1, 2, 3]: 3 replicas; needed: 2"),
        ([{T: (1,)}, {T: (1, 2)}], "reassignment 1, t-0, [1]: 1 replicas; needed: 2"),
        ([{T: (1, 3, 4)}, {T: (4, 3)}], "reassignment 1, t-0, [1, 3, 4]: 3 replicas; needed: 2"),
        ([{T: (3, 1, 4)}, {T: (1, 4)}], "reassignment 1, t-0, [3, 1, 4]: 3 replicas; needed: 2"),
        ([{U: ()}], "reassignment 1, u-0, []: 0 replicas; needed: 2"),
        ([{T: (3, 4)}], "reassignment 1, t-0, [3, 4]: 1 racks; needed: 2"),
        ([{T: (1, 5)}], "reassignment 1, t-0, [1, 5]: broker 5 is 3 bytes short"),
        ([{T: (3, 2), U: (3, 2)}], "reassignment 1, u-0, [3, 2]: broker 3 is 1 bytes short"),
        ([{T: (3, 2)}, {U: (3, 2)}], "reassignment 2, u-0, [3, 2]: broker 3 is 1 bytes short"),
        ([{("v", 0): (2,)}], "reassignment 1, v-0, [2]: broker 2 gets a copy of unknown size"),
        ([{("w", 0): (2,)}], "reassignment 1, w-0, [2]: the cluster does not have this partition"),
    ],
)
def test_x21_a_broken_rule_is_found(maps: list[dict[tuple[str, int], tuple[int, ...]]], text: str) -> None:
    assert text in faults(CLUSTER, maps)


def test_b4_the_asked_length_counts() -> None:
    assert faults(CLUSTER, [{T: (1, 2, 3)}], replication=3) == ()
    assert faults(CLUSTER, [{T: (1,)}], replication=1) == ()
    assert faults(CLUSTER, [{T: (3, 2)}, {T: (3,)}], replication=1) == ()
    assert faults(CLUSTER, [{T: (3, 2)}], replication=3) == (
        "reassignment 1, t-0, [3, 2]: 2 replicas; needed: 3",
    )
    long = faults(CLUSTER, [{T: (1, 2, 3)}, {T: (3,)}], replication=1)
    assert long == ("reassignment 1, t-0, [1, 2, 3]: 3 replicas; needed: 1 to 2",)


def test_b13_an_evacuated_leader_is_found() -> None:
    away = {"t": frozenset({1})}
    assert faults(CLUSTER, [{T: (2, 1), U: (2, 1)}], away=away) == ()
    found = faults(CLUSTER, [{T: (1, 2)}], away=away)
    assert found == ("reassignment 1, t-0, [1, 2]: broker 1 would lead, although it is evacuated",)


def test_the_sets_of_a_written_map_keep_its_order() -> None:
    entries = [
        {"topic": "u", "partition": 0, "replicas": [2, 1]},
        {"topic": "t", "partition": 3, "replicas": [1], "log_dirs": ["any"]},
    ]
    written = json.dumps({"version": 1, "partitions": entries})
    assert list(sets_of(written).items()) == [(("u", 0), (2, 1)), (("t", 3), (1,))]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "a reassignment is an object with a list of partitions"),
        ({"partitions": {}}, "a reassignment is an object with a list of partitions"),
        (
            {"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]},
            "needs a topic",
        ),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [True]}]},
            "needs a topic",
        ),
        ({"partitions": [{"topic": "t", "partition": 0}]}, "needs a topic"),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2},
            "t-0 occurs twice",
        ),
    ],
)
def test_what_is_no_written_map_is_refused(document: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sets_of(json.dumps(document))
