"""Decide what in a cluster is a leftover and whether it may be removed now, with the findings about it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from zkmigrate.cluster.leftovers.facts import Disks, Kept, Scan, section
from zkmigrate.cluster.leftovers.section import Leftovers
from zkmigrate.cluster.reassign.throttle import RATES
from zkmigrate.kafka.changes import KAFKA, AlterBrokerConfig, AlterTopicConfig
from zkmigrate.kafka.rules import znodes
from zkmigrate.kafka.rules.stray import may_be_last_copy, why_stray
from zkmigrate.runbook.model.change import Changes, MoveAside
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.changes import ZNODES, DeleteZnode, mark

READ_BY_BROKERS_S = 900
"""Seconds for which Kafka itself keeps a notice about a changed config (``changeExpirationMs``)."""


class Kind(StrEnum):
    """The kind of a leftover; its value appears in messages."""

    DELETION = "mark of a topic's deletion"
    TOPIC = "znode of a topic without partitions"
    CONFIG = "config of a topic that does not exist"
    ISR = "notice of a changed ISR"
    LOG_DIR = "notice of a failed log directory"
    CHANGE = "notice of a changed config"
    REASSIGNMENT = "request for a reassignment"
    ELECTION = "request for an election"
    THROTTLE = "throttle setting without a reassignment"
    DIRECTORY = "directory without a replica"


COSTS = {
    Kind.DELETION: "nothing; a rollback does not restore it, because Kafka would delete a topic of that name",
    Kind.TOPIC: "nothing; a topic of that name can be created again",
    Kind.CONFIG: "nothing",
    Kind.ISR: "nothing; the controller reads the ISR from the partitions' znodes",
    Kind.LOG_DIR: "knowledge: the controller may not learn of that failure until it is elected again",
    Kind.CHANGE: "nothing; a broker reads the configs themselves when it starts",
    Kind.REASSIGNMENT: "nothing; a rollback does not restore it, because Kafka would begin it",
    Kind.ELECTION: "nothing; a rollback does not restore it, because Kafka would begin it",
    Kind.THROTTLE: "a limit that somebody may have set for the next reassignment",
    Kind.DIRECTORY: "no data of a topic; the directory is moved next to the log directory",
}

ACTS = (Kind.DELETION, Kind.REASSIGNMENT, Kind.ELECTION)
"""The kinds that Kafka acts on as soon as they exist, so they are never restored."""

MANY = (Kind.ISR, Kind.LOG_DIR, Kind.CHANGE)
"""The kinds of which a cluster may have thousands; the names of these znodes are numbers."""

_FOLDERS = {
    znodes.DELETIONS: Kind.DELETION,
    znodes.TOPICS: Kind.TOPIC,
    znodes.CONFIGS: Kind.CONFIG,
    znodes.ISR: Kind.ISR,
    znodes.LOG_DIRS: Kind.LOG_DIR,
    znodes.CHANGES: Kind.CHANGE,
}


@dataclass(frozen=True)
class Leftover:
    """One leftover.

    name: its name in the inventory.
    size: its size in bytes.
    age_s: seconds since its last change; None if unknown.
    why: why it is a leftover.
    changes: the changes that remove it.
    holds: why it cannot be removed now; empty if it can.
    """

    kind: Kind
    name: str
    size: int
    age_s: float | None
    why: str
    changes: Changes
    holds: str = ""

    @property
    def target(self) -> str:
        """The name of the leftover in the journal.

        zkm-host accepts only operation ids of letters, digits and ``. _ -``. So a directory is named by its
        last component and a digest of its path.
        """
        if self.kind is not Kind.DIRECTORY:
            return self.name
        broker, _, path = self.name.partition(":")
        return f"{broker}-{path.rpartition('/')[2]}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def kind_of(name: str) -> Kind:
    """Return the kind of a leftover by its name."""
    if name.startswith(("topic/", "broker/")):
        return Kind.THROTTLE
    if name in (znodes.REASSIGNMENT, znodes.ELECTION):
        return Kind.REASSIGNMENT if name == znodes.REASSIGNMENT else Kind.ELECTION
    folders = [kind for folder, kind in _FOLDERS.items() if name.startswith(f"{folder}/")]
    return folders[0] if folders else Kind.DIRECTORY


def leftovers(c: Context, found: Scan) -> tuple[Leftover, ...]:
    """Return every leftover of a scan, ordered by kind and name.

    Nothing that belongs to an existing topic is a leftover.
    """
    wanted = section(c)
    every = (*_znodes(wanted, found), *_throttles(found), *_directories(c, wanted, found))
    return tuple(sorted(every, key=lambda one: (list(Kind).index(one.kind), one.name)))


def _znodes(wanted: Leftovers, found: Scan) -> Iterator[Leftover]:
    tree = found.tree.value if isinstance(found.tree, Seen) else None
    for path, nodes in tree.found.items() if tree is not None else ():
        assert tree is not None
        kind, topic = kind_of(path), znodes.topic_of(path)
        newest_ms = max(kept.znode.modified_ms for kept in nodes)
        age_s = found.wall_s - newest_ms / 1000
        if age_s < max(wanted.older_than_s, READ_BY_BROKERS_S if kind is Kind.CHANGE else 0):
            continue
        if topic in found.live or (topic in tree.deleting and kind is not Kind.DELETION):
            continue
        size = sum(len(kept.znode.data) for kept in nodes)
        yield Leftover(
            kind, path, size, age_s, _explain(kind, topic), tuple(_deleted(wanted, kept) for kept in nodes)
        )


def _deleted(wanted: Leftovers, kept: Kept) -> DeleteZnode:
    return DeleteZnode(ZNODES, wanted.chroot, kept.path, kept.znode.data, kept.acl, mark(kept.znode))


def _explain(kind: Kind, topic: str) -> str:
    match kind:
        case Kind.DELETION | Kind.CONFIG:
            return f"no topic {topic} exists"
        case Kind.TOPIC:
            return f"/brokers/topics/{topic} names no partition"
        case Kind.REASSIGNMENT | Kind.ELECTION:
            return "no reassignment or election is in flight, and the controller has not removed the request"
        case _:
            return "the brokers that read this notice have not removed it"


def _throttles(found: Scan) -> Iterator[Leftover]:
    """Yield each throttle setting as a leftover.

    A throttle setting has no effect while no reassignment is in flight.
    """
    for target, settings in found.throttles.value.items() if isinstance(found.throttles, Seen) else ():
        what, _, name = target.partition("-")
        for key, own in settings.items():
            if own is not None:
                change: AlterBrokerConfig | AlterTopicConfig = (
                    AlterBrokerConfig(KAFKA, int(name), key, None, own)
                    if key in RATES
                    else AlterTopicConfig(KAFKA, name, key, None, own)
                )
                why = f"set to {own}, and no reassignment is in flight"
                yield Leftover(Kind.THROTTLE, f"{what}/{name}/{key}", len(own), None, why, (change,))


def _directories(c: Context, wanted: Leftovers, found: Scan) -> Iterator[Leftover]:
    for disks in found.disks:
        for one in disks.directories:
            told = found.told(one.topic)
            why = why_stray(one.topic, one.number, one.mark, disks.broker.id, told)
            age_s = None if one.changed_s is None else found.wall_s - one.changed_s
            if not why or (age_s is not None and age_s < wanted.older_than_s):
                continue
            folder = one.path.rpartition("/")[0]
            holds = _obstacle(disks, folder)
            if not one.mark and may_be_last_copy(one.number, told):
                holds = (
                    f"a replica of {one.topic}-{one.number} lags, so this may be the last copy; "
                    "wait until that replica is in sync"
                )
            aside = MoveAside(disks.broker.name, one.path, f"{folder}.zkm-{c.run}")
            yield Leftover(
                Kind.DIRECTORY, f"{disks.broker.name}:{one.path}", one.size, age_s, why, (aside,), holds
            )


def _obstacle(disks: Disks, folder: str) -> str:
    if not disks.looked:
        return "the inventory has no section ssh, so only the broker reported this directory"
    if folder in disks.mounts:
        return (
            f"{folder} is a mount point, so its disk has no directory outside it; move the leftover by hand"
        )
    return (
        f"the broker runs and may have the directory open; stop only {disks.broker.name}"
        if disks.runs
        else ""
    )


def named_leftovers(c: Context, every: Iterable[Leftover]) -> tuple[Leftover, ...]:
    """Return the leftovers that the inventory names."""
    return tuple(one for one in every if section(c).names(one.name))


def quiet(c: Context, found: Scan) -> tuple[Finding, ...]:
    """Return the findings that must hold before each removal.

    The findings require the inventory's cluster, a controller that did not change during the scan, and no
    reassignment in flight.
    """
    missing = found.missing_answer
    answers = claim(
        "leftovers.answer",
        "brokers and ZooKeeper respond",
        None if missing is not None else True,
        seen=str(missing) if missing is not None else "both respond",
        cause=missing.cause if missing is not None else "",
    )
    if missing is not None or not isinstance(found.cluster, Seen):
        return (answers,)
    ids = [found.cluster.value.cluster_id]
    ids += [found.tree.value.cluster_id] if isinstance(found.tree, Seen) else []
    wanted = c.inventory.kafka.cluster_id
    same = claim(
        "leftovers.cluster",
        "brokers and ZooKeeper are those of the cluster that the inventory names",
        all(id == wanted for id in ids),
        seen=f"cluster id {' and '.join(dict.fromkeys(ids))}",
        needed=wanted,
    )
    steady = claim(
        "leftovers.controller",
        "one broker remains the controller",
        not isinstance(found.tree, Seen) or found.tree.value.steady,
        seen="the controller was the same before and after the check"
        if not isinstance(found.tree, Seen) or found.tree.value.steady
        else "there was no controller, or it changed during the check",
    )
    flying = [f"{topic}-{number}" for topic, number in found.in_flight.value] if isinstance(
        found.in_flight, Seen
    ) else None  # fmt: skip
    still = claim(
        "leftovers.in-flight",
        "no reassignment is in flight",
        None if flying is None else not flying,
        seen="brokers before 2.4 do not list reassignments"
        if flying is None
        else f"{len(flying):,}: {few(flying)}"
        if flying
        else "none",
    )
    return (answers, same, steady, still)


def report(c: Context, found: Scan) -> tuple[Finding, ...]:
    """Return the findings about all leftovers.

    Each leftover has a finding of its own, except that all leftovers of a kind in ``MANY`` share one. Further
    findings concern the names in the inventory, and everything that could not be read.
    """
    every = leftovers(c, found)
    told = [_found_finding(c, [one]) for one in every if one.kind not in MANY]
    told += [_found_finding(c, some) for kind in MANY if (some := [one for one in every if one.kind is kind])]
    names = section(c).remove
    unmatched = [entry for entry in names if not any(section_names(entry, one.name) for one in every)]
    summary = claim(
        "leftovers.count",
        "leftovers in the cluster",
        True,
        seen=f"{counted(len(every), 'leftover')}, {len(named_leftovers(c, every)):,} of them named "
        "in leftovers.remove",
        severity=Severity.INFO,
    )
    matched = claim(
        "leftovers.names",
        "every entry of leftovers.remove names a leftover",
        not unmatched,
        seen=f"no leftover has the name {few(unmatched)}" if unmatched else f"{len(names):,} entries",
        needed="names of leftovers as preflight lists them",
    )
    unread = claim(
        "leftovers.disks",
        "every broker's directories were read",
        not found.unread,
        seen=few(found.unread) if found.unread else counted(len(found.disks), "broker"),
        severity=Severity.WARN,
    )
    waiting = found.tree.value.deleting & found.live if isinstance(found.tree, Seen) else frozenset()
    pending = claim(
        "leftovers.deletion",
        "no topic's deletion is unfinished",
        not waiting,
        seen=f"{few(sorted(waiting))}: Kafka finishes the deletion once each broker with a replica runs"
        if waiting
        else "none",
        severity=Severity.WARN,
    )
    return (*told, summary, matched, unread, pending, *_identities(c, found))


def _identities(c: Context, found: Scan) -> Iterator[Finding]:
    """Yield findings that say whether each broker can start again with its own id and cluster."""
    for disks in found.disks:
        same, name = disks.identity, disks.broker.name
        if same is None:
            continue
        dark = str(same.unread) if same.unread is not None else ""
        yield claim(
            "leftovers.identity",
            "the broker finds its own id and cluster in its log directories",
            False if same.wrong else None if dark else True,
            seen="; ".join(same.wrong) or dark or f"broker {disks.broker.id}",
            needed=f"broker {disks.broker.id} in its configuration and in every meta.properties",
            moves=same.moves,
            target=name,
            severity=Severity.BLOCK if name in c.inventory.hosts.get("brokers", ()) else Severity.WARN,
        )


def section_names(entry: str, name: str) -> bool:
    """Return whether one entry of the inventory names a leftover."""
    return Leftovers(remove=(entry,)).names(name)


def _found_finding(c: Context, some: Sequence[Leftover]) -> Finding:
    one = some[0]
    many = f"{len(some):,} of them, such as {one.name}" if len(some) > 1 else one.name
    ages = [left.age_s for left in some if left.age_s is not None]
    age = f", {_age(max(ages))} old" if ages else ""
    size = f"{sum(left.size for left in some):,} bytes{age}"
    will = (
        "named for removal" if named_leftovers(c, some) else "not removed: leftovers.remove does not name it"
    )
    seen = (
        f"{one.kind.value}: {many}: {size}; {one.why}. Removing costs {COSTS[one.kind]}. {will.capitalize()}"
    )
    return claim(
        "leftovers.found",
        "there are no leftovers",
        False,
        seen=f"{seen}. Not removable yet: {one.holds}" if one.holds else seen,
        severity=Severity.WARN,
    )


def _age(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


MEANINGS = meanings(
    """
    leftovers.answer: Brokers or ZooKeeper do not respond. Cause: They are down, an address is wrong, or an
    ACL forbids the read. To do: Find out why, then resume.

    leftovers.cluster: Brokers or ZooKeeper belong to another cluster. Cause: kafka.brokers, kafka.cluster_id
    or leftovers.zookeeper is wrong. To do: Correct migration.yml.

    leftovers.controller: The cluster had no controller, or the controller changed during the check. Cause: A
    broker stopped, or its session expired. To do: Wait until one broker remains the controller, then resume.

    leftovers.in-flight: A reassignment is in flight, or brokers cannot list reassignments. Cause: Another
    person or tool moves partitions, so an apparent leftover may be in use. To do: Wait until the reassignment
    ends, then resume.

    leftovers.found: The finding shows one leftover: its kind, name, size, age, why it counts as one, and what
    its removal costs. Cause: A remark; Kafka did not remove it, or somebody else created it. To do: Name the
    leftover in leftovers.remove if you want it removed.

    leftovers.count: The finding shows how many leftovers there are, and how many are named. Cause: A remark;
    it stops nothing. To do: Nothing.

    leftovers.names: An entry of leftovers.remove names no leftover. Cause: The entry has a typing error, the
    leftover no longer exists or is too young, or its topic exists. To do: Correct the entry, or remove it.

    leftovers.disks: The directories of a broker were not read. Cause: The broker is down and the inventory
    has no section ssh, or ssh failed. To do: Add the section ssh, or start the broker.

    leftovers.identity: A broker's configuration names another id or cluster than its log directories. Cause:
    Somebody changed the configuration, or a disk is another broker's. The broker would not start again. To
    do: Set the old id again. Or give the new broker empty log directories. Do not delete any log directory.

    leftovers.deletion: A topic's deletion is not finished. Cause: A broker with a replica of it is down. To
    do: Start that broker; Kafka then finishes the deletion by itself.
    """
)
