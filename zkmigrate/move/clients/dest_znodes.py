"""Read znodes of dest, and delete and create them, with kazoo."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.questions import Node, ReadContents, ReadTree
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.changes import DEST, CreateZnodes, DeleteZnodes
from zkmigrate.zookeeper.clients import znodes
from zkmigrate.zookeeper.clients.ensemble import ANSWER_S, connect, from_kazoo, named
from zkmigrate.zookeeper.clients.login import credentials_of
from zkmigrate.zookeeper.clients.subtree import Server

_IN_FLIGHT = 200


class _Dest:
    """A client session on dest. It begins with the first request, and a new session begins after an error."""

    def __init__(self, inventory: Inventory, _look: Look) -> None:
        self._inventory = inventory
        self._open = ExitStack()
        self._client: KazooClient | None = None

    def close(self) -> None:
        self._client = None
        self._open.close()

    @contextmanager
    def _session(self) -> Iterator[KazooClient]:
        try:
            if self._client is None:
                dest = self._inventory.dest
                servers = [Server(host.address, dest.ports.door) for host in dest.hosts]
                self._client = self._open.enter_context(
                    connect(DEST, servers, credentials_of(self._inventory))
                )
            yield self._client
        except HostError:
            self.close()
            raise


class DestAnswers(_Dest):
    """Answers the questions about dest's znodes."""

    def tree(self, request: ReadTree) -> tuple[Node, ...]:
        with self._session() as client:
            with named(DEST, "sync"):
                client.sync_async("/").get(timeout=ANSWER_S)
            found = []
            ahead, sent = deque([request.path]), deque[tuple[str, Any, Any]]()
            while ahead or sent:
                while ahead and len(sent) < _IN_FLIGHT:
                    path = ahead.popleft()
                    listing = client.get_children_async(path, include_data=True)
                    sent.append((path, listing, client.get_acls_async(path)))
                for node in _node(*sent.popleft()):
                    found.append(node)
                    ahead.extend(f"{node.path}/{name}" for name in node.names if request.deep)
            return tuple(found)

    def contents(self, request: ReadContents) -> tuple[Node, ...]:
        with self._session() as client:
            sent = [(path, client.get_async(path), client.get_acls_async(path)) for path in request.paths]
            return tuple(node for one in sent for node in _node(*one))


def _node(path: str, answer: Any, acl: Any) -> Sequence[Node]:
    """Return a znode from kazoo's reply as a tuple of one, or an empty tuple if the znode does not exist.

    answer: kazoo's reply for the znode's children or for its data. acl: kazoo's reply for its ACL.
    """
    with named(DEST, path):
        try:
            content, stat = answer.get(timeout=ANSWER_S)
            rights = from_kazoo(acl.get(timeout=ANSWER_S)[0])
        except NoNodeError:
            return ()
        except NoAuthError:  # newer servers do not show whether it exists
            return (Node(path),)
    names, data = (tuple(sorted(content)), None) if isinstance(content, list) else ((), content)
    return (
        Node(
            path, stat.czxid, stat.mzxid, stat.pzxid, stat.version, stat.ephemeralOwner, stat.dataLength,
            stat.mtime, stat.numChildren, rights, names, data,
        ),
    )  # fmt: skip


class Alter(_Dest):
    """Sends journaled changes of znodes to dest."""

    def __call__(self, change: ClusterChange) -> tuple[int, str]:
        """Send one change and return its exit code and a text.

        The code is 0 with the result as text, or 1 with the reason why dest refused the change. Raises
        HostError if dest does not answer.
        """
        if not isinstance(change, DeleteZnodes | CreateZnodes):
            return 1, f"nothing was sent: {change.describe()} is not a change of dest's znodes"
        with self._session() as client:
            send = znodes.delete if isinstance(change, DeleteZnodes) else znodes.create
            return send(DEST, client, change.nodes)
