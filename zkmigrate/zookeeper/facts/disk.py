"""ZooKeeper's directories on a host, read through a ``Look`` by the readers of ``zookeeper.data``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Dest, Source
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look, RandomReader
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.four_letter_words import Mntr
from zkmigrate.zookeeper.data.reader import Listed
from zkmigrate.zookeeper.data.tail import Tail, newest
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.data.txnlog import Cursor

T = TypeVar("T")

VERSION_2 = "version-2"


@dataclass(frozen=True)
class HostDirectory:
    """A directory of a host, as `zookeeper.data` reads it. Raises HostError if the host does not answer."""

    look: Look
    host: str
    path: str

    def names_with_sizes(self) -> dict[str, int]:
        """Return the size in bytes of each entry by name.

        -1 marks an entry that is not a regular file. An absent directory is empty.
        """
        reading = self.look.listing(self.host, self.path)
        if isinstance(reading, Absent):
            return {}
        if isinstance(reading, Unknown):
            raise HostError(f"{self.host}: cannot list {self.path}: {reading}")
        return {e.name: e.size if e.kind == "f" else -1 for e in reading.value}

    def open(self, name: str) -> RandomReader:
        """Return a reader for one file."""
        return self.look.reader(self.host, f"{self.path}/{name}")


def directories(look: Look, host: str, ensemble: Source | Dest) -> tuple[HostDirectory, HostDirectory]:
    """Return a host's snapshot directory and log directory (``version-2`` of dataDir and dataLogDir)."""
    data = HostDirectory(look, host, f"{ensemble.data_dir}/{VERSION_2}")
    return data, HostDirectory(look, host, f"{ensemble.txn_dir}/{VERSION_2}")


def list_directories(look: Look, host: str, ensemble: Source | Dest) -> tuple[Listed, Listed]:
    """List the snapshot and the log directory, once if they are the same. Raises HostError."""
    data, logs = directories(look, host, ensemble)
    snapshots = Listed(data)
    return snapshots, snapshots if data == logs else Listed(logs)


def read_disk(read: Callable[[], T], host: str = "") -> Reading[T]:
    """Return the result of a function that reads a disk; Unknown if it raises HostError or ZkDataError.

    host: the name to put before the reason, for errors that do not name the host.
    """
    try:
        return Seen(read())
    except (HostError, ZkDataError) as error:
        return Unknown("failed", f"{host}: {error}" if host else str(error))


def durable_tail(
    look: Look, host: str, ensemble: Source | Dest, cursor: Cursor | None = None, check: bool = True
) -> Reading[Tail]:
    """Read the newest durable zxid of a host.

    cursor: the end of an earlier read of this host's log. If the cursor's file no longer exists, the log is
    read without the cursor. check: see :func:`newest`.
    """

    def read() -> Tail:
        data, logs = directories(look, host, ensemble)
        known = cursor is not None and cursor.file in logs.names_with_sizes()
        return newest(data, logs, cursor=cursor if known else None, check=check)

    return read_disk(read)


@dataclass(frozen=True)
class Largest:
    """An upper bound: no znode has more than ``size`` bytes. where: a znode's path, or another source."""

    size: int
    where: str


def largest_znode(
    look: Look, host: str, ensemble: Source | Dest, whole: Reading[Mntr], enough: int
) -> Reading[Largest]:
    """Return an upper bound for the data size of the largest znode, as cheaply as possible.

    whole: the answer of the host to ``mntr``. Its zk_approximate_data_size, the size of all data and paths
    together, is an upper bound for every znode. If this value is above ``enough`` bytes or unknown, the
    newest snapshot and its logs are read from disk, which costs O(tree) outside any window.
    """
    total = whole.value.number("zk_approximate_data_size") if isinstance(whole, Seen) else None
    if total is not None and total <= enough:
        return Seen(Largest(int(total), f"the size of all data in mntr of {host}"))
    tree = read_disk(lambda: load_tree(*directories(look, host, ensemble)), host)
    if not isinstance(tree, Seen):
        return tree
    sizes = ((node.data_length, path) for path, node in tree.value.nodes.items())
    size, path = max(sizes, default=(0, "/"))
    return Seen(Largest(size, f"{path} on the disk of {host}"))
