"""Draft the source and dest sections: server lines, ports, directories, units and settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TypeVar

from zkmigrate.hosts.facts.host_names import is_address, same_host
from zkmigrate.hosts.facts.servers import ZOOKEEPER
from zkmigrate.hosts.transport.own_addresses import resolve, resolved
from zkmigrate.inventory.checks import OWN_SETTINGS
from zkmigrate.inventory.discovery.draft import Ensemble, Found, HostLine, agreed
from zkmigrate.inventory.discovery.host_survey import HostSurvey, Unit
from zkmigrate.inventory.discovery.hosts import HostReader, absolute, config_of
from zkmigrate.keyed_digest import is_secret
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.zookeeper.data.zoocfg import ADMIN_PORT, ServerLine, ZooCfgError
from zkmigrate.zookeeper.facts.config import (
    ADDRESS_SETTINGS,
    ANY_ADDRESS,
    DYNAMIC,
    ZooConfig,
    is_one_host,
    parse,
)

T = TypeVar("T")

CONFIGS = ("/etc/zookeeper/conf/zoo.cfg", "/etc/zookeeper/zoo.cfg", "/opt/zookeeper/conf/zoo.cfg")
WORDS_NEEDED = ("srvr", "mntr", "cons", "dump")
_PATHS = ("dataDir", "dataLogDir", DYNAMIC)
_WHITELIST = "4lw.commands.whitelist"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VALUE = re.compile(r"([A-Za-z0-9._:/,=@+% -]*|\*)")
NOT_ASKED = Unknown("failed", "not asked")
_LEFT_OUT = {
    "syncEnabled": "an observer without a log cannot be proven",
    "standaloneEnabled": "dest is never standalone",
    "skipACL": "not copied to a new ensemble without review",
}


@dataclass(frozen=True)
class Server:
    """The facts found on a ZooKeeper host.

    path: path of its zoo.cfg. places: the absolute paths that zoo.cfg names, by key.
    """

    address: str
    survey: Reading[HostSurvey]
    path: Found[str]
    config: ZooConfig | None = None
    myid: str = ""
    places: Mapping[str, Reading[str]] = field(default_factory=dict)


@dataclass
class Names:
    """A source of unique host names: the host's own name if it is valid, else role and number."""

    taken: set[str] = field(default_factory=set)

    def name_for(self, survey: Reading[HostSurvey], role: str, number: int, given: str = "") -> str:
        """Return a unique name for a host, and reserve it.

        given: a name from Ansible, which is preferred.
        """
        own = survey.value.name if isinstance(survey, Seen) else ""
        for text in (given, own):
            name = re.sub(r"[^a-z0-9-]+", "-", text.lower().partition(".")[0]).strip("-")[:63].strip("-")
            if name and name not in self.taken and name != "localhost" and not name.isdigit():
                break
        else:
            name = f"{role}{number}"
            while name in self.taken:
                name = f"{name}-{role}"
        self.taken.add(name)
        return name


def survey(reader: HostReader, address: str, configs: tuple[str, ...] = CONFIGS) -> Server:
    """Survey a ZooKeeper host: its processes, its zoo.cfg with the dynamic one, and its myid."""
    runs = reader.survey(address)
    path, text = _config_of(reader, address, runs, configs)
    if path.value is None:
        return Server(address, runs, path)
    try:
        config = parse(text, path.value)
        places = {
            key: absolute(reader, address, runs, ZOOKEEPER, config.values[key].strip())
            for key in _PATHS
            if config.values.get(key, "").strip()
        }
        if DYNAMIC in places:
            dynamic = places[DYNAMIC]
            more = reader.file(address, dynamic.value) if isinstance(dynamic, Seen) else dynamic
            servers = parse(more.value, config.values[DYNAMIC]).servers if isinstance(more, Seen) else {}
            config = ZooConfig(config.values, {**config.servers, **servers}, config.odd)
    except ZooCfgError as error:
        return Server(address, runs, Found(path.value, f"{path.where}, but it cannot be parsed: {error}"))
    config = replace(config, servers={n: _reached(reader, address, s) for n, s in config.servers.items()})
    data_dir = places.get("dataDir")
    myid: Reading[str] | None = None
    if isinstance(data_dir, Seen):
        myid = reader.file(address, f"{data_dir.value.rstrip('/')}/myid")
    return Server(address, runs, path, config, myid.value.strip() if isinstance(myid, Seen) else "", places)


def _reached(reader: HostReader, address: str, line: ServerLine) -> ServerLine:
    """Return a server line with an address in place of a name that only the host itself resolves."""
    if is_address(line.host) or resolve(line.host):
        return line
    there = reader.addresses(address, line.host)
    own = [one for one in there.value if is_one_host(one)] if isinstance(there, Seen) else []
    return replace(line, host=own[0]) if own else line


def _config_of(
    reader: HostReader, address: str, survey: Reading[HostSurvey], configs: tuple[str, ...]
) -> tuple[Found[str], str]:
    """Find the path and text of zoo.cfg: from the running server, its unit, or the usual paths."""
    if not isinstance(survey, Seen):
        return Found(None, str(survey)), ""
    named = config_of(reader, address, survey.value, ZOOKEEPER)
    candidates = {named.value: named.where} if named.value is not None else {}
    for path in configs:
        candidates.setdefault(path, "there")
    tried: list[str] = []
    for path, where in candidates.items():
        text = reader.file(address, path)
        if isinstance(text, Seen):
            return Found(path, where), text.value
        tried.append(f"{path} ({text})" if isinstance(text, Unknown) else path)
    if named.value is not None:  # no file yet: a dest host that was never configured
        return named, ""
    return Found(None, f"{named.where}, and none of {', '.join(tried)}"), ""


def source_side(
    reader: HostReader, servers: Mapping[str, Server], names: Names, given: Mapping[str, str]
) -> Ensemble:
    """Draft the source section.

    servers: by the surveyed address. given: names for hosts, by address.
    """
    lines = server_lines(servers)
    hosts = []
    for number, (sid, line) in enumerate(sorted(lines.items()), 1):
        server = server_at(servers, line.host)
        survey = server.survey if server else NOT_ASKED
        name = names.name_for(survey, "source", number, given.get(server.address, "") if server else "")
        where = f"server.{sid} in zoo.cfg"
        if server is None or not isinstance(survey, Seen):
            where += f", but not reached: {survey}"
        elif server.myid != str(sid):
            where += f", BUT its myid file has {server.myid or 'no readable value'}"
        observer = line.role == "observer"
        hosts.append(HostLine(name, line.host, sid, _also(line.host), None, where, observer))
    unread = [server.path for server in servers.values() if server.config is None]
    missing = f"no server lines found: {unread[0].where if unread else 'zoo.cfg has none (standalone?)'}"
    return Ensemble(
        tuple(hosts),
        f"{len(hosts)} server lines in zoo.cfg" if hosts else missing,
        *_ports(servers),
        *_paths(reader, servers),
        admin=agreed(
            {at: Found(port, "admin.serverPort in zoo.cfg") for at, port in admin_ports(servers).items()}
        ),
    )


def admin_ports(servers: Mapping[str, Server]) -> Mapping[str, int]:
    """Return the AdminServer's port, by address, of servers that do not use ZooKeeper's default."""
    texts = {at: s.config.values.get("admin.serverPort", "") for at, s in servers.items() if s.config}
    return {at: int(text) for at, text in texts.items() if text.isdecimal() and int(text) != ADMIN_PORT}


def dest_side(
    reader: HostReader, servers: Mapping[str, Server], names: Names, given: Mapping[str, str],
    source: Ensemble, pattern: Mapping[str, str],
) -> Ensemble:  # fmt: skip
    """Draft the dest section, with values from source where these empty hosts have none.

    pattern: source's settings.
    """
    above = max((host.number for host in source.hosts if host.number is not None), default=0)
    start = above // 10 * 10 + 10
    hosts = []
    for number, server in enumerate(servers.values(), 1):
        name = names.name_for(server.survey, "dest", number, given.get(server.address, ""))
        where = "" if isinstance(server.survey, Seen) else f"not reached: {server.survey}"
        myid, origin = start + number, f"free, above source's {above}"
        if server.myid.isdecimal() and above < int(server.myid) < 255:
            myid, origin = int(server.myid), "its myid file"
        if not above:
            origin = "a guess, because source's myids are unknown; it must be above all of them"
        where = "; ".join(filter(None, (where, f"myid: {origin}")))
        hosts.append(HostLine(name, server.address, myid, _also(server.address), None, where))
    client, secure, quorum, election = _ports(servers)
    config, data_dir, log_dir, java_env = _paths(reader, servers)
    own = next((s.config for s in servers.values() if s.config and "tickTime" in s.config.values), None)
    settings, left_out = _settings(own.values if own else pattern)
    return Ensemble(
        tuple(hosts),
        "as given; myids are above all of source's" if hosts else "no --dest given",
        _or_source(client, source.client),
        _or_source(secure, source.secure),
        _or_source(quorum, source.quorum),
        _or_source(election, source.election),
        _or_source(config, source.config),
        _or_source(data_dir, source.data_dir),
        log_dir,
        _or_source(java_env, source.java_env),
        agreed({a: _unit_value(s, "user") for a, s in servers.items()}),
        agreed({a: _unit_value(s, "group") for a, s in servers.items()}),
        agreed({a: _unit_name(s) for a, s in servers.items()}),
        settings,
        "of dest's own zoo.cfg" if own else "copied from source",
        left_out,
    )


def server_lines(servers: Mapping[str, Server]) -> Mapping[int, ServerLine]:
    """Return the server lines of the first config that has any.

    A server's own line may hold 0.0.0.0, which is replaced by the address at which its config was read.
    """
    for server in servers.values():
        if server.config and server.config.servers:
            return {
                sid: replace(line, host=server.address) if line.host in ANY_ADDRESS else line
                for sid, line in server.config.servers.items()
            }
    return {}


def server_at(servers: Mapping[str, Server], host: str) -> Server | None:
    """Return the server that was surveyed at this address, or at another address of the same host."""
    return next((s for a, s in servers.items() if same_host(host, (a,), resolved)), None)


def _also(host: str) -> tuple[str, ...]:
    """Return the addresses behind a name, for rules and client lists; empty for an address."""
    found = resolve(host)
    return (
        () if host in found else tuple(one for one in found if "%" not in one)
    )  # a zone is valid on this machine only


def _ports(servers: Mapping[str, Server]) -> tuple[Found[int], Found[int], Found[int], Found[int]]:
    """Return the ports: for clients without TLS and with TLS, quorum, election."""
    client: dict[str, Found[int]] = {}
    secure: dict[str, Found[int]] = {}
    for address, server in servers.items():
        if server.config is None:
            client[address] = secure[address] = Found(None, f"no zoo.cfg read: {server.path.where}")
            continue
        text = server.config.values.get("secureClientPort", "").strip()
        secure[address] = Found(int(text) if text.isdecimal() else None, "zoo.cfg")
        values = {str(s.client_port) for s in server.config.servers.values() if s.client_port}
        values |= {server.config.values["clientPort"]} if "clientPort" in server.config.values else set()
        one = values.pop() if len(values) == 1 else ""
        client[address] = (
            Found(int(one), "zoo.cfg") if one.isdecimal() else Found(None, "no single clientPort")
        )
    lines = {f"server.{sid}": line for sid, line in server_lines(servers).items()}
    none: Mapping[str, Found[int]] = {"": Found(None, "no server lines")}
    return (
        agreed(client),
        agreed(secure),
        agreed({k: Found(line.quorum_port, "zoo.cfg") for k, line in lines.items()} or none),
        agreed({k: Found(line.election_port, "zoo.cfg") for k, line in lines.items()} or none),
    )


def _paths(
    reader: HostReader, servers: Mapping[str, Server]
) -> tuple[Found[str], Found[str], Found[str], Found[str]]:
    """Return the paths of zoo.cfg, dataDir, dataLogDir and the file with the JVM's flags."""

    def setting(key: str) -> Found[str]:
        found: dict[str, Found[str]] = {}
        for address, server in servers.items():
            place = server.places.get(key, Absent(f"no {key} found"))
            if isinstance(place, Seen):
                found[address] = Found(place.value.rstrip("/"), f"{key} in zoo.cfg")
            else:
                found[address] = Found(None, place.what if isinstance(place, Absent) else str(place))
        return agreed(found)

    return (
        agreed({a: s.path for a, s in servers.items()}),
        setting("dataDir"),
        setting("dataLogDir"),
        agreed({a: _java_env(reader, s) for a, s in servers.items()}),
    )


def _java_env(reader: HostReader, server: Server) -> Found[str]:
    """Find the unit's EnvironmentFile, or else java.env beside zoo.cfg, which ZooKeeper's scripts read."""
    unit = _unit(server)
    files = [path for path in unit.start.files if not set("*?[ ") & set(path)] if unit is not None else []
    if unit is not None and files:
        return Found(files[0], f"EnvironmentFile of {unit.name}")
    if server.path.value is None:
        return Found(None, "neither a unit nor zoo.cfg has it")
    beside = str(PurePosixPath(server.path.value).parent / "java.env")
    if isinstance(reader.file(server.address, beside), Seen):
        return Found(beside, "beside zoo.cfg")
    return Found(None, f"no unit has an EnvironmentFile, and there is no {beside}")


def _settings(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings for dest, and the settings that are left out with the reason.

    The four-letter words that zkmigrate asks dest are added to the whitelist.
    """
    kept: dict[str, str] = {}
    left: dict[str, str] = {}
    for key, value in values.items():
        value = value.strip()
        if key in OWN_SETTINGS:
            continue
        if key in _LEFT_OUT:
            left[key] = f"{_LEFT_OUT[key]} (seen {value})"
        elif is_secret(key):
            left[key] = "its value may be a secret, which must not be in this file"
        elif not _KEY.fullmatch(key):
            left[key] = "its name has characters that migration.yml does not allow"
        elif key in ADDRESS_SETTINGS and is_one_host(value):
            left[key] = f"{value} is an address of one host, and dest's hosts share these lines"
        elif not _VALUE.fullmatch(value):
            left[key] = "its value has characters that migration.yml does not allow"
        else:
            kept[key] = value
    words = [word.strip() for word in kept.get(_WHITELIST, "").split(",") if word.strip()]
    if "*" not in words and not set(WORDS_NEEDED) <= set(words):
        kept[_WHITELIST] = ",".join(dict.fromkeys([*words, *WORDS_NEEDED]))
    return kept, left


def _unit_name(server: Server) -> Found[str]:
    if not isinstance(server.survey, Seen):
        return Found(None, str(server.survey))
    unit = server.survey.value.unit(ZOOKEEPER)
    if unit is None:
        known = ", ".join(server.survey.value.units) or "none"
        return Found(None, f"not exactly one unit named *zookeeper* or zk* (found: {known})")
    return Found(unit.name, "systemctl list-unit-files")


def _unit(server: Server) -> Unit | None:
    return server.survey.value.unit(ZOOKEEPER) if isinstance(server.survey, Seen) else None


def _unit_value(server: Server, key: str) -> Found[str]:
    unit = _unit(server)
    value = getattr(unit, key) if unit is not None else ""
    return Found(value or None, f"{key.capitalize()}= of {unit.name}" if value and unit else "no unit has it")


def _or_source(own: Found[T], source: Found[T]) -> Found[T]:
    if own.value is not None or source.value is None:
        return own
    return Found(source.value, "as on source, because dest has none")
