"""Read the cluster for a placement from its brokers, and from the volumes of their hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, TypeVar

from zkmigrate.cluster.placement import live
from zkmigrate.cluster.placement.cluster import Assigned, Cluster, Name
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import DescribeCluster, DescribeLogDirs, KafkaView, LogDir, LogDirs
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Request, Volume

T = TypeVar("T")
Pause: TypeAlias = Callable[[float], None]

_WITNESSES = 3
"""The number of brokers that report partitions.

Each answer has all partitions; the answers of all brokers of a large cluster would need gigabytes of memory.
"""
LEAVING_S = 20
"""Seconds for which brokers may still list a broker that died.

They list it until its session ends, which by default takes 18 s with ZooKeeper and 9 s without.
"""
_AT_ONCE = 20
"""The number of brokers whose log directories are read between two lines of progress."""


class Sight(Protocol):
    """The methods of ``Look`` that this module uses."""

    def ask(self, request: Request[T]) -> T: ...
    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]: ...
    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]: ...


def read(
    inventory: Inventory, look: Sight, tell: Callable[[str], None], pause: Pause | None = None
) -> Cluster | Refused:
    """Query the inventory's brokers, and return their cluster with sizes and free bytes.

    tell: receives lines of progress. pause: as for :func:`settled`. Raises HostError if no broker answers.
    """
    return measured(inventory, look, seen_by_brokers(look, tell, pause), tell)


def seen_by_brokers(look: Sight, tell: Callable[[str], None], pause: Pause | None = None) -> KafkaView:
    """Query the brokers for partitions and racks.

    pause: as for :func:`settled`. Raises HostError if no broker answers.
    """
    tell("reading partitions and racks from the brokers")
    return _required(settled(lambda: look.ask(DescribeCluster(_WITNESSES)), tell, pause))


def settled(ask: Callable[[], Reading[T]], tell: Callable[[str], None], pause: Pause | None) -> Reading[T]:
    """Query brokers, and repeat a failed query up to ``LEAVING_S`` times.

    After a broker died, the others still list it for a while, and queries to it fail. pause: waits for a
    number of seconds; None if the caller repeats the query itself.
    """
    reading = ask()
    for _ in range(LEAVING_S if pause is not None else 0):
        if not isinstance(reading, Unknown) or reading.cause != "failed":
            break
        assert pause is not None
        tell(f"trying again for at most {LEAVING_S} s, because a query failed: {reading.why}")
        pause(1.0)
        reading = ask()
    return reading


def measured(
    inventory: Inventory,
    look: Sight,
    view: KafkaView,
    tell: Callable[[str], None],
    only: Collection[Name] = (),
) -> Cluster | Refused:
    """Return the cluster that a view shows, with sizes and free bytes from its log directories.

    only: the partitions to include; empty for all. Raises HostError if no broker answers.
    """
    if other := other_cluster(view, inventory):
        return other
    ids = sorted(view.brokers)
    tell(f"{len(view.partitions)} partitions, {len(ids)} brokers")
    told: dict[int, LogDirs] = {}
    asked = by_topic(only) or None
    for at in range(0, len(ids), _AT_ONCE):
        told |= _required(look.ask(DescribeLogDirs(KAFKA, ids[at : at + _AT_ONCE], asked)))
        tell(f"log directories of {len(told)} of {len(ids)} brokers")
    dirs, unseen, copying = _directories(told)
    if moving := _moving(view, copying):
        return moving
    _measure(inventory, look, dirs, unseen, tell)
    racks = {id_: rack for id_, (_, _, rack) in view.brokers.items()}
    hosts = {id_: host for id_, (host, _, _) in view.brokers.items()}
    sets = {(one.topic, one.partition): one.replicas for one in view.partitions}
    if only:
        sets = {name: sets[name] for name in only if name in sets}
    return live.cluster(Assigned(racks, sets, hosts), dirs, unseen)


def other_cluster(view: KafkaView, inventory: Inventory) -> Refused | None:
    """Return a refusal if the brokers belong to another cluster than the inventory's, else None."""
    if view.cluster_id == inventory.kafka.cluster_id:
        return None
    text = f"the brokers belong to cluster {view.cluster_id}; needed: {inventory.kafka.cluster_id}"
    return Refused((Notice("placement.other-cluster", f"{text}, as in the inventory"),))


def by_topic(names: Iterable[Name]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic, as a query for log directories takes them."""
    numbers: dict[str, list[int]] = {}
    for topic, number in names:
        numbers.setdefault(topic, []).append(number)
    return numbers


def _required(reading: Reading[T]) -> T:
    if isinstance(reading, Seen):
        return reading.value
    raise HostError(
        f"{_reason(reading)}. Next: make the brokers reachable; zkmigrate placement also accepts --cluster"
    )


def _reason(reading: Reading[object]) -> str:
    return f"{reading.what} does not exist" if isinstance(reading, Absent) else getattr(reading, "why", "")


def _moving(view: KafkaView, copying: Sequence[str]) -> Refused | None:
    """Return a refusal if replicas are moving between brokers or log directories, else None."""
    if view.reassigning is None:
        seen = "these brokers are older than 2.4 and do not report whether a reassignment is in flight"
    elif view.reassigning:
        seen = live.moving_partitions(view.reassigning)
    elif copying:
        seen = f"{len(copying)} replicas are moving to another directory, the first is {copying[0]}"
    else:
        return None
    return live.reassigning(seen)


def _directories(
    told: Mapping[int, LogDirs],
) -> tuple[dict[int, dict[str, live.Directory]], dict[int, str], list[str]]:
    """Sort the brokers' answers about log directories.

    Returns three values: the log directories by broker id and path, the reason why a broker has none by
    broker id, and the names of replicas that are moving to another directory.
    """
    dirs: dict[int, dict[str, live.Directory]] = {}
    unseen: dict[int, str] = {}
    copying: list[str] = []
    for id_, of_broker in told.items():
        if not isinstance(of_broker, Seen):
            unseen[id_] = _reason(of_broker)
            continue
        dirs[id_] = {}
        for path, reading in of_broker.value.items():
            if isinstance(reading, Seen):
                dirs[id_][path] = _directory(reading.value)
                future = [one for one in reading.value.replicas if one.future]
                copying += [f"{one.topic}-{one.partition} on broker {id_}" for one in future]
            else:
                unseen[id_] = _reason(reading)
    return dirs, unseen, copying


def _directory(told: LogDir) -> live.Directory:
    """Convert a log directory that a broker reports to the type that placement uses.

    A cordoned directory has no room, because it accepts no replica that is assigned to it by name.
    """
    sizes = {(one.topic, one.partition): one.size for one in told.replicas}
    return live.Directory(sizes, 0 if told.cordoned else told.usable, told.total)


def _measure(
    inventory: Inventory,
    look: Sight,
    dirs: dict[int, dict[str, live.Directory]],
    unseen: dict[int, str],
    tell: Callable[[str], None],
) -> None:
    """Read the volumes of hosts whose brokers do not report free bytes. Updates ``dirs`` and ``unseen``."""
    names = {broker.id: broker.name for broker in inventory.kafka.brokers}
    asked = {id_: held for id_, held in dirs.items() if id_ not in unseen and live.needs_host(held)}
    unseen |= {
        id_: "its free bytes are unknown, because the inventory does not have this broker"
        for id_ in asked
        if id_ not in names
    }
    at = {names[id_]: id_ for id_ in asked if id_ in names}
    if not inventory.has("ssh"):
        unseen |= dict.fromkeys(
            at.values(), "only its host can report its free bytes, and the inventory has no section ssh"
        )
        return
    if at:
        tell(f"{len(at)} hosts: reading their volumes with df")
    for host, reading in look.each(at, lambda host: look.volumes(host, sorted(asked[at[host]]))).items():
        if not isinstance(reading, Seen):
            unseen[at[host]] = _reason(reading)
            continue
        for path, volume in reading.value.items():
            known = dirs[at[host]][path]
            dirs[at[host]][path] = replace(known, free=volume.free, total=volume.total, volume=volume.mount)
