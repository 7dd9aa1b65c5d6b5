"""Decide which subtrees of other tenants may be deleted from dest after a move.

Dest begins as a copy of source's whole tree, so it also holds what lies outside every Kafka chroot. Such a
subtree may be deleted if no session owns, watches or writes it, as shown by all dest servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from zkmigrate.move.facts.tenants import Tenants
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, meanings
from zkmigrate.zookeeper.data.effect import CONTAINER_OWNER, is_session, is_under
from zkmigrate.zookeeper.data.session import format_session, signed
from zkmigrate.zookeeper.data.txn import Acl
from zkmigrate.zookeeper.data.zxid import format_zxid

KEPT = "/zookeeper"
"""ZooKeeper's own subtree: its config, and the quotas of others."""

ACCEPTABLE = ("clean-up.watches", "clean-up.clients", "clean-up.chroots", "clean-up.children")
"""Findings that a person may accept: what the tool cannot see. A use that was seen can never be accepted."""

_DELETE = 1 << 3
_ANYBODY = ("world", "ip")
_NAMED = 3
_NO_DELETE = "{}: its ACL lets this client delete no child"


@dataclass(frozen=True)
class Node:
    """A znode without its data.

    owner: its ephemeralOwner, also of a container or a TTL znode. acl: None if this client may not read the
    znode. changed_ms: its mtime.
    """

    path: str
    czxid: int
    mzxid: int
    pzxid: int
    version: int
    owner: int
    size: int
    changed_ms: int
    children: int
    acl: tuple[Acl, ...] | None

    @property
    def mark(self) -> tuple[int, int, int]:
        """A value that differs after each change of the znode itself, except of its ACL."""
        return self.czxid, self.mzxid, self.version


@dataclass(frozen=True)
class Subtree:
    """A subtree of dest.

    newest: its largest zxid. changed_ms: its newest mtime. owned: path and session of each ephemeral,
    container or TTL znode. written: znodes that dest created or changed after the cut. children: znodes that
    changed after the cut only by the deletion of a child. locked: why znodes cannot be read, kept or deleted.
    """

    path: str
    znodes: int
    bytes: int
    newest: int
    changed_ms: int
    owned: tuple[tuple[str, int], ...] = ()
    written: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()


Marks = Mapping[str, tuple[int, int, int]]
"""Path → ``Node.mark``."""


def subtree_of(
    path: str, nodes: Iterable[Node], above: Node, cut: int | None, known: Marks | None = None
) -> Subtree:
    """Summarize these znodes as a subtree.

    above: the parent of its top. cut: the last zxid that dest had from source; None if it is not known.
    known: marks that an interrupted clean-up recorded. Its deletes changed the parents' pzxid, so each znode
    is compared with its recorded mark; one without a mark is new.
    """
    znodes = size = newest = changed_ms = 0
    owned: list[tuple[str, int]] = []
    written: list[str] = []
    children: list[str] = []
    locked = [] if above.acl is not None and may_delete_in(above.acl) else [_NO_DELETE.format(above.path)]
    for node in nodes:
        znodes, size = znodes + 1, size + node.size
        newest = max(newest, node.czxid, node.mzxid, node.pzxid)
        changed_ms = max(changed_ms, node.changed_ms)
        if node.owner:
            owned.append((node.path, node.owner))
        if known is not None:
            written += [node.path] if known.get(node.path) != node.mark else []
        elif cut is not None and max(node.czxid, node.mzxid) > cut:
            written.append(node.path)
        elif cut is not None and node.pzxid > cut:
            children.append(node.path)
        locked += _locks(node)
    return Subtree(
        path, znodes, size, newest, changed_ms, tuple(owned), tuple(written), tuple(children), tuple(locked)
    )


def _locks(node: Node) -> Iterable[str]:
    if node.acl is None:
        yield f"{node.path}: no ACL lets this client read it"
        return
    if node.children and not may_delete_in(node.acl):
        yield _NO_DELETE.format(node.path)
    if any(one.scheme == "digest" and one.id.endswith(":x") for one in node.acl):
        yield f"{node.path}: its ACL is shown without the digest, so it cannot be put back"


def may_delete_in(acl: Sequence[Acl]) -> bool:
    """Return whether a client without an identity may delete children of a znode with this ACL.

    An ACL by address may mean another address; then the server refuses.
    """
    return any(one.scheme in _ANYBODY and one.perms & _DELETE for one in acl)


def outside(children: Mapping[str, Sequence[str]], chroots: Collection[str]) -> tuple[str, ...]:
    """Return the topmost subtrees that hold no chroot and lie in none, sorted, without ``/zookeeper``.

    children: path → names below it, of ``/`` and of every ancestor of a chroot.
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


def dest_findings(
    watches: Mapping[str, Reading[Mapping[str, tuple[int, ...]]]],
    clients: Tenants,
    chroots: Mapping[str, Reading[str]],
) -> tuple[Finding, ...]:
    """Check dest as a whole before any deletion.

    watches: dest host → path → sessions. chroots: broker → its chroot.
    """
    return (
        *(_watches(host, reading) for host, reading in watches.items()),
        *_clients(clients),
        *(_chroot(broker, reading) for broker, reading in chroots.items()),
    )


def _watches(host: str, reading: Reading[Mapping[str, tuple[int, ...]]]) -> Finding:
    return claim(
        "clean-up.watches",
        "the server shows which znodes are watched",
        True if isinstance(reading, Seen) else None,
        target=host,
        seen=f"{len(reading.value)} znodes" if isinstance(reading, Seen) else str(reading),
        needed="an answer to wchp",
        moves=(
            "add wchp to 4lw.commands.whitelist in its zoo.cfg and restart that server",
            f"--accept clean-up.watches:{host}, where every session of dest is known",
        ),
    )


def _clients(clients: Tenants) -> Iterable[Finding]:
    sentence = "every session on dest is a broker's or the operator's"
    needed = "no other client: no server shows watches on lists of children"
    for tenant in clients.found:
        yield claim(
            "clean-up.clients",
            sentence,
            False,
            target=tenant.address,
            seen=tenant.words(),
            needed=needed,
            moves=(
                "move this client away, or stop it",
                f"--accept clean-up.clients:{tenant.address}, where its owner says that it uses none of this",
            ),
        )
    for text in clients.unknown:
        yield claim(
            "clean-up.clients",
            sentence,
            None,
            target=text.partition(":")[0],
            seen=text,
            needed=needed,
            moves=("allow cons in dest's 4lw.commands.whitelist, or let the ssh account run ss",),
        )
    if not clients.found and not clients.unknown:
        yield claim("clean-up.clients", sentence, True, seen="no other client", needed=needed)


def _chroot(broker: str, reading: Reading[str]) -> Finding:
    known = isinstance(reading, Seen)
    return claim(
        "clean-up.chroots",
        "the broker's chroot on dest is known",
        True if known else None,
        target=broker,
        seen=reading.value if isinstance(reading, Seen) else str(reading),
        needed="zookeeper.connect of its server.properties",
        moves=(
            "let the ssh account read that file",
            f"--accept clean-up.chroots:{broker}, where it uses the inventory's chroot",
        ),
    )


def subtree_findings(
    tree: Subtree, cut: int | None, watches: Mapping[str, Reading[Mapping[str, tuple[int, ...]]]]
) -> tuple[Finding, ...]:
    """Check whether this subtree may be deleted."""
    watched = sorted(
        {
            f"{path} by {', '.join(map(format_session, sessions))} on {host}"
            for host, reading in watches.items()
            if isinstance(reading, Seen)
            for path, sessions in reading.value.items()
            if is_under(path, tree.path)
        }
    )
    since = "" if cut is None else f" after {format_zxid(cut)}"
    return (
        _none(tree, "owned", "no session owns a znode of it", [_owned(*one) for one in tree.owned]),
        _none(tree, "watched", "no session watches a znode of it", watched),
        claim(
            "clean-up.cut",
            "the last zxid that dest had from source is known",
            True if cut is not None else None,
            target=tree.path,
            seen=since.strip() or "not in the journal",
            needed="the record of cutover.stop",
        ),
        _none(
            tree,
            "written",
            "nobody has written it on dest",
            tree.written,
            f"no znode made or changed{since}",
            ("find who writes there: zkmigrate writers", "leave it out: name the others by --subtree"),
        ),
        _none(
            tree,
            "children",
            "nobody has deleted a child on dest",
            tree.children,
            f"no child gone{since}. An ephemeral whose session ended after the cut leaves the same mark",
            (
                "see which it was: zkmigrate writers",
                f"--accept clean-up.children:{tree.path}, where those were ephemerals that ended",
            ),
        ),
        _none(
            tree,
            "locked",
            "its ACLs let this client read and delete it",
            tree.locked,
            moves=("let who holds those rights delete it",),
        ),
    )


def _none(
    tree: Subtree,
    what: str,
    sentence: str,
    found: Sequence[str],
    needed: str = "",
    moves: Sequence[str] = ("leave it out: name the others by --subtree",),
) -> Finding:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return claim(
        f"clean-up.{what}",
        sentence,
        not found,
        target=tree.path,
        seen=f"{'; '.join(found[:_NAMED])}{more}" if found else "none",
        needed=needed or "none",
        moves=moves,
    )


def _owned(path: str, owner: int) -> str:
    if signed(owner) == CONTAINER_OWNER:
        return f"{path} is a container"
    return f"{path} of session {format_session(owner)}" if is_session(signed(owner)) else f"{path} has a TTL"


def with_accepted(found: Iterable[Finding], wanted: Collection[str], who: str) -> tuple[Finding, ...]:
    """Return the findings, those that the operator accepts turned into warnings.

    wanted: the accepted ones, as ``ID:TARGET``. who: the person with the reason.
    """
    return tuple(
        replace(f, severity=Severity.WARN, accepted=who)
        if f.blocks and f.id in ACCEPTABLE and f"{f.id}:{f.target}" in wanted
        else f
        for f in found
    )


MEANINGS = meanings(
    """
    clean-up.watches: A dest server does not tell which znodes are watched. Cause: Its whitelist lacks
    wchp. To do: Add wchp to 4lw.commands.whitelist in its zoo.cfg and restart that server. Or accept it
    where every session of dest is known.

    clean-up.clients: A session on dest is neither a broker's nor the operator's. Cause: Another client
    uses dest. It may watch lists of children, which no server tells. To do: Move this client away or stop
    it. Or accept it where its owner says that it uses none of the subtree.

    clean-up.chroots: The chroot of a broker on dest is not known. Cause: zkmigrate cannot read the
    broker's server.properties. To do: Let the ssh account read that file. Or accept it where the broker
    uses the inventory's chroot.

    clean-up.owned: A session owns a znode of the subtree, or a znode is a container or has a TTL. Cause:
    Somebody uses the subtree on dest. To do: Leave the subtree out: name the others with --subtree.

    clean-up.watched: A session watches a znode of the subtree. Cause: Somebody uses the subtree on dest.
    To do: Leave the subtree out: name the others with --subtree.

    clean-up.cut: The journal does not hold the last zxid that dest had from source. Cause: The record of
    cutover.stop is lost. So nothing tells what dest wrote itself. To do: Put the journal back from a
    copy.

    clean-up.written: A client made or changed a znode of the subtree on dest. Cause: Somebody uses the
    subtree on dest. To do: Find the writer with zkmigrate writers. Or leave the subtree out.

    clean-up.children: A child of the subtree was deleted on dest after the cut. Cause: A client deleted
    it. An ephemeral whose session ended after the cut leaves the same mark. To do: See which it was:
    zkmigrate writers. Accept it where only ephemerals ended.

    clean-up.locked: An ACL of the subtree does not let this client read or delete. Cause: Its owner
    protects it. To do: Let its owner delete it.
    """
)
