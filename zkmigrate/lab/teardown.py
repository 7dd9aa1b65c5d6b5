"""Take down labs, including incomplete labs of an owner that was killed.

The lab's id is enough to find everything (namespaces, cgroups, mounts below its directory). Any part may be
missing already.
"""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from zkmigrate.lab import control_groups, host, network, state
from zkmigrate.lab.commands import run
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.spec import hosts_of
from zkmigrate.lab.wait import Progress, silent, wait_until

POWER_OFF_S = 15
"""The seconds after which hosts that have not powered off are killed."""
DETACH_S = 120
"""The seconds that the kernel may take to detach the disks of hosts that are off."""


def remove(directory: Path, progress: Progress = silent) -> None:
    """Take a lab down: power hosts off (or kill them after a deadline), then remove all traces.

    ZooKeeper and Kafka are killed first, because brokers that cannot hand over their partitions would take
    minutes to stop.
    """
    if not directory.exists():
        return
    with state.locked(directory / "lock"):
        if directory.exists():  # no other process removed it while this one waited for the lock
            _remove(directory, progress)


def _remove(directory: Path, progress: Progress) -> None:
    if not (directory / "lab.json").exists():
        shutil.rmtree(directory)
        return
    record = state.read(directory)
    running = {
        name: item
        for name, item in record.hosts.items()
        if item.supervisor is not None and item.supervisor.alive()
    }
    if running:
        progress(f"lab {record.id}: powering {len(running)} hosts off")
        with ThreadPoolExecutor(len(running)) as pool:
            list(pool.map(_stop_host, running.values()))
    control_groups.kill(record.id)
    network.remove(record.id)
    control_groups.remove(record.id)
    unmount_below(directory)
    for plan in hosts_of(record.spec):
        host.clear_traces(record.id, plan.name)
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    shutil.rmtree(directory)
    wait_until(f"lab {record.id}: its disks detached", partial(_attached, directory), DETACH_S)
    progress(f"lab {record.id}: removed")


def _attached(directory: Path) -> str | None:
    """Return a text with the disks below the directory that are still attached, or None.

    The kernel detaches a disk some time after its unmounting, once the last mount namespace with this mount
    has ended.
    """
    disks = run(["losetup", "--all", "--noheadings", "--output", "BACK-FILE"]).splitlines()
    return ", ".join(disk for disk in disks if disk.startswith(f"{directory}/")) or None


_KILL = (
    "sh",
    "-c",
    "systemctl kill --signal=KILL zookeeper.service kafka.service; "
    "for script in /opt/*/service; do [ ! -x $script ] || $script kill; done",
)


def _stop_host(record: state.HostRecord) -> None:
    if record.leader is not None and record.leader.alive():
        # This fails on a host without such a unit or in the middle of its boot; the power-off below ends it.
        subprocess.run(host.exec_argv(record.leader, _KILL), capture_output=True, timeout=10, check=False)
    host.power_off(record, POWER_OFF_S)


def kill_host(lab_id: str, name: str) -> None:
    """Kill every process of one host at once."""
    control_groups.kill(lab_id, name)


def clear_host(lab_id: str, name: str) -> None:
    """Remove the cgroup of a host that is off, and the files that nspawn left for the host."""
    control_groups.remove(lab_id, name)
    host.clear_traces(lab_id, name)


def mounts_below(mountinfo: str, directory: Path) -> list[str]:
    """Return the mount points below a directory, last mounted first.

    mountinfo: the text of /proc/self/mountinfo (proc(5)).
    """
    points = [line.split(" ")[4] for line in mountinfo.splitlines()]
    return [point for point in reversed(points) if Path(point).is_relative_to(directory)]


def unmount_below(directory: Path) -> None:
    """Unmount everything below a directory, after removing the limits of the disks there."""
    points = mounts_below(Path("/proc/self/mountinfo").read_text(), directory)
    control_groups.unlimit_disks(Path(point) for point in points)
    for point in points:
        run(["umount", point])


def sweep(progress: Progress = silent) -> list[str]:
    """Take down every abandoned lab and return their ids."""
    base = state.base_directory()
    if not base.exists():
        return []
    with state.locked(base / ".lock"):
        abandoned = [path for path in state.directories() if _abandoned(path)]
    swept = []
    for directory in abandoned:
        with state.locked(directory / "lock", wait=False) as mine:
            if mine and directory.exists():
                progress(f"sweeping an abandoned lab: {directory}")
                _remove(directory, progress)
                swept.append(directory.name.removeprefix(state.PREFIX))
    return swept


def _abandoned(directory: Path) -> bool:
    """Return whether a lab is abandoned.

    A directory without a record was left by a crash, because creation holds the base lock.
    """
    if not (directory / "lab.json").exists():
        return True
    return state.sweepable(state.read(directory), ProcessId.alive)
