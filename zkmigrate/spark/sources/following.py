"""Live transaction logs as a stream, ``spark.readStream.format("zktxnlog").load(PATH)``.

A `Mark` for each directory of logs says how far the stream has read: to the end of a whole record. It moves
to the next log only when that one exists, since a server flushes a log before it begins another. Two marks
always give the same rows.

Options besides those of `txnlog`: ``startingOffset`` earliest (default) or latest; ``maxBytesPerTrigger``
bytes of all logs for one micro-batch, 0 (default) for no limit. A micro-batch exceeds it by at most a record
of each server, or by damage."""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource as streaming

from zkmigrate.spark.sources.arrays import one_row
from zkmigrate.spark.sources.files import File, files, server_of
from zkmigrate.spark.sources.options import OptionReader
from zkmigrate.spark.sources.stretches import Part, Stretches, find, parts
from zkmigrate.spark.sources.txnlog import Options, Portion, Portions, packed, rows, take_options
from zkmigrate.zookeeper.data.errors import CursorError, ZkDataError
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.tail import data_end
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, Cursor, LogScan, log_zxid
from zkmigrate.zookeeper.data.zxid import format_zxid

_URI = re.compile(r"[a-z][a-z0-9+.-]*://")
_FRAME_HEAD = 12


@dataclass(frozen=True)
class StreamOptions:
    """As in the module's docstring. max_bytes: 0 for no limit."""

    options: Options
    latest: bool = False
    max_bytes: int = 0


def parse_stream_options(text: Mapping[str, str]) -> StreamOptions:
    """Raises UsageError."""
    given = OptionReader(text)
    latest = given.choice("startingOffset", ("earliest", "latest")) == "latest"
    found = StreamOptions(take_options(given), latest, given.number("maxBytesPerTrigger", 0))
    given.end()
    return found


@dataclass(frozen=True)
class Mark:
    """How far a directory was read. file: the log's name; offset: of its next record; zxid: the last one
    read."""

    file: str
    offset: int
    zxid: int


@dataclass(frozen=True)
class ListedLog:
    """A log as it was listed. end: the offset at which reading stops; None: at its end at that time."""

    file: File
    end: int | None = None

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def first(self) -> int:
        """The zxid of its first record, by its name."""
        return log_zxid(self.name) or 0

    @property
    def begin(self) -> Mark:
        """At its first record."""
        return Mark(self.name, FILE_HEADER_SIZE, self.first - 1)

    def reader(self) -> RandomReader:
        found = self.file.reader()
        return found if self.end is None else _Cut(found, self.end)


@dataclass(frozen=True)
class _Cut:
    """A file up to the offset `end`."""

    inner: RandomReader
    end: int

    def size(self) -> int:
        return min(self.end, self.inner.size())

    def read(self, offset: int, length: int) -> bytes:
        return self.inner.read(offset, max(0, min(length, self.end - offset)))


Marks: TypeAlias = Mapping[str, Mark]
Logs: TypeAlias = Mapping[str, Sequence[ListedLog]]
"""Both by directory."""


def list_logs(options: Options) -> dict[str, list[ListedLog]]:
    """The logs that may hold a record, oldest first, by directory. Raises UsageError."""
    found: dict[str, list[ListedLog]] = {}
    for file in files(options.paths, options.server, lambda name: log_zxid(name) is not None):
        path = file.path if _URI.match(file.path) else str(Path(file.path).absolute())
        if file.size > FILE_HEADER_SIZE:
            found.setdefault(posixpath.dirname(path), []).append(ListedLog(replace(file, path=path)))
    for logs in found.values():
        logs.sort(key=lambda log: log.first)
    return found


def freeze(start: Marks, logs: Logs, options: Options) -> dict[str, list[ListedLog]]:
    """The same logs without anything that is written later. Raises as `next_marks` does."""
    found: dict[str, list[ListedLog]] = {}
    for folder, (*older, newest) in logs.items():
        mark = newest.begin
        if folder in start:
            _remaining(start[folder], logs[folder], options)
            mark = start[folder] if start[folder].file == newest.name else mark
        found[folder] = [*older, replace(newest, end=_last_whole(newest, mark, None, options).offset)]
    return found


def initial_marks(logs: Logs, stream: StreamOptions) -> dict[str, Mark]:
    """Where a stream begins."""
    if not stream.latest:
        return {folder: found[0].begin for folder, found in logs.items()}
    newest = {folder: found[-1] for folder, found in logs.items()}
    return {folder: _last_whole(log, log.begin, None, stream.options) for folder, log in newest.items()}


def next_marks(start: Marks, logs: Logs, limit: int | None, stream: StreamOptions) -> dict[str, Mark]:
    """Where a micro-batch that begins at `start` ends. limit: bytes; None for no limit.

    A new directory enters with its first record, and the next micro-batch reads it: the checkpoint keeps both
    ends of what is read. Raises ZkDataError; in mode permissive only CursorError for a log that was cut
    before its mark."""
    found = {folder: new[0].begin for folder, new in logs.items() if folder not in start}
    left = limit
    for n, (folder, mark) in enumerate(sorted(start.items())):
        share = None if left is None else max(1, left // (len(start) - n))
        found[folder], used = _advance(mark, logs.get(folder, ()), share, stream.options)
        left = None if left is None else max(0, left - used)
    return found


def _advance(mark: Mark, logs: Sequence[ListedLog], limit: int | None, options: Options) -> tuple[Mark, int]:
    """One directory's next mark, and the bytes up to it."""
    rest = _remaining(mark, logs, options)
    if rest and rest[0].name != mark.file:
        mark = rest[0].begin
    used = 0
    for log, following in zip(rest, [*rest[1:], None], strict=True):
        left = None if limit is None else limit - used
        if left is not None and left <= 0:
            break
        size = 0 if left is None or following is None else max(0, data_end(log.reader()) - mark.offset)
        if following is None or (left is not None and size > left):
            ahead = _last_whole(log, mark, left, options)
            if following is None or ahead != mark:
                return ahead, used + ahead.offset - mark.offset
        used += size
        mark = following.begin
    return mark, used


def _remaining(mark: Mark, logs: Sequence[ListedLog], options: Options) -> Sequence[ListedLog]:
    """The logs from the mark on. Raises CursorError for a log that was removed, or cut since; permissive:
    only for the second."""
    at = bisect_left(logs, log_zxid(mark.file) or 0, key=lambda log: log.first)
    if at == len(logs) or logs[at].name != mark.file:
        rest = [log for log in logs if log.first > mark.zxid]
        reason = _lost(mark, rest[0] if rest else None, rest[0].first - 1 if rest else None)
        if reason and not options.permissive:
            raise CursorError(reason, mark.file, mark.offset)
        return rest
    if mark.offset > FILE_HEADER_SIZE:
        cursor = Cursor(mark.file, mark.offset, mark.zxid)
        LogScan(logs[at].file.reader(), mark.file, cursor, block=1)  # checks what is before it
    for log in logs[at + 1 :]:
        if log.first <= mark.zxid:
            raise CursorError(
                f"{format_zxid(mark.zxid)} was read from it, but {log.name} comes behind it: the server has "
                "taken back what it had written. Needed: a new checkpoint",
                mark.file,
                mark.offset,
            )
    return logs[at:]


def _lost(mark: Mark, oldest: ListedLog | None, upto: int | None) -> str:
    """What a removed log leaves missing; empty for nothing. oldest: of the logs that are left; upto: the last
    zxid that the removed one may have had, None: not known."""
    if upto is not None and upto <= mark.zxid:
        return ""
    missing = format_zxid(mark.zxid + 1) + (" and later" if upto is None else f" to {format_zxid(upto)}")
    left = "no later log is left" if oldest is None else f"{oldest.name} is the oldest log left"
    return (
        f"the log was removed before it was read to its end: missing are {missing}; {left}. Needed: the log "
        "back in its place, or a new checkpoint; mode permissive reports this as a row and reads on"
    )


def _last_whole(log: ListedLog, mark: Mark, limit: int | None, options: Options) -> Mark:
    """The end of the last whole record that begins before `limit` bytes are read. Raises ZkDataError for
    damage right at the mark; permissive: continues at the next record after the damage."""
    reader = log.reader()
    while reader.read(mark.offset, _FRAME_HEAD).strip(b"\0"):
        # Not full: to look through the 64 MB of zeros that the server allocates is too much for each
        # micro-batch. What follows them is read when the log is finished.
        begun, part = mark.offset, Part(log.name, mark.offset)
        stretches = Stretches(reader, "", part, max_record=options.max_record, full=False)
        try:
            for stretch in stretches:
                mark = Mark(log.name, stretches.offset, int(stretch.zxids[-1]))
                if limit is not None and mark.offset - begun >= limit:
                    ends = [*(stretch.base + start for start in stretch.starts[1:]), mark.offset]
                    at = bisect_left(ends, begun + limit)
                    return Mark(log.name, ends[at], int(stretch.zxids[at]))
            return mark
        except ZkDataError:
            found = find(reader, mark.offset + 1, data_end(reader)) if options.permissive else None
            if found is None:
                if options.permissive or mark.offset > begun:
                    return mark
                raise
            limit = None if limit is None else max(1, limit - (found[0] - begun))
            mark = Mark(log.name, found[0], found[1] - 1)
    return mark


class RemovedLog(InputPartition):
    """The place of a log that was removed. value: the columns of the row that reports it."""


def plan(start: Marks, end: Marks, logs: Logs, options: Options) -> list[Portions | RemovedLog]:
    """What the tasks of a micro-batch read. Raises CursorError for a removed log; permissive: has a
    RemovedLog for it."""
    found: list[Portion | RemovedLog] = []
    for folder, upto in sorted(end.items()):
        mark = start.get(folder, upto)
        if mark != upto:
            found += _portions(folder, mark, upto, logs.get(folder, ()), options)
    removed = [one for one in found if isinstance(one, RemovedLog)]
    return [*removed, *packed((one for one in found if isinstance(one, Portion)), options.split)]


def _portions(
    folder: str, mark: Mark, end: Mark, logs: Sequence[ListedLog], options: Options
) -> Iterator[Portion | RemovedLog]:
    least, most = log_zxid(mark.file) or 0, log_zxid(end.file) or 0
    here = [log for log in logs if least <= log.first <= most]
    gone: list[tuple[Mark, str]] = []
    if not here or here[0].name != mark.file:
        here = [log for log in here if log.first > mark.zxid]
        oldest = next((log for log in logs if log.first > mark.zxid), None)
        gone.append((mark, _lost(mark, oldest, here[0].first - 1 if here else end.zxid)))
    if here and here[-1].name != end.file:
        begin = Mark(end.file, FILE_HEADER_SIZE, most - 1)
        gone.append((begin, _lost(begin, next((log for log in logs if log.first > most), None), end.zxid)))
    for lost, reason in gone:
        if reason and not options.permissive:
            raise CursorError(reason, lost.file, lost.offset)
        if reason:
            server = options.server or server_of(f"{folder}/{lost.file}")
            yield RemovedLog({"server": server, "file": lost.file, "corrupt": reason})
    for log in here:
        begins = mark.offset if log.name == mark.file else FILE_HEADER_SIZE
        stop = end.offset if log.name == end.file else None
        if stop is None or stop > begins:
            for part in parts(log.reader(), log.name, options.split, begins, stop):
                yield Portion(log.file, part)


class FollowingReader(DataSourceStreamReader, streaming.SupportsTriggerAvailableNow):
    """Plans on the driver, reads in tasks."""

    def __init__(self, stream: StreamOptions) -> None:
        self.stream = stream
        self._once = False
        self._frozen: dict[str, list[ListedLog]] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return _plain(initial_marks(list_logs(self.stream.options), self.stream))

    def getDefaultReadLimit(self) -> streaming.ReadLimit:
        return (
            streaming.ReadMaxBytes(self.stream.max_bytes)
            if self.stream.max_bytes
            else streaming.ReadAllAvailable()
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """The first `latestOffset` fixes what there is now: it knows the start."""
        self._once = True

    def latestOffset(self, start: dict[str, Any], limit: streaming.ReadLimit) -> dict[str, Any]:
        marks, options = _marks(start), self.stream.options
        logs = self._frozen if self._frozen is not None else list_logs(options)
        if self._once and self._frozen is None:
            logs = self._frozen = freeze(marks, logs, options)
        most = limit.max_bytes if isinstance(limit, streaming.ReadMaxBytes) else None
        return _plain(next_marks(marks, logs, most, self.stream))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Portions | RemovedLog]:
        return plan(_marks(start), _marks(end), list_logs(self.stream.options), self.stream.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self.stream.options
        if isinstance(partition, RemovedLog):
            yield one_row(options.wanted.schema, **partition.value)
            return
        assert isinstance(partition, Portions)
        for portion in partition.portions:
            yield from rows(portion, options.wanted, options)


def _plain(marks: Marks) -> dict[str, Any]:
    return {folder: asdict(mark) for folder, mark in marks.items()}


def _marks(offset: Mapping[str, Any]) -> dict[str, Mark]:
    return {folder: Mark(**fields) for folder, fields in offset.items()}
