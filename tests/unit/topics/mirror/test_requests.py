"""What the mirror asks brokers for: each request as it is sent, and what becomes of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.clients import listing, survey, topics
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part
from zkmigrate.topics.mirror.clients.owners import Owner, Owners
from zkmigrate.topics.mirror.rules.follow import Configure

P: Part = ("orders", 0)


class Wire(Cluster):
    """A cluster whose requests are kept, and answered by these answers in their order, by the request's name;
    the last one stays."""

    def __init__(self, answers: Mapping[str, list[Any]]) -> None:
        self.what = "target"
        self.answers = {name: list(told) for name, told in answers.items()}
        self.sent: list[tuple[Any, int | None]] = []

    def offers(self, request: Any) -> bool:
        return request.__name__ in self.answers

    def begin(self, request: Any, node: int | None = None) -> Any:
        self.sent.append((request, node))
        return request

    def end(self, sent: Any) -> Any:
        told = self.answers[sent.name]
        answer = told.pop(0) if len(told) > 1 else told[0]
        if isinstance(answer, HostError):
            raise answer
        return answer

    def _known(self) -> list[int]:
        return [1, 9]

    def asked(self, name: str) -> list[Any]:
        return [one for one, _ in self.sent if one.name == name]


PART = SimpleNamespace(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
METADATA = SimpleNamespace(
    cluster_id="c",
    controller_id=1,
    brokers=[SimpleNamespace(node_id=1)],
    topics=[SimpleNamespace(name="orders", error_code=0, partitions=[PART], topic_id=None)],
)
OFFSETS = SimpleNamespace(
    topics=[
        SimpleNamespace(
            name="orders", partitions=[SimpleNamespace(partition_index=0, error_code=0, offset=3)]
        )
    ]
)
ANSWERS = {
    "MetadataRequest": [METADATA],
    "ListOffsetsRequest": [OFFSETS],
    "DescribeConfigsRequest": [
        SimpleNamespace(results=[SimpleNamespace(resource_name="orders", error_code=0, configs=[])])
    ],
    "ListGroupsRequest": [SimpleNamespace(error_code=0, groups=[])],
    "DescribeAclsRequest": [SimpleNamespace(error_code=54, error_message="none", resources=[])],
    "FetchRequest": [
        SimpleNamespace(
            error_code=0,
            responses=[
                SimpleNamespace(
                    topic="orders",
                    partitions=[
                        SimpleNamespace(
                            partition_index=0,
                            error_code=0,
                            high_watermark=3,
                            last_stable_offset=3,
                            aborted_transactions=None,
                            records=b"",
                        )
                    ],
                )
            ],
        )
    ],
}

LOOKS: Mapping[str, Callable[[Wire], object]] = {
    "id": lambda one: one.id(),
    "leaders": lambda one: one.leaders(["orders"]),
    "brokers": lambda one: one.brokers(),
    "topics": lambda one: one.topics(["orders"]),
    "ends": lambda one: one.ends([P]),
    "stable ends": lambda one: one.ends([P], committed=True),
    "latest": lambda one: one.latest(["orders"]),
    "states": lambda one: topics.states(one, ["orders"]),
    "groups": lambda one: listing.listed(one),
    "beside": lambda one: survey.beside(one, one, ["orders"], []),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_question_for_any_broker_is_answered_by_one_that_lives(look: str) -> None:
    """The first one asked has died, and the next one too."""
    gone = HostError("target did not respond")
    named = ("MetadataRequest", "DescribeConfigsRequest", "DescribeAclsRequest")
    wire = Wire({**ANSWERS, **{name: [gone, gone, *ANSWERS[name]] for name in named}})
    assert LOOKS[look](wire) == LOOKS[look](Wire(ANSWERS))
    assert [at for one, at in wire.sent if one.name == "MetadataRequest"][:3] == [None, 1, 9]


def test_a_broker_that_is_named_is_the_only_one_asked_and_who_does_not_answer_is_told() -> None:
    gone = HostError("target did not respond")
    for node, asked in ((7, [7]), (None, [None, 1, 9])):
        wire = Wire({"MetadataRequest": [gone]})
        with pytest.raises(HostError, match="did not respond"):
            wire.ask(SimpleNamespace(name="MetadataRequest"), node)
        assert [at for _, at in wire.sent] == asked


def test_no_further_broker_is_asked_after_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is down holds each question up until its limit."""
    wire = Wire({"MetadataRequest": [HostError("target did not respond")]})
    times = iter((0.0, 30.0, 60.0))
    monkeypatch.setattr("zkmigrate.topics.mirror.clients.cluster.time.monotonic", lambda: next(times))
    with pytest.raises(HostError):
        wire.ask(SimpleNamespace(name="MetadataRequest"))
    assert [at for _, at in wire.sent] == [None, 1]


def test_a_change_of_settings_is_sent_once_and_a_trial_of_it_until_one_answers() -> None:
    gone = HostError("target did not respond")
    made = SimpleNamespace(responses=[SimpleNamespace(resource_name="orders", error_code=0)])
    change = Configure("orders", {"retention.ms": "1"}, ())
    for trial in (True, False):
        wire = Wire({"IncrementalAlterConfigsRequest": [gone, made]})
        with suppress(HostError):
            topics.try_configuring(wire, [change]) if trial else topics.configure(wire, change)
        assert [at for _, at in wire.sent] == ([None, 1] if trial else [None])


@pytest.mark.parametrize("look", LOOKS)
def test_no_look_makes_a_topic(look: str) -> None:
    """A question for a missing topic makes it, on a broker with its own defaults; the first one for a
    coordinator makes Kafka's own."""
    wire = Wire(ANSWERS)
    LOOKS[look](wire)
    asked = wire.asked("MetadataRequest")
    assert asked
    assert all(one.allow_auto_topic_creation is False for one in asked)
    assert wire.asked("FindCoordinatorRequest") == []


@pytest.mark.parametrize(
    ("kraft", "asked", "node"),
    [
        (False, [None], 9),
        (True, [None, 9, 1], 1),
    ],
)
def test_without_zookeeper_a_broker_that_answers_takes_changes_of_topics(
    kraft: bool, asked: list[int | None], node: int
) -> None:
    """Metadata may name one that died. With ZooKeeper only the controller itself answers."""
    names = SimpleNamespace(controller_id=9, brokers=[SimpleNamespace(node_id=id) for id in (1, 9)])
    gone = HostError("target did not respond")
    made = SimpleNamespace(topics=[SimpleNamespace(error_code=0, error_message=None)])
    answers: dict[str, list[Any]] = {
        "MetadataRequest": [names, gone, names] if kraft else [names],
        "CreateTopicsRequest": [made],
    }
    wire = Wire(answers | ({"UnregisterBrokerRequest": [made]} if kraft else {}))
    topics.make(wire, topics.New("orders", 1, 1, {}))
    assert [at for one, at in wire.sent if one.name == "MetadataRequest"] == asked
    assert [at for one, at in wire.sent if one.name == "CreateTopicsRequest"] == [node]

    dark = Wire({"MetadataRequest": [names, gone], "UnregisterBrokerRequest": [made]})
    with pytest.raises(HostError, match="did not respond"):
        dark.controller()


def test_batches_are_appended_once_every_in_sync_replica_has_them() -> None:
    wire = Wire({})
    wire.begin_produce(1, {P: b"batch"})
    [(request, node)] = wire.sent
    assert (request.acks, request.transactional_id, node) == (-1, None, 1)


def test_only_committed_records_are_asked_for_unless_it_is_said_otherwise() -> None:
    wire = Wire({})
    wire.begin_fetch(1, {P: 7})
    wire.begin_fetch(1, {P: 7}, 0)
    assert [(one.isolation_level, one.topics[0].partitions[0].fetch_offset) for one, _ in wire.sent] == [
        (1, 7),
        (0, 7),
    ]


def test_a_fetch_that_failed_as_a_whole_is_no_empty_answer() -> None:
    wire = Wire({"FetchRequest": [SimpleNamespace(error_code=35, responses=[])]})
    with pytest.raises(HostError, match="target: UNSUPPORTED_VERSION"):
        wire.fetched(wire.begin_fetch(1, {P: 7}))


def test_an_end_with_an_error_is_the_error() -> None:
    """Not an offset of -1, before which nothing would be left to copy."""
    refused = SimpleNamespace(partition_index=0, error_code=6, offset=-1)
    bad = SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[refused])])
    for told in ([bad, OFFSETS], [OFFSETS, bad]):
        assert Wire({**ANSWERS, "ListOffsetsRequest": told}).ends([P]) == {P: 6}


# -- owners of transactional ids

FOUND = SimpleNamespace(error_code=0, node_id=1)
MOVED = SimpleNamespace(error_code=0, node_id=2)
OWN = SimpleNamespace(error_code=0, producer_id=9, producer_epoch=4)


def owners(answers: Mapping[str, list[Any]]) -> tuple[Wire, Owners]:
    wire = Wire(answers)
    return wire, Owners(wire.begin, wire.end)


def coordinators(wire: Wire, name: str) -> list[int | None]:
    return [node for one, node in wire.sent if one.name == name]


@pytest.mark.parametrize("error", [15, 16])
def test_h8_a_coordinator_that_has_moved_is_looked_for_again(error: int) -> None:
    refused = SimpleNamespace(error_code=error, producer_id=-1, producer_epoch=-1)
    wire, one = owners(
        {"FindCoordinatorRequest": [FOUND, MOVED], "InitProducerIdRequest": [OWN, refused, OWN]}
    )
    assert one.take(["t"]) == {"t": Owner("t", 9, 4)}
    assert one.take(["t"]) == {"t": error}
    assert one.take(["t"]) == {"t": Owner("t", 9, 4)}
    assert coordinators(wire, "InitProducerIdRequest") == [1, 1, 2]


def test_h8_a_coordinator_that_does_not_answer_is_looked_for_again() -> None:
    wire, one = owners(
        {
            "FindCoordinatorRequest": [FOUND, MOVED],
            "InitProducerIdRequest": [OWN],
            "EndTxnRequest": [HostError("gone"), SimpleNamespace(error_code=48)],
        }
    )
    one.take(["t"])
    with pytest.raises(HostError, match="gone"):
        one.ended([Owner("t", 9, 4)])
    assert one.ended([Owner("t", 9, 4)]) == {"t": 48}
    assert coordinators(wire, "EndTxnRequest") == [1, 2]


def test_h8_without_a_coordinator_nobody_owns_and_nobody_is_known_to_own() -> None:
    none = SimpleNamespace(error_code=15, node_id=-1)
    _, one = owners({"FindCoordinatorRequest": [none, none, FOUND], "InitProducerIdRequest": [OWN]})
    assert one.take(["t"]) == {"t": 15}
    assert one.ended([Owner("t", 9, 4)]) == {"t": 15}
    assert one.take(["t"]) == {"t": Owner("t", 9, 4)}
