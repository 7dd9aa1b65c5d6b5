"""The command ``collect``: copy logs and snapshots of servers into a folder.

Each log is copied up to its last complete record. Each record is checked when it is received. A later run
continues after the last copied record if the source still holds that record. Only one transaction ever has
its zxid, so everything before it is the same too.

A snapshot is proved by its seal once it has been copied. Servers write and purge in the meantime. Files that
they remove or have not finished are reported and not copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from zkmigrate.errors import HostError
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.runbook.model.report import counted
from zkmigrate.zookeeper.data.errors import (
    CorruptError,
    CursorError,
    ForeignFileError,
    TruncatedHeaderError,
    ZkDataError,
)
from zkmigrate.zookeeper.data.logdir import LogFile, log_files
from zkmigrate.zookeeper.data.reader import Directory, FileReader, Listed, RandomReader
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import SnapshotFile, snapshot_files, snapshot_zxid
from zkmigrate.zookeeper.data.tail import newest as newest_of
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, Cursor, EndKind, LogScan, Record, log_zxid
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.download import (
    BLOCK,
    Bucket,
    Gone,
    PartFile,
    Progress,
    Source,
    Stopped,
    Unread,
    megabytes,
)
from zkmigrate.zookeeper.disks.location import VERSION_2, Disks, Place
from zkmigrate.zookeeper.disks.manifest import (
    ASIDE,
    PART,
    Cut,
    Entry,
    Manifest,
    State,
    Unfinished,
    copy_file,
    locked_manifest,
    sha256_of,
    size_of,
)

FAILED, INTERRUPTED = 8, 130
_HOUR_MS = 3_600_000
_TIME_AT = 12 + 20
"""The offset of the time in a record: after its frame, session, cxid and zxid."""

_FAILURES = ("damaged", "unread", "unreached")


@dataclass(frozen=True)
class Server:
    """A server to collect from.

    name: the name of its folder. data: its dataDir. log: its dataLogDir; None if it is the same.
    """

    name: str
    data: Place
    log: Place | None = None

    @property
    def place(self) -> str:
        """Both directories as text, without ``version-2``."""
        return " and ".join(
            str(Place(one.host, one.path.rstrip("/").removesuffix(f"/{VERSION_2}")))
            for one in (self.data, self.log)
            if one is not None
        )


@dataclass(frozen=True)
class Request:
    """What to collect, and the limits for it.

    snapshots: how many of the newest complete ones. since_zxid, since_hours: leave out older logs; hours
    count back from the newest transaction. rate: bytes per second from all hosts together; 0 for no limit.
    max_record: in bytes.
    """

    out: Path
    servers: tuple[Server, ...]
    snapshots: int
    rate: float
    max_record: int
    since_zxid: int | None = None
    since_hours: float | None = None


@dataclass(frozen=True)
class Note:
    """An unusual event.

    what: left, purged, again, aside or torn. With damaged, unread or unreached the run is a failure.
    """

    server: str
    name: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.server}{f' {self.name}' if self.name else ''}: {self.why}"


@dataclass
class Outcome:
    """The outcome of a run.

    taken: files that are new or grew. bytes_read: bytes read from the sources, including those not kept.
    """

    manifest: Manifest
    servers: tuple[str, ...]
    taken: list[Entry] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    bytes_read: int = 0
    seconds: float = 0.0
    stopped: bool = False

    @property
    def code(self) -> int:
        """The exit code."""
        if self.stopped:
            return INTERRUPTED
        return FAILED if any(note.what in _FAILURES for note in self.notes) else 0


class _CopyChanged(Exception):
    """The local copy differs from the manifest."""


@dataclass(frozen=True)
class _Base:
    """The beginning of a log that is already copied, up to a complete record."""

    path: Path
    cut: Cut

    def is_in(self, source: RandomReader) -> bool:
        """Return whether the source still has the last copied record."""
        cut = self.cut
        length = cut.offset - cut.record
        if source.size() < cut.offset:
            return False
        return source.read(cut.record, length) == FileReader(self.path).read(cut.record, length)


@dataclass
class _LogRead:
    """The result of reading a log.

    cut: the end of the last complete record, if any. damage, torn: why the log does not continue there; empty
    for a normal end.
    """

    cut: Cut | None
    wrote: bool = False
    damage: str = ""
    torn: str = ""


@dataclass(frozen=True)
class _Copy:
    """One file of a server, and its local copy."""

    manifest: Manifest
    server: Server
    name: str
    place: Place

    def __str__(self) -> str:
        return f"{self.server.name} {self.name}"

    @property
    def key(self) -> tuple[str, str]:
        return self.server.name, self.name

    @property
    def path(self) -> Path:
        return self.manifest.path(*self.key)

    @property
    def part(self) -> Path:
        return self.manifest.path(self.server.name, self.name + PART)

    @property
    def entry(self) -> Entry | None:
        return self.manifest.files.get(self.key)

    @property
    def intact(self) -> bool:
        """Whether the copy exists with the size in the manifest."""
        return self.entry is not None and size_of(self.path) == self.entry.bytes

    def has(self, size: int) -> bool:
        """Return whether all `size` bytes of the source's file are copied."""
        entry = self.entry
        return entry is not None and entry.state == "whole" and entry.source_size == size

    def change(self, entry: Entry, **values: Any) -> None:
        """Save other values in the entry."""
        self.manifest.files[self.key] = replace(entry, **values)
        self.manifest.save()


class Collector:
    """A run that copies the files of several servers, one after the other.

    stop: returns whether the operator wants to stop.
    """

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
        self._bucket = Bucket(request.rate, BLOCK, clock)
        self._progress = Progress(clock, hint)
        self._outcome = Outcome(manifest, tuple(server.name for server in request.servers))

    def collect(self) -> Outcome:
        """Copy what is new.

        Raises UsageError for a directory that is not ZooKeeper's, or for a name that had another place
        before; OSError if this machine cannot write.
        """
        began = self._clock.now()
        self._manifest.claim({server.name: server.place for server in self._request.servers})
        try:
            reached = [one for one in self._request.servers if self._reached(one, partial(self._plan, one))]
            self._manifest.servers |= {server.name: server.place for server in reached}
            self._manifest.save()
            for server in reached:
                self._reached(server, partial(self._server, server))
        except Stopped:
            self._outcome.stopped = True
        self._outcome.bytes_read = self._progress.done
        self._outcome.seconds = self._clock.now() - began
        return self._outcome

    def source(self, directory: Directory, name: str) -> Source:
        """Return a file of a server, read at the limited rate."""
        return Source(directory.open(name), self._bucket, self._progress, self._stop)

    def _plan(self, server: Server) -> None:
        """Plan how many bytes of a server are still to copy: an upper bound, because padding is not read."""
        snapshots = self._directory(server.data)
        logs = snapshots if server.log is None else self._directory(server.log)
        newest: tuple[SnapshotFile | LogFile, ...] = snapshot_files(snapshots)[: self._request.snapshots]
        for file in (*newest, *log_files(logs)):
            copy = self._copy(server, file.name)
            have = max(0, size_of(copy.part))
            if entry := copy.entry:
                have = file.size if copy.has(file.size) else max(have, entry.bytes)
            self._progress.plan(str(copy), file.size - have)

    def _reached(self, server: Server, do: Callable[[], None]) -> bool:
        """Run `do`, and return whether the host was reached. A failing host does not stop the others."""
        try:
            do()
        except HostError as error:
            why = f"{error}. What came stays; the next run continues"
            self._outcome.notes.append(Note(server.name, "", "unreached", why))
            return False
        return True

    def _directory(self, place: Place) -> Listed:
        """Return the same as `Disks.directory`, with HostError instead of OSError."""
        try:
            return self._disks.directory(place)
        except OSError as error:
            raise HostError(f"{place}: {error.strerror or error}") from error

    def _server(self, server: Server) -> None:
        """Copy the files of a server, snapshots first.

        A tree is complete only with the log that was written while its snapshot was saved.
        """
        self._manifest.path(server.name, "").mkdir(parents=True, exist_ok=True)
        self._manifest.recover(server.name)
        self._snapshots(server, self._directory(server.data))
        logs = self._directory(server.log or server.data)
        files = log_files(logs)
        if not files:
            hint = "" if server.log else ". A dataLogDir is given with --log-dir"
            self._outcome.notes.append(Note(server.name, "", "left", f"no log is there{hint}"))
        self._removed_logs(server, files)
        first = self._first(server, logs, files)
        for file in files:
            copy = self._copy(server, file.name)
            if file.zxid >= first:
                with self._reading(copy):
                    self._log(copy, logs, file, newest=file is files[-1])
            else:
                self._progress.plan(str(copy), 0)

    @contextmanager
    def _reading(self, copy: _Copy) -> Iterator[None]:
        """Copy one file in the block; an error of this file alone becomes a note."""
        with self._progress.reading(str(copy)):
            try:
                yield
            except Gone:
                self._gone(copy)
            except Unread as error:
                self._note(copy, "unread", f"cannot be read: {error}")

    def _copy(self, server: Server, name: str) -> _Copy:
        place = server.data if log_zxid(name) is None else server.log or server.data
        return _Copy(self._manifest, server, name, place)

    def _note(self, copy: _Copy, what: str, why: str) -> None:
        self._outcome.notes.append(Note(copy.server.name, copy.name, what, why))

    # -- snapshots -----------------------------------------------------------------------------------------

    def _snapshots(self, server: Server, directory: Directory) -> None:
        """Copy the newest complete snapshots, as many as requested."""
        listed = directory.names_with_sizes()
        for name in self._parts(server):
            if snapshot_zxid(name) is not None and name not in listed:
                self._copy(server, name).part.unlink()
        for key in [key for key in self._manifest.left if key[0] == server.name and key[1] not in listed]:
            del self._manifest.left[key]
        found = 0
        for file in snapshot_files(directory):
            if found == self._request.snapshots:
                break
            copy = self._copy(server, file.name)
            with self._reading(copy):
                found += self._snapshot(copy, directory, file)

    def _snapshot(self, copy: _Copy, directory: Directory, file: SnapshotFile) -> bool:
        """Copy a snapshot if it is not copied yet, and return whether a complete copy exists."""
        entry, left = copy.entry, self._manifest.left.get(copy.key)
        if entry is not None and entry.source_size == file.size and copy.intact:
            return True
        if left is not None and left.source_size == file.size:
            why = left.why
        else:
            if entry is not None:
                why = f"has {file.size} bytes, {entry.source_size} before, or is not here: taken again"
                self._note(copy, "again", why)
            why = self._download(self.source(directory, file.name), copy)
        if why:
            self._manifest.left[copy.key] = Unfinished(file.size, why)
            self._manifest.save()
            self._note(copy, "left", f"is not whole ({why}): left for the next time")
            return False
        self._manifest.left.pop(copy.key, None)
        self._commit(copy, file.size, "whole", None)
        return True

    def _download(self, source: RandomReader, copy: _Copy) -> str:
        """Download a snapshot into its part, and return why it is not complete, or "".

        A part of an earlier run is continued. It is dropped if the result is not complete.
        """
        if why := check_snapshot(source, copy.name, whole=False):
            return why
        continued = size_of(copy.part) > 0
        self._fetch(source, copy.part)
        why = check_snapshot(FileReader(copy.part), copy.name)
        if why and continued:
            copy.part.unlink()
            self._fetch(source, copy.part)
            why = check_snapshot(FileReader(copy.part), copy.name)
        return why

    def _fetch(self, source: RandomReader, part: Path) -> None:
        part.touch()
        offset = size_of(part)
        if offset > source.size():
            offset = 0
        target = PartFile(part, offset)
        try:
            while block := source.read(offset, BLOCK):
                target.add(block)
                offset += len(block)
        finally:
            target.close()

    # -- logs ----------------------------------------------------------------------------------------------

    def _first(self, server: Server, directory: Directory, files: Sequence[LogFile]) -> int:
        """Return the zxid in the name of the oldest requested log."""
        request = self._request
        if request.since_zxid is not None:
            return max((file.zxid for file in files if file.zxid <= request.since_zxid), default=0)
        if request.since_hours is None:
            return 0
        try:
            newest = newest_of(_Logs(self, directory, files), max_record=request.max_record)
            last = _time_at(self.source(directory, newest.file), newest.offset) or 0
        except (ZkDataError, Gone, Unread) as error:
            why = f"the time of the newest transaction is not known ({error}): every log is taken"
            self._outcome.notes.append(Note(server.name, "", "left", why))
            return 0
        since = last - request.since_hours * _HOUR_MS
        for file in reversed(files):
            try:
                began = _time_at(self.source(directory, file.name), FILE_HEADER_SIZE)
            except (Gone, Unread):
                continue  # noted when this file is copied
            if began is not None and began <= since:
                return file.zxid
        return 0

    def _removed_logs(self, server: Server, files: Sequence[LogFile]) -> None:
        """Handle logs that were copied and are no longer at the source.

        Either a purge removed them, or the server took their transactions back (TRUNC). In the second case
        they are no longer history.
        """
        listed = {file.name for file in files}
        here = {entry.name for entry in self._manifest.of_server(server.name)} | self._parts(server)
        for name in sorted(here - listed):
            zxid = log_zxid(name)
            if zxid is None:
                continue
            copy = self._copy(server, name)
            if self._taken_back(server, zxid, files):
                copy.part.unlink(missing_ok=True)
                if copy.entry is not None:
                    self._set_aside(copy)
            elif copy.entry is None or copy.entry.state not in ("whole", "cut"):
                self._gone(copy)

    def _taken_back(self, server: Server, zxid: int, files: Sequence[LogFile]) -> bool:
        """Return whether a TRUNC removed a log.

        TRUNC removes all logs after some transaction, and shortens the log that holds it, padding included. A
        purge removes older logs, in any order, and shortens none.
        """
        older = [file for file in files if file.zxid < zxid]
        if not older:
            return False
        entry = self._copy(server, older[-1].name).entry
        return entry is None or older[-1].size < entry.source_size

    def _parts(self, server: Server) -> set[str]:
        """Return the final names of the unfinished files."""
        folder = self._manifest.path(server.name, "")
        return {path.name.removesuffix(PART) for path in folder.glob(f"*{PART}")}

    def _set_aside(self, copy: _Copy) -> None:
        del self._manifest.files[copy.key]
        aside = copy.name + ASIDE
        if copy.path.exists():
            copy.path.replace(copy.path.with_name(aside))
        self._manifest.save()
        self._note(copy, "aside", f"the server took its transactions back; it is {aside} now")

    def _gone(self, copy: _Copy) -> None:
        """Handle a file that the server removed before its end was read.

        What was copied of a log stays, including the part of an interrupted run.
        """
        entry = copy.entry
        base = next(iter(self._part_base(copy)), None) if log_zxid(copy.name) is not None else None
        if base is not None and (entry is None or self._extends(base, copy, entry)):
            self._commit(copy, base.cut.offset if entry is None else entry.source_size, "cut", base.cut)
        else:
            copy.part.unlink(missing_ok=True)
            if entry is not None and entry.state != "whole":
                copy.change(entry, state="cut")
        entry = copy.entry
        upto = f"; what came stays, up to {format_zxid(entry.cut.zxid)}" if entry and entry.cut else ""
        why = f"the server removed it before it was read{' to its end' if upto else ''}{upto}"
        self._note(copy, "purged", why)

    def _extends(self, base: _Base, copy: _Copy, entry: Entry) -> bool:
        """Return whether a part continues a file that is not complete."""
        cut = entry.cut
        if entry.state == "whole" or cut is None or base.cut.offset <= cut.offset:
            return False
        return copy.intact and _Base(copy.path, cut).is_in(FileReader(base.path))

    def _log(self, copy: _Copy, directory: Directory, file: LogFile, *, newest: bool) -> None:
        """Copy what is new of a log."""
        entry, intact = copy.entry, copy.intact
        if intact and copy.has(file.size):
            return
        source = self.source(directory, file.name)
        bases = [_Base(copy.path, entry.cut)] if entry and entry.cut and intact else []
        bases = sorted(bases + self._part_base(copy), key=lambda base: base.cut.offset, reverse=True)
        base = next((one for one in bases if one.is_in(source)), None)
        changed = "here it is not as the manifest says: taken again from its start"
        if entry is not None and base is None:
            gone = "what was taken is not there any more: taken again from its start"
            self._note(copy, "again", gone if intact else changed)
        try:
            self._take(copy, source, file, base, newest=newest)
        except _CopyChanged:
            self._note(copy, "again", changed)
            self._take(copy, source, file, None, newest=newest)
        except CursorError as error:
            raise Unread(f"{error}; it changed while it was read. Next: collect again") from error

    def _part_base(self, copy: _Copy) -> list[_Base]:
        """Return the part of an earlier run up to its last complete record; empty if it has none."""
        last: Record | None = None
        try:
            for record in LogScan(FileReader(copy.part), copy.name, max_record=self._request.max_record):
                last = record
        except (FileNotFoundError, ZkDataError):
            pass
        return [_Base(copy.part, Cut(last.end, last.zxid, last.offset))] if last else []

    def _take(
        self, copy: _Copy, source: RandomReader, file: LogFile, base: _Base | None, *, newest: bool
    ) -> None:
        """Continue after the base, or start from the beginning, and keep the result."""
        entry = copy.entry
        read = self._read(copy, source, file, base, newest=newest)
        if read.damage:
            kept = base is None and entry is not None
            what = "Kept is what was taken before" if kept else "Taken is what stands before it"
            self._note(copy, "damaged", f"damaged: {read.damage}. {what}")
            if kept:  # the existing copy may be the better one
                copy.part.unlink(missing_ok=True)
                return
        elif read.torn:
            why = f"ends in an incomplete write ({read.torn}), as after a crash; it is left out"
            self._note(copy, "torn", why)
        state: State = "damaged" if read.damage else "growing" if newest else "whole"
        if read.wrote or (base is not None and base.path == copy.part):
            self._commit(copy, file.size, state, read.cut)
            return
        copy.part.unlink(missing_ok=True)
        if entry is None:
            if newest and not read.damage:
                self._note(copy, "left", "has no record yet")
        elif base is None:
            self._set_aside(copy)
        elif (entry.state, entry.source_size) != (state, file.size):
            copy.change(entry, state=state, source_size=file.size)

    def _read(
        self, copy: _Copy, source: RandomReader, file: LogFile, base: _Base | None, *, newest: bool
    ) -> _LogRead:
        """Copy the records after the base into the part. It keeps what was read, even if reading fails."""
        read = _LogRead(base.cut if base else None)
        target: PartFile | None = None
        try:
            cursor = Cursor(file.name, read.cut.offset, read.cut.zxid) if read.cut else None
            scan = LogScan(source, file.name, cursor, max_record=self._request.max_record)
            for record in scan:
                target = target or self._part_after(copy, source, base)
                target.record(record.payload)
                read.cut = Cut(record.end, record.zxid, record.offset)
            if scan.end is not None and scan.end.kind is EndKind.TORN and not newest:
                read.torn = scan.end.detail
                if scan.end.bad_checksum:
                    read.damage = f"{file.name} at offset {scan.end.offset}: {read.torn}"
        except TruncatedHeaderError as error:
            read.damage = "" if newest or not file.size else str(error)
        except (ForeignFileError, CorruptError) as error:
            read.damage = str(error)
        finally:
            if target is not None:
                target.close()
        read.wrote = target is not None
        return read

    def _part_after(self, copy: _Copy, source: RandomReader, base: _Base | None) -> PartFile:
        """Return the part with the content of the base. Raises _CopyChanged."""
        if base is None:
            copy.part.write_bytes(b"")
            target = PartFile(copy.part, 0)
            target.add(source.read(0, FILE_HEADER_SIZE))
            return target
        if (
            base.path != copy.part
            and copy_file(base.path, copy.part) != self._manifest.files[copy.key].sha256
        ):
            copy.part.unlink()
            raise _CopyChanged
        return PartFile(copy.part, base.cut.offset)

    def _commit(self, copy: _Copy, source_size: int, state: State, cut: Cut | None) -> None:
        """Turn the part into the final file."""
        size = cut.offset if cut else size_of(copy.part)
        with copy.part.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
        taken_ms = round(self._clock.wall() * 1000)
        sha256 = sha256_of(copy.part)
        entry = Entry(*copy.key, str(copy.place), size, sha256, state, source_size, taken_ms, cut)
        self._manifest.keep(entry)
        self._outcome.taken.append(entry)


class _Logs:
    """A directory of these logs alone, each read at the limited rate."""

    def __init__(self, collector: Collector, directory: Directory, files: Sequence[LogFile]) -> None:
        self._collector = collector
        self._directory = directory
        self._files = files

    def names_with_sizes(self) -> dict[str, int]:
        return {file.name: file.size for file in self._files}

    def open(self, name: str) -> RandomReader:
        return self._collector.source(self._directory, name)


def _time_at(source: RandomReader, offset: int) -> int | None:
    """Return the time of the record that begins at `offset`, in ms since 1970; None if there is none."""
    data = source.read(offset, _TIME_AT + 8)
    if len(data) < _TIME_AT + 8 or not any(data[8:12]):
        return None
    return int.from_bytes(data[_TIME_AT:], "big", signed=True)


def collect(
    disks: Disks, request: Request, clock: Clock, stop: Callable[[], bool], hint: Callable[[str], None]
) -> Outcome:
    """Copy what is new.

    stop: returns whether the operator wants to stop; it is called before each read. hint: receives progress.

    Raises UsageError for a wrong request, LockedError, ManifestError, and OSError if this machine cannot
    write. Failures of hosts are in the outcome.
    """
    with locked_manifest(request.out) as manifest:
        return Collector(disks, request, manifest, clock, stop, hint).collect()


def body(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    servers = {name: _server_body(outcome.manifest, name) for name in outcome.servers}
    return {**base_body(outcome), "servers": servers}


def base_body(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON values that outcomes of every kind of collecting have."""
    return {
        "out": str(outcome.manifest.out),
        "code": outcome.code,
        "stopped": outcome.stopped,
        "bytes_read": outcome.bytes_read,
        "seconds": round(outcome.seconds, 3),
        "taken": [entry.to_json() for entry in outcome.taken],
        "notes": [asdict(note) for note in outcome.notes],
    }


def _server_body(manifest: Manifest, server: str) -> dict[str, Any]:
    """Return what has been copied of a server, as JSON values."""
    entries = manifest.of_server(server)
    newest = max((entry.cut.zxid for entry in entries if entry.cut), default=None)
    return {
        "files": len(entries),
        "bytes": sum(entry.bytes for entry in entries),
        "logs": sum(entry.cut is not None for entry in entries),
        "newest": None if newest is None else format_zxid(newest),
    }


def text(outcome: Outcome) -> str:
    """Return the outcome for a reader."""
    lines = []
    for name in outcome.servers:
        taken = sum(entry.server == name for entry in outcome.taken)
        here = _server_body(outcome.manifest, name)
        logs, snapshots = here["logs"], here["files"] - here["logs"]
        upto = f", log up to {here['newest']}" if here["newest"] else ""
        lines.append(
            f"{name}: {counted(taken, 'file')} came or grew; here are {counted(logs, 'log')} and "
            f"{counted(snapshots, 'snapshot')}, {megabytes(here['bytes'])}{upto}"
        )
    return "\n".join([*lines, *base_lines(outcome)])


def base_lines(outcome: Outcome) -> list[str]:
    """Return the lines for a reader that outcomes of every kind of collecting have."""
    stopped = ["stopped; the same command continues"] if outcome.stopped else []
    read = f"{megabytes(outcome.bytes_read)} read in {outcome.seconds:.1f} s"
    return [*map(str, outcome.notes), *stopped, read]
