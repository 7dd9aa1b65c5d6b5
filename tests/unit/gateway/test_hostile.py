"""Connections of clients and brokers that break the protocol, stall, or send more than fits."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from tests.examples import examples
from tests.unit.gateway import frames
from tests.unit.gateway.frames import request
from tests.unit.gateway.loop import FRAME, Setting, run, until
from tests.unit.gateway.test_connection import produce, told
from tests.unit.gateway.test_messages import GOOD_ANSWERS, GOOD_REQUESTS, mutated
from zkmigrate.gateway.rules.apis import FETCH, PRODUCE
from zkmigrate.gateway.serving import connection
from zkmigrate.gateway.serving.connection import LARGE, MOST_WAITING

BAD = {
    "a size below a header": b"\0\0\0\1x",
    "a negative size": b"\xff\xff\xff\xffx",
    "a size above the limit": (FRAME + 1).to_bytes(4, "big") + b"x",
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_no_request_is_closed_and_named(bad: bytes) -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        client.writer.write(bad)
        await client.ended()
        [event] = at.events("Refused")
        assert event["why"].startswith("size: ")
        assert (event["cluster"], event["node"]) == ("a", 1)
        assert sum(at.seen("refused", "others").values()) == 1

    run(test)


@pytest.mark.parametrize(
    ("key", "version", "why"), [(FETCH, 13, "FETCH version 13"), (68, 0, "CONSUMER_GROUP")]
)
def test_what_is_not_offered_is_closed_and_named(key: int, version: int, why: str) -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        client.send(key.to_bytes(2, "big") + version.to_bytes(2, "big") + told(1, b"\0\5app-1\0\0"))
        await client.ended()
        [event] = at.events("Refused")
        assert why in event["why"]
        assert at.a.got == []
        assert list(at.seen("refused")) == [event["why"]]

    run(test)


def test_an_answer_out_of_order_ends_the_connection() -> None:
    async def test(at: Setting) -> None:
        client, at.a.wrong = await at.client(), 1
        client.send(produce(1))
        await client.ended()
        [event] = at.events("BrokerRefused")
        assert event["why"] == "order: an answer to 2, needed: to 1"

    run(test)


def test_requests_without_answers_are_bounded() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.a.answering.clear()
        for n in range(MOST_WAITING + 50):
            client.send(request(frames.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3, n))
        full = {"HEARTBEAT": MOST_WAITING}
        await until("it is full", lambda: at.seen("in_flight") == full)
        at.a.answering.set()
        for n in range(MOST_WAITING + 50):
            assert (await client.answer())[:4] == n.to_bytes(4, "big")

    run(test)


def test_mutated_frames_end_a_connection_and_nothing_else() -> None:
    """Both ways, through sockets; afterwards the gateway serves as before."""

    async def test(at: Setting) -> None:
        chance = random.Random(7)
        for n in range(examples(40)):
            client = await at.client()
            told_head, good = chance.choice(GOOD_ANSWERS)
            at.a.answers[told_head.key] = mutated(good[4:], chance)
            frame = mutated(chance.choice(GOOD_REQUESTS), chance)
            size = len(frame) if n % 4 else chance.randrange(1 << 31)
            client.writer.write(size.to_bytes(4, "big") + frame)
            version, key = told_head.version, told_head.key
            client.send(key.to_bytes(2, "big") + version.to_bytes(2, "big") + told(1, b"\0\1x\0") + b"\1" * 9)
            client.writer.write_eof()
            async with asyncio.timeout(20):
                with suppress(ConnectionError):
                    assert len(await client.reader.read()) < 1 << 16
            client.writer.close()
        at.a.answers.clear()
        client = await at.client()
        assert await client.asks(produce(1)) == told(1)

        def quiet() -> bool:
            return all(not one["in_flight"] for one in at.gateway.status()["apps"].values())

        await until("nothing is in flight", quiet)
        assert all(not one["parked"] for one in at.gateway.status()["apps"].values())
        assert not [line for line in at.lines if "Traceback" in str(line)]

    run(test)


def test_a_frame_that_takes_too_long_is_closed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FRAME_S", 0.05)

    async def test(at: Setting) -> None:
        slow, stuck = await at.client(), await at.client()
        slow.writer.write(b"\0\0\0\x20\0\0")
        await slow.ended()
        assert at.seen("refused", "others") == {"time": 1}
        frame = produce(records=b"r" * 9000)
        stuck.writer.write(len(frame).to_bytes(4, "big") + frame[:-1])
        await stuck.ended()
        assert at.seen("refused") == {"time": 1}
        assert (at.a.got, at.gateway.in_flight("app")) == ([], 0)

    run(test)


def test_large_messages_are_read_one_after_the_other() -> None:
    async def test(at: Setting) -> None:
        at.gateway._large = asyncio.Semaphore(1)
        slow, other = await at.client(), await at.client()
        kind = frames.OffsetCommitRequest.OffsetCommitRequestTopic
        body = frames.offset_commit()
        body.topics = [kind(name="t", partitions=body.topics[0].partitions * (LARGE // 10))]
        frame = request(body, 7)
        assert len(frame) > LARGE
        slow.writer.write(len(frame).to_bytes(4, "big") + frame[:-1])
        await until("it is being read", at.gateway._large.locked)
        other.send(frame)
        for n in range(20):
            assert await (await at.client()).asks(produce(n, "other-1")) == told(n)
        assert at.a.kinds() == [PRODUCE] * 20
        slow.writer.transport.abort()
        assert await other.answer() == told(5)

    run(test)
