"""List a subtree through one host, to compare its czxids with the raw clients' acknowledgements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zkmigrate.lab.load.config import LoadConfig, parse_address
from zkmigrate.zookeeper.clients.session import Limits, SessionError, session
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.subtree import Extent, Walk
from zkmigrate.zookeeper.data.zxid import format_zxid

_IN_FLIGHT = 256


class _Czxids(Extent):
    """An Extent that also stores the czxid of every znode, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.by_path: dict[str, str] = {}

    def take(self, path: str, czxid: int, mzxid: int, pzxid: int) -> None:
        super().take(path, czxid, mzxid, pzxid)
        self.by_path[path] = format_zxid(czxid)


def list_tree(host: str, address: str, config: LoadConfig) -> dict[str, Any]:
    """Return the listing of the raw clients' root in the form of ``tree-HOST.json``.

    ``complete`` is True only if every read was answered. A znode that disappears between two reads is left
    out; nothing deletes znodes of raw clients. address: ``host:port``.
    """
    root, found, error = config.raw_root, dict[str, str](), ""
    try:
        found, error = _walked(address, config)
    except (SessionError, ZkDataError) as failed:
        error = str(failed)
    if not error and root not in found:
        error = f"{root} does not exist"
    return {"host": host, "root": root, "complete": not error, "error": error, "nodes": found}


def _walked(address: str, config: LoadConfig) -> tuple[dict[str, str], str]:
    """Return the czxid of each znode, by path, and what could not be read, in words."""
    walk, found = Walk(Chroot(config.raw_root), _IN_FLIGHT), _Czxids()
    walk.extent = found
    limits = Limits(timeout_ms=config.session_timeout_ms)
    with session(*parse_address(address), limits, config.login.credentials()) as held:
        while not walk.done:
            held.send(walk.requests_to_send())
            for frame in held.receive():
                walk.take(frame)
    return found.by_path, f"no permission to read {', '.join(walk.denied)}" if walk.denied else ""


def write_tree(out: Path, host: str, address: str, config: LoadConfig) -> bool:
    """Write ``tree-HOST.json`` into ``out``. Return whether the listing is complete."""
    listing = list_tree(host, address, config)
    (out / f"tree-{host}.json").write_text(json.dumps(listing) + "\n")
    return bool(listing["complete"])
