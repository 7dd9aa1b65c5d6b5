"""How much the gateway does between two looks at its sockets, whatever clients and brokers send at once."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest

from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import answer, request
from tests.unit.topics.gateway.loop import MESSAGES, Client, Setting, run, until
from tests.unit.topics.gateway.test_connection import fetch, produce, told
from tests.unit.topics.gateway.test_hostile import BAD, known, sent
from tests.unit.topics.gateway.test_server import config
from zkmigrate.topics.gateway.serving.buffer import LITTLE, SIZE
from zkmigrate.topics.gateway.serving.connection import Connection
from zkmigrate.topics.gateway.serving.learns import Learns
from zkmigrate.topics.gateway.serving.link import Link
from zkmigrate.topics.gateway.serving.turns import BURST, CLIENT, COST, MOST, PASSED, TURN, Turns
from zkmigrate.topics.gateway.verbs import serve as verb

MANY = 60


class Counted:
    """The most that was counted in one turn. Turns that have ended are known from the gateway's own."""

    def __init__(self, at: Setting) -> None:
        self.most = self.total = self._now = 0
        self._turns = at.gateway.turns
        ended = self._turns._next

        def next_turn() -> None:
            self._now = 0
            ended()

        self._turns._next = next_turn  # type: ignore[method-assign]

    def add(self, count: int = 1) -> None:
        self._now += count
        self.total += count
        self.most = max(self.most, self._now)

    def watch(self, name: str, cost: Callable[..., int] = lambda *_: 1) -> None:
        """Count the calls of a method of the turns, or what they cost."""
        own = getattr(self._turns, name)

        def called(*args: Any) -> Any:
            self.add(cost(*args))
            return own(*args)

        setattr(self._turns, name, called)


def test_addresses_that_go_first_cannot_stretch_a_turn() -> None:
    soon = list[Callable[[], None]]()
    turns = Turns(soon.append, lambda: 0.0)
    assert sum(turns.may(f"address-{n}") for n in range(10 * MOST)) == MOST
    turns = Turns(soon.append, lambda: 0.0)
    assert sum(turns.read(f"address-{n}", SIZE) for n in range(10 * MOST)) <= MOST * PASSED // SIZE


def test_reads_that_go_on_later_are_spread_over_turns() -> None:
    soon, done = list[Callable[[], None]](), list[int]()
    turns = Turns(soon.append, lambda: 0.0)
    for n in range(MANY):
        turns.later("flood", partial(done.append, n), SIZE // PASSED)
    counts = []
    while soon:
        before = len(done)
        soon.pop(0)()
        counts.append(len(done) - before)
    assert max(counts) == TURN * PASSED // SIZE
    assert done == list(range(MANY))


async def all_known(at: Setting) -> list[Client]:
    """Connections of one address that has no request left that goes first."""
    clients = [await known(at, await at.client()) for _ in range(MANY)]
    while at.gateway.turns._paid("127.0.0.1", 1) >= 0:
        pass
    return clients


def test_connections_that_all_send_much_are_read_in_turns() -> None:
    async def test(at: Setting) -> None:
        clients, counted = await all_known(at), Counted(at)
        counted.watch("read", lambda _address, size: size)
        frame = produce(2, records=bytes(1 << 20))
        for one in clients:
            one.send(frame)
        for one in clients:
            assert await one.answer() == told(2)
        assert counted.total >= MANY << 20
        assert counted.most <= 2 * TURN * PASSED + MANY * LITTLE

    run(test)


def test_large_answers_to_all_connections_are_passed_on_in_turns() -> None:
    async def test(at: Setting) -> None:
        clients = await all_known(at)
        at.a.answering.clear()
        at.a.answers[1] = bytes(1 << 20)
        for one in clients:
            one.send(fetch())
        await until("all have asked", lambda: at.gateway.in_flight("app") == MANY)
        counted = Counted(at)
        counted.watch("read", lambda _address, size: size)
        at.a.answering.set()
        for one in clients:
            assert len(await one.answer()) == 4 + (1 << 20)
        assert counted.total >= MANY << 20
        assert counted.most <= 2 * TURN * PASSED + MANY * LITTLE

    run(test)


def test_answers_that_come_at_once_are_passed_on_in_turns() -> None:
    async def test(at: Setting) -> None:
        client = await known(at, await at.client())
        at.a.body = bytes(6)
        at.a.answering.clear()
        for n in range(500):
            client.send(request(frames.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3, n))
        await until("all are sent", lambda: at.seen("in_flight") == {"HEARTBEAT": 500})
        counted = Counted(at)
        [own] = at.gateway.everyone
        answered = own.answered  # type: ignore[attr-defined]

        def once_more(count: int = 1) -> None:
            counted.add(count)
            answered(count)

        own.answered = once_more  # type: ignore[attr-defined]
        at.a.answering.set()
        for n in range(500):
            assert (await client.answer())[:4] == n.to_bytes(4, "big")
        assert counted.total == 500
        assert counted.most <= MOST

    run(test)


def test_connections_to_brokers_are_begun_in_turns() -> None:
    async def test(at: Setting) -> None:
        clients, counted = [await at.client() for _ in range(MANY)], Counted(at)
        counted.watch("connected")
        for one in clients:
            one.send(produce(1))
        for one in clients:
            assert await one.answer() == told(1)
        assert counted.total == MANY
        assert counted.most <= MOST // CLIENT

    run(test)


def test_a_fetch_like_an_earlier_one_costs_what_it_has_to_read() -> None:
    async def test(at: Setting) -> None:
        kind = FetchRequest.FetchTopic
        topics = [kind(topic=f"t{n}", partitions=[]) for n in range(200)]
        asked = partial(FetchRequest, topics=topics, max_wait_ms=1, min_bytes=1)
        client = await known(at, await at.client())
        first, second = [request(asked(), 4, n) for n in (1, 2)]
        await client.asks(first)
        spent = 0
        spend = at.gateway.turns.spend

        def counted(address: str, size: int) -> None:
            nonlocal spent
            spent += size
            spend(address, size)

        at.gateway.turns.spend = counted  # type: ignore[method-assign]
        await client.asks(second)
        assert spent >= len(second) > COST

    run(test)


@pytest.mark.parametrize("how", ["it was served", "it was idle", "it sent no request"])
def test_a_closed_connection_leaves_no_circle_of_objects(how: str) -> None:
    """A search for circles among all connections would stop the event loop for long."""

    async def test(at: Setting) -> None:
        client = await at.client()
        if how == "it was served":
            await client.asks(produce(1))
            await client.asks(produce(2))
        await until("it is there", lambda: len(at.gateway.everyone) == 1)
        own = weakref.ref(next(iter(at.gateway.everyone)))
        if how == "it sent no request":
            client.writer.write(BAD["another protocol"])
        else:
            client.writer.close()
        await until("it is freed", lambda: own() is None)

    gc.collect()
    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


def test_a_flood_of_one_address_is_held_before_it_is_read_further() -> None:
    """What many connections send at once is not looked at in the turn in which it comes."""

    async def test(at: Setting) -> None:
        clients, counted = await all_known(at), Counted(at)
        counted.watch("may")
        for one in clients:
            one.writer.write(b"".join(sent(produce(n)) for n in range(5)))
        for one in clients:
            for n in range(5):
                assert await one.answer() == told(n)
        assert counted.most <= 2 * TURN + BURST

    run(test)


def test_serve_never_searches_all_objects_for_circles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    class Ended:
        def __init__(self, *_: object) -> None: ...

        async def serve(self) -> bool:
            seen.append(gc.get_threshold())
            return False

    monkeypatch.setattr(verb, "Server", Ended)
    file = tmp_path / "gateway.yml"
    file.write_text(config(tmp_path / "state").model_dump_json())
    before = gc.get_threshold()
    try:
        assert verb.serve(file, print) == 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    [(_, _, whole)] = seen
    assert whole >= 100_000


# -- large messages, which are not copied as a whole: 60 MiB take 30 ms

LARGE = 1_000_000
"""Replicas of a partition, of four bytes each."""


class Memory:
    """The most bytes that calls of a method allocated beyond what they found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.most = 0
        own = getattr(owner, name)

        def called(*args: Any) -> Any:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                return own(*args)
            finally:
                self.most = max(self.most, tracemalloc.get_traced_memory()[1] - before)

        monkeypatch.setattr(owner, name, called)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_a_large_answer_is_collected_and_rewritten_with_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when another answer comes right behind it, and when it has to wait for its turn."""
    collecting = Memory(monkeypatch, Link, "buffer_updated")
    rewriting = Memory(monkeypatch, Link, "_written")
    frame = answer(frames.metadata(nodes=1, partitions=1), 1)[4:]
    at_replicas = frame.index(b"\0\0\0\2\0\0\0\1\0\0\0\2")
    large = frame[:at_replicas] + LARGE.to_bytes(4, "big") + b"\0\0\0\1" * LARGE + frame[at_replicas + 12 :]

    async def test(at: Setting) -> None:
        client = await known(at, await at.client())
        may, asked_for = at.gateway.turns.may, itertools.count()
        at.gateway.turns.may = lambda address: bool(next(asked_for) % 2) and may(address)  # type: ignore[method-assign]
        at.a.answers[3] = large
        asked = frames.MetadataRequest(topics=None)
        for n in range(3):
            client.send(request(asked, 1, n))
        for n in range(3):
            told = await client.answer()
            assert told[:4] == n.to_bytes(4, "big")
            assert b"gw.example" in told
            assert told.endswith(large[at_replicas + 4 :])
        assert collecting.most < 4 * LARGE // 2 + SIZE
        assert rewriting.most < 4 * LARGE // 4

    run(test)


@pytest.mark.usefixtures("traced")
def test_a_large_produce_behind_a_switch_is_read_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Memory(monkeypatch, Connection, "look")

    async def test(at: Setting) -> None:
        at.seal()
        at.order("go")
        client = await at.client("b")
        assert await client.asks(produce(2, records=bytes(2 * LARGE))) == told(2)
        assert 0 < reading.most < 2 * LARGE // 2

    run(test)


@pytest.mark.usefixtures("traced")
def test_a_large_produce_is_remembered_without_a_copy() -> None:
    frame = bytearray(sent(produce(transactional="x", records=bytes(4 * LARGE))))
    head = MESSAGES.head(frame, 4)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    Learns.part_to_remember(head, frame, len(frame), [])
    assert tracemalloc.get_traced_memory()[1] - before < 4 * LARGE // 4
