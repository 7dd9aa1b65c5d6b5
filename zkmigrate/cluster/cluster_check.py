"""Find problems with the replicas and leaders of a cluster, from what its brokers report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from zkmigrate.cluster.placement.cluster import Broker, Cluster, Name
from zkmigrate.kafka.questions import InFlight, KafkaView, PartitionState
from zkmigrate.runbook.model.fact import Absent, Reading, Seen

STILL = InFlight((), (), ())
"""The empty reassignment, for a partition that has none in flight."""


@dataclass(frozen=True)
class Wrong:
    """A partition with a problem.

    text: the problem in words. facts: further figures about the problem, by their key in JSON.
    """

    partition: PartitionState
    text: str
    facts: Mapping[str, object]


@dataclass(frozen=True)
class BrokerShare:
    """One broker's share of the cluster.

    leaders: the number of partitions that it leads.
    preferred: the number that it would lead if each preferred replica led.
    replicas: the number of replicas assigned to it.
    """

    broker: int
    rack: str
    registered: bool
    leaders: int
    preferred: int
    replicas: int


@dataclass(frozen=True)
class Check:
    """The state of a cluster.

    down: brokers of the inventory, or of a replica list, that are not registered.
    silent: registered brokers of the inventory that do not answer.
    moves: all reassignments in flight; None if the brokers did not report them.
    unknown: why ``moves`` is None.
    leaders: by topic, how many partitions each registered broker leads.
    """

    brokers: tuple[BrokerShare, ...]
    leaders: Mapping[str, Mapping[int, int]]
    down: tuple[int, ...]
    offline: tuple[Wrong, ...]
    below_min_isr: tuple[Wrong, ...]
    under_replicated: tuple[Wrong, ...]
    few_racks: tuple[Wrong, ...]
    moves: Mapping[Name, InFlight] | None
    unknown: str = ""
    silent: tuple[int, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether the check found a problem or a reassignment in flight."""
        kinds = (
            self.down,
            self.silent,
            self.offline,
            self.below_min_isr,
            self.under_replicated,
            self.few_racks,
        )
        return any(kinds) or bool(self.moves)


def check(view: KafkaView, reading: Reading[Mapping[Name, InFlight]], expected: Mapping[int, str]) -> Check:
    """Check a cluster's brokers, racks, replicas, leaders and reassignments.

    reading: the cluster's reassignments in flight, or the reason why they are unknown.
    expected: the brokers, besides those in replica lists, that should be registered and answer: ids and
    ``host:port``.

    Replicas that a reassignment adds do not count as behind. While a reassignment is in flight, the racks of
    its target are counted. A replica list can span as many racks as it has replicas, up to the number of
    racks of the registered brokers. A broker that is down counts as a rack of its own.
    """
    moves, unknown = _moves(view, reading)
    in_flight = moves or {}
    cluster = Cluster.of((Broker(id_, rack, 0) for id_, (_, _, rack) in view.brokers.items()), ())
    offline, below, behind, few = list[Wrong](), list[Wrong](), list[Wrong](), list[Wrong]()
    for one in view.partitions:
        move = in_flight.get((one.topic, one.partition), STILL)
        if one.leader < 0:
            offline.append(Wrong(one, "no broker leads it", {}))
        least = view.min_isr.get(one.topic, 0)
        if len(one.isr) < least:
            text = f"{len(one.isr)} in sync, min.insync.replicas is {least}"
            below.append(Wrong(one, text, {"min_isr": least}))
        missing = sorted(set(one.replicas) - set(one.isr) - set(move.adding))
        if missing:
            behind.append(Wrong(one, f"not in sync: {_ids(missing)}", {"missing": missing}))
        target = move.target or one.replicas
        racks, possible = cluster.racks(target), min(len(target), cluster.rack_count)
        if racks < possible:
            text = f"in {racks} of {possible} possible racks"
            few.append(Wrong(one, text, {"racks": racks, "possible": possible}))
    shares = _shares(view)
    down = sorted({*expected, *(share.broker for share in shares)} - set(view.brokers))
    unanswered = {id_ for id_, at in expected.items() if id_ in view.brokers and at not in view.releases}
    silent = tuple(sorted(unanswered))
    return Check(
        shares, _leaders(view), tuple(down), tuple(offline), tuple(below), tuple(behind), tuple(few), moves,
        unknown, silent,
    )  # fmt: skip


def _moves(
    view: KafkaView, reading: Reading[Mapping[Name, InFlight]]
) -> tuple[Mapping[Name, InFlight] | None, str]:
    """Return the reassignments in flight, or None and the reason why they are unknown."""
    if isinstance(reading, Seen):
        return dict(sorted(reading.value.items())), ""
    if not isinstance(reading, Absent):
        return None, reading.why
    if view.reassigning is None:
        return None, "brokers older than 2.4 do not report their reassignments"
    sets = {(one.topic, one.partition): one.replicas for one in view.partitions}
    return {name: InFlight(sets.get(name, ()), (), ()) for name in view.reassigning}, ""


def _shares(view: KafkaView) -> tuple[BrokerShare, ...]:
    leaders = Counter(one.leader for one in view.partitions)
    preferred = Counter(one.replicas[0] for one in view.partitions if one.replicas)
    replicas = Counter(id_ for one in view.partitions for id_ in one.replicas)
    return tuple(
        BrokerShare(
            id_,
            view.brokers[id_][2] if id_ in view.brokers else "",
            id_ in view.brokers,
            leaders[id_],
            preferred[id_],
            replicas[id_],
        )
        for id_ in sorted({*view.brokers, *replicas})
    )


def _leaders(view: KafkaView) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for one in view.partitions:
        of_topic = found.setdefault(one.topic, dict.fromkeys(sorted(view.brokers), 0))
        if one.leader in of_topic:
            of_topic[one.leader] += 1
    return found


def _ids(brokers: Collection[int]) -> str:
    return ", ".join(map(str, brokers))
