"""What the Kafka view makes of a cluster's answers; the shapes are those that kafka-python 3.0 gives."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.admin import AlterConfigOp
from kafka.errors import ClusterAuthorizationFailedError, IncompatibleBrokerVersion, RequestTimedOutError
from kafka.protocol.admin.topics import ElectLeadersResponse as Response
from kafka.structs import TopicPartition

from tests.ports import free_port
from tests.unit.kafka.clients.fake_cluster import CLUSTER_ID, FakeCluster
from zkmigrate.errors import HostError
from zkmigrate.kafka.changes import KAFKA, AlterTopicConfig, ElectLeaders
from zkmigrate.kafka.clients import admin as kafka
from zkmigrate.kafka.clients import cluster_view, connections
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown


def answer(error: int = 0, version: int = 2, **partitions: int) -> Response:
    """What a broker answers to an election; partitions: an error code by name of topic."""
    results = [
        Response.ReplicaElectionResult(
            topic=topic,
            partition_result=[
                Response.ReplicaElectionResult.PartitionResult(
                    partition_id=0, error_code=code, error_message=None
                )
            ],
        )
        for topic, code in partitions.items()
    ]
    of_all = {"error_code": error} if version else {}
    return Response(version=version, throttle_time_ms=0, replica_election_results=results, **of_all)


def partition(index: int, leader: int, isr: list[int], error: int = 0) -> dict[str, Any]:
    return {"error_code": error, "partition_index": index, "leader_id": leader,
            "replica_nodes": [1, 2], "isr_nodes": isr}  # fmt: skip


def two_topics(leader: int = 1, isr: tuple[int, ...] = (1, 2), error: int = 0) -> list[dict[str, Any]]:
    """Two topics, one partition of which is offline. leader, isr, error: what a broker says of topic b."""
    return [
        {"name": "b", "error_code": error, "partitions": [partition(0, leader, list(isr))]},
        {"name": "a", "error_code": 0, "partitions": [partition(1, -1, [2], 5), partition(0, 2, [2])]},
    ]


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    """Two brokers with two topics."""

    def setting(value: str, source: str) -> dict[str, Any]:
        return {"min.insync.replicas": {"value": value, "config_source": source}}

    cluster.addresses = {1: ("10.0.0.1", 9092, "r1"), 2: ("10.0.0.2", 9093, None)}
    cluster.controller, cluster.topics, cluster.election = 2, two_topics(), answer()
    cluster.configs = {
        "topic": {"a": setting("1", "DYNAMIC_TOPIC_CONFIG"), "b": setting("1", "STATIC_BROKER_CONFIG")},
        "broker": {"1": setting("1", "STATIC_BROKER_CONFIG"), "2": setting("2", "DYNAMIC_BROKER_CONFIG")},
    }
    return cluster


BROKERS = ("10.0.0.1:9092", "10.0.0.2:9093")
NOT_TO_BE_ASKED = Absent("the brokers can tell")


def view(reassignments: Reading[bytes] | None = NOT_TO_BE_ASKED) -> Reading[KafkaView]:
    def read() -> Reading[bytes] | None:
        assert reassignments is not NOT_TO_BE_ASKED, "asked the znode although the brokers can tell"
        return reassignments

    return cluster_view.view(["10.0.0.1:9092"], read)


def seen(reading: Reading[KafkaView]) -> KafkaView:
    assert isinstance(reading, Seen), reading
    return reading.value


def cause(reading: Reading[KafkaView]) -> str:
    assert isinstance(reading, Unknown), reading
    return reading.cause


@pytest.mark.usefixtures("cluster")
def test_the_view_holds_brokers_partitions_and_controller() -> None:
    got = seen(view())
    assert (got.cluster_id, got.controller) == (CLUSTER_ID, 2)
    assert got.brokers == {1: ("10.0.0.1", 9092, "r1"), 2: ("10.0.0.2", 9093, "")}
    assert got.partitions == (
        PartitionState("a", 0, 2, (1, 2), (2,)),
        PartitionState("a", 1, -1, (1, 2), (2,)),
        PartitionState("b", 0, 1, (1, 2), (1, 2)),
    )


def test_a_slow_broker_gets_longer_for_a_question_than_a_broker_that_hangs(cluster: FakeCluster) -> None:
    assert isinstance(view(), Seen)
    limits = {cluster.settings[name] for name in ("request_timeout_ms", "bootstrap_timeout_ms")}
    assert min(limits) >= 6 * connections.ANSWER_S * 1000


@pytest.mark.usefixtures("cluster")
def test_min_isr_is_the_topics_own_else_the_strictest_brokers() -> None:
    assert seen(view()).min_isr == {"a": 1, "b": 2}


def test_min_isr_leaves_out_a_broker_that_hangs_but_not_a_topic(cluster: FakeCluster) -> None:
    cluster.silent = {"2"}
    assert seen(view()).min_isr == {"a": 1, "b": 1}
    cluster.silent = {"a"}
    assert cause(view()) == "failed"


def test_min_isr_that_acls_hide_is_said_so_of_a_topic_and_left_out_of_a_broker(cluster: FakeCluster) -> None:
    cluster.configs["broker"]["2"] = {}
    assert seen(view()).min_isr == {"a": 1, "b": 1}
    cluster.configs["topic"]["a"] = {}
    hidden = view()
    assert cause(hidden) == "failed"
    assert (
        "min.insync.replicas of topic a is missing in the answer: it was just deleted, or the account"
        in str(hidden)
    )


def test_reassignments_come_from_the_brokers_that_can_list_them(cluster: FakeCluster) -> None:
    cluster.moving = [TopicPartition("b", 0), TopicPartition("a", 1)]
    assert seen(view()).reassigning == (("a", 1), ("b", 0))


def test_without_zookeeper_a_broker_that_answers_stands_for_the_controller(cluster: FakeCluster) -> None:
    """Metadata may name one that died. With ZooKeeper only the controller itself answers."""
    for release, hanging, wanted in (((4, 2), {1}, 2), ((4, 2), set[int](), 1), ((3, 9), {1}, None)):
        cluster.release = release
        cluster.hanging = {f"10.0.0.{id}:9092" for id in hanging}
        cluster._controller_id = None
        assert isinstance(cluster_view.view(BROKERS, lambda: None), Seen)
        assert cluster._controller_id == wanted


def test_reassignments_of_older_brokers_come_from_the_znode(cluster: FakeCluster) -> None:
    cluster.moving = IncompatibleBrokerVersion()
    data = b'{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[1,2]}]}'
    assert seen(view(Seen(data))).reassigning == (("a", 1),)
    assert seen(view(Absent())).reassigning == ()
    assert seen(view(None)).reassigning is None, "nobody may be asked yet"


def test_a_znode_that_cannot_be_read_leaves_reassignments_unknown(cluster: FakeCluster) -> None:
    cluster.moving = IncompatibleBrokerVersion()
    assert cause(view(Unknown("timeout", "no answer"))) == "timeout"
    assert cause(view(Seen(b"{}"))) == "garbled"
    assert cause(view(Seen(b"\xff"))) == "garbled"
    for number in (b'"1"', b"1.5", b"true", b"1e999", b"NaN", b"null", b"[" * 60_000):
        odd = b'{"partitions": [{"topic": "t", "partition": %s}]}' % number
        assert cause(view(Seen(odd))) == "garbled", number[:9]


def test_a_broker_that_does_not_know_the_topics_yet_is_no_witness(cluster: FakeCluster) -> None:
    whole = seen(view())
    cluster.of_topics[2] = []
    assert (seen(view()).partitions, seen(view()).brokers) == (whole.partitions, whole.brokers)
    cluster.of_topics = {1: [], 2: []}
    assert seen(view()).partitions == whole.partitions


def test_in_sync_and_registered_is_what_every_broker_calls_so(cluster: FakeCluster) -> None:
    cluster.of_topics, cluster.names = {2: two_topics(isr=(1,))}, {2: {2}}
    found = seen(view())
    assert {(p.topic, p.partition): p.isr for p in found.partitions}["b", 0] == (1,)
    assert list(found.brokers) == [2]
    assert {broker for broker, _ in cluster.asked} == {None, 1, 2}


def test_a_broker_that_hangs_is_not_asked(cluster: FakeCluster) -> None:
    cluster.hanging = {BROKERS[1]}
    reading = cluster_view.view(BROKERS, lambda: NOT_TO_BE_ASKED)
    assert list(seen(reading).brokers) == [1, 2]
    assert {broker for broker, _ in cluster.asked} == {None, 1}
    assert seen(reading).min_isr == {"a": 1, "b": 1}, "nor for its own setting"
    cluster.asked.clear()
    cluster.hanging = {BROKERS[0]}
    cluster_view.view(BROKERS, lambda: NOT_TO_BE_ASKED)
    assert cluster.asked[:2] == [(2, []), (None, None)], "connected to one that answers before any is asked"


def test_no_more_witnesses_are_asked_than_wanted(cluster: FakeCluster) -> None:
    reading = cluster_view.view(["10.0.0.1:9092"], lambda: NOT_TO_BE_ASKED, witnesses=1)
    assert list(seen(reading).brokers) == [1, 2]
    assert cluster.asked == [(None, None), (1, None)]


def test_a_refused_question_is_unknown_and_not_an_empty_answer(cluster: FakeCluster) -> None:
    cluster.moving = ClusterAuthorizationFailedError()
    assert cause(view()) == "denied"


def test_a_topic_whose_metadata_failed_is_unknown(cluster: FakeCluster) -> None:
    cluster.topics = two_topics(error=29)
    assert cause(view()) == "failed"


@pytest.mark.parametrize(
    ("apis", "release"),
    [
        ({0: (0, 7), 1: (0, 11), 3: (0, 8)}, "2.3"),
        ({0: (0, 8), 1: (0, 11), 3: (0, 9)}, "2.4"),
        ({0: (0, 9), 1: (0, 12), 3: (0, 11)}, "2.8"),
        ({18: (0, 0)}, "0.10.0"),
    ],
)
def test_what_a_broker_offers_tells_its_release(apis: dict[int, tuple[int, int]], release: str) -> None:
    """Versions of Produce, Fetch and Metadata as Kafka's protocol guide gives them for each release."""
    assert connections._release(apis) == release


@pytest.mark.usefixtures("cluster")
def test_the_view_holds_the_releases_of_those_that_answered() -> None:
    assert seen(view()).releases == {"10.0.0.1:9092": "2.8"}


def test_no_broker_at_all_is_a_timeout() -> None:
    reading = cluster_view.view([f"127.0.0.1:{free_port()}"], lambda: Absent(), deadline_s=1)
    assert cause(reading) == "timeout"


NEEDLESS, NOT_AVAILABLE, NOT_CONTROLLER, DENIED = 84, 80, 41, 31


ELECT_ALL = ElectLeaders(KAFKA)


@pytest.mark.parametrize(
    "election",
    [answer(), answer(b=0, c=NEEDLESS), answer(b=0, version=0), answer(b=0, c=NOT_AVAILABLE)],
    ids=["none is needed", "one of two", "as before 2.4", "one could not"],
)
def test_an_election_of_every_partition_leaves_out_those_that_cannot(
    cluster: FakeCluster, election: Response
) -> None:
    cluster.election = election
    assert kafka.Alter(BROKERS)(ELECT_ALL) == (0, "elect the preferred leader of every partition")
    assert cluster.settings["request_timeout_ms"] == 60_000


def test_an_election_ends_when_every_broker_tells_of_the_new_leader(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.of_topics[2], waits = two_topics(leader=2), []

    def told(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            cluster.of_topics.clear()

    monkeypatch.setattr("zkmigrate.kafka.clients.elections.time.sleep", told)
    cluster.election = answer(a=NOT_AVAILABLE, b=0)
    assert kafka.Alter(BROKERS)(ELECT_ALL)[0] == 0
    assert len(waits) == 2


@pytest.mark.parametrize(
    "trouble",
    [
        answer(DENIED),
        answer(NOT_CONTROLLER),
        RequestTimedOutError(),
        OSError("reset"),
        RuntimeError("Failed to find active controller id!"),
    ],
    ids=["denied", "not the controller", "no answer", "cut off", "no controller"],
)
def test_a_refused_election_names_the_cluster_and_the_cause(
    cluster: FakeCluster, trouble: Response | Exception
) -> None:
    cluster.election = trouble
    with pytest.raises(
        HostError, match=r"Kafka at 10\.0\.0\.1:9092, .* did not confirm: elect .*: \w+(: .*)?$"
    ):
        kafka.Alter(BROKERS)(ELECT_ALL)


SET = AlterTopicConfig(KAFKA, "a", "retention.ms", "1", None)
UNSET = AlterTopicConfig(KAFKA, "a", "retention.ms", None, "1")


def test_one_config_of_one_topic_is_set_or_unset(cluster: FakeCluster) -> None:
    assert kafka.Alter(BROKERS)(SET) == (0, "set retention.ms=1 of topic a (found: unset)")
    assert kafka.Alter(BROKERS)(UNSET) == (0, "unset retention.ms of topic a (found: retention.ms=1)")
    assert cluster.altered == [
        (["a"], {"retention.ms": (AlterConfigOp.SET, "1")}),
        (["a"], {"retention.ms": (AlterConfigOp.DELETE, None)}),
    ]
    assert cluster.settings["bootstrap_servers"] == list(BROKERS)


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        ("[Error 40] InvalidConfigurationError: Unknown name", "INVALID_CONFIG: Unknown name"),
        (IncompatibleBrokerVersion("before 2.3"), "UNSUPPORTED_VERSION: before 2.3"),
    ],
    ids=["by the broker", "by the client, before it sends"],
)
def test_what_kafka_refuses_did_not_happen(cluster: FakeCluster, refusal: str | Exception, why: str) -> None:
    cluster.outcomes["a"] = refusal
    assert kafka.Alter(BROKERS)(SET) == (1, why)


@pytest.mark.parametrize(
    "trouble",
    [RequestTimedOutError(), OSError("reset"), KeyError("a"), "[Error 7] RequestTimedOutError: None"],
    ids=["no answer", "cut off", "garbled", "the broker had none"],
)
def test_an_alteration_without_an_answer_is_not_known(cluster: FakeCluster, trouble: str | Exception) -> None:
    cluster.outcomes["a"] = trouble
    with pytest.raises(HostError, match=r"did not confirm: set retention\.ms=1 .* is unknown: "):
        kafka.Alter(BROKERS)(SET)


def test_where_no_broker_answers_nothing_is_sent(cluster: FakeCluster) -> None:
    cluster.hanging = set(BROKERS)
    with pytest.raises(HostError, match=r"no broker of .* answered in 3 s; nothing was sent to Kafka"):
        kafka.Alter(BROKERS)(SET)
    assert cluster.altered == []


def test_a_client_serves_one_change_after_another_until_one_goes_wrong(cluster: FakeCluster) -> None:
    alter = kafka.Alter(BROKERS)
    alter(SET)
    alter(UNSET)
    assert (cluster.made, cluster.closed) == (1, 0)
    cluster.outcomes["a"] = OSError("reset")
    with pytest.raises(HostError):
        alter(SET)
    assert (cluster.made, cluster.closed) == (1, 1)
    cluster.outcomes.clear()
    alter(SET)
    alter.close()
    assert (cluster.made, cluster.closed) == (2, 2)


def test_one_client_that_goes_wrong_takes_the_idle_ones_along(cluster: FakeCluster) -> None:
    """They may all ask a broker that has stopped, and a change is sent three times at most."""
    alter = kafka.Alter(BROKERS)
    alter(SET)
    busy = alter._idle.get()
    alter(SET)
    alter._idle.put(busy)
    assert (cluster.made, cluster.closed) == (2, 0)
    cluster.outcomes["a"] = OSError("refused")
    with pytest.raises(HostError):
        alter(SET)
    assert (cluster.made, cluster.closed) == (2, 2)
    cluster.outcomes.clear()
    alter(SET)
    assert cluster.made == 3


def test_a_client_that_cannot_be_made_leaves_the_outcome_open(cluster: FakeCluster) -> None:
    cluster.unreachable = OSError("refused")
    with pytest.raises(HostError, match=r"is unknown: OSError: refused"):
        kafka.Alter(BROKERS)(SET)
    assert cluster.altered == []
