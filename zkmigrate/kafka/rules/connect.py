"""The ``zookeeper.connect`` line of ``server.properties``: what it names, and how it is rewritten."""

from __future__ import annotations

import re

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory, ZooKeeperHost

_CONNECT = re.compile(
    r"^(?P<head>[ \t\f]*zookeeper\.connect[ \t\f]*[=: \t][ \t]*)(?P<value>[^\r\n]*)", re.MULTILINE
)


def connect_to_dest(inventory: Inventory) -> str:
    """The value that names dest only: every dest host with its client port, then the chroot."""
    return _connect(inventory.dest.hosts, inventory.dest.ports.client) + inventory.kafka.chroot


def connect_to_source(inventory: Inventory) -> str:
    """The value that names source only."""
    return _connect(inventory.source.hosts, inventory.source.ports.client) + inventory.kafka.chroot


def _connect(hosts: tuple[ZooKeeperHost, ...], port: int) -> str:
    return ",".join(f"[{h.address}]:{port}" if ":" in h.address else f"{h.address}:{port}" for h in hosts)


def current_connect(properties: bytes) -> str:
    """The value in this file.

    Raises UsageError where the file cannot be edited safely: the line is missing, stands twice or continues
    on the next line, or the file is not UTF-8.
    """
    return _the_line(_text(properties)).group("value").strip()


def with_connect(properties: bytes, connect: str) -> bytes:
    """The same file with this value and every other byte kept. Raises as :func:`current_connect`."""
    text = _text(properties)
    found = _the_line(text)
    return (text[: found.start("value")] + connect + text[found.end("value") :]).encode()


def connect_sed(connect: str) -> str:
    """The program for ``sed -E`` (GNU) that does to a file what ``with_connect`` does to its bytes."""
    return rf"s|^([ \t\f]*zookeeper\.connect[ \t\f]*[=: \t][ \t]*)[^\r]*|\1{connect}|"


def hosts_in(connect: str) -> set[str]:
    """The hosts that a value names, without ports and brackets."""
    servers = (server.strip() for server in connect.split("/", 1)[0].split(","))
    return {server.rsplit(":", 1)[0].strip("[]") for server in servers if server}


def chroot_in(connect: str) -> str:
    """The chroot that a value names; ``/`` where it names none."""
    _, _, path = connect.partition("/")
    return "/" + path.strip().rstrip("/")


def registration(chroot: str, broker: int) -> str:
    """Path of a broker's registration: an ephemeral that must keep its owner and czxid."""
    return f"{chroot}/brokers/ids/{broker}"


def _text(properties: bytes) -> str:
    try:
        return properties.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"server.properties is not UTF-8 (byte {error.start}); needed: a text file zkmigrate can edit"
        ) from error


def _the_line(text: str) -> re.Match[str]:
    found = list(_CONNECT.finditer(text))
    if len(found) != 1:
        raise UsageError(
            f"server.properties has {len(found)} zookeeper.connect lines; needed: exactly one to edit"
        )
    if found[0].group("value").endswith("\\"):
        raise UsageError("zookeeper.connect continues on the next line; needed: one line, to edit it safely")
    return found[0]
