"""A directory of ZooKeeper's files, named as ``DIR`` on this machine or ``HOST:DIR``, as scp(1) does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zkmigrate.discovery.hosts import DirectHosts
from zkmigrate.errors import UsageError, ZkmigrateError
from zkmigrate.hosts.transport import Transport
from zkmigrate.hosts.transport.reader import SftpReader
from zkmigrate.inventory.inventory import Ssh
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import log_files
from zkmigrate.zookeeper.data.proofs import Side
from zkmigrate.zookeeper.data.reader import Directory, FileDirectory, Listed
from zkmigrate.zookeeper.data.snapname import snapshot_files

VERSION_2 = "version-2"


class DiskError(ZkmigrateError):
    """ZooKeeper's files are there and cannot be read as such."""

    exit_code = 8


@dataclass(frozen=True)
class Place:
    """host: empty for this machine."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}:{self.path}" if self.host else self.path

    def inside(self, name: str) -> Place:
        """The directory of this name in it."""
        return Place(self.host, f"{self.path.rstrip('/')}/{name}")


def parse_place(text: str) -> Place:
    """A colon before any slash ends the name of a host. UsageError where either part is empty."""
    head, colon, rest = text.partition(":")
    host, path = (head, rest) if colon and "/" not in head else ("", text)
    if not path or (colon and not head):
        raise UsageError(
            f"{text!r} names no directory. Needed: DIR, or HOST:DIR; a DIR of this machine that has a colon "
            "before its first slash begins with ./"
        )
    return Place(host, path)


Pair = tuple[Place, Place | None]
"""A dataDir, and the dataLogDir where it is another."""


def paired(options: dict[str, Any]) -> list[Pair]:
    """Source's, then those of dest, from ``source_dir``, ``source_log_dir``, ``dest_dirs``,
    ``dest_log_dirs``. Raises UsageError where the lists do not fit each other."""
    dests, logs = options["dest_dirs"], options["dest_log_dirs"]
    if logs and len(logs) != len(dests):
        raise UsageError(
            f"{len(dests)} --dest-dir and {len(logs)} --dest-log-dir. Needed: one for each, in the same order"
        )
    named = [(options["source_dir"], options["source_log_dir"])]
    named += zip(dests, logs or [None] * len(dests), strict=True)
    return [(parse_place(data), parse_place(log) if log else None) for data, log in named]


def distant(pairs: list[Pair]) -> bool:
    """Whether any of them is on a host."""
    return any(place.host for pair in pairs for place in pair if place is not None)


@dataclass(frozen=True)
class RemoteDirectory:
    """``zookeeper.data``'s Directory by SFTP. Raises TransportError, and OSError as the host says."""

    transport: Transport
    place: Place

    def names_with_sizes(self) -> dict[str, int]:
        """Every entry and its size in bytes; -1 for what is no regular file."""
        connection = self.transport.connection(self.place.host)
        entries = connection.list_directory(self.place.path, self.transport.file_s)
        return {entry.name: entry.size if entry.kind == "f" else -1 for entry in entries}

    def open(self, name: str) -> SftpReader:
        """Random access to one file."""
        return SftpReader(self.transport, self.place.host, f"{self.place.path.rstrip('/')}/{name}")


class Disks:
    """Opens places. transport: the way to hosts, None where there is none."""

    def __init__(self, transport: Transport | None) -> None:
        self._transport = transport

    def directory(self, place: Place) -> Listed:
        """What holds the place's snapshots or logs, as listed now: its ``version-2``, or the place itself if
        it has such files or that name.

        Raises UsageError for anything that is neither, OSError and TransportError where it cannot be listed.
        """
        here = Listed(self._at(place))
        names = here.names_with_sizes()
        if names.get(VERSION_2) == -1:
            return Listed(self._at(place.inside(VERSION_2)))
        if place.path.rstrip("/").rpartition("/")[2] == VERSION_2 or log_files(here) or snapshot_files(here):
            return here
        shown = ", ".join(sorted(names)[:3]) or "nothing"
        raise UsageError(
            f"{place} is no directory of ZooKeeper's: it holds {shown}. Needed: a dataDir or dataLogDir "
            f"with its {VERSION_2}, or that folder itself"
        )

    def _at(self, place: Place) -> Directory:
        if not place.host:
            return FileDirectory(Path(place.path))
        if self._transport is None:
            raise UsageError(f"{place}: no host can be reached here")
        return RemoteDirectory(self._transport, place)


@contextmanager
def reached(ssh: Ssh | None) -> Iterator[Disks]:
    """Places of this machine and, with ``ssh``, of hosts, for as long as the block lasts."""
    if ssh is None:
        yield Disks(None)
        return
    transport = Transport(DirectHosts(ssh))
    try:
        yield Disks(transport)
    finally:
        transport.close()


def opened(disks: Disks, data: Place, log: Place | None) -> Side:
    """Raises as `Disks.directory`."""
    snapshots = disks.directory(data)
    return Side(str(data), snapshots, disks.directory(log) if log else snapshots)


@contextmanager
def read(disks: Disks, data: Place, log: Place | None) -> Iterator[Side]:
    """Open a server's disk for as long as the block lasts. log: where the logs are, if not beside the
    snapshots. Raises DiskError for files that cannot be read as ZooKeeper's, UsageError for a place that has
    none."""
    try:
        yield opened(disks, data, log)
    except ZkDataError as error:
        raise DiskError(f"{data}: {error}") from error
    except OSError as error:
        raise DiskError(f"{data}{f' or {log}' if log else ''}: {error.strerror or error}") from error
