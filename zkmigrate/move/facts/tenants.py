"""Find clients of an ensemble other than the members and the operator: tenants, tools, old consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.hosts.facts.sockets import normalized, sockets
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rules.connect import chroot_in
from zkmigrate.move.dependent import AnyDependent, Member
from zkmigrate.move.facts.after_move import broker_connect
from zkmigrate.move.facts.connections import addresses, connections_of, numeric
from zkmigrate.move.facts.sessions import dumps_of
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump, parse_wchp
from zkmigrate.zookeeper.facts.ensemble import answer

LISTED = 5


@dataclass(frozen=True)
class Tenant:
    """One client address of an ensemble.

    at: the hosts to which it is connected. sessions: the number of its sessions, None if only sockets could
    be seen. owns: its ephemerals, anywhere in the tree. beside: the member that has the same address, or
    empty; the member's own sessions are not counted.
    """

    address: str
    at: tuple[str, ...]
    sessions: int | None
    owns: tuple[str, ...]
    beside: str = ""

    def words(self, first: tuple[str, ...] = ()) -> str:
        """Return the client's sessions and their ephemerals as text. first: the paths to name first."""
        count = self.sessions
        what = "connected" if count is None else "1 session" if count == 1 else f"{count} sessions"
        what += f" in addition to those of {self.beside}" if self.beside else ""
        owns = (*first, *(path for path in self.owns if path not in first))
        more = f" and {len(owns) - LISTED} more" if len(owns) > LISTED else ""
        named = f"owns {', '.join(owns[:LISTED])}{more}" if owns else "owns no ephemeral"
        return f"{what} on {', '.join(self.at)}, {named}"


@dataclass(frozen=True)
class Tenants:
    """The clients of an ensemble other than the members and the operator.

    found: the clients, sorted by address. unknown: hosts whose clients could not be seen, with the reason.
    """

    found: tuple[Tenant, ...]
    unknown: tuple[str, ...]


def tenants(
    inventory: Inventory,
    dependent: AnyDependent,
    look: Look,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Tenants:
    """Find the clients of source other than the members and the operator.

    cons, dumps: the answers of each source host, except one that is known to be down.
    """
    ours = {a for text in ("127.0.0.1", "::1") for a in numeric(text)}
    ports = inventory.source.ports.clients
    hosts = tuple(host for host in inventory.source_names if host in cons)
    return _others(inventory, dependent, look, hosts, ports, ours, ours, cons, dumps)


def foreign_clients(
    inventory: Inventory,
    dependent: AnyDependent,
    look: Look,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Tenants:
    """Find every session on dest that belongs neither to the members nor to the operator.

    The canary counts as the operator. A dest host's own address is reported only if it has a session: the
    host's peers and probes connect without a session. cons, dumps: the answers of each dest host.
    """
    own = {a for host in inventory.dest.hosts for a in addresses(host)}
    own |= {a for text in ("127.0.0.1", "::1") for a in numeric(text)}
    ports = inventory.dest.ports.clients
    others = _others(inventory, dependent, look, inventory.dest_names, ports, set(), own, cons, dumps)
    found, unknown = list(others.found), list(others.unknown)
    for member in dependent.members(inventory):
        beside = _beside(inventory, dependent, look, member, cons, dumps)
        found += [beside.value] if isinstance(beside, Seen) else []
        unknown += [f"{member.name}: {beside.why}"] if isinstance(beside, Unknown) else []
    return Tenants(tuple(found), tuple(unknown))


def _beside(
    inventory: Inventory,
    dependent: AnyDependent,
    look: Look,
    member: Member,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Reading[Tenant]:
    """Find clients with sessions on dest that share a member's host; Absent if there are none.

    ``cons`` and ``dump`` show these clients. The sessions that own ephemerals claimed by the member are the
    member's own. So are as many sessions without ephemerals as the member is known to have. Without ``cons``
    the member's sessions cannot be distinguished from other sessions; the gate of the cut-over requires
    ``cons``.
    """
    at: dict[int, list[str]] = {}
    from_: dict[int, str] = {}
    for host in inventory.dest_names:
        reading = cons[host]
        for c in reading.value if isinstance(reading, Seen) else ():
            if c.session is not None and normalized(c.address) in addresses(member):
                at.setdefault(c.session, []).append(host)
                from_[c.session] = normalized(c.address)
    owned = _owned(dumps)
    more = [s for s in sorted(at) if not dependent.claims(inventory, member.name, owned.get(s, ()))]
    if more and not any(isinstance(d, Seen) for d in dumps.values()):
        return Unknown("failed", f"dump: {next(iter(dumps.values()), 'not read')}")
    if silent := [s for s in more if not owned.get(s)]:
        idle = dependent.idle_sessions(inventory, look, member.name)
        if not isinstance(idle, Seen):
            return Unknown("failed", idle.why if isinstance(idle, Unknown) else str(idle))
        more = [s for s in more if s not in silent[: idle.value]]
    if not more:
        return Absent("no other client")
    hosts = tuple(dict.fromkeys(host for s in more for host in at[s]))
    owns = tuple(path for s in more for path in owned.get(s, ()))
    return Seen(Tenant(from_[more[0]], hosts, len(more), owns, member.name))


def _owned(dumps: Mapping[str, Reading[Dump]]) -> dict[int, tuple[str, ...]]:
    """Return session → the paths of its ephemerals, from all servers that answered."""
    return {
        s: paths for d in dumps.values() if isinstance(d, Seen) for s, paths in d.value.ephemerals.items()
    }


def _others(
    inventory: Inventory,
    dependent: AnyDependent,
    look: Look,
    hosts: tuple[str, ...],
    ports: tuple[int, ...],
    ours: set[str],
    ours_by_socket: set[str],
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Tenants:
    """Find the clients of these hosts other than the members and the operator.

    ``cons`` of every host is used, or the socket list of a host that does not answer ``cons``. A connection
    without a session, such as a monitor's four-letter word, is not a client. ours: more addresses to leave
    out of the answers to ``cons``. ours_by_socket: more addresses to leave out of the socket lists.
    """
    known = {normalized(address) for address in inventory.operator}
    known |= {a for member in dependent.members(inventory) for a in addresses(member)}
    at: dict[str, list[str]] = {}
    sessions: dict[str, set[int]] = {}
    unknown: list[str] = []
    blind = {host for host in hosts if not isinstance(cons[host], Seen)}
    listed = look.each(sorted(blind), lambda host: sockets(look, host))
    for host in hosts:
        reading = cons[host]
        if isinstance(reading, Seen):
            for c in reading.value:
                if c.session is not None and normalized(c.address) not in known | ours:
                    at.setdefault(normalized(c.address), []).append(host)
                    sessions.setdefault(normalized(c.address), set()).add(c.session)
        elif isinstance(found := listed[host], Seen):
            for peer in {s.peer for s in found.value if s.local_port in ports} - known - ours_by_socket:
                at.setdefault(peer, []).append(host)
        else:
            unknown.append(f"{host}: cons: {reading}; ss: {found}")
    owned = _owned(dumps)
    return Tenants(
        tuple(
            Tenant(
                address,
                tuple(dict.fromkeys(hosts)),
                len(sessions[address]) if address in sessions else None,
                tuple(path for s in sorted(sessions.get(address, ())) for path in owned.get(s, ())),
            )
            for address, hosts in sorted(at.items())
        ),
        tuple(unknown),
    )


UNASKED = Tenants((), ("not read for this gate",))


@dataclass(frozen=True)
class Users:
    """The users of dest, as all of its servers showed them in one look.

    watches: host → path → sessions with a watch; no server shows watches on a list of children. clients: the
    clients that are neither brokers nor the operator. chroots: broker → its chroot.
    """

    watches: Mapping[str, Reading[Mapping[str, tuple[int, ...]]]]
    clients: Tenants
    chroots: Mapping[str, Reading[str]]


def users(inventory: Inventory, dependent: AnyDependent, look: Look) -> Users:
    """Read which clients use dest, from every dest server and from every broker's config file."""
    hosts = inventory.dest_names
    cons = connections_of(look, hosts)
    dumps = dumps_of(look, hosts)
    return Users(
        look.each(hosts, lambda host: answer(look, host, "wchp", parse_wchp)),
        foreign_clients(inventory, dependent, look, cons, dumps),
        look.each(inventory.broker_names, lambda name: _chroot(inventory, look, name)),
    )


def _chroot(inventory: Inventory, look: Look, broker: str) -> Reading[str]:
    connect = broker_connect(inventory, look, broker)
    return Seen(chroot_in(connect.value)) if isinstance(connect, Seen) else connect
