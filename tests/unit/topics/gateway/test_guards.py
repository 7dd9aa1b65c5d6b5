"""Guards of the gateway, each of which other tests reach by chance at most."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest

from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import request
from tests.unit.topics.gateway.loop import FRAME, Setting, run, until
from tests.unit.topics.gateway.test_connection import produce, sasl, told
from tests.unit.topics.gateway.test_server import Running, config, serve
from tests.unit.topics.mirror.batches import built
from zkmigrate.topics.gateway.rules.apis import PRODUCE, SASL_AUTHENTICATE
from zkmigrate.topics.gateway.rules.producers import id_for_broker, id_for_client
from zkmigrate.topics.gateway.serving import door, requests, server
from zkmigrate.topics.gateway.serving.learns import FIRST
from zkmigrate.topics.gateway.serving.record import SOCKET, Record
from zkmigrate.topics.gateway.serving.requests import Requests
from zkmigrate.topics.gateway.serving.times import FRAME_S, HELD_S, TAKE_S, Times
from zkmigrate.topics.gateway.serving.turns import CLIENT
from zkmigrate.topics.mirror.rules.batch import produced
from zkmigrate.topics.mirror.rules.stand import FIRST_ID


def switch(at: Setting, to: str) -> None:
    """Lead the application there."""
    hold = f"to-{to}-{at.ids}"
    at.order("route", to=to)
    at.order("hold", id=hold, ttl_ms=1000)
    at.order("seal", hold=hold)
    assert at.order("go").outcome == "done"


def test_a_hold_whose_lease_has_ended_is_not_sealed_though_nobody_looked_since() -> None:
    async def test(at: Setting) -> None:
        at.order("route", to="b")
        at.order("hold", id="h", ttl_ms=1000)
        at.now += 1.0
        answer = at.order("seal", hold="h")
        assert (answer.outcome, answer.text) == ("refused", "app is open; seal needs held or gone")
        assert at.gateway.status()["apps"]["app"]["lapsed"]

    run(test)


def test_only_the_gateways_own_account_gives_orders_and_reads_the_record(tmp_path: Path) -> None:
    folder = tmp_path / "state"

    async def test(at: Running) -> None:
        assert (await at.order(id="1", verb="unhold"))["outcome"] == "done"
        for name, kind in ((SOCKET, stat.S_ISSOCK), ("record.json", stat.S_ISREG), ("lock", stat.S_ISREG)):
            mode = (folder / name).stat().st_mode
            assert kind(mode)
            assert stat.S_IMODE(mode) == 0o600, name
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    before = os.umask(0)
    try:
        serve(config(folder), test)
        assert os.umask(0) == 0, "the process keeps its own"
    finally:
        os.umask(before)


def test_an_order_is_on_disk_before_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file before it gets its name, and the folder after that: without either a crash brings the former
    route back."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(fd: int) -> None:
        steps.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    def replaced(self: Path, to: Path) -> Path:
        steps.append(f"{self.name} to {to.name}")
        return replace(self, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    record = Record(tmp_path / "state")
    asyncio.run(record.write({"a": 1}))
    record.close()
    assert steps == ["record.new", "record.new to record.json", "state"]


def test_a_produce_whose_application_switched_while_it_came_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would get the producer id of another time."""

    async def test(at: Setting) -> None:
        switch(at, "b")
        client = await at.client("b")
        frame = produce(records=produced(built(FIRST // 8), 5, 0))
        assert len(frame) > FIRST
        begun, begin = list[int](), Requests.begin

        def begins(self: Requests, frame: bytes, size: int) -> None:
            begin(self, frame, size)
            begun.append(size)

        monkeypatch.setattr(Requests, "begin", begins)
        client.writer.write(len(frame).to_bytes(4, "big") + frame[:-1])
        await until("its beginning is read", lambda: bool(begun))
        for to in "ab":
            switch(at, to)
        client.writer.write(frame[-1:])
        await client.ended()
        assert (at.a.got, at.b.got) == ([], [])
        assert await (await at.client("b")).asks(frame) == told(5), "its retry is"

    run(test)


def test_a_connection_that_was_served_by_a_cluster_does_not_go_on_at_the_other_one() -> None:
    async def test(at: Setting) -> None:
        client = await at.client("a")
        assert await client.asks(sasl("PLAIN")) == told(5)
        assert await client.asks(produce(1)) == told(1)
        client.send(request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2))
        await client.ended()
        assert SASL_AUTHENTICATE not in at.a.kinds() + at.b.kinds(), "its application is on the other cluster"

    run(test)


def test_a_message_that_is_read_whole_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WHOLE", 1 << 16)

    async def test(at: Setting) -> None:
        frame = request(frames.offset_commit(), 7)
        client = await at.client()
        assert await client.asks(produce(1)) == told(1)
        client.writer.write((FRAME - 1).to_bytes(4, "big") + frame + bytes(FIRST))
        await client.ended()
        assert at.seen("refused", "others") | at.seen("refused") == {"size": 1}
        assert at.a.kinds() == [PRODUCE]
        large = await at.client()
        assert await large.asks(produce(records=bytes(1 << 17))) == told(5), (
            "what is passed on has another one"
        )

    run(test)


@pytest.mark.parametrize("size", [FRAME + 1, 3, -1])
def test_an_answer_of_an_impossible_size_ends_the_connection(size: int) -> None:
    async def test(at: Setting) -> None:
        at.a.answering.clear()
        client = await at.client()
        client.send(produce(1))
        await until("it is sent", lambda: at.a.kinds() == [PRODUCE])
        at.a.writers[-1].write(struct.pack(">i", size) + bytes(64))
        await client.ended()
        [event] = at.events("BrokerRefused")
        assert event["why"] == f"size: the broker sent a response of {size} bytes; needed: 4 to {FRAME}"

    run(test)


def test_a_producer_without_acks_waits_for_no_answer_and_takes_none_of_another_request() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        at.a.answering.clear()
        client.send(produce(1, acks=0))
        await until("it arrives", lambda: at.a.kinds() == [PRODUCE])
        assert (at.seen("in_flight"), at.seen("answered")) == ({}, {"PRODUCE": 1})
        assert at.seal().outcome == "done", "nothing is in flight"

    run(test)


@pytest.mark.parametrize("flips", [0, 1, 2, 1000, 1023, 1024, 1025, 10**9])
def test_ids_at_the_bounds_stay_numbers_of_eight_bytes_and_come_back_as_they_were(flips: int) -> None:
    most = (1 << 40) - 1
    for id in (0, 1, most):
        assert 0 <= id_for_client(id, flips) < 1 << 50
        assert id_for_broker(id_for_client(id, flips), flips) == id
    for id in (most + 1, (1 << 50) - 1, 1 << 50, FIRST_ID - 1, FIRST_ID, (1 << 63) - 1):
        assert id_for_client(id, flips) == id, "no broker of ours gave it"
    for id in (1 << 50, FIRST_ID, (1 << 63) - 1, -1, -(1 << 63)):
        assert id_for_broker(id, flips) == id, "it is none that this gateway gave"
    for id in (0, most, most + 1, (1 << 50) - 1):
        assert 0 <= id_for_broker(id, flips) < FIRST_ID
        struct.pack(">q", id_for_broker(id, flips))


# --- time limits ---------------------------------------------------------------------------------------


@dataclass
class Timer:
    """A timer of a loop."""

    at: float
    call: Callable[[], None]
    cancelled: bool = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Clock:
    """A loop that has only timers."""

    now: float = 100.0
    timers: list[Timer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(when, call))
        return self.timers[-1]

    @property
    def live(self) -> list[Timer]:
        self.timers = [one for one in self.timers if not one.cancelled]
        return self.timers

    def pass_to(self, now: float) -> None:
        """Call the timers that are due."""
        self.now = now
        for one in [one for one in self.live if one.at <= now]:
            self.timers.remove(one)
            one.call()


def test_a_time_limit_is_never_moved_out_and_a_gate_that_closes_shortens_it() -> None:
    clock, late = Clock(), list[str]()
    times = Times(cast(Any, clock), late.append)
    times.begin("frame")
    clock.now += FRAME_S - 0.1
    times.begin("frame")
    times.hurry("frame")
    times.hurry("take")
    assert times.by == {"frame": pytest.approx(100.0 + FRAME_S)}
    times.begin("take")
    times.hurry("take")
    assert times.by["take"] == clock.now + HELD_S
    assert len(clock.live) == 1, "a connection has one timer, or each hurry would leave one"
    clock.pass_to(100.0 + FRAME_S)
    assert late == ["frame"]
    clock.pass_to(100.0 + FRAME_S + HELD_S)
    assert (late, clock.live) == (["frame", "take"], [])


def test_a_sooner_limit_takes_the_timer_and_the_later_one_keeps_its_time() -> None:
    clock, late = Clock(), list[str]()
    times = Times(cast(Any, clock), late.append)
    times.begin("take")
    clock.now += 1
    times.begin("drain")
    times.hurry("drain")
    assert [one.at for one in clock.live] == [101.0 + HELD_S]
    times.over("drain")
    clock.pass_to(101.0 + HELD_S)
    assert (late, [one.at for one in clock.live]) == ([], [100.0 + TAKE_S])


def test_a_connection_that_has_ended_has_no_time_limit() -> None:
    clock, late = Clock(), list[str]()
    times = Times(cast(Any, clock), late.append)
    times.end()
    times.begin("login")
    times.end()
    assert (times.by, clock.live, late) == ({}, [], [])


# --- listeners -----------------------------------------------------------------------------------------


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> list[door.Door]:
    """The listeners of each server that serves."""
    made = list[door.Door]()

    class Kept(door.Door):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(server, "Door", Kept)
    return made


def test_a_listener_can_be_bound_again_at_once_and_stops_neither_the_loop_nor_the_other_family(
    tmp_path: Path, doors: list[door.Door]
) -> None:
    """A gateway is started again while the system still keeps its clients' connections."""
    settings = config(tmp_path).model_copy(update={"listen": "localhost"})

    async def test(_at: Running) -> None:
        listeners = doors[0]._listeners
        assert {one.family for one in listeners} >= {socket.AF_INET}
        for one in listeners:
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
            assert one.gettimeout() == 0
            if one.family == socket.AF_INET6:
                assert one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)

    serve(settings, test)
    assert all(one.fileno() < 0 for one in doors[0]._listeners), "a gateway that stops takes no more clients"


def test_a_new_connection_costs_its_turn_of_the_loop_and_one_that_is_refused_is_named(
    tmp_path: Path, doors: list[door.Door]
) -> None:
    settings = config(tmp_path).model_copy(update={"connections_per_address": 1})

    async def test(at: Running) -> None:
        spent, gateway = list[int](), at.server._gateway
        gateway.turns.connected = lambda address: spent.append(CLIENT)  # type: ignore[method-assign]
        _, first = await at.connected()
        await until("it is there", lambda: len(gateway.everyone) == 1)
        assert spent
        reader, second = await at.connected()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        [line] = [one for one in at.lines if one["event"] == "Refused"]
        assert line["why"] == "more than 1 connections from one address"
        for one in (first, second):
            one.close()
        await until("its place is free", lambda: not gateway.everyone)
        assert not doors[0]._tasks

    serve(settings, test)


def test_the_limit_of_open_files_is_raised_as_far_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
        assert door.files() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
