"""Copy single files of a server, and continue logs that are copied in part."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.zookeeper.data.errors import (
    CorruptError,
    CursorError,
    ForeignFileError,
    TruncatedHeaderError,
    ZkDataError,
)
from zkmigrate.zookeeper.data.logdir import LogFile
from zkmigrate.zookeeper.data.reader import FileReader, RandomReader
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, Cursor, EndKind, LogScan, Record
from zkmigrate.zookeeper.disks.collect_outcome import Note, Outcome, Server
from zkmigrate.zookeeper.disks.download import FileUnreadable, PartFile
from zkmigrate.zookeeper.disks.location import Place
from zkmigrate.zookeeper.disks.manifest import (
    ASIDE,
    PART,
    Cut,
    Entry,
    Manifest,
    State,
    copy_file,
    sha256_of,
    size_of,
)


class _CopyChanged(Exception):
    """The local copy differs from the manifest."""


@dataclass(frozen=True)
class Base:
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

    cut: the end of the last complete record, if any. wrote: whether a record was written to the part file.
    damage, torn: why the log does not continue there; empty for a normal end.
    """

    cut: Cut | None
    wrote: bool = False
    damage: str = ""
    torn: str = ""


@dataclass(frozen=True)
class Copy:
    """One file of a server, and its local copy."""

    outcome: Outcome
    clock: Clock
    server: Server
    name: str
    place: Place

    def __str__(self) -> str:
        return f"{self.server.name} {self.name}"

    @property
    def manifest(self) -> Manifest:
        return self.outcome.manifest

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
        """Whether the local copy exists and has the size in the manifest."""
        return self.entry is not None and size_of(self.path) == self.entry.bytes

    def has(self, size: int) -> bool:
        """Return whether all `size` bytes of the source's file are copied."""
        entry = self.entry
        return entry is not None and entry.state == "whole" and entry.source_size == size

    def change(self, entry: Entry, **values: Any) -> None:
        """Change fields of this file's manifest entry, and save the manifest."""
        self.manifest.files[self.key] = replace(entry, **values)
        self.manifest.save()

    def note(self, what: str, why: str) -> None:
        """Add a note about this file to the outcome."""
        self.outcome.notes.append(Note(self.server.name, self.name, what, why))

    def commit(self, source_size: int, state: State, cut: Cut | None) -> None:
        """Make the part file the final copy, and record the copy in the manifest.

        source_size: the size of the source's file in bytes. cut: where the copy of a log ends; None for a
        snapshot.
        """
        size = cut.offset if cut else size_of(self.part)
        with self.part.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
        taken_ms = round(self.clock.wall() * 1000)
        sha256 = sha256_of(self.part)
        entry = Entry(*self.key, str(self.place), size, sha256, state, source_size, taken_ms, cut)
        self.manifest.keep(entry)
        self.outcome.taken.append(entry)

    def set_aside(self) -> None:
        """Rename the copy of a log whose transactions the server took back."""
        del self.manifest.files[self.key]
        aside = self.name + ASIDE
        if self.path.exists():
            self.path.replace(self.path.with_name(aside))
        self.manifest.save()
        self.note("aside", f"the server removed these transactions from its log; the copy is now {aside}")


@dataclass(frozen=True)
class LogCopy:
    """The copy of one log. max_record: the largest accepted record in bytes."""

    copy: Copy
    max_record: int

    def _part_base(self) -> Base | None:
        """Return the part file of an earlier run up to its last complete record; None without a record."""
        last: Record | None = None
        try:
            for record in LogScan(FileReader(self.copy.part), self.copy.name, max_record=self.max_record):
                last = record
        except (FileNotFoundError, ZkDataError):
            pass
        return Base(self.copy.part, Cut(last.end, last.zxid, last.offset)) if last else None

    def update(self, source: RandomReader, file: LogFile, *, newest: bool) -> None:
        """Copy the records of a log that are not copied yet."""
        copy = self.copy
        entry, intact, part = copy.entry, copy.intact, self._part_base()
        bases = [Base(copy.path, entry.cut)] if entry and entry.cut and intact else []
        bases = sorted(bases + ([part] if part else []), key=lambda base: base.cut.offset, reverse=True)
        base = next((one for one in bases if one.is_in(source)), None)
        changed = "the local copy differs from the manifest; the log is copied again from the start"
        if entry is not None and base is None:
            removed = "the server no longer has the copied records; the log is copied again from the start"
            copy.note("again", removed if intact else changed)
        try:
            self._take(source, file, base, newest=newest)
        except _CopyChanged:
            copy.note("again", changed)
            self._take(source, file, None, newest=newest)
        except CursorError as error:
            raise FileUnreadable(
                f"{error}; the log changed while it was read. Next: collect again"
            ) from error

    def keep_part(self) -> bool:
        """Replace the copy by the part file of an interrupted run if the part file holds more.

        Returns True if the copy was replaced.
        """
        copy = self.copy
        entry, base = copy.entry, self._part_base()
        if base is None or not (entry is None or self._extends(base, entry)):
            return False
        copy.commit(base.cut.offset if entry is None else entry.source_size, "cut", base.cut)
        return True

    def _extends(self, base: Base, entry: Entry) -> bool:
        """Return whether a part file continues the copy of a log that is not complete."""
        cut = entry.cut
        if entry.state == "whole" or cut is None or base.cut.offset <= cut.offset:
            return False
        return self.copy.intact and Base(self.copy.path, cut).is_in(FileReader(base.path))

    def _take(self, source: RandomReader, file: LogFile, base: Base | None, *, newest: bool) -> None:
        """Copy the log's records after ``base`` into the part file, and make the part file the copy.

        base: None copies all records. If the log then turns out to be damaged, an existing copy is kept.
        """
        copy = self.copy
        entry = copy.entry
        read = self._read(source, file, base, newest=newest)
        if read.damage:
            kept = base is None and entry is not None
            what = "The earlier copy is kept" if kept else "The records before the damage are copied"
            copy.note("damaged", f"damaged: {read.damage}. {what}")
            if kept:  # the existing copy may be the better one
                copy.part.unlink(missing_ok=True)
                return
        elif read.torn:
            copy.note(
                "torn",
                f"ends in an incomplete write ({read.torn}), as after a crash; that write is not copied",
            )
        state: State = "damaged" if read.damage else "growing" if newest else "whole"
        if read.wrote or (base is not None and base.path == copy.part):
            copy.commit(file.size, state, read.cut)
            return
        copy.part.unlink(missing_ok=True)
        if entry is None:
            if newest and not read.damage:
                copy.note("left", "the log has no record yet")
        elif base is None:
            copy.set_aside()
        elif (entry.state, entry.source_size) != (state, file.size):
            copy.change(entry, state=state, source_size=file.size)

    def _read(self, source: RandomReader, file: LogFile, base: Base | None, *, newest: bool) -> _LogRead:
        """Copy the records after ``base`` into the part file. Records read before a failure are kept."""
        read = _LogRead(base.cut if base else None)
        target: PartFile | None = None
        try:
            cursor = Cursor(file.name, read.cut.offset, read.cut.zxid) if read.cut else None
            scan = LogScan(source, file.name, cursor, max_record=self.max_record)
            for record in scan:
                target = target or self._part_after(source, base)
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

    def _part_after(self, source: RandomReader, base: Base | None) -> PartFile:
        """Open the part file with the content of ``base``. Raises _CopyChanged if that is not as expected."""
        copy = self.copy
        if base is None:
            copy.part.write_bytes(b"")
            target = PartFile(copy.part, 0)
            target.add(source.read(0, FILE_HEADER_SIZE))
            return target
        if base.path != copy.part and copy_file(base.path, copy.part) != copy.manifest.files[copy.key].sha256:
            copy.part.unlink()
            raise _CopyChanged
        return PartFile(copy.part, base.cut.offset)
