"""Check the claims that must hold after the move: about dest, the brokers, and remaining users of source.

If a host does not answer, the claims about it are unknown, and an unknown claim does not pass. A source
server that refuses the connection has answered: it does not serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from zkmigrate.hosts.facts.host_names import resolver
from zkmigrate.inventory.accept import WRITES, Accept
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rules.connect import others_than, registration
from zkmigrate.move.facts.after_move import NOT_READ, AfterMove, NewWrites, is_reformed
from zkmigrate.move.facts.connections import addresses
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, meanings
from zkmigrate.zookeeper.data.session import format_session, unsigned
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.ensemble import EnsembleView

LISTED = 5
_POINT_TO_DEST = "restart this broker with zookeeper.connect naming dest"


def findings(inventory: Inventory, seen: AfterMove, known: Accept | None = None) -> tuple[Finding, ...]:
    """Return the findings about all claims, judged by the facts of one look.

    known: the writes to source that a person has accepted; source's log was read from their zxid on.
    """
    return (
        _dest(seen),
        *_registered(inventory, seen),
        *_configured(inventory, seen),
        *_left_source(inventory, seen),
        _owners(inventory, seen),
        _writes(seen, known),
    )


def written_lines(written: NewWrites, addresses: Mapping[int, str]) -> tuple[str, ...]:
    """Return the changes under the chroot as text, one line each.

    addresses: session on source → the address of its client.
    """
    return tuple(
        f"{c.type} {c.path or '(session opened)'} by session {format_session(c.session)}"
        + (f" of {addresses[unsigned(c.session)]}" if unsigned(c.session) in addresses else "")
        + f" at {format_zxid(c.zxid)}"
        for c in written.changes
    )


def _dest(seen: AfterMove) -> Finding:
    modes = seen.dest.modes()
    text = ", ".join(f"{host} {mode}" for host, mode in modes.items())
    servers = seen.dest.servers.items()
    answering = [host for host, r in servers if not isinstance(r, Unknown) or r.cause == "refused"]
    kinds = sorted(modes[host] for host in answering)
    needed = f"1 leader, {len(modes) - 1} followers, all in sync"
    held: bool | None
    if kinds and set(kinds) == {"observer"}:
        needed = "every dest host observes source, or all are an ensemble of their own"
        held = True if len(answering) == len(modes) else None
    elif set(kinds) - {"leader", "follower"} or kinds.count("leader") > 1:
        held = False
    elif len(answering) < len(modes):
        held = None
    else:
        synced = seen.leader.value.synced_followers if isinstance(seen.leader, Seen) else None
        text += f"; {synced if synced is not None else 'an unknown number'} in sync"
        held = False if "leader" not in kinds else None if synced is None else synced == len(modes) - 1
    return claim(
        "watch.dest",
        "every dest host serves",
        held,
        seen=text,
        needed=needed,
        moves=("start the dest host that does not serve, and find out why it stopped",),
    )


def _registered(inventory: Inventory, seen: AfterMove) -> Iterator[Finding]:
    owners = seen.dest_owners.value.owners if isinstance(seen.dest_owners, Seen) else {}
    owned = {path for paths in owners.values() for path in paths}
    for broker in inventory.kafka.brokers:
        path = registration(inventory.kafka.prefix, broker.id)
        unknown = not isinstance(seen.dest_owners, Seen)
        yield claim(
            "watch.registered",
            "the broker is registered on dest",
            None if unknown else path in owned,
            seen=str(seen.dest_owners) if unknown else path if path in owned else f"no {path}",
            needed=path,
            target=broker.name,
            moves=("start this broker, or find out where it is connected",),
        )


def _configured(inventory: Inventory, seen: AfterMove) -> Iterator[Finding]:
    for host, reading in seen.connect.items():
        resolve = resolver(seen.resolved, host, addresses(inventory.broker(host)))
        connect = reading.value if isinstance(reading, Seen) else ""
        strange, unknown = others_than(inventory.dest.hosts, connect, resolve, host)
        yield claim(
            "watch.config",
            "the broker's file names only dest hosts",
            None if not isinstance(reading, Seen) else False if strange else None if unknown else True,
            seen="; ".join((connect, *unknown)) if isinstance(reading, Seen) else str(reading),
            needed="only dest hosts, because the next restart connects to the hosts in this file",
            target=host,
            moves=("put the dest hosts back into zookeeper.connect before this broker restarts",),
            cause=reading.cause if isinstance(reading, Unknown) else "",
        )


def _left_source(inventory: Inventory, seen: AfterMove) -> Iterator[Finding]:
    unknown = seen.clients.unknown
    for broker in inventory.kafka.brokers:
        where = seen.clients.members[broker.name]
        yield claim(
            "watch.left-source",
            "the broker is not a client of source",
            False if where else None if unknown else True,
            seen=", ".join(where) or "; ".join(unknown) or "not connected to source",
            needed="no connection to source",
            target=broker.name,
            moves=(_POINT_TO_DEST,)
            if where
            else ("allow cons on source, or let the ssh account run ss on source or on the brokers",),
        )


def _owners(inventory: Inventory, seen: AfterMove) -> Finding:
    """Check that no session on source owns ephemerals under the chroot.

    Sessions that moved to dest are not counted: they stay in source's list until they expire there.
    """
    held: bool | None
    if isinstance(seen.source_owners, Seen):
        moved = seen.dest_owners.value.owners if isinstance(seen.dest_owners, Seen) else {}
        ids = {unsigned(session) for session in moved}
        strays = {
            unsigned(s): p for s, p in seen.source_owners.value.owners.items() if unsigned(s) not in ids
        }
        held = not strays
        if strays and not isinstance(seen.dest_owners, Seen):
            held = None  # They may be the sessions that moved.
        text = _listed(
            f"session {format_session(s)} of {seen.at_source.get(s, 'a client that cons does not list')}: "
            f"{', '.join(paths[:LISTED])}"
            for s, paths in sorted(strays.items())
        )
    else:
        held = True if _none_serves(seen.source) else None
        text = "no source server serves" if held else str(seen.source_owners)
    return claim(
        "watch.strays",
        "no session on source owns an ephemeral under the chroot",
        held,
        seen=text or "none",
        needed=f"no such session under {inventory.kafka.chroot}",
        moves=("point this client to dest, or stop it",),
    )


def _writes(seen: AfterMove, known: Accept | None) -> Finding:
    reading = seen.written
    writes = partial(claim, WRITES, "no client writes under the chroot on source")
    if not is_reformed(seen.dest):
        text = "not checked yet: dest still observes source and receives every write from it"
        return writes(None, seen=text, severity=Severity.INFO)
    if reading == NOT_READ:
        return writes(None, seen=f"source's log was not read: {NOT_READ.what}", severity=Severity.INFO)
    if isinstance(reading, Seen):
        written, last = reading.value, format_zxid(reading.value.upto.zxid)
        acceptance = f"accept {WRITES} with target {last} in migration.yml"
        if found := written_lines(written, seen.at_source):
            moves = (f"find the client, point it to dest and repeat its writes there; then {acceptance}",)
            return writes(False, seen=_listed(found), needed="none", target=last, moves=moves)
        if written.unproved:
            moves = (f"compare source with dest under the chroot; then {acceptance}",)
            return writes(None, seen=written.unproved, needed="none", target=last, moves=moves)
        text = f"none from {format_zxid(written.since)} to {last}, by {written.upto.host}"
        return writes(True, seen=f"{text}; the earlier writes are {known.words}" if known else text)
    stopped = _none_serves(seen.source)
    text = "no source server serves" if stopped else str(reading)
    return writes(True if stopped else None, seen=text, needed="none")


def _none_serves(view: EnsembleView) -> bool:
    """Return whether every server refused the connection or answered that it has no quorum."""
    return all(
        isinstance(r, Absent) or (isinstance(r, Unknown) and r.cause == "refused")
        for r in view.servers.values()
    )


def _listed(found: Iterable[str]) -> str:
    lines = list(found)
    more = f"; and {len(lines) - LISTED} more" if len(lines) > LISTED else ""
    return "; ".join(lines[:LISTED]) + more


MEANINGS = meanings(
    """
    watch.dest: A dest host does not serve, or dest has no leader with all followers in sync. Cause: A server
    stopped, or cannot reach the other servers. To do: Start the dest host that does not serve. Its log shows
    why it stopped.

    watch.registered: A broker is not registered on dest. Cause: It is down, or connected elsewhere. To
    do: Start this broker, or find out where it is connected.

    watch.config: A broker's file names a host that is not a dest host. Cause: Configuration management or
    a person put an old file back. At its next restart the broker would connect there. To do: Put the dest
    hosts back into zookeeper.connect before this broker restarts.

    watch.left-source: A broker is a client of source. Cause: It restarted with an old file, which splits
    the cluster. To do: Restart this broker with zookeeper.connect naming dest. If this is unknown, allow
    cons or ss on source.

    watch.strays: A client of source owns ephemerals under the chroot. Cause: A broker or a tool still
    uses source. To do: Point this client to dest, or stop it.

    watch.writes: A client wrote under the chroot on source after the move, or source's log cannot show
    whether one did. Cause: A tool still has source's addresses. Its writes are missing on dest. To do:
    Find the client and point it to dest. Repeat its writes there, then accept this finding in
    migration.yml.
    """
)
