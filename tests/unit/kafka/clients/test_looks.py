"""Looks that are repeated, partitions of named topics and log directories, in kafka-python's own types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.protocol.admin import DescribeLogDirsResponse

from tests.ports import free_port
from tests.unit.kafka.clients.fake_cluster import CLUSTER_ID, FakeCluster, Told
from tests.unit.kafka.clients.test_topics import cause
from tests.world.cluster import Cluster
from tests.world.cluster_look import TopicQuestions
from tests.world.cluster_state import spread
from zkmigrate.inventory.inventory import Broker, Inventory, Kafka
from zkmigrate.kafka.clients import log_dirs, topics
from zkmigrate.kafka.questions import (
    DescribeCluster,
    DescribeLogDirs,
    DescribePartitions,
    ListTopics,
    LogDir,
    PartitionState,
    ReadTopicSettings,
    ReplicaLog,
    TopicPartitions,
)
from zkmigrate.runbook.model.fact import Absent, Seen
from zkmigrate.runbook.site.observe import Observe

BROKERS = ("10.0.0.1:9092", "10.0.0.2:9092", "10.0.0.3:9092")
Result: Any = DescribeLogDirsResponse.DescribeLogDirsResult
Topic: Any = Result.DescribeLogDirsTopic
Partition: Any = Topic.DescribeLogDirsPartition


def told(name: str, *isr: int, leader: int = 1, error: int = 0, of_partition: int = 0) -> dict[str, Any]:
    """What a broker says of a topic with one partition."""
    partition = {"error_code": of_partition, "partition_index": 0, "leader_id": leader,
                 "replica_nodes": [1, 2], "isr_nodes": list(isr)}  # fmt: skip
    return {"name": name, "error_code": error, "partitions": [] if error else [partition]}


def held(topic: str, size: int, lag: int = 0, *, future: bool = False) -> Any:
    one = Partition(partition_index=0, partition_size=size, offset_lag=lag, is_future_key=future)
    return Topic(name=topic, partitions=[one])


def directory(path: str, *topics: Any, error: int = 0, total: int = -1, usable: int = -1) -> Any:
    return Result(error_code=error, log_dir=path, topics=list(topics), total_bytes=total, usable_bytes=usable)


def answer(*results: Any, error: int = 0, version: int = 4) -> DescribeLogDirsResponse:
    """A broker's answer about its log directories, through the wire format of that version."""
    of_all = {"error_code": error} if version >= 3 else {}
    made = DescribeLogDirsResponse(version=version, throttle_time_ms=0, results=list(results), **of_all)
    return DescribeLogDirsResponse.decode(made.encode(version=version), version=version)


def asked(*names: str, witnesses: int = 2) -> TopicPartitions:
    seen = topics.partitions(BROKERS, names, witnesses)
    assert isinstance(seen, Seen), seen
    return seen.value


# --- partitions of named topics -------------------------------------------------------------------------


def test_two_witnesses_are_asked_for_the_named_topics_alone(cluster: FakeCluster) -> None:
    cluster.of_topics = {1: [told("a", 1, 2), told("b", 1, 2)], 2: [told("a", 1, 2), told("b", 1)]}
    assert asked("a", "b") == TopicPartitions(
        CLUSTER_ID,
        frozenset({1, 2, 3}),
        (1, 2),
        {
            "a": Seen((PartitionState("a", 0, 1, (1, 2), (1, 2)),)),
            "b": Seen((PartitionState("b", 0, 1, (1, 2), (1,)),)),
        },
    )
    assert cluster.asked == [(None, []), (1, ["a", "b"]), (2, ["a", "b"])]


def test_a_topic_is_gone_only_where_no_witness_knows_it(cluster: FakeCluster) -> None:
    """One that has just started may not have heard of it."""
    cluster.of_topics = {
        1: [told("a", error=3), told("b", error=3)],
        2: [told("a", 1, 2), told("b", error=3)],
    }
    seen = asked("a", "b").topics
    assert seen == {"a": Seen((PartitionState("a", 0, 1, (1, 2), (1, 2)),)), "b": Absent("b")}


def test_a_partition_without_a_leader_is_no_error(cluster: FakeCluster) -> None:
    cluster.of_topics = {1: [told("a", leader=-1, of_partition=5)]}
    seen = asked("a", witnesses=1).topics["a"]
    assert seen == Seen((PartitionState("a", 0, -1, (1, 2), ()),))


def test_one_topic_that_is_forbidden_or_odd_hides_no_other(cluster: FakeCluster) -> None:
    cluster.of_topics = {1: [told("a", error=29), told("b", error=42), told("c", 1, 2)]}
    seen = asked("a", "b", "c", witnesses=1).topics
    assert cause(seen["a"]) == ("denied", "metadata of topic a: TOPIC_AUTHORIZATION_FAILED")
    assert cause(seen["b"]) == ("failed", "metadata of topic b: INVALID_REQUEST")
    assert isinstance(seen["c"], Seen)


def test_a_topic_that_a_witness_leaves_out_is_not_known(cluster: FakeCluster) -> None:
    cluster.of_topics = {1: [told("a", 1, 2)], 2: []}
    assert cause(asked("a").topics["a"]) == ("garbled", "1 of 2 brokers answered about topic a")


def test_a_topic_that_nobody_asked_for_garbles_the_answer(cluster: FakeCluster) -> None:
    cluster.of_topics = {1: [told("z", 1)]}
    assert cause(topics.partitions(BROKERS, ("a",), 1))[0] == "garbled"


@pytest.mark.parametrize("field", ["leader_id", "isr_nodes", "replica_nodes", "error_code"])
def test_a_partition_that_lacks_a_field_garbles_the_answer(cluster: FakeCluster, field: str) -> None:
    cluster.of_topics = {1: [said := told("a", 1)]}
    del said["partitions"][0][field]
    assert cause(topics.partitions(BROKERS, ("a",), 1))[0] == "garbled"


def test_a_witness_that_goes_down_meanwhile_is_no_witness(cluster: FakeCluster) -> None:
    cluster.of_topics = {1: KafkaConnectionError("reset"), 2: [told("a", 1, 2)]}
    assert asked("a").witnesses == (2,)
    cluster.of_topics[2] = KafkaConnectionError("reset")
    assert cause(topics.partitions(BROKERS, ("a",), 2)) == (
        "timeout", "none of the brokers [1, 2] described its topics"
    )  # fmt: skip


def test_a_broker_counts_that_every_witness_names(cluster: FakeCluster) -> None:
    cluster.of_topics = {1: [told("a", 1)], 2: [told("a", 1)]}
    cluster.names = {2: {1, 2}}
    assert asked("a").brokers == frozenset({1, 2})


def test_a_broker_that_hangs_is_no_witness(cluster: FakeCluster) -> None:
    cluster.hanging = {BROKERS[0]}
    cluster.of_topics = {2: [told("a", 1)], 3: [told("a", 1)]}
    assert asked("a").witnesses == (2, 3)


# --- log directories ------------------------------------------------------------------------------------


def disks(*ids: int, of: Mapping[str, Sequence[int]] | None = None) -> Mapping[int, Any]:
    seen = log_dirs.log_dirs(BROKERS, ids, of)
    assert isinstance(seen, Seen), seen
    return seen.value


@pytest.mark.parametrize(("version", "volume"), [(1, (None, None)), (4, (100, 40))])
def test_each_replica_is_told_with_its_size_by_directory(
    cluster: FakeCluster, version: int, volume: tuple[int | None, int | None]
) -> None:
    cluster.of_disks[1] = answer(
        directory("/d1", held("a", 7), held("b", 5, lag=3, future=True), total=100, usable=40),
        directory("/d2", total=100, usable=40),
        version=version,
    )
    replicas = (ReplicaLog("a", 0, 7, 0, False), ReplicaLog("b", 0, 5, 3, True))
    assert disks(1) == {1: Seen({"/d1": Seen(LogDir(replicas, *volume)), "/d2": Seen(LogDir((), *volume))})}
    assert cluster.asked[1:] == [(1, None)]


def test_a_cordoned_directory_is_told_from_kafka_4_3_on(cluster: FakeCluster) -> None:
    shut, open_ = directory("/d1", total=100, usable=40), directory("/d2", total=100, usable=40)
    shut.is_cordoned = True
    cluster.of_disks[1] = answer(shut, open_, version=5)
    assert disks(1)[1] == Seen({"/d1": Seen(LogDir((), 100, 40, True)), "/d2": Seen(LogDir((), 100, 40))})
    cluster.of_disks[1] = answer(shut, version=4)
    assert disks(1)[1] == Seen({"/d1": Seen(LogDir((), 100, 40))})


def test_only_the_named_partitions_of_the_named_brokers_are_asked_for(cluster: FakeCluster) -> None:
    cluster.of_disks = {id: answer(directory("/d")) for id in (1, 2, 3)}
    disks(3, 1, of={"a": (0, 2)})
    assert cluster.asked[0] == (None, [])
    assert sorted(cluster.asked[1:]) == [(1, {"a": [0, 2]}), (3, {"a": [0, 2]})]


def test_a_directory_that_failed_hides_no_other(cluster: FakeCluster) -> None:
    cluster.of_disks[1] = answer(directory("/d1", error=56), directory("/d2", held("a", 7)))
    seen = disks(1)[1].value
    assert cause(seen["/d1"]) == ("failed", "broker 1, /d1: KAFKA_STORAGE_ERROR")
    assert seen["/d2"] == Seen(LogDir((ReplicaLog("a", 0, 7, 0, False),)))


@pytest.mark.parametrize("version", [2, 4])
def test_a_broker_that_refuses_is_not_taken_for_an_empty_one(cluster: FakeCluster, version: int) -> None:
    """Before 3.2 there is no field for the refusal: the answer has no directory."""
    cluster.of_disks[1] = answer(error=31, version=version)
    assert cause(disks(1)[1]) == (
        "denied", "log directories of broker 1: CLUSTER_AUTHORIZATION_FAILED"
    )  # fmt: skip


def test_another_error_of_the_whole_answer_is_told(cluster: FakeCluster) -> None:
    cluster.of_disks[1] = answer(directory("/d"), error=42)
    assert cause(disks(1)[1]) == ("failed", "log directories of broker 1: INVALID_REQUEST")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (answer(directory("/d", held("a", -5))), "garbled"),
        (answer(directory("/d", held("a", 5, lag=-2))), "garbled"),
        (Told(error_code=0), "garbled"),
        (Told(error_code=0, results=[{"error_code": 0}]), "garbled"),
        (KafkaTimeoutError("late"), "timeout"),
        (KafkaConnectionError("reset"), "failed"),
        (OSError("reset"), "failed"),
    ],
)
def test_what_goes_wrong_at_one_broker_hides_no_other(cluster: FakeCluster, wrong: Any, why: str) -> None:
    cluster.of_disks = {1: wrong, 2: answer(directory("/d"))}
    seen = disks(1, 2)
    assert cause(seen[1])[0] == why
    assert isinstance(seen[2], Seen)


def test_a_lag_that_the_broker_does_not_know_is_no_mistake(cluster: FakeCluster) -> None:
    cluster.of_disks[1] = answer(directory("/d", held("a", 5, lag=-1)))
    assert isinstance(disks(1)[1], Seen)


def test_a_broker_that_hangs_or_is_not_named_is_not_asked(cluster: FakeCluster) -> None:
    cluster.hanging = {BROKERS[0], BROKERS[2]}
    cluster.of_disks[2] = answer(directory("/d"))
    seen = disks(1, 2, 9)
    assert [cause(seen[id])[0] for id in (1, 9)] == ["timeout"] * 2
    assert {id for id, _ in cluster.asked} == {None, 2}
    assert isinstance(seen[2], Seen)


# --- the look -------------------------------------------------------------------------------------------


def test_no_broker_at_all_is_a_timeout() -> None:
    at = [f"127.0.0.1:{free_port()}"]
    assert cause(topics.partitions(at, ("a",), 2))[0] == "timeout"
    assert cause(log_dirs.log_dirs(at, (1,), None))[0] == "timeout"


@pytest.mark.usefixtures("cluster")
def test_the_real_look_asks_the_inventorys_brokers_and_no_other_cluster(cluster: FakeCluster) -> None:
    brokers = tuple(Broker(name=f"broker{n}", address=f"10.0.0.{n}", id=n) for n in (1, 2, 3))
    inventory = Inventory(version=1, name="a", kafka=Kafka(cluster_id=CLUSTER_ID, brokers=brokers))
    nothing: Any = None
    look = Observe(inventory, nothing, nothing, nothing)
    cluster.of_topics, cluster.of_disks = {1: [told("a", 1)]}, {1: answer(directory("/d"))}
    assert isinstance(look.ask(DescribePartitions("kafka", ("a",), 1)), Seen)
    assert isinstance(look.ask(DescribeLogDirs("kafka", (1,))), Seen)
    assert cause(look.ask(DescribePartitions("other", ("a",), 1)))[0] == "failed"
    assert cause(look.ask(DescribeLogDirs("other", (1,))))[0] == "failed"


def test_each_look_at_topics_and_disks_states_what_it_asks_of_whom() -> None:
    costs = [one.costs for one in (ListTopics, DescribePartitions, DescribeLogDirs, ReadTopicSettings)]
    assert all("request" in cost and ("to one broker" in cost or "each" in cost) for cost in costs)
    assert DescribeCluster.costs == "", "it is not repeated beside a long stage"


def test_the_model_world_tells_the_same(cluster: FakeCluster) -> None:
    class Questions(TopicQuestions):
        cluster = Cluster(CLUSTER_ID, {}, spread("abc", (1, 2, 3)), down={1, 2})

    look = Questions()
    seen = look.topic_partitions("kafka", ("a", "b", "gone"), 2)
    assert seen == Seen(
        TopicPartitions(
            CLUSTER_ID,
            frozenset({3}),
            (3,),
            {
                "a": Seen((PartitionState("a", 0, -1, (1, 2), ()),)),
                "b": Seen((PartitionState("b", 0, 3, (2, 3), (3,)),)),
                "gone": Absent("gone"),
            },
            {"a": "id1", "b": "id1"},
        )
    )
    disk = look.log_dirs("kafka", (1, 3), {"b": (0,)})
    assert isinstance(disk, Seen)
    assert cause(disk.value[1])[0] == "timeout"
    assert disk.value[3] == Seen({"/var/lib/kafka": Seen(LogDir((ReplicaLog("b", 0, 0, 0, False),), 10**12))})
