"""continuity: whether each server's files are whole, its zxids without a hole, and the same zxid the same
transaction on all servers, of both ensembles where --dest is given.

Holes are those of `zkdata.logdir.walk`: within an epoch the counter rises by one, a later epoch begins with
counter 1. A hole that a whole snapshot ends, as after a SNAP sync, is told, but nothing is missing.

Transactions are compared by 64-bit hashes of all that their records hold, the data too. Three things may
differ without a fault, and are not compared: the digest of the tree, and the paths that a closeSession
deletes, where a server wrote none, as those before 3.6; and the operations of a failed multi, which an
observer replaces by errors while it logs them (see `zkdata.txn`), and which had no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from zkmigrate.analyze.input import Input
from zkmigrate.analyze.plain import moment, plain
from zkmigrate.analyze.section import Section
from zkmigrate.errors import UsageError
from zkmigrate.pipeline.files import File, files
from zkmigrate.report.tables import Table
from zkmigrate.zkdata.errors import ZkDataError
from zkmigrate.zkdata.logdir import strays
from zkmigrate.zkdata.reader import FileDirectory
from zkmigrate.zkdata.seal import check_snapshot
from zkmigrate.zkdata.session import format_session
from zkmigrate.zkdata.snapname import snapshot_zxid
from zkmigrate.zkdata.txnlog import FILE_HEADER_SIZE, Cursor, EndKind, Gap, LogScan, log_zxid
from zkmigrate.zkdata.zxid import follows, format_zxid

_Key = tuple[str, str]
SOURCE, DEST = "source", "dest"
_CLOSES = "closeSession"
_RECORD = ("ensemble", "server", "file", "offset", "zxid", "corrupt")
_HEAD = ("time", "session", "cxid", "type", "failed")
_BODY = ("path", "sequence", "multi", "data_length", "data", "version", "acl", "ephemeral_owner", "ttl_ms",
         "timeout_ms", "error")  # fmt: skip
_SHOWN = (*_HEAD, "multi", "path", "data_length", "data_sha256", "version", "acl", "ephemeral_owner",
          "ttl_ms", "timeout_ms", "error", "digest")  # fmt: skip
_STRETCH = 20
"""Bits of the zxids that one task sorts; a hole between two such stretches is found from their ends."""


@dataclass(frozen=True)
class _Server:
    """One server of one ensemble. logs: oldest first, those without a record among them."""

    ensemble: str
    name: str
    logs: Sequence[File]
    snapshots: Sequence[File]

    @property
    def key(self) -> _Key:
        return self.ensemble, self.name


@dataclass
class _Found:
    """Of one server. first, last: zxids. damage, holes: the first ones, each as words, with their numbers;
    explained: holes that a snapshot ends. left: what a crash leaves, a torn end of a log or a half-written
    snapshot, and names that belong there not: told, no damage."""

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

    def damaged(self, told: str) -> None:
        self.damages += 1
        self.damage.append(told)


def run(input: Input) -> Section:
    """The job."""
    spark, asked = input.spark, input.asked
    both = {SOURCE: input} | ({DEST: Input(spark, asked, asked.dest)} if asked.dest else {})
    servers = [one for name, ensemble in both.items() for one in _servers(name, ensemble)]
    log = _operations(both)
    records = _records(log).persist(StorageLevel.DISK_ONLY)
    found = {one.key: _Found() for one in servers}
    ends = _files(records, servers, found)
    _damage(records, found, asked.top)
    for one in servers:
        _tails(one, found[one.key], ends)
    broken = _snapshots(both, servers, found)
    marks = _marks(records).persist(StorageLevel.DISK_ONLY)
    holes = _holes(marks, servers, found, broken, asked.top)
    _strays(both, found)
    compared = _compared(records)
    divergent = compared.filter("divergent").select("zxid").persist()
    frames = {
        "damage": records.filter("corrupt IS NOT NULL").select(*_RECORD),
        "holes": holes,
        "divergences": _named(log.join(divergent, "zxid", "left_semi")),
    }
    return _section(servers, found, _divergence(log, compared, divergent, asked.top), frames, asked.top)


# --- what there is to read


def _servers(ensemble: str, input: Input) -> list[_Server]:
    """Raises UsageError for a place where there is nothing, and for a server with two files of one name."""
    listed: dict[str, dict[str, File]] = {}
    for place in input.places:
        for file in files((place.path,), place.server, _is_one):
            listed.setdefault(file.server, {})[file.path] = file
    for name, by_path in listed.items():
        by_name: dict[str, str] = {}
        for path in by_path:
            other = by_name.setdefault(path.rpartition("/")[2], path)
            if other != path:
                raise UsageError(
                    f"two files of one name for server {name}: {other}, {path}. Needed: NAME=DIR for each "
                    "server, and one copy of each file"
                )
    if not input.logs_by_server:
        raise UsageError(f"no transaction log of {ensemble}. Needed: dataLogDir of each of its servers")
    return [
        _Server(
            ensemble,
            name,
            sorted((f for f in of.values() if log_zxid(f.name) is not None), key=_begins),
            [f for f in of.values() if snapshot_zxid(f.name) is not None],
        )
        for name, of in sorted(listed.items())
    ]


def _is_one(name: str) -> bool:
    return log_zxid(name) is not None or snapshot_zxid(name) is not None


def _begins(log: File) -> int:
    return log_zxid(log.name) or 0


def _operations(both: Mapping[str, Input]) -> DataFrame:
    """The logs of all servers, with what is compared: `core`, of each operation a hash; `paths`, of those
    that a closeSession names. Damage is rows with `corrupt`."""
    read = [
        input.log_of(name, mode="permissive", data="true").withColumn("ensemble", F.lit(ensemble))
        for ensemble, input in both.items()
        for name in input.logs_by_server
    ]
    log = reduce(DataFrame.unionByName, read)
    return log.select(
        *_RECORD,
        *_HEAD,
        *(name for name in _BODY if name != "data"),
        F.sha2("data", 256).alias("data_sha256"),
        "digest",
        _core().alias("core"),
        F.when((F.col("type") == _CLOSES) & F.col("path").isNotNull(), F.xxhash64("path")).alias("paths"),
    )


def _core() -> Column:
    """Null where an operation is not compared."""
    header = F.xxhash64("time", "session", "cxid", F.when(F.col("failed"), "multi").otherwise(F.col("type")))
    first = F.when(F.col("sequence") == 0, header)
    return F.when(F.col("failed") | (F.col("type") == _CLOSES), first).otherwise(F.xxhash64(*_HEAD, *_BODY))


def _records(log: DataFrame) -> DataFrame:
    """A row for each transaction and each damage."""
    return log.groupBy(*_RECORD).agg(
        F.bit_xor("core").alias("core"), F.bit_xor("paths").alias("paths"), F.max("digest").alias("digest")
    )


# --- each server by itself


def _files(
    records: DataFrame, servers: Sequence[_Server], found: Mapping[_Key, _Found]
) -> dict[tuple[_Key, str], Row]:
    """Its first and last zxid; logs must follow each other. Gives each log's last record."""
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


def _damage(records: DataFrame, found: Mapping[_Key, _Found], top: int) -> None:
    rows = records.filter("corrupt IS NOT NULL")
    for row in rows.groupBy("ensemble", "server").count().collect():
        found[row.ensemble, row.server].damages += row["count"]
    for row in rows.orderBy("ensemble", "server", "file", "offset").limit(top).collect():
        found[row.ensemble, row.server].damage.append(row.corrupt)


def _tails(server: _Server, found: _Found, ends: Mapping[tuple[_Key, str], Row]) -> None:
    """How each log ends, read from its last record on."""
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
            if log.size <= FILE_HEADER_SIZE:  # in longer ones the tasks have found it
                found.damaged(str(error))
            continue
        if scan.end is None or scan.end.kind is not EndKind.TORN:
            continue
        told = f"{log.name} at offset {scan.end.offset}: {scan.end.detail}"
        if scan.end.bad_checksum and number < newest:
            found.damaged(f"{told}, in a log that is not the newest")
        else:
            found.torn.append(told)


def _snapshots(
    both: Mapping[str, Input], servers: Sequence[_Server], found: Mapping[_Key, _Found]
) -> set[tuple[_Key, str]]:
    """Snapshots that are not whole, by their last seal. One without a seal at its end, a server passes over
    as half-written; one with a seal that does not match, it would load."""
    read = [
        both[server.ensemble]
        .spark.read.format("zksnapshot")
        .options(table="sessions", mode="permissive", server=server.name)
        .load([file.path for file in server.snapshots])
        .select(F.lit(server.ensemble).alias("ensemble"), "server", "file", "corrupt")
        for server in servers
        if server.snapshots
    ]
    rows = reduce(DataFrame.unionByName, read).filter("corrupt IS NOT NULL").collect() if read else []
    readers = {(server.key, file.name): file for server in servers for file in server.snapshots}
    broken: set[tuple[_Key, str]] = set()
    for row in rows:
        key = row.ensemble, row.server
        broken.add((key, row.file))
        if check_snapshot(readers[key, row.file].reader(), row.file, whole=False):
            found[key].half.append(row.corrupt)
        else:
            found[key].damaged(row.corrupt)
    return broken


def _marks(records: DataFrame) -> DataFrame:
    """Records where the zxids do not go on by one, and the first and last of each stretch."""
    stretch = F.shiftright("zxid", _STRETCH).alias("stretch")
    some = records.filter("zxid IS NOT NULL").select("ensemble", "server", "file", "offset", "zxid", stretch)
    order = Window.partitionBy("ensemble", "server", "stretch").orderBy("zxid")
    beside = some.withColumn("before", F.lag("zxid").over(order)).withColumn(
        "next", F.lead("zxid").over(order)
    )
    return beside.filter("before IS NULL OR next IS NULL OR zxid > before + 1").drop("stretch")


def _holes(
    marks: DataFrame,
    servers: Sequence[_Server],
    found: Mapping[_Key, _Found],
    broken: set[tuple[_Key, str]],
    top: int,
) -> DataFrame:
    """Also gives all of them as a frame."""
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
    for server in servers:
        here = found[server.key]
        mine = every.filter((F.col("ensemble") == server.ensemble) & (F.col("server") == server.name))
        whole = [f for f in server.snapshots if (server.key, f.name) not in broken]
        for row in mine.orderBy("zxid").limit(top).collect():
            here.gaps.append(Gap(row.file, row.offset, row.before, row.zxid))
            here.explained += _explained(here.gaps[-1], whole)[:1]
    for row in every.groupBy("ensemble", "server").count().collect():
        found[row.ensemble, row.server].holes = row["count"]
    return every


def _explained(gap: Gap, whole: Iterable[File]) -> list[str]:
    """Snapshots that end a hole: received from the leader, they stand for what the log does not have."""
    zxids = ((snapshot_zxid(file.name) or 0, file.name) for file in whole)
    return [name for zxid, name in zxids if gap.before < zxid and follows(zxid, gap.after)]


def _strays(both: Mapping[str, Input], found: Mapping[_Key, _Found]) -> None:
    """Of directories on this machine; of a URI's only files are listed, so nothing is told of it."""
    for ensemble, input in both.items():
        for place in input.places:
            if "://" in place.path or Path(place.path).is_file():
                continue
            for folder, server in {
                (file.path.rpartition("/")[0], file.server)
                for file in files((place.path,), place.server, _is_one)
            }:
                found[ensemble, server].strays += strays(FileDirectory(Path(folder)))


# --- servers against each other


def _compared(records: DataFrame) -> DataFrame:
    """Zxids that several records have; divergent: whether these differ."""

    def differ(name: str) -> Column:
        return F.coalesce(F.min(name) != F.max(name), F.lit(False))

    grouped = records.filter("zxid IS NOT NULL").groupBy("zxid")
    told = (differ("core") | differ("paths") | differ("digest")).alias("divergent")
    return grouped.agg(F.count("*").alias("records"), told).filter("records > 1")


def _named(log: DataFrame) -> DataFrame:
    """Each record with the first of its operations that others at its zxid do not have so; hash: of all that
    is compared of the record. log: of some zxids."""
    record = ("ensemble", "server", "file", "offset", "zxid")
    whole = F.bit_xor("core").over(Window.partitionBy(*record))
    hashed = log.withColumn("hash", F.lower(F.lpad(F.hex(whole), 16, "0")))
    unlike = F.coalesce((F.min("core") != F.max("core")) | (F.min("paths") != F.max("paths")), F.lit(False))
    operations = log.groupBy("zxid", "sequence").agg(F.count("*").alias("have"), unlike.alias("unlike"))
    most = F.max("have").over(Window.partitionBy("zxid"))
    judged = operations.withColumn("unlike", F.col("unlike") | (F.col("have") < most))
    place = judged.groupBy("zxid").agg(
        F.coalesce(F.min(F.when(F.col("unlike"), F.col("sequence"))), F.lit(0)).alias("at")
    )
    shown = F.struct("sequence", "hash", *(name for name in _SHOWN))
    upto = hashed.join(place, "zxid").filter("sequence <= at")
    chosen = upto.groupBy(*record).agg(F.max_by(shown, "sequence").alias("shown"))
    return chosen.select(*record, "shown.*").orderBy("zxid", "ensemble", "server", "file", "offset")


@dataclass(frozen=True)
class _Divergence:
    """compared: zxids that several records have; divergent: of them; named: the records of the first ones, by
    zxid."""

    compared: int
    divergent: int
    named: list[Row]

    def differs(self, zxid: int) -> str:
        """The columns in which the records of a zxid differ."""
        rows = [row for row in self.named if row.zxid == zxid]
        unlike = [name for name in _SHOWN if len({str(row[name]) for row in rows}) > 1]
        return ", ".join(unlike) or "number of operations"


def _divergence(log: DataFrame, compared: DataFrame, divergent: DataFrame, top: int) -> _Divergence:
    first = [row.zxid for row in divergent.orderBy("zxid").limit(top).collect()]
    named: list[Row] = []
    if first:
        named = _named(
            log.filter(F.col("zxid").between(first[0], first[-1]) & F.col("zxid").isin(first))
        ).collect()
    return _Divergence(compared.count(), divergent.count() if first else 0, named)


# --- what is said


def _section(
    servers: Sequence[_Server],
    found: Mapping[_Key, _Found],
    across: _Divergence,
    frames: Mapping[str, DataFrame],
    top: int,
) -> Section:
    missing = {one.key: found[one.key].holes - len(found[one.key].explained) for one in servers}
    bad = [one for one in servers if missing[one.key] or found[one.key].damages]
    held = not bad and not across.divergent
    by_zxid = {row.zxid: across.differs(row.zxid) for row in across.named}
    figures = {
        "servers": [_server_figures(one, found[one.key]) for one in servers],
        "compared": across.compared,
        "divergent": across.divergent,
        "first_divergent_zxid": format_zxid(across.named[0].zxid) if across.named else None,
        "divergences": [plain(row) | {"differs": by_zxid[row.zxid]} for row in across.named],
    }
    answer = " ".join(
        [*(_told(one, found[one.key], missing[one.key]) for one in servers), _told_across(servers, across)]
    )
    tables = (
        _servers_table(servers, found),
        _files_table(servers, found, top),
        _divergences_table(across, by_zxid),
    )
    return Section("Continuity", answer, figures, tuple(t for t in tables if t.rows), (), frames, held)


def _server_figures(server: _Server, found: _Found) -> dict[str, Any]:
    return {
        "ensemble": server.ensemble,
        "server": server.name,
        "logs": len(server.logs),
        "snapshots": len(server.snapshots),
        "records": found.records,
        "first_zxid": None if found.first is None else format_zxid(found.first),
        "last_zxid": None if found.last is None else format_zxid(found.last),
        "holes": found.holes,
        "first_holes": [
            {
                "file": g.file,
                "offset": g.offset,
                "before": format_zxid(g.before),
                "after": format_zxid(g.after),
            }
            for g in found.gaps
        ],
        "ended_by_snapshot": found.explained,
        "damages": found.damages,
        "damage": found.damage,
        "torn": found.torn,
        "half_written_snapshots": found.half,
        "strays": found.strays,
    }


def _told(server: _Server, found: _Found, missing: int) -> str:
    name = f"{server.name} of {server.ensemble}"
    if found.first is None or found.last is None:
        said = f"{name}: no transaction"
    else:
        span = f"{format_zxid(found.first)} to {format_zxid(found.last)}"
        said = f"{name}: {found.records} transactions, {span}"
    wrong = []
    if missing:
        wrong.append(f"{missing} holes")
    if found.damages:
        wrong.append(f"{found.damages} times damage")
    if found.explained:
        wrong.append(f"{len(found.explained)} holes that a snapshot ends")
    if found.torn:
        wrong.append(f"{len(found.torn)} torn ends")
    if found.half:
        wrong.append(f"{len(found.half)} half-written snapshots")
    if found.strays:
        wrong.append(f"{len(found.strays)} stray names")
    return f"{said}, {', '.join(wrong) if wrong else 'whole and without a hole'}."


def _told_across(servers: Sequence[_Server], across: _Divergence) -> str:
    if len(servers) == 1:
        return "One server: there is nothing to compare it with."
    if not across.compared:
        return "No zxid is in the logs of two servers, so no transaction could be compared."
    if not across.divergent:
        return f"{across.compared} zxids are in several logs, each everywhere the same transaction."
    first = across.named[0]
    return (
        f"Of {across.compared} zxids that are in several logs, {across.divergent} are not everywhere the "
        f"same transaction; the first is {format_zxid(first.zxid)}, which differs in "
        f"{across.differs(first.zxid)}."
    )


def _servers_table(servers: Sequence[_Server], found: Mapping[_Key, _Found]) -> Table:
    head = (
        "ensemble",
        "server",
        "logs",
        "records",
        "first zxid",
        "last zxid",
        "holes",
        "damage",
        "torn ends",
    )
    rows = []
    for one in servers:
        f = found[one.key]
        ends = ["" if zxid is None else format_zxid(zxid) for zxid in (f.first, f.last)]
        counts = [str(n) for n in (f.holes, f.damages, len(f.torn))]
        rows.append((*one.key, str(len(one.logs)), str(f.records), *ends, *counts))
    return Table("servers", "Servers", head, tuple(rows))


def _files_table(servers: Sequence[_Server], found: Mapping[_Key, _Found], top: int) -> Table:
    rows: list[tuple[str, str, str, str]] = []
    for one in servers:
        f = found[one.key]
        told = [("damage", text) for text in f.damage[:top]] + [("hole", str(gap)) for gap in f.gaps]
        told += [("hole ended by", name) for name in f.explained] + [("torn end", text) for text in f.torn]
        told += [("half-written", text) for text in f.half] + [
            ("stray name", name) for name in f.strays[:top]
        ]
        rows += [(*one.key, what, text) for what, text in told]
    return Table("files", "Seen in files", ("ensemble", "server", "what", "where"), tuple(rows), wide=(3,))


def _divergences_table(across: _Divergence, by_zxid: Mapping[int, str]) -> Table:
    head = ("zxid", "ensemble", "server", "file", "offset", "time", "session", "cxid", "type", "path", "hash",
            "differs in")  # fmt: skip
    rows = tuple(
        (
            format_zxid(row.zxid), row.ensemble, row.server, row.file, str(row.offset), moment(row.time),
            format_session(row.session), str(row.cxid), row.type, row.path or "", row.hash, by_zxid[row.zxid],
        )
        for row in across.named
    )  # fmt: skip
    return Table("divergences", "One zxid, several transactions", head, rows, "The first zxids.", wide=(9,))
