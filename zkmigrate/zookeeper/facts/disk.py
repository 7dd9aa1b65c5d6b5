"""ZooKeeper's directories of a host, read through a look: the bridge from ``Look`` to ``zookeeper.data``."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look, RandomReader
from zkmigrate.zookeeper.data.reader import Listed
from zkmigrate.zookeeper.data.tail import Tail, newest
from zkmigrate.zookeeper.data.txnlog import Cursor

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


def directories(look: Look, host: str, data_dir: str, txn_dir: str) -> tuple[HostDirectory, HostDirectory]:
    """The snapshot and the log directory (``version-2`` of each) of a host."""
    data = HostDirectory(look, host, f"{data_dir}/{VERSION_2}")
    return data, HostDirectory(look, host, f"{txn_dir}/{VERSION_2}")


def listed(look: Look, host: str, data_dir: str, txn_dir: str) -> Reading[tuple[Listed, Listed]]:
    """Both directories as they are listed now, each once."""
    data, logs = directories(look, host, data_dir, txn_dir)
    try:
        snapshots = Listed(data)
        return Seen((snapshots, snapshots if data == logs else Listed(logs)))
    except HostError as error:
        return Unknown("failed", str(error))


def durable_tail(
    look: Look, host: str, data_dir: str, txn_dir: str, cursor: Cursor | None = None, check: bool = True
) -> Tail:
    """Newest durable zxid of a host's directories; HostError or ZkDataError when it cannot be told.

    cursor: where an earlier read of this host's log ended; without its file the log is read from its start.
    """
    data, logs = directories(look, host, data_dir, txn_dir)
    if cursor is not None and cursor.file not in logs.names_with_sizes():
        cursor = None
    return newest(data, logs, cursor=cursor, check=check)
