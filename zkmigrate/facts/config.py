"""zoo.cfg of a host, as typed: its settings and server lines, those of its dynamic file included.

zoo.cfg is read by ZooKeeper as java.util.Properties. Server lines: ``server.N=HOST:QUORUM:ELECTION[:ROLE]``
with, since 3.5, ``;[ADDRESS:]CLIENTPORT`` behind (``QuorumPeer.QuorumServer``); an IPv6 host stands in
brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.facts.properties import parse_properties
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import Look

DEFAULT_TICK_MS = 3000
_SERVER = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]|;]+):(?P<quorum>\d{1,5}):(?P<election>\d{1,5})"
    r"(?::(?P<role>participant|observer))?(?:;(?:(?P<address>[^;]*):)?(?P<client>\d{1,5}))?"
)


@dataclass(frozen=True)
class ServerLine:
    """One server of an ensemble as a config names it; ``client`` is the port behind ``;``, None without."""

    myid: int
    host: str
    quorum: int
    election: int
    observer: bool = False
    client: int | None = None


@dataclass(frozen=True)
class ZooConfig:
    """A config. values: every key that is no server line, the last of each. servers: by myid.

    odd: server lines that are not understood here (several addresses, names of groups), as typed.
    """

    values: Mapping[str, str]
    servers: Mapping[int, ServerLine]
    odd: tuple[str, ...] = field(default=())

    @property
    def tick_ms(self) -> int | None:
        """tickTime in milliseconds; None when it is not a number."""
        return self._number("tickTime", DEFAULT_TICK_MS)

    @property
    def session_bounds_ms(self) -> tuple[int, int] | None:
        """Least and largest session timeout this server grants: 2 and 20 ticks unless set."""
        tick = self.tick_ms
        if tick is None:
            return None
        low = self._number("minSessionTimeout", 2 * tick)
        high = self._number("maxSessionTimeout", 20 * tick)
        if low is None or high is None:
            return None
        return (2 * tick if low < 0 else low, 20 * tick if high < 0 else high)

    def _number(self, key: str, default: int) -> int | None:
        text = self.values.get(key)
        if text is None:
            return default
        return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text.strip()) else None


def zoo_config(look: Look, host: str, path: str) -> Reading[ZooConfig]:
    """The config of a host; its dynamicConfigFile is read too where the config names one."""
    static = _text(look, host, path)
    if not isinstance(static, Seen):
        return static
    parsed = parse(static.value)
    dynamic = parsed.values.get("dynamicConfigFile")
    if dynamic is None:
        return Seen(parsed)
    more = _text(look, host, dynamic)
    if not isinstance(more, Seen):
        return Unknown("failed", f"dynamicConfigFile {dynamic}: {more}")
    extra = parse(more.value)
    return Seen(ZooConfig(parsed.values, {**parsed.servers, **extra.servers}, parsed.odd + extra.odd))


def parse(text: str) -> ZooConfig:
    """Parse the text of a zoo.cfg or of a dynamic config file."""
    values: dict[str, str] = {}
    servers: dict[int, ServerLine] = {}
    odd: list[str] = []
    for key, value in parse_properties(text).items():
        if not key.startswith("server."):
            values[key] = value.strip()
            continue
        number, match = key.removeprefix("server."), _SERVER.fullmatch(value.strip())
        if match is None or not number.isdecimal():
            odd.append(f"{key}={value}")
            continue
        servers[int(number)] = ServerLine(
            int(number),
            match["host"].strip("[]"),
            int(match["quorum"]),
            int(match["election"]),
            match["role"] == "observer",
            int(match["client"]) if match["client"] else None,
        )
    return ZooConfig(values, servers, tuple(odd))


def _text(look: Look, host: str, path: str) -> Reading[str]:
    reading = look.file(host, path)
    if not isinstance(reading, Seen):
        return reading
    try:
        return Seen(reading.value.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Unknown("garbled", f"{path} is not UTF-8 at byte {error.start}")
