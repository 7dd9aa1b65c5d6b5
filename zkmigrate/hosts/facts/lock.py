"""Who holds the lock on a dest host: the file that zkm-host keeps it in, ``key=value`` lines."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.zkm_host import STATE_DIR
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look

FILE = f"{STATE_DIR}/lock"


@dataclass(frozen=True)
class Held:
    """owner: who gave the last heartbeat, ``user-host``; empty where the lock was given up. beat_s: when, in
    seconds of the host's uptime, in its boot ``boot``."""

    run: str
    owner: str
    beat_s: float
    boot: str


def host_lock(look: Look, host: str) -> Reading[Held]:
    """The lock as the host's file holds it; Absent where nobody ever took it."""
    reading = look.file(host, FILE)
    if isinstance(reading, Unknown | Absent):
        return reading
    text = reading.value.decode("utf-8", "replace")
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    try:
        return Seen(Held(said["run"], said["owner"], int(said["beat"]) / 1000, said["boot"]))
    except (KeyError, ValueError) as error:
        return Unknown("garbled", f"{FILE} is not what zkm-host writes there: {error!r}")
