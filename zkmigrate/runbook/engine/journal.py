"""The journal on disk: append, fsync, read back.

``runs/<run>/journal.jsonl``, mode 0600 in a 0700 directory, never reached through a symbolic link.
:meth:`Journal.append` with ``sync`` and :meth:`Journal.sync` return only when the lines are durable. After a
failed write or fsync the journal takes no more lines in this process, so that no effect follows an intent
that may not be on disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from zkmigrate.errors import JournalError, LostJournalError, UsageError
from zkmigrate.runbook.engine import chain
from zkmigrate.runbook.engine.files import write_all
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.model.entry import Entry, Kind

NAME = "journal.jsonl"
BEGUN = "begun"
"""Name of the file beside the journal that holds the number of its durable lines.

It reveals a lost, emptied or shortened journal.
"""

_RECOVERED = "journal.recovered.jsonl"


class Disk(Protocol):
    """The two calls that make a line durable; tests inject faults here."""

    def write(self, fd: int, data: bytes) -> int: ...
    def fsync(self, fd: int, /) -> None: ...


class RealDisk:
    """The operating system's own calls."""

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)


class Journal:
    """An open journal with the history folded from its lines. Several threads may append."""

    def __init__(
        self, fd: int, path: Path, parsed: chain.Parsed, wall: Callable[[], float], disk: Disk
    ) -> None:
        self._fd, self._path, self._wall, self._disk = fd, path, wall, disk
        self._guard = threading.RLock()
        self._length, self._last, self._seq = parsed.length, parsed.last, len(parsed.entries)
        self._failed = ""
        self.history = folded(parsed.entries)

    @classmethod
    def create(cls, run_dir: Path, wall: Callable[[], float], disk: Disk | None = None) -> Journal:
        """Create an empty journal in a new or empty run directory. Raises JournalError if there is one."""
        _own_directory(run_dir, create=True)
        path = run_dir / NAME
        try:
            fd = _new(path)
        except FileExistsError:
            raise JournalError(
                f"{path} exists: this run has begun; use resume, rollback or another --run-id"
            ) from None
        _sync_directory(run_dir)
        return cls(fd, path, chain.Parsed(), wall, disk or RealDisk())

    @classmethod
    def open(cls, run_dir: Path, wall: Callable[[], float], disk: Disk | None = None) -> Journal:
        """Open the journal of a run that has begun. Cut off a torn last line and note that.

        Raises JournalError if it is damaged (naming the line), missing, or not a private file of this user.
        """
        _own_directory(run_dir, create=False)
        fd = _open_private(run_dir / NAME, os.O_RDWR | os.O_APPEND)
        try:
            written = _written_lines(run_dir)
            parsed = _missed(chain.parse(_read_all(fd)), written).intact(run_dir / NAME)
            journal = cls(fd, run_dir / NAME, parsed, wall, disk or RealDisk())
            if parsed.unended:
                journal._write(b"\n")
            if parsed.torn:
                os.ftruncate(fd, parsed.length)
                journal.append("note", {"text": f"cut off {len(parsed.torn)} bytes of a torn last line"})
        except BaseException:
            os.close(fd)
            raise
        return journal

    @classmethod
    def extend(cls, run_dir: Path, before: bytes, content: bytes) -> None:
        """Append to the journal the lines that only the copies on hosts have. They are durable on return.

        before: the present content of the journal. content: the whole lines of ``before``, followed by the
        lines to append.
        """
        fd = _open_private(run_dir / NAME, os.O_RDWR | os.O_APPEND)
        try:
            kept = before.rfind(b"\n") + 1
            os.ftruncate(fd, kept)
            rest = content[kept:]
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)

    @classmethod
    def recover(
        cls,
        run_dir: Path,
        wall: Callable[[], float],
        disk: Disk | None = None,
        copies: Iterable[bytes] = (),
    ) -> Journal:
        """Continue after damage or loss, from the longest intact beginning among the journal and its copies.

        The old file keeps its name until the whole new one is on disk; then it is set aside. Legs are
        numbered from the clock's seconds, so that no operation id of the lost lines is used again. Afterwards
        the caller journals ``begin`` if no line was left, the state that the hosts report (``found``), and
        the direction that the operator chose.
        """
        _own_directory(run_dir, create=True)
        entries = kept_lines(run_dir, copies)
        path, new = run_dir / NAME, run_dir / _RECOVERED
        new.unlink(missing_ok=True)
        journal = cls(_new(new), path, chain.Parsed(), wall, disk or RealDisk())
        try:
            for entry in entries:
                journal._append(entry.kind, entry.body, entry.at)
            text = f"recovered {len(entries)} lines of a lost or damaged journal"
            journal.append("note", {"text": text, "leg": int(wall()), "lost": True})
            if path.exists():
                os.link(path, _free_name(run_dir))
            new.replace(path)
            _sync_directory(run_dir)
        except BaseException:
            journal.close()
            raise
        return journal

    def keep(self, name: str, text: str) -> Path:
        """Write a whole file beside the journal, durable on return. Raises JournalError if that fails."""
        path = self._path.with_name(name)
        try:
            write_all({path: text}, force=True)
            _sync_directory(path.parent)
        except (OSError, UsageError) as error:
            raise JournalError(
                f"cannot write {path}: {error}. The run sends nothing more without this file"
            ) from None
        return path

    def append(self, kind: Kind, body: Mapping[str, Any], *, sync: bool = True) -> Entry:
        """Add one line, durable on return if ``sync``. Raises JournalError if that fails."""
        with self._guard:
            entry = self._append(kind, body, self._wall())
            if sync:
                self.sync()
            return entry

    def sync(self) -> None:
        """Make every appended line durable."""
        with self._guard:
            self.refuse_after_failure()
            try:
                self._disk.fsync(self._fd)
            except OSError as error:
                self._fail(error)
            self._mark_length()

    def _mark_length(self) -> None:
        """Write the number of durable lines into the file that marks the run as begun, if there is one.

        That file itself need not be durable: an older version of it names fewer lines.
        """
        with contextlib.suppress(OSError):
            fd = os.open(self._path.with_name(BEGUN), os.O_WRONLY | os.O_NOFOLLOW)
            try:
                os.pwrite(fd, b"%-19d\n" % self._seq, 0)
            finally:
                os.close(fd)

    def refuse_after_failure(self) -> None:
        """Raise JournalError if a line could not be written before, because nothing more may be sent then."""
        if self._failed:
            raise JournalError(self._failed)

    def content(self) -> bytes:
        """Return all bytes so far, for the copies on hosts."""
        with self._guard:
            return _read_all(self._fd)

    def entries(self) -> tuple[Entry, ...]:
        """Return all lines so far."""
        return chain.parse(self.content()).entries

    def close(self) -> None:
        """Close the file; the journal takes no more lines."""
        with self._guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._failed = "the journal is closed"

    def _append(self, kind: Kind, body: Mapping[str, Any], at: float) -> Entry:
        self.refuse_after_failure()
        entry = Entry(self._seq + 1, at, kind, body, self._last)
        line = chain.render(entry)
        self._write(line + b"\n")
        self._seq, self._last = entry.seq, chain.sum_of(line)
        self.history.fold(entry)
        return entry

    def _write(self, data: bytes) -> None:
        rest = data
        try:
            while rest:
                rest = rest[self._disk.write(self._fd, rest) :]
        except OSError as error:
            self._fail(error)
        except BaseException:  # a second Ctrl-C in the middle of a line: nothing may follow it
            self._failed = f"{self._path}: the last line was not finished. Next: resume or rollback"
            raise
        self._length += len(data)

    def _fail(self, error: OSError) -> None:
        """Remove the half-written line if possible, and refuse all further lines."""
        self._failed = (
            f"cannot write {self._path}: {error.strerror}. No change is sent before the journal records it. "
            "Next: free disk space, then resume or rollback"
        )
        with contextlib.suppress(OSError):  # else the torn line is cut off when the journal is next read
            os.ftruncate(self._fd, self._length)
        raise JournalError(self._failed) from None


def read(run_dir: Path) -> History:
    """Return the history of a run. The file is only read; a torn last line stays in it.

    Raises JournalError as in :meth:`Journal.open`.
    """
    return folded(parsed(run_dir).intact(run_dir / NAME).entries)


def content(run_dir: Path) -> bytes:
    """Return the bytes of a run's journal, damaged or not. Raises JournalError as in ``parsed``."""
    _own_directory(run_dir, create=False)
    return _content(run_dir / NAME)


def parsed(run_dir: Path) -> chain.Parsed:
    """Parse a run's journal, damaged or not; the file is only read.

    Raises JournalError if it is missing, or not a private file of this user.
    """
    written = _written_lines(run_dir)
    return _missed(chain.parse(content(run_dir)), written)


def _missed(parsed: chain.Parsed, written: int) -> chain.Parsed:
    """Return the parsed journal, marked as damaged if durable lines are missing.

    A torn last line counts as a line: it is cut off. written: from :func:`_written_lines`, before the journal
    was read.
    """
    if parsed.damage or len(parsed.entries) + bool(parsed.torn and parsed.entries) >= written:
        return parsed
    if not parsed.entries:
        return replace(parsed, damage="is missing, though this run has begun")
    return replace(parsed, damage=f"is missing, although {written} lines were written")


def _written_lines(run_dir: Path) -> int:
    """Return how many lines of a run's journal are known to be durable, at least.

    Return 0 before the run has begun, and 1 if the file that marks it as begun contains no number. Call it
    before the journal is read, because another process may be writing both.
    """
    try:
        return max(1, int((run_dir / BEGUN).read_bytes()[:20]))
    except (OSError, ValueError):
        return int((run_dir / BEGUN).exists())


def kept_lines(run_dir: Path, copies: Iterable[bytes] = ()) -> tuple[Entry, ...]:
    """Return the longest intact beginning of a run's journal among its file and its copies.

    The files are only read. Raises JournalError if an earlier version wrote one of them.
    """
    _own_directory(run_dir, create=False)
    contents = list(copies)
    if (run_dir / NAME).exists():
        contents.append(_content(run_dir / NAME))
    found = [chain.parse(content) for content in contents]
    for one in found:
        one.refuse_earlier(run_dir.name)
    return max((one.entries for one in found), key=len, default=())


def folded(entries: Iterable[Entry]) -> History:
    """Return the history that follows from these lines."""
    history = History()
    for entry in entries:
        history.fold(entry)
    return history


def _own_directory(path: Path, *, create: bool) -> None:
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        status = os.lstat(path)
    except OSError as error:
        raise JournalError(f"no run directory {path}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise JournalError(f"{path} is not a directory (a link is refused); needed: a directory of this user")
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise JournalError(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o} and owner {status.st_uid}; "
            f"needed: mode 0700, owner {os.geteuid()}"
        )


def _new(path: Path) -> int:
    """Create a private file and return its descriptor. Raises FileExistsError if there is one already."""
    try:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise JournalError(f"cannot create {path}: {error.strerror}; nothing was changed") from None


def _open_private(path: Path, flags: int) -> int:
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # opening a pipe would block
    except FileNotFoundError as error:
        raise LostJournalError(
            f"cannot open the journal {path}: {error.strerror}", path.parent.name, str(path)
        ) from None
    except OSError as error:  # the journal is not lost: a link or the file system prevents it
        raise JournalError(
            f"cannot open {path}: {error.strerror}. Next: fix that on this machine, then run the same "
            "command again"
        ) from None
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise JournalError(f"{path} is not a private file (needed: mode 0600, owner {os.geteuid()})")
    return fd


def _content(path: Path) -> bytes:
    fd = _open_private(path, os.O_RDONLY)
    try:
        return _read_all(fd)
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _free_name(run_dir: Path) -> Path:
    number = 1
    while (name := run_dir / f"journal.damaged-{number}.jsonl").exists():
        number += 1
    return name
