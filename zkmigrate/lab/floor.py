"""Measure the floor of the window: the time that dest's servers alone need to start on the same data."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor

from zkmigrate.lab.lab import Lab
from zkmigrate.lab.service import control_command
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until

_SERVES_S = 60.0


def measure_floor(lab: Lab) -> float:
    """Stop dest's servers, start all of them at once, and return the seconds until all serve.

    Call this function at the end of a run, because the new ensemble is down meanwhile.
    """
    hosts = lab.role(Role.DEST)

    def unit(action: str) -> None:
        with ThreadPoolExecutor(len(hosts)) as pool:
            list(pool.map(lambda h: lab.exec(h.name, control_command(lab.spec, Role.DEST, action)), hosts))

    with lab.operator():
        unit("stop")
        places = [(host.address, lab.spec.client_port) for host in hosts]
        wait_until("stop of the dest servers", lambda: _listening(places), _SERVES_S, 0.02)
        began = time.monotonic()
        unit("start")

        def missing() -> str | None:
            modes = lab.zookeeper_modes([host.name for host in hosts])
            behind = [name for name, mode in modes.items() if mode not in ("leader", "follower")]
            return ", ".join(behind) or None

        wait_until("dest serves again", missing, _SERVES_S, 0.02)
        return time.monotonic() - began


def _listening(places: list[tuple[str, int]]) -> str | None:
    for address, port in places:
        try:
            socket.create_connection((address, port), 0.5).close()
        except OSError:
            continue
        return address
    return None
