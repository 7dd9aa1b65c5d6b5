"""The flags that a ZooKeeper's JVM was really started with, from the host's list of processes."""

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
    """The ``-Dkey=value`` flags of the host's ZooKeeper; Absent where none is seen to run (the account may be
    shown its own processes only, or the server be in a container), Unknown where several are."""
    reading = look.processes(host)
    if not isinstance(reading, Seen):
        return reading
    found = [line for line in reading.value.splitlines() if _SERVER.fullmatch(line.strip())]
    if len(found) > 1:
        return Unknown("failed", f"{len(found)} ZooKeeper servers run on {host}")
    return Seen(flags_of(found[0])) if found else Absent("a ZooKeeper among the processes that are shown")
