"""Find the clients connected to source, from ``cons`` or, without it, from the socket lists (``ss``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.hosts.facts.sockets import normalized, sockets
from zkmigrate.inventory.inventory import Inventory, ZooKeeperHost
from zkmigrate.move.dependent import AnyDependent, Member
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.four_letter_words import Connection, parse_cons
from zkmigrate.zookeeper.facts.ensemble import answer


@dataclass(frozen=True)
class SourceClients:
    """The clients connected to source.

    at: source host → client addresses, each once, without the operator's. members: member → where its
    connections to source were seen, empty if it has none. unknown: what could not be read. If ``unknown`` is
    not empty, an empty value in ``members`` does not prove that a member has left source.
    """

    at: Mapping[str, tuple[str, ...]]
    members: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]


def connections(look: Look, host: str) -> Reading[tuple[Connection, ...]]:
    """Return the connections of a ZooKeeper host, as its ``cons`` lists them."""
    return answer(look, host, "cons", parse_cons)


def connections_of(look: Look, hosts: Iterable[str]) -> dict[str, Reading[tuple[Connection, ...]]]:
    """Return the ``cons`` connections of several ZooKeeper hosts by host, requested at the same time."""
    return look.each(hosts, lambda host: connections(look, host))


def addresses(host: ZooKeeperHost | Member) -> frozenset[str]:
    """Return the numeric addresses of a host. Names are left out."""
    return frozenset(a for text in (host.address, *host.also) for a in numeric(text))


def numeric(text: str) -> tuple[str, ...]:
    """Return the normalized address as a tuple of one, or an empty tuple if the text is a host name."""
    try:
        return (normalized(text),)
    except ValueError:
        return ()


def source_clients(
    inventory: Inventory,
    dependent: AnyDependent,
    look: Look,
    cons: Mapping[str, Reading[tuple[Connection, ...]]],
) -> SourceClients:
    """Find the clients connected to source, from the answers of source's hosts and of the members.

    cons: the answer of every source host, except one that is known to be down. If a host does not answer
    ``cons``, its socket list is read. If that fails too, the socket list of every member is read instead; a
    member that does not answer is then recorded in ``unknown``.
    """
    members = dependent.members(inventory)
    asked = tuple(host for host in inventory.source_names if host in cons)
    seen = look.each(asked, lambda host: _known_by(inventory, look, host, cons[host]))
    from_members = look.each((m.name for m in members), lambda name: _to_source(inventory, look, name))
    blind = {host: reading for host, reading in seen.items() if not isinstance(reading, Seen)}
    at = {host: reading.value for host, reading in seen.items() if isinstance(reading, Seen)}
    placed = {}
    for member in members:
        where = [f"client of {host}" for host, found in at.items() if addresses(member) & set(found)]
        own = from_members[member.name]
        where += [f"own socket to {peer}" for peer in own.value] if isinstance(own, Seen) else []
        placed[member.name] = tuple(where)
    unknown = [
        f"{name}: {reading}"
        for name, reading in from_members.items()
        if blind and not isinstance(reading, Seen)
    ]
    if unknown:
        unknown = [f"{host}: {reading}" for host, reading in blind.items()] + unknown
    return SourceClients(at, placed, tuple(unknown))


def _known_by(
    inventory: Inventory, look: Look, host: str, cons: Reading[tuple[Connection, ...]]
) -> Reading[tuple[str, ...]]:
    operator = {normalized(address) for address in inventory.operator}
    if isinstance(cons, Seen):
        # A connection without a session is a four-letter word or a client that is connecting: both count.
        return Seen(tuple(sorted({normalized(c.address) for c in cons.value} - operator)))
    listed = sockets(look, host)
    if not isinstance(listed, Seen):
        return Unknown("denied", f"cons: {cons}; ss: {listed}")
    ports = inventory.source.ports.clients
    return Seen(tuple(sorted({s.peer for s in listed.value if s.local_port in ports} - operator)))


def _to_source(inventory: Inventory, look: Look, member: str) -> Reading[tuple[str, ...]]:
    listed = sockets(look, member)
    if not isinstance(listed, Seen):
        return listed
    source = {address for host in inventory.source.hosts for address in addresses(host)}
    ports = inventory.source.ports.clients
    peers = {f"{s.peer}:{s.peer_port}" for s in listed.value if s.peer in source and s.peer_port in ports}
    return Seen(tuple(sorted(peers)))
