"""Observe real hosts over ssh. Requests that another package defines are answered by that package.

Read-only hosts are queried by SFTP and plain commands of an ordinary account: no sudo, nothing installed. On
the others zkm-host answers what needs root: over an open channel once it is installed, streamed before that.
A look that fails returns Unknown with its cause; it never raises an exception.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any, TypeVar, cast

from zkmigrate import deadline
from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts import keyvalue
from zkmigrate.hosts.facts import load as load_facts
from zkmigrate.hosts.facts import volumes as volume_facts
from zkmigrate.hosts.parallel import GiveUp, together
from zkmigrate.hosts.transport import own_addresses
from zkmigrate.hosts.transport.channels import Channels
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.program import Program, failure_cause
from zkmigrate.hosts.transport.reader import SftpReader
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.fact import Absent, Cause, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Pulse, RandomReader, Request, Volume
from zkmigrate.runbook.site import exporter

T = TypeVar("T")

FILE_LIMIT = 1 << 20
"""The size in bytes of the largest file that ``file`` reads, and the most of one read by zkm-host."""

_METRICS_S = 5.0
_LATE_S = 4.0
"""Within a deadline, a host counts as silent this many seconds after most others answered."""
_ABSENT = "absent"
_CAUSES: dict[int, Cause] = {4: "missing-tool", 9: "denied"}
"""The causes by zkm-host's exit codes; all other codes mean ``failed``."""


class Observe:
    """The :class:`zkmigrate.runbook.model.look.Look` at the hosts of one inventory."""

    def __init__(
        self,
        inventory: Inventory,
        transport: Transport,
        program: Program,
        channels: Channels,
        programs: Mapping[str, Channels] | None = None,
    ) -> None:
        self._inventory = inventory
        self._programs = programs or {}
        self._transport = transport
        self._program = program
        self._channels = channels
        self._guard = threading.Lock()
        self._answers: dict[str, Any] = {}

    def close(self) -> None:
        """Close the connections that were opened to answer other packages' requests.

        Transport and channels stay open, because the caller owns them.
        """
        for answers in self._answers.values():
            answers.close()

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def ask(self, request: Request[T]) -> T:
        place, _, method = request.answered_by.rpartition(".")
        with self._guard:
            if place not in self._answers:
                # Imported only now, because clients are slow to import.
                self._answers[place] = resolve_name(place)(self._inventory, self)
        answer: Callable[[Request[T]], T] = getattr(self._answers[place], method)
        return answer(request)

    def zkm(self, host: str, *words: str) -> Reading[str]:
        if self._is_read_only(host):
            return Unknown(
                "denied", f"{host} is a {self._inventory.role(host)} host: zkm-host never runs there"
            )
        try:
            if self._program.installed(host):
                try:
                    answer = self._channels.ask(host, *words)
                    return _zkm_reading(host, words, answer.rc, answer.output)
                except TransportError as error:
                    if error.cause != "missing-tool":
                        raise
                    self._program.forget(host)  # it was finalized meanwhile: stream from now on
            done = self._program.streamed(host, *words)
        except (TransportError, UsageError) as error:
            return _failed(error)
        if done.rc and done.last_line.startswith("sudo:"):
            return Unknown(failure_cause(done), f"{host}: {done.last_line}")
        return _zkm_reading(
            host, words, done.rc, done.text.removesuffix("\n") if done.rc == 0 else done.last_line
        )

    def program(self, channel: str, host: str, *words: str) -> Reading[str]:
        if (channels := self._programs.get(channel)) is None:
            return Unknown("failed", f"{host}: the inventory names no {channel}")
        try:
            answer = channels.ask(host, *words)
        except (TransportError, UsageError) as error:
            return _failed(error)
        if answer.rc:
            why = answer.output.strip() or "silent"
            return Unknown("failed", f"{host}: the {channel}'s relay: {words[0]} exit {answer.rc}: {why}")
        return Seen(answer.output)

    def file(self, host: str, path: str) -> Reading[bytes]:
        if self._is_read_only(host):
            try:
                return Seen(self._transport.read(host, path, FILE_LIMIT))
            except FileNotFoundError:
                return Absent(path)
            except (OSError, TransportError) as error:
                return _failed(error, f"{host}: {path}")
        # One more byte distinguishes a file of exactly the limit from a larger one.
        content = self._read(host, path, 0, FILE_LIMIT)
        if isinstance(content, Unknown) and content.cause in ("denied", "missing-tool"):
            return self._file_as_account(host, path, content)
        if isinstance(content, Seen) and len(content.value) == FILE_LIMIT:
            more = self._read(host, path, FILE_LIMIT, 1)
            if not isinstance(more, Seen) or more.value:
                return Unknown("failed", f"{host}: {path} is larger than {FILE_LIMIT} bytes")
        return content

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        if self._is_read_only(host):
            try:
                connection = self._transport.connection(host)
                return Seen(connection.list_directory(path, self._transport.file_s))
            except FileNotFoundError:
                return Absent(path)
            except (OSError, TransportError) as error:
                return _failed(error, f"{host}: {path}")
        answer = self.zkm(host, "list", path)
        if not isinstance(answer, Seen):
            return answer
        return parse_listing(path, answer.value)

    def reader(self, host: str, path: str) -> RandomReader:
        if self._is_read_only(host):
            return SftpReader(self._transport, host, path)
        return ProgramReader(self, host, path)

    def sockets(self, host: str) -> Reading[str]:
        return self._command(host, "ss", "-Htn", "state", "established")

    def processes(self, host: str) -> Reading[str]:
        return self._command(host, "ps", "-e", "-ww", "-o", "args=")

    def date(self, host: str) -> Reading[str]:
        return self._command(host, "date", "+%s.%N")

    def load_counters(self, host: str) -> Reading[str]:
        return self._command(host, *load_facts.COMMAND)

    def metrics(self, url: str) -> Reading[str]:
        return exporter.metrics_text(url, deadline.remaining(_METRICS_S))

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        """Return the volume of each directory, by ``df``.

        If that fails for the ssh account, ``sudo -n df`` is tried: brokers' directories are often closed to
        others.
        """
        if odd := [path for path in paths if not volume_facts.PLAIN.fullmatch(path)]:
            return Unknown("failed", f"{host}: {odd[0]!r} is not a plain path, so df was not run")
        answer = self._command(host, *volume_facts.DF, *paths)
        if isinstance(answer, Unknown) and answer.cause == "failed":
            again = self._command(host, "sudo", "-n", *volume_facts.DF, *paths)
            if isinstance(again, Unknown):
                why = again.why.removeprefix(f"{host}: ")
                return Unknown("failed", f"{answer.why}; and with sudo: {why}")
            answer = again
        return volume_facts.parse(answer.value, paths) if isinstance(answer, Seen) else answer

    def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
        if not host:
            return own_addresses.resolved(name)
        try:
            done = self._transport.exec(host, ["getent", "ahosts", name])
        except TransportError as error:
            return _failed(error)
        return own_addresses.from_getent(host, name, done)

    def here(self) -> Reading[tuple[str, ...]]:
        inventory = self._inventory
        hosts = (host for names in inventory.hosts.values() for host in names)
        operator = inventory.operator if inventory.has("operator") else ()
        outgoing = own_addresses.sent_from(inventory.address(host) for host in hosts)
        return Seen(tuple(dict.fromkeys((*own_addresses.owned(operator), *outgoing))))

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        return {}

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        def given_up(host: str) -> T:
            # Within a deadline ``ask`` always returns a reading.
            return cast(T, Unknown("timeout", f"{host}: no answer yet; most other hosts have answered"))

        late = GiveUp(_LATE_S, given_up, time.monotonic) if deadline.bounded() else None
        return together({name: partial(ask, name) for name in hosts}, late)

    def _is_read_only(self, host: str) -> bool:
        return host in self._inventory.read_only

    def _read(self, host: str, path: str, offset: int, length: int) -> Reading[bytes]:
        """Read at most ``FILE_LIMIT`` bytes of a file through zkm-host."""
        answer = self.zkm(host, "read", path, str(offset), str(length))
        if not isinstance(answer, Seen):
            return answer
        if answer.value.strip() == _ABSENT:
            return Absent(path)
        try:
            return Seen(base64.b64decode("".join(answer.value.split()), validate=True))
        except (binascii.Error, ValueError) as error:
            return Unknown("garbled", f"{host}: the answer for {path} is not base64 ({error})")

    def _file_as_account(self, host: str, path: str, refused: Unknown) -> Reading[bytes]:
        """Read a file without sudo, which a finalized host may no longer grant.

        Return ``refused`` if that fails too.
        """
        try:
            return Seen(self._transport.read(host, path, FILE_LIMIT))
        except FileNotFoundError:
            return Absent(path)
        except (OSError, TransportError):
            return refused

    def _command(self, host: str, *argv: str) -> Reading[str]:
        try:
            done = self._transport.exec(host, argv)
        except TransportError as error:
            return _failed(error)
        if done.rc:
            return done.failed(host, argv[0])
        return Seen(done.text)


class ProgramReader:
    """Random access to a file of a host, through zkm-host. Its methods raise TransportError."""

    def __init__(self, look: Observe, host: str, path: str) -> None:
        self._look = look
        self._host = host
        self._path = path

    def size(self) -> int:
        listed = self._look.listing(self._host, self._path)
        if isinstance(listed, Seen) and len(listed.value) == 1:
            return listed.value[0].size
        raise self._failure(listed)

    def read(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = self._look._read(self._host, self._path, offset, min(length, FILE_LIMIT))
            if not isinstance(part, Seen):
                raise self._failure(part)
            parts.append(part.value)
            if len(part.value) < min(length, FILE_LIMIT):
                break
            offset, length = offset + len(part.value), length - len(part.value)
        return b"".join(parts)

    def _failure(self, reading: Reading[object]) -> TransportError:
        if isinstance(reading, Unknown):
            return TransportError(self._host, reading.cause, reading.why)
        return TransportError(self._host, "failed", f"{self._path} is not there")


def parse_listing(path: str, text: str) -> Reading[tuple[DirEntry, ...]]:
    """Parse the answer of zkm-host's ``list``.

    It has lines ``TYPE SIZE CHANGED_NS MODE OWNER GROUP NAME``, or is the one line ``absent``.
    """
    if text.strip() == _ABSENT:
        return Absent(path)
    entries: list[DirEntry] = []
    for line in keyvalue.lines(text):
        words = line.split(" ", 6)
        if len(words) != 7 or len(words[0]) != 1 or not (words[1] + words[2]).isdigit():
            return Unknown("garbled", f"list {path} answered {line[:120]!r}")
        kind, size, changed, mode, owner, group, name = words
        kind = kind if kind in "fd" else "o"
        entries.append(DirEntry(name, kind, int(size), int(changed), mode.zfill(4), owner, group))
    return Seen(tuple(sorted(entries, key=lambda entry: entry.name)))


def _zkm_reading(host: str, words: tuple[str, ...], rc: int, text: str) -> Reading[str]:
    if rc == 0:
        return Seen(text)
    return Unknown(
        _CAUSES.get(rc, "failed"), f"{host}: zkm-host {words[0]} exit {rc}: {text.strip() or 'silent'}"
    )


def _failed(error: Exception, where: str = "") -> Unknown:
    prefix = f"{where}: " if where else ""
    if isinstance(error, TransportError):
        return Unknown(error.cause, f"{prefix or error.host + ': '}{error.why}")
    cause: Cause = "denied" if isinstance(error, PermissionError) else "failed"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Unknown(cause, f"{prefix}{text}")
