"""Define a request to the jobs: directories, a chroot and limits. Decide whether a request is small."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zkmigrate.errors import UsageError
from zkmigrate.spark.sources.files import File, files
from zkmigrate.zookeeper.data.chroot import WHOLE_TREE, Chroot
from zkmigrate.zookeeper.data.jute import JUTE_MAXBUFFER
from zkmigrate.zookeeper.data.logdir import is_log_or_snapshot
from zkmigrate.zookeeper.data.tail import data_end
from zkmigrate.zookeeper.data.txnlog import log_zxid

if TYPE_CHECKING:  # needs pydantic, which a cluster's machines may lack
    from zkmigrate.cluster.placement.what_if import WhatIf

SMALL = 256 << 20
"""The total size of all files in bytes up to which starting Spark takes longer than reading the data."""
TINY = 16 << 20
"""The total size of all files in bytes up to which compiling Spark's plans takes longer than running them."""
SMALL_TREES = 32 << 20
"""The limit to use instead of SMALL if trees are compared, which takes more time per byte."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Place:
    """A directory of a server.

    server: the server's name in the tables; "" to take the name from the directory.
    """

    server: str
    path: str


def parse_place(text: str) -> Place:
    """Parse ``DIR`` or ``NAME=DIR``, where DIR may be a glob or a URI. Raises UsageError."""
    name, equals, path = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        name, path = "", text
    if not path:
        raise UsageError(f"{text!r} has no directory. Needed: DIR, or NAME=DIR")
    return Place(name, path)


@dataclass(frozen=True)
class Request:
    """A request to the jobs.

    source, dest: directories of each ensemble's servers. chroot: the subtree to move. server: the server that
    is read if one log is enough; "" for the server with the oldest log. window_s: seconds of a cut-over.
    depth: how many elements of a path name a subtree. top: the number of rows of a table for people.

    Some fields are for single jobs. zxid: where trees are compared. after_cut: whether dest was cut over.
    on_dest: sessions (signed) known to be clients of dest. watches: saved answers to wchp. server_logs:
    ZooKeeper's text logs. fleet_partitions, fleet_brokers: tables of many clusters. what_ifs: plans to try on
    these clusters; if empty, a default plan. source_logs, target_logs: log directories of a mirror's two
    sides. topics: topics to compare.
    """

    source: tuple[Place, ...]
    dest: tuple[Place, ...] = ()
    chroot: Chroot = WHOLE_TREE
    server: str = ""
    window_s: int = 10
    depth: int = 1
    top: int = 20
    jute_maxbuffer: int = JUTE_MAXBUFFER
    zxid: int | None = None
    after_cut: bool = False
    on_dest: tuple[int, ...] = ()
    watches: tuple[Path, ...] = ()
    server_logs: tuple[str, ...] = ()
    fleet_partitions: str = ""
    fleet_brokers: str = ""
    what_ifs: tuple[WhatIf, ...] = ()
    source_logs: tuple[str, ...] = ()
    target_logs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    @property
    def depth_below(self) -> int:
        """The number of path elements that name a subtree of the chroot."""
        return self.depth + len([part for part in self.chroot.path.split("/") if part])


def is_small(request: Request, most: int = SMALL) -> bool:
    """Return whether all logs and snapshots of a request have at most `most` bytes.

    Returns False for a request with text logs, brokers' log directories or a fleet, because their sizes are
    unknown.
    """
    if request.server_logs or request.fleet_partitions or request.source_logs:
        return False
    left = min(most, SMALL_TREES) if request.dest else most
    for place in (*request.source, *request.dest):
        try:
            found = files((place.path,), place.server, is_log_or_snapshot)
        except (UsageError, OSError):
            continue  # the job reports it
        left -= sum(map(data_bytes, found))
    return left >= 0


def data_bytes(file: File) -> int:
    """Return the size of a file in bytes, for a local log without the zeros that the server allocates ahead.

    For a snapshot or a file at a URI the result is the whole size.
    """
    if log_zxid(file.name) is None or "://" in file.path:
        return file.size
    try:
        return data_end(file.reader())
    except OSError:
        return file.size
