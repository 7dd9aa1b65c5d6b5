"""Who wrote under a chroot: the sessions in ZooKeeper's own log, what each changed, how often and until when.

A session says nothing of its client's name or address; it is a broker's where it made `brokers/ids/N` below
the chroot, or wrote what only brokers write: leaders and ISRs, the controller, their notices to each other.
What it is otherwise, an admin tool or an old consumer, shows in the paths that it wrote to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zkmigrate.zookeeper.data.effect import PathChange, is_under, path_changes, touches
from zkmigrate.zookeeper.data.logdir import LogFile, log_files, walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.txn import CloseSessionTxn, CreateSessionTxn, Txn
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, MAX_RECORD, Gap, scan

PLACE_DEPTH = 2
_TOLD_EVERY = 20_000
BROKERS_OWN = re.compile(
    r"/(controller(_epoch)?|brokers/(ids|seqid|topics/[^/]+/partitions)|isr_change_notification"
    r"|log_dir_event_notification|latest_producer_id_block)(/.*)?"
)
"""What Kafka's own tools do not write to (Kafka 2.3 to 3.9: kafka.zk.ZkData and its users)."""


@dataclass(slots=True)
class Writer:
    """One session that changed something at or under the chroot. changes: transactions; first_ms, last_ms: of
    those, by the leader's clock; types: by kind of operation; places: by the first two elements below the
    chroot. brokers_own: it wrote what only brokers write. timeout_ms: None where the log does not hold its
    opening; ended_ms: None while it is open."""

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
        """Whether the log shows that it is one, by its number or without."""
        return self.broker is not None or self.brokers_own

    def places_told(self, most: int) -> str:
        """The places with their counts, those written to most often first, no more than so many by name."""
        told = ", ".join(f"{place} ({count})" for place, count in self.places.most_common(most))
        return told + (f" and {len(self.places) - most} more" if len(self.places) > most else "")


@dataclass(frozen=True, slots=True)
class Writing:
    """What the log tells. since_ms, until_ms: the time of the first transaction that was taken and of the
    last; 0 where there is none. records: how many of all tenants were read in it; under: those that changed
    the chroot. gaps: holes in the zxids, over which writers may be missing."""

    chroot: str
    since_ms: int
    until_ms: int
    records: int
    under: int
    writers: tuple[Writer, ...]
    gaps: tuple[Gap, ...]


def writers(
    logs: Directory,
    *,
    chroot: str,
    span_ms: int | None = None,
    at_most: int | None = None,
    owners: Mapping[int, tuple[str, ...]] | None = None,
    max_record: int = MAX_RECORD,
    tell: Callable[[int], None] = lambda _done: None,
) -> Writing:
    """Read a log (`version-2` of a dataLogDir), or the last `span_ms` of it.

    The time counts back from the newest transaction. at_most: so many bytes of whole files, and the newest
    file in any case; what came before is left out, `since_ms` tells. owners: session → its ephemerals now,
    for brokers that registered before the part that is read. tell: told now and then how many records were
    read. Writers come with most changes first. Raises what `logdir.walk` raises.
    """
    files = [file for file in log_files(logs) if file.size > FILE_HEADER_SIZE]
    start = None
    since = 0
    if span_ms is not None and files:
        since = _newest_ms(logs, files, max_record) - span_ms
        start = _first_file(logs, files, since, max_record)
    if at_most is not None and files:
        within = _first_within(files, at_most)
        start = within if start is None or within.zxid > start.zxid else start
    found: dict[int, Writer] = {}
    timeouts: dict[int, int] = {}
    records = under = first = last = 0
    steps = walk(logs, after=None if start is None else start.zxid - 1, max_record=max_record)
    for record in steps:
        txn = record.txn()
        if isinstance(txn.body, CreateSessionTxn):
            timeouts[record.session] = txn.body.timeout_ms
        if record.time_ms < since:
            continue
        records += 1
        if records % _TOLD_EVERY == 0:
            tell(records)
        first, last = first or record.time_ms, record.time_ms
        changes = [change for change in path_changes(txn) if touches(change, chroot)]
        if changes and not isinstance(txn.body, CloseSessionTxn):
            under += 1
            _took(found.setdefault(record.session, Writer(record.session)), txn, changes, chroot)
        if isinstance(txn.body, CloseSessionTxn) and record.session in found:
            found[record.session].ended_ms = record.time_ms
    for session, writer in found.items():
        writer.timeout_ms = timeouts.get(session)
        for path in (owners or {}).get(session, ()):
            writer.broker = broker_of(path, chroot) if writer.broker is None else writer.broker
    ordered = sorted(found.values(), key=lambda writer: (-writer.changes, writer.session))
    return Writing(chroot, first, last, records, under, tuple(ordered), tuple(steps.gaps))


def _took(writer: Writer, txn: Txn, changes: list[PathChange], chroot: str) -> None:
    writer.changes += 1
    writer.first_ms = writer.first_ms or txn.header.time_ms
    writer.last_ms = txn.header.time_ms
    for change in changes:
        writer.types[change.type.name] += 1
        writer.places[_place(change.path, chroot)] += 1
        writer.last_path = change.path
        if not change.deletes and (broker := broker_of(change.path, chroot)) is not None:
            writer.broker = broker
        root = "" if chroot == "/" else chroot
        if is_under(change.path, chroot) and BROKERS_OWN.fullmatch(change.path[len(root) :]):
            writer.brokers_own = True


def broker_of(path: str, chroot: str) -> int | None:
    """The broker whose registration this znode is."""
    root = "" if chroot == "/" else chroot
    match = re.fullmatch(rf"{re.escape(root)}/brokers/ids/(\d+)", path)
    return int(match[1]) if match else None


def _place(path: str, chroot: str) -> str:
    """A path cut to its first elements below the chroot."""
    if not is_under(path, chroot):
        return path
    root = "" if chroot == "/" else chroot
    below = [part for part in path[len(root) :].split("/") if part][:PLACE_DEPTH]
    return "/".join([root, *below]) or "/"


def _first_ms(logs: Directory, file: LogFile, max_record: int) -> int | None:
    """The time of a log's first record; None where it holds none."""
    record = next(scan(logs.open(file.name), file.name, max_record=max_record), None)
    return None if record is None else record.time_ms


def _newest_ms(logs: Directory, files: list[LogFile], max_record: int) -> int:
    newest = 0
    for file in reversed(files):
        for record in scan(logs.open(file.name), file.name, max_record=max_record):
            newest = record.time_ms
        if newest:
            break
    return newest


def _first_within(files: list[LogFile], at_most: int) -> LogFile:
    """The oldest file from which on all together have no more bytes; the newest, if that has more."""
    left = at_most
    first = files[-1]
    for file in reversed(files):
        left -= file.size
        if left < 0:
            break
        first = file
    return first


def _first_file(logs: Directory, files: list[LogFile], since: int, max_record: int) -> LogFile | None:
    """The newest file that begins no later than `since`; None: the oldest there is."""
    for file in reversed(files):
        began = _first_ms(logs, file, max_record)
        if began is not None and began <= since:
            return file
    return None
