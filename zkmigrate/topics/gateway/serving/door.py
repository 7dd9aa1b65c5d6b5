"""Accept clients on the listeners, and keep open files in reserve for orders, the record and the brokers."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import suppress

from zkmigrate.topics.gateway.rules.crowd import share
from zkmigrate.topics.gateway.rules.layout import FrameError
from zkmigrate.topics.gateway.rules.plan import OTHERS, Port
from zkmigrate.topics.gateway.serving.connection import Connection
from zkmigrate.topics.gateway.serving.gateway import Gateway
from zkmigrate.topics.gateway.serving.secured import Secured

RESERVED = 64
"""Open files that clients cannot use, because the program and orders need them.

One more file is reserved for each broker.
"""
MOST_SHAKING = 2_000
"""The most connections in the handshake of TLS, which take about 40 KiB each."""
BACKLOG, AT_ONCE = 1024, 2
"""The listen backlog of a port, and the most connections accepted in one turn of the event loop."""
AGAIN_S = 1.0
"""Seconds until a port accepts connections again after the system ran out of file descriptors."""


def files() -> int:
    """Raise the process's limit of open files as far as the system allows. Return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft


def most_clients(files: int, brokers: int, configured: int) -> int:
    """Return the most clients that can be connected, since each needs two open files; 0 if none can.

    files: the limit of open files. brokers: how many brokers the configuration has. configured: the
    configured limit of connections.
    """
    return max(0, min(configured, (files - RESERVED - brokers) // 2))


class Door:
    """The listeners of a gateway.

    most: the highest number of clients. share: the highest number of clients of one address.
    """

    def __init__(self, gateway: Gateway, make: Callable[[Port], Connection], most: int, share: int) -> None:
        brokers = sum(map(len, gateway.plan.clusters.values()))
        self._gateway, self._make, self.share = gateway, make, share
        self.most = gateway.most = most_clients(files(), brokers, most)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []

    async def open(self, host: str, port: Port, number: int) -> None:
        """Listen on a port number of a host. Raises OSError."""
        found = await self._loop.getaddrinfo(
            host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        for family, kind, protocol, _, address in found:
            listener = socket.socket(family, kind, protocol)
            self._listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            self._loop.add_reader(listener, self._accept_connection, listener, port)

    def close(self) -> None:
        """Close all listeners, so that no more clients connect."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()

    def _accept_connection(self, listener: socket.socket, port: Port) -> None:
        for _ in range(AT_ONCE):
            try:
                own, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._gateway.log("NotTaken", why=str(error), again_s=AGAIN_S)
                self._loop.remove_reader(listener)
                self._loop.call_later(AGAIN_S, self._resume_accepting, listener, port)
                return
            own.setblocking(False)
            peer = str(address[0])
            self._gateway.turns.connected(share(peer))
            if why := self._full(peer):
                self._gateway.refused(OTHERS, why)
                self._gateway.log("Refused", peer=peer, listener=port.listener, why=why)
                own.close()
                continue
            one = self._make(port)
            one.comes_from(peer)
            context = self._gateway.certificates.listeners.get(port.listener)
            if context is not None:
                self._shakes(one)
            self._gateway.joined(one)
            task = self._loop.create_task(
                self._take(own, one if context is None else Secured(one, context), one)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _resume_accepting(self, listener: socket.socket, port: Port) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept_connection, listener, port)

    def _full(self, peer: str) -> str:
        """Return why a client of this address is refused, or an empty text if the client is accepted.

        If the highest number of clients is reached, this closes a connection that no broker has served yet.
        The connection is one of the addresses that have the most such connections.
        """
        if self._gateway.clients[share(peer)] >= self.share:
            return f"more than {self.share} connections from one address"
        if len(self._gateway.everyone) < self.most:
            return ""
        if not self._gateway.unknown:
            return f"more than {self.most} connections"
        self._gateway.unknown.first().stop(
            FrameError(
                "place", "the gateway has too many connections, and this client had not finished its login"
            )
        )
        return ""

    def _shakes(self, one: Connection) -> None:
        """Count a connection among those that have not finished the handshake of TLS."""
        shaking = self._gateway.shaking
        if len(shaking) >= MOST_SHAKING:
            shaking.first().stop(
                FrameError(
                    "place", "too many clients were in the handshake of TLS, and this one had not finished it"
                )
            )
        shaking.add(one, one.peer)

    async def _take(self, own: socket.socket, outer: asyncio.BaseProtocol, one: Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: outer, own)
        except OSError:
            own.close()
            self._gateway.remove(one)
