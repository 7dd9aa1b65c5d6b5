"""Reader of znodes with one session per ZooKeeper host, which stays open.

A session never moves to another server, so an answer always comes from the requested host. Servers in
read-only mode are refused: without their quorum, their data proves nothing about the ensemble.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from zkmigrate import deadline
from zkmigrate.hosts.transport.failure import socket_cause, socket_text
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.secret import SecretError
from zkmigrate.zookeeper.clients.ensemble import closed, from_kazoo, new_client, start
from zkmigrate.zookeeper.clients.login import OPEN, Credentials
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.questions import Rights, Znode

_SESSION_S = 10.0
_TRIES = 5
_IN_FLIGHT = 500

T = TypeVar("T")


class ZnodeReader:
    """A reader of znodes. addresses: the address and client port of each host. Time limits are in seconds."""

    def __init__(
        self,
        addresses: Mapping[str, tuple[str, int]],
        connect_s: float = 3.0,
        answer_s: float = 5.0,
        credentials: Credentials = OPEN,
    ) -> None:
        self._credentials = credentials
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._hosts = {name: _Host(Server(*where)) for name, where in addresses.items()}

    def read(self, host: str, path: str) -> Reading[Znode]:
        """Read one znode and the names of its children, both from the same moment."""
        return self._read_within(host, path, lambda client: self._znode(client, path))

    def modified(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, int]]:
        """Return the mtime of each existing znode by path, in milliseconds since 1970."""

        def read(client: KazooClient) -> Reading[Mapping[str, int]]:
            found: dict[str, int] = {}
            for at in range(0, len(paths), _IN_FLIGHT):
                sent = {path: client.exists_async(path) for path in paths[at : at + _IN_FLIGHT]}
                stats = {
                    path: answer.get(timeout=deadline.remaining(self._answer_s))
                    for path, answer in sent.items()
                }
                found |= {path: int(stat.mtime) for path, stat in stats.items() if stat is not None}
            return Seen(found)

        return self._read_within(host, f"{len(paths)} znodes", read)

    def acls(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Rights]]:
        """Return the ACL of each existing znode by path: permissions, scheme and id of each entry."""

        def read(client: KazooClient) -> Reading[Mapping[str, Rights]]:
            found: dict[str, Rights] = {}
            for at in range(0, len(paths), _IN_FLIGHT):
                sent = {path: client.get_acls_async(path) for path in paths[at : at + _IN_FLIGHT]}
                for path, answer in sent.items():
                    with suppress(NoNodeError):
                        acl, _ = answer.get(timeout=deadline.remaining(self._answer_s))
                        found[path] = tuple((a.perms, a.scheme, a.id) for a in from_kazoo(acl))
            return Seen(found)

        return self._read_within(host, f"the ACL of {len(paths)} znodes", read)

    def _read_within(self, host: str, path: str, read: Callable[[KazooClient], Reading[T]]) -> Reading[T]:
        """Run a read in the host's session, and return Absent or Unknown if it fails.

        path: a description of the znodes, for messages.
        """
        held = self._hosts[host]
        if not held.turn.acquire(timeout=deadline.remaining(math.inf) if deadline.bounded() else -1):
            return Unknown("timeout", f"{host}: the previous read has not been answered yet")
        try:
            try:
                return read(self._connect(held))
            except NoNodeError:
                return Absent(path)
            except NoAuthError:
                return Unknown("denied", f"{host}: no ACL lets this client read {path}")
            except SecretError as error:
                return Unknown("denied", f"{host}: {error}")
            except (KazooTimeoutError, KazooException) as error:
                failure = held.client.handler.failure if held.client is not None else ""
                held.drop()
                if failure:
                    return Unknown("denied", f"{host}: {held.server}: {failure}")
                if isinstance(error, KazooException):
                    why = f"{type(error).__name__} reading {path} {error}".rstrip()
                    return Unknown("failed", f"{host}: {why}")
                return Unknown(
                    "timeout", f"{host}: no ZooKeeper session or answer within the time limit ({held.server})"
                )
            except OSError as error:
                held.drop()
                return Unknown(socket_cause(error), f"{host}: {held.server}: {socket_text(error)}")
        finally:
            held.turn.release()

    def close(self) -> None:
        for held in self._hosts.values():
            with held.turn:
                held.drop()

    def _connect(self, held: _Host) -> KazooClient:
        """Return the host's client with a live session. A client that lost its connection is replaced."""
        if held.client is not None and held.client.state != KazooState.CONNECTED:
            held.drop()
        if held.client is None:
            # kazoo distinguishes a closed port from a silent one only in its log; this connection raises it.
            where = held.server.host, held.server.port
            with socket.create_connection(where, timeout=deadline.remaining(self._connect_s)) as sock:
                self._credentials.secure(sock, held.server.host).close()
            held.client = client = new_client(str(held.server), _SESSION_S, self._credentials)
            start(client, deadline.remaining(self._connect_s))
        return held.client

    def _znode(self, client: KazooClient, path: str) -> Reading[Znode]:
        for _ in range(_TRIES):
            data, before = client.get_async(path).get(timeout=deadline.remaining(self._answer_s))
            children, stat = client.get_children_async(path, include_data=True).get(
                timeout=deadline.remaining(self._answer_s)
            )
            if (before.czxid, before.mzxid) == (stat.czxid, stat.mzxid):
                return Seen(
                    Znode(
                        data,
                        stat.czxid,
                        stat.mzxid,
                        stat.pzxid,
                        stat.ephemeralOwner,
                        stat.version,
                        tuple(sorted(children)),
                        stat.mtime,
                    )
                )
        return Unknown("failed", f"{path} changed between two reads, {_TRIES} times in a row")


@dataclass
class _Host:
    """The kazoo client of one host, and the lock that lets one thread at a time use the client."""

    server: Server
    turn: threading.Lock = field(default_factory=threading.Lock)
    client: KazooClient | None = None

    def drop(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            closed(client)
