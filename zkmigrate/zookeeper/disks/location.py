"""Places of ZooKeeper's files, written as ``DIR`` on this machine or ``HOST:DIR``, as for scp(1).

The ssh client is imported only if a place is on another host, because the import takes longer than reading a
local directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkmigrate.errors import UsageError, ZkmigrateError
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import log_files
from zkmigrate.zookeeper.data.proofs import Side
from zkmigrate.zookeeper.data.reader import Directory, FileDirectory, Listed
from zkmigrate.zookeeper.data.snapname import snapshot_files

if TYPE_CHECKING:
    from zkmigrate.hosts.transport.reader import SftpReader
    from zkmigrate.hosts.transport.ssh import Transport
    from zkmigrate.inventory.inventory import Ssh

VERSION_2 = "version-2"


class DiskError(ZkmigrateError):
    """The files in a place cannot be read as ZooKeeper's logs and snapshots."""

    exit_code = 8


@dataclass(frozen=True)
class Place:
    """A directory on a host. host: empty for this machine."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}:{self.path}" if self.host else self.path

    def inside(self, name: str) -> Place:
        """Return the place of the directory `name` inside this directory."""
        return Place(self.host, f"{self.path.rstrip('/')}/{name}")


def parse_place(text: str) -> Place:
    """Parse ``DIR`` or ``HOST:DIR``. A colon before any slash ends a host name.

    Raises UsageError if host or directory is empty.
    """
    head, colon, rest = text.partition(":")
    host, path = (head, rest) if colon and "/" not in head else ("", text)
    if not path or (colon and not head):
        raise UsageError(
            f"{text!r} is not a directory. Needed: DIR, or HOST:DIR; put ./ before a local DIR that has a "
            "colon before its first slash"
        )
    return Place(host, path)


Pair = tuple[Place, Place | None]
"""A dataDir and its dataLogDir; None if that is the same directory."""


def parse_pairs(options: dict[str, Any]) -> list[Pair]:
    """Return source's pair of directories, then the pair of each dest disk.

    options: ``source_dir``, ``source_log_dir``, ``dest_dirs``, ``dest_log_dirs``. Raises UsageError if the
    lists of dest differ in length.
    """
    dests, logs = options["dest_dirs"], options["dest_log_dirs"]
    if logs and len(logs) != len(dests):
        raise UsageError(
            f"there are {len(dests)} --dest-dir and {len(logs)} --dest-log-dir. Needed: one --dest-log-dir "
            "for each --dest-dir, in the same order"
        )
    named = [(options["source_dir"], options["source_log_dir"])]
    named += zip(dests, logs or [None] * len(dests), strict=True)
    return [(parse_place(data), parse_place(log) if log else None) for data, log in named]


def any_remote(pairs: list[Pair]) -> bool:
    """Return whether any place is on another host."""
    return any(place.host for pair in pairs for place in pair if place is not None)


@dataclass(frozen=True)
class RemoteDirectory:
    """A directory read over SFTP. Raises TransportError, and OSError as the host reports it."""

    transport: Transport
    place: Place

    def names_with_sizes(self) -> dict[str, int]:
        """Return the size in bytes of each entry by name; -1 for an entry that is not a regular file."""
        connection = self.transport.connection(self.place.host)
        entries = connection.list_directory(self.place.path, self.transport.file_s)
        return {entry.name: entry.size if entry.kind == "f" else -1 for entry in entries}

    def open(self, name: str) -> SftpReader:
        """Return a reader for one file."""
        from zkmigrate.hosts.transport.reader import SftpReader

        return SftpReader(self.transport, self.place.host, f"{self.place.path.rstrip('/')}/{name}")


class Disks:
    """Access to places on this machine and other hosts. transport: None allows only this machine."""

    def __init__(self, transport: Transport | None) -> None:
        self._transport = transport

    def directory(self, place: Place) -> Listed:
        """List the directory with the place's snapshots or logs.

        This is the ``version-2`` of the place, or the place itself if it has such files or is called
        ``version-2``. Raises UsageError for any other place, OSError or TransportError if the directory
        cannot be listed.
        """
        here = Listed(self._at(place))
        names = here.names_with_sizes()
        if names.get(VERSION_2) == -1:
            return Listed(self._at(place.inside(VERSION_2)))
        if place.path.rstrip("/").rpartition("/")[2] == VERSION_2 or log_files(here) or snapshot_files(here):
            return here
        shown = ", ".join(sorted(names)[:3]) or "nothing"
        raise UsageError(
            f"{place} is not a directory of ZooKeeper. It contains {shown}. Needed: a dataDir or "
            f"dataLogDir with its {VERSION_2}, or the folder {VERSION_2} itself"
        )

    def _at(self, place: Place) -> Directory:
        if not place.host:
            return FileDirectory(Path(place.path))
        return RemoteDirectory(self._to(place), place)

    def _to(self, place: Place) -> Transport:
        if self._transport is None:
            raise UsageError(
                f"{place}: this command cannot read from other hosts. Next: name a directory of this machine"
            )
        return self._transport


@contextmanager
def open_disks(ssh: Ssh | None) -> Iterator[Disks]:
    """Yield access to the disks of this machine and, with ``ssh``, of other hosts, for the block."""
    if ssh is None:
        yield Disks(None)
        return
    from zkmigrate.hosts.transport.ssh import Transport
    from zkmigrate.inventory.discovery.hosts import DirectHosts

    transport = Transport(DirectHosts(ssh))
    try:
        yield Disks(transport)
    finally:
        transport.close()


def open_side(disks: Disks, data: Place, log: Place | None) -> Side:
    """Return a server's disk. log: None if it is ``data``. Raises the errors of `Disks.directory`."""
    snapshots = disks.directory(data)
    return Side(str(data), snapshots, disks.directory(log) if log else snapshots)


@contextmanager
def open_disk(disks: Disks, data: Place, log: Place | None) -> Iterator[Side]:
    """Yield a server's disk for the block.

    log: the place of the logs, if they are not beside the snapshots. Raises DiskError for files that cannot
    be read as ZooKeeper's, and UsageError for a place without files of ZooKeeper.
    """
    try:
        yield open_side(disks, data, log)
    except ZkDataError as error:
        raise DiskError(f"{data}: {error}") from error
    except OSError as error:
        raise DiskError(f"{data}{f' or {log}' if log else ''}: {error.strerror or error}") from error
