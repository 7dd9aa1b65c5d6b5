"""Find the sessions in ZooKeeper's log that wrote under a chroot, with their changes and times.

The log has no name or address of a client. A session is a broker's if it created `brokers/ids/N` below the
chroot, or wrote to paths to which only brokers write: leaders and ISRs, the controller, the brokers' notices
to each other. For other sessions the paths show the kind of client: an admin tool, or an old consumer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zkmigrate.zookeeper.data.chroot import Chroot, is_under
from zkmigrate.zookeeper.data.effect import PathChange, path_changes, touches
from zkmigrate.zookeeper.data.logdir import LogFile, log_files, walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.txn import CloseSessionTxn, CreateSessionTxn, Txn
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, MAX_RECORD, Gap, scan

PLACE_DEPTH = 2
_PROGRESS_EVERY = 20_000
BROKERS_OWN = re.compile(
    r"/(controller(_epoch)?|brokers/(ids|seqid|topics/[^/]+/partitions)|isr_change_notification"
    r"|log_dir_event_notification|latest_producer_id_block)(/.*)?"
)
"""Paths that Kafka's tools do not write to (Kafka 2.3 to 3.9: kafka.zk.ZkData and its users)."""


@dataclass(slots=True)
class Writer:
    """One session that changed something at or under the chroot.

    changes: how many transactions the session made. first_ms, last_ms: the time of the first and the last, in
    milliseconds since 1970 by the leader's clock. types: the number of changes by kind of operation. places:
    the number of changes by the first two path elements below the chroot.

    brokers_own: whether the session wrote to paths to which only brokers write. timeout_ms: None if the log
    does not hold the opening of the session. ended_ms: None while the session is open.
    """

    session: int
    changes: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last_path: str = ""
    types: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    broker: int | None = None
    brokers_own: bool = False
    timeout_ms: int | None = None
    ended_ms: int | None = None

    @property
    def is_broker(self) -> bool:
        """Whether the log shows that the session is a broker's, even if the broker's id is unknown."""
        return self.broker is not None or self.brokers_own

    def places_text(self, most: int) -> str:
        """Return a text of at most `most` places with their counts, beginning with the largest count."""
        named = ", ".join(f"{place} ({count})" for place, count in self.places.most_common(most))
        return named + (f" and {len(self.places) - most} more" if len(self.places) > most else "")


@dataclass(frozen=True, slots=True)
class WriterList:
    """The sessions that wrote under a chroot.

    since_ms, until_ms: the time of the first and last transaction read, in milliseconds since 1970; 0 for
    none. records: how many transactions of all tenants were read. under: how many of these transactions
    changed the chroot. gaps: holes in the zxids, where writers may be missing.
    """

    chroot: Chroot
    since_ms: int
    until_ms: int
    records: int
    under: int
    writers: tuple[Writer, ...]
    gaps: tuple[Gap, ...]


def writers(
    logs: Directory,
    *,
    chroot: Chroot,
    span_ms: int | None = None,
    at_most: int | None = None,
    owners: Mapping[int, tuple[str, ...]] | None = None,
    max_record: int = MAX_RECORD,
    tell: Callable[[int], None] = lambda _done: None,
) -> WriterList:
    """Return the writers in a log (`version-2` of a dataLogDir), beginning with the most changes.

    span_ms: how far to read back from the newest transaction; None for all. at_most: how many bytes of
    records to read, in complete files; the newest file is always read. owners: the current ephemerals of each
    session, to recognise brokers that registered before the part that is read. tell: receives the number of
    records read.
    Raises the errors of `logdir.LogWalk`.
    """
    files = [file for file in log_files(logs) if file.size > FILE_HEADER_SIZE]
    start, since = -1, 0
    if span_ms is not None and files:
        since = _newest_ms(logs, files, max_record) - span_ms
        start = _first_since(logs, files, since, max_record)
    if at_most is not None and files:
        reached = [file for file in files if file.zxid >= start]
        start = max(start, _first_within(logs, reached, at_most, max_record))
    found: dict[int, Writer] = {}
    timeouts: dict[int, int] = {}
    records = under = first = last = 0
    steps = walk(logs, after=None if start < 0 else start - 1, max_record=max_record)
    for record in steps:
        txn = record.txn()
        if isinstance(txn.body, CreateSessionTxn):
            timeouts[record.session] = txn.body.timeout_ms
        if record.time_ms < since:
            continue
        records += 1
        if records % _PROGRESS_EVERY == 0:
            tell(records)
        first, last = first or record.time_ms, record.time_ms
        changes = [change for change in path_changes(txn) if touches(change, chroot)]
        if changes and not isinstance(txn.body, CloseSessionTxn):
            under += 1
            _count(found.setdefault(record.session, Writer(record.session)), txn, changes, chroot)
        if isinstance(txn.body, CloseSessionTxn) and record.session in found:
            found[record.session].ended_ms = record.time_ms
    for session, writer in found.items():
        writer.timeout_ms = timeouts.get(session)
        for path in (owners or {}).get(session, ()):
            writer.broker = broker_of(path, chroot) if writer.broker is None else writer.broker
    ordered = sorted(found.values(), key=lambda writer: (-writer.changes, writer.session))
    return WriterList(chroot, first, last, records, under, tuple(ordered), tuple(steps.gaps))


def _count(writer: Writer, txn: Txn, changes: list[PathChange], chroot: Chroot) -> None:
    writer.changes += 1
    writer.first_ms = writer.first_ms or txn.header.time_ms
    writer.last_ms = txn.header.time_ms
    for change in changes:
        writer.types[change.type.name] += 1
        writer.places[_place(change.path, chroot)] += 1
        writer.last_path = change.path
        if not change.deletes and (broker := broker_of(change.path, chroot)) is not None:
            writer.broker = broker
        if chroot.holds(change.path) and BROKERS_OWN.fullmatch(change.path[len(chroot.prefix) :]):
            writer.brokers_own = True


def broker_of(path: str, chroot: Chroot) -> int | None:
    """Return the id of the broker that registers itself with this znode; None for any other znode."""
    match = re.fullmatch(rf"{re.escape(chroot.prefix)}/brokers/ids/(\d+)", path)
    return int(match[1]) if match else None


def _place(path: str, chroot: Chroot) -> str:
    """Return a path cut to its first elements below the chroot."""
    if not is_under(path, chroot.path):
        return path
    below = [part for part in path[len(chroot.prefix) :].split("/") if part][:PLACE_DEPTH]
    return "/".join([chroot.prefix, *below]) or "/"


def _newest_ms(logs: Directory, files: list[LogFile], max_record: int) -> int:
    newest = 0
    for file in reversed(files):
        for record in scan(logs.open(file.name), file.name, max_record=max_record):
            newest = record.time_ms
        if newest:
            break
    return newest


def _first_within(logs: Directory, files: list[LogFile], at_most: int, max_record: int) -> int:
    """Return the zxid of the oldest file from which all files together hold at most `at_most` bytes.

    The newest file is always included. ZooKeeper allocates 64 MB of a file at a time, so the size of a file
    says little: the end of its last record counts.
    """
    first, left = files[-1].zxid, at_most
    for file in reversed(files):
        left -= max(
            (one.end for one in scan(logs.open(file.name), file.name, max_record=max_record)), default=0
        )
        if left < 0:
            break
        first = file.zxid
    return first


def _first_since(logs: Directory, files: list[LogFile], since: int, max_record: int) -> int:
    """Return the zxid of the newest file that begins no later than `since`; -1 to begin with the oldest."""
    for file in reversed(files):
        first = next(scan(logs.open(file.name), file.name, max_record=max_record), None)
        if first is not None and first.time_ms <= since:
            return file.zxid
    return -1
