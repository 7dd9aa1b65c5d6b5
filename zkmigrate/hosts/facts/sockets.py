"""Facts about the established TCP connections of a host, from ``ss``.

Addresses are normalized: IPv6 in its short form, and IPv4-mapped IPv6 as IPv4.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from zkmigrate.hosts.facts import keyvalue
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look

_SOCKET = re.compile(r"\s*\d+\s+\d+\s+(?P<local>\S+)\s+(?P<peer>\S+)(\s.*)?")


@dataclass(frozen=True)
class Socket:
    """One established TCP connection of a host."""

    local: str
    local_port: int
    peer: str
    peer_port: int


def sockets(look: Look, host: str) -> Reading[tuple[Socket, ...]]:
    """Return every established TCP connection of a host."""
    reading = look.sockets(host)
    if not isinstance(reading, Seen):
        return reading
    try:
        return Seen(parse_sockets(reading.value))
    except ValueError as error:
        return Unknown("garbled", f"ss: {error}")


def parse_sockets(text: str) -> tuple[Socket, ...]:
    """Parse the output of ``ss -Htn state established``.

    Each line has the receive queue, the send queue, the local and the peer address. Raises ValueError for any
    other line.
    """
    found = []
    for line in keyvalue.lines(text):
        if not line.strip():
            continue
        match = _SOCKET.fullmatch(line)
        if match is None:
            raise ValueError(f"not a socket: {line[:120]!r}")
        found.append(Socket(*_endpoint(match["local"]), *_endpoint(match["peer"])))
    return tuple(found)


def _endpoint(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"not address:port: {text!r}")
    return normalized(host.strip("[]").partition("%")[0]), int(port)


def normalized(address: str) -> str:
    """Return an address in its normal spelling. Raises ValueError if it is not an IP address."""
    ip = ipaddress.ip_address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip)
