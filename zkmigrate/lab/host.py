"""Manage one lab host: its disk (an overlay on the clean root file system), its boot and its shutdown."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from zkmigrate.lab import control_groups, network
from zkmigrate.lab.commands import run
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.processes import ProcessId, container_leader
from zkmigrate.lab.render import HostFile
from zkmigrate.lab.state import HostRecord
from zkmigrate.lab.wait import wait_until

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
_PROPAGATE = Path("/run/systemd/nspawn")


def machine_name(lab_id: str, host: str) -> str:
    """Return the machine name of the host for systemd-nspawn."""
    return f"zkm-{lab_id}-{host}"


def mount_root(directory: Path, rootfs: Path) -> Path:
    """Mount the host's overlay on the clean root file system, and return the host's root directory."""
    upper, work, root = (directory / part for part in ("upper", "work", "root"))
    for path in (upper, work, root):
        path.mkdir(parents=True)
    layers = f"lowerdir={rootfs},upperdir={upper},workdir={work}"
    run(["mount", "-t", "overlay", "overlay", "-o", layers, str(root)])
    return root


def write_files(root: Path, files: Iterable[HostFile], appended: Mapping[str, str]) -> None:
    """Write a host's files below its root directory.

    appended: text to append to existing files of the root file system, by path.
    """
    for path, text in appended.items():
        with (root / path.lstrip("/")).open("a") as out:
            out.write(text)
    for file in files:
        place(root, file)


def place(root: Path, file: HostFile) -> None:
    """Write one file, directory or link below a host's root directory."""
    target = root / file.path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.link is not None:
        target.unlink(missing_ok=True)
        target.symlink_to(file.link)
        return
    if file.data is not None:
        target.write_bytes(file.data)
    elif file.content is None:
        target.mkdir(exist_ok=True)
    else:
        target.write_text(file.content)
    os.chown(target, file.owner, file.group)
    target.chmod(file.mode)


def attach_disk(image: Path, mount_point: Path, megabytes: int) -> None:
    """Mount a sparse ext4 image, without reserved blocks, on a directory of the host as its own disk."""
    with image.open("wb") as out:
        out.truncate(megabytes * 1024 * 1024)
    run(["mkfs.ext4", "-q", "-m", "0", str(image)])
    mount_point.mkdir(parents=True, exist_ok=True)
    run(["mount", "-o", "loop", str(image), str(mount_point)])
    (mount_point / "lost+found").rmdir()


def start(lab_id: str, host: str, directory: Path, read_only: dict[str, Path], weight: int = 1) -> ProcessId:
    """Boot the host and return the nspawn process.

    read_only: directories of this machine to bind into the host, by their path inside the host. weight: the
    host's share of the processors relative to the lab's other hosts. The process enters the host's cgroup
    before it becomes nspawn, so none of the host's processes is ever outside. Raises LabError if nspawn ends
    at once.
    """
    groups = control_groups.create(lab_id, host, weight)
    argv = [
        "systemd-nspawn", "--quiet", "--boot", f"--directory={directory / 'root'}",
        f"--machine={machine_name(lab_id, host)}", f"--hostname={host}", "--register=no", "--keep-unit",
        f"--network-namespace-path={network.NETNS_DIRECTORY / network.netns(lab_id, host)}",
        "--capability=CAP_NET_ADMIN,CAP_NET_RAW", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
        "--console=pipe", *(f"--bind-ro={source}:{inside}" for inside, source in read_only.items()),
    ]  # fmt: skip
    enter = " && ".join(f"echo $$ > {shlex.quote(str(file))}" for file in groups)
    with (directory / "console.log").open("ab") as console:
        child = subprocess.Popen(
            ["sh", "-c", f"{enter} && exec {shlex.join(argv)}"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=_ENVIRONMENT,
        )
    supervisor = ProcessId.of(child.pid)
    # Popen would warn about a running child when it is collected; this one is meant to outlive it.
    child.returncode = 0
    if supervisor is None:
        raise LabError(f"{host}: systemd-nspawn ended at once: {console_tail(directory)}")
    return supervisor


def wait_for_leader(host: str, directory: Path, supervisor: ProcessId, deadline_s: float) -> ProcessId:
    """Wait until the container of an nspawn process has a PID 1, and return that process.

    Raises LabError if nspawn ends, or after ``deadline_s`` seconds.
    """
    found: list[ProcessId] = []

    def missing() -> str | None:
        if not supervisor.alive():
            supervisor.reap()
            raise LabError(
                f"{host}: systemd-nspawn --boot ended before the host was up: {console_tail(directory)}"
            )
        leader = container_leader(supervisor.pid)
        if leader is None:
            return "PID 1 of the container"
        found.append(leader)
        return None

    wait_until(f"{host} started", missing, deadline_s, poll_s=0.05)
    return found[-1]


def console_tail(directory: Path) -> str:
    """Return the last lines that the host wrote to its console."""
    with contextlib.suppress(FileNotFoundError):
        text = (directory / "console.log").read_text(errors="replace")
        return " | ".join(text.strip().splitlines()[-6:]) or "(empty console)"
    return "(no console)"


def power_off(record: HostRecord, deadline_s: float) -> bool:
    """Power the host off. Return False if the host is not off after ``deadline_s`` seconds."""
    supervisor = record.supervisor
    if supervisor is None or not supervisor.send(signal.SIGTERM):
        return True

    def missing() -> str | None:
        supervisor.reap()
        return "the end of systemd-nspawn" if supervisor.alive() else None

    try:
        wait_until("host powered off", missing, deadline_s, poll_s=0.05)
    except NotReady:
        return False
    return True


def clear_traces(lab_id: str, host: str) -> None:
    """Remove the files that nspawn leaves in /run when it is killed, or when /run is not a tmpfs."""
    name = machine_name(lab_id, host)
    for kind in ("propagate", "unix-export"):
        shutil.rmtree(_PROPAGATE / kind / name, ignore_errors=True)


def exec_argv(leader: ProcessId, argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` as root inside the host, without ssh."""
    environment = [f"{key}={value}" for key, value in _ENVIRONMENT.items()]
    enter = ["nsenter", "-t", str(leader.pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w"]
    return [*enter, "--", "env", "-i", *environment, *argv]
