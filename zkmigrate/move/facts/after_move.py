"""Observe both ensembles and the brokers after a move, cheaply and without opening a session.

Four-letter words show dest and source. Each broker is read for its sockets and its server.properties.
Source's log shows every write under the chroot. It is read from one server's disk, starting where PROVE
stopped. A client that only reads does not appear in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from zkmigrate.hosts.facts.host_names import Resolved, resolve_all
from zkmigrate.hosts.facts.properties import properties
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rules.connect import hosts_in
from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.connections import SourceClients, connections_of, source_clients
from zkmigrate.move.facts.sessions import Sessions, dumps_of, sessions_of
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.delta import DeltaFinding, delta
from zkmigrate.zookeeper.data.four_letter_words import Mntr
from zkmigrate.zookeeper.data.session import unsigned
from zkmigrate.zookeeper.data.txnlog import Cursor
from zkmigrate.zookeeper.data.zxid import counter, format_zxid
from zkmigrate.zookeeper.facts.disk import directories, read_disk
from zkmigrate.zookeeper.facts.ensemble import EnsembleView, dest_view, mntr_of_leader, source_view

CONNECT = "zookeeper.connect"
NOT_READ = Absent("no run that let clients into dest has recorded where to start")


@dataclass(frozen=True)
class LogPosition:
    """A position in source's log.

    host: the host whose log it is. zxid: the last transaction that was read. cursor: the place in the log
    file, if known.
    """

    host: str
    zxid: int
    cursor: Cursor | None = None


@dataclass(frozen=True)
class NewWrites:
    """Changes under the chroot in source's log after the zxid ``since``.

    The list leaves out ephemerals that expired: either their session's own writes are listed, or the session
    has moved to dest. upto: where reading of the log ended. unproved: why some changes may be missing from
    the list, or empty.
    """

    since: int
    changes: tuple[DeltaFinding, ...]
    upto: LogPosition
    unproved: str = ""


@dataclass(frozen=True)
class AfterMove:
    """The facts of one look after the move.

    leader: ``mntr`` of dest's leader. source_owners, dest_owners: the sessions that own ephemerals under the
    chroot. at_source: session → the address of its client. clients: the clients connected to source. connect:
    broker → zookeeper.connect in its file. written: the changes in source's log; Absent if it was not read.
    resolved: for each broker, the addresses of the names in ``connect``.
    """

    source: EnsembleView
    dest: EnsembleView
    leader: Reading[Mntr]
    source_owners: Reading[Sessions]
    dest_owners: Reading[Sessions]
    at_source: Mapping[int, str]
    clients: SourceClients
    connect: Mapping[str, Reading[str]]
    written: Reading[NewWrites]
    resolved: Resolved = field(default_factory=dict)


def look_after_move(
    inventory: Inventory,
    dependent: AnyDependent,
    look: Look,
    position: LogPosition | None,
) -> AfterMove:
    """Read the state of dest, source and the brokers once.

    position: where to start reading source's log; None if the log is not to be read. While dest still
    observes source the log is not read either, because dest receives every write to source.
    """
    source, dest = source_view(inventory, look), dest_view(inventory, look)
    chroot = inventory.kafka.subtree
    cons = connections_of(look, inventory.source_names)
    owners = {
        names: sessions_of(dumps_of(look, names), {}, chroot)
        for names in (inventory.source_names, inventory.dest_names)
    }
    on_dest = owners[inventory.dest_names]
    listed = [c for reading in cons.values() if isinstance(reading, Seen) for c in reading.value]
    connect = look.each(inventory.broker_names, lambda host: broker_connect(inventory, look, host))
    named = {host: hosts_in(one.value) for host, one in connect.items() if isinstance(one, Seen)}
    return AfterMove(
        source=source,
        dest=dest,
        leader=mntr_of_leader(look, dest),
        source_owners=owners[inventory.source_names],
        dest_owners=on_dest,
        at_source={unsigned(c.session): c.address for c in listed if c.session},
        clients=source_clients(inventory, dependent, look, cons),
        connect=connect,
        written=_written(
            inventory, look, source, position, on_dest.value.owners if isinstance(on_dest, Seen) else {}
        )
        if position is not None and is_reformed(dest)
        else NOT_READ,
        resolved=resolve_all(look, named),
    )


def is_reformed(dest: EnsembleView) -> bool:
    """Return whether dest is an independent ensemble, no longer observers of source."""
    return "observer" not in dest.modes().values()


def broker_connect(inventory: Inventory, look: Look, host: str) -> Reading[str]:
    """Return ``zookeeper.connect`` from a broker's file."""
    reading = properties(look, host, inventory.kafka.config)
    if not isinstance(reading, Seen):
        return reading
    value = reading.value.get(CONNECT)
    return Absent(f"{CONNECT} in {inventory.kafka.config}") if value is None else Seen(value.strip())


def _written(
    inventory: Inventory,
    look: Look,
    source: EnsembleView,
    position: LogPosition,
    living: Mapping[int, Collection[str]],
) -> Reading[NewWrites]:
    """Read source's log from this position on.

    The log is read on the position's host if that host serves, otherwise on source's leader. living: session
    → the ephemerals it owns on dest.
    """
    serving = [host for host, reading in source.servers.items() if isinstance(reading, Seen)]
    if not serving:
        return Unknown("failed", "no source server reports that it serves")
    host = position.host if position.host in serving else source.leader or serving[0]
    _, logs = directories(look, host, inventory.source)
    shown = source.zxids()[host]

    def read() -> NewWrites:
        cursor = position.cursor if host == position.host else None
        if cursor is not None and cursor.file not in logs.names_with_sizes():
            cursor = None
        result = delta(
            logs,
            chroot=inventory.kafka.subtree,
            after=position.zxid,
            upto=None,
            owners=living,
            living=living.keys(),
            cursor=cursor,
        )
        # The server has logged what it shows, unless its zxid is only the beginning of an epoch.
        behind = result.last < shown and counter(shown) != 0
        short = f"{host} shows {format_zxid(shown)}, its log ends at {format_zxid(result.last)}"
        upto = LogPosition(host, max(result.last, position.zxid), result.cursor)
        changes = tuple(change for change in result.missing if not change.expiry)
        return NewWrites(position.zxid, changes, upto, result.unproved or (short if behind else ""))

    return read_disk(read, host)
