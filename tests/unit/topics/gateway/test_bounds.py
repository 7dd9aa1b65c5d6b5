"""Bytes, steps and time that a client can use up are bounded, whatever it sends."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.sasl import SaslHandshakeRequest

from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import answer, request
from tests.unit.topics.gateway.loop import FRAME, MESSAGES, Setting, run, until
from tests.unit.topics.gateway.test_connection import produce, sasl, told
from tests.unit.topics.gateway.test_hostile import deaf, known, metadata, sent
from tests.unit.topics.gateway.test_server import Running, config, serve
from zkmigrate.topics.gateway.rules import producers
from zkmigrate.topics.gateway.rules.apis import API_VERSIONS, PRODUCE, SASL_HANDSHAKE
from zkmigrate.topics.gateway.rules.denied import MOST_ITEMS
from zkmigrate.topics.gateway.rules.layout import MOST_TAGS, MOST_TEXT, SLICE, FrameError, varint
from zkmigrate.topics.gateway.rules.messages import Head
from zkmigrate.topics.gateway.rules.outcomes import MOST_PARTS, Headers
from zkmigrate.topics.gateway.rules.seen import LONGEST
from zkmigrate.topics.gateway.serving import room, server, times
from zkmigrate.topics.gateway.serving.buffer import LEAST, LITTLE, SIZE, VIEW
from zkmigrate.topics.gateway.serving.learns import MOST_BATCHES, MOST_KEPT, MOST_WHOLE, Learns
from zkmigrate.topics.gateway.serving.link import Waiting
from zkmigrate.topics.gateway.serving.record import SOCKET
from zkmigrate.topics.gateway.serving.requests import MOST_PRINCIPAL
from zkmigrate.topics.gateway.serving.room import (
    AGAIN_S,
    ASKED,
    CROWD,
    CROWDED_S,
    FREE,
    LARGE,
    SHARE,
    SPARE,
    TOTAL,
    Room,
)
from zkmigrate.topics.gateway.serving.sending import FIRST_WAITING

_BEGUN = b"\0" + struct.pack(">hi", -1, 100)
"""A PRODUCE 9 up to its topics."""


@pytest.mark.parametrize(
    "message",
    [
        varint(1 << 24) + b"\1\1\0" * 10_000,
        b"\2\2x\2\0\0\0\0\1" + varint(1 << 24) + b"\0\0" * 10_000,
        b"\3" + varint(1 << 30) + b"x" * 40_000,
    ],
    ids=["topics without partitions", "tagged fields", "a topic of a gigabyte"],
)
def test_headers_of_a_streamed_produce_are_read_no_further_than_brokers_would(message: bytes) -> None:
    headers = Headers(9, _BEGUN)
    for at in range(0, len(message), 1000):
        headers.feed(message[at : at + 1000])
    assert headers._over
    assert not headers.whole
    assert headers._kept == b""


def test_topics_without_partitions_are_renamed_in_slices() -> None:
    """After a switch a PRODUCE is read whole; 64 MiB of empty topics are many turns, and not one."""
    frame = bytearray(_BEGUN + varint(20_001) + b"\1\1\0" * 20_000 + b"\0")
    slices = sum(1 for _ in producers.produced(9, frame, 0, lambda id: id))
    assert slices >= len(frame) // (SLICE + 3) - 1


def test_a_denied_request_of_many_tagged_fields_is_not_answered() -> None:
    topic = b"\2x\1" + bytes([MOST_TAGS]) + b"\0\0" * MOST_TAGS
    count = MOST_ITEMS // MOST_TAGS
    head = Head(PRODUCE, 9, 5, "app-1", 0)
    with pytest.raises(FrameError, match=f"items up to byte [0-9]+; needed: at most {MOST_ITEMS}"):
        MESSAGES.denied(head, _BEGUN + varint(count + 1) + topic * count + b"\0", 29, "why")


class Held:
    """A connection that keeps as many bytes as it may for nothing, and one more."""

    def __init__(self, room: Room) -> None:
        self.room, self.share, self.asked, self.ended = room, "192.0.2.1", 0, False

    def go_on(self) -> None:
        self.asked += 1
        self.room.keep(self, LARGE + 1)
        self.room.may(self)

    def stop(self, _error: FrameError) -> None:
        self.ended = True
        self.room.release(self)


def test_room_is_looked_for_a_few_connections_at_a_time_and_ends_one_at_a_time() -> None:
    """With 2,500 connections that keep bytes each look at the next one's turn must not be a look at all."""
    clock, later = 0.0, list[tuple[float, Callable[[], None]]]()
    room = Room(lambda: clock, lambda seconds, call: later.append((seconds, call)))
    held = [Held(room) for _ in range(2500)]
    for one in held:
        one.go_on()
    assert room.total > 8 * SHARE
    assert [seconds for seconds, _ in later] == [AGAIN_S]
    clock += CROWDED_S
    last = Held(room)
    last.go_on()
    assert [one for one in held if one.ended] == held[:1]
    while sum(not one.ended for one in held) * LARGE > SHARE:
        before = sum(one.asked for one in held)
        later.pop(0)[1]()
        assert sum(one.asked for one in held) - before <= ASKED
    assert len(later) <= 2


class One:
    """A connection of an address."""

    def __init__(self, share: str) -> None:
        self.share = share

    def go_on(self) -> None:
        raise AssertionError("this must not be called")

    def stop(self, _error: FrameError) -> None:
        raise AssertionError("nobody waits for long enough")


def test_little_bytes_count_too_and_an_address_with_few_waits_last() -> None:
    room = Room(lambda: 0.0, lambda _seconds, _call: None)
    many = [One(f"192.0.2.{n % 200}") for n in range(TOTAL // FREE)]
    for n, one in enumerate(many):
        assert (room.total, len(room.view)) == (n * FREE, SIZE if n * FREE <= TOTAL // 2 else LEAST)
        room.keep(one, FREE)
        assert room.may(one)
    few, more = One("198.51.100.1"), One(many[0].share)
    for one in (few, more):
        room.keep(one, LARGE)
    assert room.total > TOTAL
    assert room.may(few)
    assert not room.may(more), "its address holds more"
    rest = [One("198.51.100.2") for _ in range(SPARE // LARGE)]
    for one in rest:
        room.keep(one, LARGE)
    room.keep(few, LARGE)
    room.keep(rest[0], 0)
    assert room.may(few)
    room.keep(rest[0], LARGE)
    last = One("198.51.100.3")
    room.keep(last, LARGE)
    assert not room.may(last), "all is used up"
    room.keep(last, FREE)
    assert room.may(last)
    for one in (*many, few, more, *rest, last):
        room.release(one)
    assert (room.total, room.view, room.held, room._of, room._bytes, room._kept) == (0, VIEW, {}, {}, {}, {})


def test_what_a_crowd_that_was_not_served_yet_leaves_unfinished_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each keeps less than the largest request that is read before an answer."""
    monkeypatch.setattr(room, "TOTAL", 1 << 20)
    monkeypatch.setattr(room, "SPARE", 1 << 19)

    def kept(at: Setting) -> list[int]:
        all_: list[Any] = list(at.gateway.everyone)
        return [len(one._in) + (len(one._request.frame) if one._request else 0) for one in all_]

    async def test(at: Setting) -> None:
        honest, count, frame = await known(at, await at.client()), 60, sent(metadata(60_000))
        crowd = [await at.client() for _ in range(count)]
        for one in crowd:
            one.writer.write(frame[:-1])
        await until("each has begun", lambda: sum(map(bool, kept(at))) == count)
        new = await at.client()
        for n in range(50):
            assert await honest.asks(produce(n)) == told(n)
            assert await new.asks(produce(n)) == told(n)
        assert sum(kept(at)) <= (3 << 19) // CROWD + count * (FREE + LITTLE)
        assert at.gateway.room.total == 0, "they have a room of their own"
        assert at.gateway.status()["load"]["bytes_kept"] >= sum(kept(at)) > (1 << 20) // CROWD

    run(test)


def test_answers_that_a_client_that_was_not_served_yet_waits_for_are_few() -> None:
    async def test(at: Setting) -> None:
        at.a.answers[API_VERSIONS] = answer(frames.ApiVersionsResponse(error_code=0, api_keys=[]), 3)[4:]
        client, count = await at.client(), 3 * FIRST_WAITING
        at.a.answering.clear()
        for n in range(count):
            client.send(request(frames.software(), 3, n))
        await until("it is full", lambda: at.seen("in_flight") == {"API_VERSIONS": FIRST_WAITING})
        at.a.answering.set()
        for n in range(count):
            assert (await client.answer())[:4] == n.to_bytes(4, "big")
        assert len(at.a.got) == count

    run(test)


def test_patterns_and_handshakes_that_a_connection_keeps_are_small() -> None:
    async def test(at: Setting) -> None:
        client, long = await at.client(), "app-" + "n" * 3000
        at.a.answers[SASL_HANDSHAKE] = b"\0\x22\0\0\0\0"
        await client.asks(request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 5, long))
        [one] = at.gateway.everyone
        assert one._handshake == sent(b"\0\x11\0\1" + told(5, b"\xff\xff\0\5PLAIN"))  # type: ignore[attr-defined]
        for n in range(3):
            assert await client.asks(produce(n, long)) == told(n)
        assert not one._alike  # type: ignore[attr-defined]
        assert await client.asks(produce(7)) == told(7)
        assert len(one._alike) == 1  # type: ignore[attr-defined]

    run(test)


def test_a_request_that_a_broker_does_not_take_counts_as_kept() -> None:
    """Behind a FETCH that waits, a broker reads nothing: requests stand in the gateway's buffer."""

    async def test(at: Setting) -> None:
        client = await known(at, await at.client())
        at.a.answering.clear()
        size = FRAME // 2
        for _ in range(12):
            client.writer.write(sent(metadata(size)))
        link = next(iter(at.gateway.everyone))._link  # type: ignore[attr-defined]
        await until("the broker takes no more", lambda: link.full)
        assert at.gateway.room.total >= link.transport.get_write_buffer_size() > 0

    run(test)


def test_little_that_a_broker_does_not_take_counts_too() -> None:
    """Python's transport calls itself full from 64 KiB on."""

    async def test(at: Setting) -> None:
        client = await known(at, await at.client())
        at.a.answering.clear()
        link = next(iter(at.gateway.everyone))._link  # type: ignore[attr-defined]

        def more_is_left() -> bool:
            client.writer.write(sent(metadata(LARGE // 4)))
            return bool(link.transport.get_write_buffer_size())

        await until("the broker takes no more", more_is_left)
        assert link.transport.get_write_buffer_size() < LARGE
        assert link.full
        await until("it counts", lambda: at.gateway.room.total >= link.transport.get_write_buffer_size())

    run(test)


def test_who_takes_an_answer_piece_by_piece_does_not_keep_a_seal_from_happening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time for all answers begins once, also for an answer that comes behind the hold."""
    monkeypatch.setattr(times, "HELD_S", 0.05)

    async def test(at: Setting) -> None:
        at.a.answering.clear()
        client = await deaf(at)
        await until("they are in flight", lambda: at.seen("in_flight").get("FETCH", 0) >= 1)
        at.order("route", to="b")
        at.order("hold", id="the-hold", ttl_ms=60_000)
        at.a.answering.set()
        await until("nothing is in flight", lambda: at.gateway.in_flight("app") == 0)
        assert at.order("seal", hold="the-hold").outcome == "done"
        assert at.seen("refused") == {"time": 1}
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]

    run(test)


def test_names_that_a_connection_keeps_are_cut() -> None:
    async def test(at: Setting) -> None:
        client, long = await at.client(), "n" * 20_000
        at.a.answers[API_VERSIONS] = answer(frames.ApiVersionsResponse(error_code=0, api_keys=[]), 3)[4:]
        await client.asks(request(frames.software(long, long), 3))
        client.send(sasl("m" * (MOST_TEXT - 1)))
        await client.answer()
        client.send(sasl("PLAIN"))
        await client.answer()
        token = b"\0" + b"u" * 60_000 + b"\0x"
        client.send(b"\0\x24\0\0" + told(9, b"\0\5app-1") + len(token).to_bytes(4, "big") + token)
        await client.answer()
        at.a.answering.clear()
        client.send(produce(client="c" * 4000))
        [one] = at.gateway.everyone
        await until("it waits", lambda: len(one.waiting) == 1)  # type: ignore[attr-defined]
        assert len(one.waiting[0].head.client) <= LONGEST  # type: ignore[attr-defined]
        assert len(one._principal) == MOST_PRINCIPAL  # type: ignore[attr-defined]
        assert all(len(text) <= LONGEST for text in one._software.values())  # type: ignore[attr-defined]

    run(test)


def test_batches_that_a_connection_keeps_are_bounded() -> None:
    head = Head(PRODUCE, 9, 5, "app-1", 0)
    wrote = Headers(9)
    wrote.found.extend([None] * MOST_PARTS)  # type: ignore[list-item]
    one = Waiting(head, b"", "app", None, "PRODUCE", False, wrote=wrote)  # type: ignore[arg-type]
    few = MOST_BATCHES // MOST_PARTS
    large, small = bytes(MOST_WHOLE + 1), bytes(MOST_WHOLE)
    assert Learns.part_to_remember(head, large, MOST_WHOLE + 1, [one] * (few - 1)) is not None
    assert Learns.part_to_remember(head, large, MOST_WHOLE + 1, [one] * few) is None
    assert Learns.part_to_remember(head, small, MOST_WHOLE, [one] * few) is small, "as it is"
    one.wrote = b""
    for frame in (small, large):
        assert Learns.part_to_remember(head, frame, len(frame), [one] * (MOST_KEPT - 1)) is not None
        assert Learns.part_to_remember(head, frame, len(frame), [one] * MOST_KEPT) is None


def test_who_does_not_read_its_status_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server, "ORDER_S", 0.2)
    own = config(tmp_path)

    async def test(at: Running) -> None:
        at.server._gateway.status = lambda: {"large": "x" * (1 << 23)}  # type: ignore[method-assign]
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(one, str(Path(own.state) / SOCKET))
        await loop.sock_sendall(one, json.dumps("status").encode() + b"\n")

        def asked() -> bool:
            return any("_answer_one" in repr(task) for task in asyncio.all_tasks())

        await until("it is asked", asked)
        await until("it is given up", lambda: not asked())
        got = 0
        with suppress(ConnectionError):
            while data := await loop.sock_recv(one, 1 << 20):
                got += len(data)
        assert got < 1 << 23
        one.close()

    serve(own, test)
