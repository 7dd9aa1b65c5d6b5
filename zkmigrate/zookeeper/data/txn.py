"""Decoder for the payload of a record in a transaction log: header, body, digest.

The package docstring describes the formats. Two rules are not in `zookeeper.jute` and were seen on real
servers. A failed multi is logged with its earlier operations intact and error entries after them, and has no
effect at all. closeSession has no body in 3.4 and 3.5, and a vector of the deleted paths since 3.6.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput

HEADER_SIZE = 32
DIGEST_SIZE = 12


class TxnType(enum.IntEnum):
    """The codes of ZooDefs.OpCode that occur in logs, with names as ZooKeeper prints them."""

    create = 1
    delete = 2
    setData = 5
    setACL = 7
    check = 13
    multi = 14
    create2 = 15
    reconfig = 16
    createContainer = 19
    deleteContainer = 20
    createTTL = 21
    error = -1
    createSession = -10
    closeSession = -11


@dataclass(frozen=True, slots=True)
class Acl:
    """One access right. perms: bits (1 read, 2 write, 4 create, 8 delete, 16 admin)."""

    perms: int
    scheme: str
    id: str


@dataclass(frozen=True, slots=True)
class TxnHeader:
    """The header of a transaction.

    session: the session that sent the request. time_ms: milliseconds since 1970 by the leader's clock.
    """

    session: int
    cxid: int
    zxid: int
    time_ms: int
    type: TxnType


@dataclass(frozen=True, slots=True)
class CreateTxn:
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    ephemeral: bool
    parent_cversion: int


@dataclass(frozen=True, slots=True)
class CreateContainerTxn:
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    parent_cversion: int


@dataclass(frozen=True, slots=True)
class CreateTTLTxn:
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    parent_cversion: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class DeleteTxn:
    path: str


@dataclass(frozen=True, slots=True)
class SetDataTxn:
    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetACLTxn:
    path: str
    acl: tuple[Acl, ...]
    version: int


@dataclass(frozen=True, slots=True)
class CheckVersionTxn:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class ErrorTxn:
    err: int


@dataclass(frozen=True, slots=True)
class CreateSessionTxn:
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSessionTxn:
    """The end of a session.

    paths: the ephemerals deleted with the session; None if the log does not name them (3.4, 3.5).
    """

    paths: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SubTxn:
    """One operation of a multi. It has no zxid of its own."""

    type: TxnType
    body: TxnBody


@dataclass(frozen=True, slots=True)
class MultiTxn:
    txns: tuple[SubTxn, ...]

    @property
    def failed(self) -> bool:
        """Whether an entry is an error, so that no other entry took effect."""
        return any(sub.type is TxnType.error for sub in self.txns)


TxnBody = (
    CreateTxn
    | CreateContainerTxn
    | CreateTTLTxn
    | DeleteTxn
    | SetDataTxn
    | SetACLTxn
    | CheckVersionTxn
    | ErrorTxn
    | CreateSessionTxn
    | CloseSessionTxn
    | MultiTxn
)


@dataclass(frozen=True, slots=True)
class TxnDigest:
    """The digest of the complete tree after a transaction, as a signed long."""

    version: int
    tree_digest: int


@dataclass(frozen=True, slots=True)
class Txn:
    header: TxnHeader
    body: TxnBody
    digest: TxnDigest | None


def read_acl(src: JuteInput) -> tuple[Acl, ...]:
    """Read a vector of ACL items; null and empty both give ()."""
    return tuple(Acl(src.int32(), src.string(), src.string()) for _ in range(src.count(12)))


def _close_session(src: JuteInput) -> CloseSessionTxn:
    # Without a body a digest may follow, whose first int is its version, 2. Twelve bytes of paths start with
    # a count of 1: two paths need more room.
    if src.remaining() == 0 or (src.remaining() == DIGEST_SIZE and src.peek_int() == 2):
        return CloseSessionTxn(None)
    return CloseSessionTxn(tuple(src.string() for _ in range(src.count(4))))


def _multi(src: JuteInput) -> MultiTxn:
    subs: list[SubTxn] = []
    for _ in range(src.count(8)):
        at = src.pos
        code = src.int32()
        raw = src.buffer()
        if raw is None or code not in IN_MULTI:
            raise MalformedError(f"a multi contains an operation of type {code}, which it cannot", offset=at)
        kind = TxnType(code)
        inner = JuteInput(raw)
        try:
            body = _BODIES[kind](inner)
        except MalformedError as error:
            raise MalformedError(error.reason, offset=at + 8 + (error.offset or 0)) from None
        # An observer applies a transaction while it logs it. Applying a failed multi turns the types of its
        # other operations into -1 in place: their old bodies then follow a -1 (seen with 3.5.8).
        if inner.remaining() and kind is not TxnType.error:
            raise MalformedError(f"{inner.remaining()} bytes follow the {kind.name} in a multi", offset=at)
        subs.append(SubTxn(kind, body))
    return MultiTxn(tuple(subs))


def _create(src: JuteInput) -> CreateTxn:
    return CreateTxn(src.string(), src.buffer(), read_acl(src), src.boolean(), src.int32())


def _delete(src: JuteInput) -> DeleteTxn:
    return DeleteTxn(src.string())


def _set_data(src: JuteInput) -> SetDataTxn:
    return SetDataTxn(src.string(), src.buffer(), src.int32())


_BODIES: dict[TxnType, Callable[[JuteInput], TxnBody]] = {
    TxnType.create: _create,
    TxnType.create2: _create,
    TxnType.createContainer: lambda src: CreateContainerTxn(
        src.string(), src.buffer(), read_acl(src), src.int32()
    ),
    TxnType.createTTL: lambda src: CreateTTLTxn(
        src.string(), src.buffer(), read_acl(src), src.int32(), src.int64()
    ),
    TxnType.delete: _delete,
    TxnType.deleteContainer: _delete,
    TxnType.setData: _set_data,
    TxnType.reconfig: _set_data,
    TxnType.setACL: lambda src: SetACLTxn(src.string(), read_acl(src), src.int32()),
    TxnType.check: lambda src: CheckVersionTxn(src.string(), src.int32()),
    TxnType.multi: _multi,
    TxnType.error: lambda src: ErrorTxn(src.int32()),
    TxnType.createSession: lambda src: CreateSessionTxn(src.int32()),
    TxnType.closeSession: _close_session,
}
IN_MULTI = frozenset({1, 2, 5, 13, 15, 19, 20, 21, -1})
KNOWN_TYPES = frozenset(int(kind) for kind in TxnType)


def decode_txn(payload: bytes) -> Txn:
    """Decode one record's payload. Raises MalformedError with the offset inside the payload."""
    src = JuteInput(payload)
    session, cxid, zxid, time_ms = src.int64(), src.int32(), src.int64(), src.int64()
    code = src.int32()
    if code not in KNOWN_TYPES:
        raise MalformedError(f"the transaction type {code} is unknown", offset=src.pos - 4)
    header = TxnHeader(session, cxid, zxid, time_ms, TxnType(code))
    body = _BODIES[header.type](src)
    digest: TxnDigest | None = None
    if src.remaining() == DIGEST_SIZE:
        digest = TxnDigest(src.int32(), src.int64())
    elif left := src.remaining():
        why = f"{left} bytes follow the {header.type.name}, but only 0 or {DIGEST_SIZE} may"
        raise MalformedError(why, offset=src.pos)
    return Txn(header, body, digest)
