"""A broker's host: the running process, the files that start it, its log directories.

Read by zkm-host as root: ``/proc/PID/cmdline`` and ``environ`` (proc(5)), unit files and scripts,
``meta.properties`` of each log directory (Kafka's BrokerMetadataCheckpoint).
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.hosts.facts.properties import properties_of
from zkmigrate.hosts.facts.status import HostFacts, HostStatus
from zkmigrate.inventory.inventory import Kafka
from zkmigrate.kafka.facts.release import Release, kafka_release, zookeeper_release
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import DirEntry, Look

CONNECT = re.compile(r"zookeeper[._](connect|url)\b", re.IGNORECASE)
"""Matches zookeeper.connect and authorizer.zookeeper.url, also as environment variables; not
zookeeper.connection.timeout.ms."""

_MAINS = ("kafka.Kafka", "io.confluent.support.metrics.SupportedKafka")
"""The main classes of brokers; the properties file is their first argument."""

_CLASS_PATH = ("-cp", "-classpath", "--class-path")
_EXEC = re.compile(r"^\s*Exec[A-Z][A-Za-z]*\s*=\s*[-+!@:|]*(?P<path>/[^\s;]+)", re.MULTILINE)
_ENVIRONMENT_FILE = re.compile(r"^\s*EnvironmentFile\s*=\s*-?(?P<path>\S+)", re.MULTILINE)
_DEFAULT_LOG_DIR = "/tmp/kafka-logs"
"""Kafka's default log.dir (KafkaConfig)."""


@dataclass(frozen=True)
class BrokerProcess:
    """A broker's running JVM.

    config: its properties file, as spelled on the command line. overrides: its ``--override`` words that name
    zookeeper.connect; exported: environment variables that do. release: Kafka's, client: of its ZooKeeper
    client, by the jars on the class path; None if no jar tells.
    """

    pid: int
    config: str
    overrides: tuple[str, ...]
    exported: tuple[str, ...]
    release: Release | None
    client: Release | None


@dataclass(frozen=True)
class StartFiles:
    """Files run or read at the broker's next start, and the ``path:line`` in them that name
    zookeeper.connect."""

    read: tuple[str, ...]
    named_at: tuple[str, ...]


@dataclass(frozen=True)
class LogDirectory:
    """The values in meta.properties of a log directory; None: not given."""

    cluster_id: str | None
    broker_id: str | None


def broker_process(look: Look, host: str, pid: int) -> Reading[BrokerProcess]:
    """The process with this PID. Absent without one."""
    if pid == 0:
        return Absent("no broker runs")
    cmdline = look.file(host, f"/proc/{pid}/cmdline")
    if not isinstance(cmdline, Seen):
        return cmdline
    words = _words(cmdline.value)
    at = next((n for n, word in enumerate(words) if word in _MAINS), None)
    if at is None:
        return Unknown("garbled", f"process {pid} is not a broker: its command line has no {_MAINS[0]}")
    environ = look.file(host, f"/proc/{pid}/environ")
    if not isinstance(environ, Seen):
        return environ
    # Keep nothing else of the environment: it may hold passwords.
    exported = tuple(name for item in _words(environ.value) if CONNECT.search(name := item.partition("=")[0]))
    jars = _jars(look, host, words[:at])
    if isinstance(jars, Unknown):
        return jars
    arguments = words[at + 1 :]
    return Seen(
        BrokerProcess(
            pid,
            arguments[0] if arguments and not arguments[0].startswith("-") else "",
            tuple(word for word in arguments[1:] if CONNECT.search(word)),
            exported,
            kafka_release(jars),
            zookeeper_release(jars),
        )
    )


def _words(raw: bytes) -> list[str]:
    return [word.decode("utf-8", "replace") for word in raw.split(b"\0") if word]


def _jars(look: Look, host: str, words: list[str]) -> list[str] | Unknown:
    """Names of the jars on a class path; java expands a star to all jars of the directory."""
    found: list[str] = []
    for option, value in itertools.pairwise(words):
        for entry in value.split(":") if option in _CLASS_PATH else ():
            directory, _, name = entry.rpartition("/")
            if name != "*":
                found.append(name)
                continue
            listed = look.listing(host, directory)
            if isinstance(listed, Unknown):
                return listed
            found += [e.name for e in listed.value] if isinstance(listed, Seen) else []
    return found


def file_entry(look: Look, host: str, path: str) -> Reading[DirEntry]:
    """The directory entry of a file; Unknown for a symbolic link in the path: neither this nor zkm-host
    follows one."""
    directory, _, name = path.rpartition("/")
    listed = look.listing(host, directory or "/")
    if not isinstance(listed, Seen):
        return listed
    entry = next((e for e in listed.value if e.name == name), None)
    if entry is not None and entry.kind == "f":
        return Seen(entry)
    content = look.file(host, path)
    if isinstance(content, Seen):
        return Unknown("failed", f"{path} is reached by a symbolic link: name the file itself")
    return content


def same_file(look: Look, host: str, process: BrokerProcess, path: str) -> Reading[bool]:
    """Whether the process was started with the file at this path: by the path's text, else by directory
    entry.

    A relative path is below the process's working directory.
    """
    if not process.config:
        return Seen(False)
    if posixpath.normpath(process.config) == posixpath.normpath(path):
        return Seen(True)
    own = process.config if process.config.startswith("/") else f"/proc/{process.pid}/cwd/{process.config}"
    entries = [file_entry(look, host, asked) for asked in (own, path)]
    for entry in entries:
        if isinstance(entry, Unknown):
            return entry
    one, other = ((e.value.changed_ns, e.value.size) if isinstance(e, Seen) else None for e in entries)
    # Change times are in nanoseconds: two files do not share one by chance.
    return Seen(one is not None and one[0] is not None and one == other)


def start_files(
    look: Look, host: str, unit: str, shown: Mapping[str, str], start: str | None
) -> Reading[StartFiles]:
    """Search the files that start the broker for other places that set zookeeper.connect.

    shown: systemd's properties of the unit (FragmentPath, DropInPaths). start: the inventory's own start
    command, searched instead. Of programs only scripts are searched.
    """
    texts: dict[str, str] = {}
    fragments = (shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split())
    given = [path for path in fragments if path] if start is None else []
    if start is None and not given:
        return Unknown("failed", f"systemd shows no file of the unit {unit}")
    for path in given:
        content = look.file(host, path)
        if isinstance(content, Unknown):
            return content
        texts[path] = content.value.decode("utf-8", "replace") if isinstance(content, Seen) else ""
    named = [m["path"] for text in texts.values() for m in _ENVIRONMENT_FILE.finditer(text)]
    programs = [m["path"] for text in texts.values() for m in _EXEC.finditer(text)]
    programs += [start.split()[0]] if start is not None else []
    for written in dict.fromkeys((*named, *programs)):
        path = _expanded(written, unit)
        if "%" in path or "*" in path:
            return Unknown("failed", f"{written}, named in the unit, is not followed")
        if posixpath.basename(path) == "java" or path in texts:
            continue
        content = look.file(host, path)
        if isinstance(content, Unknown):
            return content
        script = isinstance(content, Seen) and (written in named or content.value.startswith(b"#!"))
        if isinstance(content, Seen) and script:
            texts[path] = content.value.decode("utf-8", "replace")
    return Seen(
        StartFiles(tuple(texts), tuple(p for path, text in texts.items() for p in _named_at(path, text)))
    )


def _expanded(path: str, unit: str) -> str:
    """Expand the specifiers of the unit's name (systemd.unit(5), SPECIFIERS)."""
    name = unit if "." in unit else f"{unit}.service"
    stem = name.rpartition(".")[0]
    for specifier, value in (("%n", name), ("%N", stem), ("%p", stem.partition("@")[0])):
        path = path.replace(specifier, value)
    return path


def _named_at(path: str, text: str) -> Iterable[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if CONNECT.search(line) and line.lstrip()[:1] not in ("#", ";"):
            yield f"{path}:{number}"


def log_directories(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The directories in log.dirs, else log.dir, else Kafka's default (KafkaConfig.logDirs)."""
    text = properties.get("log.dirs") or properties.get("log.dir") or _DEFAULT_LOG_DIR
    return tuple(part.strip().rstrip("/") or "/" for part in text.split(",") if part.strip())


def log_directory(look: Look, host: str, path: str) -> Reading[LogDirectory]:
    """The owner of a log directory; Absent where no broker has used it."""
    file = f"{path}/meta.properties"
    reading = properties_of(look.file(host, file), file)
    if not isinstance(reading, Seen):
        return reading
    found = reading.value
    # broker.id until Kafka 3.x in ZooKeeper mode; node.id once a cluster has been migrated to KRaft.
    return Seen(LogDirectory(found.get("cluster.id"), found.get("broker.id", found.get("node.id"))))


@dataclass(frozen=True)
class BrokerHost:
    """All facts of one broker's host. entry: of the inventory's file. same: whether the process was started
    with it. started: on the host's clock, None when unknown. log_dirs: by path."""

    process: Reading[BrokerProcess]
    entry: Reading[DirEntry]
    same: Reading[bool]
    started: float | None
    starts: Reading[StartFiles]
    log_dirs: Reading[Mapping[str, Reading[LogDirectory]]]


def broker_host(
    look: Look,
    host: str,
    kafka: Kafka,
    status: Reading[HostStatus],
    facts: Reading[HostFacts],
    properties: Reading[Mapping[str, str]],
) -> BrokerHost:
    """Look at one broker's host. status: of its service. facts: with its unit's properties."""
    process: Reading[BrokerProcess] = (
        broker_process(look, host, status.value.unit_pid) if isinstance(status, Seen) else status
    )
    service = kafka.service
    starts: Reading[StartFiles]
    if service.start is None and not isinstance(facts, Seen):
        starts = facts
    else:
        shown = facts.value.unit if isinstance(facts, Seen) else {}
        starts = start_files(look, host, service.unit, shown, service.start)
    return BrokerHost(
        process,
        file_entry(look, host, kafka.config),
        same_file(look, host, process.value, kafka.config) if isinstance(process, Seen) else process,
        status.value.unit_started if isinstance(status, Seen) else None,
        starts,
        Seen({path: log_directory(look, host, path) for path in log_directories(properties.value)})
        if isinstance(properties, Seen)
        else properties,
    )
