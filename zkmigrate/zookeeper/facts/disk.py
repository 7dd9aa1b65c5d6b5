"""ZooKeeper's directories of a host, read through a look: the bridge from ``Look`` to ``zookeeper.data``."""

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
    """``zookeeper.data``'s Directory over one directory of a host; raises HostError when the host does not
    answer."""

    look: Look
    host: str
    path: str

    def names_with_sizes(self) -> dict[str, int]:
        """Entries by name: size in bytes of files, -1 for anything else. An absent directory is empty."""
        reading = self.look.listing(self.host, self.path)
        if isinstance(reading, Absent):
            return {}
        if isinstance(reading, Unknown):
            raise HostError(f"{self.host}: cannot list {self.path}: {reading}")
        return {e.name: e.size if e.kind == "f" else -1 for e in reading.value}

    def open(self, name: str) -> RandomReader:
        """Random access to one file."""
        return self.look.reader(self.host, f"{self.path}/{name}")


def directories(look: Look, host: str, of: Source | Dest) -> tuple[HostDirectory, HostDirectory]:
    """The snapshot and the log directory (``version-2`` of each) of a host of this ensemble."""
    data = HostDirectory(look, host, f"{of.data_dir}/{VERSION_2}")
    return data, HostDirectory(look, host, f"{of.txn_dir}/{VERSION_2}")


def listed(look: Look, host: str, of: Source | Dest) -> tuple[Listed, Listed]:
    """Both directories as they are listed now, each once. Raises HostError."""
    data, logs = directories(look, host, of)
    snapshots = Listed(data)
    return snapshots, snapshots if data == logs else Listed(logs)


def read_disk(read: Callable[[], T], host: str = "") -> Reading[T]:
    """What this function reads from a disk; Unknown where it raises HostError or ZkDataError.

    host: named before the reason, where the error does not name it.
    """
    try:
        return Seen(read())
    except (HostError, ZkDataError) as error:
        return Unknown("failed", f"{host}: {error}" if host else str(error))


def durable_tail(
    look: Look, host: str, of: Source | Dest, cursor: Cursor | None = None, check: bool = True
) -> Reading[Tail]:
    """The newest durable zxid of a host.

    cursor: where an earlier read of this host's log ended; without its file the log is read from its start.
    check: as of :func:`newest`.
    """

    def read() -> Tail:
        data, logs = directories(look, host, of)
        known = cursor is not None and cursor.file in logs.names_with_sizes()
        return newest(data, logs, cursor=cursor if known else None, check=check)

    return read_disk(read)


@dataclass(frozen=True)
class Largest:
    """No znode has more than ``size`` bytes. where: its path, or the source of the bound."""

    size: int
    where: str


def largest_znode(
    look: Look, host: str, of: Source | Dest, whole: Reading[Mntr], enough: int
) -> Reading[Largest]:
    """A bound for the data of the largest znode, as cheap as possible.

    whole: ``mntr`` of the host: its zk_approximate_data_size, of all data and paths together, bounds every
    znode. Only if that is above ``enough`` bytes, or not known, the newest snapshot and its logs are read
    from disk, which costs O(tree) outside any window.
    """
    total = whole.value.number("zk_approximate_data_size") if isinstance(whole, Seen) else None
    if total is not None and total <= enough:
        return Seen(Largest(int(total), f"all data together, by mntr of {host}"))
    tree = read_disk(lambda: load_tree(*directories(look, host, of)), host)
    if not isinstance(tree, Seen):
        return tree
    sizes = ((node.data_length, path) for path, node in tree.value.nodes.items())
    size, path = max(sizes, default=(0, "/"))
    return Seen(Largest(size, f"{path}, by the disk of {host}"))
