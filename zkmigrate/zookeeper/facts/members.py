"""Facts about source's members, as its own servers list them.

A dest host needs the same list to follow source's servers as an observer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from zkmigrate import java_properties
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.java_properties import PropertiesError
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.zoocfg import ZooCfgError, add_brackets
from zkmigrate.zookeeper.facts.config import ANY_ADDRESS, DYNAMIC, ZooConfig, dynamic_file, parse

LISTENING = {
    "clientPort": "", "secureClientPort": "", "admin.serverPort": "8080", "metricsProvider.httpPort": "",
}  # fmt: skip
"""The settings that name a TCP port to listen on, with their defaults."""
_ANY = re.compile(rf"^\[?({'|'.join(map(re.escape, ANY_ADDRESS))})\]?:(?=\d+:\d)")
MOST_CUT_PORTS = 15
"""The most ports in one rule of iptables (its match ``multiport``)."""
REJOIN = "roll back to the join, which writes source's members to dest again: `zkmigrate rollback --to join`"


@dataclass(frozen=True)
class Members:
    """The members of an ensemble.

    lines: the ``server.N=…`` lines, without escapes. version: the version of this list; 0 for a config
    without a version. A source that allows reconfiguration puts the version into the name of its dynamic
    file. ports: every TCP port in source's configs.
    """

    lines: tuple[str, ...]
    version: int = 0
    ports: tuple[int, ...] = ()


def source_members(inventory: Inventory, look: Look, hosts: Iterable[str]) -> Reading[Members]:
    """Read the members from these source hosts.

    The lines are those of the first host that answers. The result is Unknown if hosts have different versions
    of the list, as in the middle of a reconfiguration.
    """
    readings = look.each(
        hosts,
        lambda host: members(look, host, inventory.source.config, inventory.source_host(host).address),
    )
    seen = {host: reading.value for host, reading in readings.items() if isinstance(reading, Seen)}
    if not seen:
        return next(reversed(readings.values()), Absent("source config"))
    if len({found.version for found in seen.values()}) > 1:
        versions = ", ".join(f"{host} {found.version:#x}" for host, found in seen.items())
        return Unknown("failed", f"source's servers have different versions of the member list: {versions}")
    ports = sorted({port for found in seen.values() for port in found.ports})
    return Seen(replace(next(iter(seen.values())), ports=tuple(ports)))


def members(look: Look, host: str, path: str, address: str) -> Reading[Members]:
    """Read the members in a host's zoo.cfg or its dynamic file.

    address: replaces 0.0.0.0, which only the host's own line may contain.
    """
    static = look.file(host, path)
    if not isinstance(static, Seen):
        return static
    # Java reads properties as ISO-8859-1.
    text = static.value.decode("iso-8859-1")
    try:
        config = parse(text, path)
    except ZooCfgError as error:
        return Unknown("garbled", str(error))
    if DYNAMIC in config.values:
        place = dynamic_file(look, host, config)
        if not isinstance(place, Seen):
            return place
        dynamic = look.file(host, place.value)
        if not isinstance(dynamic, Seen):
            return Unknown("failed", f"{DYNAMIC} {place.value}: {dynamic}")
        text = dynamic.value.decode("iso-8859-1")
    try:
        found = java_properties.parse(text)
    except PropertiesError as error:
        return Unknown("garbled", f"{config.values[DYNAMIC]}: {error}")
    lines = tuple(
        f"{key}={_ANY.sub(lambda _match: f'{add_brackets(address)}:', value.strip())}"
        for key, value in found.items()
        if key.startswith("server.")
    )
    return Seen(Members(lines, config.version, (*_of_servers(lines), *ports_of(config.values))))


def ports_of(settings: Mapping[str, str]) -> tuple[int, ...]:
    """Return the TCP ports on which a server with these settings listens, except those of server lines."""
    values = (settings.get(key, default).strip() for key, default in LISTENING.items())
    return tuple(int(port) for port in values if re.fullmatch(r"[1-9][0-9]{0,4}", port))


def _of_servers(lines: Iterable[str]) -> Iterator[int]:
    """Yield every port in the server lines, even in a line with several addresses."""
    for line in lines:
        yield from (int(port) for port in re.findall(r"(?<=[:;])[1-9][0-9]{0,4}(?=[:;|\s]|$)", line))


def config_ports(config: ZooConfig) -> tuple[int, ...]:
    """Return every TCP port in a config, including those of its server lines."""
    lines = (*(server.render() for server in config.servers.values()), *config.odd)
    return (*_of_servers(lines), *ports_of(config.values))


def cut_ports(inventory: Inventory, named: Iterable[int], *, spare: bool = True) -> tuple[int, ...]:
    """Return ZooKeeper's ports of both ensembles, sorted.

    The ports are those in the inventory, in dest's settings, and in source's own configs (``named``). Where a
    broker is on a dest host's machine, source's client ports are left out: until the roll that broker is a
    client of source, and the rehearsal must not cut it off. spare: False to leave out no port.
    """
    both = (inventory.source.ports, inventory.dest.ports)
    known = {port for p in both for port in (*p.clients, p.quorum, p.election)}
    machines = [inventory.machine(host) for host in inventory.dest_names]
    spared = (
        {*inventory.source.ports.clients} if spare and any(len(names) > 1 for names in machines) else set()
    )
    spared -= {port for p in both for port in (p.quorum, p.election)}
    return tuple(sorted({*known, *ports_of(inventory.dest.settings), *named} - spared))
