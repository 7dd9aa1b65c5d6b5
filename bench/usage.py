"""Read from /proc the CPU time of a process and of all processes that it started."""

from __future__ import annotations

import os
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The unit of CPU time in /proc and so the smallest measurable time, seconds."""


def below(*roots: int) -> list[int]:
    """Return these processes and all their current descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], list(roots)
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def cpu_s(*roots: int) -> float:
    """Return the CPU seconds so far, user and system, of these processes and their descendants.

    Ended children are included.
    """
    return sum(sum(map(int, fields[11:15])) for pid in below(*roots) if (fields := _stat(pid))) * TICK_S


def threads_s(pid: int) -> float:
    """Return the CPU seconds so far of a process's current threads, in steps of nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; an empty list for an ended process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
