"""Who writes to topics in transactions, by what brokers of each age tell."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.unit.topics.mirror.batches import MS
from tests.unit.topics.mirror.model_cluster import Alone, Log, ModelCluster
from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.topics.mirror.clients import transactions as client
from zkmigrate.topics.mirror.clients.transactions import transactional
from zkmigrate.topics.mirror.rules.batch import parse
from zkmigrate.topics.mirror.rules.transactions import Writers

P, Q = ("orders", 0), ("orders", 1)
STATE = "__transaction_state"
WROTE = "the producer wrote to orders-0, last at 2023-11-14 22:13:20Z"


class Brokers(Alone):
    """A source of two brokers, of Kafka 3.0 or later. producers: by partition, what its leader remembers.
    ids: by broker, what it coordinates. opened: topics of open transactions. broken: requests that fail.
    hidden: the answer about a transactional id of nobody."""

    what = "source"

    def __init__(self, *, listing: bool = True) -> None:
        self.producers: dict[tuple[str, int], list[Any]] = {P: [], Q: []}
        self.ids: dict[int, list[Any]] = {1: [], 2: []}
        self.opened: dict[str, list[Any]] = {}
        self.broken: dict[str, Any] = {}
        self.hidden: Any = 105
        self.listing = listing
        self.log = ModelCluster("source", {})

    def offers(self, request: Any) -> bool:
        return self.listing or "Producers" in request.__name__

    def brokers(self) -> list[int]:
        return [1, 2]

    def leaders(self, topics: Any) -> dict[str, dict[int, int]]:
        return {"orders": {0: 1, 1: 2}} if "orders" in topics else self.log.leaders(topics)

    def unshown(self, names: Any) -> dict[str, str]:
        return self.log.unshown(names)

    def ends(self, parts: Any) -> Any:
        return self.log.ends(parts)

    def begin_fetch(self, *asked: Any) -> Any:
        return self.log.begin_fetch(*asked)

    def fetched(self, asked: Any) -> Any:
        return self.log.fetched(asked)

    def begin(self, request: Any, node: int | None = None) -> Any:
        return request, node

    def end(self, sent: Any) -> Any:
        request, node = sent
        kind = type(request).__name__
        error = self.broken.get(kind, 0)
        if isinstance(error, HostError):
            raise error
        if kind == "DescribeProducersRequest":
            topics = [
                SimpleNamespace(
                    name=topic.name,
                    partitions=[
                        SimpleNamespace(
                            partition_index=n,
                            error_code=error,
                            error_message=None,
                            active_producers=self.producers[topic.name, n],
                        )
                        for n in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
            return SimpleNamespace(topics=topics)
        if kind == "ListTransactionsRequest":
            return SimpleNamespace(error_code=error, transaction_states=self.ids[node])
        if node is None:
            if isinstance(self.hidden, HostError):
                raise self.hidden
            return SimpleNamespace(transaction_states=[SimpleNamespace(error_code=self.hidden)])
        told = {one.transactional_id: one for one in self.ids[node]}
        states = [
            SimpleNamespace(**{**vars(told[name]), "topics": self.opened[name], "error_code": error})
            for name in request.transactional_ids
        ]
        return SimpleNamespace(transaction_states=states)


def producer(id: int, *, coordinator: int = -1, opened: int = -1) -> Any:
    return SimpleNamespace(
        producer_id=id, last_timestamp=MS, coordinator_epoch=coordinator, current_txn_start_offset=opened
    )


def listed(name: str, producer: int, state: str = "CompleteCommit") -> Any:
    return SimpleNamespace(transactional_id=name, producer_id=producer, transaction_state=state)


def told(brokers: Brokers) -> Writers:
    return transactional(cast(Any, brokers), ["orders"])


def test_a_transactional_id_is_named_by_what_brokers_know() -> None:
    brokers = Brokers()
    brokers.producers[P] = [producer(7, coordinator=3), producer(8), producer(9)]
    brokers.producers[Q] = [producer(7, opened=4)]
    brokers.ids = {1: [listed("away", 5)], 2: [listed("pay", 7), listed("first", 9, "Empty")]}
    both = WROTE.replace("orders-0", "orders-0, orders-1")
    assert told(brokers) == Writers(
        {"pay": f"{both}, state CompleteCommit", "first": f"{WROTE}, state Empty"}
    )


def test_an_idempotent_producer_is_no_transactional_one() -> None:
    brokers = Brokers()
    brokers.producers[P] = [producer(8)]
    assert told(brokers) == Writers({})


@pytest.mark.parametrize("seen", [{"coordinator": 0}, {"opened": 0}])
def test_a_producer_whose_transactional_id_is_hidden_is_named_by_its_number(seen: dict[str, int]) -> None:
    brokers = Brokers()
    brokers.producers[P] = [producer(7, **seen)]
    assert told(brokers).named == {"producer id 7": f"{WROTE}, and Kafka does not show its transactional id"}


@pytest.mark.parametrize(
    ("hidden", "why"),
    [
        (53, "brokers list only the transactional ids that this account may describe"),
        (HostError("no answer"), "it is not known whether all transactional ids are listed: no answer"),
    ],
)
def test_a_list_that_may_leave_out_ids_is_not_called_whole(hidden: Any, why: str) -> None:
    brokers = Brokers()
    brokers.ids[1] = [listed("away", 5)]
    brokers.hidden = hidden
    assert told(brokers) == Writers({}, why)


def test_a_transaction_that_has_written_nothing_yet_is_named() -> None:
    brokers = Brokers()
    brokers.ids[1] = [listed("soon", 7, "Ongoing"), listed("elsewhere", 8, "Ongoing")]
    brokers.opened = {
        "soon": [SimpleNamespace(topic="orders", partitions=[1])],
        "elsewhere": [SimpleNamespace(topic="bills", partitions=[0])],
    }
    assert told(brokers).named == {
        "soon": "the producer has a transaction open on orders-1, in state Ongoing"
    }


def test_the_mirrors_own_end_markers_are_no_transactions() -> None:
    brokers = Brokers()
    brokers.producers[P] = [producer(7, coordinator=0)]
    brokers.ids[1] = [listed("zkmigrate-mirror-orders-0", 7, "Empty")]
    assert told(brokers) == Writers({})


@pytest.mark.parametrize(
    ("kind", "error", "why"),
    [
        ("DescribeProducersRequest", 29, f"producers of orders-0: {describe_error(29)}"),
        ("DescribeProducersRequest", HostError("no answer"), "no answer"),
        ("ListTransactionsRequest", 14, f"transactional ids of broker 1: {describe_error(14)}"),
        ("ListTransactionsRequest", HostError("no answer"), "transactional ids of broker 1: no answer"),
        ("DescribeTransactionsRequest", HostError("no answer"), "open transactions of broker 1: no answer"),
        ("DescribeTransactionsRequest", 16, f"open transaction of soon: {describe_error(16)}"),
    ],
)
def test_what_is_not_told_is_unknown(kind: str, error: Any, why: str) -> None:
    brokers = Brokers()
    brokers.ids[1] = [listed("soon", 7, "Ongoing")]
    brokers.opened["soon"] = []
    brokers.broken[kind] = error
    assert why in told(brokers).dark


def test_a_transactional_id_that_is_gone_meanwhile_hides_nothing() -> None:
    brokers = Brokers()
    brokers.ids[1] = [listed("soon", 7, "Ongoing")]
    brokers.opened["soon"] = []
    brokers.broken["DescribeTransactionsRequest"] = 105
    assert told(brokers).dark == ""


def test_a_partition_that_an_answer_leaves_out_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    end = brokers.end

    def cut(sent: Any) -> Any:
        answer = end(sent)
        if type(sent[0]).__name__ == "DescribeProducersRequest" and sent[1] == 2:
            answer.topics = []
        return answer

    monkeypatch.setattr(brokers, "end", cut)
    assert told(brokers).dark == "broker 2 does not report the producers of orders-1"


def test_a_partition_without_a_leader_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    monkeypatch.setattr(brokers, "leaders", lambda _: {"orders": {0: -1, 1: 2}})
    assert told(brokers).dark == "orders-0 has no leader"


# -- before Kafka 3.0


def key(name: str, version: int = 0) -> bytes:
    return struct.pack(">hh", version, len(name)) + name.encode()


def value(producer: int, status: int, *parts: tuple[str, int]) -> bytes:
    """Kafka's ``TransactionLogValue`` of version 0."""
    body = struct.pack(">hqhiB", 0, producer, 1, 60_000, status) + struct.pack(">i", len(parts))
    for topic, number in parts:
        body += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">ii", 1, number)
    return body + struct.pack(">qq", MS, MS)


def keeping(brokers: Brokers, *records: tuple[bytes, bytes | None]) -> Brokers:
    """Brokers with these records in the coordinators' log."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for n, (key, value) in enumerate(records):
        builder.append(n, MS, key, value, [])
    [batch] = parse(bytes(builder.build()))
    brokers.log.logs[STATE, 0] = Log()
    brokers.log.logs[STATE, 0].append(batch)
    return brokers


COMPLETE, ONGOING, DEAD = 4, 1, 6


def test_before_kafka_3_0_the_coordinators_log_tells_transactional_ids() -> None:
    brokers = keeping(
        Brokers(listing=False),
        (key("old"), value(6, COMPLETE)),
        (key("pay"), value(7, ONGOING, P)),
        (key("pay"), value(7, COMPLETE)),
        (key("gone"), value(9, COMPLETE)),
        (key("gone"), None),
        (key("soon"), value(8, ONGOING, Q, ("bills", 0))),
        (key("?", 1), b"of another kind"),
    )
    brokers.producers[P] = [producer(7, coordinator=0), producer(9, coordinator=0)]
    assert told(brokers) == Writers(
        {
            "pay": f"{WROTE}, state CompleteCommit",
            "producer id 9": f"{WROTE}, and Kafka does not show its transactional id",
            "soon": "the producer has a transaction open on orders-1, in state Ongoing",
        }
    )


def test_before_kafka_3_0_a_hidden_log_of_the_coordinators_is_unknown_and_not_empty() -> None:
    brokers = Brokers(listing=False)
    why = f"source does not report topic {STATE}: TOPIC_AUTHORIZATION_FAILED"
    brokers.log.denied = {STATE: why}
    assert told(brokers) == Writers(
        {}, f"transactional ids: {why}. Needed: the rights Read and Describe on that topic"
    )
    brokers.log.denied = {"orders": "source does not report topic orders: no"}
    assert told(brokers).dark == "source does not report topic orders: no"


def test_before_kafka_2_8_every_id_is_named_that_may_write() -> None:
    log = {P: Log(), Q: Log()}
    brokers = keeping(
        Brokers(),
        (key("soon"), value(8, ONGOING, Q)),
        (key("rests"), value(7, COMPLETE)),
        (key("dead"), value(9, DEAD)),
        (key("zkmigrate-mirror-orders-0"), value(10, COMPLETE)),
    )
    old = brokers.log
    old.logs |= log
    found = transactional(cast(Any, old), ["orders"])
    assert found == Writers(
        {
            "soon": "the producer has a transaction open on orders-1, in state Ongoing",
            "rests": "the brokers do not report where the producer has written; "
            "its last transaction has state CompleteCommit",
        }
    )
    del old.logs[STATE, 0]
    assert transactional(cast(Any, old), ["orders"]) == Writers({}), "nobody ever used transactions"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ((key("pay")[:3], value(7, ONGOING)), "a record of a transactional id is truncated"),
        ((key("pay"), value(7, ONGOING, P)[:30]), "a record of a transactional id is truncated"),
        ((key("pay"), value(7, 99)), "a record of a transactional id is truncated"),
        ((key("pay"), b"\0\1" + value(7, ONGOING)[2:]), "a record of pay has format 1"),
        ((key("pay") + b"x", value(7, ONGOING)), "a record of pay has format 0"),
    ],
)
def test_a_coordinators_log_that_is_not_understood_is_unknown(record: tuple[bytes, bytes], why: str) -> None:
    dark = told(keeping(Brokers(listing=False), record)).dark
    assert dark.startswith(f"transactional ids in {STATE}-0: {why}")


def test_a_coordinators_log_that_is_too_long_or_silent_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = keeping(Brokers(listing=False), *[(key(f"id-{n}"), value(n, COMPLETE)) for n in range(3)])
    monkeypatch.setattr(client, "_MOST_RECORDS", 2)
    assert told(brokers).dark == f"transactional ids in {STATE}-0: the topic has more than 2 records"
    for answer, why in (({}, "no response"), ({(STATE, 0): 29}, describe_error(29))):
        monkeypatch.setattr(brokers, "ends", lambda _, answer=answer: answer)
        assert told(brokers).dark == f"transactional ids in {STATE}-0: {why}"
