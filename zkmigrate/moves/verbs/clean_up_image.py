"""The file in which clean-up keeps a subtree before it deletes it: JSON lines, in the run's directory."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zkmigrate.errors import JournalError
from zkmigrate.moves.rules.clean_up import Node
from zkmigrate.moves.verbs.deletion import Kept
from zkmigrate.zookeeper.data.txn import Acl


def write(path: Path, kept: Iterable[Kept]) -> str:
    """Write the znodes durably, parents first; the file's SHA-256."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    digest = hashlib.sha256()
    with open(fd, "wb") as file:
        for one in kept:
            line = json.dumps(_body(one), ensure_ascii=False, sort_keys=True).encode() + b"\n"
            digest.update(line)
            file.write(line)
        file.flush()
        os.fsync(fd)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest.hexdigest()


def read(path: Path, digest: str) -> Iterator[Kept]:
    """The znodes of the file, in order. Raises JournalError if it is not the file that was written."""
    try:
        with open(path, "rb") as file:
            seen = hashlib.file_digest(file, "sha256").hexdigest()
            if seen != digest:
                raise JournalError(
                    f"{path} is not the file that was written: SHA-256 {seen[:12]}, needed {digest[:12]}. "
                    "Possible now: put a copy of it there"
                )
            file.seek(0)
            for line in file:
                yield _kept(json.loads(line))
    except OSError as error:
        raise JournalError(
            f"cannot read {path}: {error.strerror}. Possible now: put a copy of it there"
        ) from None


def _body(one: Kept) -> dict[str, Any]:
    node = one.node
    return {
        "path": node.path,
        "data": None if one.data is None else base64.b64encode(one.data).decode(),
        "acl": [{"perms": a.perms, "scheme": a.scheme, "id": a.id} for a in node.acl or ()],
        "ephemeralOwner": node.owner,
        "version": node.version,
        "czxid": hex(node.czxid),
        "mzxid": hex(node.mzxid),
        "pzxid": hex(node.pzxid),
        "mtime": node.changed_ms,
        "children": node.children,
    }


def _kept(body: dict[str, Any]) -> Kept:
    data = None if body["data"] is None else base64.b64decode(body["data"])
    node = Node(
        body["path"],
        int(body["czxid"], 16),
        int(body["mzxid"], 16),
        int(body["pzxid"], 16),
        body["version"],
        body["ephemeralOwner"],
        len(data or b""),
        body["mtime"],
        body["children"],
        tuple(Acl(a["perms"], a["scheme"], a["id"]) for a in body["acl"]),
    )
    return Kept(node, data)
