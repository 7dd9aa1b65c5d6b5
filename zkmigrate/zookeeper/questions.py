"""Define the requests for facts about a ZooKeeper host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.look import Request

_ANSWERS = "zkmigrate.zookeeper.clients.answers:ZooKeeperAnswers"


@dataclass(frozen=True)
class Znode:
    """A znode as a client sees it.

    modified_ms: the znode's mtime, in milliseconds since 1970 on the clock of the leader that took the write.
    """

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ephemeral_owner: int
    version: int
    children: tuple[str, ...]
    modified_ms: int = 0


Rights: TypeAlias = tuple[tuple[int, str, str], ...]
"""The ACL of a znode: permissions, scheme and id of each entry."""


@dataclass(frozen=True)
class SendWord(Request[Reading[str]]):
    """Send a four-letter word to the client port of a host, and return the raw answer."""

    host: str
    word: str
    answered_by = f"{_ANSWERS}.word"


@dataclass(frozen=True)
class ReadZnode(Request[Reading[Znode]]):
    """Read a znode with the names of its children, through a client session with one host."""

    host: str
    path: str
    answered_by = f"{_ANSWERS}.znode"


@dataclass(frozen=True)
class ReadModified(Request[Reading[Mapping[str, int]]]):
    """Read ``Znode.modified_ms`` of these znodes by path, through one host.

    A path without a znode is left out. Each znode costs one read; many reads are in flight at once.
    """

    host: str
    paths: Sequence[str]
    answered_by = f"{_ANSWERS}.modified"


@dataclass(frozen=True)
class ReadAcls(Request[Reading[Mapping[str, Rights]]]):
    """Read the ACLs of these znodes by path, through one host. A path without a znode is left out."""

    host: str
    paths: Sequence[str]
    answered_by = f"{_ANSWERS}.acls"
