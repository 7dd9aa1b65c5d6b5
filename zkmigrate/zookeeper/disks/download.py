"""A file on its way from a server into a local one: at the rate, with progress, and with a word for what is
wrong."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from zkmigrate.errors import HostError
from zkmigrate.zookeeper.data.reader import RandomReader
from zkmigrate.zookeeper.data.txnlog import END_MARK, FRAME

BLOCK = 256 << 10
"""Bytes that are asked for at once, and that the rate may let through after a rest."""

_TELL_S = 3.0


class Clock(Protocol):
    """``now`` in monotonic seconds, ``wall`` in seconds since the epoch; ``pause`` may return early."""

    def now(self) -> float: ...
    def wall(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


class Bucket:
    """A token bucket over files and hosts: in any stretch of T seconds no more than burst + rate * T bytes
    begin to be read.

    rate: bytes a second; 0: no limit. burst: bytes that may come at once after a rest. A read larger than
    that is let through when all of it has been earned.
    """

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock.now()

    def take(self, count: int) -> None:
        """Wait for the turn of a read of so many bytes. Where the pause returns early, the next one waits for
        the rest."""
        if self._rate <= 0:
            return
        now = self._clock.now()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - count
        self._at = now
        if self._tokens < 0:
            self._clock.pause(-self._tokens / self._rate)

    def give_back(self, count: int) -> None:
        """Bytes that were taken and not read, since the file ended."""
        self._tokens = min(float(self._burst), self._tokens + count)


class Stopped(Exception):
    """The operator wants to stop."""


class Gone(Exception):
    """The source has no such file any more."""


class Unread(Exception):
    """One file cannot be read; others of its host may be."""


class Progress:
    """What is still to come, and a line about it every few seconds. say: takes the line."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._say = say
        self._began = self._told = clock.now()
        self._planned: dict[str, int] = {}
        self._now = ""
        self._of_now = 0
        self.done = 0

    def plan(self, what: str, count: int) -> None:
        """At most so many bytes of this are still to come."""
        self._planned[what] = max(0, count)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """This is under way; nothing of it is to come afterwards."""
        self._now, self._of_now = what, 0
        try:
            yield
        finally:
            self._planned.pop(what, None)
            self._now = ""

    def read(self, count: int) -> None:
        """So many bytes came."""
        self.done += count
        self._of_now += count
        now = self._clock.now()
        if now - self._told < _TELL_S:
            return
        self._told = now
        rest = sum(self._planned.values()) - min(self._of_now, self._planned.get(self._now, 0))
        left = rest * (now - self._began) / max(1, self.done)
        self._say(
            f"{megabytes(self.done)} of at most {megabytes(self.done + rest)} read, at most {left:.0f} s "
            f"left; now {self._now}"
        )


def megabytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:.1f} MB"


class Source:
    """One file of a server, read at the rate. Raises Gone, Unread, Stopped; HostError for its host.

    A read that begins inside what the last one gave takes that from there: so records that lie over the end
    of a block do not come twice. One that begins where the last one did, or before it, asks anew.
    """

    def __init__(
        self, inner: RandomReader, bucket: Bucket, progress: Progress, stop: Callable[[], bool]
    ) -> None:
        self._inner = inner
        self._bucket = bucket
        self._progress = progress
        self._stop = stop
        self._at = 0
        self._data = b""

    def size(self) -> int:
        with _classed():
            return self._inner.size()

    def read(self, offset: int, length: int) -> bytes:
        into = offset - self._at
        data = self._data[into : into + length] if into > 0 else b""
        if len(data) < length:
            data += self._fetched(offset + len(data), length - len(data))
        self._at, self._data = offset, data
        return data

    def _fetched(self, offset: int, length: int) -> bytes:
        self._bucket.take(length)
        if self._stop():
            raise Stopped
        with _classed():
            data = self._inner.read(offset, length)
        self._bucket.give_back(length - len(data))
        self._progress.read(len(data))
        return data


@contextmanager
def _classed() -> Iterator[None]:
    """Tell what is wrong with a file from what is wrong with its host."""
    try:
        yield
    except FileNotFoundError as error:
        raise Gone("it is not there any more") from error
    except HostError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise Gone("it is not there any more") from error
        if getattr(error, "cause", "") in ("denied", "failed") and isinstance(error.__cause__, OSError):
            raise Unread(str(error)) from error
        raise
    except OSError as error:
        raise Unread(error.strerror or str(error)) from error


class Writing:
    """Records on their way into a file. Nothing stays in this process for long."""

    def __init__(self, path: Path, size: int) -> None:
        """Behind so many bytes of the file."""
        self._file = path.open("r+b", buffering=0)
        self._file.truncate(size)
        self._file.seek(size)
        self._pending: list[bytes] = []
        self._size = 0

    def record(self, payload: bytes) -> None:
        """A record that was checked: its bytes follow from its payload."""
        self.add(FRAME.pack(zlib.adler32(payload), len(payload)) + payload + bytes([END_MARK]))

    def add(self, data: bytes) -> None:
        self._pending.append(data)
        self._size += len(data)
        if self._size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system."""
        rest = memoryview(b"".join(self._pending))
        self._pending, self._size = [], 0
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()
