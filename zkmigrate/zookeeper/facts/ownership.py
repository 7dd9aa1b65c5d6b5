"""The owners of ephemerals under the chroot: a small state that the window updates without reading the tree.

The step ARM reads the state from the whole tree, which costs O(tree) outside the window. Inside the window it
is updated from log records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from zkmigrate.runbook.model.step_record import Hex
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.effect import Owned, changes, touches
from zkmigrate.zookeeper.data.txn import CloseSessionTxn, CreateSessionTxn, CreateTxn, DeleteTxn
from zkmigrate.zookeeper.data.txnlog import Record


@dataclass(frozen=True)
class Ephemeral:
    """The session that owns an ephemeral znode, and the znode's czxid."""

    owner: Hex
    czxid: Hex


@dataclass(frozen=True)
class Ownership:
    """The ownership of ephemerals under ``chroot`` at the zxid ``upto``.

    newest: the largest zxid of a transaction that touches the chroot or a session that owns ephemerals there.
    ephemerals: by path. timeouts: the timeout in milliseconds of every open session.
    """

    chroot: Annotated[Chroot, PlainValidator(Chroot.from_text), PlainSerializer(lambda chroot: chroot.text)]
    upto: Hex
    newest: Hex
    ephemerals: Mapping[str, Ephemeral] = field(default_factory=dict)
    timeouts: Mapping[Hex, int] = field(default_factory=dict)

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """The paths that each session owns under the chroot, sorted."""
        result: dict[int, list[str]] = {}
        for path, ephemeral in self.ephemerals.items():
            result.setdefault(ephemeral.owner, []).append(path)
        return {owner: tuple(sorted(paths)) for owner, paths in result.items()}

    @property
    def smallest_timeout_ms(self) -> int | None:
        """T: the smallest known timeout of the sessions that own ephemerals here; None if there is none."""
        return min((self.timeouts[owner] for owner in self.owners if owner in self.timeouts), default=None)

    def kept(self, keeps: Callable[[str], bool]) -> Ownership:
        """Return a copy with only those ephemerals that must keep their owner and czxid.

        keeps: returns whether the ephemeral at a path must keep its owner and czxid.
        """
        return replace(self, ephemerals={path: e for path, e in self.ephemerals.items() if keeps(path)})

    @property
    def without_timeout(self) -> tuple[int, ...]:
        """The owners of ephemerals whose session timeout is unknown. Such an owner may make T smaller."""
        return tuple(sorted(owner for owner in self.owners if owner not in self.timeouts))


def apply_records(state: Ownership, records: Iterable[Record], upto: int | None = None) -> Ownership:
    """Return the ownership after these log records.

    Records at or below ``state.upto``, and records above ``upto``, are ignored.
    """
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
                case CreateTxn() if body.ephemeral and state.chroot.holds(body.path):
                    ephemerals[body.path] = Ephemeral(record.session, record.zxid)
                case DeleteTxn():
                    ephemerals.pop(body.path, None)
    return Ownership(state.chroot, last, newest, ephemerals, timeouts)
