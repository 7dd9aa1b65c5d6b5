"""Check whether each server's logs and snapshots are complete, and its zxids without a hole.

Holes are those of `zookeeper.data.logdir.LogWalk`: within an epoch the counter rises by one, and a later
epoch begins with counter 1. A hole that a complete snapshot covers, as after a SNAP sync, is reported, but no
transaction is missing then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.spark.input import Input
from zkmigrate.spark.reading import load
from zkmigrate.spark.sources.files import File, files
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import is_log_or_snapshot, strays
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, Cursor, EndKind, Gap, LogScan, log_zxid
from zkmigrate.zookeeper.data.zxid import follows, format_zxid

Key: TypeAlias = tuple[str, str]
"""The name of an ensemble and the name of one of its servers."""
_Files: TypeAlias = set[tuple[Key, str]]
_STRETCH = 20
"""The number of low bits of a zxid that vary within one stretch, which one task sorts.

A hole between two stretches shows at their ends.
"""


@dataclass(frozen=True)
class Server:
    """One server of one ensemble.

    logs: the server's log files, oldest first, including files without a record.
    """

    ensemble: str
    name: str
    logs: Sequence[File]
    snapshots: Sequence[File]

    @property
    def key(self) -> Key:
        return self.ensemble, self.name


@dataclass
class Integrity:
    """The state of one server's files.

    records: the number of transactions. first, last: the first and last zxid. gaps, damage: the first holes
    and damaged places; holes, damages: the number of all. explained: the snapshots that cover a hole. torn:
    torn ends of logs. half: snapshots that a crash left half-written. strays: file names that no server
    writes. torn, half and strays are not damage.
    """

    records: int = 0
    first: int | None = None
    last: int | None = None
    gaps: list[Gap] = field(default_factory=list)
    holes: int = 0
    explained: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    damages: int = 0
    torn: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """The number of holes that no snapshot covers."""
        return self.holes - len(self.explained)

    def damaged(self, where: str) -> None:
        self.damages += 1
        self.damage.append(where)


def check_integrity(
    both: Mapping[str, Input], servers: Sequence[Server], records: DataFrame, top: int
) -> tuple[dict[Key, Integrity], DataFrame]:
    """Return each server's integrity by the server's key, and a table of all holes.

    records: the table of `transactions.records`, which is read several times. top: how many damaged places
    and holes are listed.
    """
    found = {one.key: Integrity(strays=_strays(one)) for one in servers}
    ends = _files(records, servers, found)
    _damage(records, found, top)
    for one in servers:
        _tails(one, found[one.key], ends)
    broken = _snapshots(both, servers, found)
    marks = _marks(records).persist(StorageLevel.DISK_ONLY)
    return found, _holes(marks, servers, found, broken, top)


def servers_of(ensemble: str, input: Input) -> list[Server]:
    """Return the servers of an ensemble.

    Raises UsageError for a place with no files, and for directories of several servers under one name.
    """
    listed: dict[str, dict[str, File]] = {}
    for place in input.places:
        for file in files((place.path,), place.server, is_log_or_snapshot):
            listed.setdefault(file.server, {})[file.path] = file
    servers = []
    for name, of_server in sorted(listed.items()):
        logs = [file for file in of_server.values() if log_zxid(file.name) is not None]
        snapshots = [file for file in of_server.values() if snapshot_zxid(file.name) is not None]
        for kind, found in (("logs", logs), ("snapshots", snapshots)):
            folders = sorted(set(map(_folder, found)))
            if len(folders) > 1:
                raise UsageError(
                    f"the {kind} of server {name} are in several directories: {', '.join(folders)}. Needed: "
                    "NAME=DIR with a different name for each server"
                )
        servers.append(
            Server(ensemble, name, sorted(logs, key=lambda log: log_zxid(log.name) or 0), snapshots)
        )
    if not input.logs_by_server:
        raise UsageError(
            f"there is no transaction log of {ensemble}. Needed: the dataLogDir of each of its servers"
        )
    return servers


def _folder(file: File) -> str:
    return file.path.rpartition("/")[0]


def _files(
    records: DataFrame, servers: Sequence[Server], found: Mapping[Key, Integrity]
) -> dict[tuple[Key, str], Row]:
    """Set each server's first and last zxid, and return a summary of each log, with its last record.

    The logs of a server must follow each other; logs that overlap are reported as damage.
    """
    rows = (
        records.filter("zxid IS NOT NULL")
        .groupBy("ensemble", "server", "file")
        .agg(
            F.count("*").alias("records"),
            F.min("zxid").alias("first"),
            F.max("zxid").alias("last"),
            F.max("offset").alias("offset"),
        )
        .collect()
    )
    by_file = {((row.ensemble, row.server), row.file): row for row in rows}
    for server in servers:
        here = found[server.key]
        for log in server.logs:
            row = by_file.get((server.key, log.name))
            if row is None:
                continue
            if here.last is not None and row["first"] <= here.last:
                here.damaged(
                    f"{log.name}: {format_zxid(row['first'])} comes after {format_zxid(here.last)} of an "
                    "older file"
                )
            here.records += row["records"]
            here.first = row["first"] if here.first is None else min(here.first, row["first"])
            here.last = row["last"] if here.last is None else max(here.last, row["last"])
    return by_file


def _damage(records: DataFrame, found: Mapping[Key, Integrity], top: int) -> None:
    rows = records.filter("corrupt IS NOT NULL")
    counted = rows.groupBy("ensemble", "server").count().collect()
    for row in counted:
        found[row.ensemble, row.server].damages += row["count"]
    if counted:
        for row in rows.orderBy("ensemble", "server", "file", "offset").limit(top).collect():
            found[row.ensemble, row.server].damage.append(row.corrupt)


def _tails(server: Server, found: Integrity, ends: Mapping[tuple[Key, str], Row]) -> None:
    """Read how each log of a server ends, beginning at its last record."""
    newest = max((n for n, log in enumerate(server.logs) if log.size > FILE_HEADER_SIZE), default=0)
    for number, log in enumerate(server.logs):
        row = ends.get((server.key, log.name))
        at = None if row is None else Cursor(log.name, row["offset"], row["last"] - 1)
        if not log.size:
            continue  # a server that stopped before it wrote
        try:
            scan = LogScan(log.reader(), log.name, at)
            for _ in scan:
                pass
        except ZkDataError as error:
            if log.size <= FILE_HEADER_SIZE:  # in longer logs the tasks have found the damage
                found.damaged(str(error))
            continue
        if scan.end is None or scan.end.kind is not EndKind.TORN:
            continue
        where = f"{log.name} at offset {scan.end.offset}: {scan.end.detail}"
        if scan.end.bad_checksum and number < newest:
            found.damaged(f"{where}, in a log that is not the newest")
        else:
            found.torn.append(where)


def _snapshots(
    both: Mapping[str, Input], servers: Sequence[Server], found: Mapping[Key, Integrity]
) -> _Files:
    """Return the snapshots that are incomplete according to their last seal, and report them.

    A server skips a snapshot without a seal as half-written, but would load a snapshot with a wrong seal.
    """
    read = [
        load(
            both[server.ensemble].spark,
            "zksnapshot",
            server.snapshots,
            {"table": "sessions", "mode": "permissive", "server": server.name},
        ).select(F.lit(server.ensemble).alias("ensemble"), "server", "file", "corrupt")
        for server in servers
        if server.snapshots
    ]
    rows = reduce(DataFrame.unionByName, read).filter("corrupt IS NOT NULL").collect() if read else []
    readers = {(server.key, file.name): file for server in servers for file in server.snapshots}
    broken: _Files = set()
    for row in rows:
        key = row.ensemble, row.server
        broken.add((key, row.file))
        if check_snapshot(readers[key, row.file].reader(), row.file, whole=False):
            found[key].half.append(row.corrupt)
        else:
            found[key].damaged(row.corrupt)
    return broken


def _marks(records: DataFrame) -> DataFrame:
    """Return the records at both ends of each stretch, and those with a hole in the zxids before them."""
    stretch = F.shiftright("zxid", _STRETCH).alias("stretch")
    some = records.filter("zxid IS NOT NULL").select("ensemble", "server", "file", "offset", "zxid", stretch)
    order = Window.partitionBy("ensemble", "server", "stretch").orderBy("zxid")
    beside = some.withColumn("before", F.lag("zxid").over(order)).withColumn(
        "next", F.lead("zxid").over(order)
    )
    return beside.filter("before IS NULL OR next IS NULL OR zxid > before + 1").drop("stretch")


def _holes(
    marks: DataFrame, servers: Sequence[Server], found: Mapping[Key, Integrity], broken: _Files, top: int
) -> DataFrame:
    """Set each server's holes, and return a table of the holes of all servers."""
    inner = marks.filter("zxid > before + 1").select("ensemble", "server", "file", "offset", "before", "zxid")
    edges = marks.filter("before IS NULL OR next IS NULL").orderBy("zxid").collect()
    between: list[tuple[Any, ...]] = []
    for server in servers:
        own = [row for row in edges if (row.ensemble, row.server) == server.key]
        lasts = [row.zxid for row in own if row.next is None]
        firsts = [row for row in own if row.before is None]
        for before, row in zip(lasts, firsts[1:], strict=False):
            if row.zxid > before and not follows(before, row.zxid):
                between.append((*server.key, row.file, row.offset, before, row.zxid))
    schema = "ensemble string, server string, file string, offset long, before long, zxid long"
    every = inner.unionByName(marks.sparkSession.createDataFrame(between, schema))
    for row in every.groupBy("ensemble", "server").count().collect():
        found[row.ensemble, row.server].holes = row["count"]
    for server in servers:
        here = found[server.key]
        if not here.holes:
            continue
        mine = every.filter((F.col("ensemble") == server.ensemble) & (F.col("server") == server.name))
        here.gaps += [_gap(row) for row in mine.orderBy("zxid").limit(top).collect()]
        whole = [file.name for file in server.snapshots if (server.key, file.name) not in broken]
        inside = [F.lit(snapshot_zxid(name)).between(F.col("before"), F.col("zxid")) for name in whole]
        if inside:  # few rows, because there are few snapshots
            rows = mine.filter(reduce(Column.__or__, inside)).orderBy("zxid").collect()
            here.explained += [name for row in rows for name in _explained(_gap(row), whole)[:1]]
    return every


def _gap(row: Row) -> Gap:
    return Gap(row.file, row.offset, row.before, row.zxid)


def _explained(gap: Gap, whole: Iterable[str]) -> list[str]:
    """Return the snapshots that cover a hole.

    A snapshot that a server received from the leader contains the transactions that the server's log lacks.
    """
    zxids = ((snapshot_zxid(name) or 0, name) for name in whole)
    return [name for zxid, name in zxids if gap.before < zxid and follows(zxid, gap.after)]


def _strays(server: Server) -> list[str]:
    """Return the stray file names in a server's directories on this machine.

    Directories at a URI are not listed.
    """
    folders = {_folder(file) for file in (*server.logs, *server.snapshots)}
    return [name for one in sorted(folders) if "://" not in one for name in strays(FileDirectory(Path(one)))]
