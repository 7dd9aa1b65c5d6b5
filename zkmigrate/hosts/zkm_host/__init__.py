"""The host side: one POSIX sh program, the only thing that acts on a host.

Whoever may run it by sudo is equal to root there: ``put`` writes any file, and the commands of a
service come with the call.
"""

from __future__ import annotations

import re
from importlib.resources import files

INSTALLED_PATH = "/usr/local/sbin/zkm-host"
SUDOERS_PATH = "/etc/sudoers.d/zkmigrate"
STATE_DIR = "/var/lib/zkmigrate"
"""Where zkm-host keeps its state on a host: the lock, and a directory for each run."""

ASK_GUARD = f"[ ! -x {INSTALLED_PATH} ] || {INSTALLED_PATH} guard || exit 1"
"""How a start command of the inventory's own asks whether ZooKeeper may start."""


def run_dir(run: str) -> str:
    """Where zkm-host keeps what belongs to a run."""
    return f"{STATE_DIR}/{run}"


def program() -> bytes:
    """The bytes of ``zkm-host``: installed as ``INSTALLED_PATH`` (root, 0755), or streamed to ``sh -s``."""
    return (files(__package__) / "zkm-host").read_bytes()


def sudoers(user: str) -> str:
    """The sudoers file that lets ``user`` run the installed program as root, and no other program.

    This is as much as full sudo: see :mod:`zkmigrate.hosts.zkm_host`.

    ``user`` is a plain account name (``[a-z_][a-z0-9_-]*``, at most 32 characters); anything else raises
    ``ValueError``, because sudoers gives a meaning to many other characters.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
        raise ValueError(
            f"not a plain account name: {user!r}; needed: [a-z_][a-z0-9_-]*, at most 32 characters"
        )
    return f"{user} ALL=(root) NOPASSWD: {INSTALLED_PATH}\n"
