"""Read a broker's host: its running process, the files that start it and its log directories.

zkm-host reads them as root: ``/proc/PID/cmdline`` and ``environ`` (proc(5)), unit files and scripts, and the
``meta.properties`` of each log directory (Kafka's BrokerMetadataCheckpoint).
"""

from __future__ import annotations

import fnmatch
import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkmigrate.hosts.facts.properties import flags_of, properties_of
from zkmigrate.hosts.facts.servers import KAFKA, works_in
from zkmigrate.hosts.facts.start_command import (
    SEARCH_PATH,
    Program,
    StartCommands,
    environment_of,
    start_commands,
    started,
)
from zkmigrate.hosts.facts.status import HostFacts, HostStatus, host_facts
from zkmigrate.inventory.inventory import Inventory, Kafka, Service
from zkmigrate.kafka.facts.release import Release, kafka_release, zookeeper_release
from zkmigrate.runbook.model.change import ServiceAction, SetService
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Look

CONNECT = re.compile(r"zookeeper[._](connect|url)\b", re.IGNORECASE)
"""Matches zookeeper.connect and authorizer.zookeeper.url, also as environment variables, but not
zookeeper.connection.timeout.ms."""

_LOGIN = re.compile(
    r"java\.security\.auth\.login\.config|zookeeper\.sasl\.client(?:config)?|zookeeper\.client\.secure"
)
_CLASS_PATH = ("-cp", "-classpath", "--class-path")
_INTERPRETERS = re.compile(r"java|python[0-9.]*|perl|ruby|node")
_OF_SHELL = frozenset({
    "[", "[[", "test", "true", "false", ":", "echo", "printf", "exit", "return", "set", "unset", "shift",
    "trap", "umask", "ulimit", "wait", "sleep", "kill", "mkdir", "chown", "chmod", "cat", "rm", "touch", "ls",
    "cp", "mv", "ln", "id", "logger", "tee",
})  # fmt: skip
"""Shell built-ins and system programs, none of which reads a script."""

_DEEPEST = 4
"""The largest number of shells and wrappers between a unit's main process and the broker."""
_DEFAULT_LOG_DIR = "/tmp/kafka-logs"
"""Kafka's default log.dir (KafkaConfig)."""


@dataclass(frozen=True)
class BrokerProcess:
    """A broker's running JVM.

    pid: process id of the JVM, whose parent may be a shell. config: its properties file, as spelled on the
    command line. overrides: its ``--override`` words that name zookeeper.connect. exported: environment
    variables that name it. release, client: the releases of Kafka and of its ZooKeeper client, by the jars on
    the class path; None if no jar shows it. flags: the ``-D`` flags of the JVM by which the client of
    ZooKeeper logs in; none of them is a secret.
    """

    pid: int
    config: str
    overrides: tuple[str, ...]
    exported: tuple[str, ...]
    release: Release | None
    client: Release | None
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StartFiles:
    """The files that the broker's next start runs or reads.

    named_at: the lines in them that name zookeeper.connect, as ``path:line``.
    """

    read: tuple[str, ...]
    named_at: tuple[str, ...]


@dataclass(frozen=True)
class LogDirectory:
    """The values in the meta.properties of a log directory; None for a missing key."""

    cluster_id: str | None
    broker_id: str | None


def broker_process(look: Look, host: str, pid: int) -> Reading[BrokerProcess]:
    """Return the broker process with this PID or among its descendants; Absent if the PID is 0."""
    if pid == 0:
        return Absent("no broker is running")
    found = _jvm(look, host, pid)
    if not isinstance(found, Seen):
        return found
    pid, words = found.value
    arguments = KAFKA.arguments(words) or ()
    environ = look.file(host, f"/proc/{pid}/environ")
    if not isinstance(environ, Seen):
        return environ
    # Keep nothing else of the environment: it may hold passwords.
    exported = tuple(name for item in _words(environ.value) if CONNECT.search(name := item.partition("=")[0]))
    jars = jars_on(look, host, words[: len(words) - len(arguments)])
    if isinstance(jars, Unknown):
        return jars
    return Seen(
        BrokerProcess(
            pid,
            arguments[0] if arguments and not arguments[0].startswith("-") else "",
            tuple(word for word in arguments[1:] if CONNECT.search(word)),
            exported,
            kafka_release(jars),
            zookeeper_release(jars),
            {key: value for key, value in flags_of("\n".join(words)).items() if _LOGIN.fullmatch(key)},
        )
    )


def _jvm(look: Look, host: str, pid: int) -> Reading[tuple[int, list[str]]]:
    """Return the PID and command line of the broker's JVM: this process, or else the only one below it.

    A shell that starts a broker may remain the unit's main process.
    """
    candidates, jvms = [pid], list[tuple[int, list[str]]]()
    for _ in range(_DEEPEST):
        below: list[int] = []
        for one in candidates:
            cmdline = look.file(host, f"/proc/{one}/cmdline")
            if not isinstance(cmdline, Seen):
                return cmdline
            words = _words(cmdline.value)
            if KAFKA.arguments(words) is not None:
                jvms.append((one, words))
                continue
            children = look.file(host, f"/proc/{one}/task/{one}/children")
            below += [int(child) for child in children.value.split()] if isinstance(children, Seen) else []
        if len(jvms) == 1:
            return Seen(jvms[0])
        candidates = below
    many = (
        f"{len(jvms)} brokers run as its children" if jvms else f"none of its children runs {KAFKA.mains[0]}"
    )
    return Unknown("garbled", f"process {pid} is not a broker: {many}")


def _words(raw: bytes) -> list[str]:
    return [word.decode("utf-8", "replace") for word in raw.split(b"\0") if word]


def jars_on(look: Look, host: str, words: list[str]) -> list[str] | Unknown:
    """Return the names of the jars on a class path; java expands a star to all jars of the directory."""
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
    """Return the directory entry of a file.

    A path with a symbolic link in it is Unknown, because neither this function nor zkm-host follows links.
    """
    directory, _, name = path.rpartition("/")
    listed = look.listing(host, directory or "/")
    if not isinstance(listed, Seen):
        return listed
    entry = next((e for e in listed.value if e.name == name), None)
    if entry is not None and entry.kind == "f":
        return Seen(entry)
    content = look.file(host, path)
    if isinstance(content, Seen):
        return Unknown("failed", f"{path} is reached through a symbolic link. Next: name the file itself")
    return content


@dataclass(frozen=True)
class WorkingDirectory:
    """The directory that a broker works in.

    pid: id of its process, or 0 if it does not run. unit: the directory in which its unit starts the command;
    empty if unknown. zkm-host reads no path with dots, so a relative path that leaves the process's directory
    is resolved with the unit's.
    """

    pid: int
    unit: str

    def path(self, path: str) -> str:
        """Return a path in the form that zkm-host reads; empty if a relative path cannot be resolved."""
        plain = posixpath.normpath(path)
        if plain.startswith("/"):
            return plain
        if self.pid and not plain.startswith(".."):
            return posixpath.normpath(f"/proc/{self.pid}/cwd/{plain}")
        return posixpath.normpath(posixpath.join(self.unit, plain)) if self.unit else ""


_UNKNOWN_DIRECTORY = WorkingDirectory(0, "")


def _unknown_place(path: str) -> Unknown:
    return Unknown("failed", f"{path} is a relative path, and the broker's working directory is unknown")


def same_file(
    look: Look, host: str, process: BrokerProcess, path: str, works_in: WorkingDirectory
) -> Reading[bool]:
    """Return whether the process was started with the file at this path.

    The paths are compared as text first, then their directory entries.
    """
    if not process.config:
        return Seen(False)
    own = works_in.path(process.config)
    if own == posixpath.normpath(path):
        return Seen(True)
    if not own:
        return _unknown_place(process.config)
    entries = [file_entry(look, host, candidates) for candidates in (own, path)]
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

    shown: systemd's properties of the unit, with its commands as systemd has parsed them. start: the start
    command in the inventory, which is searched instead of the unit's. Only programs that are scripts are
    searched.
    """
    unit_files = [
        path for path in (shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split()) if path
    ]
    commands = start_commands(shown) if start is None else StartCommands((tuple(start.split(" ")),))
    if start is None and not unit_files:
        return Unknown("failed", f"systemd shows no file of the unit {unit}")
    if not commands.commands:
        return Unknown(
            "failed", f"systemd shows no ExecStart of the unit {unit}, so its start command is unknown"
        )
    texts: dict[str, str] = {}
    named = [*unit_files] if start is None else []
    for pattern in commands.files:
        paths = _environment_files(look, host, pattern)
        if isinstance(paths, Unknown):
            return paths
        named += paths
    for path in dict.fromkeys(named):
        content = look.file(host, path)
        if isinstance(content, Unknown):
            return content
        if isinstance(content, Seen):
            texts[path] = content.value.decode("utf-8", "replace")
    variables = dict(commands.variables)
    for path in named[len(unit_files) if start is None else 0 :]:
        variables |= environment_of(texts.get(path, ""))
    for command in commands.commands:
        found = started(command, variables, commands.directory)
        if found.unread:
            words = ", ".join(found.unread)
            whole = " ".join(command)
            return Unknown("failed", f"cannot determine which file {words} in the command {whole} means")
        for program in found.programs:
            script = _script(look, host, program, variables, texts)
            if isinstance(script, Unknown):
                return script
            if isinstance(script, Seen):
                path, text = script.value
                texts[path] = text
    return Seen(
        StartFiles(tuple(texts), tuple(p for path, text in texts.items() for p in _find_connect(path, text)))
    )


def _environment_files(look: Look, host: str, pattern: str) -> list[str] | Unknown:
    """Return the paths that an ``EnvironmentFile=`` names; systemd accepts patterns there."""
    folder, _, name = pattern.rpartition("/")
    if not any(mark in pattern for mark in "*?["):
        return [pattern]
    if any(mark in folder for mark in "*?["):
        return Unknown(
            "failed",
            f"{pattern}, an environment file of the unit, was not read. Needed: a path whose directory "
            "has no wildcard",
        )
    listed = look.listing(host, folder or "/")
    if isinstance(listed, Unknown):
        return listed
    entries = listed.value if isinstance(listed, Seen) else ()
    return sorted(f"{folder}/{entry.name}" for entry in entries if fnmatch.fnmatchcase(entry.name, name))


def _script(
    look: Look, host: str, program: Program, variables: Mapping[str, str], known: Iterable[str]
) -> Reading[tuple[str, str]]:
    """Return the path and text of a program if it is a script that was not read before; otherwise Absent."""
    word = program.words[0]
    if _INTERPRETERS.fullmatch(program.name):
        word = next((word for word in program.words[1:] if not word.startswith("-")), "")
        if program.name == "java" or "/" not in word:
            return Absent("no script")
    folders = variables.get("PATH", SEARCH_PATH).split(":")
    places = [program.path(word)] if "/" in word else [f"{folder}/{word}" for folder in folders]
    of_system = "/" not in word or posixpath.dirname(word) in SEARCH_PATH.split(":")
    if of_system and program.name in _OF_SHELL:
        return Absent("no script")
    for path in map(posixpath.normpath, places):
        if path in known:
            return Absent("read before")
        content = look.file(host, path)
        if isinstance(content, Unknown):
            return content
        if isinstance(content, Seen):
            script = program.sourced or content.value.startswith(b"#!")
            return Seen((path, content.value.decode("utf-8", "replace"))) if script else Absent("no script")
    return Absent(word)


def _find_connect(path: str, text: str) -> Iterable[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if CONNECT.search(line) and line.lstrip()[:1] not in ("#", ";"):
            yield f"{path}:{number}"


def log_directories(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories in log.dirs, else in log.dir, else Kafka's default (KafkaConfig.logDirs)."""
    text = properties.get("log.dirs") or properties.get("log.dir") or _DEFAULT_LOG_DIR
    return tuple(part.strip().rstrip("/") or "/" for part in text.split(",") if part.strip())


def log_places(
    look: Look, host: str, kafka: Kafka, properties: Mapping[str, str], pid: int
) -> Reading[Mapping[str, str]]:
    """Return the absolute path of each log directory, by the path in the broker's file.

    A relative path is resolved against the unit's working directory, or else that of the process. pid:
    process id of the service, or 0 if it is not running. Returns Unknown if a relative path cannot be
    resolved.
    """
    given = log_directories(properties)
    if all(path.startswith("/") for path in given):
        return Seen({path: path for path in given})
    facts = host_facts(look, host, "-" if kafka.service.has_commands else kafka.service.unit)
    if isinstance(facts, Unknown):
        return facts
    unit = works_in(KAFKA, unit_programs(facts, kafka.service))
    process = broker_process(look, host, pid) if pid and not unit else Absent("no process")
    directory = WorkingDirectory(process.value.pid if isinstance(process, Seen) else 0, unit)
    places = {path: directory.path(path) for path in given}
    lost = next((path for path, place in places.items() if not place), None)
    return Seen(places) if lost is None else _unknown_place(lost)


def unit_programs(facts: Reading[HostFacts], service: Service) -> list[Program]:
    """Return the programs that a service's unit starts, or none if the inventory's commands start it."""
    if service.start is not None or not isinstance(facts, Seen):
        return []
    commands = start_commands(facts.value.unit)
    return [
        program
        for command in commands.commands
        for program in started(command, commands.variables, commands.directory).programs
    ]


def log_directory(
    look: Look, host: str, path: str, works_in: WorkingDirectory = _UNKNOWN_DIRECTORY
) -> Reading[LogDirectory]:
    """Return the owner of a log directory; Absent if no broker has used it.

    works_in: resolves a relative path.
    """
    place = works_in.path(path)
    if not place:
        return _unknown_place(path)
    file = f"{place}/meta.properties"
    return owner_of(properties_of(look.file(host, file), file))


def owner_of(meta: Reading[Mapping[str, str]]) -> Reading[LogDirectory]:
    """Return the owner of a log directory from the content of its meta.properties."""
    if not isinstance(meta, Seen):
        return meta
    found = meta.value
    # broker.id until Kafka 3.x in ZooKeeper mode; node.id once a cluster has been migrated to KRaft.
    return Seen(LogDirectory(found.get("cluster.id"), found.get("broker.id", found.get("node.id"))))


@dataclass(frozen=True)
class BrokerHost:
    """All facts about one broker's host.

    entry: the directory entry of the config file that the inventory names. same: whether the process was
    started with that file. started: when the service started, on the host's clock; None when unknown.
    log_dirs: owners by path.
    """

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
    """Read the facts about one broker's host.

    status: the status of its service. facts: facts of the host, with the properties of the service's unit.
    properties: the content of the config file.
    """
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
    pid = process.value.pid if isinstance(process, Seen) else 0
    directory = WorkingDirectory(pid, works_in(KAFKA, unit_programs(facts, service)))
    return BrokerHost(
        process,
        file_entry(look, host, kafka.config),
        same_file(look, host, process.value, kafka.config, directory)
        if isinstance(process, Seen)
        else process,
        status.value.unit_started if isinstance(status, Seen) else None,
        starts,
        Seen({path: log_directory(look, host, path, directory) for path in log_directories(properties.value)})
        if isinstance(properties, Seen)
        else properties,
    )


def broker_service(inventory: Inventory, broker: str, action: ServiceAction) -> SetService:
    """Return the change that starts or stops a broker."""
    return SetService(broker, inventory.kafka.service.unit, action, inventory.kafka.commands(broker))
