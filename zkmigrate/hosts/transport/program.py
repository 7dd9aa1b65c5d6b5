"""Installation of zkm-host on a host, and its use on hosts where it is not installed.

The installation needs full sudo rights once, or an administrator who installs it. Afterwards the sudoers file
allows the account to run the program.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from zkmigrate.hosts.transport.connection import Output
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.hosts.zkm_host import INSTALLED_PATH, SUDOERS_PATH
from zkmigrate.runbook.model.fact import Cause

_SIZE_LIMIT = 1 << 20
_AS_ROOT = ("sudo", "-n", "install", "-o", "root", "-g", "root")


@dataclass(frozen=True)
class ProgramPaths:
    """The paths of the program and its sudoers file on a host."""

    program: str = INSTALLED_PATH
    sudoers: str = SUDOERS_PATH


class Program:
    """The zkm-host program of this version of zkmigrate, on every host of a run.

    content: its bytes. sudoers: returns the sudoers text for an account.
    """

    def __init__(
        self,
        transport: Transport,
        run: str,
        content: bytes,
        sudoers: Callable[[str], str],
        paths: ProgramPaths = ProgramPaths(),
    ) -> None:
        self._transport = transport
        self._run_id = run
        self._content = content
        self._digest = hashlib.sha256(content).hexdigest()
        self._sudoers = sudoers
        self.paths = paths
        self._lock = threading.Lock()
        self._installed: set[str] = set()

    def installed(self, host: str) -> bool:
        """Return whether exactly this version of the program is installed. Raises TransportError."""
        with self._lock:
            if host in self._installed:
                return True
        found = self._found(host)
        if found is None or hashlib.sha256(found).hexdigest() != self._digest:
            return False
        with self._lock:
            self._installed.add(host)
        return True

    def _found(self, host: str) -> bytes | None:
        """Return the content of the installed program, or None if no program is installed on the host."""
        try:
            return self._transport.read(host, self.paths.program, _SIZE_LIMIT)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransportError(host, "denied", f"cannot read {self.paths.program}: {error}") from error

    def forget(self, host: str) -> None:
        """Check the installation again at the next call, because another process may have removed it."""
        with self._lock:
            self._installed.discard(host)

    def streamed(self, host: str, *words: str, deadline_s: float = 30.0) -> Output:
        """Run a reading verb without installation: the program is sent as the command's input."""
        argv = ["sudo", "-n", "sh", "-s", "--", "--run", self._run_id, *words]
        return self._transport.exec(host, argv, self._content, deadline_s)

    def install(self, host: str, path: str, policy: str) -> str:
        """Install policy, program and sudoers file, each atomically, and return a text about it.

        path, policy: path and content of the run's policy. It comes first, so the program is never there
        without it. The installation can be repeated without harm. visudo checks the sudoers file first.
        Raises TransportError.
        """
        folder = self._make_folder(host)
        try:
            connection = self._transport.connection(host)
            allowed = self._sudoers(self._transport.user(host)).encode("utf-8")
            files = (("program", self._content), ("sudoers", allowed), ("policy", policy.encode("utf-8")))
            for name, content in files:
                connection.write_file(f"{folder}/{name}", content, 0o600, self._transport.file_s)
            self._run(host, "sudo", "-n", "visudo", "-cqf", f"{folder}/sudoers")
            folders = [path.rsplit("/", parts)[0] for parts in (2, 1)]
            self._run(host, *_AS_ROOT, "-d", "-m", "0700", "--", *folders)
            self._move_into_place(host, f"{folder}/policy", "0600", path)
            self._move_into_place(host, f"{folder}/program", "0755", self.paths.program)
            self._move_into_place(host, f"{folder}/sudoers", "0440", self.paths.sudoers)
        except OSError as error:
            raise TransportError(host, "failed", f"cannot write to {folder}: {error}") from error
        finally:
            with suppress(TransportError):
                self._transport.exec(host, ["rm", "-rf", "--", folder])
        with self._lock:
            self._installed.discard(host)
        if not self.installed(host):
            raise TransportError(
                host,
                "failed",
                f"{self.paths.program} differs from what was written; another program changes it",
            )
        return f"installed {self.paths.program}, {self.paths.sudoers} and {path}"

    def uninstall(self, host: str, operation: str, fencing: int, deadline_s: float = 60.0) -> Output:
        """Run the program's verb ``uninstall``, unless the program is not installed any more.

        Raises TransportError if another version is installed, because that version may not know what to
        remove.
        """
        if not self.installed(host):
            if self._found(host) is None:
                return Output(0, b"zkm-host is not installed\n", b"")
            raise TransportError(
                host, "failed",
                f"{self.paths.program} belongs to another version. Remove it with the version that installed "
                f"it, or by hand: rm {self.paths.program} {self.paths.sudoers}",
            )  # fmt: skip
        words = (self.paths.program, "--run", self._run_id, "--as", str(fencing), "uninstall", operation)
        done = self._transport.exec(host, ("sudo", "-n", *words), deadline_s=deadline_s)
        with self._lock:
            self._installed.discard(host)
        return done

    def _make_folder(self, host: str) -> str:
        """Create a new private folder of the account for program and sudoers file, and return its path."""
        path = self._run(host, "mktemp", "-d", f"/tmp/zkm-{secrets.token_hex(4)}-XXXXXXXX").text.strip()
        if not re.fullmatch(r"/tmp/zkm-[0-9a-f]{8}-[A-Za-z0-9]{8}", path):
            raise TransportError(
                host,
                "garbled",
                f"mktemp printed {path[:80]!r}. Needed: a login shell that prints nothing by itself",
            )
        return path

    def _move_into_place(self, host: str, source: str, mode: str, target: str) -> None:
        # sudo ignores a name with a dot, so it does not read a half-written file (sudoers(5), #includedir).
        staged = f"{target}.zkm-new"
        self._run(host, *_AS_ROOT, "-m", mode, "--", source, staged)
        self._run(host, "sudo", "-n", "mv", "-fT", "--", staged, target)

    def _run(self, host: str, *argv: str) -> Output:
        done = self._transport.exec(host, argv)
        if done.rc != 0:
            words = " ".join(argv)
            raise TransportError(
                host, failure_cause(done), f"`{words}` failed (exit {done.rc}): {done.last_line}"
            )
        return done


def failure_cause(output: Output) -> Cause:
    """Return why a command under sudo failed.

    The cause is that sudo refused the command, that the program is missing, or the program's own error.
    """
    if output.last_line.startswith("sudo:"):
        return "missing-tool" if "command not found" in output.last_line else "denied"
    return "missing-tool" if output.rc == 127 else "failed"
