"""CPU time and memory of a process and all that it started, from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The unit of CPU time in /proc; no less is measured."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY_S = 0.1
"""Seconds between two looks at memory; a look takes about a hundredth of a core."""


@dataclass
class Usage:
    """seconds: by the clock. cpu_s: of all processes, also ended ones. peak_bytes: the largest seen sum of
    resident memory; a shared page counts for each process."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0


@contextmanager
def watched(*roots: int) -> Iterator[Usage]:
    """The usage of these processes and their children inside the block; complete at its end."""
    found = Usage()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            found.peak_bytes = max(found.peak_bytes, sum(map(_resident, below(*roots))))
            over.wait(_EVERY_S)

    watch = threading.Thread(target=look, daemon=True)
    before, began = cpu_s(*roots), time.perf_counter()
    watch.start()
    try:
        yield found
        found.seconds = time.perf_counter() - began
        found.cpu_s = max(TICK_S, cpu_s(*roots) - before)
    finally:
        over.set()
        watch.join()


def below(*roots: int) -> list[int]:
    """These processes and all their descendants, now."""
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
    """CPU seconds so far, user and system, with ended children."""
    return sum(sum(map(int, fields[11:15])) for pid in below(*roots) if (fields := _stat(pid))) * TICK_S


def threads_s(pid: int) -> float:
    """CPU seconds so far of the threads that a process has now, in steps of nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def born(pid: int) -> str:
    """When a process began, in ticks since boot, which with its pid identifies it; "" when it has ended."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] != "Z" else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none for an ended process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0
