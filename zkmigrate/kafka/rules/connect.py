"""Kafka as a dependent of ZooKeeper: where its connect string lives and which ephemerals must survive.

The connect string is the ``zookeeper.connect`` line of ``server.properties`` (java.util.Properties syntax).
"""

from __future__ import annotations

import re

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory, ZooKeeperHost

_CONNECT = re.compile(
    r"^(?P<head>[ \t\f]*zookeeper\.connect[ \t\f]*[=: \t][ \t]*)(?P<value>[^\r\n]*)", re.MULTILINE
)


def connect_string(inventory: Inventory) -> str:
    """``zookeeper.connect`` that names dest only: every dest host with its client port, then the chroot."""
    return _connect(inventory.dest.hosts, inventory.dest.ports.client) + inventory.kafka.chroot


def connect_to_source(inventory: Inventory) -> str:
    """The same of source."""
    return _connect(inventory.source.hosts, inventory.source.ports.client) + inventory.kafka.chroot


def _connect(hosts: tuple[ZooKeeperHost, ...], port: int) -> str:
    return ",".join(f"[{h.address}]:{port}" if ":" in h.address else f"{h.address}:{port}" for h in hosts)


def current_connect(properties: bytes) -> str:
    """The value of ``zookeeper.connect``.

    Raises UsageError when the line is missing, stands twice, continues on a next line, or the file is not
    UTF-8: then the file is not one that can be edited safely.
    """
    return _the_line(_text(properties)).group("value").strip()


def with_connect(properties: bytes, connect: str) -> bytes:
    """The same file with ``zookeeper.connect`` replaced and every other byte kept."""
    text = _text(properties)
    found = _the_line(text)
    return (text[: found.start("value")] + connect + text[found.end("value") :]).encode()


def connect_sed(connect: str) -> str:
    """The program for ``sed -E`` (GNU) that does to a file what ``with_connect`` does to its bytes."""
    return rf"s|^([ \t\f]*zookeeper\.connect[ \t\f]*[=: \t][ \t]*)[^\r]*|\1{connect}|"


def names_any(connect: str, addresses: tuple[str, ...]) -> bool:
    """Whether a connect string names one of these addresses as a host."""
    hosts = connect.split("/", 1)[0].split(",")
    plain = {h.strip().rsplit(":", 1)[0].strip("[]") for h in hosts}
    return any(address in plain for address in addresses)


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
