"""A listener whose clients only read: what it serves, and Kafka's own errors for the rest."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import JoinGroupResponse, OffsetCommitResponse
from kafka.protocol.producer import ProduceResponse

from tests.examples import examples
from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import answer, decoded, request
from tests.unit.topics.gateway.loop import Setting, run, until
from tests.unit.topics.gateway.test_connection import fetch, produce, told
from tests.unit.topics.gateway.test_messages import MESSAGES, mutated
from zkmigrate.topics.gateway.rules.apis import APIS, PRODUCE, name_of
from zkmigrate.topics.gateway.rules.denied import MOST_ITEMS
from zkmigrate.topics.gateway.rules.layout import FrameError, finished
from zkmigrate.topics.gateway.rules.plan import Reading

MODULES = ("producer", "consumer", "admin.topics", "admin.acl", "admin.configs", "admin.groups")
DENIED = {key: api for key, api in APIS.items() if api.denied}
VERSIONS = [(key, version) for key, api in DENIED.items() for version in range(api.least, api.most + 1)]
ERRORS = {
    **dict.fromkeys(("PRODUCE", "TXN_OFFSET_COMMIT", "OFFSET_COMMIT", "ADD_PARTITIONS_TO_TXN"), 4),
    **dict.fromkeys(("CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "DELETE_GROUPS"), 2),
    **dict.fromkeys(("CREATE_ACLS", "DELETE_ACLS", "ALTER_CONFIGS", "INCREMENTAL_ALTER_CONFIGS"), 2),
    **dict.fromkeys(("INIT_PRODUCER_ID", "JOIN_GROUP", "ADD_OFFSETS_TO_TXN", "END_TXN"), 1),
    "DELETE_RECORDS": 4,
    "OFFSET_DELETE": 5,
}
"""How many errors an answer has if each array of the request has two items."""


def kind(key: int, side: str) -> Any:
    """Kafka-python's class of a message."""
    name = f"{APIS[key].schema}{side}"
    for module in MODULES:
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    raise AssertionError(name)


def filled(of: Any) -> Any:
    """A message with something in each field, and two items in each array."""
    return of(**{name: _value(field, name) for name, field in of.fields.items()})


def _value(field: Any, name: str, n: int = 0) -> Any:
    if field.is_struct_array():
        return [
            field.data_class(**{key: _value(one, key, n) for key, one in field.fields.items()})
            for n in range(2)
        ]
    if field.is_array():
        return [_value(field.array_of, name, n) for n in range(2)]
    texts = {"string": f"{name}-{n}", "bytes": b"b" * n, "records": b"r" * 9, "bool": True}
    return texts.get(field.type_str, n)


def asked(key: int, version: int) -> bytes:
    """A request with something in each field."""
    return request(filled(kind(key, "Request")), version)


def denied(frame: bytes, error: int = 29) -> bytes:
    return MESSAGES.denied(MESSAGES.head(frame), frame, error, "only reads")


def errors(body: Any) -> Iterator[int]:
    for name, value in body.items():
        for one in value if isinstance(value, list) else []:
            yield from errors(one)
        if name.endswith("error_code") and name != "topic_config_error_code":  # tagged, so left out
            yield value


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_h3_what_is_denied_is_answered_with_an_error_for_all_that_it_names(key: int, version: int) -> None:
    of, told = kind(key, "Response"), denied(asked(key, version))
    assert answer(of.decode(told, version=version, header=True), version) == told, "nothing is left over"
    assert list(errors(decoded(of, told, version))) == [29] * ERRORS[name_of(key)]


def test_an_answer_names_what_the_request_named() -> None:
    told = decoded(ProduceResponse, denied(asked(PRODUCE, 9)), 9)
    found = [(one["name"], [p["index"] for p in one["partition_responses"]]) for one in told["responses"]]
    assert found == [("name-0", [0, 1]), ("name-1", [0, 1])]
    assert told["responses"][0]["partition_responses"][0]["error_message"] == "only reads"
    for key, field, name in [(20, "responses", "name"), (42, "results", "group_id")]:
        own = decoded(kind(key, "Response"), denied(asked(key, 1)), 1)
        assert [one[name].rpartition("-")[2] for one in own[field]] == ["0", "1"]
    parts = decoded(kind(24, "Response"), denied(asked(24, 3)), 3)["results_by_topic_v3_and_below"]
    assert [p["partition_index"] for one in parts for p in one["results_by_partition"]] == [0, 1, 0, 1]


def test_everything_that_writes_is_denied() -> None:
    """What is left reads, or is of a group that a mirror does not commit for."""
    served = {name_of(key) for key in APIS.keys() - DENIED.keys()}
    reads = {"FETCH", "LIST_OFFSETS", "METADATA", "OFFSET_FETCH", "FIND_COORDINATOR", "API_VERSIONS"}
    reads |= {"DESCRIBE_GROUPS", "LIST_GROUPS", "DESCRIBE_ACLS", "DESCRIBE_CONFIGS"}
    assert served == reads | {
        *("HEARTBEAT", "LEAVE_GROUP", "SYNC_GROUP", "SASL_HANDSHAKE", "SASL_AUTHENTICATE")
    }
    reading = Reading("b", ("orders-*",))
    for key, version in VERSIONS:
        frame = asked(key, version)
        _, fields = finished(MESSAGES.read_request(MESSAGES.head(frame), frame))
        api = APIS[key]
        grouped = api.name in ("OFFSET_COMMIT", "JOIN_GROUP")
        assert ("GroupId" in fields) == grouped
        assert reading.error(api, fields) == (0 if grouped else api.denied), api.name
        if grouped:
            assert reading.error(api, {"GroupId": "orders-1"}) == api.denied == 30


def test_a_request_with_too_many_items_is_refused() -> None:
    one = frames.OffsetCommitRequest.OffsetCommitRequestTopic
    part = one.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_leader_epoch=-1, committed_metadata=""
    )
    body = frames.offset_commit()
    body.topics = [one(name="orders", partitions=[part] * (MOST_ITEMS - 1))]
    assert list(errors(decoded(OffsetCommitResponse, denied(request(body, 8)), 8))) == [29] * (MOST_ITEMS - 1)
    body.topics[0].partitions.append(part)
    with pytest.raises(FrameError) as error:
        denied(request(body, 8))
    assert error.value.what == "count"


@pytest.mark.parametrize("seed", range(examples(20)))
def test_mutated_requests_are_answered_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        frame = mutated(asked(*chance.choice(VERSIONS)), chance)
        try:
            head = MESSAGES.head(frame)
            if head.key in DENIED and head.api is not None:
                told = MESSAGES.denied(head, frame, 29, "only reads")
                assert len(told) < 4 * len(frame) + 64 * MOST_ITEMS
        except FrameError:
            pass


# -- through a gateway


def commit(group: str) -> bytes:
    body = frames.offset_commit()
    body.group_id = group
    return request(body, 8)


def join(group: str) -> bytes:
    body = filled(kind(11, "Request"))
    body.group_id = group
    return request(body, 9)


def test_h3_readers_are_served_by_their_cluster_whatever_an_applications_route_is() -> None:
    async def test(at: Setting) -> None:
        at.order("hold", ttl_ms=60_000)
        client = await at.client("r")
        assert await client.asks(fetch()) == told(6)
        assert await client.asks(commit("spark")) == told(5)
        assert await client.asks(join("spark")) == told(5)
        assert (at.a.kinds(), at.b.kinds()) == ([], [1, 8, 11])
        assert at.seen("parked") == at.seen("answered") == {}
        status = at.gateway.status()["readers"]["r"]
        assert (status["cluster"], status["connections"]) == ("b", 1)
        assert status["answered"] == {"FETCH": 1, "JOIN_GROUP": 1, "OFFSET_COMMIT": 1}
        assert at.gateway.status()["apps"].keys() == {"user", "app", "others"}
        assert at.order("hold", "r", ttl_ms=1000).outcome == "refused"
        client.writer.close()
        await until("it has left", lambda: at.gateway.status()["readers"]["r"]["connections"] == 0)

    run(test)


def test_h3_what_readers_may_not_do_is_answered_and_they_go_on() -> None:
    async def test(at: Setting) -> None:
        client = await at.client("r")
        records = random.Random(1).randbytes(300_000)
        seen = decoded(ProduceResponse, await client.asks(produce(records=records)), 9)
        assert list(errors(seen)) == [29]
        seen = decoded(OffsetCommitResponse, await client.asks(commit("orders-1")), 8)
        assert list(errors(seen)) == [30]
        seen = decoded(JoinGroupResponse, await client.asks(join("orders-1")), 9)
        assert list(errors(seen)) == [30]
        assert at.b.got == []
        assert await client.asks(fetch()) == told(6)
        refused = at.gateway.status()["readers"]["r"]["refused"]
        assert refused == {
            f"{name}: listener r is read-only": 1 for name in ("JOIN_GROUP", "OFFSET_COMMIT", "PRODUCE")
        }

    run(test)


def test_answers_of_both_kinds_come_in_order() -> None:
    async def test(at: Setting) -> None:
        client = await at.client("r")
        at.b.answering.clear()
        client.send(fetch())
        client.send(produce(7))
        await until("it arrives", lambda: at.b.kinds() == [1])
        at.b.answering.set()
        assert await client.answer() == told(6)
        assert (await client.answer())[:4] == told(7, b"")

    run(test)


def test_a_producer_without_acks_is_cut_off_by_name() -> None:
    async def test(at: Setting) -> None:
        client = await at.client("r")
        client.send(produce(acks=0))
        await client.ended()
        await until("it is named", lambda: bool(at.events("Refused")))
        assert "a request with acks=0 has no response" in at.events("Refused")[0]["why"]
        assert at.b.got == []

    run(test)
