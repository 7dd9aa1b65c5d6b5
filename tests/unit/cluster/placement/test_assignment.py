"""Kafka's own assignment, beside what Kafka's own code gave.

``kafka_assignment.jsonl`` holds 60 cases: brokers with racks, the arguments, the sets. A Java program drew
the arguments with ``java.util.Random(19)`` and called ``org.apache.kafka.admin.AdminUtils
.assignReplicasToBrokers(brokers, partitions, replication, start, first)`` of Kafka 3.9.1. Kafka 2.8.2's
``kafka.admin.AdminUtils`` gave the same bytes for the same arguments.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zkmigrate.cluster.placement.assignment import Sets, assigned, grown, rack_alternating
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Refused

KAFKA = [
    json.loads(line) for line in Path(__file__).with_name("kafka_assignment.jsonl").read_text().splitlines()
]
SIX = [Broker(broker, "one" if broker < 3 else "two", 0) for broker in range(6)]


def sets(answer: Sets | Refused) -> Sets:
    assert isinstance(answer, dict), answer
    return answer


def reasons(answer: Sets | Refused) -> list[str]:
    assert isinstance(answer, Refused), answer
    return [reason.id for reason in answer.reasons]


@pytest.mark.parametrize("case", KAFKA, ids=range(len(KAFKA)))
def test_p2_p3_p4_it_is_what_kafka_assigns(case: dict[str, object]) -> None:
    match case:
        case {"brokers": list(brokers), "partitions": int(count), "replication": int(replication)}:
            known = [Broker(broker, rack, 0) for broker, rack in brokers]
    match case:
        case {"start": int(start), "first": int(first), "sets": list(expected)}:
            answer = sets(assigned(known, count, replication, start=start, first=first))
    assert list(answer) == list(range(first, first + count))
    assert [list(replicas) for replicas in answer.values()] == expected


def test_p1_more_replicas_than_brokers_are_refused() -> None:
    answer = assigned(SIX, 1, 7, start=0)
    assert reasons(answer) == ["placement.few-brokers"]
    assert isinstance(answer, Refused)
    assert "7 replicas" in answer.reasons[0].text
    assert "brokers, 6" in answer.reasons[0].text
    assert reasons(assigned([], 1, 1, start=0)) == ["placement.few-brokers"]
    assert len(sets(assigned(SIX, 1, 6, start=0))[0]) == 6


@pytest.mark.parametrize(("partitions", "replication"), [(0, 1), (1, 0), (-1, 1)])
def test_p1_nothing_to_assign_is_refused(partitions: int, replication: int) -> None:
    assert reasons(assigned(SIX, partitions, replication, start=0)) == ["placement.assignment-empty"]


def test_p2_p3_leaders_go_round_and_the_shift_grows_with_each_turn() -> None:
    plain = [Broker(broker, "", 0) for broker in range(5)]
    answer = sets(assigned(plain, 10, 3, start=2, shift=1))
    for number, replicas in answer.items():
        first, shift = (number + 2) % 5, 1 + number // 5
        assert replicas == (first, *((first + 1 + (shift + j) % 4) % 5 for j in range(2)))


def test_p4_racks_take_turns() -> None:
    assert rack_alternating(SIX) == (0, 3, 1, 4, 2, 5)
    uneven = [Broker(broker, rack, 0) for broker, rack in ((9, "b"), (1, "c"), (4, "b"), (3, "a"), (2, "b"))]
    assert rack_alternating(uneven) == (3, 2, 1, 4, 9)


def test_p5_the_reference_example() -> None:
    answer = sets(assigned(SIX, 2, 3, start=3, shift=0))
    assert answer == {0: (4, 2, 5), 1: (2, 5, 0)}


def test_p5_racks_of_some_brokers_only_are_refused() -> None:
    assert reasons(assigned([*SIX, Broker(6, "", 0)], 1, 1, start=0)) == ["placement.racks-partly"]


def test_p6_a_lost_rack_leaves_a_replica_of_each_partition() -> None:
    for racks in (2, 3, 4):
        for brokers in range(racks, 11):
            known = [Broker(broker, f"r{broker % racks}", 0) for broker in range(brokers)]
            for replication in range(racks, min(brokers, 5) + 1):
                answer = sets(assigned(known, 20, replication, start=1, shift=2))
                for replicas in answer.values():
                    assert len({broker % racks for broker in replicas}) == racks


def topic(*replicas: tuple[int, ...]) -> Cluster:
    return Cluster.of(SIX, [Partition("t", number, one, 1) for number, one in enumerate(replicas)])


def test_p10_fewer_partitions_are_refused() -> None:
    seen = topic((0, 3), (3, 1))
    assert reasons(grown(seen, "t", 1)) == ["placement.topic-shrinks"]
    assert sets(grown(seen, "t", 2)) == {}


def test_p10_only_new_partitions_are_placed_from_the_leader_of_the_first_on() -> None:
    answer = sets(grown(topic((4, 0), (3, 1)), "t", 5))
    assert answer == sets(assigned(SIX, 3, 2, start=4, first=2))
    assert list(answer) == [2, 3, 4]
    gone = sets(grown(topic((9, 0)), "t", 2))
    assert gone == sets(assigned(SIX, 1, 2, start=0, first=1))


def test_p10_a_topic_without_its_first_partitions_is_refused() -> None:
    half = Cluster.of(SIX, [Partition("t", 1, (0, 3), 1)])
    assert reasons(grown(half, "t", 3)) == ["placement.topic-incomplete"]
    assert reasons(grown(half, "other", 3)) == ["placement.topic-incomplete"]
