"""List a subtree through one host, to compare its czxids with the raw clients' acknowledgements."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.zkclient import Client
from zkmigrate.lab.load.zkloop import end_sessions, read_all

_LIMIT_S = 120.0


def list_tree(host: str, address: tuple[str, int], root: str, timeout_ms: int) -> dict[str, Any]:
    """Return the listing of ``root`` as ``tree-HOST.json`` contains it.

    ``complete`` is True only when every read was answered. The listing goes level by level: first the czxids
    of a level's znodes, then their children. A znode that disappears between the two reads is left out;
    nothing deletes what raw clients create. timeout_ms: session timeout.
    """
    client = Client([address], timeout_ms, lambda _event, _fields: None)
    nodes: dict[str, str] = {}
    errors: set[str] = set()
    level = [root]

    def stat(path: str, found: list[str], reply: messages.Reply) -> None:
        if reply.error == messages.OK:
            nodes[path] = messages.hex_id(messages.stat_of(reply.body).czxid)
            if messages.stat_of(reply.body).num_children:
                found.append(path)
        elif reply.error != messages.NO_NODE or path == root:
            errors.add(f"{path}: {messages.error_name(reply.error)}")

    def children(path: str, found: list[str], reply: messages.Reply) -> None:
        if reply.error == messages.OK:
            found += [f"{path.rstrip('/')}/{name}" for name in messages.children_of(reply.body)]
        elif reply.error != messages.NO_NODE:
            errors.add(f"{path}: {messages.error_name(reply.error)}")

    unanswered = 0
    while level and not unanswered and not errors:
        parents: list[str] = []
        reads = [(messages.EXISTS, path, partial(stat, path, parents)) for path in level]
        unanswered += read_all(client, root, reads, _LIMIT_S)
        below: list[str] = []
        reads = [(messages.GET_CHILDREN, path, partial(children, path, below)) for path in parents]
        if reads and not unanswered:
            unanswered += read_all(client, root, reads, _LIMIT_S)
        level = below
    end_sessions([client])
    if unanswered:
        errors.add(f"{unanswered} reads without an answer")
    return {
        "host": host,
        "root": root,
        "complete": not errors,
        "error": "; ".join(sorted(errors)),
        "nodes": nodes,
    }


def write_tree(out: Path, host: str, address: tuple[str, int], root: str, timeout_ms: int) -> bool:
    """Write ``tree-HOST.json`` into ``out``. Return whether the listing is complete."""
    listing = list_tree(host, address, root, timeout_ms)
    (out / f"tree-{host}.json").write_text(json.dumps(listing) + "\n")
    return bool(listing["complete"])
