"""Channels that stay open to a program on each host: ``zkm-host serve``, or a gateway's relay.

The protocol uses lines (``zkm-host help``). A request is ``ID VERB ARGS…``. Its reply is lines ``= TEXT``,
and ``. ID RC`` as the last line. Any other reply closes the channel, because later replies could not be
matched to requests.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import paramiko

from zkmigrate import deadline
from zkmigrate.hosts.transport import command_log, quote
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Purpose, Transport
from zkmigrate.hosts.zkm_host import INSTALLED_PATH
from zkmigrate.inventory.inventory import GatewayProgram
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.fact import Cause

_END = re.compile(rb"\. (?P<id>[0-9]+) (?P<rc>[0-9]{1,3})\Z")
_REPLY_LIMIT = 8 << 20
_STDERR_LIMIT = 64 << 10
_QUEUE_S = 0.5
"""The seconds, within a deadline, to wait for the reply to an earlier request whose caller no longer waits.
"""
_PROBE_S = 10.0
_PROBE_PAUSE_S = 0.2


@dataclass(frozen=True)
class Speaker:
    """A program on a host that uses the protocol of the channels.

    name: its name in messages. words: returns the command that starts it, given a run and a fencing number.
    """

    name: str
    words: Callable[[str, int], Sequence[str]]


def zkm_host(program: str = INSTALLED_PATH) -> Speaker:
    """Return the Speaker for zkm-host, which is run as root. program: its path on the host."""
    return Speaker(
        "zkm-host",
        lambda run, fencing: ("sudo", "-n", program, "--run", run, "--as", str(fencing), "serve"),
    )


def relay(program: GatewayProgram) -> Speaker:
    """Return the Speaker for the relay to a host's gateway, which is run as the ssh account."""
    verb = program.verb("relay")
    return Speaker("the gateway's relay", lambda run, fencing: (*verb, "--run", run, "--as", str(fencing)))


class Channels:
    """One open channel per host, for one purpose.

    A host answers its requests one after the other; different hosts do not wait for each other. Within a
    deadline (:mod:`zkmigrate.deadline`) a host that did not answer in time counts as silent: every request
    fails at once until the host answers a probe in the background.
    """

    def __init__(
        self, transport: Transport, run: str, purpose: Purpose, speaker: Speaker | None = None
    ) -> None:
        self._transport = transport
        self._run = run
        self._purpose: Purpose = purpose
        self._speaker = speaker or zkm_host()
        self._lock = threading.Lock()
        self._channels: dict[str, _HostChannel] = {}

    def ask(self, host: str, *words: str, fencing: int | None = None, deadline_s: float = 30.0) -> Outcome:
        """Send one request and wait for its reply. A request is never sent twice.

        fencing: the number with which the host's process must have been started; None accepts any number.
        Raises TransportError if no complete reply arrives in time, with ``outcome_unknown`` if the request
        was sent. After such an error the next request opens a new channel.
        """
        quote.plain(words)
        with self._lock:
            channel = self._channels.setdefault(
                host, _HostChannel(host, self._transport, self._purpose, self._run, self._speaker)
            )
        command_log.sent(host, words)
        try:
            outcome = channel.ask(words, fencing, time.monotonic() + deadline.remaining(deadline_s))
        except TransportError as error:
            command_log.failed(host, error)
            raise
        command_log.answered(host, outcome.rc, outcome.output, words)
        return outcome

    def open(self, host: str, fencing: int) -> None:
        """Open the channel to a host before it is needed. Raises TransportError."""
        self.ask(host, "help", fencing=fencing)

    def forget(self, host: str) -> None:
        """Close the channel of one host. The next request opens a new one."""
        with self._lock:
            channel = self._channels.pop(host, None)
        if channel is not None:
            channel.end()

    def close(self) -> None:
        """Close every channel."""
        for host in list(self._channels):
            self.forget(host)


class _HostChannel:
    """The channel to one host, opened on demand, for one request at a time."""

    def __init__(self, host: str, transport: Transport, purpose: Purpose, run: str, speaker: Speaker) -> None:
        self._host = host
        self._transport = transport
        self._purpose: Purpose = purpose
        self._run = run
        self._speaker = speaker
        self._lock = threading.Lock()
        self._channel: paramiko.Channel | None = None
        self._fencing = 0
        self._buffer = bytearray()
        self._stderr = bytearray()
        self._next = 0
        self._silent = False
        self._stop = threading.Event()

    def ask(self, words: tuple[str, ...], fencing: int | None, end: float) -> Outcome:
        if not deadline.bounded():
            return self._request(words, fencing, end)
        if self._silent:
            raise TransportError(
                self._host, "timeout", "the host does not answer; it is probed in the background"
            )
        try:
            return self._request(words, fencing, end, _QUEUE_S)
        except TransportError as error:
            if error.cause == "timeout":
                self._silent = True
                threading.Thread(target=self._probe, name=f"probe-{self._host}", daemon=True).start()
            raise

    def _probe(self) -> None:
        while not self._stop.is_set():
            try:
                self._request(("help",), None, time.monotonic() + _PROBE_S)
            except TransportError:
                self._stop.wait(_PROBE_PAUSE_S)
            else:
                break
        self._silent = False

    def _request(
        self, words: tuple[str, ...], fencing: int | None, end: float, queue_s: float = math.inf
    ) -> Outcome:
        if not self._lock.acquire(timeout=max(0.0, min(queue_s, end - time.monotonic()))):
            raise TransportError(self._host, "timeout", "the previous request is not answered yet")
        try:
            channel = self._open(fencing, end)
            try:
                return self._exchange(channel, words, end)
            except BaseException:
                self.close()
                raise
        finally:
            self._lock.release()

    def end(self) -> None:
        self._stop.set()
        self.close()

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                channel.close()

    def _open(self, fencing: int | None, end: float) -> paramiko.Channel:
        """Return the channel. It is opened anew if it is missing, broken, or has another fencing number."""
        wanted = self._fencing if fencing is None else fencing
        channel = self._channel
        if channel is not None and wanted == self._fencing and not (channel.closed or channel.eof_received):
            return channel
        self.close()
        argv = self._speaker.words(self._run, wanted)
        channel = self._transport.connection(self._host, self._purpose).start(quote.command(argv), end)
        self._buffer.clear()
        self._stderr.clear()
        self._next = 0
        self._channel, self._fencing = channel, wanted
        return channel

    def _exchange(self, channel: paramiko.Channel, words: tuple[str, ...], end: float) -> Outcome:
        if time.monotonic() >= end:
            raise TransportError(
                self._host, "timeout", f"the deadline was over before {words[0]} could be sent"
            )
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
            raise self._end_error(channel, verb, end) from error

    def _line(self, channel: paramiko.Channel, verb: str, end: float) -> bytes:
        """Return the next complete line without its newline."""
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
                raise self._end_error(channel, verb, end)
            self._buffer += data
        line = bytes(self._buffer[:cut])
        del self._buffer[: cut + 1]
        return line

    def _end_error(self, channel: paramiko.Channel, verb: str, end: float) -> TransportError:
        """Return the error for a channel that the host closed without a reply."""
        channel.status_event.wait(max(0.0, min(1.0, end - time.monotonic())))
        self._drain_stderr(channel)
        text = self._stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:400]
        first, name = self._next == 1, self._speaker.name
        if text.startswith("sudo:") and first:
            missing = "not found" in text
            return TransportError(
                self._host, "missing-tool" if missing else "denied", f"{name} did not start: {text}"
            )
        if channel.exit_status == 127 and first:
            return TransportError(
                self._host, "missing-tool", f"{name} did not start: {text or 'no such program'}"
            )
        return self._broken(
            "failed", f"{name} exited during {verb} (exit code {channel.exit_status}): {text or 'no output'}"
        )

    def _drain_stderr(self, channel: paramiko.Channel) -> None:
        while channel.recv_stderr_ready() and len(self._stderr) < _STDERR_LIMIT:
            self._stderr += channel.recv_stderr(4096)

    def _broken(self, cause: Cause, why: str) -> TransportError:
        return TransportError(self._host, cause, why, outcome_unknown=True)
