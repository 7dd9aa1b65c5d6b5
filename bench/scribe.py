"""Logs and a snapshot that real servers write in parallel, each in a `helper`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias, cast

from bench.helper import Helper
from bench.subtree import CREATE, DATA, paths
from bench.zookeeper import send, server
from bench.zxid_tail import NO_SNAPSHOT, Writes, written
from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.snapname import snapshot_files

Serve: TypeAlias = Callable[[Callable[[Any], Any]], None]

_MULTI = 14
_PER_MULTI = 2000
"""Creates in one request: some 300 kB of the 1 MB that a server takes."""
_IN_FLIGHT = 8
_HEAP_PER_ZNODE = 1000  # bytes; half of it is what a loaded tree needs
_LOAD_S = 900.0


@dataclass(frozen=True)
class Log:
    """A log of these writes, in a folder of this name."""

    writes: Writes
    folder: Path


@dataclass(frozen=True)
class Planted:
    """A snapshot of so many znodes, shaped as topics with their partitions."""

    znodes: int
    folder: Path


@dataclass(frozen=True)
class Scribe:
    """Lets a server write a log or a snapshot."""

    def __call__(self, serve: Serve) -> None:
        serve(_made)


def write(
    scribes: Sequence[Helper], wanted: Sequence[Log | Planted], progress: Callable[[str], None]
) -> None:
    """Let any of the scribes write each, in this order."""
    left, free = list(wanted), list(scribes)
    busy: dict[Connection, Helper] = {}
    while left or busy:
        while left and free:
            one = free.pop()
            progress(f"a server writes {left[0].folder.name}")
            one.send(left.pop(0))
            busy[one.connection] = one
        for ready in wait(list(busy)):
            one = busy.pop(cast(Connection, ready))
            one.answer()
            free.append(one)


def _made(wanted: Log | Planted) -> None:
    if isinstance(wanted, Log):
        written(wanted.writes, wanted.folder, 1.0)
        return
    wanted.folder.mkdir()
    heap = f"{max(512, wanted.znodes * _HEAP_PER_ZNODE >> 20)}m"
    with server(wanted.folder, heap, NO_SNAPSHOT) as port:
        send(port, _multis(wanted.znodes), _IN_FLIGHT)
    with server(wanted.folder, heap, NO_SNAPSHOT) as port:  # it first writes a snapshot of what it has loaded
        send(port, iter(()), 1, _LOAD_S)
    inside = wanted.folder / "version-2"
    newest = snapshot_files(FileDirectory(inside))[0].name
    for file in inside.iterdir():
        if file.name != newest:
            file.unlink()


def _multis(znodes: int) -> Iterator[tuple[int, bytes]]:
    """Requests that create them, thousands at a time: each operation behind a MultiHeader (type, done,
    error), and one more behind the last."""
    left = paths(znodes)
    while some := list(islice(left, _PER_MULTI)):
        creates = (
            struct.pack(">i?i", CREATE, False, -1) + messages.create_request(path, DATA, 0) for path in some
        )
        yield _MULTI, b"".join(creates) + struct.pack(">i?i", -1, True, -1)
