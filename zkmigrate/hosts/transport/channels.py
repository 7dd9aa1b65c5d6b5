"""Held-open channels to ``zkm-host serve``: one root process per host, a line for each request and reply.

Protocol (``zkm-host help``): request ``ID VERB ARGS…``; reply lines ``= TEXT``, closed by ``. ID RC``. What
does not follow it to the letter ends the channel: after a garbled or missing reply nothing later can be told
apart.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time

import paramiko

from zkmigrate import deadline
from zkmigrate.hosts.transport import quote
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Lane, Transport
from zkmigrate.hosts.zkm_host import INSTALLED_PATH
from zkmigrate.model.change import Outcome
from zkmigrate.model.fact import Cause

_END = re.compile(rb"\. (?P<id>[0-9]+) (?P<rc>[0-9]{1,3})\Z")
_REPLY_LIMIT = 8 << 20
_STDERR_LIMIT = 64 << 10
_TURN_S = 0.5
"""In a hurry, so long for the request before, which somebody has stopped waiting for."""
_BESIDE_S = 10.0
_AGAIN_S = 0.2


class Channels:
    """One held-open channel per host for one user of it (the steps, or the watch beside them).

    Requests to one host are answered one after the other; different hosts do not wait for each other.

    Within a deadline (:mod:`zkmigrate.deadline`) a host that has once not answered in time is silent: it is
    asked beside whether it is there, and until it says so every request to it fails at once.
    """

    def __init__(self, transport: Transport, run: str, lane: Lane, program: str = INSTALLED_PATH) -> None:
        self._transport = transport
        self._run = run
        self._lane: Lane = lane
        self._program = program
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def ask(self, host: str, *words: str, fencing: int | None = None, deadline_s: float = 30.0) -> Outcome:
        """Send one request and wait for its reply.

        fencing: the number the host's process must have been started with; None takes the open channel as it
        is. TransportError when there is no whole reply in time, with ``outcome_unknown`` once the request was
        sent; the channel is then closed, and the next request opens a new one. A request is never sent twice.
        """
        quote.plain(words)
        with self._lock:
            held = self._held.setdefault(
                host, _Held(host, self._transport, self._lane, self._run, self._program)
            )
        return held.ask(words, fencing, time.monotonic() + deadline.remaining(deadline_s))

    def open(self, host: str, fencing: int) -> None:
        """Make sure that the channel is open before it is needed. Raises TransportError."""
        self.ask(host, "help", fencing=fencing)

    def forget(self, host: str) -> None:
        """Close the channel of one host."""
        with self._lock:
            held = self._held.pop(host, None)
        if held is not None:
            held.end()

    def close(self) -> None:
        """Close every channel."""
        for host in list(self._held):
            self.forget(host)


class _Held:
    """The channel of one host: opened on demand, one request at a time."""

    def __init__(self, host: str, transport: Transport, lane: Lane, run: str, program: str) -> None:
        self._host = host
        self._transport = transport
        self._lane: Lane = lane
        self._run = run
        self._program = program
        self._turn = threading.Lock()
        self._channel: paramiko.Channel | None = None
        self._fencing = 0
        self._buffer = bytearray()
        self._stderr = bytearray()
        self._next = 0
        self._silent = False
        self._over = threading.Event()

    def ask(self, words: tuple[str, ...], fencing: int | None, end: float) -> Outcome:
        if not deadline.bounded():
            return self._asked(words, fencing, end)
        if self._silent:
            raise TransportError(self._host, "timeout", "it has not answered for a while; it is asked beside")
        try:
            return self._asked(words, fencing, end, _TURN_S)
        except TransportError as error:
            if error.cause == "timeout":
                self._silent = True
                threading.Thread(target=self._until_heard, name=f"heard-{self._host}", daemon=True).start()
            raise

    def _until_heard(self) -> None:
        while not self._over.is_set():
            try:
                self._asked(("help",), None, time.monotonic() + _BESIDE_S)
            except TransportError:
                self._over.wait(_AGAIN_S)
            else:
                break
        self._silent = False

    def _asked(
        self, words: tuple[str, ...], fencing: int | None, end: float, turn_s: float = math.inf
    ) -> Outcome:
        if not self._turn.acquire(timeout=max(0.0, min(turn_s, end - time.monotonic()))):
            raise TransportError(
                self._host, "timeout", "the request before this one has not been answered yet"
            )
        try:
            channel = self._opened(fencing, end)
            try:
                return self._exchange(channel, words, end)
            except BaseException:
                self.close()
                raise
        finally:
            self._turn.release()

    def end(self) -> None:
        self._over.set()
        self.close()

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                channel.close()

    def _opened(self, fencing: int | None, end: float) -> paramiko.Channel:
        """The open channel; a new one when there is none, it broke, or it carries another fencing number."""
        wanted = self._fencing if fencing is None else fencing
        channel = self._channel
        if channel is not None and wanted == self._fencing and not (channel.closed or channel.eof_received):
            return channel
        self.close()
        argv = ["sudo", "-n", self._program, "--run", self._run, "--as", str(wanted), "serve"]
        opened = self._transport.connection(self._host, self._lane).start(quote.command(argv), end)
        self._buffer.clear()
        self._stderr.clear()
        self._next = 0
        self._channel, self._fencing = opened, wanted
        return opened

    def _exchange(self, channel: paramiko.Channel, words: tuple[str, ...], end: float) -> Outcome:
        if time.monotonic() >= end:
            raise TransportError(self._host, "timeout", f"no time was left to send {words[0]}")
        self._next += 1
        number = str(self._next)
        self._send(channel, " ".join((number, *words)).encode("ascii") + b"\n", words[0], end)
        lines: list[str] = []
        size = 0
        while True:
            line = self._line(channel, words[0], end)
            size += len(line)
            if size > _REPLY_LIMIT:
                raise self._broken("garbled", f"{words[0]} answered more than {_REPLY_LIMIT} bytes")
            if line == b"=" or line.startswith(b"= "):
                lines.append(line[2:].decode("utf-8", "replace"))
                continue
            done = _END.match(line)
            if done is None or done["id"].decode() != number or int(done["rc"]) > 255:
                raise self._broken(
                    "garbled",
                    f"{words[0]} was answered with {line[:120]!r} instead of `= …` or `. {number} RC`",
                )
            return Outcome(int(done["rc"]), "\n".join(lines))

    def _send(self, channel: paramiko.Channel, data: bytes, verb: str, end: float) -> None:
        try:
            channel.settimeout(max(0.001, end - time.monotonic()))
            channel.sendall(data)
        except TimeoutError as error:
            raise self._broken("timeout", f"{verb} could not be sent in time") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise self._ended(channel, verb, end) from error

    def _line(self, channel: paramiko.Channel, verb: str, end: float) -> bytes:
        """The next whole line without its newline."""
        searched = 0
        while (cut := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _REPLY_LIMIT:
                raise self._broken("garbled", f"{verb} answered a line of more than {_REPLY_LIMIT} bytes")
            left = end - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                channel.settimeout(left)
                data = channel.recv(65536)
            except TimeoutError as error:
                raise self._broken("timeout", f"{verb} was not answered in time") from error
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise self._broken("failed", f"the connection broke during {verb}: {error}") from error
            if not data:
                raise self._ended(channel, verb, end)
            self._buffer += data
        line = bytes(self._buffer[:cut])
        del self._buffer[: cut + 1]
        return line

    def _ended(self, channel: paramiko.Channel, verb: str, end: float) -> TransportError:
        """What it means that the far end closed the channel without a reply."""
        channel.status_event.wait(max(0.0, min(1.0, end - time.monotonic())))
        self._drain_stderr(channel)
        said = self._stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:400]
        first = self._next == 1
        if said.startswith("sudo:") and first:
            missing = "not found" in said
            return TransportError(
                self._host, "missing-tool" if missing else "denied", f"zkm-host did not start: {said}"
            )
        if channel.exit_status == 127 and first:
            return TransportError(self._host, "missing-tool", f"zkm-host did not start: {said or 'no sudo'}")
        return self._broken(
            "failed", f"zkm-host ended during {verb} (exit {channel.exit_status}): {said or 'silent'}"
        )

    def _drain_stderr(self, channel: paramiko.Channel) -> None:
        while channel.recv_stderr_ready() and len(self._stderr) < _STDERR_LIMIT:
            self._stderr += channel.recv_stderr(4096)

    def _broken(self, cause: Cause, why: str) -> TransportError:
        return TransportError(self._host, cause, why, outcome_unknown=True)
