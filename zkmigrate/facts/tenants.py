"""Who is a client of source beside the brokers and the operator: other tenants, tools, old consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.facts.clients import addresses, numeric
from zkmigrate.facts.sockets import plain, sockets
from zkmigrate.inventory import Inventory
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.look import Look
from zkmigrate.zkdata.words import Connection, Dump


@dataclass(frozen=True)
class Tenant:
    """One client address. at: the source hosts that it is connected to. sessions: how many it has, None where
    only sockets could be seen. owns: its ephemerals, anywhere in source's tree."""

    address: str
    at: tuple[str, ...]
    sessions: int | None
    owns: tuple[str, ...]


@dataclass(frozen=True)
class Tenants:
    """found: by address. unknown: source hosts whose clients could not be seen, with the reason."""

    found: tuple[Tenant, ...]
    unknown: tuple[str, ...]


def tenants(
    inventory: Inventory,
    look: Look,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
    dumps: Mapping[str, Reading[Dump]],
) -> Tenants:
    """By ``cons`` of every source host, or its socket list where it does not give that; ``dump`` tells what a
    session owns. A connection without a session, such as a four-letter word of a monitor, is no client."""
    ours = {plain(address) for address in inventory.operator}
    ours |= {a for broker in inventory.kafka.brokers for a in addresses(broker)}
    ours |= {a for text in ("127.0.0.1", "::1") for a in numeric(text)}
    at: dict[str, list[str]] = {}
    sessions: dict[str, set[int]] = {}
    unknown: list[str] = []
    blind = {host for host in inventory.source_names if not isinstance(cons[host], Seen)}
    listed = look.each(sorted(blind), lambda host: sockets(look, host))
    for host in inventory.source_names:
        reading = cons[host]
        if isinstance(reading, Seen):
            for c in reading.value:
                if c.session is not None and plain(c.address) not in ours:
                    at.setdefault(plain(c.address), []).append(host)
                    sessions.setdefault(plain(c.address), set()).add(c.session)
        elif isinstance(of_host := listed[host], Seen):
            port = inventory.source.ports.client
            for peer in {s.peer for s in of_host.value if s.local_port == port} - ours:
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
