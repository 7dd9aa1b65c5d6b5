"""Run the gateway's process: its listeners, its socket for orders, and regular queries to each broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from zkmigrate import json_text
from zkmigrate.errors import HostError
from zkmigrate.secret import SecretError
from zkmigrate.topics.gateway.rules import forms, orders
from zkmigrate.topics.gateway.rules.apis import API_VERSIONS, SASL_HANDSHAKE, Ranges
from zkmigrate.topics.gateway.rules.layout import FrameError, text
from zkmigrate.topics.gateway.rules.messages import MECHANISMS, ranges
from zkmigrate.topics.gateway.rules.plan import Port
from zkmigrate.topics.gateway.serving.config import Config
from zkmigrate.topics.gateway.serving.connection import Connection
from zkmigrate.topics.gateway.serving.door import Door
from zkmigrate.topics.gateway.serving.gateway import Gateway, sealed_or_open
from zkmigrate.topics.gateway.serving.link import WHOLE
from zkmigrate.topics.gateway.serving.record import SOCKET, Record
from zkmigrate.topics.gateway.serving.schemas import messages
from zkmigrate.topics.gateway.serving.secured import why_not_the_broker

LOOK_S, SOON_S, ANSWER_S = 30.0, 1.0, 1.0
"""Three times in seconds: between queries to the brokers, the same while one is silent, and for an answer."""
ORDER_S = 10.0
"""The most seconds to receive a question on the socket, and the most seconds to send the answer."""
STOP_S, STEP_S = 5.0, 0.02
"""The most seconds to wait for answers when the process ends, and the length of one step of that wait."""
_ORDER_BYTES = 1 << 16
_ASK = struct.pack(">hhi", API_VERSIONS, 0, 0) + text("zkmigrate-gateway", compact=False)
_LOGIN = struct.pack(">hhi", SASL_HANDSHAKE, 1, 0) + text("zkmigrate-gateway", compact=False)
_LOGIN += text(MECHANISMS[0], compact=False)
_DEMANDED = frozenset({0, 33})
"""Error codes in the answer to SASL_HANDSHAKE which show that a broker demands a login.

They are 0 for no error, and UNSUPPORTED_SASL_MECHANISM. A broker that demands no login answers
ILLEGAL_SASL_STATE.
"""


class Server:
    """The gateway's process.

    say: a function that prints a log line.
    """

    def __init__(self, config: Config, record: Record, say: Callable[[str], None]) -> None:
        self._config, self._record, self._say = config, record, say
        self._messages = messages()
        self._failed: HostError | None = None
        self._stop, self._ordered = asyncio.Event(), asyncio.Event()

    async def serve(self) -> bool:
        """Serve until a signal arrives.

        Return True if it was SIGINT. Raises HostError if the record can no longer be trusted.
        """
        loop = asyncio.get_running_loop()
        state = self._state()
        plan = self._config.plan()
        again = self._record.again
        self._gateway = Gateway(plan, state, self._record, self._say, loop.time, again=again)
        self._gateway.certificates = self._config.certificates()
        interrupted = False

        def stopped(number: int) -> None:
            nonlocal interrupted
            interrupted = number == signal.SIGINT
            self._stop.set()

        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, stopped, one)
        loop.add_signal_handler(signal.SIGHUP, self._read_certificates)
        await self._learn()
        door = Door(
            self._gateway, self._connection, self._config.connections, self._config.connections_per_address
        )
        for port, number in plan.ports.items():
            await door.open(self._config.listen, port, number)
        path = Path(self._config.state) / SOCKET
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            orders = await asyncio.start_unix_server(self._answer_one, path, limit=_ORDER_BYTES)
        finally:
            os.umask(before)
        looking = asyncio.create_task(self._look())
        self._gateway.log("Serving", ports=len(plan.ports), apps=sealed_or_open(state), connections=door.most)
        await self._stop.wait()
        looking.cancel()
        door.close()
        orders.close()
        await self._leave()
        path.unlink(missing_ok=True)
        if self._failed is not None:
            raise self._failed
        return interrupted

    def _state(self) -> orders.State:
        told = self._record.read()
        if told is None:
            return orders.fresh(self._config.routes)
        try:
            return orders.restored(told, self._config.routes, self._config.clusters)
        except orders.RecordError as error:
            raise HostError(f"{self._record.path}: {error}") from None

    def _read_certificates(self) -> None:
        """Read all certificates again, for new connections. If one cannot be used, all former ones stay."""
        gateway = self._gateway
        try:
            gateway.certificates = self._config.certificates()
        except SecretError as error:
            gateway.certificates_kept = str(error)
            gateway.log("CertificatesKept", why=f"{error}. The former files stay in use")
            return
        gateway.certificates_kept = ""
        gateway.log("Certificates", ends={key: round(at) for key, at in gateway.certificates.ends.items()})
        self._ordered.set()

    def _connection(self, port: Port) -> Connection:
        return Connection(self._gateway, self._messages, port, self._config.frame_bytes)

    async def _leave(self) -> None:
        """Wait at most ``STOP_S`` seconds for pending answers, then close all connections."""
        loop = asyncio.get_running_loop()
        everyone, end = self._gateway.everyone, loop.time() + STOP_S
        for one in list(everyone):
            one.finish()
        while everyone and loop.time() < end:
            await asyncio.sleep(STEP_S)
        for one in list(everyone):
            one.close()

    # -- orders

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one question on the socket for orders.

        The question and the answer are each one line of JSON.
        """
        with suppress(OSError, TimeoutError):
            try:
                async with asyncio.timeout(ORDER_S):
                    line = await reader.readline()
                answer = await self._answer(json_text.loads(line))
            except ValueError as error:
                needed = f"needed: one line of JSON, at most {_ORDER_BYTES} bytes"
                answer = {"outcome": "refused", "text": f"this is not a valid order: {error}; {needed}"}
            writer.write(json.dumps(answer).encode() + b"\n")
            async with asyncio.timeout(ORDER_S):
                writer.close()
                await writer.wait_closed()
        writer.transport.abort()

    async def _answer(self, told: Any) -> dict[str, Any]:
        if told == "status":
            return self._gateway.status()
        try:
            answer = await self._gateway.order(forms.order(told))
            self._ordered.set()
        except forms.FormError as error:
            return {"outcome": "refused", "text": f"this is not a valid order: {error}"}
        except HostError as error:
            self._failed = error
            self._stop.set()
            return {"outcome": "failed", "text": str(error)}
        return {"outcome": answer.outcome, "text": answer.text}

    # -- the brokers

    async def _look(self) -> None:
        """Query the brokers regularly, and after each order.

        A run may need the result of such a query for its next step.
        """
        while True:
            silent = any(why for nodes in self._gateway.silent.values() for why in nodes.values())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ordered.wait(), SOON_S if silent else LOOK_S)
            self._ordered.clear()
            await self._learn()

    async def _learn(self) -> None:
        """Query the supported versions of all brokers at once, and record which brokers do not answer."""
        brokers = [
            (name, node, address)
            for name, nodes in self._gateway.plan.clusters.items()
            for node, address in nodes.items()
        ]
        logins, contexts = self._gateway.logins, self._gateway.certificates.clusters
        told = await asyncio.gather(
            *(
                _versions(name, address, contexts.get(name), ask_login=name not in logins)
                for name, _, address in brokers
            )
        )
        found: dict[str, Ranges] = {}
        for (name, node, address), (versions, why, login) in zip(brokers, told, strict=True):
            if login:
                self._gateway.demands_login(name)
            if versions is not None:
                found.setdefault(name, versions)
            if self._gateway.silent[name].get(node) != why:
                event = "Silent" if why else "Answers"
                self._gateway.log(event, cluster=name, node=node, broker=address, why=why)
            self._gateway.silent[name][node] = why
        self._gateway.ranges |= found


async def _versions(
    cluster: str, address: str, context: ssl.SSLContext | None, *, ask_login: bool
) -> tuple[Ranges | None, str, bool]:
    """Query which versions of each request a broker supports.

    cluster: the name of the broker's cluster. context: the gateway's TLS towards the cluster, if it uses TLS.

    Returns three values: the versions, or None if they are not known; why they are not known, or an empty
    text; and whether the broker demands a login.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            host, _, port = address.rpartition(":")
            name = None if context is None else host
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
        try:
            async with asyncio.timeout(ANSWER_S):
                error, found = ranges(await _answer(reader, writer, _ASK), 0)
            ask_login = ask_login and SASL_HANDSHAKE in found
            login = ask_login and await _demands_login(reader, writer)
        finally:
            writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, FrameError) as seen:
        return None, why_not_the_broker(seen, cluster, tls=context is not None), False
    return (None, f"the broker reported Kafka's error {error}", login) if error else (found, "", login)


async def _demands_login(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Return True if a broker demands a login, and False if it does not, or does not answer."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(ANSWER_S):
            told = await _answer(reader, writer, _LOGIN)
        return int.from_bytes(told[4:6], "big") in _DEMANDED and len(told) >= 6
    return False


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> bytes:
    writer.write(len(asked).to_bytes(4, "big") + asked)
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(min(size, WHOLE))
