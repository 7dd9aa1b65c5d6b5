"""A session of kazoo's with an ensemble: how it is opened and closed, and what its errors are called."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, Id

from zkmigrate.errors import HostError
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.txn import Acl

logging.getLogger("kazoo").addHandler(logging.NullHandler())  # what matters is in its errors

ANSWER_S = 30.0
"""How long one answer may take."""

NOT_ITS_OWN = (RolledBackError, RuntimeInconsistency)
"""What the other operations of a failed multi answer."""

_CONNECT_S, _SESSION_S = 10.0, 30.0


@contextmanager
def named(ensemble: str, what: str) -> Iterator[None]:
    """Turns what kazoo raises into HostError that says of which ensemble, and at what."""
    try:
        yield
    except (KazooTimeoutError, OSError) as error:
        raise HostError(f"{ensemble} was lost at {what}: {type(error).__name__} {error}".rstrip()) from error
    except KazooException as error:
        raise HostError(f"{ensemble}, at {what}: {type(error).__name__} {error}".rstrip()) from error


def unconnected(hosts: str, timeout_s: float) -> KazooClient:
    """A client of these servers, ``address:port`` by comma, that tries no request twice; not started.
    timeout_s: of its session."""
    return KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        randomize_hosts=False,
        connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 1, "max_delay": 0.5},
        command_retry={"max_tries": 0},
    )


def closed(client: KazooClient) -> None:
    """End the client's session, whatever it answers."""
    with suppress(KazooException, OSError):
        client.stop()
        client.close()


@contextmanager
def connected(ensemble: str, servers: Sequence[Server]) -> Iterator[KazooClient]:
    """A session with one of the servers, for as long as the block lasts. ensemble: its name, for messages.
    Raises HostError."""
    hosts = ",".join(map(str, servers))
    client = unconnected(hosts, _SESSION_S)
    try:
        with named(ensemble, hosts.replace(",", ", ")):
            client.start(timeout=_CONNECT_S)
        yield client
    finally:
        closed(client)


def to_kazoo(acl: Iterable[Acl]) -> list[Any]:
    """An ACL as kazoo takes it."""
    return [ACL(one.perms, Id(one.scheme, one.id)) for one in acl]


def from_kazoo(acl: Iterable[Any]) -> tuple[Acl, ...]:
    """An ACL as kazoo gives it."""
    return tuple(Acl(one.perms, one.id.scheme, one.id.id) for one in acl)


@dataclass
class Pace:
    """At most so many batches a second, for the sake of the other clients; 0: as fast as it goes."""

    per_s: float
    _next: float = field(default=0.0, init=False)

    def wait(self) -> None:
        """Wait for the turn of the next."""
        if self.per_s <= 0:
            return
        now = time.monotonic()
        if self._next > now:
            Event().wait(self._next - now)
        self._next = max(self._next, now) + 1 / self.per_s
