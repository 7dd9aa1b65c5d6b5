"""Delay the frames from source to a dest host, on kernels without netem.

The host's port is moved to a bridge of its own, and a process carries frames between this bridge and the
lab's bridge over a pair of taps. Frames from source wait; all other frames pass at once. The order is kept,
so TCP sees a longer path and no loss. Meanwhile `fault.partition` does not work for the host, because the
host has no port in the lab's bridge.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from zkmigrate.lab import network
from zkmigrate.lab.commands import run
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
"""The flags IFF_TAP | IFF_NO_PI of <linux/if_tun.h>."""
_LONGEST_FRAME = 65_536
_SOURCE_MAC = slice(6, 12)
_ENDS_S = 10.0


class Delays:
    """The current delay of frames from source to each dest host, created by :func:`delays`."""

    def __init__(self, lab: Lab, hosts: Sequence[str]) -> None:
        self._files = {host: lab.directory / f"delay-{host}-ms" for host in hosts}
        for host in hosts:
            self.set(host, 0)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts whose frames can be delayed."""
        return tuple(self._files)

    def set(self, host: str, milliseconds: int) -> None:
        """Delay frames from source to this host by this many milliseconds from now on."""
        part = self._files[host].with_suffix(".part")
        part.write_text(f"{milliseconds}\n")
        part.rename(self._files[host])

    def file(self, host: str) -> Path:
        """Return the file from which the carrying process reads the delay."""
        return self._files[host]


@contextlib.contextmanager
def delays(lab: Lab, hosts: Sequence[str]) -> Iterator[Delays]:
    """Yield the delays of these hosts, at first 0. Restore the network at the end of the block."""
    made = Delays(lab, hosts)
    with contextlib.ExitStack() as stack:
        for host in hosts:
            stack.enter_context(_carried(lab, host, made.file(host)))
        yield made


@contextlib.contextmanager
def _carried(lab: Lab, host: str, figure: Path) -> Iterator[None]:
    """Run the process that carries this host's frames. At the end, return the host to the lab's bridge.

    figure: the file with the delay in milliseconds.
    """
    number = lab.plans[host].number
    taps = (f"far{number}", f"near{number}")
    macs = [network.link_address(plan.address) for plan in lab.plans.values() if plan.role is Role.SOURCE]
    argv = [sys.executable, "-m", "zkmigrate.lab.delay", *taps, str(figure), ",".join(macs)]
    process = subprocess.Popen(["ip", "netns", "exec", lab.bridge_netns, *argv], stdin=subprocess.DEVNULL)

    def missing() -> str | None:
        if process.poll() is not None:
            raise LabError(
                f"the process that delays frames to {host} ended with exit code {process.returncode}"
            )
        listed = run(["ip", "-n", lab.bridge_netns, "-br", "link"])
        return None if all(f"{tap} " in listed for tap in taps) else f"taps {taps}"

    bridge = f"br-{number}"
    try:
        wait_until(f"carrier of {host}", missing, _ENDS_S, 0.02)
        lines = [
            f"link add {bridge} type bridge",
            f"link set {bridge} up",
            f"link set {taps[0]} master br0",
            f"link set {taps[0]} up",
            f"link set {taps[1]} master {bridge}",
            f"link set {taps[1]} up",
            f"link set {host} master {bridge}",
        ]
        run(["ip", "-n", lab.bridge_netns, "-batch", "-"], stdin="\n".join(lines) + "\n")
        yield
    finally:
        run(["ip", "-n", lab.bridge_netns, "link", "set", host, "master", "br0"])
        process.send_signal(signal.SIGTERM)
        process.wait(_ENDS_S)
        run(["ip", "-n", lab.bridge_netns, "link", "delete", bridge])


def _tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return descriptor


def _frames(descriptor: int) -> Iterator[bytes]:
    """Yield every frame that is waiting in a tap."""
    while True:
        try:
            yield os.read(descriptor, _LONGEST_FRAME)
        except BlockingIOError:
            return


def _put(descriptor: int, frame: bytes) -> None:
    # A tap that is not up yet, or whose queue is full, loses the frame as a wire would.
    with contextlib.suppress(OSError):
        os.write(descriptor, frame)


def carry(far_name: str, near_name: str, figure: Path, macs: frozenset[bytes]) -> None:
    """Carry frames between two taps until SIGTERM. Delay frames from ``macs`` to the near tap.

    figure: a file with the delay in milliseconds, which is read ten times a second.
    """
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    far, near = _tap(far_name), _tap(near_name)
    waiting: deque[tuple[int, bytes]] = deque()
    delay_ns, looked_ns = 0, 0
    while not ended:
        now = time.monotonic_ns()
        if now - looked_ns > 100_000_000:
            delay_ns, looked_ns = int(figure.read_text()) * 1_000_000, now
        while waiting and waiting[0][0] <= now:
            _put(near, waiting.popleft()[1])
        pause_s = min(0.1, (waiting[0][0] - now) / 1e9) if waiting else 0.1
        readable, _, _ = select.select([far, near], [], [], pause_s)
        if near in readable:
            for frame in _frames(near):
                _put(far, frame)
        if far in readable:
            now = time.monotonic_ns()
            for frame in _frames(far):
                # A later frame must not overtake one that still waits because of an earlier, longer delay.
                if frame[_SOURCE_MAC] in macs and (delay_ns or waiting):
                    due = max(now + delay_ns, waiting[-1][0] if waiting else 0)
                    waiting.append((due, frame))
                else:
                    _put(near, frame)


if __name__ == "__main__":
    addresses = frozenset(bytes.fromhex(mac.replace(":", "")) for mac in sys.argv[4].split(","))
    carry(sys.argv[1], sys.argv[2], Path(sys.argv[3]), addresses)
