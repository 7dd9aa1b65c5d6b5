"""Provide zkm-host, a POSIX sh program and the only program that changes a host.

What it may change for a run is fixed when it is installed (:mod:`zkmigrate.runbook.model.policy`). It reads
any file, so an account that may run it with sudo reads what root reads.
"""

from __future__ import annotations

import re
from importlib.resources import files

INSTALLED_PATH = "/usr/local/sbin/zkm-host"
SUDOERS_PATH = "/etc/sudoers.d/zkmigrate"
STATE_DIR = "/var/lib/zkmigrate"
"""The directory of zkm-host's state on a host: the lock, and one directory for each run."""

POLICY_NAME = "policy"
"""The name of a run's policy in its directory on a host."""

ASK_GUARD = f"[ ! -x {INSTALLED_PATH} ] || {INSTALLED_PATH} guard || exit 1"
"""A shell command for the inventory's start commands: it fails if ZooKeeper must not start on the host."""


def run_dir(run: str) -> str:
    """Return the directory of a run on a host."""
    return f"{STATE_DIR}/{run}"


def policy_path(run: str) -> str:
    """Return the path of a run's policy on a host (:mod:`zkmigrate.runbook.model.policy`)."""
    return f"{run_dir(run)}/{POLICY_NAME}"


def program() -> bytes:
    """Return the content of the program ``zkm-host``.

    It is installed as ``INSTALLED_PATH`` (owner root, mode 0755), or sent as input to ``sh -s``.
    """
    return (files(__package__) / "zkm-host").read_bytes()


def sudoers(user: str) -> str:
    """Return a sudoers file that lets ``user`` run the installed program as root.

    Raises ValueError unless ``user`` is a plain account name: many other characters have a meaning in
    sudoers.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
        raise ValueError(
            f"not a plain account name: {user!r}. Needed: [a-z_][a-z0-9_-]*, at most 32 characters"
        )
    return f"{user} ALL=(root) NOPASSWD: {INSTALLED_PATH}\n"
