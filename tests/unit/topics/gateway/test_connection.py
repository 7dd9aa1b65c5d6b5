"""Connections through a gateway: what waits, what is in flight, who gets which broker."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.examples import examples
from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import answer, decoded, request
from tests.unit.topics.gateway.loop import FRAME, Broker, Setting, run, until
from tests.unit.topics.mirror.batches import built
from zkmigrate.topics.gateway.rules.apis import (
    FETCH,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from zkmigrate.topics.gateway.rules.hold import FLIPPED_S, LONG_S, SYNC_S, Gate
from zkmigrate.topics.gateway.rules.messages import correlation
from zkmigrate.topics.gateway.rules.seen import LONGEST
from zkmigrate.topics.gateway.serving import buffer, requests
from zkmigrate.topics.gateway.serving.connection import Connection
from zkmigrate.topics.gateway.serving.learns import FIRST
from zkmigrate.topics.mirror.rules.batch import parse, produced


def produce(correlation: int = 5, client: str = "app-1", **more: Any) -> bytes:
    return request(frames.produce(**more), 9, correlation, client)


def fetch(client: str = "app-1") -> bytes:
    return request(frames.fetch(), 11, 6, client)


def heartbeat(client: str = "app-1") -> bytes:
    own = len(client).to_bytes(2, "big") + client.encode()
    return HEARTBEAT.to_bytes(2, "big") + (0).to_bytes(2, "big") + told(5, own) + bytes(10)


def told(correlation: int, body: bytes = b"body") -> bytes:
    return correlation.to_bytes(4, "big") + body


class Writes:
    """A transport whose writes are counted."""

    def __init__(self, own: asyncio.Transport, counts: Counter[str], name: str) -> None:
        self._own, self._counts, self._name = own, counts, name

    def write(self, data: bytes) -> None:
        self._counts[self._name] += 1
        self._own.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def come(protocol: Any, *frames_: bytes) -> None:
    """Let frames arrive in one read."""
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames_)
    buffer.VIEW[: len(data)] = data
    protocol.buffer_updated(len(data))


def test_a_request_and_its_answer_pass_whole_also_in_pieces() -> None:
    async def test(at: Setting) -> None:
        client, records = await at.client(), random.Random(1).randbytes(FRAME // 2)
        at.a.body = records
        frame = produce(records=records)
        assert len(frame) > FIRST
        assert await client.asks(frame) == told(5, records)
        assert at.a.got == [frame]
        assert at.seen("answered") == {"PRODUCE": 1}
        assert at.seen("acks") == {"-1": 1}

    run(test)


@pytest.mark.parametrize("pieces", [(FIRST, FIRST + 10, FIRST + 20), (FIRST + 10,)])
@pytest.mark.parametrize("acks", [-1, 0])
def test_a_large_request_like_an_earlier_one_is_sent_on_without_another_look(
    acks: int, pieces: tuple[int, ...]
) -> None:
    """Also in pieces. Before enough of it is there nothing is sent, and its time runs until it is whole."""

    async def test(at: Setting) -> None:
        client, looks = await at.client(), list[bytes]()
        frame = produce(acks=acks, records=bytes(2 * FIRST))
        if not acks:
            at.a.answering.clear()  # so it reads only the first one
        client.send(frame)
        await until("it arrives", lambda: at.a.got == [frame])
        if acks:
            assert await client.answer() == told(5)
        [own] = at.gateway.everyone
        assert isinstance(own, Connection)
        own.begin = lambda frame, size: looks.append(frame)  # type: ignore[method-assign]
        data = len(frame).to_bytes(4, "big") + frame
        for begin, end in pairwise([0, *pieces, len(data)]):
            buffer.VIEW[: end - begin] = data[begin:end]
            own.buffer_updated(end - begin)
            sent = end > FIRST and (acks or end < len(data))
            assert at.seen("in_flight") == ({"PRODUCE": 1} if sent else {})
            assert ("frame" in own._times.by) == (end < len(data))
        await until("it arrives too", lambda: at.a.got == [frame] * (2 if acks else 1))
        await until("it is answered", lambda: at.seen("answered") == {"PRODUCE": 2})
        assert (looks, at.seen("in_flight"), at.seen("acks")) == ([], {}, {str(acks): 2})

    run(test)


def test_a_producer_without_acks_gets_no_answer() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        client.send(produce(acks=0))
        await until("it arrives", lambda: at.a.kinds() == [PRODUCE])
        assert at.seen("in_flight") == {}
        assert at.seen("answered") == {"PRODUCE": 1}

    run(test)


def test_a_request_that_is_like_none_before_gets_a_look_of_its_own() -> None:
    """Also on a connection whose requests were all alike: another id, other acks, another transaction."""

    async def test(at: Setting) -> None:
        client = await at.client()
        for n in range(3):
            assert await client.asks(produce(n)) == told(n)
        assert await client.asks(produce(3, "other-1")) == told(3)
        assert (at.seen("answered"), at.seen("answered", "others")) == ({"PRODUCE": 3}, {"PRODUCE": 1})
        assert await client.asks(produce(4, transactional="t")) == told(4)
        assert at.seen("transactional") == {"t": 1}
        client.send(produce(5, acks=0))
        await until("it is counted", lambda: at.seen("acks") == {"-1": 4, "0": 1})
        assert (at.seen("answered"), at.seen("in_flight")) == ({"PRODUCE": 5}, {})

    run(test)


def test_an_epoch_is_hidden_also_if_earlier_requests_had_none() -> None:
    async def test(at: Setting) -> None:
        client, without = await at.client(), request(frames.fetch({"orders": [-1]}), 11, 6)
        for frame in (without, without, fetch(), without):
            assert await client.asks(frame) == told(6)
        assert at.a.got == [without] * 4

    run(test)


def test_requests_and_answers_that_come_together_are_written_together() -> None:
    """Also around a request that has to be read first."""

    async def test(at: Setting) -> None:
        client = await at.client()
        assert await client.asks(produce(0)) == told(0)
        [own] = at.gateway.everyone
        writes = Counter[str]()
        own._link.transport = Writes(own._link.transport, writes, "broker")  # type: ignore[attr-defined]
        frames_ = [produce(1), produce(2), produce(3, transactional="t"), *map(produce, (4, 5, 6))]
        come(own, *frames_)
        for n in range(1, 7):
            assert await client.answer() == told(n)
        assert at.a.got[1:] == frames_
        assert writes["broker"] == 4, (
            "the first two, one with a transaction, one without it again, and the last two"
        )
        assert (at.seen("answered"), at.seen("in_flight")) == ({"PRODUCE": 7}, {})

    run(test)


def test_an_answer_without_room_for_its_id_is_none() -> None:
    """The size of the next answer is the id that is awaited."""

    async def test(at: Setting) -> None:
        client = await at.client()
        assert await client.asks(produce(0)) == told(0)
        at.a.answering.clear()
        client.send(produce(len(told(0))))
        await until("it is sent", lambda: at.seen("in_flight") == {"PRODUCE": 1})
        [own] = at.gateway.everyone
        come(own._link, b"", told(0))  # type: ignore[attr-defined]
        await client.ended()
        assert any("the broker sent a response of 0 bytes" in str(line) for line in at.lines)

    run(test)


def test_answers_that_come_together_are_one_write() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        assert await client.asks(produce(0)) == told(0)
        at.a.answering.clear()
        for n in range(1, 4):
            client.send(produce(n))
        await until("all are sent", lambda: at.seen("in_flight") == {"PRODUCE": 3})
        [own] = at.gateway.everyone
        writes = Counter[str]()
        own._transport = Writes(own._transport, writes, "client")  # type: ignore[attr-defined]
        come(own._link, told(1), told(2), told(3))  # type: ignore[attr-defined]
        for n in range(1, 4):
            assert await client.answer() == told(n)
        assert writes == {"client": 1}
        assert (at.seen("answered"), at.seen("in_flight")) == ({"PRODUCE": 4}, {})

    run(test)


def test_h9_one_application_waits_and_the_others_do_not() -> None:
    async def test(at: Setting) -> None:
        held, other = await at.client(), await at.client()
        assert await held.asks(produce(1)) == told(1)
        assert at.order("hold", ttl_ms=60_000).outcome == "done"
        held.send(produce(2))
        held.send(produce(3))
        await until("it is parked", lambda: at.seen("parked") == {"PRODUCE": 1})
        for n in range(20):
            assert await other.asks(produce(n, "other-1")) == told(n)
        assert at.seen("answered") == {"PRODUCE": 1}
        assert at.seen("answered", "others") == {"PRODUCE": 20}
        assert at.gateway.in_flight("app") == 0
        assert at.order("unhold").outcome == "done"
        assert [await held.answer(), await held.answer()] == [told(2), told(3)]
        assert at.a.kinds() == [PRODUCE] * 23

    run(test)


def test_settle_parks_fetch_while_commits_pass() -> None:
    async def test(at: Setting) -> None:
        consumer, commits = await at.client(), await at.client()
        at.order("settle", ttl_ms=60_000)
        consumer.send(fetch())
        await until("it is parked", lambda: at.seen("parked") == {"FETCH": 1})
        assert await commits.asks(request(frames.offset_commit(), 8)) == told(5)
        assert FETCH not in at.a.kinds()
        at.order("hold", ttl_ms=60_000)
        commits.send(request(frames.offset_commit(), 8))
        await until("both wait", lambda: at.seen("parked") == {"FETCH": 1, "OFFSET_COMMIT": 1})

    run(test)


def test_seal_waits_for_what_is_in_flight() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.a.answering.clear()
        client.send(produce(1))
        await until("it is in flight", lambda: at.seen("in_flight") == {"PRODUCE": 1})
        refused = at.seal()
        assert (refused.outcome, refused.text) == ("refused", "1 requests of app are in flight; needed: 0")
        at.a.answering.set()
        assert await client.answer() == told(1)
        await until("nothing is in flight", lambda: at.gateway.in_flight("app") == 0)
        assert at.order("seal", hold="the-hold").outcome == "done"

    run(test)


def test_what_a_client_left_behind_stays_in_flight_until_it_is_answered() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.a.answering.clear()
        client.send(produce(1))
        await until("it is in flight", lambda: at.seen("in_flight") == {"PRODUCE": 1})
        client.writer.close()
        await client.writer.wait_closed()
        other = await at.client()
        at.a.answering.set()
        await other.asks(produce(1, "other-1"))
        await until("it was answered", lambda: at.seen("answered") == {"PRODUCE": 1})
        assert at.seen("in_flight") == {}
        assert at.seen("lost") == {}

    run(test)


def test_a_broker_that_ends_in_between_leaves_it_lost() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.a.answering.clear()
        client.send(produce(1))
        await until("it arrives", lambda: at.a.kinds() == [PRODUCE])
        at.a.writers[0].transport.abort()
        await client.ended()
        await until("it is counted", lambda: at.seen("lost") == {"PRODUCE": 1})
        assert at.gateway.in_flight("app") == 0

    run(test)


def test_a_parked_request_of_a_client_that_has_gone_is_never_sent() -> None:
    async def test(at: Setting) -> None:
        client, other = await at.client(), await at.client()
        assert await client.asks(produce(1)) == told(1)
        at.order("hold", ttl_ms=60_000)
        client.send(produce(2))
        client.send(produce(3, records=b"r" * 9000))
        await until("it is parked", lambda: at.seen("parked") == {"PRODUCE": 1})
        client.writer.transport.abort()
        await asyncio.sleep(0.05)
        at.order("unhold")
        assert await other.asks(produce(4)) == told(4)
        await until("it is parked no more", lambda: at.seen("parked") == {})
        assert len(at.a.got) == 2

    run(test)


def test_a_lease_that_ends_lets_requests_go_on() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.order("hold", id="the-hold", ttl_ms=50)
        client.send(produce(1))
        await until("it is parked", lambda: at.seen("parked") == {"PRODUCE": 1})
        assert at.a.got == []
        at.now += 1
        assert await client.answer() == told(1)
        assert [one["app"] for one in at.events("Lapsed")] == ["app"]
        assert at.order("seal", hold="the-hold").outcome == "refused"

    run(test)


def test_connections_are_served_while_an_order_is_written() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.record.slow = asyncio.Event()
        held = asyncio.create_task(at.ordering("hold", ttl_ms=60_000))
        await until("it is being written", lambda: bool(at.record.writing))
        assert await client.asks(produce(1)) == told(1), "the hold has not begun"
        at.record.slow.set()
        assert (await held).outcome == "done"
        client.send(produce(2))
        await until("it is parked", lambda: at.seen("parked") == {"PRODUCE": 1})

    run(test)


def test_no_lease_ends_while_an_order_is_written() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.order("route", to="b")
        at.order("hold", "others", ttl_ms=1000)
        at.order("hold", id="the-hold", ttl_ms=1000)
        client.send(produce(1))
        await until("it is parked", lambda: at.seen("parked") == {"PRODUCE": 1})
        at.record.slow = asyncio.Event()
        sealed = asyncio.create_task(at.ordering("seal", hold="the-hold"))
        await until("it is being written", lambda: bool(at.record.writing))
        at.now += 2
        assert at.gateway.app("app").gate is Gate.HELD
        assert at.gateway.app("others").gate is Gate.HELD
        at.record.slow.set()
        assert (await sealed).outcome == "done"
        assert [one["app"] for one in at.events("Lapsed")] == ["others"]
        assert at.gateway.app("app").gate is Gate.SEALED
        assert at.a.got == []

    run(test)


def test_an_order_waits_until_the_one_before_it_is_written() -> None:
    async def test(at: Setting) -> None:
        at.order("route", to="b")
        at.record.slow = asyncio.Event()
        first = asyncio.create_task(at.ordering("hold", id="the-hold", ttl_ms=60_000))
        await until("it is being written", lambda: at.record.writing == 1)
        second = asyncio.create_task(at.ordering("seal", hold="the-hold"))
        await asyncio.sleep(0)
        at.record.slow.set()
        assert (await first).outcome == "done"
        assert (await second).outcome == "done"

    run(test)


def test_h10_a_left_port_leads_to_the_other_cluster() -> None:
    async def test(at: Setting) -> None:
        before = await at.client("a")
        assert await before.asks(produce(1)) == told(1)
        assert at.seal().outcome == "done"
        before.send(produce(2))
        await until("it is parked", lambda: at.seen("parked") == {"PRODUCE": 1})
        assert at.order("go").outcome == "done"
        await before.ended()
        assert len(at.a.got) == 1

        at.b.answers[3] = answer(frames.metadata(), 9)[4:]
        body = at.b.answers[3]
        client = await at.client("a")
        frame = await client.asks(request(frames.MetadataRequest(topics=None), 9))
        assert at.b.kinds() == [3]
        seen = decoded(MetadataResponse, frame, 9)
        assert {(one["host"], one["port"]) for one in seen["brokers"]} == {("gw.example", 29007)}
        assert body != frame[4:]
        assert len(at.a.got) == 1
        status = at.gateway.status()["apps"]["app"]
        assert (status["connections_on_left_ports"], status["left_clients"]) == (1, ["app-1 at 127.0.0.1"])
        assert status["topics"] == {"*": 1}
        at.now += FLIPPED_S  # FETCH need not wait for SYNC_GROUP any more
        for asked in (produce(3), fetch()):
            left = await at.client("a")
            left.send(asked)
            await left.ended()
        assert at.b.kinds() == [3], (
            "nobody leads there what it writes: it asks METADATA, and goes to the leader"
        )
        assert {(one["cluster"], one["node"]) for one in at.gateway.status()["unlisted"]} == {
            ("b", 1),
            ("b", 2),
        }
        assert at.record.written[-1]["apps"]["app"]["route"] == "b"
        other = await at.client("b")
        assert await other.asks(produce(4, "other-1")) == told(4), "an application that stayed, on b's port"
        assert len(at.a.got) == 2
        client.writer.close()
        own = await at.client("b")
        assert await own.asks(produce(5)) == told(5)
        await until("it has left", lambda: not at.gateway.status()["apps"]["app"]["left_clients"])
        status = at.gateway.status()["apps"]["app"]
        assert (status["connections_on_left_ports"], status["left_clients"]) == (0, [])

    run(test)


def test_h25_the_longest_wait_is_told_from_settle_on_and_again_from_the_next_hold() -> None:
    async def test(at: Setting) -> None:
        consumer = await at.client()
        at.order("settle", ttl_ms=60_000)
        consumer.send(fetch())
        await until("it is parked", lambda: at.seen("parked") == {"FETCH": 1})
        at.now += 2
        assert at.seen("longest_wait_ms") == {"FETCH": 2000}
        at.order("hold", ttl_ms=60_000)
        longest = at.gateway.seen["app"].longest_wait_ms
        await until("it is judged again", lambda: longest == {"FETCH": 2000})
        at.now += 1
        at.order("unhold")
        assert await consumer.answer() == told(6)
        assert at.seen("longest_wait_ms") == {"FETCH": 3000}, "a changed gate does not begin it anew"
        assert at.order("route", to="b").outcome == "done"
        assert at.seen("longest_wait_ms") == {"FETCH": 3000}
        at.order("hold", ttl_ms=60_000)
        assert at.seen("longest_wait_ms") == {}

    run(test)


def test_h25_who_comes_back_after_a_flip_is_counted_by_client_id_and_address() -> None:
    async def test(at: Setting) -> None:
        first, second = await at.client("a"), await at.client("a")
        assert await first.asks(produce(1)) == told(1)
        assert await second.asks(produce(2, "app-2")) == told(2)
        assert at.seen("returned") == {}
        at.seal()
        assert at.order("go").outcome == "done"
        await first.ended()
        at.now += 1.5
        again = await at.client("b")
        assert await again.asks(produce(3)) == told(3)
        assert at.seen("returned") == {
            "back": 1,
            "first_s": 1.5,
            "last_s": 1.5,
            "missing": 1,
            "names": ["app-2 at 127.0.0.1"],
        }

    run(test)


def without_records(frame: bytes) -> bool:
    """An answer to FETCH is that of a broker that does not lead the partition."""
    seen = decoded(FetchResponse, frame, 11)
    [topic] = seen["responses"]
    [part] = topic["partitions"]
    return (seen["error_code"], part["error_code"], part["records"]) == (0, 6, "")


def test_after_a_flip_fetch_gets_no_records_until_sync_group() -> None:
    async def test(at: Setting) -> None:
        at.seal()
        at.order("go")
        consumer, group = await at.client("b"), await at.client("b")
        assert without_records(await consumer.asks(fetch()))
        sync = (14).to_bytes(2, "big") + (5).to_bytes(2, "big") + told(5, b"\0\5app-1\0") + b"\1" * 30
        failed = answer(frames.SyncGroupResponse(throttle_time_ms=0, error_code=27, assignment=b""), 5)
        at.b.answers[14] = failed[4:]
        await group.asks(sync)
        assert without_records(await consumer.asks(fetch()))
        assert FETCH not in at.b.kinds()
        done = answer(frames.SyncGroupResponse(throttle_time_ms=0, error_code=0, assignment=b"x"), 5)
        at.b.answers[14] = done[4:]
        await group.asks(sync)
        assert await (await at.client("b")).asks(fetch()) == told(6)
        assert without_records(await (await at.client("b")).asks(fetch("app-2")))
        at.now += SYNC_S
        assert await (await at.client("b")).asks(fetch("app-2")) == told(6)

        at.b.answers[HEARTBEAT] = (25).to_bytes(2, "big")
        assert await (await at.client("b")).asks(heartbeat("app-3")) == told(5, b"\0\x19")
        (await at.client("b")).send(fetch("app-3"))
        await until("it is seen", lambda: at.seen("clients").get("app-3") == 2)
        at.now += SYNC_S
        assert without_records(await (await at.client("b")).asks(fetch("app-3")))
        assert at.b.kinds().count(FETCH) == 2, "a member of a group joins again, however long that takes"
        at.b.answers[HEARTBEAT] = (0).to_bytes(2, "big")
        await (await at.client("b")).asks(heartbeat("app-3"))
        assert await (await at.client("b")).asks(fetch("app-3")) == told(6), "its group has it"

    run(test)


def test_after_a_flip_a_client_finds_its_coordinator_on_the_connection_on_which_it_fetches() -> None:
    """librdkafka 2.16 asks for its coordinator on any connection, and fetches there at once. While each FETCH
    ended the connection, it found its coordinator only when its session of 45 seconds had ended."""

    async def test(at: Setting) -> None:
        at.seal()
        at.order("go", ttl_ms=60_000)
        at.b.answers[10] = answer(frames.coordinator(3), 3)[4:]
        client = await at.client("b")
        find = (10).to_bytes(2, "big") + (3).to_bytes(2, "big") + told(7, b"\0\5app-1\0\6group\0\0")
        client.send(fetch())
        client.send(find)
        await until("FETCH is parked", lambda: at.seen("parked") == {"FETCH": 1})
        at.order("unhold")
        assert without_records(await client.answer())
        assert correlation(await client.answer()) == 7

    run(test)


def test_a_fetch_that_came_too_early_is_answered_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the client sends one after the other."""
    monkeypatch.setattr(requests, "EARLY_S", 3600.0)

    async def test(at: Setting) -> None:
        at.seal()
        at.order("go")
        early, other = await at.client("b"), await at.client("b")
        answered = asyncio.ensure_future(early.answer())
        early.send(fetch())
        await until("it is seen", lambda: at.seen("clients").get("app-1") == 1)
        assert await other.asks(produce()) == told(5)
        assert not answered.done()
        assert at.order("route", to="a").outcome == "done"
        assert without_records(await answered), "it does not wait any longer once its application changes"

    run(test)


def test_after_a_long_hold_a_member_gets_no_records_until_its_group_has_confirmed_it() -> None:
    """A Java client of release 2.8 has a session of 10 seconds, as long as the hold of an operator who died.
    It fetched before it knew that its group had lost it, joined again, and began at its last commit."""

    async def test(at: Setting) -> None:
        member, group, alone = await at.client(), await at.client(), await at.client()
        at.a.answers[HEARTBEAT] = (0).to_bytes(2, "big")
        await group.asks(heartbeat())
        assert await member.asks(fetch()) == told(6)
        at.order("settle", ttl_ms=round(LONG_S * 1000))
        at.now += LONG_S
        assert await member.asks(fetch()) == told(6), "a HEARTBEAT passes while consumers settle"
        at.order("hold", ttl_ms=round(LONG_S * 1000))
        member.send(fetch())
        alone.send(fetch("app-2"))
        await until("both wait", lambda: at.seen("parked") == {"FETCH": 2})
        at.now += LONG_S
        assert at.gateway.app("app").gate is Gate.OPEN
        assert without_records(await member.answer())
        assert await alone.answer() == told(6), "it has no group that could lose it"
        at.a.answers[HEARTBEAT] = (25).to_bytes(2, "big")
        await group.asks(heartbeat())
        assert without_records(await member.asks(fetch()))
        at.a.answers[HEARTBEAT] = (0).to_bytes(2, "big")
        await group.asks(heartbeat())
        assert await member.asks(fetch()) == told(6)

    run(test)


def ids(broker: Broker) -> list[int]:
    """The producer ids of the batches that a broker has got."""
    found = []
    for frame in broker.got:
        if frame[:2] == PRODUCE.to_bytes(2, "big"):
            asked: Any = ProduceRequest.decode(frame, version=9, header=True)
            found += [one.producer_id for one in parse(asked.topic_data[0].partition_data[0].records)]
    return found


def test_a_producer_that_comes_back_is_another_one_for_its_cluster() -> None:
    """Its numbers went on elsewhere, and the cluster remembers the last one that it saw."""

    async def switch(at: Setting, to: str) -> None:
        at.order("route", to=to)
        hold = f"to-{to}"
        at.order("hold", id=hold, ttl_ms=60_000)
        at.order("seal", hold=hold)
        assert at.order("go").outcome == "done"

    def initiated(id: int) -> bytes:
        told = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=id, producer_epoch=0)
        return answer(told, 4)[4:]

    async def test(at: Setting) -> None:
        at.a.answers[INIT_PRODUCER_ID] = initiated(2000)
        at.b.answers[INIT_PRODUCER_ID] = initiated(7)
        begin = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        old = await at.client("a")
        assert await old.asks(request(begin, 4)) == told(5, initiated(2000)), "no switch, no change"
        assert await old.asks(produce(records=produced(built(3), 2000, 0))) == told(5)
        await switch(at, "b")
        frame = await (await at.client("b")).asks(request(begin, 4))
        new = decoded(InitProducerIdResponse, frame, 4)["producer_id"]
        assert new not in (7, 2000)
        small, large = produced(built(6), 2000, 3), produced(built(FIRST // 10), 2000, 9)
        assert len(large) > FIRST
        for records in (small, large):
            assert await (await at.client("b")).asks(produce(records=records)) == told(5)
        assert await (await at.client("b")).asks(produce(records=produced(built(3), new, 0))) == told(5)
        await switch(at, "a")
        assert await (await at.client("a")).asks(produce(records=produced(built(3), 2000, 15))) == told(5)
        assert ids(at.a)[0] == 2000
        first, again, own = ids(at.b)
        assert first == again
        assert first not in (2000, 7)
        assert own == 7, "as that cluster gave it"
        assert len({2000, 7, first, ids(at.a)[1]}) == 4
        assert at.record.written[-1]["apps"]["app"]["flips"] == 2

    run(test)


def test_an_order_that_cannot_be_written_changes_nothing() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.seal()
        at.record.full = True
        failed = at.order("go", id="the-go")
        assert failed.outcome == "failed"
        assert "No space left" in failed.text
        client.send(produce(1))
        await until("it is parked", lambda: at.seen("parked") == {"PRODUCE": 1})
        at.record.full = False
        assert at.order("go", id="the-go").outcome == "done"
        await client.ended()

    run(test)


def test_a_broker_that_closes_an_idle_connection_closes_the_clients() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        await client.asks(produce(1))
        at.a.writers[0].close()
        await client.ended()

    run(test)


def test_versions_are_those_of_both_clusters() -> None:
    async def test(at: Setting) -> None:
        at.gateway.ranges["b"] = {PRODUCE: (3, 8), FETCH: (4, 17), 18: (0, 4)}
        own = [
            frames.ApiVersionsResponse.ApiVersion(api_key=k, min_version=0, max_version=12)
            for k in (0, 1, 23)
        ]
        body = frames.ApiVersionsResponse(error_code=0, api_keys=own, throttle_time_ms=0)
        at.a.answers[18] = answer(body, 3)[4:]
        client = await at.client()
        frame = await client.asks(request(frames.software(), 3))
        seen = frames.ApiVersionsResponse.decode(frame[4:], version=3).to_dict()["api_keys"]
        assert [(one["api_key"], one["max_version"]) for one in seen] == [(0, 8), (1, 11)]
        assert at.seen("software") == {"librdkafka 2.16.0": 1}
        newer = await at.client()
        frame = await newer.asks((18).to_bytes(2, "big") + (4).to_bytes(2, "big") + told(9, b"\0\1x\0\1\1\0"))
        assert frame[:6] == told(9, b"\0\x23")
        assert len(at.a.got) == 1, "the gateway answered by itself"

    run(test)


def test_a_clients_id_is_kept_cut_and_in_one_line() -> None:
    async def test(at: Setting) -> None:
        id = "app-1\n" + "x" * 3000
        client = await at.client("b")
        assert await client.asks(request(frames.fetch(), 11, 6, id)) == told(6)
        status = at.gateway.status()["apps"]["app"]
        [kept] = status["clients"]
        assert status["left_clients"] == [f"{kept} at 127.0.0.1"]
        assert kept.startswith("app-1\\u000axxx")
        assert len(json.dumps(kept)) - 2 == LONGEST

    run(test)


def sasl(mechanism: str) -> bytes:
    return request(SaslHandshakeRequest(mechanism=mechanism), 1)


def test_a_principal_leads_to_its_applications_cluster() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.a.answers[18] = answer(frames.ApiVersionsResponse(error_code=0, api_keys=[]), 3)[4:]
        await client.asks(request(frames.software(), 3))
        assert at.seen("software") == {"librdkafka 2.16.0": 1}
        at.a.got.clear()
        assert await client.asks(sasl("PLAIN")) == told(5)
        secret = b"\0alice\0hunter2"
        done = at.b.answers[SASL_AUTHENTICATE] = b"\0\0\0\0\1" + bytes(8) + b"\0"
        assert await client.asks(request(SaslAuthenticateRequest(auth_bytes=secret), 2)) == told(5, done)
        assert (at.a.kinds(), at.b.kinds()) == ([SASL_HANDSHAKE], [SASL_HANDSHAKE, SASL_AUTHENTICATE])
        await client.asks(produce(1))
        assert at.b.kinds()[-1] == PRODUCE
        assert at.seen("principals", "user") == {"alice": 1}
        assert at.seen("software", "user") == {"librdkafka 2.16.0": 1}
        assert "hunter2" not in str(at.lines) + str(at.gateway.status())

    run(test)


def test_a_mechanism_that_was_not_drilled_is_refused_by_name() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        frame = await client.asks(sasl("GSSAPI"))
        assert frame[:6] == told(5, b"\0\x21")
        assert at.a.got == []

    run(test)


@pytest.mark.parametrize("seed", range(examples(3)))
def test_nothing_reaches_the_left_cluster_behind_a_seal(seed: int) -> None:
    """Producers at work, and orders and lapses at random."""
    chance = random.Random(seed)

    async def producer(at: Setting, name: str) -> None:
        while True:
            client = await at.client(chance.choice("ab"))
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                for n in range(chance.randrange(1, 20)):
                    await client.asks(produce(n, name))
                    await asyncio.sleep(0)

    async def test(at: Setting) -> None:
        work = [asyncio.create_task(producer(at, f"app-{n}")) for n in range(4)]
        left = {"a": 0, "b": 0}
        brokers, switches = {"a": at.a, "b": at.b}, 0
        for _ in range(150):
            app = at.gateway.status()["apps"]["app"]
            verb = chance.choice(
                ["route", "hold", "seal", "seal", "go", "unseal", "unhold", "settle", "lapse"]
            )
            if verb == "lapse":
                at.now += chance.choice([0.0, 0.0, 2.0])
            other = "b" if app["route"] == "a" else "a"
            more = {"to": other} if verb == "route" else {"hold": app["hold"]} if verb == "seal" else {}
            done = at.order(verb, ttl_ms=chance.choice([1000, 5000]), **more).outcome == "done"
            if done and verb == "seal":
                left = {name: len(one.got) for name, one in brokers.items()}
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            if at.gateway.status()["apps"]["app"]["gate"] == "sealed":
                assert left == {name: len(one.got) for name, one in brokers.items()}
            if done and verb == "go":
                switches += 1
                assert len(brokers[app["route"]].got) == left[app["route"]]
        assert switches
        assert at.seen("lost") == {}
        for task in work:
            task.cancel()

    run(test)
