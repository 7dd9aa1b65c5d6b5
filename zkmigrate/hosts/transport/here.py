"""The addresses of this machine: which of those it is said to have, and which it sends from."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

_ANY_PORT = 9
"""A datagram socket is connected to it, which sends nothing."""


def resolved(host: str) -> tuple[str, ...]:
    """The addresses behind a name, as this machine resolves it; none where it does not."""
    try:
        return tuple(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, None)))
    except (OSError, UnicodeError):
        return ()


def owned(addresses: Iterable[str]) -> tuple[str, ...]:
    """Those of these addresses or names that are this machine's own, by whether a socket can have them."""
    return tuple(text for text in addresses if any(_bound(address) for address in resolved(text)))


def sent_from(hosts: Iterable[str]) -> tuple[str, ...]:
    """This machine's addresses towards these hosts: what the kernel would send from; no packet leaves."""
    found: dict[str, None] = {}
    for host in hosts:
        for address in resolved(host)[:1]:
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
