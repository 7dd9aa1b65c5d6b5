"""Read what secures the servers of source and dest: settings, JAAS files and certificates.

Passwords are replaced by keyed digests as soon as they are read, and private keys are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from zkmigrate import java_properties
from zkmigrate.hosts.facts.properties import flags_of
from zkmigrate.hosts.facts.status import HostFacts
from zkmigrate.inventory.inventory import Service
from zkmigrate.kafka.facts.broker import jars_on, unit_programs
from zkmigrate.kafka.facts.release import zookeeper_release
from zkmigrate.keyed_digest import is_secret, keyed_digest
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data import jaas
from zkmigrate.zookeeper.data.certificates import Certificates, StoreError, read_store
from zkmigrate.zookeeper.data.jaas import JaasError, Section
from zkmigrate.zookeeper.facts.config import ZooConfig

T = TypeVar("T")

JAAS_FLAG = "java.security.auth.login.config"
QUORUM, CLIENT = "quorum", "client"
PREFIX = {QUORUM: "ssl.quorum.", CLIENT: "ssl."}
"""The beginning of the keys for the stores of each kind of connection."""

_OFF = Absent("no such security")


def without_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """Return settings or flags with a keyed digest instead of each value that may be a secret."""
    return {key: keyed_digest(value) if is_secret(key) else value for key, value in values.items()}


@dataclass(frozen=True)
class Secured:
    """What secures the connections of one host's server, or of a broker to ZooKeeper.

    values: the effective settings, with keys as in zoo.cfg, and the JVM's other flags; without secrets. jaas:
    the sections of its JAAS file; Absent if the JVM names none. keys: the certificate chain of its own key,
    trust: the certificates that it trusts, each by kind of connection (``QUORUM``, ``CLIENT``); kinds without
    TLS are left out.
    """

    values: Reading[Mapping[str, str]]
    jaas: Reading[Mapping[str, Section]] = _OFF
    keys: Mapping[str, Reading[Certificates]] = field(default_factory=dict)
    trust: Mapping[str, Reading[Certificates]] = field(default_factory=dict)

    @property
    def used(self) -> bool:
        """Whether the host has TLS or a JAAS file."""
        return bool(self.trust) or not isinstance(self.jaas, Absent)


def effective(config: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a server by their keys in zoo.cfg. A line of zoo.cfg overrides a flag."""
    found = {key.removeprefix("zookeeper."): value.strip() for key, value in flags.items()}
    return found | {key.removeprefix("zookeeper."): value.strip() for key, value in config.items()}


def is_on(values: Mapping[str, str], key: str) -> bool:
    """Return whether a switch is on. ZooKeeper takes ``true`` in any case, for some keys also ``yes``."""
    return values.get(key, "").lower() in ("true", "yes")


def tls_kinds(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the kinds of connections for which a server has TLS."""
    quorum = is_on(values, "sslQuorum") or is_on(values, "portUnification")
    client = bool(values.get("secureClientPort")) or is_on(values, "client.portUnification")
    return (QUORUM,) * quorum + (CLIENT,) * client


def of_server(
    look: Look, host: str, config: Reading[ZooConfig], flags: Reading[Mapping[str, str]]
) -> Secured:
    """Read what secures the server of a host. config, flags: as the server has them, with their secrets."""
    for reading in (config, flags):
        if not isinstance(reading, Seen):
            return Secured(reading)
    assert isinstance(config, Seen)
    assert isinstance(flags, Seen)
    values = effective(config.value.values, flags.value)
    files = _Files(look, host)
    keys: dict[str, Reading[Certificates]] = {}
    trust: dict[str, Reading[Certificates]] = {}
    for kind in tls_kinds(values):
        keys[kind] = files.store(values, PREFIX[kind], "keyStore")
        trust[kind] = files.store(values, PREFIX[kind], "trustStore")
    return Secured(Seen(without_secrets(values)), files.jaas(values), keys, trust)


def of_client(look: Look, host: str, values: Mapping[str, str], tls: bool) -> Secured:
    """Read what secures the connections of a broker to ZooKeeper.

    values: the keys of ``zookeeper.ssl.*`` without "zookeeper.", and the JVM's flags, with their secrets.
    """
    files, keys, trust = _Files(look, host), {}, {}
    if tls:
        keys = {CLIENT: files.store(values, PREFIX[CLIENT], "keystore")}
        trust = {CLIENT: files.store(values, PREFIX[CLIENT], "truststore")}
    return Secured(Seen(without_secrets(values)), files.jaas(values), keys, trust)


def hidden_config(configs: Mapping[str, Reading[ZooConfig]]) -> dict[str, Reading[ZooConfig]]:
    """Return hosts' configs without their secrets."""
    return {
        host: Seen(replace(one.value, values=without_secrets(one.value.values)))
        if isinstance(one, Seen)
        else one
        for host, one in configs.items()
    }


def hidden_flags(
    flags: Mapping[str, Reading[Mapping[str, str]]],
) -> dict[str, Reading[Mapping[str, str]]]:
    """Return hosts' JVM flags without their secrets."""
    return {h: Seen(without_secrets(one.value)) if isinstance(one, Seen) else one for h, one in flags.items()}


def with_unit(flags: Reading[Mapping[str, str]], facts: Reading[HostFacts]) -> Reading[Mapping[str, str]]:
    """Return JVM flags with those in a unit's ``Environment=``, which a file of flags may override."""
    if not isinstance(flags, Seen) or not isinstance(facts, Seen):
        return flags
    return Seen({**flags_of(facts.value.unit.get("Environment", "")), **flags.value})


def hidden_file(reading: Reading[bytes]) -> Reading[bytes]:
    """Return a properties file without its secrets; lines keep their numbers."""
    if not isinstance(reading, Seen):
        return reading
    text = reading.value.decode(java_properties.ENCODING)
    found, at = "", 0
    try:
        for entry in java_properties.entries(text):
            if is_secret(entry.key):
                lines = "\n" * len(text[entry.start : entry.end].splitlines()[1:])
                found += f"{text[at : entry.start]}{entry.key}={keyed_digest(entry.value)}{lines}"
                at = entry.end
    except java_properties.PropertiesError:
        return Unknown("garbled", "Java would refuse the file")
    return Seen((found + text[at:]).encode(java_properties.ENCODING, "replace"))


def jars_release(
    look: Look, host: str, facts: Reading[HostFacts], service: Service
) -> Reading[tuple[int, ...]]:
    """Return the release of ZooKeeper that a host's unit would start, by the jars on its class path."""
    for program in unit_programs(facts, service):
        jars = jars_on(look, host, list(program.words))
        if isinstance(jars, Unknown):
            return jars
        if (found := zookeeper_release(jars)) is not None:
            return Seen(found.numbers)
    return Unknown("failed", "no jar of ZooKeeper's is seen in its start command")


class _Files:
    """The files of a host, each read once."""

    def __init__(self, look: Look, host: str) -> None:
        self._look = look
        self._host = host
        self._read: dict[str, Reading[bytes]] = {}

    def jaas(self, values: Mapping[str, str]) -> Reading[Mapping[str, Section]]:
        path = values.get(JAAS_FLAG, "").lstrip("=").removeprefix("file:")
        if not path:
            return Absent("the JVM's flags name no JAAS file")

        def parse(content: bytes) -> Mapping[str, Section]:
            return jaas.sections(content.decode("utf-8", "replace"), path)

        return self._parsed(path, parse)

    def store(self, values: Mapping[str, str], prefix: str, name: str) -> Reading[Certificates]:
        key = f"{prefix}{name}"
        path = values.get(f"{key}.location", "")
        if not path:
            return Absent(f"no {key}.location")
        password = values.get(f"{key}.password", "")
        if place := values.get(f"{key}.passwordPath", ""):
            reading = self._file(place)
            if not isinstance(reading, Seen):
                return _there(reading, place)
            password = reading.value.decode("utf-8", "replace").strip()
        return self._parsed(path, lambda content: read_store(content, path, password))

    def _parsed(self, path: str, parse: Callable[[bytes], T]) -> Reading[T]:
        reading = self._file(path)
        if not isinstance(reading, Seen):
            return _there(reading, path)
        try:
            return Seen(parse(reading.value))
        except (JaasError, StoreError) as error:
            return Unknown("garbled", str(error))

    def _file(self, path: str) -> Reading[bytes]:
        if not path.startswith("/"):
            return Unknown("failed", f"{path} is a relative path, and the server's directory is not known")
        if path not in self._read:
            self._read[path] = self._look.file(self._host, path)
        return self._read[path]


def _there(reading: Absent | Unknown, path: str) -> Unknown:
    """Return why a file was not read: one that the server names and that is not there is a failure too."""
    return reading if isinstance(reading, Unknown) else Unknown("failed", f"{path} is not there")
