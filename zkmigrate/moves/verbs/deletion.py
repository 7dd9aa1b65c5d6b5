"""Subtrees through one session on dest: list, read, delete, and create them again.

A znode is deleted only as it was kept: it is compared before each batch, and each delete names its version. A
batch is one multi: all of it is done, or nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)

from zkmigrate.errors import ZkmigrateError
from zkmigrate.moves.rules.clean_up import Node
from zkmigrate.zookeeper.clients.ensemble import ANSWER_S, NOT_ITS_OWN, connected, from_kazoo, named, to_kazoo
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.txn import Acl

_IN_FLIGHT = 200
_named = partial(named, "dest")


class ChangedError(ZkmigrateError):
    """A znode differs from the kept one, or may not be touched; nothing of its batch was done."""

    exit_code = 6


@dataclass(frozen=True)
class Kept:
    """A znode to put back. data None: ZooKeeper's null."""

    node: Node
    data: bytes | None


@dataclass
class Dest:
    """A session on dest; opened by `dest`."""

    client: Any

    def sync(self) -> None:
        """From now on the session sees everything that dest has committed."""
        with _named("sync"):
            self.client.sync_async("/").get(timeout=ANSWER_S)

    def names(self, path: str) -> Sequence[str]:
        """The names of a znode's children; none if it does not exist."""
        with _named(path):
            try:
                found: list[str] = self.client.get_children_async(path).get(timeout=ANSWER_S)
            except NoNodeError:
                return ()
        return sorted(found)

    def node(self, path: str) -> Node | None:
        """One znode; None: it does not exist."""
        found = self._looked(path, *self._asked(path))
        return None if found is None else found[0]

    def walk(self, root: str) -> Iterator[Node]:
        """The znodes at and below this one, parents before their children, without those deleted
        meanwhile."""
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
            except NoAuthError:  # newer servers do not even say whether it exists
                return Node(path, 0, 0, 0, 0, 0, 0, 0, 0, None), ()
        return _node(path, stat, rights), sorted(names)

    def read(self, nodes: Sequence[Node]) -> Iterator[Kept]:
        """These znodes with their data. Raises ChangedError for one that changed since it was listed."""
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
        """Delete these in this order, children before their parents; how many still existed. Raises
        ChangedError if one differs from the kept one, or has a child; then none is deleted."""
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
            if not isinstance(wrong[0][1], NoNodeError):  # else it went a moment ago: look again
                raise _refused(*wrong[0])
        return 0

    def _as_kept(self, nodes: Sequence[Node]) -> list[Node]:
        """Those that still exist."""
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
        """Create the missing ones in this order, parents before their children; how many."""
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
    """A session with one of the servers, for the block. Raises HostError."""
    with connected("dest", servers) as client:
        yield Dest(client)
