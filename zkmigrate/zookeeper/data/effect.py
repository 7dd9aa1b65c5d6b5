"""The effect of a transaction: its operations, the znodes that they change, and the owners of ephemerals.

Every reader of a log uses these operations: `tree` (which adds what a create or delete does to the parent),
`delta`, `replay`, `contents`, `log_writers`, and `Owned`. An operation is a type and a body of `txn`:

| transaction | operations |
|---|---|
| create, delete, setData, reconfig, setACL, createSession | itself |
| multi | its own except checks; none at all if one of them is an error |
| closeSession | for each ephemeral of the session a delete, of type closeSession; then itself |
| error, check | none |

The ephemerals of a closing session are those that the log names (3.6 and later; 3.4 and 3.5 name none) and
those that the session is known to own. The order of these deletes has no meaning: first those in the log, in
its order, then the others by path.

**ephemeralOwner** says, as a signed long, what deletes a znode without a request:

| deleted by | value | set by |
|---|---|---|
| only a request | 0 | create |
| a session | any other | create of an ephemeral |
| the server: a container | 1 << 63 | createContainer |
| the server: a TTL znode | the bytes ff 00 00, then 5 bytes of ms | createTTL |

A server with these extended types gives no session an id that looks like one of the last two.

Sources: DataTree.processTxn and killSession, PrepRequestProcessor and EphemeralType of Apache ZooKeeper.
`spark.sources.columns` and the jobs of `spark` repeat parts of this for many records at once. Tests compare
them with this module over random logs and logs of real servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from zkmigrate.zookeeper.data.chroot import WHOLE_TREE, Chroot, is_under
from zkmigrate.zookeeper.data.txn import (
    CloseSessionTxn,
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    MultiTxn,
    SetACLTxn,
    SetDataTxn,
    Txn,
    TxnBody,
    TxnType,
)

CREATES = (TxnType.create, TxnType.create2, TxnType.createContainer, TxnType.createTTL)
DELETES = (TxnType.delete, TxnType.deleteContainer)
"""Deletes requested by a client, or by a server for a container or a TTL znode."""

WRITES = (TxnType.setData, TxnType.reconfig)
"""Types that carry data and create nothing."""

CONTAINER_OWNER = -(1 << 63)
TTL_OWNER = -(1 << 56)
"""The high bits of ephemeralOwner that mark a TTL znode. The lower bits hold the TTL in milliseconds."""

SESSIONS = (range(1, 1 << 63), range(CONTAINER_OWNER + 1, TTL_OWNER))
"""The ranges of ephemeralOwner values that are session ids."""

_WITHOUT_EFFECT = (TxnType.check, TxnType.error)
_OF_A_PATH = (SetDataTxn, CreateTxn, DeleteTxn, SetACLTxn, CreateContainerTxn, CreateTTLTxn)


# --- paths


def parent_of(path: str) -> str:
    """Return the path one element up. The parent of "/" is "/"."""
    return path.rpartition("/")[0] or "/"


# --- owners


def is_session(owner: int) -> bool:
    """Return whether an ephemeralOwner is a session: neither 0, a container, nor a TTL."""
    return owner != 0 and (owner in SESSIONS[0] or owner in SESSIONS[1])


def owner_of(create: CreateTxn | CreateContainerTxn | CreateTTLTxn, session: int) -> int:
    """Return the ephemeralOwner of a znode that a session creates."""
    match create:
        case CreateTxn():
            return session if create.ephemeral else 0
        case CreateContainerTxn():
            return CONTAINER_OWNER
        case CreateTTLTxn():
            return TTL_OWNER | create.ttl_ms


@dataclass(slots=True)
class Owned:
    """The sessions that own ephemerals of a chroot, updated by each transaction."""

    chroot: Chroot = WHOLE_TREE
    _paths: dict[int, set[str]] = field(default_factory=dict)
    _owner: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_owners(cls, owners: Mapping[int, Collection[str]], chroot: Chroot) -> Owned:
        """Create the state from known owners. owners: the paths of each session's ephemerals."""
        found = cls(chroot)
        for session, paths in owners.items():
            for path in paths:
                found.add(path, session)
        return found

    def add(self, path: str, session: int) -> None:
        """Record that a session created the ephemeral at `path`."""
        self.drop(path)
        self._owner[path] = session
        self._paths.setdefault(session, set()).add(path)

    def drop(self, path: str) -> None:
        """Record that the znode at `path` was deleted."""
        session = self._owner.pop(path, None)
        if session is not None:
            paths = self._paths[session]
            paths.discard(path)
            if not paths:
                del self._paths[session]

    def take(self, txn: Txn) -> tuple[Operation, ...]:
        """Apply the next transaction and return its `operations`."""
        found = operations(txn, self)
        for _, body in found:
            if isinstance(body, DeleteTxn):
                self.drop(body.path)
            elif isinstance(body, CreateTxn) and body.ephemeral and self.chroot.holds(body.path):
                self.add(body.path, txn.header.session)
        return found

    def paths(self, session: int) -> Set[str]:
        """Return the paths of a session's ephemerals."""
        return self._paths.get(session, frozenset())

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """The paths of each session's ephemerals, sorted."""
        return {session: tuple(sorted(paths)) for session, paths in sorted(self._paths.items())}


# --- operations

Operation = tuple[TxnType, TxnBody]


def operations(txn: Txn, owned: Owned | None = None) -> tuple[Operation, ...]:
    """Return the operations of a transaction.

    owned: the owners of ephemerals before the transaction. They supply the deletes by a closeSession, which
    ZooKeeper 3.4 and 3.5 do not log.
    """
    kind, body = txn.header.type, txn.body
    match body:
        case MultiTxn():
            if body.failed:
                return ()
            return tuple((sub.type, sub.body) for sub in body.txns if sub.type not in _WITHOUT_EFFECT)
        case CloseSessionTxn():
            named = body.paths or ()
            more = sorted(owned.paths(txn.header.session) - set(named)) if owned is not None else ()
            return *((kind, DeleteTxn(path)) for path in (*named, *more)), (kind, body)
        case _:
            return () if kind in _WITHOUT_EFFECT else ((kind, body),)


@dataclass(frozen=True, slots=True)
class PathChange:
    """The change of one znode by an operation. deletes: whether the operation deletes the znode."""

    path: str
    type: TxnType
    deletes: bool


def changes(found: Iterable[Operation]) -> tuple[PathChange, ...]:
    """Return a change for every znode that the operations change, in order."""
    return tuple(
        [
            PathChange(body.path, kind, isinstance(body, DeleteTxn))
            for kind, body in found
            if isinstance(body, _OF_A_PATH)
        ]
    )


def path_changes(txn: Txn) -> tuple[PathChange, ...]:
    """Return a change for every znode that the transaction names as changed.

    Znodes that a closeSession of 3.4 or 3.5 deletes are not named, so they are not included.
    """
    return changes(operations(txn))


def touched_paths(txn: Txn) -> tuple[str, ...]:
    """Return the path of every znode that the transaction names as changed (see `path_changes`)."""
    return tuple(change.path for change in path_changes(txn))


def touches(change: PathChange, chroot: Chroot) -> bool:
    """Return whether a change concerns a chroot.

    It does if its znode is part of the chroot, or if it deletes an ancestor of the chroot's path.
    """
    return chroot.holds(change.path) or (change.deletes and is_under(chroot.path, change.path))
