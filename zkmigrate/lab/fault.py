"""Inject faults on a named host of a running lab; each fault has its inverse beside it.

Every function returns once the fault has taken effect, and raises LabError if it could not cause the fault.
"""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from zkmigrate.lab import control_groups, network, render, service
from zkmigrate.lab import host as lab_host
from zkmigrate.lab.commands import run
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import HostFile
from zkmigrate.lab.wait import wait_until

_FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
_FAKETIME_OFFSET, _PRELOAD = "/etc/faketimerc", "/etc/ld.so.preload"
_SLOW_FSYNC = "/usr/local/lib/slow_fsync.so"
_FSYNC_DELAY = "/run/fsync-delay-ms"
_FILL_DISK = """
cat /dev/zero >> "$1/ballast.big" 2> /dev/null
sync "$1/ballast.big"
# One large file leaves a few blocks that small ones still get; full is when a single block is refused.
i=0
while dd if=/dev/zero of="$1/ballast.$i" bs=1k count=1 conv=fsync status=none 2> /dev/null; do
    i=$((i + 1))
    [ $i -lt 10000 ] || exit 1
done
"""
"""The script that fills a disk.

It creates only files, because Kafka refuses a log directory that contains a foreign directory.
"""


def unit_of(lab: Lab, host: str) -> str:
    """Return the systemd unit of a host's server. Raises LabError if the host has no server or no unit."""
    role = lab.host(host).role
    if not service.has_server(role):
        raise LabError(f"{host} runs no server; this fault needs a ZooKeeper, broker or gateway host")
    if service.has_script(lab.spec, role):
        raise LabError(
            f"{host} has no systemd unit, because scripts start its server. This fault needs a unit"
        )
    return f"{service.name_of(role)}.service"


def _main_pid(lab: Lab, host: str) -> int:
    """Return the server's pid inside its host. Raises LabError if the unit does not run."""
    unit = unit_of(lab, host)
    pid = int(lab.exec(host, ["systemctl", "show", "--property=MainPID", "--value", unit]).stdout)
    if pid == 0:
        raise LabError(f"{unit} does not run on {host}. Next: start the server")
    return pid


def _signal(lab: Lab, host: str, name: str, states: str) -> None:
    """Send a signal to the server and wait until each of its threads is in one of `states`.

    states: letters of proc(5); X means that the process no longer exists. All threads are checked, because
    some continue for a moment after the first thread has stopped.
    """
    pid = _main_pid(lab, host)
    lab.exec(host, ["kill", f"-{name}", str(pid)])

    def missing() -> str | None:
        seen = lab.exec(host, ["sh", "-c", f"cat /proc/{pid}/task/*/stat"], check=False)
        found = {line.rpartition(") ")[2][:1] for line in seen.stdout.splitlines()} or {"X"}
        return None if found <= set(states) else f"threads in states {found}, wanted one of {states}"

    wait_until(f"SIG{name} on {host}", missing, 10, poll_s=0.02)


def kill(lab: Lab, host: str) -> None:
    """Kill the server with SIGKILL, and wait until systemd has noticed. Inverse: `start`."""
    unit = unit_of(lab, host)
    _signal(lab, host, "KILL", "ZX")

    def missing() -> str | None:
        # An earlier start would find an active unit and do nothing.
        state = lab.exec(host, ["systemctl", "is-active", unit], check=False).stdout.strip()
        return state if state in ("active", "deactivating") else None

    wait_until(f"systemd of {host} has noticed the end of the server", missing, 10, poll_s=0.02)


def start(lab: Lab, host: str) -> None:
    """Start the host's server."""
    lab.exec(host, ["systemctl", "start", unit_of(lab, host)])


def pause(lab: Lab, host: str) -> None:
    """Stop the server with SIGSTOP; its sockets stay open. Inverse: `resume`."""
    _signal(lab, host, "STOP", "T")


def resume(lab: Lab, host: str) -> None:
    """Let a paused server continue."""
    _signal(lab, host, "CONT", "RSD")


def freeze(lab: Lab, host: str) -> None:
    """Stop every process of a host; its kernel keeps the connections. Inverse: `thaw`."""
    control_groups.freeze(lab.id, lab.host(host).machine, frozen=True)


def thaw(lab: Lab, host: str) -> None:
    """Let the processes of a frozen host continue."""
    control_groups.freeze(lab.id, lab.host(host).machine, frozen=False)


def pause_ssh(lab: Lab, host: str) -> None:
    """Stop every sshd process of a host; everything else runs on. Inverse: `resume_ssh`."""
    lab.exec(host, ["pkill", "-STOP", "sshd"])


def resume_ssh(lab: Lab, host: str) -> None:
    """Let the stopped sshd processes of a host continue."""
    lab.exec(host, ["pkill", "-CONT", "sshd"])


def partition(lab: Lab, host: str, other: str | None = None) -> None:
    """Drop all frames between two hosts, or between a host and all others. Inverse: `heal`.

    The bridge drops the frames, so the hosts notice only silence.
    """
    present = _bridge_rules(lab)
    for rule in _partition_rules(lab, host, other):
        if rule not in present:
            _ebtables(lab, "-A", *rule)


def heal(lab: Lab, host: str, other: str | None = None) -> None:
    """End a partition that was caused with the same arguments."""
    present = _bridge_rules(lab)
    for rule in _partition_rules(lab, host, other):
        if rule in present:
            _ebtables(lab, "-D", *rule)


def _partition_rules(lab: Lab, host: str, other: str | None) -> list[tuple[str, ...]]:
    """Return the ebtables rules of a partition, in the format of `ebtables -L`.

    The bridge's ports have the names of the machines.
    """
    here = lab.host(host).machine
    if other is None:
        return [("FORWARD", "-i", here, "-j", "DROP"), ("FORWARD", "-o", here, "-j", "DROP")]
    there = network.OPERATOR if other == network.OPERATOR else lab.host(other).machine
    return [
        ("FORWARD", "-i", here, "-o", there, "-j", "DROP"),
        ("FORWARD", "-i", there, "-o", here, "-j", "DROP"),
    ]


def _ebtables(lab: Lab, *words: str) -> str:
    return run(["ip", "netns", "exec", lab.bridge_netns, "ebtables", *words])


def _bridge_rules(lab: Lab) -> list[tuple[str, ...]]:
    return [
        ("FORWARD", *line.split()) for line in _ebtables(lab, "-L", "FORWARD").splitlines() if "-j" in line
    ]


def rules_removed(lab: Lab, host: str) -> None:
    """Remove all packet filter rules of a host, but no ipset, as a firewall reload does.

    There is no inverse.
    """
    for program in ("iptables", "ip6tables"):
        lab.exec(host, [program, "-F"])
        lab.exec(host, [program, "-X"])


def clock(lab: Lab, host: str, offset_s: float) -> None:
    """Set the host's clock wrong by `offset_s` seconds. Inverse: `clock_restore`.

    All hosts share the machine's clock, so libfaketime fakes the time for every program that starts from now
    on: ssh logins, their commands, and the server, which is restarted if it is running.
    """
    root = lab.host(host).root
    lab_host.place(root, HostFile(_FAKETIME_OFFSET, f"{offset_s:+g}s\n"))
    lab_host.place(root, HostFile(_PRELOAD, f"{_FAKETIME}\n"))
    _restart_services(lab, host)


def clock_restore(lab: Lab, host: str) -> None:
    """Set the host's clock right again, and restart its server if the server is running."""
    lab.exec(host, ["rm", "-f", _PRELOAD, _FAKETIME_OFFSET])
    _restart_services(lab, host)


def _restart_services(lab: Lab, host: str) -> None:
    """Restart the server and sshd if they are running.

    sshd must have the same preloaded library as the logins, which would break otherwise.
    """
    own = [unit_of(lab, host)] if service.has_server(lab.host(host).role) else []
    lab.exec(host, ["systemctl", "try-restart", "ssh.service", *own], timeout_s=120)


def slow_disk(lab: Lab, host: str, delay_ms: int) -> None:
    """Delay each fsync of the server by `delay_ms` milliseconds. Inverse: `slow_disk_restore`.

    The first call restarts the server (a library is preloaded); later calls change the delay at once.
    """
    root = lab.host(host).root
    lab.exec(host, ["sh", "-c", f"echo {delay_ms:d} > {_FSYNC_DELAY}"])
    drop_in = _slow_disk_drop_in(lab, host)
    if (root / drop_in.lstrip("/")).exists():
        return
    _compile_slow_fsync(root / _SLOW_FSYNC.lstrip("/"))
    settings = f'[Service]\nEnvironment="LD_PRELOAD={_SLOW_FSYNC}" "ZKM_FSYNC_DELAY_FILE={_FSYNC_DELAY}"\n'
    lab_host.place(root, HostFile(drop_in, settings))
    _restart(lab, host)


def slow_disk_restore(lab: Lab, host: str) -> None:
    """Remove the delay of fsync, and restart the server if it had a delay."""
    drop_in = lab.host(host).root / _slow_disk_drop_in(lab, host).lstrip("/")
    lab.exec(host, ["rm", "-f", _FSYNC_DELAY])
    if drop_in.exists():
        drop_in.unlink()
        _restart(lab, host)


def _slow_disk_drop_in(lab: Lab, host: str) -> str:
    return f"{render.UNITS}/{unit_of(lab, host)}.d/fault-slow-disk.conf"


def _compile_slow_fsync(target: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LabError(
            "a slow disk needs a C compiler, which this machine lacks. Next: install gcc and libc6-dev"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with as_file(files("zkmigrate.lab") / "data" / "slow_fsync.c") as source:
        run([compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(target), str(source), "-ldl"])
    target.chmod(0o755)


def _restart(lab: Lab, host: str) -> None:
    lab.exec(host, ["systemctl", "daemon-reload"])
    lab.exec(host, ["systemctl", "restart", unit_of(lab, host)], timeout_s=120)


def disk_full(lab: Lab, host: str, disk: int = 1) -> None:
    """Fill a data disk of the host to the last byte. Inverse: `disk_free`.

    disk: the number of the disk, from 1. The lab must have separate disks for data: `data_disk_mb` for
    ZooKeeper hosts, `disks_mb` in the shape for brokers.
    """
    lab.exec(host, ["sh", "-c", _FILL_DISK, "sh", _data_disk(lab, host, disk)], timeout_s=120)


def disk_free(lab: Lab, host: str, disk: int = 1) -> None:
    """Free the space that `disk_full` took."""
    lab.exec(host, ["sh", "-c", 'rm -f "$1"/ballast.*', "sh", _data_disk(lab, host, disk)])


def _data_disk(lab: Lab, host: str, disk: int) -> str:
    """Return the mount point of a data disk of the host. Raises LabError if there is no such disk."""
    unit_of(lab, host)
    disks = list(render.data_disks(lab.spec, lab.plans[host]))
    if not 0 < disk <= len(disks):
        raise LabError(
            f"{host} has {len(disks)} separate data disks, so disk {disk} cannot be filled. Needed: a lab "
            "with separate disks (lab up --data-disk-mb 512 for ZooKeeper, disks_mb in the shape for brokers)"
        )
    return disks[disk - 1]


def reboot(lab: Lab, host: str, *, hard: bool = False) -> None:
    """Stop the host and start it again. Packet filter rules and sets are lost, as in any reboot.

    `hard` cuts the power of the processes (no clean stop); data that they had written to the kernel survives.
    Enabled units start. The host is back within a second, so a broker that was stopped hard may find its own
    old session and refuse to start. To avoid that, use `power_cut` and, after the session timeout,
    `power_on`.
    """
    if hard:
        lab.cut_power(host)
    else:
        lab.power_off(host)
    power_on(lab, host)


def power_cut(lab: Lab, host: str) -> None:
    """Kill every process of the host at once, and leave the host off. Inverse: `power_on`."""
    lab.cut_power(host)


def power_on(lab: Lab, host: str) -> None:
    """Start a host that is off. Its packet filter rules and sets are lost.

    In the lab these rules belong to the network namespace, which outlives the host, so the namespace is
    created again.
    """
    network.remake_host(lab.id, lab.spec, lab.host(host).machine)
    lab.power_on(host)


def operator_cut(lab: Lab) -> None:
    """Disconnect the operator from all hosts. Inverse: `operator_restore`."""
    run(["ip", "-n", lab.bridge_netns, "link", "set", network.OPERATOR, "down"])


def operator_restore(lab: Lab) -> None:
    """Connect the operator to the lab's network again."""
    run(["ip", "-n", lab.bridge_netns, "link", "set", network.OPERATOR, "up"])
