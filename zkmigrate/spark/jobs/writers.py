"""Find the sessions that wrote at or under the chroot, and which are not brokers, for the job ``writers``.

The results equal those of `zookeeper.data.log_writers`, which reads one log in one process. Transaction logs
have no client addresses. If the servers' text logs are given and contain addresses, the job reads the
addresses from there (3.4 and 3.5 write them, later versions only at level DEBUG).
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.spark.input import Input, at_or_below, epoch, only, place_in_epoch, under
from zkmigrate.spark.open_sessions import events
from zkmigrate.spark.operation_kinds import CLOSES, CREATES, DELETES, OPENS, WRITES
from zkmigrate.spark.plain_rows import Cell, moment, table
from zkmigrate.spark.section import Section
from zkmigrate.zookeeper.data.log_writers import BROKERS_OWN, PLACE_DEPTH
from zkmigrate.zookeeper.data.session import format_session, signed

_CHANGES = (*CREATES, *DELETES, *WRITES, "setACL")
_PLACES = 5
_Counts: TypeAlias = dict[int, Counter[str]]
"""For each session id, the number of changes by transaction type, or by place."""
_ESTABLISHED = r"Established session 0x([0-9a-f]+) with negotiated timeout \d+ for client /?(\S+)"


def run(input: Input) -> Section:
    """Run the job."""
    chroot = input.request.chroot
    path, kind = F.col("path"), F.col("type")
    above = kind.isin(*DELETES) & F.lit(chroot.path).startswith(F.concat(path, F.lit("/")))
    touches = under(path, chroot) | F.coalesce(above, F.lit(False))
    touched = ~F.col("failed") & kind.isin(*_CHANGES) & touches
    log = input.log("zxid", "sequence", "time", "session", "type", "path", "failed")
    by_session = input.reused(_transactions(log, touched))
    changes = input.reused(_changes(log.filter(touched)))
    root = chroot.prefix
    below = F.when(at_or_below(path, chroot.path), F.substr(path, F.lit(len(root) + 1)))
    sessions = by_session.join(_who_and_last(changes, below), "session")
    columns = ("session", "changes", "first_ms", "last_ms", "last_path", "broker", "brokers_own")
    frame = input.once(_with_ends(input, sessions.select(*columns)).orderBy(F.desc("changes"), "session"))
    rows = frame.collect()
    types, places = _counts(changes, _place(path, below, root))
    registered = _registered(input, root)
    addresses = _addresses(input)
    writers = [_writer(row, types, places, registered, addresses) for row in rows]
    span = only(by_session.agg(F.min("since_ms"), F.max("until_ms"), F.sum("records")))
    figures = {
        **chroot.body(),
        "server": input.reference,
        "since_ms": span[0],
        "until_ms": span[1],
        "records": span[2] or 0,
        "under_chroot": sum(row["changes"] for row in rows),
        "writers": writers,
    }
    return _section(input, figures, frame)


def _transactions(log: DataFrame, touched: Column) -> DataFrame:
    """Return number and times of each session's transactions, and of those that changed the chroot."""
    ms = F.unix_millis("time")
    each = log.groupBy("session", "zxid").agg(F.max(touched).alias("touched"), F.max(ms).alias("ms"))
    changed = F.when(F.col("touched"), F.col("ms"))
    return each.groupBy("session").agg(
        F.count("*").alias("records"),
        F.min("ms").alias("since_ms"),
        F.max("ms").alias("until_ms"),
        F.count(changed).alias("changes"),
        F.min(changed).alias("first_ms"),
        F.max(changed).alias("last_ms"),
    )


def _changes(touched: DataFrame) -> DataFrame:
    """Return a row for each group of equal operations: how many there are, and the place of the last one."""
    return touched.groupBy("session", "type", "path", epoch().alias("epoch")).agg(
        F.count("*").alias("count"), F.max(place_in_epoch()).alias("place")
    )


def _who_and_last(changes: DataFrame, below: Column) -> DataFrame:
    """Return for each session the path that it changed last, and whether the session is a broker's.

    below: the part of a path below the chroot.
    """
    number = F.regexp_extract(below, r"^/brokers/ids/(\d+)$", 1)
    broker = F.when(~F.col("type").isin(*DELETES) & (number != ""), number.try_cast("bigint"))
    own = below.rlike(f"^(?:{BROKERS_OWN.pattern})$")
    order = F.struct("epoch", "place")
    return changes.groupBy("session").agg(
        F.max_by("path", order).alias("last_path"),
        F.max_by(broker, F.when(broker.isNotNull(), order)).alias("broker"),
        F.coalesce(F.bool_or(own), F.lit(False)).alias("brokers_own"),
    )


def _with_ends(input: Input, sessions: DataFrame) -> DataFrame:
    """Add the timeout and the time of the end of each session, null where the log lacks them."""
    opens, closes = F.col("type") == OPENS, F.col("type") == CLOSES
    ends = events(input).groupBy("session")
    times = ends.agg(
        F.max_by("timeout_ms", F.when(opens, F.col("zxid"))).alias("timeout_ms"),
        F.max(F.when(closes, F.unix_millis("time"))).alias("ended_ms"),
    )
    return sessions.join(times, "session", "left")


def _counts(changes: DataFrame, place: Column) -> tuple[_Counts, _Counts]:
    """Count the operations of each session by type, and by place (see `_place`). Return both counts."""
    types: _Counts = {}
    places: _Counts = {}
    grouped = changes.groupBy("session", "type", place.alias("place"))
    for session, kind, where, count in grouped.agg(F.sum("count")).collect():
        types.setdefault(session, Counter())[kind] += count
        places.setdefault(session, Counter())[where] += count
    return types, places


def _place(path: Column, below: Column, root: str) -> Column:
    """Return a path cut to its first elements below the chroot; a path above the chroot is kept whole."""
    elements = F.slice(F.split(below, "/"), 2, PLACE_DEPTH)
    cut = F.concat(F.lit(f"{root}/"), F.array_join(elements, "/"))
    return F.when(below.isNull(), path).when(below.isin("", "/"), root or "/").otherwise(cut)


def _registered(input: Input, root: str) -> dict[int, int]:
    """Return broker ids by session, from the brokers' registrations in the newest snapshot, if any."""
    if not input.snapshots:
        return {}
    number = F.regexp_extract("path", r"/brokers/ids/(\d+)$", 1)
    folder = f"{root}/brokers/ids/"
    is_one = (F.concat(F.lit(folder), number) == F.col("path")) & (F.col("ephemeral_owner") != 0)
    named = input.nodes("path", "ephemeral_owner").filter(is_one)
    found = named.select("ephemeral_owner", number.try_cast("bigint").alias("broker")).collect()
    return {row["ephemeral_owner"]: row["broker"] for row in found}


def _addresses(input: Input) -> dict[int, str]:
    """Return the last client address of each session (by its signed id) in the servers' text logs."""
    if not input.request.server_logs:
        return {}
    lines = input.spark.read.text(list(input.request.server_logs))
    found = lines.select(
        F.regexp_extract("value", _ESTABLISHED, 1).alias("session"),
        F.regexp_extract("value", _ESTABLISHED, 2).alias("address"),
        "value",
    ).filter("session != ''")
    last = found.groupBy("session").agg(F.max_by("address", "value").alias("address")).collect()
    return {signed(int(row["session"], 16)): row["address"] for row in last}


def _writer(
    row: Row, types: _Counts, places: _Counts, registered: dict[int, int], addresses: dict[int, str]
) -> dict[str, Any]:
    """Return a session in the form of `zookeeper.disks.writer_addresses.body`."""
    session = row["session"]
    broker = row["broker"] if row["broker"] is not None else registered.get(session)
    return {
        "session": format_session(session),
        "broker": broker,
        "is_broker": broker is not None or row["brokers_own"],
        "address": addresses.get(session),
        **{name: row[name] for name in ("changes", "first_ms", "last_ms", "ended_ms", "timeout_ms")},
        "types": _most_first(types[session]),
        "places": _most_first(places[session]),
        "last_path": row["last_path"],
    }


def _most_first(counts: Counter[str]) -> dict[str, int]:
    """Return the counts with the most frequent first, equal counts by name."""
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _section(input: Input, figures: dict[str, Any], frame: DataFrame) -> Section:
    writers = figures["writers"]
    others, brokers = ([one for one in writers if one["is_broker"] is broker] for broker in (False, True))
    answer = (
        f"{figures['under_chroot']} of {figures['records']} transactions changed {figures['chroot']}, "
        f"requested by {len(brokers)} sessions of brokers and {len(others)} other sessions."
        + (
            f" The other sessions last wrote at {_when(max(one['last_ms'] for one in others))}."
            if others
            else ""
        )
    )
    columns: list[tuple[str, Cell]] = [
        ("session", "session"), ("who", _who), ("address", "address"), ("changes", "changes"),
        ("first", lambda one: _when(one["first_ms"])), ("last", lambda one: _when(one["last_ms"])),
        ("ended", lambda one: _when(one["ended_ms"])), ("where", lambda one: _first_places(one["places"])),
    ]  # fmt: skip
    title = "Sessions that wrote, brokers last"
    shown = table("writers", title, [*others, *brokers][: input.request.top], columns, wide=(7,))
    return Section("Writers", answer, figures, (shown,), (), {"sessions": frame})


def _who(one: dict[str, Any]) -> str:
    if one["broker"] is not None:
        return f"broker {one['broker']}"
    return "a broker, judging by its writes" if one["is_broker"] else "not a broker"


def _first_places(places: dict[str, int]) -> str:
    first = ", ".join(f"{place} ({count})" for place, count in list(places.items())[:_PLACES])
    return first + (f" and {len(places) - _PLACES} more" if len(places) > _PLACES else "")


def _when(ms: int | None) -> str:
    return "" if ms is None else moment(datetime.fromtimestamp(ms / 1000, UTC))
