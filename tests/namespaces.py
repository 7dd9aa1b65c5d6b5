"""The network namespaces of a test run: names that tell whose they are, and what a dead run left goes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from pathlib import Path

from zkmigrate.lab.processes import ProcessId

KNOWN = Path("/run/netns")
LIMIT_S = 60.0
OWNER = re.compile(r"zkmu([0-9]+)\.([0-9]+)-")


def ip(*words: str) -> str:
    """What the program ``ip`` prints."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def own() -> str:
    """A new beginning of names that no other run has, now or later: a pid comes again, with another start."""
    me = ProcessId.mine()
    return f"zkmu{me.pid}.{me.start}-{secrets.token_hex(2)}"


def sweep() -> None:
    """Take down what runs left that were ended from outside; what a living process has made stays."""
    for namespace in (path.name for path in KNOWN.glob("zkmu*")):
        owner = OWNER.match(namespace)
        if owner and not ProcessId(int(owner[1]), int(owner[2])).alive():
            with contextlib.suppress(subprocess.CalledProcessError):  # another run may sweep as well
                remove(namespace)


def remove(namespace: str) -> None:
    """Take a namespace down, with what runs there."""
    kill_all(namespace)
    ip("netns", "del", namespace)


def kill_all(namespace: str) -> None:
    """Kill what runs in a namespace, and what that started meanwhile, until nothing runs there."""
    end = time.monotonic() + LIMIT_S
    while pids := ip("netns", "pids", namespace).split():
        if time.monotonic() > end:
            raise TimeoutError(f"still running in {namespace} after {LIMIT_S} s: {', '.join(pids)}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
