"""Reads of a server's file at a limited rate, with progress, and writes to a local file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zkmigrate.errors import HostError
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.token_bucket import TokenBucket
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.txnlog import END_MARK, FRAME
from zkmigrate.zookeeper.disks.progress import Interval

BLOCK = 256 << 10
"""The size of one read in bytes, and the burst of the rate limit."""


class Stopped(Exception):
    """The reading was stopped because the operator wants to stop."""


class FileRemoved(Exception):
    """The source no longer has this file."""


class FileUnreadable(Exception):
    """This file cannot be read; other files of its host may be readable."""


class Progress:
    """The number of bytes still to read, reported in a line every few seconds. say: receives the lines."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._interval = Interval(clock=clock.now)
        self._say = say
        self._planned: dict[str, int] = {}
        self._current = ""
        self._of_current = 0
        self.done = 0

    def plan(self, file: str, count: int) -> None:
        """Record that at most `count` bytes of this file are still to read."""
        self._planned[file] = max(0, count)

    @contextmanager
    def reading(self, file: str) -> Iterator[None]:
        """Count the reads in the block as reads of this file, of which nothing is left to read afterwards."""
        self._current, self._of_current = file, 0
        try:
            yield
        finally:
            self._planned.pop(file, None)
            self._current = ""

    def read(self, count: int) -> None:
        """Count bytes that were read, and report progress if a line is due."""
        self.done += count
        self._of_current += count
        if not self._interval.due():
            return
        rest = sum(self._planned.values()) - min(self._of_current, self._planned.get(self._current, 0))
        left = rest * self._interval.elapsed_s / max(1, self.done)
        self._say(
            f"{megabytes(self.done)} of at most {megabytes(self.done + rest)} read, at most {left:.0f} s "
            f"left; now {self._current}"
        )


def megabytes(count: float) -> str:
    """Return a number of bytes as text in megabytes, such as ``12.5 MB``."""
    return f"{count / 1e6:.1f} MB"


class Source:
    """One file of a server, read at the limited rate.

    Raises FileRemoved, FileUnreadable or Stopped, and HostError if the whole host fails. A read that begins
    inside the bytes of the previous read reuses them, so a record across the end of a block is not read
    twice. A read that begins at or before the start of the previous read reads the file again.
    """

    def __init__(
        self, inner: RandomReader, bucket: TokenBucket, progress: Progress, stop: Callable[[], bool]
    ) -> None:
        self._inner = inner
        self._bucket = bucket
        self._progress = progress
        self._stop = stop
        self._at = 0
        self._data = b""

    def size(self) -> int:
        with _file_errors():
            return self._inner.size()

    def read(self, offset: int, length: int) -> bytes:
        into = offset - self._at
        data = self._data[into : into + length] if into > 0 else b""
        if len(data) < length:
            data += self._fetch(offset + len(data), length - len(data))
        self._at, self._data = offset, data
        return data

    def _fetch(self, offset: int, length: int) -> bytes:
        self._bucket.take(length)
        if self._stop():
            raise Stopped
        with _file_errors():
            data = self._inner.read(offset, length)
        self._bucket.give_back(length - len(data))
        self._progress.read(len(data))
        return data


@contextmanager
def _file_errors() -> Iterator[None]:
    """Convert errors of one file to FileRemoved or FileUnreadable. Errors of the host pass unchanged."""
    try:
        yield
    except (OSError, HostError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, FileNotFoundError):
            raise FileRemoved("the file no longer exists") from error
        if isinstance(error, OSError):
            raise FileUnreadable(error.strerror or str(error)) from error
        if getattr(error, "cause", "") in ("denied", "failed") and isinstance(cause, OSError):
            raise FileUnreadable(str(error)) from error
        raise


class PartFile:
    """A local file whose first `size` bytes are kept, and to which records or bytes are added in blocks."""

    def __init__(self, path: Path, size: int) -> None:
        self._file = path.open("r+b", buffering=0)
        self._file.truncate(size)
        self._file.seek(size)
        self._pending: list[bytes] = []
        self._size = 0

    def record(self, payload: bytes) -> None:
        """Add a checked record, rebuilt from its payload."""
        self.add(FRAME.pack(zlib.adler32(payload), len(payload)) + payload + bytes([END_MARK]))

    def add(self, data: bytes) -> None:
        self._pending.append(data)
        self._size += len(data)
        if self._size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write all added bytes to the operating system."""
        rest = memoryview(b"".join(self._pending))
        self._pending, self._size = [], 0
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()
