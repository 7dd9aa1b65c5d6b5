"""One open ssh connection to one host: commands with deadlines, files over SFTP.

Every wait ends: closing the channel ends paramiko calls that would otherwise wait forever.
"""

from __future__ import annotations

import select
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import paramiko

from zkmigrate.hosts.transport import quote
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.runbook.model.fact import Cause, Unknown
from zkmigrate.runbook.model.look import DirEntry

_CHUNK = 32768
_SFTP_REQUEST = 255 << 10
"""The size in bytes of one SFTP request; each request costs a round trip.

OpenSSH answers this much (limits@openssh.com). Older servers answer 64 KiB, and paramiko requests the rest
again. paramiko's default is 32 KiB.
"""
_PROHIBITED = 1
"""The ssh error code SSH_OPEN_ADMINISTRATIVELY_PROHIBITED (RFC 4254, 5.1)."""
_WRITE_POLL_S = 0.02
"""The seconds between two checks whether a full send window has room again."""


@dataclass(frozen=True)
class Output:
    """The exit code and both complete streams of a command."""

    rc: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """The command's standard output, decoded."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def last_line(self) -> str:
        """The last line of stderr, or of stdout if stderr is empty, to show when a command fails."""
        for stream in (self.stderr.decode("utf-8", "replace"), self.text):
            if stream.strip():
                return stream.strip().rsplit("\n", 1)[-1][:400]
        return "no output"

    def failed(self, host: str, program: str) -> Unknown:
        """Return the Unknown reading of a program that failed on a host."""
        return Unknown("missing-tool" if self.rc == 127 else "failed", f"{host}: {program}: {self.last_line}")


class Connection:
    """A connected, authenticated ssh client that runs at most ``sessions`` commands at a time."""

    def __init__(self, host: str, client: paramiko.SSHClient, sessions: int) -> None:
        transport = client.get_transport()
        if transport is None:
            raise TransportError(host, "failed", "the connection was closed as soon as it was open")
        self.host = host
        self._client = client
        self._transport = transport
        self._slots = threading.BoundedSemaphore(sessions)
        self._sftp: paramiko.SFTPClient | None = None
        self._sftp_lock = threading.RLock()

    @property
    def alive(self) -> bool:
        """Whether the connection works, as far as this process knows."""
        return self._transport.is_active()

    def close(self) -> None:
        """Close the connection and everything on it."""
        self._client.close()

    def run(self, argv: Sequence[str], stdin: bytes, deadline_s: float, limit: int) -> Output:
        """Run a command until it ends and return its output.

        argv: the program and its arguments. limit: the largest output in bytes. Raises TransportError, with
        ``outcome_unknown`` if the command was sent.
        """
        line = quote.command(argv)
        end = time.monotonic() + deadline_s
        with self._slot(end):
            channel = self.start(line, end)
            try:
                return _Collector(self.host, argv[0], channel, end, limit).collect(stdin)
            finally:
                channel.close()

    def start(self, line: str, end: float) -> paramiko.Channel:
        """Start the command line in a new session and return the session's channel.

        end: the time limit of the start, on the monotonic clock. Raises TransportError.
        """
        channel = self._open_session(end)
        try:
            with self._ended_at(channel, end):
                channel.exec_command(line)
        except (paramiko.SSHException, OSError, EOFError) as error:
            channel.close()
            raise TransportError(
                self.host,
                _cause(error, end),
                f"the server did not confirm that the command started: {_text(error)}",
                outcome_unknown=True,
            ) from error
        return channel

    def tunnel(self, host: str, address: str, port: int, deadline_s: float) -> paramiko.Channel:
        """Open a TCP connection through this bastion to ``address:port`` of ``host``.

        Raises TransportError: for ``host`` if it cannot be reached, for the bastion if it does not forward.
        """
        try:
            return self._transport.open_channel(
                "direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=deadline_s
            )
        except paramiko.ChannelException as error:
            if error.code == _PROHIBITED:
                why = (
                    f"its sshd refuses to forward to {address}:{port}. Check AllowTcpForwarding and "
                    "PermitOpen"
                )
                raise TransportError(self.host, "denied", why) from error
            why = f"{self.host} cannot connect to {address}:{port}: {error.text}"
            raise TransportError(host, "unreachable", why) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            why = f"{self.host} could not connect to {address}:{port}: {_text(error)}"
            raise TransportError(host, "unreachable", why) from error

    # -- files ---------------------------------------------------------------------------------------------

    def read_file(self, path: str, limit: int, deadline_s: float) -> bytes:
        """Return the content of a file of at most ``limit`` bytes.

        Raises the host's own OSError, such as FileNotFoundError, and OSError for a larger file.
        """
        with self._files(deadline_s) as sftp, sftp.open(path, "rb", bufsize=0) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise OSError(f"{path} is larger than {limit} bytes")
        return data

    def write_file(self, path: str, content: bytes, mode: int, deadline_s: float) -> None:
        """Write a new file. It fails if the file exists, so that no other account can have prepared it."""
        with self._files(deadline_s) as sftp, sftp.open(path, "wx", bufsize=0) as file:
            file.chmod(mode)
            file.write(content)

    def list_directory(self, path: str, deadline_s: float) -> tuple[DirEntry, ...]:
        """Return the entries of a directory, sorted by name. SFTP version 3 lacks ``changed_ns``."""
        with self._files(deadline_s) as sftp:
            return tuple(sorted((_entry(a) for a in sftp.listdir_attr(path)), key=lambda entry: entry.name))

    def open_file(self, path: str, deadline_s: float) -> paramiko.SFTPFile:
        """Open a file for ``size_of`` and ``read_at``. It is closed when no reference to it is left."""
        with self._files(deadline_s) as sftp:
            file = sftp.open(path, "rb", bufsize=0)
        file.MAX_REQUEST_SIZE = _SFTP_REQUEST
        return file

    def size_of(self, file: paramiko.SFTPFile, deadline_s: float) -> int:
        """Return the current size in bytes of a file that was opened on this connection."""
        with self._files(deadline_s):
            return file.stat().st_size or 0

    def read_at(self, file: paramiko.SFTPFile, offset: int, length: int, deadline_s: float) -> bytes:
        """Return ``length`` bytes from ``offset`` of a file that was opened on this connection.

        Fewer bytes are returned at the end of the file.
        """
        with self._files(deadline_s):
            file.seek(offset)  # plain seek and read: paramiko's readv was seen to hang
            return file.read(length)

    def forget_files(self) -> None:
        """Close the SFTP session after it failed to answer in time."""
        with self._sftp_lock:
            if self._sftp is not None:
                self._sftp.close()
                self._sftp = None

    @contextmanager
    def _files(self, deadline_s: float) -> Iterator[paramiko.SFTPClient]:
        """Yield the SFTP session to one caller at a time. A missing answer closes the session.

        paramiko drops the answer for one thread when another thread reads it, so two threads must not wait at
        once.
        """
        if not self._sftp_lock.acquire(timeout=deadline_s):
            raise TransportError(
                self.host, "timeout", "too many file operations at once; none ended within the time limit"
            )
        end = time.monotonic() + deadline_s
        try:
            yield self._sftp_session(deadline_s, end)
        except (paramiko.SSHException, EOFError, TimeoutError) as error:
            self.forget_files()
            raise TransportError(self.host, _cause(error, end), f"SFTP failed: {_text(error)}") from error
        except OSError as error:
            if not self.alive or "Socket is closed" in str(error):
                self.forget_files()
                raise TransportError(self.host, "unreachable", "the connection broke") from error
            raise
        finally:
            self._sftp_lock.release()

    def _sftp_session(self, deadline_s: float, end: float) -> paramiko.SFTPClient:
        if self._sftp is None:
            opened = self._open_session(end)
            with self._ended_at(opened, end):
                opened.invoke_subsystem("sftp")
            opened.settimeout(deadline_s)
            self._sftp = paramiko.SFTPClient(opened)
        channel = self._sftp.get_channel()
        if channel is not None:
            channel.settimeout(deadline_s)
        return self._sftp

    # -- sessions ------------------------------------------------------------------------------------------

    @contextmanager
    def _slot(self, end: float) -> Iterator[None]:
        if not self._slots.acquire(timeout=max(0.0, end - time.monotonic())):
            raise TransportError(
                self.host, "timeout", "too many commands at once; none ended within the time limit"
            )
        try:
            yield
        finally:
            self._slots.release()

    def _open_session(self, end: float) -> paramiko.Channel:
        left = end - time.monotonic()
        if left <= 0:
            raise TransportError(self.host, "timeout", "the deadline was over before the command could start")
        try:
            return self._transport.open_session(timeout=left)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise TransportError(self.host, _cause(error, end), f"no session: {_text(error)}") from error

    @contextmanager
    def _ended_at(self, channel: paramiko.Channel, end: float) -> Iterator[None]:
        """Close the channel at time ``end`` if the block still runs.

        Only this can end a paramiko request that would wait forever.
        """
        timer = threading.Timer(max(0.0, end - time.monotonic()), channel.close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _Collector:
    """Transfers a command's input and output until the command's end, its deadline or the size limit."""

    def __init__(self, host: str, program: str, channel: paramiko.Channel, end: float, limit: int) -> None:
        self._host = host
        self._program = program
        self._channel = channel
        self._end = end
        self._space_left = limit
        self._limit = limit
        self._out: list[bytes] = []
        self._err: list[bytes] = []

    def collect(self, stdin: bytes) -> Output:
        channel, pending = self._channel, memoryview(stdin)
        channel.settimeout(max(0.001, self._end - time.monotonic()))
        ready = select.poll()
        ready.register(channel.fileno(), select.POLLIN)
        open_input = True
        while True:
            if open_input:
                pending, open_input = self._feed(pending)
            ended = channel.eof_received or channel.closed
            self._drain()
            if ended:
                break
            left = self._end - time.monotonic()
            if left <= 0:
                raise self._failure("timeout", "did not end within the time limit; it may still be running")
            ready.poll(1000 * min(left, _WRITE_POLL_S if open_input else left))
        channel.status_event.wait(max(0.0, self._end - time.monotonic()))
        if channel.exit_status < 0:
            raise self._failure("failed", "ended without an exit code (killed, or the connection broke)")
        return Output(channel.exit_status, b"".join(self._out), b"".join(self._err))

    def _feed(self, pending: memoryview) -> tuple[memoryview, bool]:
        """Send as much input as fits; return the rest, and whether the input is still open."""
        channel = self._channel
        try:
            while pending and channel.send_ready():
                pending = pending[channel.send(bytes(pending[:_CHUNK])) :]
            if not pending:
                channel.shutdown_write()
        except (OSError, EOFError, paramiko.SSHException):
            return memoryview(b""), False  # the program stopped reading; its exit code says why
        return pending, bool(pending)

    def _drain(self) -> None:
        channel = self._channel
        while channel.recv_ready():
            self._keep(self._out, channel.recv(_CHUNK))
        while channel.recv_stderr_ready():
            self._keep(self._err, channel.recv_stderr(_CHUNK))

    def _keep(self, kept: list[bytes], data: bytes) -> None:
        self._space_left -= len(data)
        if self._space_left < 0:
            raise self._failure("failed", f"printed more than {self._limit} bytes")
        kept.append(data)

    def _failure(self, cause: Cause, why: str) -> TransportError:
        return TransportError(self._host, cause, f"{self._program} {why}", outcome_unknown=True)


def _entry(attributes: paramiko.SFTPAttributes) -> DirEntry:
    mode = attributes.st_mode or 0
    kind = "d" if stat.S_ISDIR(mode) else "f" if stat.S_ISREG(mode) else "o"
    owner, group = _names(attributes)
    return DirEntry(
        attributes.filename, kind, attributes.st_size or 0, None, f"{stat.S_IMODE(mode):04o}", owner, group
    )


def _names(attributes: paramiko.SFTPAttributes) -> tuple[str, str]:
    """Return the owner and the group of a file.

    Both are names if the answer contains an ``ls -l`` text with them, otherwise numbers.
    """
    words = str(getattr(attributes, "longname", "")).split(maxsplit=8)
    if len(words) >= 8:
        return words[2], words[3]
    return str(attributes.st_uid), str(attributes.st_gid)


def _cause(error: BaseException, end: float) -> Cause:
    """Return the cause of a failed wait, which may be a timeout that paramiko reports as another error.

    end: the time at which the wait had to end, on the monotonic clock.
    """
    late = isinstance(error, TimeoutError) or time.monotonic() >= end
    return "timeout" if late else "failed"


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
