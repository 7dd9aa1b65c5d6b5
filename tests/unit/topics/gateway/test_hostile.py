"""Connections of clients and brokers that break the protocol, stall, or send more than fits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.examples import examples
from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import answer, request
from tests.unit.topics.gateway.loop import FRAME, Client, Setting, run, until
from tests.unit.topics.gateway.test_connection import fetch, produce, told
from tests.unit.topics.gateway.test_messages import GOOD_ANSWERS, GOOD_REQUESTS, mutated
from zkmigrate.topics.gateway.rules.apis import FETCH
from zkmigrate.topics.gateway.serving import room, times
from zkmigrate.topics.gateway.serving.buffer import SIZE
from zkmigrate.topics.gateway.serving.gateway import LINES_S, MOST_LINES
from zkmigrate.topics.gateway.serving.requests import SMALL
from zkmigrate.topics.gateway.serving.room import LARGE
from zkmigrate.topics.gateway.serving.sending import MOST_WAITING
from zkmigrate.topics.gateway.serving.turns import BURST, COST, MOST, TURN, Turns

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
        assert event["why"] == "order: the broker responded to 2; needed: a response to 1"

    run(test)


def test_requests_without_answers_are_bounded() -> None:
    async def test(at: Setting) -> None:
        client = await known(at, await at.client())
        at.a.body = bytes(6)
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
    monkeypatch.setattr(times, "FRAME_S", 0.05)

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


@pytest.mark.parametrize("flips", [False, True])
@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize("size", [10, 9000, FRAME // 2])
def test_the_time_of_a_frame_ends_with_the_frame(size: int, like: bool, flips: bool) -> None:
    """Else a client was closed a minute after a request that came in two pieces."""

    async def test(at: Setting) -> None:
        if flips:
            at.seal()
            at.order("go")
        broker = at.b if flips else at.a
        client = await at.client("b" if flips else "a")
        if like:
            assert await client.asks(produce(0)) == told(0)
        whole = sent(produce(1, records=b"r" * size))
        client.writer.write(whole[:-3])
        await until("it has begun", lambda: any(time_of(one) for one in at.gateway.everyone))
        [own] = at.gateway.everyone
        first, begun = time_of(own), asyncio.get_running_loop().time()
        await until("the clock goes on", lambda: asyncio.get_running_loop().time() > begun)
        client.writer.write(whole[-3:] + whole[:-3])
        assert await client.answer() == told(1)
        await until("the next has its own time", lambda: (time_of(own) or 0.0) > (first or 0.0))
        client.writer.write(whole[-3:])
        assert await client.answer() == told(1)
        assert time_of(own) is None
        assert broker.got[-2:] == [whole[4:]] * 2

    run(test)


def time_of(own: Any) -> float | None:
    """When the frame of a connection has to be over."""
    when: float | None = own._times.by.get("frame")
    return when


def test_a_log_of_refusals_is_bounded_and_tells_how_many_it_left_out() -> None:
    async def test(at: Setting) -> None:
        async def refused() -> None:
            client = await at.client()
            client.writer.write(BAD["another protocol"])
            await client.ended()

        for _ in range(MOST_LINES + 5):
            await refused()
        assert len(at.events("Refused")) == MOST_LINES
        at.now += LINES_S
        await refused()
        assert [one.get("unsaid") for one in at.events("Refused")] == [None] * MOST_LINES + [5]
        assert at.seen("refused", "others") == {"size": MOST_LINES + 6}

    run(test)


# -- who has not logged in costs nothing


def metadata(size: int, client: str = "app-1") -> bytes:
    """A request that is read whole, of about so many bytes."""
    kind = frames.MetadataRequest.MetadataRequestTopic
    asked = frames.MetadataRequest(topics=[kind(name="t" * 200)] * (size // 202))
    return request(asked, 9, client=client)


async def known(at: Setting, client: Client) -> Client:
    """A client whose broker has answered more than a login."""
    assert await client.asks(produce(1)) == told(1)
    return client


def sent(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def test_before_a_broker_has_answered_a_large_request_is_refused_unread() -> None:
    async def test(at: Setting) -> None:
        for frame in (metadata(SMALL + 1000), request(frames.software("n" * 100), 3) + bytes(SMALL)):
            client = await at.client()
            client.writer.write(sent(frame)[:5000])
            await client.ended()
        assert [one["why"].partition(" of ")[2].lstrip("0123456789,") for one in at.events("Refused")] == [
            " bytes; needed: at most 65536"
        ] * 2
        assert at.a.got == []
        late = await known(at, await at.client())
        at.a.answers[3] = answer(frames.metadata(), 9)[4:]
        assert (await late.asks(metadata(SMALL + 1000)))[:4] == told(5, b"")

    run(test)


def test_what_clients_leave_unfinished_is_bounded_and_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty that began a large request, and do not go on: the bytes of an address are bounded, and the others
    are served at once."""
    monkeypatch.setattr(room, "SHARE", 1 << 20)

    async def test(at: Setting) -> None:
        at.a.answers[3] = answer(frames.metadata(), 9)[4:]
        frame = sent(metadata(1 << 20))
        slow = [await known(at, await at.client()) for _ in range(40)]
        for one in slow:
            one.writer.write(frame[:-1])
        await until("the share is used up", lambda: at.gateway.room.total >= 1 << 20)
        honest = await at.client()
        for n in range(50):
            assert await honest.asks(produce(n)) == told(n)
        assert at.gateway.room.total <= (1 << 20) + 40 * (SIZE + LARGE)
        first = next(iter(at.gateway.room.held))
        at.now += room.CROWDED_S
        slow[0].writer.write(frame[-1:])
        for one in slow[1:]:
            one.writer.write(frame[-1:])
        for one in slow:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                assert (await one.answer())[:4] == told(5, b"")
        await until("nothing is kept", lambda: at.gateway.room.total == 0)
        assert first not in at.gateway.room.held

    run(test)


def test_who_holds_bytes_while_others_wait_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SHARE", 1 << 18)

    async def test(at: Setting) -> None:
        at.a.answers[3] = answer(frames.metadata(), 9)[4:]
        frame = sent(metadata(1 << 20))
        slow, other = [await known(at, await at.client()) for _ in range(2)]
        slow.writer.write(frame[:-1])
        await until("it is the first", lambda: at.gateway.room.total > 1 << 19)
        at.now += room.CROWDED_S
        other.writer.write(frame)
        await slow.ended()
        assert (await other.answer())[:4] == told(5, b"")
        assert at.seen("refused") == {"memory": 1}

    run(test)


async def deaf(at: Setting, count: int = 6) -> Client:
    """A client that reads nothing of more than systems keep for it."""
    at.a.answers[FETCH] = bytes(FRAME - 100)
    client = await at.client()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(count):
        client.send(fetch())
    return client


def test_a_client_that_does_not_read_its_answers_delays_nobody_and_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(times, "TAKE_S", 0.3)

    async def test(at: Setting) -> None:
        for _ in range(8):
            await deaf(at)
        honest = await at.client()
        for n in range(50):
            assert await honest.asks(produce(n)) == told(n)
        assert at.gateway.room.total <= 8 * SIZE
        await until("they are closed", lambda: at.seen("refused") == {"time": 8})
        assert at.gateway.room.total == 0

    run(test)


def test_a_hold_ends_what_is_half_sent_or_half_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a byte now and then would keep a request in flight, and the seal from happening."""
    monkeypatch.setattr(times, "HELD_S", 0.05)

    async def test(at: Setting) -> None:
        slow = await at.client()
        slow.writer.write(sent(produce(records=b"r" * 9000))[:-1])
        await deaf(at)
        await until("one is half taken", lambda: any(one.full for one in at.gateway.everyone))  # type: ignore[attr-defined]
        await until("one is half sent", lambda: at.seen("in_flight").get("PRODUCE") == 1)
        at.order("route", to="b")
        at.order("hold", id="the-hold", ttl_ms=60_000)
        await until("nothing is in flight", lambda: at.gateway.in_flight("app") == 0)
        assert at.order("seal", hold="the-hold").outcome == "done"
        assert at.seen("lost").keys() == {"FETCH"}, "of the PRODUCE its broker has done nothing"
        await slow.ended()

    run(test)


def test_who_does_not_log_in_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(at: Setting) -> None:
        served, waits = await known(at, await at.client()), await at.client()
        at.order("hold", ttl_ms=60_000)
        waits.send(produce(2))
        await until("one waits at the gate", lambda: at.seen("parked") == {"PRODUCE": 1})
        monkeypatch.setattr(times, "LOGIN_S", 0.05)
        idle, asking = await at.client(), await at.client()
        at.a.answers[18] = answer(frames.ApiVersionsResponse(error_code=0, api_keys=[]), 3)[4:]
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # it may be closed before it asks
            await asking.asks(request(frames.software(), 3))
        await idle.ended()
        await asking.ended()
        at.order("unhold")
        assert await served.asks(produce(3)) == told(3)
        assert await waits.answer() == told(2)

    run(test)


def test_who_only_fetches_too_early_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway answers such a FETCH, so no broker ends the connection."""
    monkeypatch.setattr(times, "LOGIN_S", 0.05)

    async def test(at: Setting) -> None:
        at.seal()
        at.order("go")
        client = await at.client("b")
        await client.asks(request(frames.fetch(), 11))
        await client.ended()
        assert FETCH not in at.b.kinds()

    run(test)


def test_parked_requests_stay_with_their_clients() -> None:
    """Also behind a switch, where a PRODUCE is read whole: not before the gate opens."""

    async def test(at: Setting) -> None:
        at.seal()
        at.order("go")
        at.order("hold", ttl_ms=60_000)
        clients = [await at.client("b") for _ in range(10)]
        frame = produce(records=bytes(FRAME // 2))
        for one in clients:
            one.send(frame)
        await until("all wait", lambda: at.seen("parked") == {"PRODUCE": 10})
        assert at.gateway.room.total <= 10 * SIZE
        at.order("unhold")
        for one in clients:
            assert await one.answer() == told(5)
        assert [len(one) for one in at.b.got] == [len(frame)] * 10

    run(test)


def test_a_turn_serves_so_many_requests_and_who_asks_little_goes_first() -> None:
    clock, soon = 0.0, list[Callable[[], None]]()
    turns = Turns(soon.append, lambda: clock)
    assert all(turns.may("flood") for _ in range(TURN))
    assert sum(turns.may("flood") for _ in range(1000)) == BURST
    assert turns.may("honest")
    done = list[str]()

    def slice(name: str) -> None:
        done.append(name)
        turns.spend("", COST * TURN)

    for n in range(3):
        for address in ("flood", "flood", "other"):
            turns.later(address, partial(slice, f"{address}-{n}"))
    while soon:
        before = len(done)
        soon.pop(0)()
        assert len(done) <= before + 1, "a slice is a turn"
    assert done[:4] == ["flood-0", "other-0", "flood-0", "other-1"]
    clock += 1
    assert all(turns.may("flood") for _ in range(TURN + int(BURST)))


def test_a_flood_of_requests_is_served_in_turns() -> None:
    async def test(at: Setting) -> None:
        client, most = await at.client(), 0
        turns, may = at.gateway.turns, at.gateway.turns.may

        def counted(address: str) -> bool:
            nonlocal most
            most = max(most, turns.spent)
            return may(address)

        turns.may = counted  # type: ignore[method-assign]
        client.writer.write(b"".join(sent(produce(n)) for n in range(500)))
        for n in range(500):
            assert await client.answer() == told(n)
        assert most <= MOST

    run(test)
