"""Checks of Kafka: it can be rolled, is the cluster of the inventory, and has left source at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from zkmigrate.hosts.facts.host_names import resolver, same_host, unresolved
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.kafka.rules.listeners import for_clients
from zkmigrate.move.preflight import members
from zkmigrate.move.preflight.check import ALWAYS, Gate, Judged, Scope, check, unseen
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.kafka_evidence import of_kafka, properties_at, to_start
from zkmigrate.move.rules.retire import NOT_ON_SOURCE, on_source
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context

LISTED = 5
BROKERS_ANSWER = "an answer from the brokers"


@check("kafka.brokers", "exactly the brokers of the inventory are registered", Scope.CLUSTER, ALWAYS)
def brokers(c: Context, e: Evidence) -> Iterator[Judged]:
    """P27. A broker that the inventory does not name would stay on source and split the cluster.

    To do: Add the broker to migration.yml, or start the one that is missing.
    """
    k = of_kafka(e)
    wanted = {broker.id for broker in c.inventory.kafka.brokers}
    needed = f"brokers {_numbers(wanted)}"
    if not isinstance(k.view, Seen):
        silent, others = unseen(k.view, needed), _other_ports(c, e)
        yield replace(silent, moves=others) if others else silent
        return
    there = set(k.view.value.brokers)
    yield Judged(
        there == wanted,
        f"brokers {_numbers(there)} are registered",
        needed,
        moves=registered_moves(there, wanted),
    )


def _other_ports(c: Context, e: Evidence) -> tuple[str, ...]:
    """Return what the operator can do if a broker's file gives its client listener another port than the
    inventory.
    """
    found = []
    for broker in c.inventory.kafka.brokers:
        properties = properties_at(e, broker.name, c.inventory.kafka.config)
        listener = for_clients(properties.value) if isinstance(properties, Seen) else None
        if listener is not None and listener.port != broker.port:
            found.append(f"{broker.name} listens on port {listener.port} ({listener.name}): correct its port")
    return (*found[:LISTED], *(("correct kafka.brokers in migration.yml",) if found else ()))


def registered_moves(there: Collection[int], wanted: Collection[int]) -> tuple[str, ...]:
    """Return what the operator can do about brokers that are registered but not wanted, or wanted but
    missing.

    there: the ids of the registered brokers. wanted: the ids that should be registered.
    """
    missing, others = set(wanted) - set(there), set(there) - set(wanted)
    moves = [f"start broker {_numbers(missing)}"] if missing else []
    return (*moves, *([f"add broker {_numbers(others)} to kafka.brokers in migration.yml"] if others else []))


@check("kafka.controller", "one broker is the controller", Scope.CLUSTER, ALWAYS)
def controller(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. Without a controller Kafka elects no leader; the roll restarts the controller last. A broker that
    names another controller than ZooKeeper does is behind, or cut off from ZooKeeper. After the join the
    check asks ZooKeeper too.

    To do: Wait for an election. Restart a broker that names another controller.
    """
    k = of_kafka(e)
    needed = "a registered broker, the same in ZooKeeper as in the brokers' answer"
    if not isinstance(k.view, Seen):
        yield unseen(k.view, BROKERS_ANSWER)
        return
    id, moves = (k.view.value.controller, ("wait until a controller is elected", "look at the brokers' logs"))
    if id not in k.view.value.brokers:
        seen = (
            f"the brokers name {id}, which is not registered" if id >= 0 else "the brokers name no controller"
        )
        yield Judged(False, seen, needed, moves=moves)
    elif k.chroot is None:
        yield Judged(True, f"broker {id}, as the brokers answer", needed)
    elif isinstance(k.chroot.controller, Seen):
        registered = k.chroot.controller.value.broker
        seen = f"broker {id}" if registered == id else f"the brokers name {id}, ZooKeeper names {registered}"
        yield Judged(registered == id, seen, needed, moves=moves)
    elif isinstance(k.chroot.controller, Absent):
        yield Judged(False, f"the brokers name {id}, ZooKeeper names no controller", needed, moves=moves)
    else:
        yield unseen(k.chroot.controller, needed)


@check("kafka.cluster-id", "the brokers belong to the cluster of the inventory", Scope.CLUSTER, ALWAYS)
def cluster_id(c: Context, e: Evidence) -> Iterator[Judged]:
    """P30. The inventory names its cluster, so that zkmigrate never moves another one by mistake.

    To do: Correct kafka.cluster_id or the brokers' addresses in migration.yml.
    """
    k = of_kafka(e)
    needed = c.inventory.kafka.cluster_id
    if isinstance(k.view, Seen):
        id = k.view.value.cluster_id
        moves = (
            "correct kafka.cluster_id in migration.yml",
            "if another cluster is to be moved: correct the addresses in kafka.brokers",
        )
        yield Judged(id == needed, f"the brokers belong to {id or 'no cluster'}", needed, moves=moves)
    else:
        yield unseen(k.view, needed)


def _partitions(
    e: Evidence, wrong: Iterable[PartitionState], what: str, needed: str, moves: tuple[str, ...] = ()
) -> Iterator[Judged]:
    """Yield the verdict about a list of partitions with a defect.

    wrong: the partitions. what: the defect as text.
    """
    k = of_kafka(e)
    if not isinstance(k.view, Seen):
        yield unseen(k.view, BROKERS_ANSWER)
        return
    names = [f"{p.topic}-{p.partition}" for p in wrong]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    listed = f": {', '.join(names[:LISTED])}{more}" if names else ""
    seen = f"{len(names)} of {len(k.view.value.partitions)} partitions{what}{listed}"
    yield Judged(not names, seen, needed, moves=moves)


def _all(reading: Reading[KafkaView]) -> tuple[PartitionState, ...]:
    return reading.value.partitions if isinstance(reading, Seen) else ()


@check("kafka.offline", "no partition is offline", Scope.CLUSTER, ALWAYS)
def offline(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. No replica of the partition serves. The partition may need the very broker that the roll restarts
    next.

    To do: Start the broker that holds the partition.
    """
    k = of_kafka(e)
    moves = ("start the broker that holds the partition",)
    yield from _partitions(e, [p for p in _all(k.view) if p.leader < 0], " offline", "none offline", moves)


@check("kafka.under-replicated", "every partition is fully in sync", Scope.CLUSTER, ALWAYS)
def under_replicated(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. A replica is not in sync. If the roll restarts another broker now, partitions may fall below
    min.insync.replicas.

    To do: Wait until every replica is in sync, or start the broker that is down.
    """
    k = of_kafka(e)
    behind = [p for p in _all(k.view) if set(p.isr) != set(p.replicas)]
    moves = ("start a broker that is down", "if none is down: wait until the replicas have caught up")
    yield from _partitions(e, behind, " not fully in sync", "none under-replicated", moves)


def _topics(
    e: Evidence, wrong: Iterable[PartitionState], seen: str, needed: str, moves: tuple[str, ...]
) -> Iterator[Judged]:
    """Yield one verdict for each topic, so that a person can accept the finding for a single topic."""
    k = of_kafka(e)
    topics = sorted({p.topic for p in wrong})
    if not topics or not isinstance(k.view, Seen):
        yield from _partitions(e, (), "", needed, moves)
    accept = "accept that the topic pauses during each restart: name it under accept in migration.yml"
    for topic in topics:
        yield Judged(False, seen, needed, topic, (*moves, accept))


@check("kafka.replication", "every partition has a second replica", Scope.CLUSTER)
def replication(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P29. A partition with one replica is down while its broker restarts.

    To do: Add a replica. Or accept the finding for that topic in migration.yml.
    """
    k = of_kafka(e)
    single = [p for p in _all(k.view) if len(p.replicas) < 2]
    needed = "no partition with replication factor 1"
    yield from _topics(e, single, "a partition has one replica", needed, ("add replicas",))


@check("kafka.min-isr", "every partition accepts writes while one of its brokers is down", Scope.CLUSTER)
def min_isr(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P29. With min.insync.replicas equal to the replication factor, acks=all fails while any broker
    restarts.

    To do: Lower min.insync.replicas or add replicas. Or accept the finding for that topic in
    migration.yml.
    """
    k = of_kafka(e)
    if isinstance(k.view, Seen):
        min_isrs = k.view.value.min_isr
        unknown = sorted({p.topic for p in k.view.value.partitions} - set(min_isrs))
        if unknown:
            yield Judged(
                None, f"min.insync.replicas of {', '.join(unknown[:LISTED])} is not known", "known for all"
            )
            return
        tight = [
            p for p in k.view.value.partitions if len(p.replicas) > 1 and min_isrs[p.topic] >= len(p.replicas)
        ]
        moves = ("lower min.insync.replicas or add replicas",)
        needed = "min.insync.replicas below the replication factor"
        yield from _topics(e, tight, "min.insync.replicas is not below the number of replicas", needed, moves)
    else:
        yield unseen(k.view, BROKERS_ANSWER)


@check("kafka.reassignment", "no reassignment is in flight", Scope.CLUSTER, ALWAYS)
def reassignment(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. A reassignment goes through the controller, which the roll moves and the window cuts off. Brokers
    before 2.4 cannot report reassignments, so after the join the check asks ZooKeeper.

    To do: Wait until the reassignment ends, or cancel it.
    """
    k = of_kafka(e)
    if isinstance(k.view, Seen):
        if k.view.value.reassigning is None:
            reason = "brokers before 2.4 do not report this, so ZooKeeper is read"
            first = k.chroot is None
            yield Judged(None, f"later: {reason} at the gate roll" if first else reason, "none", later=first)
            return
        names = [f"{topic}-{partition}" for topic, partition in k.view.value.reassigning]
        seen = f"{len(names)} being reassigned: {', '.join(names[:LISTED])}" if names else "none"
        yield Judged(not names, seen, "none", moves=("wait until the reassignment has ended, or cancel it",))
    else:
        yield unseen(k.view, BROKERS_ANSWER)


@check(
    "kafka.canary-topic", "the canary's topic exists and has a partition led by each broker", Scope.CLUSTER,
    ALWAYS, severity=Severity.WARN,
)  # fmt: skip
def canary_topic(c: Context, e: Evidence) -> Iterator[Judged]:
    """This check applies only if kafka.canary_topic names a topic. The canary writes nothing to a broker that
    is preferred leader of none of its partitions. A partition with one replica is down while its broker
    restarts. No decision depends on the canary, so the check only warns.

    To do: Create the topic, with one partition led by each broker and two replicas or more. Or leave
    kafka.canary_topic out.
    """
    k = of_kafka(e)
    topic = c.inventory.kafka.canary_topic
    if topic is None:
        return
    needed = "two or more replicas in each partition, all in sync, and a partition led by each broker"
    moves = (f"create {topic} with a partition for each broker", "or remove kafka.canary_topic")
    if not isinstance(k.view, Seen):
        yield unseen(k.view, needed)
        return
    own = [p for p in k.view.value.partitions if p.topic == topic]
    if not own:
        yield Judged(False, f"no topic {topic}", needed, moves=moves)
        return
    first = {p.replicas[0] for p in own if p.replicas}
    idle = [broker.name for broker in c.inventory.kafka.brokers if broker.id not in first]
    wrong = [f"{p.topic}-{p.partition} is not in sync" for p in own if set(p.isr) != set(p.replicas)]
    wrong += [f"{p.topic}-{p.partition} has one replica" for p in own if len(p.replicas) < 2]
    wrong += [f"{name} is the preferred leader of no partition" for name in idle]
    seen = "; ".join(wrong[:LISTED]) + (f" and {len(wrong) - LISTED} more" if len(wrong) > LISTED else "")
    yield Judged(not wrong, seen or f"{len(own)} partitions", needed, moves=moves)


@check("kafka.retired", "no retired broker has come back", Scope.CLUSTER, (Gate.CUTOVER,))
def retired(c: Context, e: Evidence) -> Iterator[Judged]:
    """A host that was retired as gone for good may come back with a file that names source. The check reads
    the client lists of all source hosts; kafka.brokers shows whether the broker has registered.

    To do: Stop the broker on that host, or cut the host off.
    """
    if not c.retired:
        yield Judged(True, "none retired", NOT_ON_SOURCE)
    for broker in c.retired:
        if e.clients is None:
            yield Judged(None, "not read", NOT_ON_SOURCE, broker.host)
            continue
        held, seen = on_source(broker, e.clients, e.source.servers)
        yield Judged(
            held,
            seen,
            NOT_ON_SOURCE,
            broker.host,
            ("stop the broker on that host, or disconnect the host from the network",),
        )


@check(
    "kafka.addresses", "brokers' registered addresses are those of the inventory", Scope.BROKERS,
    severity=Severity.WARN,
)  # fmt: skip
def addresses(c: Context, e: Evidence) -> Iterator[Judged]:
    """P27. A broker may advertise another address than the one that ssh uses, which is harmless. Otherwise
    two ids are swapped in the inventory.

    To do: See whether the broker ids in migration.yml belong to these hosts.
    """
    k = of_kafka(e)
    for broker in c.inventory.kafka.brokers:
        needed = f"{broker.address}:{broker.port}"
        if not isinstance(k.view, Seen):
            yield unseen(k.view, needed, broker.name)
            continue
        there = k.view.value.brokers.get(broker.id)
        if there is None:
            yield Judged(None, "not registered", needed, broker.name, to_start(e, broker.name))
        else:
            own = (broker.address, *broker.also, broker.name)
            resolve = resolver(k.resolved, "")
            same = same_host(there[0], own, resolve) if there[1] == broker.port else False
            lacks = f"; {unresolved(there[0], resolve(there[0]), 'this machine')}" if same is None else ""
            yield Judged(same, f"it is registered as {there[0]}:{there[1]}{lacks}", needed, broker.name)


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(str(value) for value in sorted(values)) or "none"


CHECKS = (
    brokers, controller, cluster_id, offline, under_replicated, replication, min_isr, reassignment, addresses,
    canary_topic, members.left_source, retired, members.sessions_on_dest, members.session_timeout,
)  # fmt: skip
