"""Read the files of one server, as a directory for the readers of `zookeeper.data` and as Spark tables."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from zkmigrate.errors import UsageError
from zkmigrate.spark.input import shared
from zkmigrate.spark.reading import load
from zkmigrate.spark.request import Place
from zkmigrate.spark.sources.files import File, files
from zkmigrate.zookeeper.data.logdir import is_log_or_snapshot
from zkmigrate.zookeeper.data.proofs import Side
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, MAX_RECORD, log_zxid


@dataclass(frozen=True)
class Disk:
    """The logs and snapshots of one server.

    server: the server's name. files: the files by name, listed only once. max_record: the size of the largest
    accepted record in bytes.
    """

    server: str
    files: Mapping[str, File]
    max_record: int = MAX_RECORD

    def names_with_sizes(self) -> dict[str, int]:
        """Return the file sizes by name, as `zookeeper.data.reader.Directory` requires."""
        return {name: file.size for name, file in self.files.items()}

    def open(self, name: str) -> RandomReader:
        """Open one file, as `zookeeper.data.reader.Directory` requires."""
        return self.files[name].reader()

    @property
    def side(self) -> Side:
        """The server's disk in the form that the proofs of `zookeeper.data` take."""
        return Side(self.server, self, self)

    def log(
        self,
        spark: SparkSession,
        after: int | None = None,
        *,
        zxids: tuple[int, int] = (0, (1 << 63) - 1),
        data: bool = False,
    ) -> DataFrame | None:
        """Return the server's log as a table of operations, or None if the log has no record.

        after: leave out the files before the one in which a walk after this zxid begins; None for the whole
        log. zxids: the lowest and highest zxid of the result. data: whether to include the znodes' data.
        """
        logs = {file: zxid for name, file in self.files.items() if (zxid := log_zxid(name)) is not None}
        start = 0
        if after is not None:
            start = max((zxid for file, zxid in logs.items() if zxid <= after + 1 and file.size), default=0)
        wanted = [file for file, zxid in logs.items() if zxid >= start and file.size > FILE_HEADER_SIZE]
        more = {"data": str(data).lower(), "fromZxid": str(zxids[0]), "toZxid": str(zxids[1])}
        more |= shared(spark, wanted)
        return self._read(spark, "zktxnlog", wanted, more) if wanted else None

    def znodes(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a snapshot's znodes with their data. A damaged snapshot gives a row with `corrupt`."""
        return self._read(spark, "zksnapshot", [self.files[name]], {"data": "true", "mode": "permissive"})

    def _read(
        self, spark: SparkSession, source: str, found: Sequence[File], more: dict[str, str]
    ) -> DataFrame:
        return load(spark, source, found, {"server": self.server, "maxRecord": str(self.max_record), **more})


def disks(places: Sequence[Place], max_record: int) -> list[Disk]:
    """Return the servers whose files are in these places, sorted by name.

    Raises UsageError for a place without logs and snapshots, and if logs (or snapshots) with one server name
    are in several directories: two servers read as one would prove nothing.
    """
    found: dict[str, dict[str, File]] = {}
    for place in places:
        for file in files((place.path,), place.server, is_log_or_snapshot):
            known = found.setdefault(file.server, {}).setdefault(file.name, file)
            if known.path != file.path:
                raise _two(file.server, known.path, file.path)
    for server, here in found.items():
        for is_one in (log_zxid, snapshot_zxid):
            folders = sorted(
                {posixpath.dirname(file.path) for file in here.values() if is_one(file.name) is not None}
            )
            if len(folders) > 1:
                raise _two(server, folders[0], folders[1])
    return [Disk(server, here, max_record) for server, here in sorted(found.items())]


def _two(server: str, one: str, other: str) -> UsageError:
    return UsageError(
        f"{one} and {other} both have the server name {server}. Needed: NAME=DIR with a different name "
        "for each server"
    )
