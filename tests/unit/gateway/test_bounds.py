"""Bytes, steps and time that a client can use up are bounded, whatever it sends."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.gateway import frames
from tests.unit.gateway.frames import answer, request
from tests.unit.gateway.loop import FRAME, MESSAGES, Setting, run, until
from tests.unit.gateway.test_connection import produce, sasl, told
from tests.unit.gateway.test_hostile import deaf, known, metadata, sent
from tests.unit.gateway.test_server import Running, config, serve
from zkmigrate.gateway.rules import producers
from zkmigrate.gateway.rules.apis import API_VERSIONS, PRODUCE
from zkmigrate.gateway.rules.denied import MOST_ITEMS
from zkmigrate.gateway.rules.layout import MOST_TAGS, MOST_TEXT, SLICE, FrameError, varint
from zkmigrate.gateway.rules.messages import Head
from zkmigrate.gateway.rules.outcomes import MOST_PARTS, Headers
from zkmigrate.gateway.rules.seen import LONGEST
from zkmigrate.gateway.serving import server, times
from zkmigrate.gateway.serving.learns import MOST_BATCHES, MOST_KEPT, Learns
from zkmigrate.gateway.serving.link import Waiting
from zkmigrate.gateway.serving.record import SOCKET
from zkmigrate.gateway.serving.requests import MOST_PRINCIPAL
from zkmigrate.gateway.serving.room import AGAIN_S, ASKED, CROWDED_S, LARGE, SHARE, Room

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
    with pytest.raises(FrameError, match=f"needed: at most {MOST_ITEMS}"):
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
        self.room.left(self)


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
    assert Learns.room([one] * (few - 1))
    assert not Learns.room([one] * few)
    one.wrote = b""
    assert Learns.room([one] * (MOST_KEPT - 1))
    assert not Learns.room([one] * MOST_KEPT)


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
            return any("_asked" in repr(task) for task in asyncio.all_tasks())

        await until("it is asked", asked)
        await until("it is given up", lambda: not asked())
        got = 0
        with suppress(ConnectionError):
            while data := await loop.sock_recv(one, 1 << 20):
                got += len(data)
        assert got < 1 << 23
        one.close()

    serve(own, test)
