"""The addresses of names, and the addresses that this machine owns or sends from."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from zkmigrate.hosts.transport.connection import Output
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

_ANY_PORT = 9
"""The port to which a datagram socket is connected. Connecting it sends no packet."""
_GETENT_NOTHING = 2
"""The exit code of ``getent`` for a name that it does not find (getent(1))."""


def resolved(host: str) -> Reading[tuple[str, ...]]:
    """Return the addresses of a name as this machine resolves it; Absent for an unknown name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            return Absent(host)
        return Unknown("failed", f"{host}: {error.strerror}")
    except (OSError, UnicodeError) as error:
        return Unknown("failed", f"{host}: {error}")
    return Seen(tuple(dict.fromkeys(str(info[4][0]) for info in found)))


def from_getent(host: str, name: str, done: Output) -> Reading[tuple[str, ...]]:
    """Parse the output of ``getent ahosts NAME`` on a host. Returns Absent for a name without addresses."""
    if done.rc == _GETENT_NOTHING:
        return Absent(name)
    if done.rc:
        return done.failed(host, "getent")
    return Seen(tuple(dict.fromkeys(line.split()[0] for line in done.text.splitlines() if line.strip())))


def resolve(host: str) -> tuple[str, ...]:
    """Return the addresses of a name as this machine resolves it; empty if the name has no address."""
    found = resolved(host)
    return found.value if isinstance(found, Seen) else ()


def owned(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return those addresses or names in this list that belong to this machine.

    An address belongs to the machine if a socket can bind to it.
    """
    return tuple(text for text in addresses if any(_bound(address) for address in resolve(text)))


def sent_from(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of this machine from which it would send to these hosts. No packet is sent."""
    found: dict[str, None] = {}
    for host in hosts:
        for address in resolve(host)[:1]:
            with _datagram(address) as sock:
                try:
                    sock.connect((address, _ANY_PORT))
                    found[str(ipaddress.ip_address(sock.getsockname()[0]))] = None
                except (OSError, ValueError):
                    continue
    return tuple(found)


def _bound(address: str) -> bool:
    with _datagram(address) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True


def _datagram(address: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
