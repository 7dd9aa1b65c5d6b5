"""List a subtree through one host, to compare its czxids with the raw clients' acknowledgements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zkmigrate.lab.load.config import parse_address
from zkmigrate.zookeeper.clients.session import Limits, SessionError, session
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


def list_tree(host: str, address: str, root: str, timeout_ms: int) -> dict[str, Any]:
    """Return the listing of ``root`` in the form of ``tree-HOST.json``.

    ``complete`` is True only if every read was answered. A znode that disappears between two reads is left
    out; nothing deletes znodes of raw clients. address: ``host:port``. timeout_ms: the session timeout.
    """
    walk, found, error = Walk(root, _IN_FLIGHT), _Czxids(), ""
    walk.extent = found
    try:
        with session(*parse_address(address), Limits(timeout_ms=timeout_ms)) as held:
            while not walk.done:
                held.send(walk.requests_to_send())
                for frame in held.receive():
                    walk.take(frame)
    except (SessionError, ZkDataError) as failed:
        error = str(failed)
    if not error and walk.denied:
        error = f"no permission to read {', '.join(walk.denied)}"
    if not error and root not in found.by_path:
        error = f"{root} does not exist"
    return {"host": host, "root": root, "complete": not error, "error": error, "nodes": found.by_path}


def write_tree(out: Path, host: str, address: str, root: str, timeout_ms: int) -> bool:
    """Write ``tree-HOST.json`` into ``out``. Return whether the listing is complete."""
    listing = list_tree(host, address, root, timeout_ms)
    (out / f"tree-{host}.json").write_text(json.dumps(listing) + "\n")
    return bool(listing["complete"])
