"""Requests that read the znodes which other tenants of source left on dest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.look import Request
from zkmigrate.zookeeper.data.txn import Acl

_ANSWERS = "zkmigrate.move.clients.dest_znodes:DestAnswers"


@dataclass(frozen=True)
class Node:
    """A znode of dest.

    owner: its ephemeralOwner, which is also set for a container or a TTL znode. size: the length of its data
    in bytes. changed_ms: its mtime. children: the number of its children. acl: None if this client may not
    read the znode. names: the names of its children, filled in only by `ReadTree`. data: filled in only by
    `ReadContents`; None can also mean ZooKeeper's null.
    """

    path: str
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    version: int = 0
    owner: int = 0
    size: int = 0
    changed_ms: int = 0
    children: int = 0
    acl: tuple[Acl, ...] | None = None
    names: tuple[str, ...] = ()
    data: bytes | None = None


@dataclass(frozen=True)
class ReadTree(Request[tuple[Node, ...]]):
    """Read a znode of dest and, if ``deep``, all znodes below it.

    Parents come before their children. The answer is empty if the znode does not exist. It includes
    everything that dest committed before the question. Raises HostError.
    """

    path: str
    deep: bool = True
    answered_by = f"{_ANSWERS}.tree"


@dataclass(frozen=True)
class ReadContents(Request[tuple[Node, ...]]):
    """Read these znodes of dest with their data and ACL. The answer leaves out znodes that do not exist.

    Raises HostError.
    """

    paths: Sequence[str]
    answered_by = f"{_ANSWERS}.contents"


@dataclass(frozen=True)
class ReadCut(Request[Reading[int]]):
    """Read the last zxid that dest received from source.

    It is taken from the journal of a finished move of this inventory on this machine. run: the id of that
    move's run.
    """

    run: str
    answered_by = "zkmigrate.move.verbs.finished_move:FinishedMoves.cut"
