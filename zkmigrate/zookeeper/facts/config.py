"""Facts from a host's zoo.cfg: settings and server lines, including those of its dynamic file."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from zkmigrate.hosts.facts.status import unit_status
from zkmigrate.inventory.inventory import Service
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.four_letter_words import parse_conf, parse_works_in
from zkmigrate.zookeeper.data.zoocfg import ServerLine, ZooCfgError, parse_server_line, parse_zoocfg
from zkmigrate.zookeeper.facts.ensemble import answer

DEFAULT_TICK_MS = 3000
ANY_ADDRESS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")
"""Listening addresses that name no host. In a server line such an address means the server's own host."""
DYNAMIC = "dynamicConfigFile"
VERSION = "version"
ADDRESS_SETTINGS = (
    "clientPortAddress",
    "secureClientPortAddress",
    "admin.serverAddress",
    "metricsProvider.httpHost",
)
"""Keys whose value is an address on which the server itself listens."""
_SUFFIX = re.compile(r".*\.([0-9a-fA-F]{1,16})")


@dataclass(frozen=True)
class ZooConfig:
    """The settings and server lines of a host.

    values: the effective value of every key except server lines. servers: the server lines by myid. odd:
    unsupported lines (several addresses for one server, groups, weights).
    """

    values: Mapping[str, str]
    servers: Mapping[int, ServerLine]
    odd: tuple[str, ...] = field(default=())

    @cached_property
    def version(self) -> int:
        """The version of the ensemble's member list.

        It is the hexadecimal suffix of the dynamic file's name, or without such a file the setting
        ``version``. The version is 0 if the value used is not a number, as in ZooKeeper.
        """
        if DYNAMIC in self.values:
            suffix = _SUFFIX.fullmatch(self.values[DYNAMIC].strip())
            return int(suffix[1], 16) if suffix else 0
        text = self.values.get(VERSION, "").strip()
        return int(text, 16) if re.fullmatch(r"[0-9a-fA-F]{1,16}", text) else 0

    @property
    def session_bounds_ms(self) -> tuple[int, int] | None:
        """The smallest and largest session timeout in ms that this server grants, 2 and 20 ticks by default.

        None if a value is not a number.
        """
        tick = self._number("tickTime", DEFAULT_TICK_MS)
        low, high = self._number("minSessionTimeout", -1), self._number("maxSessionTimeout", -1)
        if tick is None or low is None or high is None:
            return None
        return (2 * tick if low < 0 else low, 20 * tick if high < 0 else high)

    @property
    def init_ms(self) -> int | None:
        """The time in ms for which a leader waits for a learner to load its snapshot: initLimit ticks.

        None if initLimit is not set or a value is not a number.
        """
        tick, limit = self._number("tickTime", DEFAULT_TICK_MS), self._number("initLimit", 0)
        return tick * limit if tick and limit else None

    def _number(self, key: str, default: int) -> int | None:
        text = self.values.get(key, str(default)).strip()
        return int(text) if re.fullmatch(r"[-+]?[0-9]{1,9}", text) else None


def is_one_host(address: str) -> bool:
    """Return whether only one host can listen on this address: it is neither 0.0.0.0 nor loopback."""
    try:
        parsed = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return address.lower() != "localhost"
    return not (parsed.is_unspecified or parsed.is_loopback)


def setting(config: ZooConfig, flags: Mapping[str, str], key: str) -> str | None:
    """Return a server's value for a key that is also a system property, stripped; None if not set.

    flags: the server's ``-D`` options. A key of zoo.cfg for which QuorumPeerConfig.parseProperties has no
    field becomes the system property ``zookeeper.KEY``, which overrides ``-Dzookeeper.KEY``.
    """
    value = config.values.get(key, flags.get(f"zookeeper.{key}"))
    return None if value is None else value.strip()


def zoo_config(
    look: Look, host: str, path: str, service: Service | None = None, commands: tuple[str, ...] = ()
) -> Reading[ZooConfig]:
    """Read the zoo.cfg of a host, and the dynamicConfigFile if zoo.cfg names one.

    A relative dynamicConfigFile is below the server's working directory, which is read from ``conf``,
    ``envi`` or the server's process. service: the server's service, on a host that has zkm-host. commands:
    the service's own commands, to be used instead of systemd.
    """
    static = _config(look, host, path)
    if not isinstance(static, Seen) or DYNAMIC not in static.value.values:
        return static
    place = dynamic_file(look, host, static.value, service, commands)
    if not isinstance(place, Seen):
        return place
    dynamic = _config(look, host, place.value)
    if not isinstance(dynamic, Seen):
        return Unknown("failed", f"dynamicConfigFile {place.value}: {dynamic}")
    servers = {**static.value.servers, **dynamic.value.servers}
    return Seen(ZooConfig(static.value.values, servers, static.value.odd + dynamic.value.odd))


def dynamic_file(
    look: Look, host: str, config: ZooConfig, service: Service | None = None, commands: tuple[str, ...] = ()
) -> Reading[str]:
    """Return the absolute path of the dynamicConfigFile in a host's config. Arguments: see `zoo_config`."""
    name = config.values[DYNAMIC].strip()
    directory = Seen("/") if name.startswith("/") else _working_directory(look, host, config.values)
    if (
        not isinstance(directory, Seen)
        and service is not None
        and not posixpath.normpath(name).startswith("..")
    ):
        status = unit_status(look, host, service.unit, commands)
        pid = status.value.unit_pid if isinstance(status, Seen) else 0
        directory = Seen(f"/proc/{pid}/cwd") if pid else directory
    if not isinstance(directory, Seen):
        why = f"is a relative path, and the server's working directory is unknown: {directory}"
        return Unknown("failed", f"dynamicConfigFile {name} {why}")
    return Seen(posixpath.normpath(posixpath.join(directory.value, name)))


def _working_directory(look: Look, host: str, values: Mapping[str, str]) -> Reading[str]:
    """Read the working directory of a host's ZooKeeper server.

    ``conf`` shows the directory if dataDir or dataLogDir is relative. Otherwise ``envi`` is read, which fewer
    servers allow.
    """
    for key in ("dataDir", "dataLogDir"):
        given = posixpath.normpath(values.get(key, "").strip() or "/")
        if given.startswith(("/", "..")):
            continue
        reading = answer(look, host, "conf", parse_conf)
        path = reading.value.values.get(key, "") if isinstance(reading, Seen) else ""
        whole = posixpath.normpath(path).removesuffix("/version-2") if path.startswith("/") else ""
        if whole and (given == "." or whole.endswith(f"/{given}")):
            return Seen(whole if given == "." else whole.removesuffix(f"/{given}") or "/")
    return answer(look, host, "envi", parse_works_in)


def _config(look: Look, host: str, path: str) -> Reading[ZooConfig]:
    reading = look.file(host, path)
    if not isinstance(reading, Seen):
        return reading
    try:
        # Java reads properties as ISO-8859-1.
        return Seen(parse(reading.value.decode("iso-8859-1"), path))
    except ZooCfgError as error:
        return Unknown("garbled", str(error))


def parse(text: str, file: str = "zoo.cfg") -> ZooConfig:
    """Parse the text of a zoo.cfg or of a dynamic config file. Raises ZooCfgError."""
    values: dict[str, str] = {}
    servers: dict[int, ServerLine] = {}
    odd: list[str] = []
    for key, value in parse_zoocfg(text, file).values().items():
        if key.startswith(("group.", "weight.")):
            odd.append(f"{key}={value}")
        elif key.startswith("server."):
            try:
                server = parse_server_line(key, value, file)
            except ZooCfgError:
                odd.append(f"{key}={value}")
            else:
                servers[server.sid] = server
        else:
            values[key] = value
    return ZooConfig(values, servers, tuple(odd))
