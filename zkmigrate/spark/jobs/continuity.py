"""Check that server files are complete, have no hole in the zxids, and agree on each transaction.

This is the job ``continuity``. With dest's directories it checks both ensembles. Only zxids that occur in
several logs are compared, so a server may lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.runbook.model.report import Table
from zkmigrate.spark.input import Input
from zkmigrate.spark.log_integrity import Integrity, Key, Server, check_integrity, servers_of
from zkmigrate.spark.plain_rows import Cell, plain, table
from zkmigrate.spark.section import Section
from zkmigrate.spark.transactions import RECORD, SHOWN, compared, named, operations, records
from zkmigrate.zookeeper.data.zxid import format_zxid

SOURCE, DEST = "source", "dest"


def run(input: Input) -> Section:
    """Run the job. It reads all servers' logs, even if --server names one."""
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
        # If there is none, this spares Spark another read of the logs.
        "divergences": all_named if across.divergent else spark.createDataFrame([], all_named.schema),
    }
    return _section(servers, found, across, frames, request.top)


@dataclass(frozen=True)
class _Divergence:
    """The comparison of records with the same zxid.

    compared: how many zxids occur in several records. divergent: how many of these zxids have records that
    differ. named: the records of the first divergent zxids, sorted by zxid.
    """

    compared: int
    divergent: int
    named: list[Row]

    def differs(self, zxid: int) -> str:
        """Return the names of the columns in which the records of a zxid differ."""
        rows = [row for row in self.named if row.zxid == zxid]
        unlike = [name for name in SHOWN if len({str(row[name]) for row in rows} - _no_digest(name)) > 1]
        return ", ".join(unlike) or "its other operations"


def _no_digest(name: str) -> set[str]:
    """Return the values of a column that the comparison ignores.

    A digest that a server did not write is not a difference.
    """
    return {str(None)} if name == "digest" else set()


def _divergence(several: DataFrame, divergent: DataFrame, unlike: DataFrame, top: int) -> _Divergence:
    first = [row.zxid for row in divergent.orderBy("zxid").limit(top).collect()]
    rows = named(unlike.filter(F.col("zxid").isin(first))).collect() if first else []
    return _Divergence(several.count(), divergent.count() if first else 0, rows)


def _section(
    servers: Sequence[Server],
    found: Mapping[Key, Integrity],
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
    answer = " ".join(
        [*(_sentence(one, found[one.key]) for one in servers), _sentence_across(servers, across)]
    )
    tables = (
        _servers_table(servers, found),
        _files_table(servers, found, top),
        _divergences_table(across, by_zxid),
    )
    return Section("Continuity", answer, figures, tuple(t for t in tables if t.rows), (), frames, held, True)


def _server_figures(server: Server, found: Integrity) -> dict[str, Any]:
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
            asdict(gap) | {"before": format_zxid(gap.before), "after": format_zxid(gap.after)}
            for gap in found.gaps
        ],
        "ended_by_snapshot": found.explained,
        "damages": found.damages,
        "damage": found.damage,
        "torn": found.torn,
        "half_written_snapshots": found.half,
        "strays": found.strays,
    }


def _sentence(server: Server, found: Integrity) -> str:
    transactions = "no transaction"
    if found.first is not None and found.last is not None:
        span = f"{format_zxid(found.first)} to {format_zxid(found.last)}"
        transactions = f"{found.records} transactions, {span}"
    seen = (
        (found.missing, "hole"),
        (found.damages, "damaged place"),
        (len(found.explained), "gap before a snapshot"),
        (len(found.torn), "torn end"),
        (len(found.half), "half-written snapshot"),
        (len(found.strays), "stray name"),
    )
    counts = ", ".join(f"{what}: {count}" for count, what in seen if count)
    return f"{server.name} of {server.ensemble}: {transactions}; {counts or 'complete and without a gap'}."


def _sentence_across(servers: Sequence[Server], across: _Divergence) -> str:
    if len(servers) == 1:
        return "There is only one server, so no transactions are compared."
    if not across.compared:
        return "No zxid is in the logs of two servers, so no transactions are compared."
    if not across.divergent:
        return f"{across.compared} zxids are in several logs. Each has the same transaction in all of them."
    first = across.named[0]
    return (
        f"Of {across.compared} zxids that are in several logs, {across.divergent} have different "
        f"transactions. The first is {format_zxid(first.zxid)}, which differs in "
        f"{across.differs(first.zxid)}."
    )


def _servers_table(servers: Sequence[Server], found: Mapping[Key, Integrity]) -> Table:
    rows = [_server_figures(one, found[one.key]) | {"torn ends": len(found[one.key].torn)} for one in servers]
    columns: list[tuple[str, Cell]] = [
        ("ensemble", "ensemble"), ("server", "server"), ("logs", "logs"), ("records", "records"),
        ("first zxid", "first_zxid"), ("last zxid", "last_zxid"), ("holes", "holes"), ("damage", "damages"),
        ("torn ends", "torn ends"),
    ]  # fmt: skip
    return table("servers", "Servers", rows, columns)


def _files_table(servers: Sequence[Server], found: Mapping[Key, Integrity], top: int) -> Table:
    rows = [
        (*one.key, what, str(where))
        for one in servers
        for what, places in (
            ("damage", found[one.key].damage[:top]),
            ("hole", found[one.key].gaps),
            ("gap ended by", found[one.key].explained),
            ("torn end", found[one.key].torn),
            ("half-written", found[one.key].half),
            ("stray name", found[one.key].strays[:top]),
        )
        for where in places
    ]
    return Table(
        "files", "Findings in files", ("ensemble", "server", "what", "where"), tuple(rows), wide=(3,)
    )


def _divergences_table(across: _Divergence, by_zxid: Mapping[int, str]) -> Table:
    names = (
        "zxid",
        "ensemble",
        "server",
        "file",
        "offset",
        "time",
        "session",
        "cxid",
        "type",
        "path",
        "hash",
    )
    columns: list[tuple[str, Cell]] = [(name, name) for name in names]
    columns.append(("differs in", lambda row: by_zxid[row.zxid]))
    title = "Zxids with several transactions"
    return table("divergences", title, across.named, columns, "The first zxids.", (9,))
