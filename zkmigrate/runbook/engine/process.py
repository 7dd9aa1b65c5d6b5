"""The record of the process that works on a run: ``runs/RUN/process``, locked by the process while it lives.

The run's own lock (``LocalLock``) decides which process may work; this file shows others which one does.
Reading it never blocks a process that wants to begin. It is one JSON object {pid, verb, by, place, since}.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zkmigrate.errors import LockedError
from zkmigrate.runbook.engine import run_file

NAME = "process"
_LIMIT = 1 << 16
_ASKED_S = 10.0
_ASK_AGAIN_S = 0.02


@dataclass(frozen=True)
class Process:
    """A process at work.

    by: ``user@machine``. place: its terminal, and the address from which its user came. since: seconds since
    the epoch. Fields are empty or 0 if the file does not contain them.
    """

    pid: int = 0
    verb: str = ""
    by: str = ""
    place: str = ""
    since: float = 0.0

    def body(self) -> dict[str, Any]:
        """Return the record for its file and ``--json``."""
        return asdict(self)


def user() -> str:
    """Return the user of this process: ``user@machine``."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def terminal(environ: Mapping[str, str]) -> str:
    """Return this process's terminal, and the address from which its user came by ssh; empty for neither."""
    words = []
    for fd in (0, 1, 2):
        with suppress(OSError):
            words.append(os.ttyname(fd))
            break
    if address := environ.get("SSH_CONNECTION", "").split(" ")[0]:
        words.append(f"from {address}")
    return " ".join(words)


def announce(run_dir: Path, process: Process) -> int:
    """Record that this process works on the run, and return a descriptor to close at the end.

    Raises OSError if the record cannot be written, LockedError if another process holds the file's lock.
    """
    fd = os.open(run_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        _lock(fd, run_dir)
        os.ftruncate(fd, 0)
        with run_file.named(run_dir / NAME):
            os.write(fd, json.dumps(process.body(), ensure_ascii=False).encode())
    except BaseException:
        os.close(fd)
        raise
    return fd


def _lock(fd: int, run_dir: Path) -> None:
    """Lock the file, waiting up to ``_ASKED_S`` seconds for processes that hold the lock while they read it.

    Raises LockedError after that.
    """
    end = time.monotonic() + _ASKED_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise LockedError(
                    f"another process has held {run_dir / NAME} for {_ASKED_S:.0f} s. Nothing was changed. "
                    f"Next: find that process (fuser {run_dir / NAME}), end it, then run the same "
                    "command again"
                ) from None
            time.sleep(_ASK_AGAIN_S)


def at_work(run_dir: Path) -> Process | None:
    """Return the process that works on the run now on this machine, or None."""
    try:
        fd = os.open(run_dir / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        return _read(os.pread(fd, _LIMIT, 0))
    finally:
        os.close(fd)


def _read(content: bytes) -> Process:
    try:
        said = run_file.json_object(content)
        pid, since = said["pid"], run_file.moment(said["since"])
        verb, by, place = (run_file.line(said[key]) for key in ("verb", "by", "place"))
    except (ValueError, KeyError):
        return Process()
    if type(pid) is not int or pid <= 0:
        return Process()
    return Process(pid, verb, by, place, since)
