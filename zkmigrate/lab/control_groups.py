"""Control groups of a lab's hosts.

`systemd-nspawn --keep-unit` boots the container in the cgroup of its caller. In one cgroup, the systemd of
every host would use the same `system.slice/ssh.service`, and stopping a unit on one host would wait for the
processes of all. So each host gets `zkm-LAB/HOST` in every mounted hierarchy. Whatever runs there belongs to
that host: that is how a lab is cleared after its owner was killed.

In the hierarchy that shares the processors the lab is below the group of the process that built it, so a
limit on that process (a quota, `cpu.max`) holds for the whole lab.
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
"""The weight of a whole lab: about one process of usual priority for each host. Without it the kernel would
give ten hosts together no more than one other process."""


@dataclass(frozen=True)
class Hierarchy:
    """One hierarchy: its mount point, and whether it shares the processors."""

    root: Path
    shares_processors: bool


def hierarchies(mountinfo: str) -> tuple[Hierarchy, ...]:
    """The cgroup hierarchies in the text of /proc/self/mountinfo (proc(5)).

    The v1 cpuset hierarchy is left out: a new group there takes no process before its CPUs are set. The
    unified hierarchy shares out the processors where no v1 hierarchy does.
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
    """The group that shares the processors in the text of /proc/self/cgroup (cgroups(7)), without "/"."""
    unified = ""
    for line in cgroup.splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return path.strip("/")
        if number == "0":
            unified = path.strip("/")
    return unified


def mounted() -> tuple[Hierarchy, ...]:
    """The cgroup hierarchies of this machine."""
    return hierarchies(Path("/proc/self/mountinfo").read_text())


def _own_group() -> str:
    return own_group(Path("/proc/self/cgroup").read_text())


def group_name(lab_id: str) -> str:
    """The name of the lab's cgroup below each hierarchy."""
    return f"zkm-{lab_id}"


def create(lab_id: str, host: str, weight: int = 1) -> tuple[Path, ...]:
    """Makes the host's cgroup in every hierarchy; returns the `cgroup.procs` files to write a pid to.

    weight: the host's share of the processors beside the lab's other hosts, where that can be set.
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
    """Sets a group's share of the processors, in the kernel's units for one process of the usual priority."""
    for name, unit in (("cpu.shares", 1024), ("cpu.weight", 100)):
        if (file := directory / name).exists():
            file.write_text(str(weight * unit))


_DISK_LIMITS = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")


def limit_disks(lab_id: str, host: str, mounts: Iterable[Path], mb_s: int) -> None:
    """The disks mounted there read and write at most so many megabytes (1,000,000 bytes) per second.

    A limit stands in two groups of the v1 hierarchy blkio: in the host's, for what its processes read and
    write themselves (uncached reads, direct writes, fsync), and in the root group, to which the kernel counts
    what it writes back by itself. The two count apart. LabError where there is no such hierarchy.
    """
    top = _blkio()
    if top is None:
        raise LabError("this machine has no cgroup v1 hierarchy blkio, by which disks are limited")
    for mount in mounts:
        for group in (top, top / group_name(lab_id) / host):
            _limit(group, _device(mount), mb_s * 1_000_000)


def unlimit_disks(mounts: Iterable[Path]) -> None:
    """Ends the limits of the root group for the disks mounted there: the kernel gives their numbers to other
    disks later."""
    if (top := _blkio()) is None:
        return
    limited = {line.split()[0] for name in _DISK_LIMITS for line in (top / name).read_text().splitlines()}
    for device in limited & {_device(mount) for mount in mounts}:
        _limit(top, device, 0)


def _blkio() -> Path | None:
    """The root group that limits disks."""
    return next((h.root for h in mounted() if (h.root / _DISK_LIMITS[0]).exists()), None)


def _device(mount: Path) -> str:
    number = mount.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _limit(group: Path, device: str, bytes_s: int) -> None:
    for name in _DISK_LIMITS:
        (group / name).write_text(f"{device} {bytes_s}")


def pids(lab_id: str, host: str | None = None) -> set[int]:
    """Every process in the cgroup of the lab, or of one of its hosts."""
    found: set[int] = set()
    for directory in _directories(lab_id, host):
        try:
            found.update(int(word) for word in (directory / "cgroup.procs").read_text().split())
        except (FileNotFoundError, OSError):
            continue
    return found - {0}


def kill(lab_id: str, host: str | None = None) -> None:
    """Ends every process in the cgroup of the lab (or one host) by SIGKILL and waits until none is left."""

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
    """Stops every process of a host where it stands, or lets them go on; the kernel keeps its connections.

    By the freezer hierarchy of cgroup v1, or by cgroup v2's own file.
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
    """Removes the cgroups of a lab, or of one host, when no process is left in them."""

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
    """The lab's cgroup directories, deepest first."""
    for hierarchy in mounted():
        for lab in _labs(hierarchy, group_name(lab_id)):
            top = lab if host is None else lab / host
            for directory, _names, _files in os.walk(top, topdown=False):
                yield Path(directory)


def _labs(hierarchy: Hierarchy, name: str) -> Iterator[Path]:
    """The groups of this name; whoever takes a lab down may be in another group than whoever made it."""
    if not hierarchy.shares_processors:
        yield hierarchy.root / name
        return
    for directory, names, _files in os.walk(hierarchy.root):
        if name in names:
            names.remove(name)
            yield Path(directory) / name
