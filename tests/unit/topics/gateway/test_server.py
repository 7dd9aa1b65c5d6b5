"""The process as a whole: its ports, its socket, its record, and how many it serves."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from click.testing import CliRunner

from tests.ports import free_port
from tests.unit.topics.gateway.loop import Broker, until
from zkmigrate.cli.main import cli
from zkmigrate.errors import HostError, UsageError
from zkmigrate.topics.gateway.rules.hold import Order
from zkmigrate.topics.gateway.rules.plan import Port
from zkmigrate.topics.gateway.serving import door, server
from zkmigrate.topics.gateway.serving.config import Config
from zkmigrate.topics.gateway.serving.door import RESERVED, most_clients
from zkmigrate.topics.gateway.serving.record import SOCKET, Record
from zkmigrate.topics.gateway.serving.server import Server
from zkmigrate.topics.gateway.verbs import ask

HOST = "127.0.0.1"


def config(folder: Path, app: str = "app") -> Config:
    """Two clusters whose brokers are down; one connection at a time. Listener r only reads."""
    ports = {"a": {"1": free_port()}, "b": {"2": free_port()}}
    reads = {"advertise": HOST, "ports": {"b": {"2": free_port()}}, "read_only": "b"}
    return Config.model_validate(
        {
            "state": str(folder),
            "listen": HOST,
            "route": "a",
            "clusters": {"a": {"1": f"{HOST}:{free_port()}"}, "b": {"2": f"{HOST}:{free_port()}"}},
            "listeners": {"l": {"advertise": HOST, "ports": ports}, "r": reads},
            "apps": {app: {"route": "a", "client_ids": ["x"]}},
            "connections": 1,
        }
    )


class Running:
    """A server in this loop."""

    def __init__(self, config: Config, server: Server, lines: list[dict[str, Any]]) -> None:
        self.config, self.server, self.lines = config, server, lines

    async def asks(self, line: bytes) -> Any:
        reader, writer = await asyncio.open_unix_connection(Path(self.config.state) / SOCKET)
        writer.write(line + b"\n")
        answer = await reader.read()
        writer.close()
        return json.loads(answer) if answer else None

    async def order(self, **order: Any) -> Any:
        return await self.asks(json.dumps({"fencing": 1, "app": "app", **order}).encode())

    def seen(self, what: str, app: str = "others") -> dict[str, int]:
        told: dict[str, int] = self.server._gateway.status()["apps"][app][what]
        return told

    async def connected(
        self, listener: str = "l", cluster: str = "a"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        [port] = self.config.listeners[listener].ports[cluster].values()
        return await asyncio.open_connection(HOST, port)


def serve(config: Config, test: Callable[[Running], Awaitable[None]]) -> list[dict[str, Any]]:
    """Serve while a test runs; the lines of the log."""
    lines: list[dict[str, Any]] = []

    async def whole(record: Record) -> None:
        server = Server(config, record, lambda line: lines.append(json.loads(line)))
        serving = asyncio.create_task(server.serve())
        try:
            await until("it serves", lambda: serving.done() or "Serving" in str(lines))
            if not serving.done():
                await test(Running(config, server, lines))
        finally:
            server._stop.set()
            with suppress(AssertionError):
                await serving

    with closing(Record(Path(config.state))) as record:
        uvloop.run(whole(record))
    return lines


def test_its_orders_and_its_record_outlive_it(tmp_path: Path) -> None:
    settings = config(tmp_path)

    async def first(at: Running) -> None:
        assert (await at.order(id="1", verb="route", to="b"))["outcome"] == "done"
        assert (await at.order(id="2", verb="hold", ttl_ms=60_000))["outcome"] == "done"
        assert (await at.order(id="3", verb="seal", hold="2"))["outcome"] == "done"
        assert (await at.order(id="4", verb="go"))["text"] == "app: open on b"
        assert (await at.asks(b'"status"'))["apps"]["app"]["route"] == "b"

        assert (await at.asks(b'"status"'))["restarted_s"] is None

    async def second(at: Running) -> None:
        assert (await at.asks(b'"status"'))["restarted_s"] < 20, "what was lost before is not known"
        assert (await at.order(id="4", verb="go"))["text"] == "app: open on b"
        assert (await at.asks(b'"status"'))["apps"]["app"]["route"] == "b"

    serve(settings, first)
    lines = serve(settings, second)
    assert [one["apps"] for one in lines if one["event"] == "Serving"] == [{"app": "b", "others": "a"}]
    assert not (tmp_path / SOCKET).exists()


def test_h20_it_looks_at_every_broker_after_each_order_and_soon_after_one_was_silent(tmp_path: Path) -> None:
    settings = config(tmp_path)
    versions = b"\0\0" + (1).to_bytes(4, "big") + struct.pack(">hhh", 18, 0, 3)
    broker = Broker("b", answers={18: versions})
    broker.answering.set()

    async def test(at: Running) -> None:
        async def seen() -> dict[str, dict[str, str]]:
            told = (await at.asks(b'"status"'))["clusters"]
            return {name: one["brokers"] for name, one in told.items()}

        def events(name: str) -> list[str]:
            return [one["cluster"] for one in at.lines if one["event"] == name]

        assert {name: list(one) for name, one in (await seen()).items()} == {"a": ["1"], "b": ["2"]}
        assert all("Connection" in why for one in (await seen()).values() for why in one.values())
        assert sorted(events("Silent")) == ["a", "b"]
        ends = []
        for name, node in (("a", "1"), ("b", "2")):
            host, _, port = settings.clusters[name][node].rpartition(":")
            ends.append(await asyncio.start_server(broker.client, host, int(port)))
        await until("all answer, with no order", lambda: sorted(events("Answers")) == ["a", "b"])
        assert await seen() == {"a": {"1": ""}, "b": {"2": ""}}
        assert (await at.asks(b'"status"'))["clusters"]["b"]["versions"] == "known"
        ends[1].close()
        await at.order(id="1", verb="route", to="b")
        await until("b is silent", lambda: sorted(events("Silent")) == ["a", "b", "b"])
        assert "Connection" in (await seen())["b"]["2"]
        ends[0].close()
        for writer in broker.writers:
            writer.transport.abort()

    serve(settings, test)


ORDER = b'{"fencing": %s, "id": "1", "verb": "unhold", "app": "app"%s}'


@pytest.mark.parametrize(
    "line",
    [
        *(b"[]", b"{}", b"1", b"{", b"\xff", b"", b"NaN", b"[" * 60_000, b"9" * 5000),
        *(ORDER % (odd, b"") for odd in (b'"x"', b"1e30", b"1" + b"0" * 30, b"Infinity", b"-1", b"true")),
        *(ORDER % (b"1", more) for more in (b', "ttl_ms": NaN', b', "odd": 1', b', "id": "2"', b', "to": 5')),
        ORDER % (b"1", b" " * (1 << 16)),
    ],
)  # fmt: skip
def test_what_is_no_order_is_refused_and_changes_nothing(line: bytes, tmp_path: Path) -> None:
    async def test(at: Running) -> None:
        told = await at.asks(line)
        assert told["outcome"] == "refused"
        assert told["text"].startswith("this is not a valid order: ")
        assert (await at.asks(b'"status"'))["fencing"] == 0
        assert (await at.asks(ORDER % (b"1", b"")))["outcome"] == "done", "it hears the next one"

    serve(config(tmp_path), test)
    assert (
        not (tmp_path / "record.json").exists() or json.loads((tmp_path / "record.json").read_text())["apps"]
    )


def test_an_order_of_the_command_line_with_odd_fields_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yml"
    file.write_text(json.dumps(config(tmp_path / "state").model_dump()))
    for odd in (Order(10**30, "1", "hold", "app"), Order(1, "a b", "hold", "app"), Order(1, "1", "hold", "")):
        with pytest.raises(UsageError, match="Nothing was sent"):
            ask.order(file, odd, print, as_json=False)
    for number in ("1" + "0" * 30, "Infinity", "-1"):
        words = ["gateway", "order", "--config", str(file), "--as", number, "hold", "1", "app"]
        assert CliRunner().invoke(cli, words).exit_code == 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"version": 2, "done": {}, "apps": {"app": {"route": "a", "staged": "", "sealed": "false", '
         '"flipped": 0.0, "flips": 0, "fencing": 0}}}', "apps.app.sealed: Input should be a valid boolean"),
        ('{"version": 1, "fencing": NaN, "done": {}, "apps": {}}', "seen NaN"),
        ('{"version": 1, "fencing": 1e999, "done": {}, "apps": {}}', "seen 1e999"),
        ('{"version": 1, "version": 2}', 'key "version" 2 times'),
        ("[" * 200_000, "nested too deep"),
        (" " * (1 << 23) + "{}", "more than 8,388,608 bytes"),
        ("", "Expecting value"),
    ],
)  # fmt: skip
def test_a_damaged_record_ends_the_start_by_its_file_and_field(
    content: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "record.json").write_text(content)

    async def nothing(_at: Running) -> None:
        raise AssertionError("it serves")

    with pytest.raises(HostError) as seen:
        serve(config(tmp_path), nothing)
    assert str(seen.value).startswith(f"{tmp_path}/record.json: ")
    assert why in str(seen.value)
    assert "Next: " in str(seen.value)


async def asks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """A HEARTBEAT, whose answer shows that it is served."""
    writer.write(b"\0\0\0\x16\0\x0c\0\0\0\0\0\5\0\1x" + bytes(11))
    return await asyncio.wait_for(reader.readexactly(12), 20)


def test_one_connection_more_than_configured_is_closed(tmp_path: Path) -> None:
    """When all places are taken, whoever has not been served gives its own up; else nobody."""
    settings, broker = config(tmp_path), Broker("a")
    broker.answering.set()

    async def test(at: Running) -> None:
        host, _, port = settings.clusters["a"]["1"].rpartition(":")
        end = await asyncio.start_server(broker.client, host, int(port))
        _, idle = await at.connected()
        await until("it is there", lambda: len(at.server._gateway.everyone) == 1)
        first = await at.connected()
        assert (await asks(*first))[:8] == b"\0\0\0\x08\0\0\0\5"
        assert at.seen("refused") == {"place": 1}
        more, second = await at.connected()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(more.read(), 20) == b""
        assert await asks(*first)
        assert at.seen("refused") == {"place": 1, "more than 1 connections": 1}
        for writer in (idle, first[1], second):
            writer.close()
        await until("its place is free", lambda: not at.server._gateway.everyone)
        end.close()
        for writer in broker.writers:
            writer.transport.abort()

    serve(settings, test)


def test_connections_of_one_address_are_bounded(tmp_path: Path) -> None:
    settings = config(tmp_path).model_copy(update={"connections": 9, "connections_per_address": 3})

    async def test(at: Running) -> None:
        writers = [(await at.connected())[1] for _ in range(3)]
        await until("they are there", lambda: len(at.server._gateway.everyone) == 3)
        more, writer = await at.connected()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(more.read(), 20) == b""
        assert at.seen("refused") == {"more than 3 connections from one address": 1}
        for one in (*writers, writer):
            one.close()

    serve(settings, test)


@pytest.mark.parametrize(
    ("files", "configured", "most"),
    [(20_000, 10_000, 9965), (20_000, 100, 100), (1024, 10_000, 477), (72, 10_000, 1), (60, 10_000, 0)],
)
def test_clients_leave_files_for_orders_and_brokers(files: int, configured: int, most: int) -> None:
    assert most_clients(files, 6, configured) == most
    assert not most or 2 * most + RESERVED + 6 <= files


def test_an_order_is_heard_while_clients_use_up_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that writes the record. The process has few files here, and clients would take all of them."""
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = config(tmp_path).model_copy(update={"connections": 10_000})
    used = len(list(Path("/dev/fd").iterdir()))
    monkeypatch.setattr(door, "files", lambda: used + RESERVED + 40)
    monkeypatch.setattr(door, "RESERVED", used + RESERVED)

    async def test(at: Running) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + RESERVED + 40 + 200, kept[1]))
        writers = []
        for _ in range(100):
            with suppress(OSError):
                writers.append((await at.connected())[1])
        assert len(at.server._gateway.everyone) <= 20
        for n in range(20):
            assert (await at.order(id=f"{n}", verb="route", to="b"))["outcome"] == "done"
        for one in writers:
            one.close()

    try:
        serve(settings, test)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)


def test_where_the_system_has_no_file_left_a_port_opens_resume_accepting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "AGAIN_S", 0.05)
    fails, taken = [OSError(24, "Too many open files")], list[int]()
    accept, again = socket.socket.accept, door.Door._resume_accepting

    def opens(self: door.Door, listener: socket.socket, port: Port) -> None:
        taken.append(len(self._gateway.everyone))
        again(self, listener, port)

    monkeypatch.setattr(door.Door, "_resume_accepting", opens)

    def accepting(one: socket.socket) -> Any:
        if fails:
            raise fails.pop()
        return accept(one)

    async def test(at: Running) -> None:
        monkeypatch.setattr(socket.socket, "accept", accepting)
        _, writer = await at.connected()
        await until("it is there", lambda: len(at.server._gateway.everyone) == 1)
        assert [one["why"] for one in at.lines if one["event"] == "NotTaken"] == [
            "[Errno 24] Too many open files"
        ]
        assert taken == [0], "till then the loop is not called for it, over and over"
        writer.close()

    serve(settings := config(tmp_path), test)
    assert settings.connections == 1


def test_who_asks_nothing_on_the_orders_socket_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ORDER_S", 0.05)

    async def test(at: Running) -> None:
        reader, writer = await asyncio.open_unix_connection(Path(at.config.state) / SOCKET)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()

    serve(config(tmp_path), test)


def test_a_record_of_another_file_is_refused(tmp_path: Path) -> None:
    async def test(at: Running) -> None:
        assert (await at.order(id="1", verb="unhold"))["outcome"] == "done"

    serve(config(tmp_path), test)
    with pytest.raises(HostError, match="application 'app'"):
        serve(config(tmp_path, "other"), test)


def test_a_disk_that_fails_behind_the_rename_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path)

    async def test(at: Running) -> None:
        monkeypatch.setattr(at.server._record, "write", failing)
        told = await at.order(id="1", verb="unhold")
        assert told == {"outcome": "failed", "text": "the folder"}
        await until("it stops", at.server._stop.is_set)

    def failing(_body: Any) -> None:
        raise HostError("the folder")

    with pytest.raises(HostError, match="the folder"):
        serve(settings, test)


def test_the_verbs_order_and_status(tmp_path: Path) -> None:
    settings, file, said = config(tmp_path / "state"), tmp_path / "gateway.yml", list[str]()
    file.write_text(json.dumps(settings.model_dump()))

    def order(verb: str, id: str, fencing: int = 2, **more: Any) -> int:
        return ask.order(file, Order(fencing, id, verb, "app", **more), said.append, as_json=False)

    async def test(at: Running) -> None:
        _, writer = await at.connected()
        writer.write(b"\0\0\0\x0b\0\1\0\x0d\0\0\0\1\0\1x")
        await until("it is refused", lambda: "FETCH version 13" in str(at.lines))
        writer.close()
        _, writer = await at.connected()
        writer.write(b"\0\0\0\x0b\0\x44\0\0\0\0\0\1\0\1x")
        await until("a new group is refused", lambda: "CONSUMER_GROUP" in str(at.lines))
        writer.close()
        reader, writer = await at.connected("r", "b")
        writer.write(b"\0\0\0\x11\0\x16\0\0\0\0\0\5\0\1x\xff\xff\0\0\0\1")
        assert (await reader.readexactly(14))[4:] == b"\0\0\0\5\0\0\0\0\0\x1f", "CLUSTER_AUTHORIZATION_FAILED"
        writer.close()
        assert await asyncio.to_thread(order, "route", "1", to="b") == 0
        assert await asyncio.to_thread(order, "hold", "2", ttl_ms=60_000) == 0
        assert await asyncio.to_thread(order, "go", "3") == 6
        assert await asyncio.to_thread(order, "unhold", "4", fencing=1) == 5
        assert await asyncio.to_thread(ask.status, file, said.append, as_json=False) == 0
        assert await asyncio.to_thread(ask.status, file, bodies.append, as_json=True) == 0

    bodies = list[str]()
    serve(settings, test)
    assert said[:4] == [
        "done: app: open on a",
        "done: app: held on a",
        "refused: app is held; go needs sealed",
        "fenced: fencing number 1 is outdated; the current number of app is 2",
    ]
    told = "\n".join(said[4:])
    assert "cluster a: versions unknown" in told
    assert "connections: 0 of 1, waiting: 0; bytes in use: 0 of 83886080" in told
    assert re.search(r"app: held on a, staged b, lease \d+ ms\n", told)
    assert "r: reads b, connections: " in told
    assert "    refused: INIT_PRODUCER_ID: listener r is read-only 1" in told
    assert "    refused: api: CONSUMER_GROUP_HEARTBEAT is not offered 1, api: FETCH version 13, " in told
    assert re.search(r"gateway.new-groups.*app.*: refused: api: CONSUMER_GROUP_HEARTBEAT", told), told
    found = [one for one in json.loads(bodies[0])["findings"] if one["target"] == "app"]
    assert {one["id"]: one["held"] for one in found}["gateway.new-groups"] == "no"
    with pytest.raises(HostError, match="No gateway responded"):
        order("unhold", "5")
