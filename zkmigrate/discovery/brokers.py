"""Kafka as its brokers and source's four-letter words show it: chroot, cluster id, brokers, files, units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from zkmigrate.discovery.clusters import Registered
from zkmigrate.discovery.draft import HostLine, KafkaDraft, Told, agreed
from zkmigrate.discovery.ensembles import Names
from zkmigrate.discovery.host_survey import KAFKA, HostSurvey
from zkmigrate.discovery.hosts import Asker
from zkmigrate.hosts.facts.properties import parse_properties
from zkmigrate.hosts.transport.here import resolved
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import KafkaView

CONFIG = "/etc/kafka/server.properties"
PORT = 9092
_META = "meta.properties"
_PLAIN = re.compile(r"(?<![A-Z_])PLAINTEXT://[^,]*:([0-9]{1,5})")


@dataclass(frozen=True)
class Candidate:
    """A broker that something told of. id None: its own file has to say. address: where to ask it."""

    address: str
    id: int | None = None
    port: int | None = None
    also: tuple[str, ...] = ()
    name: str = ""
    where: str = ""


@dataclass(frozen=True)
class Asked:
    """A broker's host as it was seen. properties: of its server.properties."""

    survey: Reading[HostSurvey]
    path: Told[str]
    properties: Mapping[str, str]
    cluster_id: Told[str]

    @property
    def id(self) -> int | None:
        """broker.id as configured; None where it is not, or left to ZooKeeper."""
        text = self.properties.get("broker.id", "").strip()
        return int(text) if text.isdecimal() else None

    @property
    def port(self) -> int | None:
        """Of the first plain listener in its file; None where none is told."""
        listeners = self.properties.get("listeners") or self.properties.get("advertised.listeners") or ""
        found = _PLAIN.search(listeners)
        text = found[1] if found else self.properties.get("port", "").strip()
        return int(text) if text.isdecimal() and 0 < int(text) < 65536 else None

    @property
    def chroot(self) -> str | None:
        """The path behind zookeeper.connect; None where no file was seen."""
        connect = self.properties.get("zookeeper.connect")
        return None if connect is None else "".join(connect.partition("/")[1:]).strip()


def candidates(
    registered: Iterable[Registered], view: Reading[KafkaView], given: Iterable[Candidate]
) -> list[Candidate]:
    """Every broker that is told of: by the brokers' metadata, by source's words, by Ansible."""
    found: dict[int, Candidate] = {}
    for one in registered:
        found[one.id] = Candidate(one.address, one.id, where="/brokers/ids in dump, address from cons")
    for id, (host, port, _) in sorted(view.value.brokers.items()) if isinstance(view, Seen) else ():
        before = found.get(id)
        source = before.address if before else ""
        behind = () if host in resolved(host) else resolved(host)
        also = tuple(dict.fromkeys(a for a in (*behind, source) if a and a != host))
        told = "/brokers/ids and metadata" if before else "metadata of the brokers alone"
        found[id] = Candidate(host, id, port, also, where=told)
    out = [c for c in found.values() if c.address]
    for named in given:
        places = set(resolved(named.address)) | {named.address}
        same = next((c for c in out if places & {c.address, *c.also, *resolved(c.address)}), None)
        if same is None:
            out.append(named)
        else:
            where = f"{same.where}, {named.where}"
            out[out.index(same)] = replace(same, name=named.name, where=where)
    return out


def unplaced(registered: Iterable[Registered], found: Iterable[Candidate]) -> list[str]:
    """What to say of brokers that are registered and of which nothing tells where they are."""
    known = {one.id for one in found}
    nowhere = [str(one.id) for one in registered if one.id not in known]
    if not nowhere:
        return []
    return [
        f"brokers {', '.join(nowhere)} are registered on source, but neither cons nor metadata tells their "
        "addresses: --bootstrap HOST:PORT names one that does"
    ]


def ask(asker: Asker, address: str) -> Asked:
    """A broker's host: what runs, server.properties, the cluster id in its log directory."""
    survey = asker.survey(address)
    path = _config_of(survey)
    text = asker.file(address, path.value or CONFIG)
    if not isinstance(text, Seen):
        where = f"{path.where}; {text}" if path.value is None else f"{path.where}, but {text}"
        return Asked(survey, Told(path.value, where), {}, Told(None, where))
    properties = parse_properties(text.value)
    told = path if path.value is not None else Told(CONFIG, "there")
    return Asked(survey, told, properties, _cluster_id(asker, address, properties))


def _config_of(survey: Reading[HostSurvey]) -> Told[str]:
    if not isinstance(survey, Seen):
        return Told(None, str(survey))
    process, unit = survey.value.process(KAFKA), survey.value.unit(KAFKA, "kafka")
    if process is not None and process.config.startswith("/"):
        return Told(process.config, "argument of the running broker")
    if unit is not None and (named := unit.config_after(KAFKA)):
        return Told(named, f"ExecStart of {unit.name}")
    return Told(None, f"no broker runs and no unit names one; tried {CONFIG}")


def _cluster_id(asker: Asker, address: str, properties: Mapping[str, str]) -> Told[str]:
    directories = properties.get("log.dirs") or properties.get("log.dir") or ""
    path = f"{directories.split(',')[0].strip().rstrip('/')}/{_META}"
    text = asker.file(address, path) if path.startswith("/") else Unknown("failed", "no log.dirs")
    if not isinstance(text, Seen):
        return Told(None, f"{path}: {text}")
    value = parse_properties(text.value).get("cluster.id", "").strip()
    return Told(value or None, f"{path} of {address}")


def draft(
    found: Iterable[Candidate],
    asked: Mapping[str, Asked],
    view: Reading[KafkaView],
    chroot: Told[str],
    names: Names,
) -> KafkaDraft:
    """The kafka part. asked: the candidates' hosts by address."""
    lines: list[HostLine] = []
    for number, one in enumerate(found, 1):
        host = asked[one.address]
        id = one.id if one.id is not None else host.id
        wrong = ""
        if not isinstance(host.survey, Seen):
            wrong = f"; not seen by ssh: {host.survey}"
        elif host.id is not None and id != host.id:
            wrong = f"; BUT its file says broker.id={host.id}"
        elif chroot.value is not None and host.chroot not in (None, chroot.value):
            wrong = f"; BUT its file names the chroot {host.chroot or '/'}"
        port = one.port or host.port
        port = port if port != PORT else None
        name = names.of(host.survey, "broker", number, one.name)
        lines.append(HostLine(name, one.address, id, one.also, port, one.where + wrong))
    lines.sort(key=lambda line: -1 if line.number is None else line.number)
    cluster = Told[str](None, str(view))
    if isinstance(view, Seen) and view.value.cluster_id:
        cluster = Told(view.value.cluster_id, "metadata of the brokers")
    elif asked:
        cluster = agreed({a: h.cluster_id for a, h in asked.items()})
    return KafkaDraft(
        cluster,
        chroot,
        tuple(lines),
        "" if lines else f"no broker found: {view}; --bootstrap HOST:PORT names one",
        agreed({a: h.path for a, h in asked.items()}),
        agreed({a: _unit(h) for a, h in asked.items()}),
        agreed({a: _owner(h, "user") for a, h in asked.items()}),
        agreed({a: _owner(h, "group") for a, h in asked.items()}),
    )


def _unit(host: Asked) -> Told[str]:
    if not isinstance(host.survey, Seen):
        return Told(None, str(host.survey))
    unit, process = host.survey.value.unit(KAFKA, "kafka"), host.survey.value.process(KAFKA)
    if unit is None:
        return Told(None, "the broker runs outside a unit" if process else "no one unit named *kafka*")
    return Told(unit.name, "cgroup of the running broker" if process else "systemctl list-unit-files")


def _owner(host: Asked, key: str) -> Told[str]:
    process = host.survey.value.process(KAFKA) if isinstance(host.survey, Seen) else None
    value = getattr(process, key) if process is not None else ""
    return Told(value or None, f"{key} of the running broker" if value else "no broker runs")
