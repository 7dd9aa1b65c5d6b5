"""ZooKeeper's directories on a host, read through a ``Look``."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look, RandomReader
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.four_letter_words import Mntr
from zkmigrate.zookeeper.data.reader import Listed
from zkmigrate.zookeeper.data.tail import Tail, newest
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.data.txnlog import Cursor

VERSION_2 = "version-2"


@dataclass(frozen=True)
class HostDirectory:
    """A Directory on a host; raises HostError if the host does not answer."""

    look: Look
    host: str
    path: str

    def names_with_sizes(self) -> dict[str, int]:
        """Sizes in bytes by name, -1: not a file. An absent directory is empty."""
        reading = self.look.listing(self.host, self.path)
        if isinstance(reading, Absent):
            return {}
        if isinstance(reading, Unknown):
            raise HostError(f"{self.host}: cannot list {self.path}: {reading}")
        return {e.name: e.size if e.kind == "f" else -1 for e in reading.value}

    def open(self, name: str) -> RandomReader:
        """One file."""
        return self.look.reader(self.host, f"{self.path}/{name}")


def directories(look: Look, host: str, data_dir: str, txn_dir: str) -> tuple[HostDirectory, HostDirectory]:
    """The snapshot and the log directory (``version-2`` of each) of a host."""
    data = HostDirectory(look, host, f"{data_dir}/{VERSION_2}")
    return data, HostDirectory(look, host, f"{txn_dir}/{VERSION_2}")


def listed(look: Look, host: str, data_dir: str, txn_dir: str) -> Reading[tuple[Listed, Listed]]:
    """Both directories, each listed once, now."""
    data, logs = directories(look, host, data_dir, txn_dir)
    try:
        snapshots = Listed(data)
        return Seen((snapshots, snapshots if data == logs else Listed(logs)))
    except HostError as error:
        return Unknown("failed", str(error))


def durable_tail(
    look: Look, host: str, data_dir: str, txn_dir: str, cursor: Cursor | None = None, check: bool = True
) -> Tail:
    """The newest durable zxid of a host's directories. Raises HostError or ZkDataError if it is not known.

    cursor: where an earlier read of this host's log ended; if its file is gone, the log is read from its
    start."""
    data, logs = directories(look, host, data_dir, txn_dir)
    if cursor is not None and cursor.file not in logs.names_with_sizes():
        cursor = None
    return newest(data, logs, cursor=cursor, check=check)


@dataclass(frozen=True)
class Largest:
    """No znode has more than ``size`` bytes. where: its path, or the source of the bound."""

    size: int
    where: str


def largest_znode(
    look: Look, host: str, data_dir: str, txn_dir: str, whole: Reading[Mntr], enough: int
) -> Reading[Largest]:
    """A bound for the data of the largest znode, as cheap as possible.

    whole: ``mntr`` of the host: its zk_approximate_data_size, of all data and paths together, bounds every
    znode. Only if that is above ``enough`` bytes, or not known, the newest snapshot and its logs are read
    from disk, which costs O(tree) outside any window."""
    total = whole.value.number("zk_approximate_data_size") if isinstance(whole, Seen) else None
    if total is not None and total <= enough:
        return Seen(Largest(int(total), f"all data together, by mntr of {host}"))
    try:
        tree = load_tree(*directories(look, host, data_dir, txn_dir))
    except (HostError, ZkDataError) as error:
        return Unknown("failed", f"{host}: {error}")
    sizes = ((node.data_length, path) for path, node in tree.nodes.items())
    size, path = max(sizes, default=(0, "/"))
    return Seen(Largest(size, f"{path}, by the disk of {host}"))
