"""Transactions of dest after the cut-over, as requests with the same effect on source.

Both trees were equal at one zxid. Each later transaction in dest's log becomes requests with the same effect
on path, data, ACL and versions of the persistent znodes. Each request names the version that it expects.
Zxids, times and sessions cannot be carried to another ensemble.

Ephemerals belong to sessions of dest, which source does not have. Only one effect of ephemerals lasts: their
creation advances the number for sequential names in their parent (its cversion, see `tree`). So an ephemeral
becomes a znode that is created and deleted at once. TTL znodes and containers are refused: a server deletes
those by itself.

The fingerprint covers the repr of `Again` and its requests: a renamed class or field changes it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from zkmigrate.zookeeper.data.chroot import Chroot, is_under
from zkmigrate.zookeeper.data.effect import (
    Owned,
    changes,
    is_session,
    path_changes,
    touches,
)
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import records_after, walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.tree import Znode
from zkmigrate.zookeeper.data.txn import (
    Acl,
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    SetACLTxn,
    SetDataTxn,
    TxnBody,
    TxnType,
)
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD, Record
from zkmigrate.zookeeper.data.zxid import format_zxid, parse_zxid

MARKER = "zkmigrate-replay"


def marker_of(chroot: Chroot) -> str:
    """Return the path of the znode with the replay's progress, on the ensemble that receives the requests."""
    return f"{chroot.prefix}/{MARKER}"


@dataclass(frozen=True)
class Mark:
    """The progress of a replay, stored in a znode.

    done: the zxid of dest's newest replayed transaction; before the first one, the zxid of the cut.
    fingerprint: a hash of all requests up to `done`, which identifies the replay. consent: the person who
    agreed to the replay. version: how many transactions are replayed, from the znode's version. created: the
    znode's czxid.
    """

    done: int
    fingerprint: str
    consent: str
    version: int = 0
    created: int = 0

    def encode(self) -> bytes:
        """Return the mark as the data of its znode."""
        body = {"done": format_zxid(self.done), "fingerprint": self.fingerprint, "consent": self.consent}
        return json.dumps(body, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes, version: int, created: int) -> Self:
        """Read a mark from the znode's data and stat. Raises ValueError for a znode that is not a mark."""
        try:
            body = json.loads(data)
            done = parse_zxid(body["done"])
            return cls(done, str(body["fingerprint"]), str(body["consent"]), version, created)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the znode does not record a replay: {error!r}") from None


class ReplayError(ZkDataError):
    """A transaction that cannot be replayed elsewhere, or that does not fit the tree's state before it."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a persistent znode."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """Create a znode and delete it at once, so that its parent's cversion grows as for an ephemeral."""

    path: str
    acl: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode. version: the znode's version before the request."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class SetData:
    """Set the data of a znode. version: the znode's version before the request."""

    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Set the ACL of a znode. aversion: the znode's aversion before the request."""

    path: str
    acl: tuple[Acl, ...]
    aversion: int


Request: TypeAlias = Create | Count | Delete | SetData | SetAcl


@dataclass(frozen=True, slots=True)
class Again:
    """One transaction of dest, as at least one request, in order. session: the sender's session on dest."""

    zxid: int
    time_ms: int
    session: int
    requests: tuple[Request, ...]


@dataclass(slots=True)
class _Known:
    """The state of one znode at the current place in the log."""

    version: int
    aversion: int
    ephemeral: bool


class Replay(Iterator[Again]):
    """An iterator over the transactions after `after` with a lasting effect in the subtree, as requests.

    logs: dest's `version-2`. at_cut: the znodes that `needed_paths` names, as they were at `after`, by path;
    znodes that did not exist are absent. owners: the ephemerals of each session at `after`.

    `upto` is the newest zxid read. `under` counts the transactions that changed the subtree; `passed` counts
    those among them that have no lasting effect. `next` raises ReplayError, CorruptError for a hole in the
    log after `after`, and the errors of `LogWalk`.
    """

    def __init__(
        self,
        logs: Directory,
        *,
        chroot: Chroot,
        after: int,
        at_cut: Mapping[str, Znode],
        owners: Mapping[int, Collection[str]],
        max_record: int = MAX_RECORD,
    ) -> None:
        self._chroot = chroot
        self._records = records_after(logs, after, max_record=max_record)
        self._known = {
            path: _Known(node.version, node.aversion, is_session(node.ephemeral_owner))
            for path, node in at_cut.items()
        }
        self._owned = Owned.from_owners(owners, chroot)
        self._sum = hashlib.sha256(f"{chroot}\n{after:x}\n".encode("utf-8", "surrogatepass"))
        self.upto = after
        self.under = self.passed = 0

    @property
    def fingerprint(self) -> str:
        """A hash of all requests so far, as 32 hex digits."""
        return self._sum.hexdigest()[:32]

    def __next__(self) -> Again:
        for record in self._records:
            self.upto = record.zxid
            again = self._take(record)
            if again is not None:
                self._sum.update(repr(again).encode("utf-8", "surrogatepass"))
                return again
        raise StopIteration

    def _take(self, record: Record) -> Again | None:
        found = self._owned.take(record.txn())
        if not [change for change in changes(found) if touches(change, self._chroot)]:
            return None
        self.under += 1
        try:
            requests = tuple([request for one in found for request in self._request(*one)])
        except ReplayError as error:
            raise ReplayError(
                f"{format_zxid(record.zxid)}: {error.reason}", record.file, record.offset
            ) from None
        if not requests:
            self.passed += 1
            return None
        return Again(record.zxid, record.time_ms, record.session, requests)

    def _request(self, kind: TxnType, body: TxnBody) -> Iterator[Request]:
        match body:
            case DeleteTxn() if kind is TxnType.closeSession:
                self._known.pop(body.path, None)
            case DeleteTxn() if body.path != self._chroot.path and is_under(self._chroot.path, body.path):
                raise ReplayError(f"{body.path}, which is above {self._chroot}, was deleted")
            case CreateTxn() if self._chroot.holds(body.path):
                yield self._create(body)
            case CreateContainerTxn() | CreateTTLTxn() if self._chroot.holds(body.path):
                kind_of = "container" if isinstance(body, CreateContainerTxn) else "TTL znode"
                raise ReplayError(f"{body.path} was created as a {kind_of}, which cannot be replayed")
            case DeleteTxn() if self._chroot.holds(body.path):
                was = self._existing(body.path, "deleted")
                del self._known[body.path]
                if not was.ephemeral:
                    yield Delete(body.path, was.version)
            case SetDataTxn() if self._chroot.holds(body.path):
                was = self._existing(body.path, "written to")
                _check_next(body.path, "version", was.version, body.version)
                was.version = body.version
                if not was.ephemeral:
                    yield SetData(body.path, body.data, body.version - 1)
            case SetACLTxn() if self._chroot.holds(body.path):
                was = self._existing(body.path, "given an ACL")
                _check_next(body.path, "aversion", was.aversion, body.version)
                was.aversion = body.version
                if not was.ephemeral:
                    yield SetAcl(body.path, body.acl, body.version - 1)

    def _create(self, body: CreateTxn) -> Request:
        if body.path in self._known:
            raise ReplayError(f"{body.path} was created, but it already existed")
        self._known[body.path] = _Known(0, 0, body.ephemeral)
        if body.ephemeral:
            return Count(body.path, body.acl)
        return Create(body.path, body.data, body.acl)

    def _existing(self, path: str, what: str) -> _Known:
        known = self._known.get(path)
        if known is None:
            raise ReplayError(f"{path} was {what}, but it does not exist")
        return known


def _check_next(path: str, field_name: str, was: int, becomes: int) -> None:
    if becomes != was + 1:
        raise ReplayError(f"{path} got {field_name} {becomes}, but the next one is {was + 1}")


def needed_paths(
    logs: Directory, *, chroot: Chroot, after: int, max_record: int = MAX_RECORD
) -> frozenset[str]:
    """Return the paths of the subtree that the log after `after` changes. Raises the errors of `LogWalk`."""
    found: set[str] = set()
    for record in walk(logs, after=after, max_record=max_record):
        if record.zxid > after:
            found.update(c.path for c in path_changes(record.txn()) if chroot.holds(c.path))
    return frozenset(found)


@dataclass(slots=True)
class Tally:
    """Counts over a replay.

    kinds: how many requests of each class, by the class's name. paths: the paths that the requests name.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    paths: set[str] = field(default_factory=set)

    def take(self, again: Again) -> None:
        """Add one transaction to the counts."""
        self.transactions += 1
        self.paths.update(request.path for request in again.requests)
        self.kinds.update(type(request).__name__ for request in again.requests)
