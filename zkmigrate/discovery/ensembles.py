"""Source and dest as their hosts show them: server lines, ports, directories, units, settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

from zkmigrate.discovery.draft import Ensemble, HostLine, Told, agreed
from zkmigrate.discovery.host_survey import ZOOKEEPER, HostSurvey
from zkmigrate.discovery.hosts import Asker
from zkmigrate.hosts.transport.here import resolved
from zkmigrate.inventory.checks import OWN_SETTINGS
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.zookeeper.clients.admin import ADMIN_PORT
from zkmigrate.zookeeper.data.zoocfg import ServerLine, ZooCfgError
from zkmigrate.zookeeper.facts.config import ZooConfig, parse

T = TypeVar("T")

CONFIGS = ("/etc/zookeeper/conf/zoo.cfg", "/etc/zookeeper/zoo.cfg", "/opt/zookeeper/conf/zoo.cfg")
WORDS_NEEDED = ("srvr", "mntr", "cons", "dump")
_WHITELIST = "4lw.commands.whitelist"
_VALUE = re.compile(r"([A-Za-z0-9._:/,=@+% -]*|\*)")
NOT_ASKED = Unknown("failed", "not asked")
_LEFT_OUT = {
    "syncEnabled": "an observer without a log cannot be proven",
    "standaloneEnabled": "dest is never standalone",
    "skipACL": "not for a new ensemble without a second thought",
}


@dataclass(frozen=True)
class Server:
    """One ZooKeeper host as it was seen. path: its zoo.cfg, where one was read."""

    address: str
    survey: Reading[HostSurvey]
    path: Told[str]
    config: ZooConfig | None = None
    myid: str = ""


@dataclass
class Names:
    """Names for hosts, each once: what the host calls itself where that can be one, else role and number."""

    taken: set[str] = field(default_factory=set)

    def of(self, survey: Reading[HostSurvey], role: str, number: int, given: str = "") -> str:
        """given: the name another source has for it."""
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


def look(asker: Asker, address: str, configs: tuple[str, ...] = CONFIGS) -> Server:
    """One ZooKeeper host: what it runs, its zoo.cfg with the dynamic one, its myid."""
    survey = asker.survey(address)
    path, text = _config_of(asker, address, survey, configs)
    if path.value is None:
        return Server(address, survey, path)
    try:
        config = parse(text, path.value)
        if (dynamic := config.values.get("dynamicConfigFile")) is not None:
            more = asker.file(address, dynamic)
            servers = parse(more.value, dynamic).servers if isinstance(more, Seen) else {}
            config = ZooConfig(config.values, {**config.servers, **servers}, config.odd)
    except ZooCfgError as error:
        return Server(address, survey, Told(path.value, f"{path.where}, but not understood: {error}"))
    myid: Reading[str] | None = None
    if data_dir := config.values.get("dataDir"):
        myid = asker.file(address, f"{data_dir.rstrip('/')}/myid")
    return Server(address, survey, path, config, myid.value.strip() if isinstance(myid, Seen) else "")


def _config_of(
    asker: Asker, address: str, survey: Reading[HostSurvey], configs: tuple[str, ...]
) -> tuple[Told[str], str]:
    """Where zoo.cfg is, and its text: the running server's argument, its unit's, the usual places."""
    if not isinstance(survey, Seen):
        return Told(None, str(survey)), ""
    process, unit = survey.value.process(ZOOKEEPER), survey.value.unit(ZOOKEEPER, "zookeeper")
    candidates: dict[str, str] = {}
    if process is not None and process.config.startswith("/"):
        candidates[process.config] = "argument of the running server"
    if unit is not None and (named := unit.config_after(ZOOKEEPER)):
        candidates.setdefault(named, f"ExecStart of {unit.name}")
    told = next(iter(candidates.items()), None)
    for path in configs:
        candidates.setdefault(path, "there")
    tried: list[str] = []
    for path, where in candidates.items():
        text = asker.file(address, path)
        if isinstance(text, Seen):
            return Told(path, where), text.value
        tried.append(f"{path} ({text})" if isinstance(text, Unknown) else path)
    if told is not None:  # nothing there yet: a dest host that was never configured
        return Told(told[0], told[1]), ""
    return Told(None, f"no server runs, no unit names one, and none of {', '.join(tried)}"), ""


def source_side(
    asker: Asker, servers: Mapping[str, Server], names: Names, given: Mapping[str, str]
) -> Ensemble:
    """The source part. servers: by the address they were asked at. given: address → a name for it."""
    lines = server_lines(servers)
    hosts = []
    for number, (sid, line) in enumerate(sorted(lines.items()), 1):
        server = asked_as(servers, line.host)
        survey = server.survey if server else NOT_ASKED
        name = names.of(survey, "source", number, given.get(server.address, "") if server else "")
        where = f"server.{sid} in zoo.cfg"
        if server is None or not isinstance(survey, Seen):
            where += f", but not seen: {survey}"
        elif server.myid != str(sid):
            where += f", BUT its myid file holds {server.myid or 'nothing that was found'}"
        hosts.append(HostLine(name, line.host, sid, _also(line.host), None, where))
    told = [server.path for server in servers.values() if server.config is None]
    missing = f"no server lines found: {told[0].where if told else 'zoo.cfg has none (standalone?)'}"
    return Ensemble(
        tuple(hosts),
        f"{len(hosts)} server lines in zoo.cfg" if hosts else missing,
        *_ports(servers),
        *_paths(servers, lambda server: _java_env(asker, server)),
        admin=agreed(
            {at: Told(port, "admin.serverPort in zoo.cfg") for at, port in admin_ports(servers).items()}
        ),
    )


def admin_ports(servers: Mapping[str, Server]) -> Mapping[str, int]:
    """Port of AdminServer by address, of the servers that have another than ZooKeeper's default."""
    texts = {at: s.config.values.get("admin.serverPort", "") for at, s in servers.items() if s.config}
    return {at: int(text) for at, text in texts.items() if text.isdecimal() and int(text) != ADMIN_PORT}


def dest_side(
    asker: Asker, servers: Mapping[str, Server], names: Names, given: Mapping[str, str], source: Ensemble,
    pattern: Mapping[str, str],
) -> Ensemble:  # fmt: skip
    """The dest part; what these empty hosts do not say is taken from source. pattern: source's settings."""
    above = max((host.number for host in source.hosts if host.number is not None), default=0)
    start = above // 10 * 10 + 10
    hosts = []
    for number, server in enumerate(servers.values(), 1):
        name = names.of(server.survey, "dest", number, given.get(server.address, ""))
        where = "" if isinstance(server.survey, Seen) else f"not seen: {server.survey}"
        myid, told = start + number, f"free, above source's {above}"
        if server.myid.isdecimal() and above < int(server.myid) < 255:
            myid, told = int(server.myid), "its myid file"
        if not above:
            told = "a guess, for source's are not known: it has to be above all of them"
        where = "; ".join(filter(None, (where, f"myid: {told}")))
        hosts.append(HostLine(name, server.address, myid, _also(server.address), None, where))
    client, quorum, election = _ports(servers)
    config, data_dir, log_dir, java_env = _paths(servers, lambda server: _java_env(asker, server))
    own = next((s.config for s in servers.values() if s.config and "tickTime" in s.config.values), None)
    settings, left_out = _settings(own.values if own else pattern)
    units = {a: _unit(s) for a, s in servers.items()}
    return Ensemble(
        tuple(hosts),
        "as given; myids are above every one of source's" if hosts else "no --dest given",
        _or(client, source.client),
        _or(quorum, source.quorum),
        _or(election, source.election),
        _or(config, source.config),
        _or(data_dir, source.data_dir),
        log_dir,
        _or(java_env, source.java_env),
        agreed({a: _of_unit(s, "user") for a, s in servers.items()}),
        agreed({a: _of_unit(s, "group") for a, s in servers.items()}),
        agreed(units),
        settings,
        "of dest's own zoo.cfg" if own else "copied from source",
        left_out,
    )


def server_lines(servers: Mapping[str, Server]) -> Mapping[int, ServerLine]:
    """The server lines of the first config that has any."""
    return next((s.config.servers for s in servers.values() if s.config and s.config.servers), {})


def asked_as(servers: Mapping[str, Server], host: str) -> Server | None:
    """The server that was asked at this address, or at one that is the same host's."""
    if host in servers:
        return servers[host]
    wanted = set(resolved(host))
    return next((s for a, s in servers.items() if wanted & set(resolved(a))), None)


def _also(host: str) -> tuple[str, ...]:
    """Rules and client lists hold addresses: those behind a name."""
    found = resolved(host)
    return () if host in found else found


def _ports(servers: Mapping[str, Server]) -> tuple[Told[int], Told[int], Told[int]]:
    """Client, quorum and election port, by the configs."""
    client: dict[str, Told[int]] = {}
    for address, server in servers.items():
        if server.config is None:
            client[address] = Told(None, f"no zoo.cfg seen: {server.path.where}")
            continue
        values = {str(s.client_port) for s in server.config.servers.values() if s.client_port}
        values |= {server.config.values["clientPort"]} if "clientPort" in server.config.values else set()
        one = values.pop() if len(values) == 1 else ""
        client[address] = Told(int(one), "zoo.cfg") if one.isdecimal() else Told(None, "no one clientPort")
    lines = {f"server.{sid}": line for sid, line in server_lines(servers).items()}
    none: Mapping[str, Told[int]] = {"": Told(None, "no server lines")}
    return (
        agreed(client),
        agreed({k: Told(line.quorum_port, "zoo.cfg") for k, line in lines.items()} or none),
        agreed({k: Told(line.election_port, "zoo.cfg") for k, line in lines.items()} or none),
    )


def _paths(
    servers: Mapping[str, Server], java_env: Callable[[Server], Told[str]]
) -> tuple[Told[str], Told[str], Told[str], Told[str]]:
    """zoo.cfg, dataDir, dataLogDir, and the file with the JVM's flags."""

    def setting(key: str) -> Told[str]:
        found = {}
        for address, server in servers.items():
            value = server.config.values.get(key, "").rstrip("/") if server.config else ""
            found[address] = Told(value or None, f"{key} in zoo.cfg" if value else f"no {key} seen")
        return agreed(found)

    return (
        agreed({a: s.path for a, s in servers.items()}),
        setting("dataDir"),
        setting("dataLogDir"),
        agreed({a: java_env(s) for a, s in servers.items()}),
    )


def _java_env(asker: Asker, server: Server) -> Told[str]:
    """The unit's EnvironmentFile; else java.env beside zoo.cfg, which ZooKeeper's own scripts read."""
    unit = server.survey.value.unit(ZOOKEEPER, "zookeeper") if isinstance(server.survey, Seen) else None
    if unit is not None and unit.environment:
        return Told(unit.environment[0], f"EnvironmentFile of {unit.name}")
    if server.path.value is None:
        return Told(None, "no unit and no zoo.cfg tells")
    beside = str(PurePosixPath(server.path.value).parent / "java.env")
    if isinstance(asker.file(server.address, beside), Seen):
        return Told(beside, "beside zoo.cfg")
    return Told(None, f"no EnvironmentFile in a unit, no {beside}")


def _settings(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Lines for dest, and what is left out with the reason. The four-letter words that zkmigrate asks dest
    are let through."""
    kept: dict[str, str] = {}
    left: dict[str, str] = {}
    for key, value in values.items():
        value = value.strip()
        if key in OWN_SETTINGS:
            continue
        if key in _LEFT_OUT:
            left[key] = f"{_LEFT_OUT[key]} (seen {value})"
        elif not _VALUE.fullmatch(value):
            left[key] = "its value holds characters that migration.yml does not take"
        else:
            kept[key] = value
    words = [word.strip() for word in kept.get(_WHITELIST, "").split(",") if word.strip()]
    if "*" not in words and not set(WORDS_NEEDED) <= set(words):
        kept[_WHITELIST] = ",".join(dict.fromkeys([*words, *WORDS_NEEDED]))
    return kept, left


def _unit(server: Server) -> Told[str]:
    if not isinstance(server.survey, Seen):
        return Told(None, str(server.survey))
    unit = server.survey.value.unit(ZOOKEEPER, "zookeeper")
    if unit is None:
        known = ", ".join(server.survey.value.units) or "none"
        return Told(None, f"no one unit named *zookeeper* or zk* (seen: {known})")
    return Told(unit.name, "systemctl list-unit-files")


def _of_unit(server: Server, key: str) -> Told[str]:
    unit = server.survey.value.unit(ZOOKEEPER, "zookeeper") if isinstance(server.survey, Seen) else None
    value = getattr(unit, key) if unit is not None else ""
    return Told(value or None, f"{key.capitalize()}= of {unit.name}" if value and unit else "no unit tells")


def _or(told: Told[T], other: Told[T]) -> Told[T]:
    """What dest does not say is as on source."""
    if told.value is not None or other.value is None:
        return told
    return Told(other.value, "as on source, dest does not say")
