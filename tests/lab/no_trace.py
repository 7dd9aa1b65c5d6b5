"""What a lab shows of having been looked at: files and processes of every host, and source's zxid; and what
is left of one that was taken down."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.lab import control_groups, network, state
from zkmigrate.lab.commands import run
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.zookeeper.data.four_letter_words import parse_srvr

# What a host writes by itself: who is logged in, its log of logins and of sudo, and Kafka's own checkpoints.
_OWN = r"/run$|/var/log/(?:journal|lastlog|wtmp|btmp)\b|/var/lib/kafka(?:/[a-z-]+-checkpoint(?:\.tmp)?)?$"
_FILES = ["find", "/", "/tmp", "-xdev", "-printf", r"%p %y %s %C@ %m %u\n"]
_PROCESSES = ["ps", "-eo", "user=,args="]
# sshd's own children end with the connection; the operator's are gone when the tool is.
_PASSING = re.compile(r"^\S+\s+(?:ps -eo|sshd: (?!/usr/sbin/sshd))")
STILL_S = 5.0


@dataclass(frozen=True)
class Trace:
    """files: host → a line for each file and directory, with its time of change. processes: host → a line
    for each. zxids: source host → its newest transaction."""

    files: dict[str, list[str]]
    processes: dict[str, list[str]]
    zxids: dict[str, int]


def zxids(lab: Lab) -> dict[str, int]:
    """The newest zxid of every source server, by ``srvr``, which is no transaction itself."""
    with lab.operator():
        return {
            host.name: parse_srvr(lab.word(host.address, "srvr") or "").zxid for host in lab.role(Role.SOURCE)
        }


def trace(lab: Lab) -> Trace:
    """Look at every host from outside, as its files and its kernel are."""
    hosts = [host.name for role in (Role.SOURCE, Role.DEST, Role.BROKER) for host in lab.role(role)]
    files = {name: lab.exec(name, _FILES, check=False).stdout.splitlines() for name in hosts}
    return Trace(
        {
            name: sorted(line for line in of if not re.match(_OWN, line.split(" ")[0]))
            for name, of in files.items()
        },
        {name: processes(lab, name) for name in hosts},
        zxids(lab),
    )


def processes(lab: Lab, host: str) -> list[str]:
    """Account and command line of every process of a host, without those that end by themselves."""
    listed = lab.exec(host, _PROCESSES).stdout.splitlines()
    return sorted(line.strip() for line in listed if not _PASSING.match(line.strip()))


def wait_for_stillness(lab: Lab) -> None:
    """Until source has taken no transaction for a while: brokers that have settled write none."""
    last, since = zxids(lab), 0

    def moved() -> str | None:
        nonlocal last, since
        now = zxids(lab)
        last, since = now, since + 1 if now == last else 0
        return None if since >= STILL_S else f"still for {since} s at {now}"

    wait_until("no transaction on source", moved, 180, 1.0)


def traces(lab_id: str) -> list[str]:
    """Everything of a lab that is left on this machine."""
    found = [*network.existing(lab_id), *(str(pid) for pid in control_groups.pids(lab_id))]
    found += [str(path) for path in state.base_directory().glob(f"*{lab_id}*")]
    found += [str(path) for path in Path("/run/systemd/nspawn").glob(f"*/*{lab_id}*")]
    # os.walk goes on when the groups of another lab end meanwhile; Path.glob does not.
    found += [place for place, _, _ in os.walk("/sys/fs/cgroup") if place.endswith(f"/zkm-{lab_id}")]
    disks = run(["losetup", "--all", "--noheadings", "--output", "BACK-FILE"])
    found += [line for line in disks.splitlines() if lab_id in line]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if lab_id in line]
    return found
