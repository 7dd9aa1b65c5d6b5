"""List a subtree through one host, to compare its czxids with the raw clients' acknowledgements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from zkmigrate.lab.load.config import LoadConfig, parse_address
from zkmigrate.lab.login import OPEN
from zkmigrate.zookeeper.clients.session import Limits, SessionError, session
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.subtree import Extent, Walk
from zkmigrate.zookeeper.data.zxid import format_zxid

_IN_FLIGHT = 256
_ANSWER_S = 30.0
_ERRORS = (SessionError, ZkDataError, KazooException, KazooTimeoutError)


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
        read = _walked if config.login == OPEN else _logged_in
        found, error = read(address, config)
    except _ERRORS as failed:
        error = str(failed) or type(failed).__name__
    if not error and root not in found:
        error = f"{root} does not exist"
    return {"host": host, "root": root, "complete": not error, "error": error, "nodes": found}


def _walked(address: str, config: LoadConfig) -> tuple[dict[str, str], str]:
    """Return the czxid of each znode, by path, and what could not be read, in words."""
    walk, found = Walk(Chroot(config.raw_root), _IN_FLIGHT), _Czxids()
    walk.extent = found
    with session(*parse_address(address), Limits(timeout_ms=config.session_timeout_ms)) as held:
        while not walk.done:
            held.send(walk.requests_to_send())
            for frame in held.receive():
                walk.take(frame)
    return found.by_path, f"no permission to read {', '.join(walk.denied)}" if walk.denied else ""


def _logged_in(address: str, config: LoadConfig) -> tuple[dict[str, str], str]:
    """Return the same as `_walked` from an ensemble that needs a login."""
    client = config.login.client(address, timeout=config.session_timeout_ms / 1000)
    found: dict[str, str] = {}
    try:
        client.start(timeout=_ANSWER_S)
        level = [config.raw_root]
        while level:
            below: list[str] = []
            for first in range(0, len(level), _IN_FLIGHT):
                some = level[first : first + _IN_FLIGHT]
                asked = [(path, client.exists_async(path), client.get_children_async(path)) for path in some]
                for path, stat, children in asked:
                    try:
                        names = children.get(timeout=_ANSWER_S)
                        found[path] = format_zxid(stat.get(timeout=_ANSWER_S).czxid)
                    except NoNodeError:
                        continue
                    below += [f"{path}/{name}" for name in names]
            level = below
    finally:
        client.stop()
        client.close()
    return found, ""


def write_tree(out: Path, host: str, address: str, config: LoadConfig) -> bool:
    """Write ``tree-HOST.json`` into ``out``. Return whether the listing is complete."""
    listing = list_tree(host, address, config)
    (out / f"tree-{host}.json").write_text(json.dumps(listing) + "\n")
    return bool(listing["complete"])
