"""Guards of the gateway, each of which other tests reach by chance at most."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest

from tests.unit.gateway import frames
from tests.unit.gateway.frames import request
from tests.unit.gateway.loop import FRAME, Setting, run, until
from tests.unit.gateway.test_connection import produce, sasl, told
from tests.unit.gateway.test_server import Running, config, serve
from tests.unit.mirror.batches import built
from zkmigrate.gateway.rules.apis import PRODUCE, SASL_AUTHENTICATE
from zkmigrate.gateway.rules.producers import given, sent
from zkmigrate.gateway.serving import requests
from zkmigrate.gateway.serving.learns import FIRST
from zkmigrate.gateway.serving.record import SOCKET, Record
from zkmigrate.gateway.serving.requests import Requests
from zkmigrate.mirror.rules.batch import produced
from zkmigrate.mirror.rules.stand import FIRST_ID


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
    record.write({"a": 1})
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
        assert event["why"] == f"size: an answer of {size} bytes, needed: 4 to {FRAME}"

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
        assert 0 <= given(id, flips) < 1 << 50
        assert sent(given(id, flips), flips) == id
    for id in (most + 1, (1 << 50) - 1, 1 << 50, FIRST_ID - 1, FIRST_ID, (1 << 63) - 1):
        assert given(id, flips) == id, "no broker of ours gave it"
    for id in (1 << 50, FIRST_ID, (1 << 63) - 1, -1, -(1 << 63)):
        assert sent(id, flips) == id, "it is none that this gateway gave"
    for id in (0, most, most + 1, (1 << 50) - 1):
        assert 0 <= sent(id, flips) < FIRST_ID
        struct.pack(">q", sent(id, flips))
