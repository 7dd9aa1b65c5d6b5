"""The process that renews leases beside the walk, so that nothing in the walk's own process delays them.

One call of Python's JSON blocks every thread of a process. So a second process renews as well, over its own
ssh connections. The two share numbers in memory: the orders (until when, for how long) and when each host was
last reached. The child does not judge answers: where it does not reach a host, the watch's own thread sends
the renewal and reads the answer. The child ends with its parent, when its standard input closes.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.hosts.transport.channels import Channels, zkm_host
from zkmigrate.hosts.transport.route import Hosts
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.hosts.zkm_host import INSTALLED_PATH
from zkmigrate.inventory.inventory import Lease, Ssh

_LEAST_LIMIT_S = 1.0
_LEAST_MS = 1
_UNTIL, _NUMBER, _EVERY_MS, _FENCE_MS, _CUT_MS, _REACHED = range(6)


def limit_s(cut_ms: float) -> float:
    """Return the seconds after which a renewal is abandoned, for a cut of this length.

    A longer cut was chosen because the hosts answer slowly, so the limit grows with it.
    """
    return max(_LEAST_LIMIT_S, cut_ms / 2000)


@dataclass(frozen=True)
class _Reach:
    ssh: Ssh
    addresses: Mapping[str, str]

    def address(self, name: str) -> str:
        return self.addresses[name]


class SecondRenewer:
    """The watch's interface to a second process that renews. This base class renews nothing."""

    def ready(self) -> None:
        """Log in to the hosts, because FENCE may be sent soon."""

    def renew(self, lease: Lease, until: float) -> None:
        """Renew every host from now on, never past ``until`` (monotonic seconds; 0: do not renew)."""

    def reached(self, host: str) -> float:  # noqa: ARG002
        """Return when the process last renewed the lease of this host (monotonic seconds).

        Return 0 if it never did, if the last renewal failed, or if the process has ended.
        """
        return 0.0

    def close(self) -> None:
        """End the process."""


class SharedNumbers:
    """The numbers that the two processes share: one double for each order, then one for each host."""

    def __init__(self, file: int, hosts: tuple[str, ...]) -> None:
        size = (_REACHED + len(hosts)) * ctypes.sizeof(ctypes.c_double)
        os.ftruncate(file, size)
        self._hosts = hosts
        # A ctypes item is written as one word, so that no reader gets half of a number.
        self._all = (ctypes.c_double * (_REACHED + len(hosts))).from_buffer(mmap.mmap(file, size))

    def order(self, lease: Lease, number: int, until: float) -> None:
        self._all[_NUMBER] = number
        self._all[_EVERY_MS] = lease.renew_every_ms
        self._all[_FENCE_MS] = lease.fence_ttl_ms
        self._all[_CUT_MS] = lease.cut_ttl_ms
        self._all[_UNTIL] = until

    @property
    def number(self) -> int:
        return int(self._all[_NUMBER])

    @number.setter
    def number(self, number: int) -> None:
        self._all[_NUMBER] = number

    @property
    def every_s(self) -> float:
        return (self._all[_EVERY_MS] or Lease().renew_every_ms) / 1000

    def times_ms(self) -> tuple[int, int] | None:
        """Return the milliseconds for which to renew the fence and the cut now, or None to renew nothing."""
        left = (self._all[_UNTIL] - time.monotonic()) * 1000
        if left < _LEAST_MS:
            return None
        return int(min(self._all[_FENCE_MS], left)), int(min(self._all[_CUT_MS], left))

    def reached(self, host: str) -> float:
        return self._all[_REACHED + self._hosts.index(host)]

    def sent(self, host: str, *, reached: bool) -> None:
        self._all[_REACHED + self._hosts.index(host)] = time.monotonic() if reached else 0.0


class RenewalProcess(SecondRenewer):
    """The second process of a run, which renews leases.

    It is started at the first ``ready`` or ``renew``, and not again before ``close``. If it cannot be
    started, ``reached`` returns 0 for every host, so that the watch's own threads renew.

    names: the hosts whose leases it renews. hosts: how to reach them. number: returns the run's fencing
    number, 0 before there is one.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        hosts: Hosts,
        run: str,
        number: Callable[[], int],
        program: str = INSTALLED_PATH,
    ) -> None:
        self._names = names
        self._hosts, self._run, self._program = hosts, run, program
        self._number = number
        self._guard = threading.Lock()
        self._numbers: SharedNumbers | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process, 0 while there is none."""
        return self._child.pid if self._child is not None else 0

    def ready(self) -> None:
        self._started().number = self._number()

    def renew(self, lease: Lease, until: float) -> None:
        if until or self._numbers is not None:
            self._started().order(lease, self._number(), until)

    def reached(self, host: str) -> float:
        child, numbers = self._child, self._numbers
        if child is None or numbers is None or child.poll() is not None:
            return 0.0
        return numbers.reached(host)

    def close(self) -> None:
        with self._guard:
            child, self._child, self._numbers = self._child, None, None
        if child is not None:
            child.kill()
            child.wait()
            if child.stdin is not None:
                with suppress(BrokenPipeError):
                    child.stdin.close()

    def _started(self) -> SharedNumbers:
        with self._guard:
            if self._numbers is None:
                file = os.memfd_create("zkmigrate-renewals")
                try:
                    self._numbers = SharedNumbers(file, self._names)
                    with suppress(OSError):  # the watch's threads renew without it
                        self._start(file)
                finally:
                    os.close(file)
            return self._numbers

    def _start(self, file: int) -> None:
        addresses = {name: self._hosts.address(name) for name in self._names}
        reach = {"ssh": self._hosts.ssh.model_dump_json(), "addresses": addresses}
        setting = json.dumps({**reach, "run": self._run, "program": self._program})
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "zkmigrate.runbook.engine.renewal_process", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(file,),
            # It imports from this process's path, and nothing from the operator's current directory (-P).
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            # Ctrl-C at the terminal is for the walk, which decides when renewals end.
            start_new_session=True,
        )
        if self._child.stdin is not None:
            self._child.stdin.write(setting.encode() + b"\n")
            self._child.stdin.flush()


def _keep(numbers: SharedNumbers, host: str, channels: Channels) -> None:
    """Renew the lease of one host forever, as ordered; while nothing is ordered, keep the channel open."""
    opened = 0
    while True:
        number, times = numbers.number, numbers.times_ms()
        try:
            if times is not None:
                words = ("renew", *map(str, times))
                answer = channels.ask(host, *words, fencing=number, deadline_s=limit_s(times[1]))
                numbers.sent(host, reached=answer.rc == 0)
            elif number != opened:
                channels.open(host, number)
                opened = number
        except HostError:
            numbers.sent(host, reached=False)
        time.sleep(numbers.every_s)


def main() -> None:
    """Run the second process: renew in threads, and end as soon as the parent process has ended."""
    try:
        setting = json.loads(sys.stdin.buffer.readline())
        hosts = _Reach(Ssh.model_validate_json(setting["ssh"]), setting["addresses"])
        names = tuple(setting["addresses"])
        numbers = SharedNumbers(int(sys.argv[1]), names)
        channels = Channels(Transport(hosts), setting["run"], "watch", zkm_host(setting["program"]))
        for host in names:
            threading.Thread(target=_keep, args=(numbers, host, channels), daemon=True).start()
        sys.stdin.buffer.read()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
