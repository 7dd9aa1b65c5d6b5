"""Find the replicas on the disks of brokers to be removed, from reports of the brokers and of their hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from zkmigrate.cluster.removal.section import removed
from zkmigrate.hosts.facts.properties import properties
from zkmigrate.hosts.facts.status import unit_status
from zkmigrate.inventory.inventory import Inventory, Kafka
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.facts.broker import log_directory, log_places
from zkmigrate.kafka.facts.replica_directories import Directory, directories
from zkmigrate.kafka.questions import DescribeLogDirs, PartitionState
from zkmigrate.kafka.rules.identity import Identity, identity
from zkmigrate.kafka.rules.stray import METADATA
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look

OnDisks: TypeAlias = Mapping[str, Reading[tuple[Directory, ...]]]
"""The directories of partitions, by host."""

_KINDS = {"": "without a mark", "stray": "stray", "future": "future", "delete": "being deleted"}
"""The kind of a directory, by its mark.

Kafka removes directories with the mark ``delete`` at its next start at the latest.
"""


@dataclass(frozen=True)
class Held:
    """The brokers' reports about their log directories.

    replicas: the replicas in words. silent: why a broker reported nothing.
    """

    replicas: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def replicas_on_disks(look: Look, brokers: Collection[int], but: Collection[PartitionState] = ()) -> Held:
    """Query brokers for the replicas in their log directories. but: partitions to leave out."""
    known = {(p.topic, p.partition) for p in but}
    told = look.ask(DescribeLogDirs(KAFKA, tuple(brokers))) if brokers else Seen({})
    if not isinstance(told, Seen):
        return Held(silent=(str(told),))
    silent = [str(dirs) for dirs in told.value.values() if not isinstance(dirs, Seen)]
    replicas = []
    for broker, dirs in told.value.items():
        for one in dirs.value.values() if isinstance(dirs, Seen) else ():
            if not isinstance(one, Seen):
                silent.append(f"broker {broker}: {one}")
                continue
            replicas += [
                f"{r.topic}-{r.partition} on broker {broker}"
                for r in one.value.replicas
                if (r.topic, r.partition) not in known
            ]
    return Held(tuple(replicas), tuple(silent))


def on_disks(inventory: Inventory, look: Look) -> OnDisks:
    """Return the directories on the removed brokers whose hosts can be reached over ssh."""
    gone = removed(inventory) if inventory.has("ssh") else ()

    def one(host: str) -> Reading[tuple[Directory, ...]]:
        given = properties(look, host, inventory.kafka.config)
        if not isinstance(given, Seen):
            return given
        places = _places(inventory.kafka, look, host, given.value)
        if not isinstance(places, Seen):
            return places
        found = directories(look, host, places.value.values())
        if not isinstance(found, Seen):
            return found
        return Seen(tuple(one for one in found.value if one.topic != METADATA))

    return look.each([broker.name for broker in inventory.brokers if broker.id in gone], one)


def identified(inventory: Inventory, look: Look, hosts: Iterable[str]) -> Mapping[str, Reading[Identity]]:
    """Return, by host, the reasons that would keep a broker from starting with its own id and cluster."""
    kafka = inventory.kafka

    def one(host: str) -> Reading[Identity]:
        given = properties(look, host, kafka.config)
        if not isinstance(given, Seen):
            return given
        places = _places(kafka, look, host, given.value)
        if not isinstance(places, Seen):
            return places
        owners = {folder: log_directory(look, host, place) for folder, place in places.value.items()}
        id = inventory.broker(host).id
        return Seen(identity(kafka.config, given.value, owners, id, kafka.cluster_id))

    return look.each(hosts, one)


def _places(kafka: Kafka, look: Look, host: str, given: Mapping[str, str]) -> Reading[Mapping[str, str]]:
    status = unit_status(look, host, kafka.service.unit, kafka.commands(host))
    return log_places(look, host, kafka, given, status.value.unit_pid if isinstance(status, Seen) else 0)


def directories_left(told: OnDisks) -> tuple[Finding, ...]:
    """Return a finding about all directories on the hosts.

    Brokers themselves report only current and future replicas.
    """
    seen, odd, silent = [], False, False
    for host, reading in told.items():
        if not isinstance(reading, Seen):
            silent = True
            seen.append(f"{host}: {reading}")
            continue
        for mark, kind in _KINDS.items():
            if some := [one.path for one in reading.value if one.mark == mark]:
                odd = odd or mark != "delete"
                seen.append(f"{host}: {len(some):,} {kind}: {few(some)}")
    if not told:
        return ()
    return (
        claim(
            "remove.directories",
            "the removed brokers' disks have no directory of a replica, except those that Kafka deletes",
            False if odd else None if silent else True,
            seen="; ".join(seen) or f"none on {few(told)}",
            needed="none, apart from those that Kafka deletes at its start",
            severity=Severity.WARN,
        ),
    )


def starts_as_itself(host: str, told: Reading[Identity]) -> Finding:
    """Check that a broker finds its own id and cluster in its log directories.

    Otherwise Kafka does not start.
    """
    same = told.value if isinstance(told, Seen) else None
    wrong = same.wrong if same is not None else ()
    dark = same.unread if same is not None else told
    return claim(
        "remove.identity",
        "the broker finds its own id and cluster in its log directories",
        False if wrong else True if dark is None else None,
        seen="; ".join(wrong) or ("all of them name this broker" if dark is None else str(dark)),
        needed="its id in its configuration and in every meta.properties",
        moves=(*(same.moves if same is not None else ()), "then resume the rollback"),
        target=host,
        severity=Severity.BLOCK if wrong else Severity.WARN,
    )


MEANINGS = meanings(
    """
    remove.directories: Directories of partitions remain on the disks of a removed broker. Cause: Kafka had
    set them aside, as stray or future replicas, or no broker loaded them. To do: Check these directories
    before you wipe the disks: a stray directory may be the last copy.

    remove.identity: A removed broker would not start again as itself. Cause: Its config or a meta.properties
    names another id or cluster. To do: Follow one of the ways that the finding names, then resume. Delete no
    log directory.
    """
)
