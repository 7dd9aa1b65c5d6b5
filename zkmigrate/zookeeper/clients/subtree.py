"""Walk a subtree on the first of several servers that answers completely."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.zookeeper.clients.login import Credentials
from zkmigrate.zookeeper.clients.session import Limits, SessionError, session
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.subtree import Walk


@dataclass(frozen=True)
class Server:
    """The host name or address of a server, and its client port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Walked:
    """The result of a complete walk over a subtree.

    server: the server that gave all answers. seconds: the time from the connection to the last answer.
    """

    server: Server
    walk: Walk
    seconds: float


def walk_subtree(
    servers: Sequence[Server],
    chroot: Chroot,
    window: int,
    limits: Limits,
    tell: Callable[[Walk], None],
    failed: Callable[[str], None],
    credentials: Credentials,
) -> Walked:
    """Walk a subtree on the first server that answers to the end.

    Each server is tried once, in this order. If a walk fails, it starts again on the next server. Answers of
    two servers are never mixed, because one server may lag.

    window: how many requests may wait for an answer at once. tell: receives the walk after each read. failed:
    receives a line of text for each server that failed. Raises HostError with the failures of all servers.
    """
    failures = []
    for server in servers:
        walk = Walk(chroot, window)
        began = time.monotonic()
        try:
            with session(server.host, server.port, limits, credentials) as held:
                while not walk.done:
                    requests = walk.requests_to_send()
                    if requests:
                        held.send(requests)
                    for frame in held.receive():
                        walk.take(frame)
                    tell(walk)
                seconds = time.monotonic() - began
            return Walked(server, walk, seconds)
        except (SessionError, ZkDataError) as error:
            so_far = f" after {walk.extent.znodes} znodes" if walk.extent.znodes else ""
            failures.append(f"{server}: {error}{so_far}")
            failed(failures[-1])
    raise HostError(
        f"no server returned the whole subtree. {'; '.join(failures)}. Needed: a server that serves "
        "clients. Next: name other servers, name in --client a file with zookeeper.client if they need TLS "
        "or a login, or read the files of one with --dir"
    )
