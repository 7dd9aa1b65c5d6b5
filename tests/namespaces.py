"""The network namespaces of a test run: names that tell whose they are, and what a dead run left goes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
from pathlib import Path

from zkmigrate.lab.processes import ProcessId

KNOWN = Path("/run/netns")
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
    """Kill what runs in a namespace; some of it may end by itself meanwhile."""
    for pid in ip("netns", "pids", namespace).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
