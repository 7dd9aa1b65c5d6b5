"""Decide which subtrees of other tenants may be deleted from dest after a move.

Dest begins as a copy of source's whole tree, so it also holds znodes outside every Kafka chroot. A subtree of
such znodes may be deleted if all dest servers show that no session owns, watches or writes any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from zkmigrate.move.facts.tenants import Tenants, Users
from zkmigrate.move.questions import Node
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, claim, few, meanings
from zkmigrate.zookeeper.data.chroot import is_under
from zkmigrate.zookeeper.data.effect import CONTAINER_OWNER, is_session
from zkmigrate.zookeeper.data.session import format_session, signed
from zkmigrate.zookeeper.data.txn import Acl
from zkmigrate.zookeeper.data.zxid import format_zxid

_BATCH = 50
_BATCH_BYTES = 512 << 10
"""The most znodes that one transaction deletes, and the most bytes of their paths and data.

ZooKeeper refuses requests above jute.maxbuffer, 1 MiB by default.
"""

_CREATE, _DELETE = 1 << 2, 1 << 3
_ANYBODY = ("world", "ip")
_BUILT_IN = (*_ANYBODY, "digest")
"""The ACL schemes that every server knows. Another scheme needs a provider in the server's configuration."""

_LEAVE = "keep the subtree: remove it from leftovers.subtrees"
_NO_CHANGE = "{}: its ACL does not let this client delete and create a child"


@dataclass(frozen=True)
class Subtree:
    """A subtree of dest.

    - newest: the largest zxid of its znodes
    - changed_ms: their newest mtime
    - owned: path and session of each ephemeral, container or TTL znode
    - written: znodes that dest created or changed after the cut
    - children: znodes whose only change after the cut is that a child was deleted
    - locked: texts that say which znodes cannot be read, kept or deleted, and why
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


def subtree_of(
    path: str, nodes: Iterable[Node], above: Iterable[Node], cut: int, *, begun: bool = False
) -> Subtree:
    """Summarize the znodes of a subtree.

    above: the parent of the subtree's top znode, if it exists. cut: the last zxid that dest received from
    source. begun: whether this run has already deleted a part of the subtree, which changed the pzxid of the
    parents of deleted znodes.
    """
    znodes = size = newest = changed_ms = 0
    owned: list[tuple[str, int]] = []
    written: list[str] = []
    children: list[str] = []
    parent = path.rpartition("/")[0] or "/"
    locked = [] if any(may_change_in(one.acl or ()) for one in above) else [_NO_CHANGE.format(parent)]
    for node in nodes:
        znodes, size = znodes + 1, size + node.size
        newest = max(newest, node.czxid, node.mzxid, node.pzxid)
        changed_ms = max(changed_ms, node.changed_ms)
        if node.owner:
            owned.append((node.path, node.owner))
        if max(node.czxid, node.mzxid) > cut:
            written.append(node.path)
        elif node.pzxid > cut and not begun:
            children.append(node.path)
        locked += _locks(node)
    return Subtree(
        path, znodes, size, newest, changed_ms, tuple(owned), tuple(written), tuple(children), tuple(locked)
    )


def next_batch(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the last of these znodes: at least one, and as many as one transaction may delete.

    nodes: parents before their children.
    """
    last = nodes[-_BATCH:]
    size = 0
    for count, node in enumerate(reversed(last)):
        size += len(node.path) + node.size
        if count and size > _BATCH_BYTES:
            return last[-count:]
    return last


def _locks(node: Node) -> Iterable[str]:
    if node.acl is None:
        yield f"{node.path}: no ACL lets this client read it"
        return
    if node.children and not may_change_in(node.acl):
        yield _NO_CHANGE.format(node.path)
    if others := sorted({one.scheme for one in node.acl}.difference(_BUILT_IN)):
        yield f"{node.path}: its ACL uses the scheme {others[0]}, so dest may refuse to create it again"
    if any(one.scheme == "digest" and one.id.endswith(":x") for one in node.acl):
        yield f"{node.path}: its ACL is shown without the digest, so it cannot be put back"


def may_change_in(acl: Sequence[Acl]) -> bool:
    """Return whether a client without an identity may delete and create children of a znode with this ACL.

    The way back must be able to create the deleted znodes again. An ACL by address may allow only another
    client's address; then the server refuses the change.
    """
    granted = [one.perms for one in acl if one.scheme in _ANYBODY]
    return all(any(perms & needed for perms in granted) for needed in (_CREATE, _DELETE))


def dest_findings(cut: Reading[int], using: Users) -> tuple[Finding, ...]:
    """Check that dest as a whole permits deletions.

    cut: the last zxid that dest received from source. using: the clients that use dest.
    """
    return (
        claim(
            "clean-up.cut",
            "the last zxid that dest received from source is known",
            True if isinstance(cut, Seen) else None,
            seen=format_zxid(cut.value) if isinstance(cut, Seen) else str(cut),
            needed="the journal of the move that filled dest, in the directory of runs",
            moves=("correct leftovers.after_move", "copy that run's directory to this machine"),
        ),
        *(_watches(host, reading) for host, reading in using.watches.items()),
        *_clients(using.clients),
        *(_chroot(broker, reading) for broker, reading in using.chroots.items()),
    )


def _watches(host: str, reading: Reading[Mapping[str, tuple[int, ...]]]) -> Finding:
    return claim(
        "clean-up.watches",
        "the server shows which znodes are watched",
        isinstance(reading, Seen),
        target=host,
        seen=f"{len(reading.value)} znodes" if isinstance(reading, Seen) else str(reading),
        needed="an answer to wchp",
        moves=(
            "add wchp to 4lw.commands.whitelist in its zoo.cfg and restart that server",
            "accept it in migration.yml, if every session on dest is known",
        ),
    )


def _clients(clients: Tenants) -> Iterable[Finding]:
    sentence = "every session on dest is a broker's or the operator's"
    needed = "no other client, because no server shows watches on lists of children"
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
                "accept it in migration.yml, if its owner confirms that it does not use the subtrees",
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
    return claim(
        "clean-up.chroots",
        "the broker's chroot on dest is known",
        isinstance(reading, Seen),
        target=broker,
        seen=reading.value if isinstance(reading, Seen) else str(reading),
        needed="zookeeper.connect of its server.properties",
        moves=(
            "let the ssh account read that file",
            "accept it in migration.yml, if the broker uses the inventory's chroot",
        ),
    )


def subtree_findings(tree: Subtree, cut: int, using: Users) -> tuple[Finding, ...]:
    """Check whether this subtree may be deleted.

    cut: the last zxid that dest received from source. using: the clients that use dest.
    """
    watched = sorted(
        {
            f"{path} by {', '.join(map(format_session, sessions))} on {host}"
            for host, reading in using.watches.items()
            if isinstance(reading, Seen)
            for path, sessions in reading.value.items()
            if is_under(path, tree.path)
        }
    )
    since = format_zxid(cut)
    return (
        _none(tree, "owned", "no session owns a znode of the subtree", [_owned(*one) for one in tree.owned]),
        _none(tree, "watched", "no session watches a znode of the subtree", watched),
        _none(
            tree,
            "written",
            "no client has written to the subtree on dest",
            tree.written,
            f"no znode created or changed after {since}",
            ("find the writer: zkmigrate writers", _LEAVE),
        ),
        _none(
            tree,
            "children",
            "no client has deleted a child on dest",
            tree.children,
            f"no child deleted after {since}. An ephemeral whose session has ended since is counted too",
            (
                "find out whether a client deleted it: zkmigrate writers",
                "accept it in migration.yml, if only ephemerals ended",
            ),
        ),
        _none(
            tree,
            "locked",
            "the ACLs of the subtree let this client read and delete it",
            tree.locked,
            moves=("let an owner with these rights delete the subtree",),
        ),
    )


def summary(tree: Subtree) -> str:
    """Return a text with the path, size and age of a subtree."""
    changed = datetime.fromtimestamp(tree.changed_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"{tree.path}: {tree.znodes:,} znodes, {tree.bytes:,} bytes, last written {changed} (newest zxid "
        f"{format_zxid(tree.newest)})"
    )


def _none(
    tree: Subtree,
    what: str,
    sentence: str,
    wrong: Sequence[str],
    needed: str = "",
    moves: Sequence[str] = (_LEAVE,),
) -> Finding:
    return claim(
        f"clean-up.{what}",
        sentence,
        not wrong,
        target=tree.path,
        seen=few(wrong, 3) or "none",
        needed=needed or "none",
        moves=moves,
    )


def _owned(path: str, owner: int) -> str:
    if signed(owner) == CONTAINER_OWNER:
        return f"{path} is a container"
    return f"{path} of session {format_session(owner)}" if is_session(signed(owner)) else f"{path} has a TTL"


MEANINGS = meanings(
    """
    clean-up.watches: A dest server does not show which znodes are watched. Cause: Its whitelist lacks wchp.
    To do: Add wchp to 4lw.commands.whitelist in its zoo.cfg and restart that server. Or accept the finding if
    every session on dest is known.

    clean-up.clients: A session on dest is neither a broker's nor the operator's. Cause: Another client uses
    dest. It may watch lists of children, which no server shows. To do: Move this client away or stop it. Or
    accept the finding if the client's owner confirms that the client does not use the subtree.

    clean-up.chroots: The chroot of a broker on dest is not known. Cause: zkmigrate cannot read the broker's
    server.properties. To do: Let the ssh account read that file. Or accept the finding if the broker uses the
    inventory's chroot.

    clean-up.owned: A session owns a znode of the subtree, or a znode is a container or has a TTL. Cause:
    A client uses the subtree on dest. To do: Remove the subtree from leftovers.subtrees.

    clean-up.watched: A session watches a znode of the subtree. Cause: A client uses the subtree on dest.
    To do: Remove the subtree from leftovers.subtrees.

    clean-up.cut: The last zxid that dest received from source is not known. Cause: leftovers.after_move names
    no finished move of this inventory. Or its journal is not on this machine. To do: Correct
    leftovers.after_move, or copy the directory of that run here.

    clean-up.written: A client created or changed a znode of the subtree on dest. Cause: A client uses the
    subtree on dest. To do: Find the writer with zkmigrate writers. Or remove the subtree from
    leftovers.subtrees.

    clean-up.children: A child of the subtree was deleted on dest after the cut. Cause: A client deleted it.
    An ephemeral whose session ended after the cut looks the same. To do: Run zkmigrate writers to find out
    whether a client deleted it. Accept the finding if only ephemerals ended.

    clean-up.locked: An ACL of the subtree does not let this client read it, or delete it and create it
    again. Cause: Its owner protects it. To do: Let its owner delete it.
    """
)
