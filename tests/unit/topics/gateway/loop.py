"""A gateway between a client and two brokers that do as they are told, all in one event loop."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import uvloop

from zkmigrate.topics.gateway.rules.hold import Order
from zkmigrate.topics.gateway.rules.orders import Answer, fresh
from zkmigrate.topics.gateway.rules.plan import OTHERS, Plan, Port, Reading, Who
from zkmigrate.topics.gateway.serving.certificates import Certificates
from zkmigrate.topics.gateway.serving.connection import Connection
from zkmigrate.topics.gateway.serving.gateway import Gateway
from zkmigrate.topics.gateway.serving.schemas import messages
from zkmigrate.topics.gateway.serving.secured import Secured

Result = TypeVar("Result")


@dataclass(frozen=True)
class Tls:
    """What client, gateway and brokers need for TLS. One is in SETTINGS_TLS while tests shall use it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


SETTINGS_TLS: list[Tls] = []
DEADLINE_S = 20.0
MESSAGES = messages()
FRAME = 1 << 22


async def until(what: str, true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.002)


@dataclass
class Broker:
    """Answers each request with its correlation id and ``body``, while ``answering``. got: the requests."""

    name: str
    body: bytes = b"body"
    got: list[bytes] = field(default_factory=list)
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    wrong: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    answers: dict[int, bytes] = field(default_factory=dict)

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                self.got.append(frame)
                await self.answering.wait()
                key, _, correlation = struct.unpack_from(">hhi", frame)
                told = (correlation + self.wrong).to_bytes(4, "big", signed=True) + self.answers.get(
                    key, self.body
                )
                writer.write(len(told).to_bytes(4, "big") + told)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()

    def kinds(self) -> list[int]:
        return [int.from_bytes(frame[:2], "big") for frame in self.got]


def at_once(call: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    call.close()
    raise AssertionError("it waits")


class Memory:
    """A record in memory, or a disk without room, or one that is slow until ``slow`` is set."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.full = False
        self.slow: asyncio.Event | None = None
        self.writing = 0

    async def write(self, body: Any) -> None:
        if self.slow is not None:
            self.writing += 1
            await self.slow.wait()
        if self.full:
            raise OSError(28, "No space left on device")
        self.written.append(json.loads(json.dumps(body)))


class Client:
    """Sends frames and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def answer(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def ended(self) -> None:
        """Until the gateway closes the connection."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                assert await self.reader.read(1) == b""
            except ConnectionError:
                return

    async def asks(self, frame: bytes) -> bytes:
        self.send(frame)
        return await self.answer()


class Setting:
    """Application ``app`` has the client ids ``app-…``; ``user`` the principal ``alice``. Listener ``r`` only
    reads cluster b, where a mirror commits for the groups ``orders-…``."""

    def __init__(self, a: Broker, b: Broker, addresses: dict[str, str]) -> None:
        self.a, self.b = a, b
        self.lines: list[dict[str, Any]] = []
        self.record = Memory()
        self.now = 100.0
        plan = Plan(
            {"a": {1: addresses["a"]}, "b": {7: addresses["b"]}},
            {Port("l", "a", 1): 19001, Port("l", "b", 7): 29007, Port("r", "b", 7): 39007},
            {"l": "gw.example", "r": "gw.example"},
            {"user": Who(principals=("alice",)), "app": Who("", ("app-*",))},
            {"r": Reading("b", ("orders-*",))},
        )
        state = fresh({"user": "b", "app": "a", OTHERS: "a"})
        say = lambda line: self.lines.append(json.loads(line))  # noqa: E731
        self.gateway = Gateway(plan, state, self.record, say, lambda: self.now, lambda: 5000.0 + self.now)
        self.servers: dict[str, asyncio.Server] = {}
        self.writers: list[asyncio.StreamWriter] = []
        self.fencing, self.ids = 1, 0

    async def client(self, to: str = "a") -> Client:
        """To a cluster's port, or to the listener ``r``."""
        host, port = self.servers[to].sockets[0].getsockname()[:2]
        reader, writer = await asyncio.open_connection(
            host, port, ssl=SETTINGS_TLS[0].client if SETTINGS_TLS else None
        )
        self.writers.append(writer)
        return Client(reader, writer)

    def order(self, verb: str, app: str = "app", **more: Any) -> Answer:
        return at_once(self.ordering(verb, app, **more))

    def ordering(self, verb: str, app: str = "app", **more: Any) -> Coroutine[Any, Any, Answer]:
        self.ids += 1
        more.setdefault("id", f"id-{self.ids}")
        return self.gateway.order(Order(self.fencing, verb=verb, app=app, **more))

    def seal(self) -> Answer:
        """Stage b, hold, and seal."""
        self.order("route", to="b")
        self.order("hold", id="the-hold", ttl_ms=60_000)
        return self.order("seal", hold="the-hold")

    def seen(self, what: str, app: str = "app") -> dict[str, int]:
        told: dict[str, int] = self.gateway.status()["apps"][app][what]
        return told

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]


@asynccontextmanager
async def setting() -> AsyncIterator[Setting]:
    """The gateway with a port of each cluster, and both brokers, which answer at once."""
    brokers = {"a": Broker("a"), "b": Broker("b")}
    own: list[asyncio.Server] = []
    tls = SETTINGS_TLS[0] if SETTINGS_TLS else None
    addresses = {}
    for name, broker in brokers.items():
        broker.answering.set()
        server = await asyncio.start_server(broker.client, "127.0.0.1", 0, ssl=tls.server if tls else None)
        own.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        addresses[name] = f"{host}:{port}"
    made = Setting(brokers["a"], brokers["b"], addresses)
    if tls:
        made.gateway.certificates = Certificates({}, {"a": tls.client, "b": tls.client})
    for port in made.gateway.plan.ports:
        factory = partial(_connection, partial(Connection, made.gateway, MESSAGES, port, FRAME), tls)
        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        own.append(server)
        made.servers[port.cluster if port.listener == "l" else port.listener] = server
    try:
        yield made
    finally:
        for server in own:
            server.close()
        for one in list(made.gateway.everyone):
            one.close()
        for writer in (*made.writers, *made.a.writers, *made.b.writers):
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _connection(make: Callable[[], Connection], tls: Tls | None) -> asyncio.BaseProtocol:
    return Secured(make(), tls.server) if tls else make()


def run(test: Callable[[Setting], Any]) -> None:
    """Run a test in a setting of its own."""

    async def whole() -> None:
        async with setting() as made:
            await test(made)

    uvloop.run(whole())
