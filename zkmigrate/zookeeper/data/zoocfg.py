"""Parser for zoo.cfg.

ZooKeeper reads the file as Java properties. If a key occurs more than once, the last line is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate import java_properties
from zkmigrate.java_properties import PropertiesError
from zkmigrate.zookeeper.data.errors import ZkDataError

CLIENT_PORT, ADMIN_PORT = 2181, 8080
"""The port that ZooKeeper's clients take by default, and ZooKeeper's default of ``admin.serverPort``."""
_TRIMMED = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes. QuorumPeerConfig trims keys and values."""


class ZooCfgError(ZkDataError):
    """An invalid line or value.

    The text names file and line, and says which value is invalid and which is valid.
    """

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(reason, file)
        self.line = line

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value, from the last line with this key. line: the number of the line where it begins."""

    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class ZooCfg:
    """The settings of a zoo.cfg. entries: the Entry of each key. file: the file's name for messages."""

    entries: Mapping[str, Entry]
    file: str = "zoo.cfg"

    def get(self, key: str) -> str | None:
        """Return a key's value; None if not set."""
        found = self.entries.get(key)
        return None if found is None else found.value

    def values(self) -> dict[str, str]:
        """Return the value of each key, by key."""
        return {key: entry.value for key, entry in self.entries.items()}


def parse_zoocfg(text: str, file: str = "zoo.cfg") -> ZooCfg:
    """Parse a file's text (decoded as ISO-8859-1).

    Raises ZooCfgError for a line without a value, which ZooKeeper silently reads as an empty value.
    """
    entries: dict[str, Entry] = {}
    try:
        for entry in java_properties.entries(text):
            key = entry.key.strip(_TRIMMED)
            if not key or not entry.separated:
                seen = text[entry.start : entry.end]
                raise ZooCfgError(
                    file,
                    entry.line,
                    f"{seen!r} is not key=value, a comment or a blank line",
                )
            entries[key] = Entry(key, entry.value.strip(_TRIMMED), entry.line)
    except PropertiesError as error:
        raise ZooCfgError(file, 0, str(error)) from error
    return ZooCfg(entries, file)


@dataclass(frozen=True, slots=True)
class ServerLine:
    """One server line of a zoo.cfg. IPv6 addresses are stored without brackets.

    Format: `server.SID=host:quorum_port:election_port[:role][;[client_host:]client_port]`. role_given:
    whether the line names the role.
    """

    sid: int
    host: str
    quorum_port: int
    election_port: int
    role: str = "participant"
    client_port: int | None = None
    client_host: str | None = None
    role_given: bool = False

    def render(self) -> str:
        """Return the text after `server.SID=`."""
        text = f"{add_brackets(self.host)}:{self.quorum_port}:{self.election_port}"
        if self.role_given or self.role != "participant":
            text += f":{self.role}"
        if self.client_port is not None:
            client = "" if self.client_host is None else f"{add_brackets(self.client_host)}:"
            text += f";{client}{self.client_port}"
        return text


def add_brackets(host: str) -> str:
    """Return a host as a server line writes it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


_HOST = r"(?:\[(?P<{0}6>[0-9A-Fa-f:.%\w]+)\]|(?P<{0}>[^\[\]:;|\s]+))"
_SERVER = re.compile(
    _HOST.format("host")
    + r":(?P<quorum>\d+):(?P<election>\d+)(?::(?P<role>\w+))?"
    + r"(?:;(?:"
    + _HOST.format("client")
    + r":)?(?P<client_port>\d+))?"
)
SERVER_KEY = re.compile(r"server\.(\d+)")
_ROLES = ("participant", "observer")


def parse_server_line(key: str, value: str, file: str = "zoo.cfg", line: int = 0) -> ServerLine:
    """Parse one `server.SID` value. Raises ZooCfgError."""
    number = SERVER_KEY.fullmatch(key)
    match = _SERVER.fullmatch(value.strip())
    if number is None or match is None:
        several = " (several addresses for one server are not supported)" if "|" in value else ""
        needed = "server.N=host:port:port[:participant|observer][;[host:]port], IPv6 in brackets"
        raise ZooCfgError(file, line, f"{key}={value!r} is not {needed}{several}")
    role = (match["role"] or "participant").lower()
    if role not in _ROLES:
        raise ZooCfgError(
            file, line, f"{key}: unknown role {match['role']!r}. Needed: participant or observer"
        )
    ports = [int(match[name]) for name in ("quorum", "election", "client_port") if match[name]]
    if not all(0 < port < 65536 for port in ports):
        raise ZooCfgError(file, line, f"{key}: a port of {ports} is not in 1..65535")
    if ports[0] == ports[1]:
        raise ZooCfgError(file, line, f"{key}: quorum and election port are both {ports[0]}, but must differ")
    return ServerLine(
        int(number[1]),
        match["host6"] or match["host"],
        ports[0],
        ports[1],
        role,
        ports[2] if len(ports) == 3 else None,
        match["client6"] or match["client"],
        match["role"] is not None,
    )


@dataclass(frozen=True, slots=True)
class ZooSettings:
    """The typed values of a zoo.cfg.

    Limits are in ticks; None if not set, because ZooKeeper has no default.
    """

    init_limit: int | None
    sync_limit: int | None
    servers: dict[int, ServerLine]


def settings(cfg: ZooCfg) -> ZooSettings:
    """Return the typed values. Raises ZooCfgError for a value that ZooKeeper would refuse."""
    read = _Reader(cfg)
    if cfg.get("dataDir") is None:
        raise ZooCfgError(cfg.file, 0, "dataDir is not set")
    if not read.number("tickTime", 3000):
        raise ZooCfgError(cfg.file, 0, "tickTime is 0")
    read.number("minSessionTimeout")
    read.number("maxSessionTimeout")
    init_limit, sync_limit = read.number("initLimit"), read.number("syncLimit")
    read.number("clientPort")
    read.number("secureClientPort")
    servers = read.servers()
    read.one_of("peerType", _ROLES, "participant or observer")
    for key in ("syncEnabled", "reconfigEnabled", "standaloneEnabled", "localSessionsEnabled"):
        read.one_of(key, ("true", "false"), "true or false")
    return ZooSettings(init_limit, sync_limit, servers)


class _Reader:
    """Typed access to a zoo.cfg, with errors that name the line."""

    def __init__(self, cfg: ZooCfg) -> None:
        self._cfg = cfg

    def _fail(self, entry: Entry, needed: str) -> ZooCfgError:
        return ZooCfgError(self._cfg.file, entry.line, f"{entry.key}={entry.value!r}. Needed: {needed}")

    def number(self, key: str, default: int | None = None) -> int | None:
        entry = self._cfg.entries.get(key)
        if entry is None:
            return default
        if not re.fullmatch(r"[+-]?\d+", entry.value):
            raise self._fail(entry, "a whole number")
        return int(entry.value)

    def one_of(self, key: str, words: tuple[str, ...], needed: str) -> None:
        entry = self._cfg.entries.get(key)
        if entry is not None and entry.value.lower() not in words:
            raise self._fail(entry, needed)

    def servers(self) -> dict[int, ServerLine]:
        found: dict[int, ServerLine] = {}
        for key, entry in self._cfg.entries.items():
            if key.startswith("server."):
                server = parse_server_line(key, entry.value, self._cfg.file, entry.line)
                if server.sid in found:
                    raise self._fail(entry, f"one line for server {server.sid}")
                found[server.sid] = server
        return dict(sorted(found.items()))
