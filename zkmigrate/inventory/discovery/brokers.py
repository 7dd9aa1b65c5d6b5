"""Draft the kafka section from brokers and source's four-letter words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from zkmigrate.hosts.facts.host_names import same_host, unresolved
from zkmigrate.hosts.facts.properties import parsed
from zkmigrate.hosts.facts.servers import KAFKA
from zkmigrate.hosts.transport.own_addresses import resolve, resolved
from zkmigrate.inventory.checks import spelled
from zkmigrate.inventory.discovery.draft import Found, HostLine, KafkaDraft, agreed
from zkmigrate.inventory.discovery.ensembles import Names
from zkmigrate.inventory.discovery.host_survey import HostSurvey
from zkmigrate.inventory.discovery.hosts import HostReader, absolute, config_of
from zkmigrate.kafka.facts.broker import LogDirectory, log_directories, owner_of
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.kafka.rules.connect import chroot_in
from zkmigrate.kafka.rules.identity import configured_id, effective_id
from zkmigrate.kafka.rules.listeners import Listener, for_clients
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump
from zkmigrate.zookeeper.data.session import unsigned
from zkmigrate.zookeeper.facts.config import ANY_ADDRESS

CONFIG = "/etc/kafka/server.properties"
PORT = 9092
_META = "meta.properties"
_REGISTRATION = re.compile(r"(?P<chroot>(/[^/]+)*)/brokers/ids/(?P<id>[0-9]{1,10})")


@dataclass(frozen=True)
class Registered:
    """A registered broker.

    address: the client address of its session, or "" if unknown.
    """

    id: int
    address: str


@dataclass(frozen=True)
class Candidate:
    """A broker that one of the sources of information names.

    id: None if it must be read from the broker's own file.
    """

    address: str
    id: int | None = None
    port: int | None = None
    also: tuple[str, ...] = ()
    name: str = ""
    where: str = ""


@dataclass(frozen=True)
class BrokerHost:
    """The facts found on a broker's host.

    path: path of its server.properties. properties: the content of that file.
    """

    survey: Reading[HostSurvey]
    path: Found[str]
    properties: Mapping[str, str]
    cluster_id: Found[str]
    directories: tuple[Reading[LogDirectory], ...] = ()

    @property
    def id(self) -> int | None:
        """The id that the broker starts with, or None if neither its file nor meta.properties has it."""
        text = effective_id(configured_id(self.properties), self.directories)
        return int(text) if text.isdecimal() else None

    @property
    def listener(self) -> Listener | None:
        """The broker's listener for clients without SASL and TLS, or None without one or without a file."""
        return for_clients(self.properties) if self.properties else None

    @property
    def chroot(self) -> str | None:
        """The chroot in zookeeper.connect, or None if no file was read."""
        connect = self.properties.get("zookeeper.connect")
        return None if connect is None else chroot_in(connect)


def clusters(
    dumps: Iterable[Dump], connections: Iterable[Connection]
) -> Mapping[str, tuple[Registered, ...]]:
    """Return the Kafka clusters on an ensemble: chroot → its brokers.

    dumps: answers to ``dump``, which lists each ephemeral with its session. connections: answers to ``cons``,
    which lists each session's client address.
    """
    clients = {unsigned(c.session): c.address for c in connections if c.session}
    found: dict[str, dict[int, str]] = {}
    for dump in dumps:
        for session, paths in dump.ephemerals.items():
            for path in paths:
                if match := _REGISTRATION.fullmatch(path):
                    address = clients.get(unsigned(session), "")
                    found.setdefault(match["chroot"] or "/", {})[int(match["id"])] = address
    return {
        chroot: tuple(Registered(id, address) for id, address in sorted(brokers.items()))
        for chroot, brokers in sorted(found.items())
    }


def candidates(
    registered: Iterable[Registered], view: Reading[KafkaView], given: Iterable[Candidate]
) -> list[Candidate]:
    """Return every broker that metadata, source's four-letter words or Ansible name."""
    found: dict[int, Candidate] = {}
    for one in registered:
        found[one.id] = Candidate(one.address, one.id, where="/brokers/ids in dump, address from cons")
    for id, (host, port, _) in sorted(view.value.brokers.items()) if isinstance(view, Seen) else ():
        before = found.get(id)
        source = before.address if before else ""
        addresses = resolve(host)
        where = "/brokers/ids and metadata" if before else "only metadata of the brokers"
        if not addresses and source:  # this machine does not know the name by which it registers
            where += f"; {unresolved(host, resolved(host), 'this machine')}"
            host = source
        also = tuple(
            dict.fromkeys(
                a for a in (*addresses, source) if a and "%" not in a and spelled(a) != spelled(host)
            )
        )
        found[id] = Candidate(host, id, port, also, where=where)
    out = [c for c in found.values() if c.address]
    for named in given:
        same = next((c for c in out if same_host(named.address, (c.address, *c.also), resolved)), None)
        if same is None:
            out.append(named)
        else:
            where = f"{same.where}, {named.where}"
            out[out.index(same)] = replace(same, name=named.name, where=where)
    return out


def without_address(registered: Iterable[Registered], found: Iterable[Candidate]) -> list[str]:
    """Return a note on registered brokers of unknown address; empty if there are none."""
    known = {one.id for one in found}
    nowhere = [str(one.id) for one in registered if one.id not in known]
    if not nowhere:
        return []
    return [
        f"brokers {', '.join(nowhere)} are registered on source, but neither cons nor metadata has their "
        "addresses. Next: name one with --bootstrap HOST:PORT"
    ]


def survey(reader: HostReader, address: str) -> BrokerHost:
    """Survey a broker's host: its processes, server.properties and the cluster id in its log directories."""
    runs = reader.survey(address)
    path = _config_of(reader, address, runs)
    read = _properties(reader, address, path.value or CONFIG)
    if not isinstance(read, Seen):
        where = f"{path.where}; {read}" if path.value is None else f"{path.where}, but {read}"
        return BrokerHost(runs, Found(path.value, where), {}, Found(None, where))
    properties = read.value
    path = path if path.value is not None else Found(CONFIG, "there")
    return BrokerHost(runs, path, properties, *_identity(reader, address, runs, properties))


def _properties(reader: HostReader, address: str, path: str) -> Reading[Mapping[str, str]]:
    text = reader.file(address, path)
    return parsed(text.value, path) if isinstance(text, Seen) else text


def _config_of(reader: HostReader, address: str, survey: Reading[HostSurvey]) -> Found[str]:
    if not isinstance(survey, Seen):
        return Found(None, str(survey))
    found = config_of(reader, address, survey.value, KAFKA)
    return found if found.value is not None else Found(None, f"{found.where}; tried {CONFIG}")


def _identity(
    reader: HostReader, address: str, runs: Reading[HostSurvey], properties: Mapping[str, str]
) -> tuple[Found[str], tuple[Reading[LogDirectory], ...]]:
    """Return the cluster id, and the owner that each log directory names."""
    found: dict[str, Reading[LogDirectory]] = {}
    for directory in log_directories(properties):
        path = f"{directory}/{_META}"
        place = absolute(reader, address, runs, KAFKA, directory)
        meta = _properties(reader, address, f"{place.value}/{_META}") if isinstance(place, Seen) else place
        found[path] = owner_of(meta)
    ids = {p: Found(one.value.cluster_id, p) for p, one in found.items() if isinstance(one, Seen)}
    why = "; ".join(f"{path}: {one}" for path, one in found.items())
    return agreed(ids) if ids else Found(None, why), tuple(found.values())


def draft(
    found: Iterable[Candidate],
    asked: Mapping[str, BrokerHost],
    view: Reading[KafkaView],
    chroot: Found[str],
    names: Names,
) -> KafkaDraft:
    """Draft the kafka section.

    asked: the facts found on the candidates' hosts, by address.
    """
    lines: list[HostLine] = []
    for number, one in enumerate(found, 1):
        host = asked[one.address]
        id = one.id if one.id is not None else host.id
        wrong = ""
        if not isinstance(host.survey, Seen):
            wrong = f"; not reached by ssh: {host.survey}"
        elif host.id is not None and id != host.id:
            wrong = f"; BUT its file has broker.id={host.id}"
        elif chroot.value is not None and host.chroot not in (None, chroot.value):
            wrong = f"; BUT its file has the chroot {host.chroot}"
        listener = host.listener
        if host.properties and listener is None:
            wrong += "; BUT all of its listeners need SASL or TLS"
        elif listener is not None and (doubt := _elsewhere(listener.host, (one.address, *one.also))):
            wrong += f"; BUT its listener {listener.name} is bound to {listener.host}{doubt}"
        port = one.port or (listener.port if listener is not None else None)
        port = port if port != PORT else None
        name = names.name_for(host.survey, "broker", number, one.name)
        lines.append(HostLine(name, one.address, id, one.also, port, one.where + wrong))
    lines.sort(key=lambda line: -1 if line.number is None else line.number)
    cluster = Found[str](None, str(view))
    if isinstance(view, Seen) and view.value.cluster_id:
        cluster = Found(view.value.cluster_id, "metadata of the brokers")
    elif asked:
        cluster = agreed({a: h.cluster_id for a, h in asked.items()})
    return KafkaDraft(
        cluster,
        chroot,
        tuple(lines),
        "" if lines else f"no broker found: {view}. Next: name one with --bootstrap HOST:PORT",
        agreed({a: h.path for a, h in asked.items()}),
        agreed({a: _unit(h) for a, h in asked.items()}),
        agreed({a: _owner(h, "user") for a, h in asked.items()}),
        agreed({a: _owner(h, "group") for a, h in asked.items()}),
    )


def _elsewhere(bound: str, addresses: Iterable[str]) -> str:
    """Return why a listener may not be reached at these addresses; empty if it is reached.

    bound: the name or address that the listener is bound to.
    """
    if bound in ("", *ANY_ADDRESS) or (same := same_host(bound, addresses, resolved)):
        return ""
    if same is None:
        return f", and {unresolved(bound, resolved(bound), 'this machine')}"
    return ", another address"


def _unit(host: BrokerHost) -> Found[str]:
    if not isinstance(host.survey, Seen):
        return Found(None, str(host.survey))
    unit, process = host.survey.value.unit(KAFKA), host.survey.value.process(KAFKA)
    if unit is None:
        return Found(
            None, "the broker does not run in a unit" if process else "not exactly one unit named *kafka*"
        )
    return Found(unit.name, "cgroup of the running broker" if process else "systemctl list-unit-files")


def _owner(host: BrokerHost, key: str) -> Found[str]:
    process = host.survey.value.process(KAFKA) if isinstance(host.survey, Seen) else None
    value = getattr(process, key) if process is not None else ""
    return Found(value or None, f"{key} of the running broker" if value else "no broker is running")
