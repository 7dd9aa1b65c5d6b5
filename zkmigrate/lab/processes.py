"""Identify processes by pid and start time, so that a reused pid is never mistaken for the recorded one."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

_STATE, _START_TIME = 0, 19
"""The positions of `state` and `starttime` (clock ticks since boot) after the command in /proc/PID/stat.

proc(5) describes the file.
"""


@dataclass(frozen=True)
class ProcessId:
    """A process: its pid and its start time in clock ticks since boot."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the process that has this pid now, or None."""
        fields = _stat_fields(pid)
        return None if fields is None else cls(pid, int(fields[_START_TIME]))

    @classmethod
    def mine(cls) -> ProcessId:
        """Return this process."""
        found = cls.of(os.getpid())
        assert found is not None
        return found

    def alive(self) -> bool:
        """Return whether this very process still runs. A zombie does not run."""
        fields = _stat_fields(self.pid)
        return fields is not None and int(fields[_START_TIME]) == self.start and fields[_STATE] not in "ZX"

    def send(self, number: signal.Signals) -> bool:
        """Send a signal if the process still runs, and return whether it was sent."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def reap(self) -> None:
        """Collect the exit status of an ended child, so that no zombie stays."""
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def container_leader(supervisor: int) -> ProcessId | None:
    """Return the process that is PID 1 of an nspawn process's container, or None while there is none."""
    try:
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    for child in map(int, children):
        try:
            status = Path(f"/proc/{child}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pids = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if len(pids) > 1 and pids[-1] == "1":
            return ProcessId.of(child)
    return None
