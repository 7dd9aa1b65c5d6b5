"""``collect``: bring logs and snapshots of servers into a folder, file by file, each only as far as it is
whole.

A log's records are checked one by one as they come, and what is kept ends behind a whole one. A later run
goes on there, once the last record that was taken is found at the source as it was: it has a zxid, which only
one transaction ever has, so what stands before it is the same too. A snapshot is proved by its seal when it
is here. What a server does to a directory meanwhile is no error: files that it removes or has not finished
are said, and left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from zkmigrate.errors import HostError, UsageError
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
from zkmigrate.zookeeper.disks.collected import (
    ASIDE,
    PART,
    Cut,
    Entry,
    Left,
    Manifest,
    State,
    copied,
    counted,
    filling,
    sha256_of,
    size_of,
    told,
)
from zkmigrate.zookeeper.disks.download import (
    BLOCK,
    Bucket,
    Clock,
    Gone,
    Progress,
    Source,
    Stopped,
    Unread,
    Writing,
    megabytes,
)
from zkmigrate.zookeeper.disks.location import VERSION_2, Disks, Place

FAILED, INTERRUPTED = 8, 130
_HOUR_MS = 3_600_000
_AT_TIME = 12 + 20
"""Where the time stands in a record: behind its frame, the session, the cxid and the zxid."""

_FAILURES = ("damaged", "unread", "unreached")


@dataclass(frozen=True)
class Server:
    """name: of its folder. data: its dataDir; log: its dataLogDir where that is another."""

    name: str
    data: Place
    log: Place | None = None

    @property
    def place(self) -> str:
        """Both, without what may be left out."""
        return " and ".join(
            f"{one.host}:{path}" if one.host else path
            for one in (self.data, self.log)
            if one is not None
            for path in (one.path.rstrip("/").removesuffix(f"/{VERSION_2}"),)
        )


@dataclass(frozen=True)
class Asked:
    """snapshots: how many of the newest whole ones. since_zxid, since_hours: older logs are left out; hours
    count back from the newest transaction. rate: bytes a second from all hosts together; 0: no limit.
    max_record: in bytes."""

    out: Path
    servers: tuple[Server, ...]
    snapshots: int
    rate: float
    max_record: int
    since_zxid: int | None = None
    since_hours: float | None = None


@dataclass(frozen=True)
class Note:
    """Something out of the ordinary. what: left, purged, again, aside, torn; damaged, unread, unreached make
    the run a failure."""

    server: str
    name: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.server}{f' {self.name}' if self.name else ''}: {self.why}"


@dataclass
class Outcome:
    """taken: files that came or grew. bytes_read: from the sources, with what was looked at and not kept."""

    manifest: Manifest
    servers: tuple[str, ...]
    taken: list[Entry] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    bytes_read: int = 0
    seconds: float = 0.0
    stopped: bool = False

    @property
    def code(self) -> int:
        """As the command ends."""
        if self.stopped:
            return INTERRUPTED
        return FAILED if any(note.what in _FAILURES for note in self.notes) else 0


class _Spoiled(Exception):
    """The local copy is not what the manifest says."""


@dataclass(frozen=True)
class _Base:
    """What is here of a log and ends behind a whole record."""

    path: Path
    cut: Cut


@dataclass
class _Read:
    """What came of reading a log. cut: behind the last whole record, if there is one. damage, torn: why it
    does not go on; empty where it ends as logs do."""

    cut: Cut | None
    wrote: bool = False
    damage: str = ""
    torn: str = ""


class Collector:
    """Takes the files of some servers, one after the other. stop: whether the operator wants to stop."""

    def __init__(
        self,
        disks: Disks,
        asked: Asked,
        manifest: Manifest,
        clock: Clock,
        stop: Callable[[], bool],
        hint: Callable[[str], None],
    ) -> None:
        self._disks = disks
        self._asked = asked
        self._manifest = manifest
        self._clock = clock
        self._stop = stop
        self._hint = hint
        self._bucket = Bucket(asked.rate, BLOCK, clock)
        self._progress = Progress(clock, hint)
        self._outcome = Outcome(manifest, tuple(server.name for server in asked.servers))

    def collect(self) -> Outcome:
        """Take what is new. Raises UsageError for a place that is none of ZooKeeper's, or for a name that had
        another place before; OSError where this machine cannot write."""
        began = self._clock.now()
        self._same_places()
        try:
            for server in self._listed():
                self._reached(server, partial(self._server, server))
        except Stopped:
            self._outcome.stopped = True
        self._outcome.bytes_read = self._progress.done
        self._outcome.seconds = self._clock.now() - began
        return self._outcome

    def _same_places(self) -> None:
        for server in self._asked.servers:
            before = self._manifest.servers.get(server.name, server.place)
            if before != server.place:
                raise UsageError(
                    f"{self._asked.out} has {server.name} from {before}, not from {server.place}. Needed: "
                    "another name for it (NAME=), or another folder"
                )

    def _listed(self) -> list[Server]:
        """The servers that answer, with everything planned that they have and we have not."""
        found: list[Server] = []
        for server in self._asked.servers:
            if self._reached(server, partial(self._plan, server)):
                found.append(server)
        for server in found:
            self._manifest.servers[server.name] = server.place
        self._manifest.save()
        return found

    def _plan(self, server: Server) -> None:
        """An upper bound: of a log's size the padding is not read."""
        snapshots = self._directory(server.data)
        logs = snapshots if server.log is None else self._directory(server.log)
        newest = snapshot_files(snapshots)[: self._asked.snapshots]
        sizes = [(file.name, file.size) for file in newest]
        sizes += [(file.name, file.size) for file in log_files(logs)]
        for name, size in sizes:
            entry = self._manifest.files.get((server.name, name))
            have = max(0, size_of(self._path(server, name + PART)))
            if entry is not None:
                done = entry.state == "whole" and entry.source_size == size
                have = size if done else max(have, entry.bytes)
            self._progress.plan(_told(server, name), size - have)

    def _reached(self, server: Server, do: Callable[[], None]) -> bool:
        """Whether it was done; a host that fails leaves the others their turn."""
        try:
            do()
        except HostError as error:
            self._note(server.name, "", "unreached", f"{error}. What came stays; the next run goes on")
            return False
        return True

    def _directory(self, place: Place) -> Listed:
        """As `Disks.directory`, whose OSError becomes a HostError."""
        try:
            return self._disks.directory(place)
        except HostError:
            raise
        except OSError as error:
            raise HostError(f"{place}: {error.strerror or error}") from error

    def _server(self, server: Server) -> None:
        """Snapshots first: a tree is whole only with the log that was written while it was saved."""
        self._path(server, "").mkdir(parents=True, exist_ok=True)
        self._manifest.recover(server.name)
        self._snapshots(server, self._directory(server.data))
        logs = self._directory(server.log or server.data)
        files = log_files(logs)
        if not files:
            why = "no log is there" if server.log else "no log is there. A dataLogDir is given with --log-dir"
            self._note(server.name, "", "left", why)
        self._removed(server, files)
        first = self._first(server, logs, files)
        for file in files:
            if file.zxid >= first:
                with self._one(server, file.name):
                    self._log(server, logs, file, newest=file is files[-1])
            else:
                self._progress.plan(_told(server, file.name), 0)

    @contextmanager
    def _one(self, server: Server, name: str) -> Iterator[None]:
        """A file's turn: what is wrong with it alone is said."""
        with self._progress.of(_told(server, name)):
            try:
                yield
            except Gone:
                self._lost(server, name)
            except Unread as error:
                self._note(server.name, name, "unread", f"cannot be read: {error}")

    def source(self, directory: Directory, name: str) -> Source:
        """One of its files, read at the rate."""
        return Source(directory.open(name), self._bucket, self._progress, self._stop)

    # -- snapshots -----------------------------------------------------------------------------------------

    def _snapshots(self, server: Server, directory: Directory) -> None:
        """The newest whole ones, as many as were asked for."""
        listed = directory.names_with_sizes()
        for name in self._parts(server):
            if snapshot_zxid(name) is not None and name not in listed:
                self._path(server, name + PART).unlink()
        for key in [key for key in self._manifest.left if key[0] == server.name and key[1] not in listed]:
            del self._manifest.left[key]
        found = 0
        for file in snapshot_files(directory):
            if found == self._asked.snapshots:
                break
            with self._one(server, file.name):
                found += self._snapshot(server, directory, file)

    def _snapshot(self, server: Server, directory: Directory, file: SnapshotFile) -> bool:
        """Whether it is here, whole."""
        key = server.name, file.name
        path, part = self._path(server, file.name), self._path(server, file.name + PART)
        entry, left = self._manifest.files.get(key), self._manifest.left.get(key)
        if entry is not None and entry.source_size == file.size and size_of(path) == entry.bytes:
            return True
        if left is not None and left.source_size == file.size:
            why = left.why
        else:
            if entry is not None:
                why = f"has {file.size} bytes, {entry.source_size} before, or is not here: taken again"
                self._note(server.name, file.name, "again", why)
            why = self._whole(self.source(directory, file.name), file, part)
        if why:
            self._manifest.left[key] = Left(file.size, why)
            self._manifest.save()
            self._note(server.name, file.name, "left", f"is not whole ({why}): left for the next time")
            return False
        self._manifest.left.pop(key, None)
        self._commit(server, server.data, file.name, file.size, "whole", None)
        return True

    def _whole(self, source: RandomReader, file: SnapshotFile, part: Path) -> str:
        """Have all of a snapshot in its part; why it is not whole, or "". A part of an earlier run is gone on
        with, and given up where that does not come out whole."""
        if why := check_snapshot(source, file.name, whole=False):
            return why
        begun = size_of(part) > 0
        self._fetch(source, part)
        why = check_snapshot(FileReader(part), file.name)
        if why and begun:
            part.unlink()
            self._fetch(source, part)
            why = check_snapshot(FileReader(part), file.name)
        return why

    def _fetch(self, source: RandomReader, part: Path) -> None:
        part.touch()
        offset = size_of(part)
        if offset > source.size():
            offset = 0
        writing = Writing(part, offset)
        try:
            while block := source.read(offset, BLOCK):
                writing.add(block)
                offset += len(block)
        finally:
            writing.close()

    # -- logs ----------------------------------------------------------------------------------------------

    def _first(self, server: Server, directory: Directory, files: Sequence[LogFile]) -> int:
        """The zxid in the name of the oldest log that is wanted."""
        asked = self._asked
        if asked.since_zxid is not None:
            return max((file.zxid for file in files if file.zxid <= asked.since_zxid), default=0)
        if asked.since_hours is None:
            return 0
        try:
            newest = newest_of(_Logs(self, directory, files), max_record=asked.max_record)
            last = _time_at(self.source(directory, newest.file), newest.offset) or 0
        except (ZkDataError, Gone, Unread) as error:
            why = f"the time of the newest transaction is not known ({error}): every log is taken"
            self._note(server.name, "", "left", why)
            return 0
        since = last - asked.since_hours * _HOUR_MS
        for file in reversed(files):
            try:
                began = _time_at(self.source(directory, file.name), FILE_HEADER_SIZE)
            except (Gone, Unread):
                continue  # said when its turn comes
            if began is not None and began <= since:
                return file.zxid
        return 0

    def _removed(self, server: Server, files: Sequence[LogFile]) -> None:
        """Logs that are here and not there any more: purged, or taken back by their server (TRUNC). Those are
        no history any more."""
        listed = {file.name for file in files}
        here = {entry.name for entry in self._manifest.of(server.name)} | self._parts(server)
        for name in sorted(here - listed):
            zxid = log_zxid(name)
            if zxid is None:
                continue
            entry = self._manifest.files.get((server.name, name))
            if self._taken_back(server, zxid, files):
                self._path(server, name + PART).unlink(missing_ok=True)
                if entry is not None:
                    self._aside(server, entry)
            elif entry is None or entry.state not in ("whole", "cut"):
                self._lost(server, name)

    def _taken_back(self, server: Server, zxid: int, files: Sequence[LogFile]) -> bool:
        """Whether a log that vanished was taken back: all behind some transaction go then, and the log that
        holds it is cut there, its padding too. A purge takes older ones, in no order, and cuts none."""
        older = [file for file in files if file.zxid < zxid]
        if not older:
            return False
        entry = self._manifest.files.get((server.name, older[-1].name))
        return entry is None or older[-1].size < entry.source_size

    def _parts(self, server: Server) -> set[str]:
        """The files that are begun, by the names that they will have."""
        return {path.name.removesuffix(PART) for path in self._path(server, "").glob(f"*{PART}")}

    def _aside(self, server: Server, entry: Entry) -> None:
        del self._manifest.files[entry.key]
        path = self._path(server, entry.name)
        if path.exists():
            path.replace(self._path(server, entry.name + ASIDE))
        self._manifest.save()
        why = f"the server took its transactions back; it is {entry.name}{ASIDE} now"
        self._note(server.name, entry.name, "aside", why)

    def _lost(self, server: Server, name: str) -> None:
        """The server removed a file before its end was read. What is here of a log stays, what an
        interrupted run left of it too."""
        part = self._path(server, name + PART)
        entry = self._manifest.files.get((server.name, name))
        base = next(iter(self._begun(server, name)), None) if log_zxid(name) is not None else None
        if base is not None and (entry is None or self._extends(base, entry)):
            size = base.cut.offset if entry is None else entry.source_size
            self._commit(server, server.log or server.data, name, size, "cut", base.cut)
        else:
            part.unlink(missing_ok=True)
            if entry is not None and entry.state != "whole":
                self._manifest.files[entry.key] = replace(entry, state="cut")
                self._manifest.save()
        entry = self._manifest.files.get((server.name, name))
        upto = f"; what came stays, up to {format_zxid(entry.cut.zxid)}" if entry and entry.cut else ""
        why = f"the server removed it before it was read{' to its end' if upto else ''}{upto}"
        self._note(server.name, name, "purged", why)

    def _extends(self, base: _Base, entry: Entry) -> bool:
        """Whether a part goes on where a file ends that is not whole."""
        cut, path = entry.cut, self._manifest.path(entry.server, entry.name)
        if entry.state == "whole" or cut is None or base.cut.offset <= cut.offset:
            return False
        return size_of(path) == entry.bytes and _stands(FileReader(base.path), _Base(path, cut))

    def _log(self, server: Server, directory: Directory, file: LogFile, *, newest: bool) -> None:
        """Take what is new of a log."""
        entry = self._manifest.files.get((server.name, file.name))
        path = self._path(server, file.name)
        here = entry is not None and size_of(path) == entry.bytes
        if entry is not None and here and entry.state == "whole" and entry.source_size == file.size:
            return
        source = self.source(directory, file.name)
        bases = [_Base(path, entry.cut)] if entry is not None and entry.cut is not None and here else []
        bases += self._begun(server, file.name)
        bases.sort(key=lambda base: base.cut.offset, reverse=True)
        base = next((one for one in bases if _stands(source, one)), None)
        if entry is not None and base is None:
            why = (
                "here it is not as the manifest says" if not here else "what was taken is not there any more"
            )
            self._note(server.name, file.name, "again", f"{why}: taken again from its start")
        try:
            self._take(server, source, file, base, newest=newest)
        except _Spoiled:
            why = "here it is not as the manifest says: taken again from its start"
            self._note(server.name, file.name, "again", why)
            self._take(server, source, file, None, newest=newest)
        except CursorError as error:
            raise Unread(f"{error}; it changed while it was read. Next: collect again") from error

    def _begun(self, server: Server, name: str) -> list[_Base]:
        """What an earlier run left in the part: after a crash of the machine too, only its whole records
        count."""
        part = self._path(server, name + PART)
        last: Record | None = None
        try:
            for record in LogScan(FileReader(part), name, max_record=self._asked.max_record):
                last = record
        except (FileNotFoundError, ZkDataError):
            pass
        return [_Base(part, Cut(last.end, last.zxid, last.offset))] if last else []

    def _take(
        self, server: Server, source: RandomReader, file: LogFile, base: _Base | None, *, newest: bool
    ) -> None:
        """Read on behind the base, or from the start, and keep what came of it."""
        part = self._path(server, file.name + PART)
        entry = self._manifest.files.get((server.name, file.name))
        read = self._read(server, source, file, base, newest=newest)
        if read.damage:
            kept = base is None and entry is not None
            what = "Kept is what was taken before" if kept else "Taken is what stands before it"
            self._note(server.name, file.name, "damaged", f"damaged: {read.damage}. {what}")
            if kept:  # what is here may be the better copy
                part.unlink(missing_ok=True)
                return
        elif read.torn:
            why = f"ends in a write that was not whole ({read.torn}), as after a crash; it is left out"
            self._note(server.name, file.name, "torn", why)
        state: State = "damaged" if read.damage else "growing" if newest else "whole"
        if read.wrote or (base is not None and base.path == part):
            place = server.log or server.data
            self._commit(server, place, file.name, file.size, state, read.cut)
            return
        part.unlink(missing_ok=True)
        if entry is None:
            if newest and not read.damage:
                self._note(server.name, file.name, "left", "has no record yet")
        elif base is None:
            self._aside(server, entry)
        elif (entry.state, entry.source_size) != (state, file.size):
            self._manifest.files[entry.key] = replace(entry, state=state, source_size=file.size)
            self._manifest.save()

    def _read(
        self, server: Server, source: RandomReader, file: LogFile, base: _Base | None, *, newest: bool
    ) -> _Read:
        """The records behind the base into the part. What is read of them is in it, however this ends."""
        read = _Read(base.cut if base else None)
        writing: Writing | None = None
        try:
            cursor = Cursor(file.name, read.cut.offset, read.cut.zxid) if read.cut else None
            scan = LogScan(source, file.name, cursor, max_record=self._asked.max_record)
            for record in scan:
                writing = writing or self._writing(server, source, file, base)
                writing.record(record.payload)
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
            if writing is not None:
                writing.close()
        read.wrote = writing is not None
        return read

    def _writing(self, server: Server, source: RandomReader, file: LogFile, base: _Base | None) -> Writing:
        """The part, with everything that the base has. Raises _Spoiled."""
        part = self._path(server, file.name + PART)
        if base is None:
            part.write_bytes(b"")
            writing = Writing(part, 0)
            writing.add(source.read(0, FILE_HEADER_SIZE))
            return writing
        if base.path != part:
            entry = self._manifest.files[server.name, file.name]
            if copied(base.path, part) != entry.sha256:
                part.unlink()
                raise _Spoiled
        return Writing(part, base.cut.offset)

    # -- what is here --------------------------------------------------------------------------------------

    def _path(self, server: Server, name: str) -> Path:
        return self._manifest.path(server.name, name)

    def _commit(
        self, server: Server, place: Place, name: str, source_size: int, state: State, cut: Cut | None
    ) -> None:
        """A part becomes the file."""
        part = self._path(server, name + PART)
        size = cut.offset if cut else size_of(part)
        with part.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
        taken_ms = round(self._clock.wall() * 1000)
        entry = Entry(server.name, name, str(place), size, sha256_of(part), state, source_size, taken_ms, cut)
        self._manifest.files[entry.key] = entry
        self._manifest.save()
        self._manifest.named(entry)
        self._outcome.taken.append(entry)

    def _note(self, server: str, name: str, what: str, why: str) -> None:
        note = Note(server, name, what, why)
        self._outcome.notes.append(note)


class _Logs:
    """The logs of a listing alone, each read at the rate: zookeeper.data's Directory."""

    def __init__(self, collector: Collector, directory: Directory, files: Sequence[LogFile]) -> None:
        self._collector = collector
        self._directory = directory
        self._files = files

    def names_with_sizes(self) -> dict[str, int]:
        return {file.name: file.size for file in self._files}

    def open(self, name: str) -> RandomReader:
        return self._collector.source(self._directory, name)


def _told(server: Server, name: str) -> str:
    return f"{server.name} {name}"


def _time_at(source: RandomReader, offset: int) -> int | None:
    """The time of the record that begins there, in ms since 1970; None where there is none."""
    data = source.read(offset, _AT_TIME + 8)
    if len(data) < _AT_TIME + 8 or not any(data[8:12]):
        return None
    return int.from_bytes(data[_AT_TIME:], "big", signed=True)


def _stands(source: RandomReader, base: _Base) -> bool:
    """Whether the source still has the last record that was taken."""
    cut = base.cut
    length = cut.offset - cut.record
    if source.size() < cut.offset:
        return False
    return source.read(cut.record, length) == FileReader(base.path).read(cut.record, length)


def collect(
    disks: Disks, asked: Asked, clock: Clock, stop: Callable[[], bool], hint: Callable[[str], None]
) -> Outcome:
    """Take what is new from some servers into a folder. stop: whether the operator wants to stop, asked
    before each read. hint: takes progress.

    Raises UsageError for what was asked, LockedError, ManifestError, and OSError where this machine cannot
    write. What a host does not give is in the outcome.
    """
    with filling(asked.out) as manifest:
        return Collector(disks, asked, manifest, clock, stop, hint).collect()


def body(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON values."""
    manifest = outcome.manifest
    return {
        "out": str(manifest.out),
        "code": outcome.code,
        "stopped": outcome.stopped,
        "bytes_read": outcome.bytes_read,
        "seconds": round(outcome.seconds, 3),
        "taken": [told(entry) for entry in outcome.taken],
        "notes": [
            {"server": note.server, "name": note.name, "what": note.what, "why": note.why}
            for note in outcome.notes
        ],
        "servers": {name: _held(manifest, name) for name in outcome.servers},
    }


def _held(manifest: Manifest, server: str) -> dict[str, Any]:
    """What is here of a server."""
    entries = manifest.of(server)
    cuts = [(entry.cut.zxid, entry.name) for entry in entries if entry.cut]
    return {
        "files": len(entries),
        "bytes": sum(entry.bytes for entry in entries),
        "logs": len(cuts),
        "newest": format_zxid(max(cuts)[0]) if cuts else None,
    }


def text(outcome: Outcome) -> str:
    """The outcome for a reader."""
    lines = []
    for name in outcome.servers:
        came = [entry for entry in outcome.taken if entry.server == name]
        held = _held(outcome.manifest, name)
        logs, snapshots = held["logs"], held["files"] - held["logs"]
        upto = f", log up to {held['newest']}" if held["newest"] else ""
        lines.append(
            f"{name}: {counted(len(came), 'file')} came or grew; here are {counted(logs, 'log')} and "
            f"{counted(snapshots, 'snapshot')}, {megabytes(held['bytes'])}{upto}"
        )
    lines += [str(note) for note in outcome.notes]
    if outcome.stopped:
        lines.append("stopped; the same command goes on where it stands")
    lines.append(f"{megabytes(outcome.bytes_read)} read in {outcome.seconds:.1f} s")
    return "\n".join(lines)
