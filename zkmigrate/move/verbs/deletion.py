"""List, read, delete and create subtrees through one session on dest, and the file that keeps them.

A znode is deleted only as it was kept: it is compared before each batch, and each delete names its version. A
batch is one multi: it is done as a whole or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)

from zkmigrate import input_file
from zkmigrate.errors import JournalError, ZkmigrateError
from zkmigrate.move.rules.clean_up import Node
from zkmigrate.zookeeper.clients.ensemble import ANSWER_S, NOT_ITS_OWN, connect, from_kazoo, named, to_kazoo
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.txn import Acl

_IN_FLIGHT = 200
_named = partial(named, "dest")


class ChangedError(ZkmigrateError):
    """A znode differs from the kept one, or this client may not change it; nothing of its batch was done."""

    exit_code = 6


@dataclass(frozen=True)
class Kept:
    """A znode that can be put back. data: None is ZooKeeper's null."""

    node: Node
    data: bytes | None


@dataclass
class Dest:
    """A session on dest; `dest` opens it."""

    client: Any

    def sync(self) -> None:
        """Wait until the session sees everything that dest has committed so far."""
        with _named("sync"):
            self.client.sync_async("/").get(timeout=ANSWER_S)

    def names(self, path: str) -> Sequence[str]:
        """Return the names of a znode's children; none if it does not exist."""
        with _named(path):
            try:
                found: list[str] = self.client.get_children_async(path).get(timeout=ANSWER_S)
            except NoNodeError:
                return ()
        return sorted(found)

    def node(self, path: str) -> Node | None:
        """Return one znode, or None if it does not exist."""
        found = self._looked(path, *self._asked(path))
        return None if found is None else found[0]

    def walk(self, root: str) -> Iterator[Node]:
        """Yield the znodes at and below this one, parents before their children.

        Those deleted meanwhile are left out.
        """
        ahead, asked = deque([root]), deque[tuple[str, Any, Any]]()
        while ahead or asked:
            while ahead and len(asked) < _IN_FLIGHT:
                path = ahead.popleft()
                asked.append((path, *self._asked(path)))
            path, listed, acl = asked.popleft()
            if (found := self._looked(path, listed, acl)) is not None:
                ahead.extend(f"{path}/{name}" for name in found[1])
                yield found[0]

    def _asked(self, path: str) -> tuple[Any, Any]:
        return self.client.get_children_async(path, include_data=True), self.client.get_acls_async(path)

    def _looked(self, path: str, listed: Any, acl: Any) -> tuple[Node, Sequence[str]] | None:
        with _named(path):
            try:
                names, stat = listed.get(timeout=ANSWER_S)
                rights = from_kazoo(acl.get(timeout=ANSWER_S)[0])
            except NoNodeError:
                return None
            except NoAuthError:  # newer servers do not show whether it exists
                return Node(path, 0, 0, 0, 0, 0, 0, 0, 0, None), ()
        return _node(path, stat, rights), sorted(names)

    def read(self, nodes: Sequence[Node]) -> Iterator[Kept]:
        """Yield these znodes with their data.

        Raises ChangedError for one that changed since it was listed.
        """
        for at in range(0, len(nodes), _IN_FLIGHT):
            some = nodes[at : at + _IN_FLIGHT]
            for node, answer in [(node, self.client.get_async(node.path)) for node in some]:
                with _named(node.path):
                    try:
                        data, stat = answer.get(timeout=ANSWER_S)
                    except NoNodeError:
                        raise ChangedError(f"{node.path} went while it was read") from None
                if _mark(stat) != node.mark:
                    raise ChangedError(f"{node.path} was changed while it was read")
                yield Kept(node, data)

    def delete(self, nodes: Sequence[Node]) -> int:
        """Delete these znodes, children before their parents, and return how many still existed.

        nodes: in the order of deletion. Raises ChangedError if one differs from the kept one, or has a child;
        then none is deleted.
        """
        while there := self._as_kept(nodes):
            multi = self.client.transaction()
            for node in there:
                multi.delete(node.path, version=node.version)
            with _named(there[0].path):
                results = multi.commit_async().get(timeout=ANSWER_S)
            wrong = [
                (node.path, result)
                for node, result in zip(there, results, strict=False)
                if isinstance(result, Exception) and not isinstance(result, NOT_ITS_OWN)
            ]
            if not wrong:
                return len(there)
            if not isinstance(wrong[0][1], NoNodeError):  # otherwise it was deleted a moment ago: look again
                raise _refused(*wrong[0])
        return 0

    def _as_kept(self, nodes: Sequence[Node]) -> list[Node]:
        """Return those that still exist. Raises ChangedError for one that differs from the kept one."""
        there = []
        for node, answer in [(node, self.client.exists_async(node.path)) for node in nodes]:
            with _named(node.path):
                try:
                    stat = answer.get(timeout=ANSWER_S)
                except NoAuthError as error:
                    raise _refused(node.path, error) from None
            if stat is None:
                continue
            if _mark(stat) != node.mark:
                raise ChangedError(f"{node.path} was changed, or made anew, since it was kept")
            there.append(node)
        return there

    def create(self, kept: Sequence[Kept]) -> int:
        """Create the missing znodes in this order, parents before their children, and return how many."""
        made = 0
        for one in kept:
            path = one.node.path
            acl = to_kazoo(one.node.acl or ())
            with _named(path):
                try:
                    self.client.create_async(path, one.data, acl=acl).get(timeout=ANSWER_S)
                    made += 1
                except NodeExistsError:
                    continue
                except (NoAuthError, NoNodeError) as error:
                    raise _refused(path, error) from None
        return made


def _refused(path: str, error: Exception) -> ChangedError:
    why = {
        BadVersionError: "was changed since it was kept",
        NotEmptyError: "has a child that was not kept",
        NoAuthError: "may not be touched by this client: an ACL forbids it",
        NoNodeError: "has no parent any more",
    }
    return ChangedError(f"{path} {why.get(type(error), f'answered {type(error).__name__}')}")


def _node(path: str, stat: Any, acl: tuple[Acl, ...] | None) -> Node:
    return Node(
        path,
        stat.czxid,
        stat.mzxid,
        stat.pzxid,
        stat.version,
        stat.ephemeralOwner,
        stat.dataLength,
        stat.mtime,
        stat.numChildren,
        acl,
    )


def _mark(stat: Any) -> tuple[int, int, int]:
    return stat.czxid, stat.mzxid, stat.version


@contextmanager
def dest(servers: Sequence[Server]) -> Iterator[Dest]:
    """Open a session with one of the servers for the duration of the block. Raises HostError."""
    with connect("dest", servers) as client:
        yield Dest(client)


# -- the file that keeps a subtree before its deletion: JSON lines, in the run's directory


def write_kept(path: Path, kept: Iterable[Kept]) -> str:
    """Write the znodes durably, parents first, and return the file's SHA-256."""
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


def read_kept(path: Path, digest: str) -> Iterator[Kept]:
    """Yield the znodes of the file, in order. Raises JournalError if it is not the file that was written."""
    try:
        with input_file.opened(path) as file:
            seen = hashlib.file_digest(file, "sha256").hexdigest()
            if seen != digest:
                raise JournalError(
                    f"{path} is not the file that was written: SHA-256 {seen[:12]}, needed {digest[:12]}. "
                    "Next: put a copy of it there"
                )
            file.seek(0)
            for line in file:
                yield _kept(json.loads(line))
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}. Next: put a copy of it there") from None


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
