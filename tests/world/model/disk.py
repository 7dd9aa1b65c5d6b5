"""What a model ZooKeeper server has on disk, as the bytes a real one would write (formats:
``zookeeper.data``)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, Self, TypeAlias

from zkmigrate.zookeeper.data.txn import TxnType

Kind: TypeAlias = Literal["create", "delete", "set", "open-session", "close-session"]


class Fixed:
    """What nobody changes, so that copies of a world share it."""

    def __deepcopy__(self, _memo: object) -> Self:
        return self


@dataclass(frozen=True)
class Transaction(Fixed):
    """One committed transaction of the model; ``timeout_ms`` only for open-session.

    cxid: the client's number of the request; 0 where the server itself closes a session that has expired.
    version: what a set makes of it. cversion: what a create makes of its parent's.
    """

    zxid: int
    session: int
    kind: Kind
    path: str = ""
    data: bytes = b""
    ephemeral: bool = False
    timeout_ms: int = 0
    time_ms: int = 0
    cxid: int = 1
    version: int = 1
    cversion: int = 1

    def payload(self) -> bytes:
        """Header and body as jute."""
        kinds = {
            "create": TxnType.create,
            "delete": TxnType.delete,
            "set": TxnType.setData,
            "open-session": TxnType.createSession,
            "close-session": TxnType.closeSession,
        }
        header = struct.pack(">qiqqi", self.session, self.cxid, self.zxid, self.time_ms, kinds[self.kind])
        return header + self._body()

    @cached_property
    def record(self) -> bytes:
        """The payload as a record of a log file; made once, because looks read whole logs again and again."""
        payload = self.payload()
        return struct.pack(">qi", zlib.adler32(payload), len(payload)) + payload + b"B"

    def _body(self) -> bytes:
        if self.kind == "create":
            acl = struct.pack(">ii", 1, 31) + _string("world") + _string("anyone")
            return (
                _string(self.path)
                + _buffer(self.data)
                + acl
                + struct.pack(">?i", self.ephemeral, self.cversion)
            )
        if self.kind == "set":
            return _string(self.path) + _buffer(self.data) + struct.pack(">i", self.version)
        if self.kind == "delete":
            return _string(self.path)
        return struct.pack(">i", self.timeout_ms) if self.kind == "open-session" else b""


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _string(text: str) -> bytes:
    return _buffer(text.encode())


def log_bytes(transactions: Iterable[Transaction]) -> bytes:
    """A whole log file: header, records, a little zero padding."""
    return struct.pack(">4siq", b"ZKLG", 2, 0) + b"".join(txn.record for txn in transactions) + bytes(64)


@cache
def empty_snapshot() -> bytes:
    """``snapshot.0`` of a new server: the root, /zookeeper and its children, sealed."""
    nodes = b"".join(
        _string(path) + _buffer(b"") + struct.pack(">q", -1) + bytes(60) for path in ("", "/zookeeper")
    )
    body = struct.pack(">4siqii", b"ZKSN", 2, -1, 0, 0) + nodes + _string("/")
    return body + struct.pack(">q", zlib.adler32(body)) + _string("/")


@dataclass(frozen=True)
class Disk(Fixed):
    """Transactions in order, the two epoch files; ``sealed_logs`` counts how often the server was started."""

    log: tuple[Transaction, ...] = ()
    accepted: int = 0
    current: int = 0

    @property
    def newest(self) -> int:
        return self.log[-1].zxid if self.log else 0

    def with_log(self, log: tuple[Transaction, ...]) -> Disk:
        return replace(self, log=log)

    def files(self) -> dict[str, bytes]:
        """The content of version-2."""
        result = {
            "snapshot.0": empty_snapshot(),
            "acceptedEpoch": b"%d" % self.accepted,
            "currentEpoch": b"%d" % self.current,
        }
        if self.log:
            result[f"log.{self.log[0].zxid:x}"] = log_bytes(self.log)
        return result


@dataclass(frozen=True)
class Znode(Fixed):
    """A znode of the model tree."""

    data: bytes
    czxid: int
    mzxid: int
    owner: int
    pzxid: int = 0
    version: int = 0
    cversion: int = 0


@dataclass(frozen=True)
class Tree(Fixed):
    """The state that a log leads to: znodes by path, open sessions with timeouts in milliseconds."""

    znodes: dict[str, Znode] = field(default_factory=dict)
    sessions: dict[int, int] = field(default_factory=dict)


def replay(log: Iterable[Transaction], base: Tree | None = None) -> Tree:
    """The tree after these transactions. base: the one before them, which stays as it is."""
    znodes = {} if base is None else dict(base.znodes)
    sessions = {} if base is None else dict(base.sessions)
    for txn in log:
        if txn.kind == "create":
            owner = txn.session if txn.ephemeral else 0
            znodes[txn.path] = Znode(txn.data, txn.zxid, txn.zxid, owner, txn.zxid)
            _of_parent(znodes, txn.path, pzxid=txn.zxid, cversion=txn.cversion)
        elif txn.kind == "set":
            znodes[txn.path] = replace(znodes[txn.path], data=txn.data, mzxid=txn.zxid, version=txn.version)
        elif txn.kind == "delete":
            _deleted(znodes, txn.path, txn.zxid)
        elif txn.kind == "open-session":
            sessions[txn.session] = txn.timeout_ms
        else:
            sessions.pop(txn.session, None)
            for path in [p for p, z in znodes.items() if z.owner == txn.session]:
                _deleted(znodes, path, txn.zxid)
    return Tree(znodes, sessions)


def _deleted(znodes: dict[str, Znode], path: str, zxid: int) -> None:
    del znodes[path]
    _of_parent(znodes, path, pzxid=zxid)


def _of_parent(znodes: dict[str, Znode], path: str, **stat: Any) -> None:
    parent = path.rpartition("/")[0]
    if parent in znodes:
        znodes[parent] = replace(znodes[parent], **stat)
