"""What an operator asks of the jobs: directories, a chroot, bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.errors import UsageError
from zkmigrate.zookeeper.data.jute import JUTE_MAXBUFFER

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Place:
    """A directory of a server. server: its name in the tables; empty: as the data sources name it."""

    server: str
    path: str


def parse_place(text: str) -> Place:
    """``DIR`` or ``NAME=DIR``; DIR may be a glob or a URI. Raises UsageError."""
    name, equals, path = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        name, path = "", text
    if not path:
        raise UsageError(f"{text!r} names no directory. Needed: DIR, or NAME=DIR")
    return Place(name, path)


@dataclass(frozen=True)
class Request:
    """source, dest: directories of each ensemble's servers. chroot: the subtree that is to move. server:
    whose log is read where one is enough; empty: the one that reaches farthest back. window_s: of a cut-over.
    depth: how many elements of a path name a subtree. top: rows of a table that people read.

    For the jobs that say so: zxid, where trees are compared; after_cut, dest was cut over; on_dest, sessions
    known to be clients of dest, signed; watches, saved answers to wchp; server_logs, ZooKeeper's own text
    logs; broker_dirs, brokers' log directories; broker_logs, brokers' text logs; client_history, of real
    clients; run, the folder of a finished run; broker_log_zone, in which brokers' text logs are dated."""

    source: tuple[Place, ...]
    dest: tuple[Place, ...] = ()
    chroot: str = "/"
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
    broker_dirs: tuple[str, ...] = ()
    broker_logs: tuple[str, ...] = ()
    client_history: tuple[str, ...] = ()
    run: Path | None = None
    broker_log_zone: str = "UTC"

    @property
    def depth_below(self) -> int:
        """How many elements of a path name a subtree of the chroot."""
        return self.depth + len([part for part in self.chroot.split("/") if part])
