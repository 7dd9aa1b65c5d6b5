"""A model of a ZooKeeper server behind the calls of kazoo that the tool's own senders and readers make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.security import OPEN_ACL_UNSAFE

_READ, _CREATE, _DELETE = 1, 4, 8
OPEN = tuple(OPEN_ACL_UNSAFE)


@dataclass
class Znode:
    """A znode, with the names that kazoo's ZnodeStat has."""

    data: bytes | None
    acl: tuple[Any, ...]
    czxid: int
    mzxid: int
    pzxid: int
    version: int = 0
    mtime: int = 1_700_000_000_000
    ephemeralOwner: int = 0
    dataLength: int = 0
    numChildren: int = 0


@dataclass
class Answer:
    """What kazoo calls an asynchronous result."""

    value: Any

    def get(self, timeout: float) -> Any:
        assert timeout > 0
        if isinstance(self.value, KazooException):
            raise self.value
        return self.value


@dataclass
class ZnodeServer:
    """The server. before: called before each transaction, with its number. lost: the answers of so many
    transactions are lost. largest: the znodes and the bytes of the largest transaction."""

    zxid: int = 0x100
    nodes: dict[str, Znode] = field(default_factory=dict)
    before: Callable[[int], object] = lambda _number: None
    lost: int = 0
    multis: int = 0
    largest: int = 0
    sessions: int = 0

    def __post_init__(self) -> None:
        self.put("/")

    @contextmanager
    def connect(self, _name: str, _servers: object, _credentials: object = None) -> Iterator[Client]:
        """Take the place of `zookeeper.clients.ensemble.connect`."""
        self.sessions += 1
        yield Client(self)

    def put(self, path: str, data: bytes | None = b"", acl: tuple[Any, ...] = OPEN, owner: int = 0) -> None:
        """Make or change a znode, as another client."""
        self.zxid += 1
        if (old := self.nodes.get(path)) is not None:
            old.data, old.mzxid, old.version = data, self.zxid, old.version + 1
            return
        made = Znode(data, acl, self.zxid, self.zxid, self.zxid, ephemeralOwner=owner)
        self.nodes[path] = made
        if path != "/":
            self.nodes[parent(path)].pzxid = self.zxid

    def remove(self, path: str, version: int = -1) -> None:
        """Delete a znode, as the server does it."""
        node = self.stat(path)
        if node is None:
            raise NoNodeError
        if not self._may(parent(path), _DELETE):
            raise NoAuthError
        if version not in (-1, node.version):
            raise BadVersionError
        if node.numChildren:
            raise NotEmptyError
        self.zxid += 1
        del self.nodes[path]
        self.nodes[parent(path)].pzxid = self.zxid

    def create(self, path: str, data: bytes | None, acl: tuple[Any, ...]) -> None:
        if path in self.nodes:
            raise NodeExistsError
        if parent(path) not in self.nodes:
            raise NoNodeError
        if not self._may(parent(path), _CREATE):
            raise NoAuthError
        self.put(path, data, acl)

    def stat(self, path: str) -> Znode | None:
        node = self.nodes.get(path)
        if node is not None:
            node.dataLength, node.numChildren = len(node.data or b""), len(self.names(path))
        return node

    def names(self, path: str) -> list[str]:
        return [one.rpartition("/")[2] for one in self.nodes if one != "/" and parent(one) == path]

    def read(self, path: str) -> Znode:
        node = self.stat(path)
        if node is None:
            raise NoNodeError
        if not self._may(path, _READ):
            raise NoAuthError
        return node

    def _may(self, path: str, right: int) -> bool:
        return any(one.id.scheme == "world" and one.perms & right for one in self.nodes[path].acl)

    def state(self, top: str) -> dict[str, tuple[Any, ...]]:
        """Data and ACL of each znode below, by path."""
        every = {path: (node.data, node.acl) for path, node in self.nodes.items()}
        return {path: told for path, told in every.items() if path == top or path.startswith(f"{top}/")}


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _told(act: Callable[[], Any]) -> Answer:
    try:
        return Answer(act())
    except KazooException as error:
        return Answer(error)


@dataclass
class Client:
    """One session, with kazoo's names."""

    server: ZnodeServer

    def sync_async(self, _path: str) -> Answer:
        return Answer(None)

    def exists_async(self, path: str) -> Answer:
        return Answer(self.server.stat(path))

    def get_async(self, path: str) -> Answer:
        return _told(lambda: (self.server.read(path).data, self.server.read(path)))

    def get_children_async(self, path: str, include_data: bool) -> Answer:
        assert include_data
        return _told(lambda: (self.server.names(path), self.server.read(path)))

    def get_acls_async(self, path: str) -> Answer:
        return _told(lambda: (list(self.server.read(path).acl), None))

    def create_async(self, path: str, data: bytes | None, acl: list[Any]) -> Answer:
        return _told(lambda: self.server.create(path, data, tuple(acl)))

    def transaction(self) -> Transaction:
        return Transaction(self.server)


@dataclass
class Transaction:
    """A multi: all of it, or nothing."""

    server: ZnodeServer
    deletes: list[tuple[str, int]] = field(default_factory=list)

    def delete(self, path: str, version: int) -> None:
        self.deletes.append((path, version))

    def commit_async(self) -> Answer:
        server = self.server
        server.multis += 1
        server.before(server.multis)
        server.largest = max(server.largest, len(self.deletes))
        zxid, kept = server.zxid, dict(server.nodes)
        results: list[Any] = []
        for path, version in self.deletes:
            try:
                server.remove(path, version)
                results.append(True)
            except KazooException as error:
                server.nodes, server.zxid = kept, zxid
                rest = len(self.deletes) - len(results) - 1
                results = [*(RolledBackError() for _ in results), error]
                results += [RuntimeInconsistency() for _ in range(rest)]
                break
        if server.lost:
            server.lost -= 1
            return Answer(ConnectionLoss())
        return Answer(results)
