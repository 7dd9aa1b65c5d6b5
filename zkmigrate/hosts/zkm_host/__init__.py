"""zkm-host: one POSIX sh program, the only one that changes a host.

An account that may run it by sudo is equal to root: ``put`` writes any file, and the caller gives the
commands of a service.
"""

from __future__ import annotations

import re
from importlib.resources import files

INSTALLED_PATH = "/usr/local/sbin/zkm-host"
SUDOERS_PATH = "/etc/sudoers.d/zkmigrate"
STATE_DIR = "/var/lib/zkmigrate"
"""zkm-host's state on a host: the lock, and a directory for each run."""

ASK_GUARD = f"[ ! -x {INSTALLED_PATH} ] || {INSTALLED_PATH} guard || exit 1"
"""With this a start command of the inventory asks whether ZooKeeper may start."""


def run_dir(run: str) -> str:
    """The directory of a run on a host."""
    return f"{STATE_DIR}/{run}"


def program() -> bytes:
    """The bytes of ``zkm-host``: installed as ``INSTALLED_PATH`` (root, 0755), or streamed to ``sh -s``."""
    return (files(__package__) / "zkm-host").read_bytes()


def sudoers(user: str) -> str:
    """The sudoers file with which ``user`` may run the installed program as root, which equals full sudo.

    ValueError unless ``user`` is a plain account name: sudoers gives a meaning to many other characters.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
        raise ValueError(
            f"not a plain account name: {user!r}; needed: [a-z_][a-z0-9_-]*, at most 32 characters"
        )
    return f"{user} ALL=(root) NOPASSWD: {INSTALLED_PATH}\n"
