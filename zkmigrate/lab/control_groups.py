"""Manage the control groups of a lab's hosts.

`systemd-nspawn --keep-unit` boots the container in the cgroup of its caller. In one shared cgroup, the
systemd of every host would use the same `system.slice/ssh.service`. Stopping a unit on one host would then
wait for the processes of all hosts. So each host has its own cgroup `zkm-LAB/HOST` in every mounted
hierarchy. Every process in this cgroup belongs to the host, which makes it possible to remove a lab after its
owner was killed.

In the hierarchy that shares the processors, the lab is below the group of the process that built it. So a
limit on that process (a quota, `cpu.max`) also limits the whole lab.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.wait import wait_until

HOSTS_TOGETHER = 10
"""The weight of a whole lab, equal to about ten processes of the usual priority.

Without this weight the kernel would give all hosts of a lab together no more time than one other process.
"""


@dataclass(frozen=True)
class Hierarchy:
    """One cgroup hierarchy: its mount point, and whether it divides processor time."""

    root: Path
    shares_processors: bool


def hierarchies(mountinfo: str) -> tuple[Hierarchy, ...]:
    """Return the cgroup hierarchies listed in the text of /proc/self/mountinfo (proc(5)).

    The v1 cpuset hierarchy is left out, because a new group in it accepts no process before its CPUs are set.
    The unified hierarchy shares the processors if no v1 hierarchy does.
    """
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        names = options.split(",")
        if kind == "cgroup2" or (kind == "cgroup" and "cpuset" not in names):
            found.append((Path(left.split(" ")[4]), kind, "cpu" in names))
    v1 = any(cpu for _root, _kind, cpu in found)
    return tuple(Hierarchy(root, cpu or (kind == "cgroup2" and not v1)) for root, kind, cpu in found)


def own_group(cgroup: str) -> str:
    """Return the group that shares the processors, without leading "/", from the text of /proc/self/cgroup.

    The format is described in cgroups(7).
    """
    unified = ""
    for line in cgroup.splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path.strip("/")
        if number == "0":
            unified = path.strip("/")
    return unified


def mounted() -> tuple[Hierarchy, ...]:
    """Return the cgroup hierarchies of this machine."""
    return hierarchies(Path("/proc/self/mountinfo").read_text())


def _own_group() -> str:
    return own_group(Path("/proc/self/cgroup").read_text())


def group_name(lab_id: str) -> str:
    """Return the name of the lab's cgroup below each hierarchy."""
    return f"zkm-{lab_id}"


def create(lab_id: str, host: str, weight: int = 1) -> tuple[Path, ...]:
    """Create the host's cgroup in every hierarchy. Return the `cgroup.procs` files to write a pid to.

    weight: the host's share of the processors relative to the lab's other hosts, where that can be set.
    """
    files = []
    for hierarchy in mounted():
        parent = hierarchy.root
        if hierarchy.shares_processors:
            parent /= _own_group()
        lab = parent / group_name(lab_id)
        directory = lab / host
        directory.mkdir(parents=True, exist_ok=True)
        if hierarchy.shares_processors:
            weigh(lab, HOSTS_TOGETHER)
            weigh(directory, weight)
        files.append(directory / "cgroup.procs")
    return tuple(files)


def weigh(directory: Path, weight: int) -> None:
    """Set a group's share of the processors, as a multiple of the kernel's default for one group."""
    for name, unit in (("cpu.shares", 1024), ("cpu.weight", 100)):
        if (file := directory / name).exists():
            file.write_text(str(weight * unit))


_DISK_LIMITS = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")


def limit_disks(lab_id: str, host: str, mounts: Iterable[Path], mb_s: int) -> None:
    """Limit reads and writes of the disks at these mount points to `mb_s` megabytes per second.

    A megabyte has 1,000,000 bytes. The limit is set in two groups of the v1 hierarchy blkio, which count
    separately. The limit in the host's group applies to the reads and writes of its processes (uncached
    reads, direct writes, fsync). The limit in the root group applies to the kernel's own writeback. Raises
    LabError if there is no such hierarchy.
    """
    top = _blkio()
    if top is None:
        raise LabError("this machine has no cgroup v1 hierarchy blkio, which is needed to limit disks")
    for mount in mounts:
        for group in (top, top / group_name(lab_id) / host):
            _limit(group, _device(mount), mb_s * 1_000_000)


def unlimit_disks(mounts: Iterable[Path]) -> None:
    """Remove the root group's limits for the disks at these mount points.

    Otherwise the limits would apply to other disks that get the same device numbers later.
    """
    if (top := _blkio()) is None:
        return
    limited = {line.split()[0] for name in _DISK_LIMITS for line in (top / name).read_text().splitlines()}
    for device in limited & {_device(mount) for mount in mounts}:
        _limit(top, device, 0)


def _blkio() -> Path | None:
    """Return the root group of the hierarchy that can limit disks, or None."""
    return next((h.root for h in mounted() if (h.root / _DISK_LIMITS[0]).exists()), None)


def _device(mount: Path) -> str:
    number = mount.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _limit(group: Path, device: str, bytes_s: int) -> None:
    for name in _DISK_LIMITS:
        (group / name).write_text(f"{device} {bytes_s}")


def pids(lab_id: str, host: str | None = None) -> set[int]:
    """Return the pids of all processes in the cgroup of the lab, or of one of its hosts."""
    found: set[int] = set()
    for directory in _directories(lab_id, host):
        try:
            found.update(int(word) for word in (directory / "cgroup.procs").read_text().split())
        except (FileNotFoundError, OSError):
            continue
    return found - {0}


def kill(lab_id: str, host: str | None = None) -> None:
    """Kill every process in the cgroup of the lab (or of one host) and wait until none is left."""

    def remaining() -> str | None:
        left = pids(lab_id, host)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        return f"{len(left)} processes" if left else None

    wait_until(f"processes of {group_name(lab_id)} ended", remaining, 15, poll_s=0.05)


def freeze(lab_id: str, host: str, *, frozen: bool) -> None:
    """Freeze every process of a host, or let them continue. The kernel keeps the host's connections.

    The function uses the freezer hierarchy of cgroup v1, or the file `cgroup.freeze` of cgroup v2. Raises
    LabError if there is neither.
    """
    for top in _directories(lab_id, host):
        old, new = top / "freezer.state", top / "cgroup.freeze"
        file, words = (old, ("THAWED", "FROZEN")) if old.exists() else (new, ("0", "1"))
        if not file.exists():
            continue
        file.write_text(words[frozen])

        def other(file: Path = file, wanted: str = words[frozen]) -> str | None:
            seen = file.read_text().strip()
            return None if seen == wanted else seen

        wait_until(f"{host} {'frozen' if frozen else 'thawed'}", other, 10, poll_s=0.02)
        return
    raise LabError("no cgroup hierarchy of this machine has a freezer")


def remove(lab_id: str, host: str | None = None) -> None:
    """Remove the cgroups of a lab, or of one host, once no process is left in them."""

    def remaining() -> str | None:
        left = list(_directories(lab_id, host))
        for directory in left:
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                # A group stays busy for a moment after its last process has been killed.
                return str(directory)
        return None

    wait_until(f"cgroups of {group_name(lab_id)} removed", remaining, 10, poll_s=0.05)


def _directories(lab_id: str, host: str | None) -> Iterator[Path]:
    """Yield the cgroup directories of the lab, or of one host, deepest first."""
    for hierarchy in mounted():
        for lab in _labs(hierarchy, group_name(lab_id)):
            top = lab if host is None else lab / host
            for directory, _names, _files in os.walk(top, topdown=False):
                yield Path(directory)


def _labs(hierarchy: Hierarchy, name: str) -> Iterator[Path]:
    """Yield the groups of this name in the hierarchy.

    The process that takes a lab down may be in another group than the process that created the lab.
    """
    if not hierarchy.shares_processors:
        yield hierarchy.root / name
        return
    for directory, names, _files in os.walk(hierarchy.root):
        if name in names:
            names.remove(name)
            yield Path(directory) / name
