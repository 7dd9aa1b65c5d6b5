"""Parser for jump hosts: ``[user@]host[:port]``, as in OpenSSH's ProxyJump (ssh_config(5)), without URIs."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_HOST = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.-]{0,251}[0-9A-Za-z])?")


@dataclass(frozen=True)
class JumpHost:
    """One hop on the way to a host.

    host: an address or a name. user: empty if not given. port: None if not given.
    """

    host: str
    user: str = ""
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@" * bool(self.user) + host + (f":{self.port}" if self.port else "")


def parse_jump_hosts(text: str) -> tuple[JumpHost, ...]:
    """Parse a comma-separated list of jump hosts. Raises ValueError.

    The first jump host is the one nearest to the operator.
    """
    return tuple(_jump_host(part) for part in text.split(","))


def _jump_host(text: str) -> JumpHost:
    user, at, rest = text.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise ValueError(f"{user[:40]!r} in {text[:80]!r} is not an account name")
    for whole in (rest, rest[1:-1] if rest.startswith("[") and rest.endswith("]") else ""):
        if _is_ip(whole):
            return JumpHost(whole, user)
    host, colon, digits = rest.rpartition(":")
    if not colon:
        host, digits = rest, ""
    elif not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= 65535:
        raise ValueError(f"{digits[:40]!r} in {text[:80]!r} is not a port")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (_is_ip(host) or _HOST.fullmatch(host)):
        raise ValueError(f"{host[:80]!r} is neither an address nor a host name")
    return JumpHost(host, user, int(digits) if digits else None)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text
