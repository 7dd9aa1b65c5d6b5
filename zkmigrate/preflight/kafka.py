"""Checks of Kafka: fit to be rolled, the cluster it is taken for, and gone from source at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from zkmigrate.inventory import Broker
from zkmigrate.model.fact import Absent, Reading, Seen
from zkmigrate.model.finding import Severity
from zkmigrate.model.look import KafkaView, PartitionState
from zkmigrate.model.step import Context
from zkmigrate.preflight.check import ALWAYS, Gate, Judged, Scope, check, unseen
from zkmigrate.preflight.evidence import Evidence
from zkmigrate.rules.retire import NOT_ON_SOURCE, on_source
from zkmigrate.rules.window import FIND_DOOR_S, deadlines, expected_way_back_s
from zkmigrate.zkdata.session import format_session

LISTED = 5
BROKERS_ANSWER = "an answer of the brokers"


@check("kafka.brokers", "exactly the brokers of the inventory are registered", Scope.CLUSTER, ALWAYS)
def brokers(c: Context, e: Evidence) -> Iterator[Judged]:
    """P27. A broker that the inventory does not know would stay behind on source: a split brain."""
    wanted = {broker.id for broker in c.inventory.kafka.brokers}
    needed = f"brokers {_numbers(wanted)}"
    if not isinstance(e.kafka, Seen):
        yield unseen(e.kafka, needed)
        return
    there = set(e.kafka.value.brokers)
    yield Judged(
        there == wanted,
        f"brokers {_numbers(there)}",
        needed,
        moves=("start the brokers that are missing", "list the others in migration.yml"),
    )


@check("kafka.controller", "one broker is the controller", Scope.CLUSTER, ALWAYS)
def controller(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. Without a controller nothing is elected; the roll restarts it last. Brokers that name another one
    than ZooKeeper holds are behind, or cut off from it. ZooKeeper is asked once dest has joined."""
    needed = "a registered broker, the same in ZooKeeper as by the brokers' answer"
    if not isinstance(e.kafka, Seen):
        yield unseen(e.kafka, BROKERS_ANSWER)
        return
    id, moves = e.kafka.value.controller, ("wait until a controller is elected", "look at the brokers' logs")
    if id not in e.kafka.value.brokers:
        yield Judged(False, f"broker {id}" if id >= 0 else "none", needed, moves=moves)
    elif e.chroot is None:
        yield Judged(True, f"broker {id} by the brokers' answer", needed)
    elif isinstance(e.chroot.controller, Seen):
        registered = e.chroot.controller.value.broker
        seen = f"broker {id}" if registered == id else f"broker {id}; in ZooKeeper broker {registered}"
        yield Judged(registered == id, seen, needed, moves=moves)
    elif isinstance(e.chroot.controller, Absent):
        yield Judged(False, f"broker {id}; none in ZooKeeper", needed, moves=moves)
    else:
        yield unseen(e.chroot.controller, needed)


@check("kafka.cluster-id", "the brokers belong to the cluster of the inventory", Scope.CLUSTER, ALWAYS)
def cluster_id(c: Context, e: Evidence) -> Iterator[Judged]:
    """P30. The inventory names its cluster, so that no other one is ever moved by mistake."""
    needed = c.inventory.kafka.cluster_id
    if isinstance(e.kafka, Seen):
        seen = e.kafka.value.cluster_id
        yield Judged(seen == needed, seen or "none", needed, moves=("correct kafka in migration.yml",))
    else:
        yield unseen(e.kafka, needed)


def _partitions(
    e: Evidence, wrong: Iterable[PartitionState], needed: str, moves: tuple[str, ...] = ()
) -> Iterator[Judged]:
    """The verdict over a list of partitions that are not as they should be."""
    if not isinstance(e.kafka, Seen):
        yield unseen(e.kafka, BROKERS_ANSWER)
        return
    names = [f"{p.topic}-{p.partition}" for p in wrong]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    seen = f"{len(names)}: {', '.join(names[:LISTED])}{more}" if names else "none"
    of = f" of {len(e.kafka.value.partitions)} partitions"
    yield Judged(not names, seen + of, needed, moves=moves)


def _all(reading: Reading[KafkaView]) -> tuple[PartitionState, ...]:
    return reading.value.partitions if isinstance(reading, Seen) else ()


@check("kafka.offline", "no partition is offline", Scope.CLUSTER, ALWAYS)
def offline(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. An offline partition may need the very broker that is restarted next."""
    yield from _partitions(e, [p for p in _all(e.kafka) if p.leader < 0], "none offline")


@check("kafka.under-replicated", "every partition is fully in sync", Scope.CLUSTER, ALWAYS)
def under_replicated(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. Restarting a broker while another one is behind takes partitions below their minimum."""
    behind = [p for p in _all(e.kafka) if set(p.isr) != set(p.replicas)]
    yield from _partitions(e, behind, "none under-replicated", ("wait until the replicas have caught up",))


def _topics(
    e: Evidence, wrong: Iterable[PartitionState], seen: str, needed: str, moves: tuple[str, ...]
) -> Iterator[Judged]:
    """The same, topic by topic, so that somebody can answer for one of them."""
    topics = sorted({p.topic for p in wrong})
    if not topics or not isinstance(e.kafka, Seen):
        yield from _partitions(e, (), needed, moves)
    accept = "accept its pause during each restart: name the topic under accept in migration.yml"
    for topic in topics:
        yield Judged(False, seen, needed, topic, (*moves, accept))


@check("kafka.replication", "every partition has a second replica", Scope.CLUSTER)
def replication(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P29. A partition with one replica is down while its broker restarts."""
    single = [p for p in _all(e.kafka) if len(p.replicas) < 2]
    needed = "no partition with replication factor 1"
    yield from _topics(e, single, "a partition has one replica", needed, ("add replicas",))


@check("kafka.min-isr", "every partition can lose one broker and still be written", Scope.CLUSTER)
def min_isr(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P29. With min.insync.replicas equal to the replication factor acks=all fails during each restart."""
    if isinstance(e.kafka, Seen):
        told = e.kafka.value.min_isr
        unknown = sorted({p.topic for p in e.kafka.value.partitions} - set(told))
        if unknown:
            yield Judged(
                None, f"min.insync.replicas of {', '.join(unknown[:LISTED])} not told", "known for all"
            )
            return
        tight = [
            p for p in e.kafka.value.partitions if len(p.replicas) > 1 and told[p.topic] >= len(p.replicas)
        ]
        moves = ("lower min.insync.replicas or add replicas",)
        needed = "min.insync.replicas below the replication factor"
        yield from _topics(e, tight, "min.insync.replicas is as high as the replicas are many", needed, moves)
    else:
        yield unseen(e.kafka, BROKERS_ANSWER)


@check("kafka.reassignment", "no reassignment is in flight", Scope.CLUSTER, ALWAYS)
def reassignment(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P28. A reassignment goes on through the controller that the roll moves and the window cuts off. Brokers
    before 2.4 cannot tell: there ZooKeeper is asked, once dest has joined."""
    if isinstance(e.kafka, Seen):
        if e.kafka.value.reassigning is None:
            told = "brokers before 2.4 do not tell; ZooKeeper is asked"
            first = e.chroot is None
            yield Judged(None, f"later: {told} at the gate roll" if first else told, "none", later=first)
            return
        names = [f"{topic}-{partition}" for topic, partition in e.kafka.value.reassigning]
        seen = f"{len(names)}: {', '.join(names[:LISTED])}" if names else "none"
        yield Judged(not names, seen, "none", moves=("wait until it has ended, or cancel it",))
    else:
        yield unseen(e.kafka, BROKERS_ANSWER)


@check(
    "kafka.canary-topic", "the canary's topic is there and fit for every broker", Scope.CLUSTER, ALWAYS,
    severity=Severity.WARN,
)  # fmt: skip
def canary_topic(c: Context, e: Evidence) -> Iterator[Judged]:
    """Only where kafka.canary_topic names one. A broker that is the preferred leader of none of its
    partitions is sent nothing; a partition with one replica is down while its broker restarts, which no other
    producer sees. Nothing rests on the canary, so this is a warning."""
    topic = c.inventory.kafka.canary_topic
    if topic is None:
        return
    needed = "in every partition all replicas in sync, two or more, each broker the first of one"
    moves = (f"make {topic} with a partition for each broker", "or take kafka.canary_topic out")
    if not isinstance(e.kafka, Seen):
        yield unseen(e.kafka, needed)
        return
    own = [p for p in e.kafka.value.partitions if p.topic == topic]
    if not own:
        yield Judged(False, f"no topic {topic}", needed, moves=moves)
        return
    first = {p.replicas[0] for p in own if p.replicas}
    idle = [broker.name for broker in c.inventory.kafka.brokers if broker.id not in first]
    wrong = [f"{p.topic}-{p.partition} is not in sync" for p in own if set(p.isr) != set(p.replicas)]
    wrong += [f"{p.topic}-{p.partition} has one replica" for p in own if len(p.replicas) < 2]
    wrong += [f"{name} is the preferred leader of none" for name in idle]
    seen = "; ".join(wrong[:LISTED]) + (f" and {len(wrong) - LISTED} more" if len(wrong) > LISTED else "")
    yield Judged(not wrong, seen or f"{len(own)} partitions", needed, moves=moves)


@check("kafka.left-source", "the broker is no client of source any more", Scope.BROKERS, (Gate.CUTOVER,))
def left_source(c: Context, e: Evidence) -> Iterator[Judged]:
    """One broker left on source means two controllers and two leaders per partition within a minute. Seen in
    source's cons, else in the socket lists of source and brokers; neither is unknown, and stops."""
    for broker in c.inventory.kafka.brokers:
        yield _left(broker, e)


def _left(broker: Broker, e: Evidence) -> Judged:
    needed, moves = "seen nowhere on source", ("restart this broker with zookeeper.connect naming dest",)
    if e.clients is None:
        return Judged(None, "not looked at", needed, broker.name, moves)
    where = e.clients.brokers[broker.name]
    if where:
        return Judged(False, ", ".join(where), needed, broker.name, moves)
    if e.clients.unknown:
        allow = ("allow cons in source's 4lw.commands.whitelist, or let the ssh account run ss",)
        return Judged(None, "; ".join(e.clients.unknown), needed, broker.name, allow)
    return Judged(True, "nowhere", needed, broker.name)


@check("kafka.retired", "a retired broker stays away", Scope.CLUSTER, (Gate.CUTOVER,))
def retired(c: Context, e: Evidence) -> Iterator[Judged]:
    """A host that was left out of the run as gone for good may come back, with a file that names source. By
    the client lists of all source hosts; kafka.brokers tells whether it has registered."""
    if not c.retired:
        yield Judged(True, "none retired", NOT_ON_SOURCE)
    for broker in c.retired:
        if e.clients is None:
            yield Judged(None, "not looked at", NOT_ON_SOURCE, broker.host)
            continue
        held, seen = on_source(broker, e.clients, c.inventory.source_names)
        yield Judged(held, seen, NOT_ON_SOURCE, broker.host, ("end the broker there, or cut that host off",))


@check(
    "kafka.sessions-on-dest", "every session that owns a part of the chroot is a client of dest only",
    Scope.CLUSTER, (Gate.CUTOVER,),
)  # fmt: skip
def sessions_on_dest(_c: Context, e: Evidence) -> Iterator[Judged]:
    """A session that no dest host serves is expired by dest after OPEN, with all it owns. Seen in cons of
    every dest and source host; one that cannot be asked is unknown, and stops. SURVEY asks again before
    FENCE."""
    needed = "in the cons of a dest host, in none of source's"
    moves = ("move this client to dest, or stop it", "allow cons in 4lw.commands.whitelist")
    if e.homes is None or not isinstance(e.sessions, Seen):
        yield unseen(e.sessions, needed, moves=moves)
        return
    astray = [f"session {format_session(s)}: {where}" for s, where in sorted(e.homes.astray.items())]
    held = None if e.homes.unknown else not astray
    seen = "; ".join((*e.homes.unknown, *astray[:LISTED])) or f"{len(e.homes.on_dest)} sessions, all on dest"
    yield Judged(held, seen, needed, moves=moves)


@check(
    "kafka.session-timeout", "the session timeouts leave time for the way back", Scope.CLUSTER,
    (Gate.CUTOVER,), early=True,
)  # fmt: skip
def session_timeout(c: Context, e: Evidence) -> Iterator[Judged]:
    """P33. T is the smallest timeout of the sessions that own ephemerals under the chroot: source may expire
    one T - T/3 after FENCE, so the way back must start that long less its own length less 3 s for clients to
    find the door. That length is the policy's, or the rehearsal's of this run where that was longer. Sessions
    of 6 s leave nothing. The way forward is not bounded by this."""
    way_back = expected_way_back_s(c)
    needed = f"more than 0 s after FENCE to start the way back (T - T/3 - {way_back:g} - 3)"
    enough = max(18, ceil((way_back + FIND_DOOR_S) * 3 / 2) + 3)
    moves = (f"raise zookeeper.session.timeout.ms on the brokers to {enough}000 and roll them",)
    if not isinstance(e.sessions, Seen):
        yield unseen(e.sessions, needed, moves=("allow dump and cons on source",))
        return
    smallest = e.sessions.value.smallest_timeout_ms
    if smallest is None:
        seen = (
            "no session owns anything under the chroot" if not e.sessions.value.owners
            else "an owner's timeout is not told by any server"
        )  # fmt: skip
        yield Judged(None, seen, needed, moves=("allow dump and cons on source",))
        return
    left = deadlines(smallest / 1000, way_back).start_back
    yield Judged(left > 0, f"T = {smallest / 1000:g} s leaves {left:.1f} s", needed, moves=moves)


@check(
    "kafka.addresses", "brokers' registered addresses are those of the inventory", Scope.BROKERS,
    severity=Severity.WARN,
)  # fmt: skip
def addresses(c: Context, e: Evidence) -> Iterator[Judged]:
    """P27. What a broker advertises may differ from where it is reached by ssh; where it does not, ids that
    were swapped in the inventory show here."""
    for broker in c.inventory.kafka.brokers:
        needed = f"{broker.address}:{broker.port}"
        if not isinstance(e.kafka, Seen):
            yield unseen(e.kafka, needed, broker.name)
            continue
        there = e.kafka.value.brokers.get(broker.id)
        if there is None:
            yield Judged(None, "not registered", needed, broker.name)
        else:
            same = there[0] in (broker.address, *broker.also, broker.name) and there[1] == broker.port
            yield Judged(same, f"{there[0]}:{there[1]}", needed, broker.name)


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(str(value) for value in sorted(values)) or "none"


CHECKS = (
    brokers, controller, cluster_id, offline, under_replicated, replication, min_isr, reassignment, addresses,
    canary_topic, left_source, retired, sessions_on_dest, session_timeout,
)  # fmt: skip
