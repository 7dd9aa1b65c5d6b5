"""The effect of a transaction: its operations, the znodes they concern, and who owns which ephemerals.

Every reader of a log uses these operations: `tree` (which adds what a create or delete does to the parent),
`delta`, `replay`, `contents`, `log_writers`, and `Owned`. They are those of `txn`, in order, with their type:

| transaction | operations |
|---|---|
| create, delete, setData, reconfig, setACL, createSession | itself |
| multi | its own except checks; none at all where one of them is an error |
| closeSession | for each ephemeral of the session a delete, of type closeSession; then itself |
| error, check | none |

The ephemerals of a closing session are those that the log names (3.6 and later; 3.4 and 3.5 name none) and
those that the session is known to own. Their order means nothing; here it is the log's, then by path.

**ephemeralOwner** says who deletes a znode, as a signed long:

| who | value | set by |
|---|---|---|
| nobody | 0 | create |
| a session | any other | create of an ephemeral |
| the server: a container | 1 << 63 | createContainer |
| the server: a TTL znode | the bytes ff 00 00, then 5 bytes of ms | createTTL |

A server with these extended types gives no session an id that looks like one of the last two.

Sources: DataTree.processTxn and killSession, PrepRequestProcessor and EphemeralType of Apache ZooKeeper.
`spark.sources.columns` and the jobs of `spark` repeat parts for many records at once; tests compare them with
this module over random logs and logs of real servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

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
"""Requested by a client, or by a server for a container or a TTL znode."""

WRITES = (TxnType.setData, TxnType.reconfig)
"""They carry data and create nothing."""

CONTAINER_OWNER = -(1 << 63)
TTL_OWNER = -(1 << 56)
"""The mark of a TTL znode; its milliseconds are the lower bits."""

SESSIONS = (range(1, 1 << 63), range(CONTAINER_OWNER + 1, TTL_OWNER))
"""The ephemeralOwners that are sessions."""

SYSTEM_ROOT = "/zookeeper"
_WITHOUT_EFFECT = (TxnType.check, TxnType.error)
_OF_A_PATH = (SetDataTxn, CreateTxn, DeleteTxn, SetACLTxn, CreateContainerTxn, CreateTTLTxn)


# --- paths


def is_under(path: str, root: str) -> bool:
    """Whether `path` is `root` or below it, by whole path elements. Everything is under "/"."""
    return root == "/" or path == root or path.startswith(root + "/")


def is_part(path: str, root: str) -> bool:
    """Whether `path` belongs to the subtree at `root`: `/zookeeper`, which is each server's own, belongs to
    none that does not begin in it."""
    return is_under(path, root) and (not is_under(path, SYSTEM_ROOT) or is_under(root, SYSTEM_ROOT))


def parent_of(path: str) -> str:
    """The path one element up; "/" is its own."""
    return path.rpartition("/")[0] or "/"


# --- owners


def is_session(owner: int) -> bool:
    """Whether an ephemeralOwner is a session: not 0, no container, no TTL."""
    return owner != 0 and (owner in SESSIONS[0] or owner in SESSIONS[1])


def owner_of(create: CreateTxn | CreateContainerTxn | CreateTTLTxn, session: int) -> int:
    """The ephemeralOwner of what a session creates."""
    match create:
        case CreateTxn():
            return session if create.ephemeral else 0
        case CreateContainerTxn():
            return CONTAINER_OWNER
        case CreateTTLTxn():
            return TTL_OWNER | create.ttl_ms


@dataclass(slots=True)
class Owned:
    """Which session owns which ephemerals at and under `root`, updated by each transaction."""

    root: str = "/"
    _paths: dict[int, set[str]] = field(default_factory=dict)
    _owner: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_owners(cls, owners: Mapping[int, Collection[str]], root: str) -> Owned:
        """owners: session → its ephemerals."""
        found = cls(root)
        for session, paths in owners.items():
            for path in paths:
                found.add(path, session)
        return found

    def add(self, path: str, session: int) -> None:
        """An ephemeral was created."""
        self.drop(path)
        self._owner[path] = session
        self._paths.setdefault(session, set()).add(path)

    def drop(self, path: str) -> None:
        """A znode was deleted."""
        session = self._owner.pop(path, None)
        if session is not None:
            paths = self._paths[session]
            paths.discard(path)
            if not paths:
                del self._paths[session]

    def take(self, txn: Txn) -> tuple[Operation, ...]:
        """Apply the next transaction; its `operations`."""
        found = operations(txn, self)
        for _, body in found:
            if isinstance(body, DeleteTxn):
                self.drop(body.path)
            elif isinstance(body, CreateTxn) and body.ephemeral and is_under(body.path, self.root):
                self.add(body.path, txn.header.session)
        return found

    def paths(self, session: int) -> Set[str]:
        """The ephemerals of a session."""
        return self._paths.get(session, frozenset())

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """Session → its ephemerals, sorted."""
        return {session: tuple(sorted(paths)) for session, paths in sorted(self._paths.items())}


# --- operations

Operation = tuple[TxnType, TxnBody]


def operations(txn: Txn, owned: Owned | None = None) -> tuple[Operation, ...]:
    """The operations of a transaction. owned: before it, for what 3.4 and 3.5 do not log."""
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
    """What an operation does to one znode. deletes: the znode is gone afterwards."""

    path: str
    type: TxnType
    deletes: bool


def changes(found: Iterable[Operation]) -> tuple[PathChange, ...]:
    """Every znode that the operations change, in order."""
    return tuple(
        [
            PathChange(body.path, kind, isinstance(body, DeleteTxn))
            for kind, body in found
            if isinstance(body, _OF_A_PATH)
        ]
    )


def path_changes(txn: Txn) -> tuple[PathChange, ...]:
    """Every znode that the transaction names as changed; not what a closeSession of 3.4 or 3.5 deletes."""
    return changes(operations(txn))


def touched_paths(txn: Txn) -> tuple[str, ...]:
    """The paths of `path_changes`."""
    return tuple(change.path for change in path_changes(txn))


def touches(change: PathChange, root: str) -> bool:
    """Whether the change concerns the subtree at `root`: at or under it, or the deletion of an ancestor."""
    return is_under(change.path, root) or (change.deletes and is_under(root, change.path))
