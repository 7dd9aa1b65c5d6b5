"""Checks of each broker's host: the broker runs with its own file, and no other file names ZooKeeper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.host_names import resolver
from zkmigrate.kafka.facts.recovery import parse_span
from zkmigrate.kafka.rules.connect import chroot_in, current_connect, line_of_connect, others_than
from zkmigrate.kafka.rules.identity import cluster_ids, configured_id, effective_id, identity
from zkmigrate.move.facts.connections import addresses
from zkmigrate.move.preflight.check import Gate, Judged, Scope, check, unseen
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.kafka_evidence import of_kafka, properties_at, to_start
from zkmigrate.move.preflight.security import in_kafka
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context

LISTED = 5
BEFORE_ROLL = (Gate.PREFLIGHT, Gate.ROLL)
"""Gates at which the brokers have yet to be restarted."""

_KRAFT = ("process.roles", "controller.quorum.voters", "zookeeper.metadata.migration.enable")
_CORRECT_FILE = "correct kafka.config in migration.yml"


@check("kafka.config", "server.properties belongs to this broker and names the chroot", Scope.BROKERS)
def config(c: Context, e: Evidence) -> Iterator[Judged]:
    """P32. The roll edits zookeeper.connect in server.properties. That must be the broker's own plain file,
    with this key on one line of its own.

    To do: As the finding says, correct kafka.chroot, source.hosts or the broker in migration.yml. Where the
    key is not on one plain line, write it out in the file.
    """
    k = of_kafka(e)
    inventory = c.inventory
    path = inventory.kafka.config
    for host, reading in e.files.items():
        properties = properties_at(e, host, path)
        if not isinstance(reading, Seen) or not isinstance(properties, Seen):
            yield unseen(properties, f"{path}, readable through sudo", host, (_CORRECT_FILE,))
            continue
        entry = k.brokers[host].entry if host in k.brokers else Absent()
        if isinstance(entry, Unknown):
            yield unseen(entry, f"{path}, a plain file", host, (_CORRECT_FILE,))
            continue
        dirs = k.brokers[host].log_dirs if host in k.brokers else Absent()
        held = dirs.value.values() if isinstance(dirs, Seen) else ()
        id = effective_id(configured_id(properties.value), held)
        connect = properties.value.get("zookeeper.connect", "")
        wrong = dict(_file_mistakes(c, host, id, connect, reading.value))
        written_out = "" if "${" in connect else connect
        own = addresses(inventory.broker(host))
        shared = own & {a for server in inventory.source.hosts for a in addresses(server)}
        # Where a source server has the broker's machine, a loopback address would be both source and nowhere.
        resolve = resolver(k.resolved, host, ("127.0.0.1",) if shared else own)
        strange, unknown = others_than(inventory.source.hosts, written_out, resolve, host)
        if strange:
            mistake = f"zookeeper.connect names {', '.join(strange)}, not a source host"
            wrong[mistake] = "correct source.hosts in migration.yml, or add the address under also"
            if shared:
                wrong[mistake] += ". If a name resolves to loopback there: write the machine's address"
        failed = bool(wrong)
        if unknown:
            wrong["; ".join(unknown)] = f"let each name in zookeeper.connect resolve on {host}"
        line = line_of_connect(reading.value)
        where = path if line is None else f"{path}:{line}"
        yield Judged(
            False if failed else None if unknown else True,
            f"{where}: " + ("; ".join(wrong) or f"broker {id}, zookeeper.connect={connect}"),
            f"broker.id {inventory.broker(host).id}, source hosts, chroot {inventory.kafka.chroot}",
            host,
            tuple(dict.fromkeys(wrong.values())),
        )


_WRITTEN_OUT = (
    "correct the broker's file: zookeeper.connect on one line, with addresses and chroot written out"
)


def _file_mistakes(c: Context, host: str, id: str, connect: str, content: bytes) -> Iterator[tuple[str, str]]:
    """Yield each mistake in a broker's file, with a text on how to fix it."""
    inventory = c.inventory
    ours = inventory.kafka.chroot
    if id != str(inventory.broker(host).id):
        mistake = f"broker.id={id or '(none)'}, in the inventory {inventory.broker(host).id}"
        yield mistake, f"correct the id or the address of {host} in migration.yml"
    if "${" in connect:
        mistake = f"zookeeper.connect={connect} is taken from a config provider, which the roll cannot edit"
        yield mistake, _WRITTEN_OUT
        return
    if connect and (theirs := chroot_in(connect)) != ours:
        yield f"chroot {theirs}, in the inventory {ours}", "correct kafka.chroot in migration.yml"
    try:
        current_connect(content)
    except UsageError as error:
        yield str(error), _WRITTEN_OUT


@check("kafka.security", "the broker has no SASL or TLS that a move does not support", Scope.BROKERS)
def security(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A move supports brokers with TLS, SASL PLAIN and SCRAM, DIGEST-MD5 towards ZooKeeper. Kerberos,
    OAUTHBEARER and lists of revoked certificates have never been tried, so zkmigrate refuses them by name.

    To do: Do not move this cluster with zkmigrate, unless you can remove what the finding names.
    """
    moves = ("do not move this cluster with zkmigrate yet, or remove what the finding names",)
    for host in e.files:
        reading = properties_at(e, host, c.inventory.kafka.config)
        if isinstance(reading, Seen):
            found = in_kafka(reading.value)
            yield Judged(not found, "; ".join(found) or "nothing of that kind", "nothing else", host, moves)
        else:
            yield unseen(reading, "server.properties, readable through sudo", host)


@check("kafka.authorizer", "the authorizer uses the same ZooKeeper as the broker", Scope.BROKERS, BEFORE_ROLL)
def authorizer(c: Context, e: Evidence) -> Iterator[Judged]:
    """P32. With authorizer.zookeeper.url Kafka keeps its ACLs outside the chroot. The roll does not edit
    that key, so the authorizer would still use source after the cut-over.

    To do: Remove authorizer.zookeeper.url and restart the broker: the authorizer then uses
    zookeeper.connect, for ACLs too.
    """
    key = "authorizer.zookeeper.url"
    for host in e.files:
        reading = properties_at(e, host, c.inventory.kafka.config)
        if not isinstance(reading, Seen):
            yield unseen(reading, "server.properties, readable through sudo", host)
            continue
        value = reading.value.get(key, "").strip()
        moves = (
            f"take {key} out and restart the broker: the authorizer then uses zookeeper.connect, ACLs too",
        )
        yield Judged(not value, f"{key}={value}" if value else "none", f"no {key}", host, moves)


@check("kafka.kraft", "the broker keeps its metadata in ZooKeeper alone", Scope.BROKERS, BEFORE_ROLL)
def kraft(c: Context, e: Evidence) -> Iterator[Judged]:
    """A cluster on its way to KRaft writes its metadata twice. Its controllers are clients of ZooKeeper
    that no broker list names.

    To do: Finish or undo the migration to KRaft first.
    """
    for host in e.files:
        reading = properties_at(e, host, c.inventory.kafka.config)
        if not isinstance(reading, Seen):
            yield unseen(reading, "server.properties, readable through sudo", host)
            continue
        found = [
            f"{key}={value}"
            for key in _KRAFT
            if (value := reading.value.get(key, "").strip()) not in ("", "false")
        ]
        moves = ("finish or undo the migration to KRaft first",)
        yield Judged(not found, ", ".join(found) or "none", f"none of {', '.join(_KRAFT)}", host, moves)


@check(
    "kafka.started-with", "the broker runs with the file of kafka.config, and nothing overrides it",
    Scope.BROKERS, BEFORE_ROLL,
)  # fmt: skip
def started_with(c: Context, e: Evidence) -> Iterator[Judged]:
    """P32. A broker may run with another file, with --override zookeeper.connect, or in a container that
    writes its file from its environment. Such a broker would come back on source. The check reads the
    process's command line and environment.

    To do: Correct kafka.config in migration.yml. Remove zookeeper.connect from the command line and the
    environment.
    """
    k = of_kafka(e)
    path = c.inventory.kafka.config
    needed = f"a process started with {path} and no other zookeeper.connect"
    for host, broker in k.brokers.items():
        process = broker.process
        if not isinstance(process, Seen):
            move = "start the broker" if isinstance(process, Absent) else "correct kafka.service"
            yield unseen(process, needed, host, (move,))
            continue
        found = [*process.value.overrides, *(f"environment: {name}" for name in process.value.exported)]
        if isinstance(broker.same, Unknown) and not found:
            yield unseen(broker.same, needed, host, (_CORRECT_FILE,))
            continue
        if broker.same == Seen(False):
            found.insert(0, f"started with {process.value.config or 'no file'}")
        seen = f"process {process.value.pid}: {', '.join(found) or process.value.config}"
        moves: tuple[str, ...] = (_CORRECT_FILE,) if broker.same == Seen(False) else ()
        if process.value.overrides or process.value.exported:
            moves += ("take zookeeper.connect out of the command line and the environment",)
        yield Judged(not found, seen, needed, host, moves)


@check(
    "kafka.only-place", "only server.properties sets zookeeper.connect when the broker starts again",
    Scope.BROKERS, BEFORE_ROLL,
)  # fmt: skip
def only_place(c: Context, e: Evidence) -> Iterator[Judged]:
    """P32. Another file that sets zookeeper.connect undoes the roll's edit at the next start. The check reads
    the unit, its drop-ins, environment files and scripts, or the inventory's start command.

    To do: Remove the key from these files. If one of these files generates server.properties, change it so
    that it names dest.
    """
    k = of_kafka(e)
    needed = f"zookeeper.connect in {c.inventory.kafka.config} alone"
    for host, broker in k.brokers.items():
        starts = broker.starts
        if not isinstance(starts, Seen):
            yield unseen(starts, needed, host)
            continue
        named_at, read = starts.value.named_at, starts.value.read
        yield Judged(
            not named_at,
            ", ".join(named_at) or f"not in {', '.join(read) or 'any script that starts it'}",
            needed,
            host,
            (
                "remove zookeeper.connect from these files",
                "if one of these files writes server.properties: let that file name dest",
            ),
        )


@check(
    "kafka.pending-config", "server.properties has not been changed since the broker started", Scope.BROKERS,
    BEFORE_ROLL, Severity.WARN,
)  # fmt: skip
def pending_config(_c: Context, e: Evidence) -> Iterator[Judged]:
    """Somebody changed server.properties after the broker started. The roll restarts the brokers one after
    the other, so the change takes effect then.

    To do: Review the change, or restart this broker by itself first.
    """
    k = of_kafka(e)
    needed = "a file last changed before the process started"
    for host, broker in k.brokers.items():
        entry, started = broker.entry, broker.started
        if not isinstance(entry, Seen):
            yield unseen(entry, needed, host, (_CORRECT_FILE,))
        elif started is None or entry.value.changed_ns is None:
            yield Judged(None, "when the broker started is not known", needed, host, to_start(e, host))
        else:
            late = entry.value.changed_ns / 1e9 - started
            seen = f"changed {_span(abs(late))} {'after' if late > 0 else 'before'} the broker's start"
            moves = ("review the change, or restart this broker by itself first",)
            yield Judged(late <= _TICK_S, seen, needed, host, moves)


@check(
    "kafka.stop-timeout", "TimeoutStopSec of the broker's unit is long enough for a controlled shutdown",
    Scope.BROKERS, BEFORE_ROLL, Severity.WARN,
)  # fmt: skip
def stop_timeout(c: Context, e: Evidence) -> Iterator[Judged]:
    """When TimeoutStopSec ends, systemd kills the broker. At its next start the broker recovers every log,
    perhaps for half an hour. A controlled shutdown makes up to controlled.shutdown.max.retries attempts.
    Each may take controller.socket.timeout.ms plus controlled.shutdown.retry.backoff.ms.

    To do: Raise TimeoutStopSec with systemctl edit, as the finding says.
    """
    unit, path = c.inventory.kafka.service.unit, c.inventory.kafka.config
    for host in () if c.inventory.kafka.service.has_commands else e.files:
        facts, properties = e.facts[host], properties_at(e, host, path)
        needed = "TimeoutStopSec and server.properties, readable through sudo"
        if not isinstance(facts, Seen) or not isinstance(properties, Seen):
            yield unseen(properties if isinstance(facts, Seen) else facts, needed, host)
            continue
        stop_timeout = facts.value.unit.get("TimeoutStopUSec", "")
        try:
            given_s, wanted_s = parse_span(stop_timeout), _shutdown_s(properties.value)
        except ValueError as error:
            yield Judged(None, str(error), needed, host)
            continue
        moves = (f"systemctl edit {unit}: [Service] TimeoutStopSec={math.ceil(wanted_s)}",)
        seen, needed = f"{unit}: TimeoutStopSec={stop_timeout}", f"{wanted_s:g} s or more"
        yield Judged(given_s >= wanted_s, seen, needed, host, moves)


_SHUTDOWN = {
    "controlled.shutdown.max.retries": 3,
    "controlled.shutdown.retry.backoff.ms": 5000,
    "controller.socket.timeout.ms": 30000,
}
"""The settings that bound a controlled shutdown, with Kafka's defaults (KafkaConfig)."""


def _shutdown_s(properties: Mapping[str, str]) -> float:
    """Return how long a controlled shutdown may take, in seconds.

    Raises ValueError for a setting that is not a number.
    """
    tries, backoff_ms, answer_ms = (int(properties.get(key, default)) for key, default in _SHUTDOWN.items())
    return tries * (backoff_ms + answer_ms) / 1000


_TICK_S = 0.02
"""The tolerance in seconds for comparing the start of a process with the change of a file.

The start is known to a hundredth of a second, the change to a thousandth. A file that was changed right
before the restart must not seem to be changed after it.
"""


def _span(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@check("kafka.log-dirs", "no log directory belongs to another broker or cluster", Scope.BROKERS, BEFORE_ROLL)
def log_dirs(c: Context, e: Evidence) -> Iterator[Judged]:
    """P30. A broker that finds another id or cluster in meta.properties does not start again. The check
    compares that file in every directory of log.dirs with the broker's own file, and with the cluster that
    the brokers report or the inventory names. Before Kafka 2.4 meta.properties holds no cluster id.

    To do: Set the id in the broker's file to that of meta.properties again, or give the broker of the new id
    empty log directories. Correct log.dirs if a directory belongs to another broker. If all directories name
    one other cluster, kafka.cluster_id may be wrong. Delete no directory.
    """
    k = of_kafka(e)
    path, live = c.inventory.kafka.config, k.view.value.cluster_id if isinstance(k.view, Seen) else None
    for host, broker in k.brokers.items():
        dirs, properties = broker.log_dirs, properties_at(e, host, path)
        id, cluster_id = c.inventory.broker(host).id, c.inventory.kafka.cluster_id
        if isinstance(dirs, Seen) and live in cluster_ids(dirs.value.values()):
            cluster_id = live or cluster_id  # kafka.cluster-id checks whether the inventory names it
        needed = f"broker.id={id}, cluster.id={cluster_id}"
        if not isinstance(dirs, Seen) or not isinstance(properties, Seen):
            yield unseen(dirs, "server.properties, readable through sudo", host)
            continue
        found = identity(path, properties.value, dirs.value, id, cluster_id)
        if found.wrong:
            yield Judged(False, "; ".join(found.wrong[:LISTED]), needed, host, found.moves)
        elif found.unread is not None:
            yield unseen(found.unread, needed, host)
        else:
            without = f"; no cluster.id in {', '.join(found.unnamed)}" if found.unnamed else ""
            yield Judged(True, ", ".join(dirs.value) + without, needed, host)


CHECKS = (
    config, security, authorizer, kraft, started_with, only_place, pending_config, stop_timeout, log_dirs,
)  # fmt: skip
