"""Choose preferred leaders: the first broker of each replica list. A new leader copies no byte."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping

from zkmigrate.cluster.placement.cluster import Cluster, Name, Set
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.cluster.placement.request import Rollout, matcher


def led_by(leader: int, replicas: Set) -> Set:
    """Return the replica list with another preferred leader; the other replicas keep their order."""
    return leader, *(broker for broker in replicas if broker != leader)


def barred(rollout: Rollout, topics: Iterable[str]) -> dict[str, frozenset[int]] | Refused:
    """Return the brokers that must not lead, for each of the topics that ``leader_evac_topics`` names."""
    brokers, wanted = rollout.leader_evac_brokers, rollout.leader_evac_topics
    if bool(brokers) != bool(wanted):
        given, missing = ("brokers", "topics") if brokers else ("topics", "brokers")
        text = f"leader-evac-{given} is given without leader-evac-{missing}; needed: both or neither"
        return Refused((Notice("placement.evacuation-half", text),), options=True)
    found = dict.fromkeys(topics)
    names = found.keys() & set(wanted)
    try:
        patterns = [matcher(name) for name in wanted if name not in names]
    except re.error as err:
        text = f"leader-evac-topics contains {err.pattern!r}, which is not a regular expression: {err}"
        return Refused((Notice("placement.evacuation-pattern", text),), options=True)
    return {
        topic: frozenset(brokers)
        for topic in found
        if topic in names or any(matches(topic) for matches in patterns)
    }


def evacuated(
    cluster: Cluster, sets: Mapping[Name, Set], away: Mapping[str, frozenset[int]]
) -> dict[Name, Set] | Refused:
    """Return the same replica lists, each led by the first of its brokers that may lead.

    away: the result of ``barred``.

    A refusal names each partition whose registered brokers are all evacuated.
    """
    found, stuck = {}, []
    for name, replicas in sets.items():
        if replicas[0] not in away.get(name[0], ()):
            found[name] = replicas
        elif may := _may_lead(cluster, name, replicas, away):
            found[name] = led_by(may[0], replicas)
        else:
            stuck.append(name)
    if not stuck:
        return found
    return Refused(
        tuple(
            Notice(
                "placement.evacuation-all",
                f"{topic}-{number} has no broker that may lead it: {list(sets[topic, number])}; "
                f"evacuated: {sorted(away[topic])}",
            )
            for topic, number in sorted(stuck)
        )
    )


def spread_leaders(
    cluster: Cluster, sets: Mapping[Name, Set], away: Mapping[str, frozenset[int]] | None = None
) -> dict[Name, Set]:
    """Return the same replica lists, reordered so that all brokers lead as equal numbers as possible.

    No other choice of leaders has a lower maximum or a higher minimum of partitions led by a broker. Leaders
    of the cluster's other partitions are counted too. away: the result of ``barred``.

    From the broker that leads most, a leadership is passed on, over a chain of brokers if needed, to one that
    leads at least two fewer. If no chain ends at such a broker, none of the brokers that it reaches can
    improve (Harvey, Ladner, Lovász, Tamir: semi-matchings for bipartite graphs and load balancing, 2006).
    """
    spread = _Spread(cluster, sets, away or {})
    spread.level()
    return {
        name: led_by(spread.leader[name], replicas) if name in spread.leader else replicas
        for name, replicas in sets.items()
    }


def may_lead(cluster: Cluster, broker: int, away: frozenset[int]) -> bool:
    """Return whether a broker may lead a topic. away: the brokers that must not."""
    return broker in cluster.brokers and broker not in away


def _may_lead(
    cluster: Cluster, name: Name, replicas: Set, away: Mapping[str, frozenset[int]]
) -> tuple[int, ...]:
    no = away.get(name[0], frozenset())
    return tuple(broker for broker in replicas if may_lead(cluster, broker, no))


class _Spread:
    """The choice of leaders while it is being spread.

    leader: the leader of each partition that may have one.
    led: the number of partitions that each broker leads.
    hand: the partitions by their leader and by another broker that may lead them.
    """

    def __init__(
        self, cluster: Cluster, sets: Mapping[Name, Set], away: Mapping[str, frozenset[int]]
    ) -> None:
        self.led = dict.fromkeys(cluster.brokers, 0)
        self.hand: dict[int, dict[int, dict[Name, None]]] = {broker: {} for broker in cluster.brokers}
        self.leader: dict[Name, int] = {}
        self.may: dict[Name, tuple[int, ...]] = {}
        for partition in cluster.partitions:
            if partition.name not in sets and partition.replicas[0] in self.led:
                self.led[partition.replicas[0]] += 1
        for name in sorted(sets):
            if may := _may_lead(cluster, name, sets[name], away):
                self.may[name] = may
                self._lead(name, may[0])

    def level(self) -> None:
        """Pass leaderships on until no chain improves the spread.

        Single steps come first, because they are many and need no search.
        """
        better = True
        while better:
            better = False
            for name, may in self.may.items():
                target = min(may, key=lambda broker: (self.led[broker], broker))
                if self.led[target] <= self.led[self.leader[name]] - 2:
                    self._hand_on(name, target)
                    better = True
        heap = [(-led, broker) for broker, led in self.led.items()]
        heapq.heapify(heap)
        settled: set[int] = set()
        while heap:
            led, broker = heapq.heappop(heap)
            if broker in settled or -led != self.led[broker]:
                continue
            came_from, end = self._reach(broker, settled)
            if end is None:
                settled |= came_from.keys()
                continue
            for source, target in _backwards(came_from, end):
                self._hand_on(next(reversed(self.hand[source][target])), target)
            for changed in (broker, end):
                heapq.heappush(heap, (-self.led[changed], changed))

    def _reach(self, start: int, settled: set[int]) -> tuple[dict[int, int], int | None]:
        """Find the brokers that a leadership of ``start`` can be passed on to.

        Returns two values. The first maps each broker that can be reached to the broker before it in the
        chain. The second is the nearest broker that leads at least two fewer, or None if there is none.
        """
        came_from = {start: start}
        edge = [start]
        while edge:
            further = []
            for source in edge:
                for target, names in self.hand[source].items():
                    if names and target not in came_from and target not in settled:
                        came_from[target] = source
                        further.append(target)
            end = min(further, key=lambda broker: (self.led[broker], broker), default=None)
            if end is not None and self.led[end] <= self.led[start] - 2:
                return came_from, end
            edge = further
        return came_from, None

    def _lead(self, name: Name, broker: int) -> None:
        self.leader[name] = broker
        self.led[broker] += 1
        for other in self.may[name]:
            if other != broker:
                self.hand[broker].setdefault(other, {})[name] = None

    def _hand_on(self, name: Name, target: int) -> None:
        source = self.leader[name]
        for other in self.may[name]:
            if other != source:
                del self.hand[source][other][name]
        self.led[source] -= 1
        self._lead(name, target)


def _backwards(came_from: Mapping[int, int], end: int) -> Iterator[tuple[int, int]]:
    while came_from[end] != end:
        yield came_from[end], end
        end = came_from[end]
