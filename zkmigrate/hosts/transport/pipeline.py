"""Many listings and small reads over one SFTP channel, with many requests under way at once.

One request at a time costs a round trip each, which for the segments of a broker is hours. A job is a
generator: it asks for a `Listing` or a `Range`, is sent the answer, and catches the file's OSError. The
protocol is SFTP version 3, which every OpenSSH has."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import paramiko

from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.runbook.model.fact import Cause

T = TypeVar("T")

TOGETHER = 128
"""Jobs under way. sshd's window for requests has room for all of theirs, so sending never waits for replies;
and each may hold three files open, of the 1024 that an sftp-server may by default."""

_INIT, _VERSION, _OPEN, _CLOSE, _READ, _OPENDIR, _READDIR, _STAT = 1, 2, 3, 4, 5, 11, 12, 17
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS = 101, 102, 103, 104, 105
_EOF, _NO_SUCH_FILE, _DENIED = 1, 2, 3
_ERRNO = {_NO_SUCH_FILE: errno.ENOENT, _DENIED: errno.EACCES}
_HAS_SIZE, _HAS_OWNER, _HAS_MODE, _HAS_TIMES, _HAS_MORE = 1, 2, 4, 8, 1 << 31
_FOR_READING = 1
_LONGEST = 1 << 20
"""Bytes of a reply. A server sends at most 256 KB."""
_RECEIVED = 1 << 18


class Listing(NamedTuple):
    """Asks for the entries of a directory: a tuple of `Found`, by name."""

    path: str


class Range(NamedTuple):
    """Asks for `length` bytes of a file from `offset`; fewer only at its end."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class Found:
    """One entry of a directory; of a link what it leads to. modified: seconds since the epoch, over SFTP
    whole ones."""

    name: str
    size: int
    folder: bool
    modified: float | None


Job = Generator[Listing | Range, Any, T]
_Request = tuple[int, bytes]
_Serving = Generator[_Request, "_Reply", T]


@dataclass
class _Running(Generic[T]):
    """A job under way. handles: its open files and directories."""

    serving: _Serving[T]
    handles: dict[str, bytes]


class Pipeline:
    """One SFTP channel. Raises TransportError once the host fails; then it is of no more use."""

    def __init__(self, host: str, channel: paramiko.Channel) -> None:
        self._host, self._channel = host, channel
        self._came = bytearray()
        self._number = 0
        self._send(struct.pack(">IBI", 5, _INIT, 3))
        kind, _ = self._packet()
        if kind != _VERSION:
            raise self._broken("garbled", f"its SFTP server began with {kind}, not with a version")

    def run(self, jobs: Iterable[Job[T]], together: int = TOGETHER) -> Iterator[T]:
        """The results of the jobs, in the order in which they end. Raises what a job raises."""
        left = iter(jobs)
        waiting: dict[int, _Running[T]] = {}
        ready: list[tuple[_Running[T], _Reply | None]] = []
        while True:
            while len(waiting) + len(ready) < together and (job := next(left, None)) is not None:
                handles: dict[str, bytes] = {}
                ready.append((_Running(_serve(job, handles), handles), None))
            out: list[bytes] = []
            results: list[T] = []
            for running, reply in ready:
                try:
                    request = running.serving.send(reply)  # type: ignore[arg-type]
                except StopIteration as end:
                    results.append(end.value)
                    out += [self._numbered((_CLOSE, _text(handle)))[1] for handle in running.handles.values()]
                else:
                    number, packet = self._numbered(request)
                    waiting[number] = running
                    out.append(packet)
            self._send(b"".join(out))
            yield from results
            if not waiting and not results:
                return
            ready = self._answered(waiting) if waiting else []

    def _answered(self, waiting: dict[int, _Running[T]]) -> list[tuple[_Running[T], _Reply | None]]:
        """The replies that are here, at least one. Those to closed files are dropped."""
        found: list[tuple[_Running[T], _Reply | None]] = []
        while not found or self._has_packet():
            kind, body = self._packet()
            reply = _Reply(kind, body)
            running = waiting.pop(reply.integer(), None)
            if running is not None:
                found.append((running, reply))
        return found

    def _numbered(self, request: _Request) -> tuple[int, bytes]:
        self._number = (self._number + 1) % (1 << 32)
        kind, body = request
        return self._number, struct.pack(">IBI", 5 + len(body), kind, self._number) + body

    def _send(self, data: bytes) -> None:
        with _ChannelErrors(self._host):
            self._channel.sendall(data)

    def _has_packet(self) -> bool:
        return len(self._came) >= 4 and len(self._came) >= 4 + int.from_bytes(self._came[:4], "big")

    def _packet(self) -> tuple[int, bytes]:
        """The next packet: its kind, and what follows."""
        while not self._has_packet():
            if len(self._came) >= 4 and (size := int.from_bytes(self._came[:4], "big")) > _LONGEST:
                raise self._broken("garbled", f"its SFTP server announces a reply of {size} bytes")
            with _ChannelErrors(self._host):
                data = self._channel.recv(_RECEIVED)
            if not data:
                raise self._broken("unreachable", "its SFTP server closed the channel")
            self._came += data
        end = 4 + int.from_bytes(self._came[:4], "big")
        kind, body = self._came[4], bytes(self._came[5:end])
        del self._came[:end]
        return kind, body

    def _broken(self, cause: Cause, why: str) -> TransportError:
        return TransportError(self._host, cause, why)


class _ChannelErrors:
    """Errors of the channel as TransportError."""

    def __init__(self, host: str) -> None:
        self._host = host

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise TransportError(self._host, "timeout", "its SFTP server did not answer in time") from error
        if isinstance(error, OSError | EOFError | paramiko.SSHException):
            raise TransportError(self._host, "unreachable", f"the connection broke: {error}") from error


@dataclass
class _Reply:
    """A packet from the server, read from its beginning on."""

    kind: int
    body: bytes
    at: int = field(default=0)

    def integer(self, size: int = 4) -> int:
        self.at += size
        return int.from_bytes(self.body[self.at - size : self.at], "big")

    def text(self) -> bytes:
        size = self.integer()
        self.at += size
        return self.body[self.at - size : self.at]

    def attributes(self, name: str) -> tuple[Found, int]:
        """An entry of a directory, and its mode."""
        flags = self.integer()
        size = self.integer(8) if flags & _HAS_SIZE else 0
        if flags & _HAS_OWNER:
            self.integer(8)
        mode = self.integer() if flags & _HAS_MODE else 0
        modified = None
        if flags & _HAS_TIMES:
            self.integer()
            modified = float(self.integer())
        for _ in range(self.integer() if flags & _HAS_MORE else 0):
            self.text()
            self.text()
        return Found(name, size, stat.S_ISDIR(mode), modified), mode

    def expect(self, kind: int, path: str) -> bool:
        """Whether it is of this kind; False at the end of a file or directory. Raises OSError for any
        other."""
        if self.kind == kind:
            return True
        if self.kind != _STATUS:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO), path)
        code, why = self.integer(), self.text().decode("utf-8", "replace")
        if code == _EOF:
            return False
        number = _ERRNO.get(code, errno.EIO)
        raise OSError(number, os.strerror(number) if code in _ERRNO else why, path)


def _serve(job: Job[T], handles: dict[str, bytes]) -> _Serving[T]:
    """The requests of a job. handles: filled with its open files, by path."""
    try:
        ask = next(job)
        while True:
            try:
                asked = _list(ask, handles) if isinstance(ask, Listing) else _read(ask, handles)
                answer: object = yield from asked
            except OSError as error:
                ask = job.throw(error)
            else:
                ask = job.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _read(ask: Range, handles: dict[str, bytes]) -> _Serving[bytes]:
    handle = handles.get(ask.path)
    if handle is None:
        reply = yield _OPEN, _text(os.fsencode(ask.path)) + struct.pack(">II", _FOR_READING, 0)
        reply.expect(_HANDLE, ask.path)
        handle = handles[ask.path] = reply.text()
    data = b""
    while len(data) < ask.length:
        where = struct.pack(">QI", ask.offset + len(data), ask.length - len(data))
        reply = yield _READ, _text(handle) + where
        if not reply.expect(_DATA, ask.path):
            break
        data += reply.text()
    return data


def _list(ask: Listing, handles: dict[str, bytes]) -> _Serving[tuple[Found, ...]]:
    """As `stat` of a local directory: links are followed, those that lead nowhere left out."""
    path = ask.path
    reply = yield _OPENDIR, _text(os.fsencode(path))
    reply.expect(_HANDLE, path)
    handle = handles[path] = reply.text()
    found: list[Found] = []
    links: list[str] = []
    while (reply := (yield _READDIR, _text(handle))).expect(_NAME, path):
        for _ in range(reply.integer()):
            name = os.fsdecode(reply.text())
            reply.text()  # the line of ls -l
            one, mode = reply.attributes(name)
            if stat.S_ISLNK(mode):
                links.append(name)
            elif name not in (".", ".."):
                found.append(one)
    for name in links:
        reply = yield _STAT, _text(os.fsencode(f"{path.rstrip('/')}/{name}"))
        if reply.kind == _ATTRS:
            found.append(reply.attributes(name)[0])
    return tuple(sorted(found, key=lambda entry: entry.name))


def _text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
