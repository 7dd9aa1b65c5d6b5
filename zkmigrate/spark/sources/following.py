"""Live transaction logs as a stream, ``spark.readStream.format("zktxnlog").load(PATH)``.

How far a stream has come is said for each directory of logs by a `Mark`. A mark stands behind a whole record:
what the server has not written whole is not there yet. It goes on to the next log only when that one exists,
since a server flushes a log before it begins another. From two marks the same rows are read however often.

Options besides those of `txnlog`: ``startingOffset`` earliest (default) or latest; ``maxBytesPerTrigger``
bytes of all logs to one micro-batch, exceeded by a record at most for each server, or by what is damaged;
0, the default: no limit.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

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
    """As the module says. max_bytes: 0 for no limit."""

    options: Options
    latest: bool = False
    max_bytes: int = 0


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Raises UsageError."""
    from_spark = OptionReader(given)
    found = StreamOptions(
        take_options(from_spark),
        from_spark.choice("startingOffset", ("earliest", "latest")) == "latest",
        from_spark.number("maxBytesPerTrigger", 0),
    )
    from_spark.end()
    return found


@dataclass(frozen=True)
class Mark:
    """How far a directory was read. file: the log's name; offset: of its next record; zxid: all up to this
    one were read, as far as the server has them."""

    file: str
    offset: int
    zxid: int


@dataclass(frozen=True)
class Seen:
    """A log as it was listed. end: nothing behind this offset is looked at; None: to where it is then."""

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
        """Before its first record."""
        return Mark(self.name, FILE_HEADER_SIZE, self.first - 1)

    def reader(self) -> RandomReader:
        found = self.file.reader()
        return found if self.end is None else _Cut(found, self.end)


class _Cut:
    """A file without what stands behind `end`."""

    def __init__(self, inner: RandomReader, end: int) -> None:
        self._inner = inner
        self._end = end

    def size(self) -> int:
        return min(self._end, self._inner.size())

    def read(self, offset: int, length: int) -> bytes:
        return self._inner.read(offset, max(0, min(length, self._end - offset)))


def listed(options: Options) -> dict[str, list[Seen]]:
    """The logs that may hold a record, oldest first, by directory. Raises UsageError."""
    found: dict[str, list[Seen]] = {}
    for file in files(options.paths, options.server, lambda name: log_zxid(name) is not None):
        path = file.path if _URI.match(file.path) else str(Path(file.path).absolute())
        if file.size > FILE_HEADER_SIZE:
            found.setdefault(posixpath.dirname(path), []).append(Seen(replace(file, path=path)))
    for logs in found.values():
        logs.sort(key=lambda log: log.first)
    return found


def frozen(
    start: Mapping[str, Mark], logs: Mapping[str, Sequence[Seen]], options: Options
) -> dict[str, list[Seen]]:
    """The same logs, and nothing that is written later. Raises as `reached` does."""
    found: dict[str, list[Seen]] = {}
    for folder, of in logs.items():
        newest, mark = of[-1], of[-1].begin
        if folder in start:
            _remaining(start[folder], of, options)
            mark = start[folder] if start[folder].file == newest.name else mark
        found[folder] = [*of[:-1], replace(newest, end=_whole(newest, mark, None, options).offset)]
    return found


def initial(logs: Mapping[str, Sequence[Seen]], stream: StreamOptions) -> dict[str, Mark]:
    """Where a stream begins."""
    if not stream.latest:
        return {folder: of[0].begin for folder, of in logs.items()}
    return {folder: _whole(of[-1], of[-1].begin, None, stream.options) for folder, of in logs.items()}


def reached(
    start: Mapping[str, Mark], logs: Mapping[str, Sequence[Seen]], limit: int | None, stream: StreamOptions
) -> dict[str, Mark]:
    """Where a micro-batch that begins at `start` ends. limit: bytes; None for no limit.

    A directory that is new enters at its beginning and is read by the next micro-batch, so that both ends of
    what is read are kept with the checkpoint. Raises ZkDataError, in mode permissive only CursorError for a
    log that was cut behind what was read.
    """
    found = {folder: of[0].begin for folder, of in logs.items() if folder not in start}
    left = limit
    for n, (folder, mark) in enumerate(sorted(start.items())):
        share = None if left is None else max(1, left // (len(start) - n))
        found[folder], used = _advanced(mark, logs.get(folder, ()), share, stream.options)
        left = None if left is None else max(0, left - used)
    return found


def _advanced(mark: Mark, logs: Sequence[Seen], limit: int | None, options: Options) -> tuple[Mark, int]:
    """One directory's next mark, and how many bytes stand between."""
    rest = _remaining(mark, logs, options)
    if rest and rest[0].name != mark.file:
        mark = rest[0].begin
    used = 0
    for log, following in zip(rest, [*rest[1:], None], strict=True):
        left = None if limit is None else limit - used
        if left is not None and left <= 0:
            break
        size = 0
        if left is not None and following is not None:
            size = max(0, data_end(log.reader()) - mark.offset)
        if following is None or (left is not None and size > left):
            ahead = _whole(log, mark, left, options)
            if following is None or ahead != mark:
                return ahead, used + ahead.offset - mark.offset
        used += size
        mark = following.begin
    return mark, used


def _remaining(mark: Mark, logs: Sequence[Seen], options: Options) -> Sequence[Seen]:
    """The logs from the mark on. Raises CursorError for what is gone, or was cut since; permissive: only for
    the second."""
    at = bisect_left(logs, log_zxid(mark.file) or 0, key=lambda log: log.first)
    if at == len(logs) or logs[at].name != mark.file:
        rest = [log for log in logs if log.first > mark.zxid]
        oldest = rest[0] if rest else None
        reason = _lost(mark, oldest, None if oldest is None else oldest.first - 1)
        if reason and not options.permissive:
            raise CursorError(reason, mark.file, mark.offset)
        return rest
    if mark.offset > FILE_HEADER_SIZE:
        cursor = Cursor(mark.file, mark.offset, mark.zxid)
        LogScan(logs[at].file.reader(), mark.file, cursor, block=1)  # looks at what stands before it
    for log in logs[at + 1 :]:
        if log.first <= mark.zxid:
            raise CursorError(
                f"{format_zxid(mark.zxid)} was read from it, but {log.name} comes behind it: the server has "
                "taken back what it had written. Needed: a new checkpoint",
                mark.file,
                mark.offset,
            )
    return logs[at:]


def _lost(mark: Mark, oldest: Seen | None, upto: int | None) -> str:
    """Why a log that is gone is missed; empty where it is not. oldest: the log that is left; upto: the last
    zxid that may have been in it; None: not known."""
    if upto is not None and upto <= mark.zxid:
        return ""
    missing = format_zxid(mark.zxid + 1) + (" and later" if upto is None else f" to {format_zxid(upto)}")
    left = "no later log is left" if oldest is None else f"{oldest.name} is the oldest log left"
    return (
        f"the log was removed before it was read to its end: missing are {missing}; {left}. Needed: the log "
        "back in its place, or a new checkpoint; mode permissive tells this as a row and reads on"
    )


def _whole(log: Seen, mark: Mark, limit: int | None, options: Options) -> Mark:
    """Behind the last whole record that begins before `limit` bytes are read. Raises ZkDataError for damage
    right at the mark; permissive: goes on behind damage where a record is found there."""
    reader = log.reader()
    while reader.read(mark.offset, _FRAME_HEAD).strip(b"\0"):
        # What is behind zeros is looked at when the log is finished: a look through all that the server
        # keeps in advance, 64 MB, would be too much for every micro-batch.
        stretches = Stretches(
            reader, "", Part(log.name, mark.offset), max_record=options.max_record, full=False
        )
        begun = mark.offset
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


@dataclass
class Missing(InputPartition):
    """A row that tells of a log that is gone."""

    server: str
    file: str
    reason: str

    def __init__(self, server: str, file: str, reason: str) -> None:
        super().__init__((server, file, reason))
        self.server, self.file, self.reason = server, file, reason


def planned(
    start: Mapping[str, Mark], end: Mapping[str, Mark], logs: Mapping[str, Sequence[Seen]], options: Options
) -> list[Portions | Missing]:
    """What the tasks of a micro-batch read. Raises CursorError for a log that is gone; permissive: `Missing`
    for it."""
    found: list[Portion | Missing] = []
    for folder, upto in sorted(end.items()):
        mark = start.get(folder, upto)
        if mark != upto:
            found += _portions(folder, mark, upto, logs.get(folder, ()), options)
    missing = [one for one in found if isinstance(one, Missing)]
    return [*missing, *packed((one for one in found if isinstance(one, Portion)), options.split)]


def _portions(
    folder: str, mark: Mark, end: Mark, logs: Sequence[Seen], options: Options
) -> Iterator[Portion | Missing]:
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
            yield Missing(options.server or server_of(f"{folder}/{lost.file}"), lost.file, reason)
    for log in here:
        begins = mark.offset if log.name == mark.file else FILE_HEADER_SIZE
        stop = end.offset if log.name == end.file else None
        if stop is None or stop > begins:
            for part in parts(log.reader(), log.name, options.split, begins, stop):
                yield Portion(log.file, part)


class FollowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads in tasks."""

    def __init__(self, stream: StreamOptions) -> None:
        self.stream = stream
        self._once = False
        self._frozen: dict[str, list[Seen]] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return _plain(initial(listed(self.stream.options), self.stream))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self.stream.max_bytes) if self.stream.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What there is now is looked at by the first `latestOffset`, which knows from where on."""
        self._once = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        marks, options = _marks(start), self.stream.options
        logs = self._frozen if self._frozen is not None else listed(options)
        if self._once and self._frozen is None:
            logs = self._frozen = frozen(marks, logs, options)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return _plain(reached(marks, logs, most, self.stream))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Portions | Missing]:
        return planned(_marks(start), _marks(end), listed(self.stream.options), self.stream.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self.stream.options
        if isinstance(partition, Missing):
            lost = {"server": partition.server, "file": partition.file, "corrupt": partition.reason}
            yield one_row(options.wanted.schema, **lost)
            return
        assert isinstance(partition, Portions)
        for portion in partition.portions:
            yield from rows(portion, options.wanted, options)


def _plain(marks: Mapping[str, Mark]) -> dict[str, Any]:
    return {folder: asdict(mark) for folder, mark in marks.items()}


def _marks(offset: Mapping[str, Any]) -> dict[str, Mark]:
    return {folder: Mark(**fields) for folder, fields in offset.items()}
