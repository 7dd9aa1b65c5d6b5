"""Parses ``server.properties`` of a broker, and the flags of a JVM.

The subset of java.util.Properties in such files: comments, ``=`` ``:`` or blank after the key, continued
lines. Other escapes are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look

_ENTRY = re.compile(r"([^=: \t\f]+)[ \t\f]*[=: \t\f]?[ \t\f]*(.*)", re.DOTALL)
_SERVER = re.compile(
    r"(\S*/)?java\s(.*\s)?org\.apache\.zookeeper\.server\.(quorum\.QuorumPeerMain|ZooKeeperServerMain)(\s.*)?"
)
_FLAG = re.compile(r"-D([A-Za-z0-9_.]+)=([^\s\"']*)")


def properties(look: Look, host: str, path: str) -> Reading[Mapping[str, str]]:
    """The properties file of a host."""
    return properties_of(look.file(host, path), path)


def properties_of(reading: Reading[bytes], path: str) -> Reading[Mapping[str, str]]:
    """A read file as properties; of a repeated key the last value counts, as in Java."""
    if not isinstance(reading, Seen):
        return reading
    try:
        return Seen(parse_properties(reading.value.decode("utf-8")))
    except UnicodeDecodeError as error:
        return Unknown("garbled", f"{path} is not UTF-8 at byte {error.start}")


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values in order."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        if match := _ENTRY.fullmatch(line):
            found.pop(match[1], None)
            found[match[1]] = match[2]
    return found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def system_properties(look: Look, host: str, path: str) -> Reading[Mapping[str, str]]:
    """The ``-Dkey=value`` flags in a file of JVM settings; empty without the file."""
    reading = look.file(host, path)
    if isinstance(reading, Absent):
        return Seen({})
    if isinstance(reading, Unknown):
        return reading
    text = reading.value.decode("utf-8", "replace")
    return Seen(flags_of("\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))))


def flags_of(text: str) -> dict[str, str]:
    """The ``-Dkey=value`` flags in a text; of a repeated flag the last counts."""
    return dict(_FLAG.findall(text))


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
