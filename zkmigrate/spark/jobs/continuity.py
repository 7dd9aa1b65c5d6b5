"""continuity: whether each server's files are whole, its zxids without a hole, and one zxid the same
transaction on all servers, of both ensembles where dest's are given. Servers that lag do no harm: only what
is in several logs is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.model.report import Table
from zkmigrate.spark.input import Input
from zkmigrate.spark.log_integrity import Found, Key, Server, check_integrity, servers_of
from zkmigrate.spark.plain_rows import moment, plain
from zkmigrate.spark.section import Section
from zkmigrate.spark.transactions import RECORD, SHOWN, compared, named, operations, records
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.zxid import format_zxid

SOURCE, DEST = "source", "dest"


def run(input: Input) -> Section:
    """The job. All servers' logs are read, whatever --server says."""
    spark, request = input.spark, input.request
    both = {SOURCE: input} | ({DEST: Input(spark, request, request.dest)} if request.dest else {})
    servers = [one for name, ensemble in both.items() for one in servers_of(name, ensemble)]
    log = operations(both)
    every = records(log).persist(StorageLevel.DISK_ONLY)
    found, holes = check_integrity(both, servers, every, request.top)
    several = compared(every).persist(StorageLevel.DISK_ONLY)
    divergent = several.filter("divergent").select("zxid")
    unlike = log.join(divergent, "zxid", "left_semi").persist(StorageLevel.DISK_ONLY)
    across = _divergence(several, divergent, unlike, request.top)
    all_named = named(unlike)
    frames = {
        "damage": every.filter("corrupt IS NOT NULL").select(*RECORD, "corrupt"),
        "holes": holes,
        # Without any, Spark would read the logs once more to find none.
        "divergences": all_named if across.divergent else spark.createDataFrame([], all_named.schema),
    }
    return _section(servers, found, across, frames, request.top)


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
        unlike = [name for name in SHOWN if len({str(row[name]) for row in rows} - _no_digest(name)) > 1]
        return ", ".join(unlike) or "its other operations"


def _no_digest(name: str) -> set[str]:
    """A digest that a server did not write differs from none."""
    return {str(None)} if name == "digest" else set()


def _divergence(several: DataFrame, divergent: DataFrame, unlike: DataFrame, top: int) -> _Divergence:
    first = [row.zxid for row in divergent.orderBy("zxid").limit(top).collect()]
    rows = named(unlike.filter(F.col("zxid").isin(first))).collect() if first else []
    return _Divergence(several.count(), divergent.count() if first else 0, rows)


# --- what is said


def _section(
    servers: Sequence[Server],
    found: Mapping[Key, Found],
    across: _Divergence,
    frames: Mapping[str, DataFrame],
    top: int,
) -> Section:
    held = not across.divergent and not any(one.missing or one.damages for one in found.values())
    by_zxid = {row.zxid: across.differs(row.zxid) for row in across.named}
    figures = {
        "servers": [_server_figures(one, found[one.key]) for one in servers],
        "compared": across.compared,
        "divergent": across.divergent,
        "first_divergent_zxid": format_zxid(across.named[0].zxid) if across.named else None,
        "divergences": [plain(row) | {"differs": by_zxid[row.zxid]} for row in across.named],
    }
    answer = " ".join([*(_told(one, found[one.key]) for one in servers), _told_across(servers, across)])
    tables = (
        _servers_table(servers, found),
        _files_table(servers, found, top),
        _divergences_table(across, by_zxid),
    )
    return Section("Continuity", answer, figures, tuple(t for t in tables if t.rows), (), frames, held, True)


def _server_figures(server: Server, found: Found) -> dict[str, Any]:
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


def _told(server: Server, found: Found) -> str:
    name = f"{server.name} of {server.ensemble}"
    if found.first is None or found.last is None:
        said = f"{name}: no transaction"
    else:
        span = f"{format_zxid(found.first)} to {format_zxid(found.last)}"
        said = f"{name}: {found.records} transactions, {span}"
    seen = (
        (found.missing, "hole"),
        (found.damages, "damaged place"),
        (len(found.explained), "hole that a snapshot ends"),
        (len(found.torn), "torn end"),
        (len(found.half), "half-written snapshot"),
        (len(found.strays), "stray name"),
    )
    told = ", ".join(f"{what}: {count}" for count, what in seen if count)
    return f"{said}; {told or 'whole and without a hole'}."


def _told_across(servers: Sequence[Server], across: _Divergence) -> str:
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


def _servers_table(servers: Sequence[Server], found: Mapping[Key, Found]) -> Table:
    head = (
        "ensemble", "server", "logs", "records", "first zxid", "last zxid", "holes", "damage", "torn ends",
    )  # fmt: skip
    rows = []
    for one in servers:
        f = found[one.key]
        ends = ["" if zxid is None else format_zxid(zxid) for zxid in (f.first, f.last)]
        counts = [str(n) for n in (f.holes, f.damages, len(f.torn))]
        rows.append((*one.key, str(len(one.logs)), str(f.records), *ends, *counts))
    return Table("servers", "Servers", head, tuple(rows))


def _files_table(servers: Sequence[Server], found: Mapping[Key, Found], top: int) -> Table:
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
