"""Reassignments, elections and brokers' configs as kafka-python tells of them, in the library's own types."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition, TopicPartitionReplica
from kafka.admin import AlterConfigOp, ConfigResourceType
from kafka.errors import (
    IncompatibleBrokerVersion,
    InvalidReplicationAssignmentError,
    KafkaConnectionError,
    KafkaStorageError,
    NoError,
    NoReassignmentInProgressError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
)
from kafka.protocol.admin import DescribeConfigsResponse, ElectLeadersResponse
from kafka.protocol.admin.topics import ElectionType
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import MetadataRequest

from tests.ports import free_port
from tests.unit.kafka.clients.fake_cluster import Told
from zkmigrate.errors import HostError
from zkmigrate.kafka.changes import (
    KAFKA,
    AlterBrokerConfig,
    CancelReassignment,
    ElectLeaders,
    PlaceReplica,
    ReassignPartition,
    UnregisterBroker,
)
from zkmigrate.kafka.clients import admin as kafka
from zkmigrate.kafka.clients import connections, reassignments
from zkmigrate.kafka.questions import InFlight, ListReassignments, ReadBrokerSettings, TopicSetting
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

BROKERS = ("10.0.0.1:9092", "10.0.0.2:9092")
RATE = "leader.replication.throttled.rate"
MOVE = ReassignPartition(KAFKA, "a", 3, (2, 3), (1, 3))
CANCEL = CancelReassignment(KAFKA, "a", 3, (2, 3))
Result: Any = DescribeConfigsResponse.DescribeConfigsResult
Election: Any = ElectLeadersResponse.ReplicaElectionResult


def config(value: str, source: int) -> Any:
    return Result.DescribeConfigsResourceResult(
        name=RATE,
        value=value,
        read_only=True,
        config_source=source,
        is_sensitive=False,
        synonyms=[],
        config_type=0,
        documentation=None,
    )


def described(id: int, *configs: Any, error: int = 0) -> Any:
    return Result(
        error_code=error,
        error_message=None,
        resource_type=ConfigResourceType.BROKER,
        resource_name=str(id),
        configs=list(configs),
    )


def _partition(number: int, leader: int) -> dict[str, Any]:
    sets = {"replica_nodes": [2, 1], "isr_nodes": [2, 1]}
    return {"partition_index": number, "leader_id": leader, "error_code": 0, **sets}


class Cluster:
    """A KafkaAdminClient over a table of answers."""

    def __init__(self) -> None:
        self._manager = self.cluster = self
        self.broker_version_data = BrokerVersionData((2, 8))
        self.results: dict[int, Any] = {}
        self.asked: list[tuple[object, ...]] = []
        self.leaders: list[int] = []
        self.moving: dict[TopicPartition, dict[str, list[int]]] | Exception = {}
        self.reassigned: list[dict[TopicPartition, list[int] | None]] = []
        self.said: type[Exception] | Exception | None = None
        self.elected: list[tuple[object, Mapping[str, list[int]]]] = []
        self.election: dict[str, int] = {}
        self.altered: list[tuple[object, str, object]] = []
        self.alteration = "OK"
        self.forgotten: list[bytes] = []
        self.forgot = 0
        self.put: list[dict[TopicPartitionReplica, str]] = []
        self.put_said: type[Exception] = NoError

    def brokers(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=id) for id in (1, 2)]

    def run(self, question: Any, admin: object, *rest: Any) -> Any:
        assert admin is self
        coroutine = question(self, *rest)
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        return ended.value.value

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        if isinstance(request, MetadataRequest):
            names = () if request.topics is None else (tuple(topic.name for topic in request.topics),)
            self.asked.append((node_id, *names))
            brokers = [{"node_id": id, "host": f"10.0.0.{id}", "port": 9092} for id in (1, 2)]
            leader = self.leaders.pop(0) if names == (("a", "b"),) and self.leaders else 2
            topics = [{"name": "a", "error_code": 0, "partitions": [_partition(0, leader)]}]
            return Told(cluster_id="I" * 22, topics=topics, brokers=brokers)
        if isinstance(request, connections.UnregisterBrokerRequest):
            self.forgotten.append(bytes(request.encode(version=0)))
            code = self.forgot
            return connections.UnregisterBrokerResponse(
                throttle_time_ms=0, error_code=code, error_message="why"
            )
        assert node_id is not None
        assert request.resources == [(ConfigResourceType.BROKER, str(node_id), [RATE])]
        result = self.results[node_id]
        if isinstance(result, Exception):
            raise result
        return DescribeConfigsResponse(version=2, throttle_time_ms=0, results=[result])

    def list_partition_reassignments(self) -> dict[TopicPartition, dict[str, list[int]]]:
        if isinstance(self.moving, Exception):
            raise self.moving
        return self.moving

    def alter_partition_reassignments(
        self, wanted: dict[TopicPartition, list[int] | None]
    ) -> dict[TopicPartition, type[Exception] | None]:
        self.reassigned.append(wanted)
        if isinstance(self.said, Exception):
            raise self.said
        return dict.fromkeys(wanted, self.said)

    def elect_leaders(
        self, kind: object, partitions: Mapping[str, list[int]], *, raise_errors: bool
    ) -> ElectLeadersResponse:
        assert not raise_errors
        self.elected.append((kind, partitions))
        results = [
            Election(
                topic=topic,
                partition_result=[
                    Election.PartitionResult(
                        partition_id=number,
                        error_code=self.election.get(f"{topic}-{number}", 0),
                        error_message=None,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in partitions.items()
        ]
        return ElectLeadersResponse(
            version=2, throttle_time_ms=0, error_code=0, replica_election_results=results
        )

    def alter_configs(self, resources: list[Any], *, raise_on_unknown: bool, incremental: bool) -> object:
        assert (raise_on_unknown, incremental) == (False, True)
        (asked,) = resources
        self.altered.append((asked.resource_type, asked.name, asked.configs))
        return {"broker": {asked.name: self.alteration}}

    def alter_replica_log_dirs(
        self, wanted: dict[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, type[Exception]]:
        self.put.append(wanted)
        return dict.fromkeys(wanted, self.put_said)

    def close(self) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(connections, "KafkaAdminClient", lambda **_: cluster)
    for module in (kafka, connections):
        monkeypatch.setattr(module, "releases_of", lambda brokers: dict.fromkeys(brokers, "2.8"))
    return cluster


def cause(reading: Reading[Any]) -> tuple[str, str]:
    assert isinstance(reading, Unknown), reading
    return reading.cause, reading.why


def test_a_reassignment_in_flight_tells_its_target(cluster: Cluster) -> None:
    cluster.moving = {
        TopicPartition("a", 3): {
            "replicas": [2, 3, 1],
            "adding_replicas": [2],
            "removing_replicas": [1],
        }
    }
    found = reassignments.in_flight(BROKERS)
    assert found == Seen({("a", 3): InFlight((2, 3, 1), (2,), (1,))})
    assert isinstance(found, Seen)
    assert found.value["a", 3].target == (2, 3)


def test_brokers_that_cannot_list_reassignments_are_told_from_brokers_without_any(cluster: Cluster) -> None:
    assert reassignments.in_flight(BROKERS) == Seen({})
    cluster.moving = IncompatibleBrokerVersion("before 2.4")
    assert isinstance(reassignments.in_flight(BROKERS), Absent)
    cluster.moving = KafkaConnectionError("gone")
    assert cause(reassignments.in_flight(BROKERS))[0] == "failed"


def test_a_brokers_own_rate_is_told_from_a_default_and_from_none(cluster: Cluster) -> None:
    cluster.results = {1: described(1, config("5", 2)), 2: described(2, config("9223372036854775807", 5))}
    most = "9223372036854775807"
    seen = Seen({1: Seen(TopicSetting("5", True, "5")), 2: Seen(TopicSetting(None, True, most))})
    assert reassignments.broker_settings(BROKERS, RATE, (1, 2)) == seen
    cluster.results = {1: described(1), 2: described(2, config("7", 3))}
    unset = Seen({1: Seen(TopicSetting(None)), 2: Seen(TopicSetting(None, True, "7"))})
    assert reassignments.broker_settings(BROKERS, RATE, (1, 2)) == unset, (
        "the cluster's default is not its own"
    )


def test_what_goes_wrong_at_one_broker_hides_no_other(cluster: Cluster) -> None:
    cluster.results = {1: KafkaConnectionError("gone"), 2: described(2, config("5", 2))}
    found = reassignments.broker_settings(BROKERS, RATE, (1, 2, 9))
    assert isinstance(found, Seen)
    assert found.value[2] == Seen(TopicSetting("5", True, "5"))
    assert cause(found.value[1])[0] == "failed"
    assert cause(found.value[9])[0] == "timeout"
    cluster.results = {1: described(1, error=31), 2: RequestTimedOutError()}
    found = reassignments.broker_settings(BROKERS, RATE, (1, 2))
    assert isinstance(found, Seen)
    assert [cause(found.value[id])[0] for id in (1, 2)] == ["denied", "timeout"]


def test_a_partition_is_reassigned_and_its_reassignment_cancelled(cluster: Cluster) -> None:
    alter = kafka.Alter(BROKERS)
    assert alter(MOVE) == (0, "reassign a-3 to brokers 2,3 (before: 1,3)")
    assert alter(CANCEL) == (0, "cancel the reassignment of a-3 to brokers 2,3")
    assert cluster.reassigned == [{TopicPartition("a", 3): [2, 3]}, {TopicPartition("a", 3): None}]


def test_an_error_of_the_partition_is_a_value_and_no_success(cluster: Cluster) -> None:
    cluster.said = InvalidReplicationAssignmentError
    assert kafka.Alter(BROKERS)(MOVE) == (1, "a-3: INVALID_REPLICATION_ASSIGNMENT")
    assert kafka.Alter(BROKERS)(CANCEL)[0] == 1


def test_cancelling_what_is_not_in_flight_is_done_already(cluster: Cluster) -> None:
    cluster.said = NoReassignmentInProgressError
    assert kafka.Alter(BROKERS)(CANCEL)[0] == 0
    assert kafka.Alter(BROKERS)(MOVE) == (1, "a-3: NO_REASSIGNMENT_IN_PROGRESS")


@pytest.mark.parametrize("trouble", [RequestTimedOutError(), OSError("reset"), KeyError("a")])
def test_a_reassignment_without_an_answer_is_not_known(cluster: Cluster, trouble: Exception) -> None:
    cluster.said = trouble
    with pytest.raises(HostError, match="did not confirm: reassign a-3 to brokers 2,3"):
        kafka.Alter(BROKERS)(MOVE)


def test_a_partition_for_which_the_controller_timed_out_is_not_known(cluster: Cluster) -> None:
    cluster.said = RequestTimedOutError
    with pytest.raises(HostError, match="did not confirm: reassign a-3"):
        kafka.Alter(BROKERS)(MOVE)


def test_the_preferred_leaders_of_some_partitions_are_elected(cluster: Cluster) -> None:
    change = ElectLeaders(KAFKA, (("a", 0), ("b", 1), ("a", 2)))
    cluster.election = {"a-2": 84}
    assert kafka.Alter(BROKERS)(change) == (0, "elect the preferred leader of a-0, b-1, a-2")
    assert cluster.elected == [(ElectionType.PREFERRED, {"a": [0, 2], "b": [1]})]
    cluster.election = {"b-1": 80}
    cluster.leaders = []
    assert kafka.Alter(BROKERS)(change) == (1, "b-1: PREFERRED_LEADER_NOT_AVAILABLE")


def test_an_election_ends_when_every_broker_tells_the_new_leaders(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 2 tells the old leader once more; only the topics of the election are asked about."""
    pauses: list[float] = []
    monkeypatch.setattr("zkmigrate.kafka.clients.elections.time.sleep", pauses.append)
    cluster.leaders = [2, 1]
    assert kafka.Alter(BROKERS)(ElectLeaders(KAFKA, (("a", 0), ("b", 1))))[0] == 0
    assert (cluster.leaders, len(pauses)) == ([], 1)
    assert [rest for rest in cluster.asked if len(rest) > 1] == [
        (1, ("a", "b")), (2, ("a", "b")), (1, ("a", "b")), (2, ("a", "b"))
    ]  # fmt: skip


def test_a_rate_is_set_on_its_broker_alone(cluster: Cluster) -> None:
    change = AlterBrokerConfig(KAFKA, 2, RATE, "5", None)
    assert kafka.Alter(BROKERS)(change) == (0, f"set {RATE}=5 of broker 2 (found: unset)")
    assert kafka.Alter(BROKERS)(AlterBrokerConfig(KAFKA, 2, RATE, None, "5"))[0] == 0
    kind = ConfigResourceType.BROKER
    assert cluster.altered == [
        (kind, "2", {RATE: (AlterConfigOp.SET, "5")}),
        (kind, "2", {RATE: (AlterConfigOp.DELETE, None)}),
    ]
    cluster.alteration = "[Error 31] ClusterAuthorizationFailedError: no"
    assert kafka.Alter(BROKERS)(change) == (1, "CLUSTER_AUTHORIZATION_FAILED: no")


@pytest.mark.parametrize("said", [NoError, ReplicaNotAvailableError])
def test_a_broker_without_the_replica_remembers_its_directory(
    cluster: Cluster, said: type[Exception]
) -> None:
    cluster.put_said = said
    change = PlaceReplica(KAFKA, 2, "a", 3, "/d2", "")
    assert kafka.Alter(BROKERS)(change)[0] == 0
    assert cluster.put == [{TopicPartitionReplica("a", 3, 2): "/d2"}]
    cluster.put_said = KafkaStorageError
    assert kafka.Alter(BROKERS)(change) == (1, "a-3 on broker 2: KAFKA_STORAGE_ERROR")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, (0, "unregister broker 5 from Kafka")),
        (102, (0, "unregister broker 5 from Kafka")),
        (31, (1, "broker 5: CLUSTER_AUTHORIZATION_FAILED: why")),
    ],
)
def test_a_broker_is_forgotten_once_and_a_refusal_is_told(
    cluster: Cluster, code: int, said: tuple[int, str]
) -> None:
    cluster.forgot = code
    assert kafka.Alter(BROKERS)(UnregisterBroker(KAFKA, 5)) == said
    assert cluster.forgotten == [b"\0\0\0\5\0"], "the id, and no tagged field"


def test_no_broker_at_all_is_a_timeout() -> None:
    at = [f"127.0.0.1:{free_port()}"]
    assert cause(reassignments.in_flight(at))[0] == "timeout"
    assert cause(reassignments.broker_settings(at, RATE, (1,)))[0] == "timeout"


def test_each_look_states_what_it_asks_of_whom() -> None:
    assert "each of these brokers" in ReadBrokerSettings.costs
    assert "to one broker" in ListReassignments.costs
