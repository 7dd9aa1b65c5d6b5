"""Manage a lab's network namespaces: one for each host, one for the operator, and one only for the bridge.

Nothing is created in the machine's own network namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from zkmigrate.lab.commands import run
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.spec import OPERATOR_ADDRESS, SUBNET, LabSpec, machines_of
from zkmigrate.lab.wait import wait_until

NETNS_DIRECTORY = Path("/run/netns")
BRIDGE, OPERATOR = "br", "op"
_CLONE_NEWNET = 0x40000000
"""The constant CLONE_NEWNET of <linux/sched.h>."""


def netns(lab_id: str, member: str) -> str:
    """Return the name of the network namespace of a machine, of the operator ("op") or the bridge ("br")."""
    return f"zkm-{lab_id}-{member}"


def create(lab_id: str, spec: LabSpec) -> None:
    """Create every namespace of the lab and connect them all to the bridge."""
    bridge = netns(lab_id, BRIDGE)
    members = {OPERATOR: OPERATOR_ADDRESS}
    members |= {machine: hosts[0].address for machine, hosts in machines_of(spec).items()}
    run(["ip", "netns", "add", bridge])
    run(
        ["ip", "-n", bridge, "-batch", "-"],
        stdin="link set lo up\nlink add br0 type bridge\nlink set br0 up\n",
    )
    for member, address in members.items():
        _join(lab_id, spec, member, address)


def remake_host(lab_id: str, spec: LabSpec, machine: str) -> None:
    """Replace a machine's namespace by one with the same address, without rules, sets and connections."""
    name = netns(lab_id, machine)
    _end_processes(name)
    # The port would disappear with its peer, but too late: its name is needed at once.
    run(["ip", "-n", netns(lab_id, BRIDGE), "link", "delete", machine])
    run(["ip", "netns", "delete", name])
    _join(lab_id, spec, machine, machines_of(spec)[machine][0].address)


def _join(lab_id: str, spec: LabSpec, member: str, address: str) -> None:
    """Create the namespace of one member and connect it to the bridge."""
    name, bridge = netns(lab_id, member), netns(lab_id, BRIDGE)
    run(["ip", "netns", "add", name])
    # Both ends are created in their namespaces: the machine never sees the pair. The link address follows
    # from the address, so that a host that comes back is found without a new ARP exchange.
    link = ["eth0", "address", link_address(address), "netns", name]
    run(["ip", "link", "add", *link, "type", "veth", "peer", "name", member, "netns", bridge])
    setup = f"link set lo up\naddress add {address}/{SUBNET.prefixlen} dev eth0\nlink set eth0 up\n"
    run(["ip", "-n", name, "-batch", "-"], stdin=setup)
    run(["ip", "-n", bridge, "-batch", "-"], stdin=f"link set {member} master br0\nlink set {member} up\n")
    kbit = spec.bandwidth_kbit.get(member)
    for where, device in ((name, "eth0"), (bridge, member)) if kbit is not None else ():
        limit = ["tbf", "rate", f"{kbit}kbit", "burst", "16kb", "latency", "400ms"]
        run(["tc", "-n", where, "qdisc", "add", "dev", device, "root", *limit])


def link_address(address: str) -> str:
    """Return a locally administered link address made from an IPv4 address."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def existing(lab_id: str) -> tuple[str, ...]:
    """Return the names of the lab's namespaces that exist now."""
    return tuple(sorted(path.name for path in NETNS_DIRECTORY.glob(f"zkm-{lab_id}-*")))


def remove(lab_id: str) -> None:
    """End the processes in the lab's namespaces (such as load clients) and delete the namespaces."""
    for name in existing(lab_id):
        _end_processes(name)
        run(["ip", "netns", "delete", name])


def _end_processes(name: str) -> None:
    """Send SIGTERM, then SIGKILL, to the processes in a namespace, except this one and its ancestors."""
    spared = set(_ancestors())
    found = [ProcessId.of(int(pid)) for pid in run(["ip", "netns", "pids", name]).split()]
    ended = [process for process in found if process is not None and process.pid not in spared]

    def remaining() -> str | None:
        for process in ended:
            process.reap()
        left = [process for process in ended if process.alive()]
        return f"{len(left)} processes" if left else None

    for process in ended:
        process.send(signal.SIGTERM)
    try:
        wait_until(f"processes in {name} ended", remaining, 3, poll_s=0.05)
    except LabError:
        for process in ended:
            process.send(signal.SIGKILL)
        wait_until(f"processes in {name} killed", remaining, 5, poll_s=0.05)


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid > 0:
        yield pid
        status = Path(f"/proc/{pid}/status").read_text()
        pid = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Move the calling thread into a network namespace for the block.

    Sockets opened inside the block, and threads started inside it, stay in the namespace. Raises LabError if
    there is no such namespace.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise LabError(f"cannot enter the network namespace {name}: {os.strerror(number)}")

    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            there = os.open(NETNS_DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LabError(f"there is no network namespace {name}. Needed: a lab that is up") from None
        try:
            enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            enter(here)
    finally:
        os.close(here)
