"""Run the operator's own programs on this machine, for the hooks of a run.

Each program gets a session of its own: a Ctrl-C at the terminal reaches the run first, and a program that
hangs is killed with all processes it started. Its output goes to ``runs/RUN/hooks/NUMBER-MOMENT.log`` (mode
0600, the first MiB). It gets its input by environment and standard input, never as arguments.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from zkmigrate.errors import UsageError
from zkmigrate.inventory.hooks import Hooks
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.ports import HookCall, HookEnd, HookHow, HookRunner

FOLDER = "hooks"
_LOG_LIMIT = 1 << 20
_SUMMARY_LENGTH = 300
_POLL_S = 0.1
_GRACE_S = 2.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\t\n -~\u00a0-\uffff]")


def missing(hooks: Hooks) -> tuple[str, ...]:
    """Return the hooks that cannot be run on this machine, one clause with the reason for each."""
    found = []
    for place, hook in hooks.each():
        path = Path(hook.run)
        if not path.is_file():
            found.append(
                f"{place}: {path} does not exist" if not path.exists() else f"{place}: {path} is not a file"
            )
        elif not os.access(path, os.X_OK):
            found.append(f"{place}: {path} is not executable")
    return tuple(found)


def refuse_missing(hooks: Hooks) -> None:
    """Raise UsageError if a hook cannot be run on this machine."""
    if found := missing(hooks):
        raise UsageError(
            f"{'; '.join(found)}; needed: executable programs; nothing was done. Next: "
            "fix these hooks, or remove them from migration.yml"
        )


class HookProcesses(HookRunner):
    """The ``HookRunner`` that starts the programs of one run as processes on this machine.

    folder: the inventory's directory, in which the programs run. grace_s: seconds from SIGTERM to SIGKILL.
    """

    def __init__(self, run_dir: Path, folder: Path, interrupt: Interrupt, grace_s: float = _GRACE_S) -> None:
        self._grace_s = grace_s
        self._run_dir = run_dir.absolute()
        self._folder = folder.absolute()
        self._interrupt = interrupt
        self._guard = threading.Lock()
        self._groups: set[int] = set()
        self._threads: list[threading.Thread] = []

    def run(self, call: HookCall, /) -> HookEnd:
        """Run a program and wait until it ends.

        A first Ctrl-C during the wait ends the program; a second one kills it at once.
        """
        before = self._interrupt.wanted
        return self._run(call, lambda: self._interrupt.wanted and not before)

    def start(self, call: HookCall, done: Callable[[HookEnd], None], /) -> None:
        """Run a program in a thread, and call ``done`` with its result when it ends."""

        def work() -> None:
            done(self._run(call, lambda: False))

        # No daemon thread: it would end with the tool, and the program would lose its time limit.
        thread = threading.Thread(target=work, name=f"hook-{call.name}")
        self._threads.append(thread)
        thread.start()

    def settle(self) -> None:
        """Wait for the programs that still run, at most until their time limits. A Ctrl-C kills them."""
        left = [thread for thread in self._threads if thread.is_alive()]
        if not left:
            return
        names = ", ".join(thread.name.removeprefix("hook-") for thread in left)
        sys.stderr.write(f"zkmigrate: the run has ended; its hooks still run: {names}. Ctrl-C ends them\n")
        try:
            for thread in left:
                thread.join()
        except KeyboardInterrupt:
            self.kill()

    def kill(self) -> None:
        """Kill every program that still runs."""
        with self._guard:
            groups = tuple(self._groups)
        for group in groups:
            _signal(group, signal.SIGKILL)

    # --- one program -----------------------------------------------------------------------------------

    def _run(self, call: HookCall, interrupted: Callable[[], bool]) -> HookEnd:
        began = time.monotonic()
        try:
            with contextlib.ExitStack() as stack:
                log = _Log(*self._log_file(call.name))
                stack.callback(log.close)
                process = stack.enter_context(self._spawn(call))
                try:
                    how = self._watch(process, log, began + call.timeout_s, interrupted)
                except BaseException:
                    _signal(process.pid, signal.SIGKILL)
                    process.wait()
                    raise
                finally:
                    with self._guard:
                        self._groups.discard(process.pid)
                seconds = time.monotonic() - began
                code = _exit_code(process.returncode) if how == "done" else None
                log.footer(f"{how}, exit code {code}, {seconds:.1f} s")
                return HookEnd(how, code, seconds, log.summary(), str(log.path))
        except (OSError, ValueError) as error:
            return HookEnd("not-started", None, time.monotonic() - began, str(error), "")

    def _log_file(self, name: str) -> tuple[Path, IO[bytes]]:
        folder = self._run_dir / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        number = 1 + max((int(p.name[:4]) for p in folder.glob("[0-9][0-9][0-9][0-9]-*.log")), default=0)
        while True:
            path = folder / f"{number:04d}-{name}.log"
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                number += 1
                continue
            return path, os.fdopen(fd, "wb")

    def _spawn(self, call: HookCall) -> subprocess.Popen[bytes]:
        variables = {**os.environ, **call.variables, "ZKMIGRATE_RUN_DIR": str(self._run_dir)}
        # A file, not a pipe: with a pipe, a program that does not read its input would block this thread.
        with tempfile.TemporaryFile() as stdin, self._guard:
            stdin.write(call.text.encode("utf-8", "replace"))
            stdin.seek(0)
            process = subprocess.Popen(
                [call.run, *call.args],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=variables,
                start_new_session=True,
            )
            self._groups.add(process.pid)
        return process

    def _watch(
        self, process: subprocess.Popen[bytes], log: _Log, end: float, interrupted: Callable[[], bool]
    ) -> HookHow:
        """Wait until the program ends, the time is over or the operator interrupts.

        Programs that it started may keep its output open: the wait does not depend on them.
        """
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while process.poll() is None:
                if interrupted() or time.monotonic() >= end:
                    reason: HookHow = "interrupted" if interrupted() else "timeout"
                    self._end(process)
                    log.take(process.stdout)
                    return reason
                if selector.get_map():
                    selector.select(min(_POLL_S, max(0.0, end - time.monotonic())))
                    if log.take(process.stdout):
                        selector.unregister(process.stdout)
                else:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
            log.take(process.stdout)
        return "done"

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End the whole process group: SIGTERM, then SIGKILL."""
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self._grace_s)
        _signal(process.pid, signal.SIGKILL)
        process.wait()


class _Log:
    """The output of one program: the first MiB in a file, the end in memory."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._file = file
        self._left = _LOG_LIMIT
        self._tail = b""

    def take(self, stream: IO[bytes]) -> bool:
        """Read the output available now, at most 1 MiB. Return True at the end of the stream."""
        for _ in range(16):
            try:
                part = os.read(stream.fileno(), 1 << 16)
            except BlockingIOError:
                return False
            if not part:
                return True
            self._tail = (self._tail + part)[-4 * _SUMMARY_LENGTH :]
            kept = part[: self._left]
            self._left -= len(kept)
            self._write(kept)
        return False

    def footer(self, text: str) -> None:
        """Write the last line."""
        cut = " (the rest of its output was not kept)" if self._left == 0 else ""
        self._write(f"\n[zkmigrate: {text}{cut}]\n".encode())

    def summary(self) -> str:
        """Return the last three lines joined into one line of plain text."""
        text = _CONTROL.sub("", self._tail.decode("utf-8", "replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " / ".join(lines[-3:])[-_SUMMARY_LENGTH:]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, content: bytes) -> None:
        try:
            self._file.write(content)
            self._file.flush()
        except OSError:  # the disk is full: keep nothing, let the program run
            self._left = 0


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _exit_code(code: int) -> int:
    """Return the exit code as a shell reports it: 128 + the number of the signal that ended the program."""
    return code if code >= 0 else 128 - code
