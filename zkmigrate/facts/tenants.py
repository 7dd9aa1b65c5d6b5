"""Who is a client of an ensemble beside the brokers and the operator: other tenants, tools, old consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.facts.clients import addresses, numeric
from zkmigrate.facts.properties import properties_of
from zkmigrate.facts.sockets import plain, sockets
from zkmigrate.inventory import Broker, Inventory
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look
from zkmigrate.zkdata.words import Connection, Dump

LISTED = 5


@dataclass(frozen=True)
class Tenant:
    """One client address. at: the hosts of the ensemble that it is connected to. sessions: how many it has,
    None where only sockets could be seen. owns: its ephemerals, anywhere in the tree. beside: the broker of
    this address, whose own sessions do not count."""

    address: str
    at: tuple[str, ...]
    sessions: int | None
    owns: tuple[str, ...]
    beside: str = ""

    def words(self, first: tuple[str, ...] = ()) -> str:
        """Its sessions and what they own, in short. first: paths of its own to name before the others."""
        count = self.sessions
        what = "connected" if count is None else "1 session" if count == 1 else f"{count} sessions"
        what += f" beside {self.beside}'s own" if self.beside else ""
        owns = (*first, *(path for path in self.owns if path not in first))
        more = f" and {len(owns) - LISTED} more" if len(owns) > LISTED else ""
        named = f"owns {', '.join(owns[:LISTED])}{more}" if owns else "owns nothing"
        return f"{what} on {', '.join(self.at)}, {named}"


@dataclass(frozen=True)
class Tenants:
    """found: by address. unknown: hosts whose clients could not be seen, with the reason."""

    found: tuple[Tenant, ...]
    unknown: tuple[str, ...]


def tenants(
    inventory: Inventory,
    look: Look,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Tenants:
    """Who else is a client of source, as :func:`_others` tells."""
    ours = {a for text in ("127.0.0.1", "::1") for a in numeric(text)}
    return _others(
        inventory, look, inventory.source_names, inventory.source.ports.client, ours, ours, cons, dumps
    )


def foreign_clients(
    inventory: Inventory,
    look: Look,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Tenants:
    """Who is a client of dest and will be none of Kafka's: every session but the brokers' own and the
    operator's, which has the canary's too. A dest host's own addresses count only where a session shows: its
    peers and probes connect without one."""
    own = {a for host in inventory.dest.hosts for a in addresses(host)}
    own |= {a for text in ("127.0.0.1", "::1") for a in numeric(text)}
    others = _others(
        inventory, look, inventory.dest_names, inventory.dest.ports.client, set(), own, cons, dumps
    )
    found, unknown = list(others.found), list(others.unknown)
    for broker in inventory.kafka.brokers:
        beside = _beside(inventory, look, broker, cons, dumps)
        found += [beside.value] if isinstance(beside, Seen) else []
        unknown += [f"{broker.name}: {beside.why}"] if isinstance(beside, Unknown) else []
    return Tenants(tuple(found), tuple(unknown))


def _beside(
    inventory: Inventory,
    look: Look,
    broker: Broker,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Reading[Tenant]:
    """Who else has sessions on dest from a broker's host, by ``cons`` and ``dump``; Absent for nobody.

    The broker's own are the one that registered it and, where it has an authorizer, one more that owns
    nothing. Without ``cons`` nobody can tell its sessions from others: the gate of the cut-over needs it.
    """
    at: dict[int, list[str]] = {}
    from_: dict[int, str] = {}
    for host in inventory.dest_names:
        reading = cons[host]
        for c in reading.value if isinstance(reading, Seen) else ():
            if c.session is not None and plain(c.address) in addresses(broker):
                at.setdefault(c.session, []).append(host)
                from_[c.session] = plain(c.address)
    owned, kafka = _owned(dumps), inventory.kafka
    more = [s for s in sorted(at) if f"{kafka.chroot}/brokers/ids/{broker.id}" not in owned.get(s, ())]
    if more and not any(isinstance(d, Seen) for d in dumps.values()):
        return Unknown("failed", f"dump: {next(iter(dumps.values()), 'not asked')}")
    if silent := [s for s in more if not owned.get(s)]:
        properties = properties_of(look.file(broker.name, kafka.config), kafka.config)
        if not isinstance(properties, Seen):
            return Unknown("failed", f"{kafka.config}, whether it has an authorizer: {properties}")
        if properties.value.get("authorizer.class.name", "").strip():
            more.remove(silent[0])
    if not more:
        return Absent("nobody")
    hosts = tuple(dict.fromkeys(host for s in more for host in at[s]))
    owns = tuple(path for s in more for path in owned.get(s, ()))
    return Seen(Tenant(from_[more[0]], hosts, len(more), owns, broker.name))


def _owned(dumps: Mapping[str, Reading[Dump]]) -> dict[int, tuple[str, ...]]:
    """Every session that owns ephemerals, and which, by all servers that told."""
    return {
        s: paths for d in dumps.values() if isinstance(d, Seen) for s, paths in d.value.ephemerals.items()
    }


def _others(
    inventory: Inventory,
    look: Look,
    hosts: tuple[str, ...],
    port: int,
    ours: set[str],
    ours_by_socket: set[str],
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Tenants:
    """By ``cons`` of every host, or its socket list where it does not give that; ``dump`` tells what a
    session owns. A connection without a session, such as a four-letter word of a monitor, is no client.

    ours, ours_by_socket: addresses to leave out beside the brokers' and the operator's, in either list.
    """
    known = {plain(address) for address in inventory.operator}
    known |= {a for broker in inventory.kafka.brokers for a in addresses(broker)}
    at: dict[str, list[str]] = {}
    sessions: dict[str, set[int]] = {}
    unknown: list[str] = []
    blind = {host for host in hosts if not isinstance(cons[host], Seen)}
    listed = look.each(sorted(blind), lambda host: sockets(look, host))
    for host in hosts:
        reading = cons[host]
        if isinstance(reading, Seen):
            for c in reading.value:
                if c.session is not None and plain(c.address) not in known | ours:
                    at.setdefault(plain(c.address), []).append(host)
                    sessions.setdefault(plain(c.address), set()).add(c.session)
        elif isinstance(of_host := listed[host], Seen):
            for peer in {s.peer for s in of_host.value if s.local_port == port} - known - ours_by_socket:
                at.setdefault(peer, []).append(host)
        else:
            unknown.append(f"{host}: cons: {reading}; ss: {of_host}")
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


UNASKED = Tenants((), ("not looked at for this gate",))
