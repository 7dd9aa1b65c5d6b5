"""Parser for servers and a chroot, written as a connect string: ``HOST[:PORT][,HOST...]/chroot``."""

from __future__ import annotations

import re

from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.chroot import parse_chroot
from zkmigrate.zookeeper.data.zoocfg import CLIENT_PORT

_SERVER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+))(?::(\d{1,5}))?")


def parse_servers(text: str) -> tuple[tuple[Server, ...], str]:
    """Return the servers in this order, and the path after them, ``/`` by default. Raises UsageError."""
    hosts, slash, below = text.partition("/")
    return tuple(_server(part, text) for part in hosts.split(",")), parse_chroot(slash + below or "/").path


def _server(part: str, text: str) -> Server:
    match = _SERVER.fullmatch(part)
    port = int(match[3] or CLIENT_PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise UsageError(
            f"{part!r} in {text!r} is not a server. Needed: HOST[:PORT][,HOST[:PORT]...]/chroot; IPv6 in "
            "brackets"
        )
    return Server(match[1] or match[2], port)
