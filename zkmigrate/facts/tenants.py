"""Who is a client of an ensemble beside the brokers and the operator: other tenants, tools, old consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.facts.clients import addresses, numeric
from zkmigrate.facts.sockets import plain, sockets
from zkmigrate.inventory import Inventory
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.look import Look
from zkmigrate.zkdata.words import Connection, Dump

LISTED = 5


@dataclass(frozen=True)
class Tenant:
    """One client address. at: the hosts of the ensemble that it is connected to. sessions: how many it has,
    None where only sockets could be seen. owns: its ephemerals, anywhere in the tree."""

    address: str
    at: tuple[str, ...]
    sessions: int | None
    owns: tuple[str, ...]

    def words(self, first: tuple[str, ...] = ()) -> str:
        """Its sessions and what they own, in short. first: paths of its own to name before the others."""
        count = self.sessions
        what = "connected" if count is None else "1 session" if count == 1 else f"{count} sessions"
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
    """Who is a client of dest and will be none of Kafka's: every session but the brokers' and the operator's,
    which has the canary's too. A dest host's own addresses count only where a session shows: its peers and
    probes connect without one."""
    own = {a for host in inventory.dest.hosts for a in addresses(host)}
    own |= {a for text in ("127.0.0.1", "::1") for a in numeric(text)}
    return _others(
        inventory, look, inventory.dest_names, inventory.dest.ports.client, set(), own, cons, dumps
    )


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
    owned = {
        s: paths for d in dumps.values() if isinstance(d, Seen) for s, paths in d.value.ephemerals.items()
    }
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
