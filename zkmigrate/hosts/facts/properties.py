"""Facts from Java properties files of a host, such as ``server.properties``, and from JVM flags."""

from __future__ import annotations

import re
from collections.abc import Mapping

from zkmigrate import java_properties
from zkmigrate.hosts.facts import keyvalue
from zkmigrate.hosts.facts.servers import ZOOKEEPER
from zkmigrate.java_properties import PropertiesError
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look

_SERVER = re.compile(rf"(\S*/)?java\s(.*\s)?({'|'.join(map(re.escape, ZOOKEEPER.mains))})(\s.*)?")
_FLAG = re.compile(r"-D([A-Za-z0-9_.-]+)=([^\s\"']*)")


def properties(look: Look, host: str, path: str) -> Reading[Mapping[str, str]]:
    """Read a Java properties file of a host."""
    return properties_of(look.file(host, path), path)


def properties_of(reading: Reading[bytes], path: str) -> Reading[Mapping[str, str]]:
    """Parse the content of a properties file. Returns Unknown if Java would reject it."""
    if not isinstance(reading, Seen):
        return reading
    return parsed(reading.value.decode(java_properties.ENCODING), path)


def parsed(text: str, path: str) -> Reading[Mapping[str, str]]:
    """Parse the text of a properties file. Returns Unknown if Java would reject it."""
    try:
        return Seen(java_properties.parse(text))
    except PropertiesError as error:
        return Unknown("garbled", f"{path}: {error}")


def system_properties(look: Look, host: str, path: str) -> Reading[Mapping[str, str]]:
    """Return the ``-Dkey=value`` flags in a file of JVM settings; empty if there is no such file."""
    reading = look.file(host, path)
    if isinstance(reading, Absent):
        return Seen({})
    if isinstance(reading, Unknown):
        return reading
    text = reading.value.decode("utf-8", "replace")
    return Seen(flags_of("\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))))


def flags_of(text: str) -> dict[str, str]:
    """Return the ``-Dkey=value`` flags in a text. The last value of a repeated flag counts."""
    return dict(_FLAG.findall(text))


def running_flags(look: Look, host: str) -> Reading[Mapping[str, str]]:
    """Return the ``-Dkey=value`` flags of the ZooKeeper process on a host.

    Unknown if several run. Absent if none is visible: the account may see only its own processes, or the
    server runs in a container.
    """
    reading = look.processes(host)
    if not isinstance(reading, Seen):
        return reading
    found = [line for line in keyvalue.lines(reading.value) if _SERVER.fullmatch(line.strip())]
    if len(found) > 1:
        return Unknown("failed", f"{len(found)} ZooKeeper servers run on {host}")
    return Seen(flags_of(found[0])) if found else Absent("no ZooKeeper server among the visible processes")
