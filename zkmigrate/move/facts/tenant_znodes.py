"""Read the znodes of dest outside every chroot, which belong to source's other tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.tenants import Users, users
from zkmigrate.move.questions import ReadCut, ReadTree
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.chroot import is_under

KEPT = "/zookeeper"
"""ZooKeeper's own subtree, which holds its config and quotas."""


@dataclass(frozen=True)
class Outside:
    """The part of dest that lies outside every chroot.

    cut: the last zxid that dest had from source. users: the clients that use dest. paths: the topmost
    subtrees, sorted. at: the time of the look, in seconds since the epoch.
    """

    cut: Reading[int]
    users: Users
    paths: tuple[str, ...]
    at: float


def look_outside(c: Context, look: Look, dependent: AnyDependent, move: str) -> Outside:
    """Find the subtrees of dest outside every chroot, and the users of dest.

    move: the id of the move's run.
    """
    using = users(c.inventory, dependent, look)
    own = dependent.chroot(c.inventory)
    others = {reading.value for reading in using.chroots.values() if isinstance(reading, Seen)}
    chroots = {*own.roots, *(others - {own.path})}
    names = {
        path: [name for node in look.ask(ReadTree(path, deep=False)) for name in node.names]
        for path in ancestors(chroots)
    }
    return Outside(look.ask(ReadCut(move)), using, outside(names, chroots), look.wall())


def outside(children: Mapping[str, Sequence[str]], chroots: Collection[str]) -> tuple[str, ...]:
    """Return the topmost subtrees that neither hold a chroot nor lie in a chroot, sorted.

    ``/zookeeper`` is left out. children: path → the names of its children, for ``/`` and every ancestor of a
    chroot.
    """
    kept = (KEPT, *chroots)
    paths = (f"{parent.rstrip('/')}/{name}" for parent, names in children.items() for name in names)
    return tuple(sorted(p for p in paths if not any(is_under(p, root) or is_under(root, p) for root in kept)))


def ancestors(chroots: Collection[str]) -> tuple[str, ...]:
    """Return ``/`` and every znode above a chroot, the topmost first."""
    above = {"/"}
    for chroot in chroots:
        parts = chroot.strip("/").split("/")[:-1]
        above |= {"/" + "/".join(parts[: n + 1]) for n in range(len(parts))}
    return tuple(sorted(above))
