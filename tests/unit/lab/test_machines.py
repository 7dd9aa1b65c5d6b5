"""What a lab needs of the machine before it makes anything."""

from __future__ import annotations

import subprocess
import sys

from zkmigrate.lab.machines import INOTIFY_PER_HOST
from zkmigrate.lab.texts import MASKED_UNITS

LIMIT = "/proc/sys/user/max_inotify_instances"
"""The limit of the user namespace that a process is in; a new one has a limit of its own."""


def checked(hosts: int, limit: int) -> subprocess.CompletedProcess[str]:
    """The check for so many hosts, made twice, where so many inotify instances may be open."""
    check = f"check_inotify({hosts})"
    program = f"from zkmigrate.lab.machines import check_inotify; {check}; {check}"
    script = f'echo {limit} > {LIMIT} && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", program]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_lab_is_refused_where_its_hosts_would_get_no_inotify_instance() -> None:
    """Seen with three labs on one machine: sshd of some hosts never started, and the lab waited for it."""
    needed = 2 * INOTIFY_PER_HOST
    done = checked(2, needed - 1)
    assert done.returncode != 0
    assert f"has {needed - 1} inotify instances left" in done.stderr
    assert f"2 hosts need {needed}" in done.stderr
    assert "fs.inotify.max_user_instances" in done.stderr


def test_the_check_gives_back_what_it_opened() -> None:
    assert checked(2, 2 * INOTIFY_PER_HOST).returncode == 0


def test_units_that_would_hold_an_inotify_instance_are_masked() -> None:
    """With them a host held six, and a third lab of ten hosts did not fit 128."""
    assert {"systemd-ask-password-console.path", "systemd-ask-password-wall.path"} <= set(MASKED_UNITS)
    assert 3 * 10 * INOTIFY_PER_HOST <= 128
