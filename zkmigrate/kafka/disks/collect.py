"""``collect --broker-dirs``: the rows of brokers' log directories, from a few kilobytes of each segment.

Nothing is read of a segment that has the size and time of the last run, unless the broker may still write to
it. The rows are those that `kafkalogdir` gives of the directory itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from zkmigrate.errors import HostError
from zkmigrate.hosts.transport.pipeline import Found, Job, Listing, Range
from zkmigrate.kafka.disks.days import Journal, Key, Seen, newest, read_day
from zkmigrate.kafka.disks.logdir import (
    HIGH_WATERMARK,
    LOG_START,
    META,
    NEEDED,
    SEGMENTS,
    LogDir,
    SegmentFile,
    broker_id,
    checkpoint,
    folders,
    is_logdir,
    segment_files,
    unreadable,
)
from zkmigrate.kafka.disks.segments import BLOCK, Segment, folder, reading
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.runbook.model.report import counted
from zkmigrate.zookeeper.data.reader import FileReader
from zkmigrate.zookeeper.disks.collect import Note, Outcome, base_body, base_lines
from zkmigrate.zookeeper.disks.download import Bucket, Stopped, megabytes
from zkmigrate.zookeeper.disks.location import Disks, Place
from zkmigrate.zookeeper.disks.manifest import PART, Entry, Manifest, locked_manifest, sha256_of, size_of
from zkmigrate.zookeeper.disks.progress import Interval

T = TypeVar("T")

_FOLDERS = 256
"""Folders that are listed before their segments are read."""
_GROWN = 1 << 16
"""A checkpoint may be longer than it was when it was listed."""
_STATES = ("current", "future", "deleted", "stray")


@dataclass(frozen=True)
class Broker:
    """name: of its folder. dirs: its log.dirs. named: whether the rows have the name; else they have the id
    in its meta.properties, if there is one."""

    name: str
    dirs: tuple[Place, ...]
    named: bool

    @property
    def place(self) -> str:
        """All directories, as the manifest has them."""
        return " and ".join(map(str, self.dirs))


@dataclass(frozen=True)
class Request:
    """rate: bytes a second from all hosts together; 0: no limit."""

    out: Path
    brokers: tuple[Broker, ...]
    rate: float


@dataclass
class Counts:
    """Of one broker. read: segments whose files were read; bytes: of all segments, by state. gone: segments
    that the broker removed after they were listed; unread: files and folders, with the reason."""

    segments: int = 0
    read: int = 0
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STATES, 0))
    gone: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count the rows of a folder."""
        for row in rows:
            if row.get("base_offset") is not None:
                self.segments += 1
                self.bytes[row["state"]] += row["bytes"]


@dataclass
class BrokersOutcome(Outcome):
    """counts: by name, of the brokers that were reached."""

    counts: dict[str, Counts] = field(default_factory=dict)


class Answers(Protocol):
    """Runs jobs that read files, as `Pipeline`."""

    def run(self, jobs: Iterable[Job[T]]) -> Iterator[T]: ...


class Here:
    """Runs jobs on the files of this machine, one after the other."""

    def run(self, jobs: Iterable[Job[T]]) -> Iterator[T]:
        for job in jobs:
            yield _answered(job)


def _answered(job: Job[T]) -> T:
    try:
        ask = next(job)
        while True:
            try:
                answer = _listed(ask.path) if isinstance(ask, Listing) else _read(ask)
            except OSError as error:
                ask = job.throw(error)
            else:
                ask = job.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _read(ask: Range) -> bytes:
    return FileReader(Path(ask.path)).read(ask.offset, ask.length)


def _listed(path: str) -> tuple[Found, ...]:
    found = []
    for one in Path(path).iterdir():
        try:
            info = one.stat()
        except FileNotFoundError:
            continue
        found.append(Found(one.name, info.st_size, one.is_dir(), info.st_mtime))
    return tuple(sorted(found, key=lambda entry: entry.name))


class Collector:
    """Reads several brokers, one after the other. stop: whether the operator wants to stop. hint: takes
    progress."""

    def __init__(
        self,
        disks: Disks,
        request: Request,
        manifest: Manifest,
        clock: Clock,
        stop: Callable[[], bool],
        hint: Callable[[str], None],
    ) -> None:
        self._disks = disks
        self._request = request
        self._manifest = manifest
        self._clock = clock
        self._stop = stop
        self._hint = hint
        self._interval = Interval(clock=clock.now)
        self._bucket = Bucket(request.rate, BLOCK, clock)
        self._outcome = BrokersOutcome(manifest, tuple(broker.name for broker in request.brokers))

    def collect(self) -> BrokersOutcome:
        """Read what is new. Raises UsageError for a name that had another place before; OSError if this
        machine cannot write."""
        began = self._clock.now()
        self._manifest.claim({broker.name: broker.place for broker in self._request.brokers})
        try:
            for broker in self._request.brokers:
                try:
                    self._broker(broker)
                except HostError as error:
                    why = f"{error}. What came stays; the next run continues"
                    self._note(broker, "unreached", why)
        except Stopped:
            self._outcome.stopped = True
        self._outcome.seconds = self._clock.now() - began
        return self._outcome

    def _note(self, broker: Broker, what: str, why: str) -> None:
        self._outcome.notes.append(Note(broker.name, "", what, why))

    def _broker(self, broker: Broker) -> None:
        dirs = [(place, *self._reached(broker, place)) for place in broker.dirs]
        if broker.name not in self._manifest.servers:
            self._manifest.servers[broker.name] = broker.place
            self._manifest.save()
        taken = self._clock.wall()
        name = f"{datetime.fromtimestamp(taken, UTC).date()}.parquet"
        part = self._manifest.path(broker.name, name + PART)
        part.parent.mkdir(exist_ok=True)
        self._manifest.recover(broker.name)
        journal = Journal(part.parent)
        seen = self._seen(broker) | journal.load()
        counts = self._outcome.counts[broker.name] = Counts()
        with journal.adding() as add, pq.ParquetWriter(part, SEGMENTS) as writer:
            for place, here, names in dirs:
                with self._answers(place.host) as answers:
                    reader = _Reader(answers, self._metered, here, seen, add, counts)
                    for at in range(0, len(names), _FOLDERS):
                        rows = reader.rows(names[at : at + _FOLDERS])
                        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=SEGMENTS))
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        size, total = size_of(part), sum(counts.bytes.values())
        entry = Entry(
            broker.name, name, broker.place, size, sha256_of(part), "whole", total, round(taken * 1000)
        )
        self._manifest.keep(entry)
        self._outcome.taken.append(entry)
        journal.remove()
        if unread := counts.unread:
            why = f"{counted(len(unread), 'path')} cannot be read, such as {unread[0]}"
            self._note(broker, "unread", why)
        if gone := counts.gone:
            why = f"the broker removed {counted(len(gone), 'segment')} before the read, such as {gone[0]}"
            self._note(broker, "purged", why)

    def _reached(self, broker: Broker, place: Place) -> tuple[LogDir, list[str]]:
        """The directory and its folders. Raises HostError."""
        with self._answers(place.host) as answers:
            try:
                [(entries, meta, watermarks, starts)] = answers.run([self._metered(_opened(place.path))])
            except OSError as error:
                where = Place(place.host, error.filename or place.path)
                raise HostError(f"{where}: {error.strerror or error}") from error
        if not is_logdir(entries):
            raise HostError(f"{place} holds neither {META} nor a folder TOPIC-N. {NEEDED}")
        name = broker.name if broker.named else broker_id(meta) or broker.name
        return LogDir(name, place.path, checkpoint(watermarks), checkpoint(starts)), folders(entries)

    def _seen(self, broker: Broker) -> dict[Key, Seen]:
        """The segments of the newest day that is here."""
        entry = newest(self._manifest).get(broker.name)
        if entry is None:
            return {}
        path = self._manifest.path(*entry.key)
        try:
            return read_day(path)
        except (OSError, ValueError):
            self._note(broker, "again", f"{path.name} is not here as the manifest says: all is read again")
            return {}

    @contextmanager
    def _answers(self, host: str) -> Iterator[Answers]:
        if host:
            with self._disks.pipeline(host) as pipeline:
                yield pipeline
        else:
            yield Here()

    def _metered(self, job: Job[T]) -> Job[T]:
        """The job, reading at the rate."""
        try:
            ask = next(job)
            while True:
                length = ask.length if isinstance(ask, Range) else 0
                self._bucket.take(length)
                if self._stop():
                    raise Stopped
                came = 0
                try:
                    answer = yield ask
                    came = len(answer) if length else 0
                except OSError as error:
                    ask = job.throw(error)
                else:
                    ask = job.send(answer)
                finally:
                    self._bucket.give_back(length - came)
                    self._came(came)
        except StopIteration as end:
            result: T = end.value
            return result

    def _came(self, count: int) -> None:
        self._outcome.bytes_read += count
        if self._interval.due() and self._outcome.counts:
            name, counts = list(self._outcome.counts.items())[-1]
            came = megabytes(self._outcome.bytes_read)
            self._hint(f"{name}: {counted(counts.read, 'segment')} read; {came} came in all")


class _Reader:
    """Reads the folders of one directory. metered: makes a job read at the rate. seen: what is known; add:
    takes what is read."""

    def __init__(
        self,
        answers: Answers,
        metered: Callable[[Job[Any]], Job[Any]],
        here: LogDir,
        seen: Mapping[Key, Seen],
        add: Callable[[Key, Seen], None],
        counts: Counts,
    ) -> None:
        self._answers = answers
        self._metered = metered
        self._here = here
        self._seen = seen
        self._add = add
        self._counts = counts

    def rows(self, names: Sequence[str]) -> list[dict[str, object]]:
        """The rows of these folders. A live broker removes folders and segments meanwhile: they have none."""
        listed = self._listed(names)
        found: dict[str, dict[str, Segment]] = {name: {} for name in listed}
        jobs = []
        for name, entries in listed.items():
            files = list(segment_files(entries)) if not isinstance(entries, OSError) else []
            newest_offset = max((one.base_offset for one in files), default=0)
            for one in files:
                seen = self._seen.get((self._here.path, name, one.name))
                same = seen is not None and (seen.size, seen.modified_ms) == (one.size, one.modified_ms)
                if seen is not None and same and one.base_offset != newest_offset:
                    found[name][one.name] = seen.segment
                else:
                    jobs.append(_read_one(self._here.path, name, one))
        for name, one, segment in self._run(jobs):
            key = (self._here.path, name, one.name)
            if isinstance(segment, FileNotFoundError):
                self._counts.gone.append(f"{name}/{one.name}")
            elif isinstance(segment, OSError):
                found[name][one.name] = Segment(corrupt=unreadable(segment))
                self._counts.unread.append(f"{name}/{one.name}: {segment.strerror or segment}")
            else:
                found[name][one.name] = segment
                self._counts.read += 1
                self._add(key, Seen(one.size, one.modified_ms, segment))
        rows = []
        for name, entries in listed.items():
            if isinstance(entries, OSError):
                rows.append(self._here.unlisted(name, entries))
                self._counts.unread.append(f"{name}: {entries.strerror or entries}")
            else:
                rows += self._here.rows(name, entries, found[name])
        self._counts.add(rows)
        return rows

    def _listed(self, names: Sequence[str]) -> dict[str, tuple[Found, ...] | OSError]:
        """The entries of the folders by name, without those that vanished."""
        jobs = (_list_one(self._here.path, name) for name in names if folder(name))
        came = dict(self._run(jobs))
        listed = {name: came.get(name, ()) for name in names}
        return {name: one for name, one in listed.items() if not isinstance(one, FileNotFoundError)}

    def _run(self, jobs: Iterable[Job[T]]) -> Iterator[T]:
        return self._answers.run(map(self._metered, jobs))


def _opened(path: str) -> Job[tuple[tuple[Found, ...], str, str, str]]:
    """The entries of a log directory, and the texts of META and of its checkpoints."""
    entries: tuple[Found, ...] = yield Listing(path)
    sizes = {one.name: one.size for one in entries if not one.folder}
    texts = []
    for name in (META, HIGH_WATERMARK, LOG_START):
        data = b""
        if name in sizes:
            data = yield Range(f"{path.rstrip('/')}/{name}", 0, sizes[name] + _GROWN)
        texts.append(data.decode("utf-8", "replace"))
    return entries, texts[0], texts[1], texts[2]


def _list_one(path: str, name: str) -> Job[tuple[str, tuple[Found, ...] | OSError]]:
    try:
        entries: tuple[Found, ...] = yield Listing(f"{path.rstrip('/')}/{name}")
    except OSError as error:
        return name, error
    return name, entries


def _read_one(path: str, name: str, one: SegmentFile) -> Job[tuple[str, SegmentFile, Segment | OSError]]:
    """A segment of the folder `name`, by its ends."""
    asked = reading(one.sizes, one.base_offset, followed=BLOCK)
    try:
        read = next(asked)
        while True:
            where = f"{path.rstrip('/')}/{name}/{one.file(read.file)}"
            read = asked.send((yield Range(where, read.offset, read.length)))
    except StopIteration as end:
        return name, one, end.value
    except OSError as error:
        return name, one, error


def collect(
    disks: Disks, request: Request, clock: Clock, stop: Callable[[], bool], hint: Callable[[str], None]
) -> BrokersOutcome:
    """Read what is new. stop: whether the operator wants to stop, asked before each read. hint: takes
    progress.

    Raises UsageError for a wrong request, LockedError, ManifestError, and OSError if this machine cannot
    write. Failures of hosts are in the outcome.
    """
    with locked_manifest(request.out) as manifest:
        return Collector(disks, request, manifest, clock, stop, hint).collect()


def body(outcome: BrokersOutcome) -> dict[str, Any]:
    """The outcome as JSON values."""
    return {
        **base_body(outcome),
        "brokers": {
            name: {
                "segments": counts.segments,
                "read": counts.read,
                "bytes": counts.bytes,
                "gone": len(counts.gone),
                "unread": len(counts.unread),
            }
            for name, counts in outcome.counts.items()
        },
    }


def text(outcome: BrokersOutcome) -> str:
    """The outcome for a reader."""
    lines = []
    for name, counts in outcome.counts.items():
        held = ", ".join(f"{state} {megabytes(size)}" for state, size in counts.bytes.items() if size)
        lines.append(
            f"{name}: {counted(counts.segments, 'segment')}, {counts.read} of them read; {held or 'no bytes'}"
        )
    return "\n".join([*lines, *base_lines(outcome)])
