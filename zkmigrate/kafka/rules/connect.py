"""Read and rewrite the ``zookeeper.connect`` line of ``server.properties``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from zkmigrate import java_properties
from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.host_names import Resolve, same_host, unresolved
from zkmigrate.inventory.checks import spelled
from zkmigrate.inventory.inventory import Inventory, Ports, ZooKeeperHost
from zkmigrate.java_properties import ENCODING, Entry, PropertiesError
from zkmigrate.zookeeper.data.zoocfg import CLIENT_PORT

_CONNECT = re.compile(
    r"^(?P<head>[ \t\f]*zookeeper\.connect[ \t\f]*[=: \t][ \t]*)(?P<value>[^\r\n]*)", re.MULTILINE
)
"""Matches the lines that ``with_connect`` changes."""


def connect_to_dest(inventory: Inventory, connect: str = "") -> str:
    """Return the value of zookeeper.connect that names only dest.

    The value has every dest host, then the chroot. connect: the broker's value now; a broker that uses
    source's port without TLS gets dest's port without TLS.
    """
    source, dest = inventory.source, inventory.dest
    return _connect(dest.hosts, _same_kind(connect, source.ports, dest.ports)) + inventory.kafka.prefix


def connect_to_source(inventory: Inventory, connect: str = "") -> str:
    """Return the value of zookeeper.connect that names only source; see :func:`connect_to_dest`."""
    source, dest = inventory.source, inventory.dest
    return _connect(source.hosts, _same_kind(connect, dest.ports, source.ports)) + inventory.kafka.prefix


def _same_kind(connect: str, theirs: Ports, ours: Ports) -> int:
    """Return the port of ``ours`` with TLS if ``connect`` has the port of ``theirs`` with TLS."""
    plain = connect and theirs.secure not in ports_in(connect)
    return ours.client if plain and ours.client is not None else ours.door


def _connect(hosts: tuple[ZooKeeperHost, ...], port: int) -> str:
    return ",".join(f"[{h.address}]:{port}" if ":" in h.address else f"{h.address}:{port}" for h in hosts)


def current_connect(properties: bytes) -> str:
    """Return the value of zookeeper.connect in this file, as Java reads it.

    Raises UsageError if the file cannot be edited safely: the key is missing, set twice or not on one line of
    its own, or Java rejects the file.
    """
    return _the_line(_text(properties))[1].value.strip()


def with_connect(properties: bytes, connect: str) -> bytes:
    """Return the file with this value of zookeeper.connect and every other byte unchanged.

    Raises UsageError like :func:`current_connect`.
    """
    text = _text(properties)
    found, _ = _the_line(text)
    return (text[: found.start("value")] + connect + text[found.end("value") :]).encode(ENCODING)


def hosts_in(connect: str) -> set[str]:
    """Return the hosts that a value of zookeeper.connect names, without ports and brackets."""
    servers = (server.strip() for server in connect.split("/", 1)[0].split(","))
    return {_host(server) for server in servers if server}


def ports_in(connect: str) -> set[int]:
    """Return the ports in a value of zookeeper.connect; a server without a port has ZooKeeper's default."""
    servers = (server.strip() for server in connect.split("/", 1)[0].split(","))
    found = [re.search(r"(?:^[^:]*|\]):(\d{1,5})$", server) for server in servers if server]
    return {int(match[1]) if match else CLIENT_PORT for match in found}


def _host(server: str) -> str:
    if server.startswith("["):
        return server[1:].partition("]")[0]
    return server.partition(":")[0] if server.count(":") == 1 else server  # otherwise IPv6 without a port


def others_than(
    hosts: Collection[ZooKeeperHost], connect: str, resolve: Resolve, where: str
) -> tuple[list[str], list[str]]:
    """Return the hosts in a value of zookeeper.connect besides ``hosts``, and sentences on unresolved names.

    where: the host that has the value in its file; ``resolve`` resolves names as that host does.
    """
    strange: list[str] = []
    unknown: list[str] = []
    for name in sorted(hosts_in(connect)):
        same = [same_host(name, (host.address, *host.also), resolve) for host in hosts]
        if True not in same and None in same:
            unknown.append(unresolved(name, resolve(name), where))
        elif True not in same:
            strange.append(name)
    return strange, unknown


def names_any(
    connect: str, hosts: Iterable[ZooKeeperHost], others: Iterable[ZooKeeperHost], resolve: Resolve
) -> bool | None:
    """Return whether a value of zookeeper.connect names any of ``hosts``, also by a name that resolves to it.

    Returns None if a name in the value does not resolve. others: the inventory's other hosts. A name that the
    inventory uses for one of these is not resolved.
    """
    elsewhere = {spelled(text) for host in others for text in (host.address, *host.also)}
    named = [name for name in sorted(hosts_in(connect)) if spelled(name) not in elsewhere]
    same = [same_host(name, (host.address, *host.also), resolve) for name in named for host in hosts]
    return True if True in same else None if None in same else False


def chroot_in(connect: str) -> str:
    """Return the chroot in a value of zookeeper.connect; ``/`` if it has none."""
    _, _, path = connect.partition("/")
    return "/" + path.strip().rstrip("/")


def registration(prefix: str, broker: int) -> str:
    """Return the path of a broker's registration, an ephemeral that must keep its owner and czxid."""
    return f"{prefix}/brokers/ids/{broker}"


def line_of_connect(properties: bytes) -> int | None:
    """Return the number of the line that sets zookeeper.connect.

    Returns None if no line sets it or Java rejects the file.
    """
    try:
        return next((entry.line for entry in _entries(_text(properties))), None)
    except PropertiesError:
        return None


def _text(properties: bytes) -> str:
    return properties.decode(ENCODING)


def _entries(text: str) -> list[Entry]:
    return [entry for entry in java_properties.entries(text) if entry.key == "zookeeper.connect"]


def _the_line(text: str) -> tuple[re.Match[str], Entry]:
    try:
        read = _entries(text)
    except PropertiesError as error:
        raise UsageError(f"Java cannot read server.properties: {error}. Next: fix that line") from error
    if len(read) != 1:
        raise UsageError(f"server.properties has {len(read)} zookeeper.connect lines. Needed: exactly one")
    found = list(_CONNECT.finditer(text))
    if "\\\n" in (lines := text[read[0].start : read[0].end]) or "\\\r" in lines:
        raise UsageError("zookeeper.connect continues on the next line. Needed: a single line")
    if [(match.start(), match.end()) for match in found] != [(read[0].start, read[0].end)]:
        raise UsageError(
            f"zookeeper.connect at line {read[0].line} of server.properties cannot be edited safely. "
            "Needed: one line zookeeper.connect=… that ends with a line feed, and no other line that "
            "begins like it"
        )
    return found[0], read[0]
