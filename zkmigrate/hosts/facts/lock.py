"""Facts about the lock that a run holds on a dest host."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.zkm_host import STATE_DIR
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look

FILE = f"{STATE_DIR}/lock"


@dataclass(frozen=True)
class Lock:
    """The lock of a run on one dest host.

    owner: the process of the last heartbeat, as ``user-host``; empty after a release. beat_s: the time of
    that heartbeat, in seconds of the host's uptime. boot: the id of the host's boot to which that uptime
    belongs.
    """

    run: str
    owner: str
    beat_s: float
    boot: str


def host_lock(look: Look, host: str) -> Reading[Lock]:
    """Read the lock from zkm-host's file of ``key=value`` lines; Absent if it was never taken."""
    reading = look.file(host, FILE)
    if isinstance(reading, Unknown | Absent):
        return reading
    text = reading.value.decode("utf-8", "replace")
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    try:
        return Seen(Lock(values["run"], values["owner"], int(values["beat"]) / 1000, values["boot"]))
    except (KeyError, ValueError) as error:
        return Unknown("garbled", f"cannot parse {FILE}: {error!r}")
