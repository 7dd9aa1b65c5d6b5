"""Who owns which ephemerals under the chroot: a small state that the window updates without reading the tree.

ARM takes it from the whole tree (O(tree), outside the window); inside the window log records roll it forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from zkmigrate.runbook.model.step_record import Hex
from zkmigrate.zookeeper.data.effect import Owned, changes, is_under, touches
from zkmigrate.zookeeper.data.txn import CloseSessionTxn, CreateSessionTxn, CreateTxn, DeleteTxn
from zkmigrate.zookeeper.data.txnlog import Record


@dataclass(frozen=True)
class Ephemeral:
    """One ephemeral znode: the session that owns it and its czxid."""

    owner: Hex
    czxid: Hex


@dataclass(frozen=True)
class Ownership:
    """State under ``chroot`` as of ``upto``.

    newest: the largest zxid of a transaction that touches the chroot or a session that owns part of it.
    timeouts: session → timeout in milliseconds, every open session."""

    chroot: str
    upto: Hex
    newest: Hex
    ephemerals: Mapping[str, Ephemeral] = field(default_factory=dict)
    timeouts: Mapping[Hex, int] = field(default_factory=dict)

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """Session → the paths that it owns under the chroot, sorted."""
        result: dict[int, list[str]] = {}
        for path, ephemeral in self.ephemerals.items():
            result.setdefault(ephemeral.owner, []).append(path)
        return {owner: tuple(sorted(paths)) for owner, paths in result.items()}

    @property
    def smallest_timeout_ms(self) -> int | None:
        """T: the smallest timeout of the sessions that own ephemerals under the chroot; None without any."""
        return min((self.timeouts[owner] for owner in self.owners if owner in self.timeouts), default=None)

    def kept(self, keeps: Callable[[str], bool]) -> Ownership:
        """The same, with only those ephemerals that must keep owner and czxid."""
        return replace(self, ephemerals={path: e for path, e in self.ephemerals.items() if keeps(path)})

    @property
    def without_timeout(self) -> tuple[int, ...]:
        """Owners of ephemerals under the chroot whose timeout is not known: T may be smaller."""
        return tuple(sorted(owner for owner in self.owners if owner not in self.timeouts))


def replayed(state: Ownership, records: Iterable[Record], upto: int | None = None) -> Ownership:
    """The state after these records; those at or below the state, and above ``upto``, are ignored."""
    owned = Owned.from_owners(state.owners, state.chroot)
    ephemerals = dict(state.ephemerals)
    timeouts = dict(state.timeouts)
    newest, last = state.newest, state.upto
    for record in records:
        if record.zxid <= last or (upto is not None and record.zxid > upto):
            continue
        last = record.zxid
        operations = owned.take(record.txn())
        if any(touches(change, state.chroot) for change in changes(operations)):
            newest = record.zxid
        for _, body in operations:
            match body:
                case CreateSessionTxn():
                    timeouts[record.session] = body.timeout_ms
                case CloseSessionTxn():
                    timeouts.pop(record.session, None)
                case CreateTxn() if body.ephemeral and is_under(body.path, state.chroot):
                    ephemerals[body.path] = Ephemeral(record.session, record.zxid)
                case DeleteTxn():
                    ephemerals.pop(body.path, None)
    return Ownership(state.chroot, last, newest, ephemerals, timeouts)
