"""The JVM flags of a running ZooKeeper, from the host's list of processes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from zkmigrate.hosts.facts.properties import flags_of
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look

_SERVER = re.compile(
    r"(\S*/)?java\s(.*\s)?org\.apache\.zookeeper\.server\.(quorum\.QuorumPeerMain|ZooKeeperServerMain)(\s.*)?"
)


def running_flags(look: Look, host: str) -> Reading[Mapping[str, str]]:
    """The ``-Dkey=value`` flags of the host's ZooKeeper; Unknown when several run. Absent when none is seen:
    the account may see only its own processes, or the server runs in a container."""
    reading = look.processes(host)
    if not isinstance(reading, Seen):
        return reading
    found = [line for line in reading.value.splitlines() if _SERVER.fullmatch(line.strip())]
    if len(found) > 1:
        return Unknown("failed", f"{len(found)} ZooKeeper servers run on {host}")
    return Seen(flags_of(found[0])) if found else Absent("a ZooKeeper among the processes that are shown")
