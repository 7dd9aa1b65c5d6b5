"""What is watched beside the change: whether the cluster stays as well as it was when the change began.

Kafka takes a value at once, and a broker may fall ill from it much later: very short segments cost it file
handles, much smaller retention costs its disks. What was not well before the change does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.inventory.inventory import Inventory, Policy
from zkmigrate.model.change import KAFKA
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, claim, few, meanings
from zkmigrate.model.look import Look, TopicPartitions, cost
from zkmigrate.model.step import Context
from zkmigrate.model.window import Decision, Probe, WatchSpec
from zkmigrate.topics.facts import topic_config, topics_to_set
from zkmigrate.topics.rules import AGAIN

EVERY_S = 30.0
"""Seconds between two looks."""

WITNESSES = 2
"""Brokers that each look asks."""

_IN_A_ROW = 2
"""Looks that have to find the same: a broker that restarts, or a leader that moves, is no trouble yet."""

BROKERS, LEADERS, IN_SYNC, TOLD = "topics.brokers", "topics.leaders", "topics.in-sync", "topics.told"


def foreseen(_c: Context, _look: Look) -> tuple[str, ...]:
    """What ``plan`` says of the watch: what it asks of how many brokers."""
    asked = f"{cost(Look.topic_partitions)}; {WITNESSES} witnesses, every {EVERY_S:g} s"
    return (f"  beside it: {asked}",)


@dataclass(frozen=True)
class Problems:
    """What is not well. brokers: of the inventory, that the cluster does not name. leaders: partitions that
    nobody leads. in_sync: those with a replica that is not in sync. unreadable: topics that may not be
    described."""

    brokers: frozenset[str]
    leaders: frozenset[str]
    in_sync: frozenset[str]
    unreadable: frozenset[str]


def problems(inventory: Inventory, seen: TopicPartitions) -> Problems:
    """What is not well among the brokers of the inventory and these topics; a topic that is gone is the
    step's matter."""
    partitions = [p for topic in seen.topics.values() if isinstance(topic, Seen) for p in topic.value]
    return Problems(
        frozenset(b.name for b in inventory.brokers if b.id not in seen.brokers),
        frozenset(f"{p.topic}-{p.partition}" for p in partitions if p.leader < 0),
        frozenset(f"{p.topic}-{p.partition}" for p in partitions if set(p.isr) < set(p.replicas)),
        frozenset(name for name, topic in seen.topics.items() if isinstance(topic, Unknown)),
    )


class Health:
    """The looks of one process beside one stage; the first of them is made at once."""

    def __init__(self, inventory: Inventory, look: Look) -> None:
        self._inventory = inventory
        self._look = look
        self._topics: tuple[str, ...] = ()
        self._missed = 0
        first = self._seen()
        self._before = self._last = problems(inventory, first.value) if isinstance(first, Seen) else None

    def findings(self) -> Iterator[Finding]:
        """What has become worse since the first look, and was so in the look before, too."""
        seen = self._seen()
        self._missed = 0 if isinstance(seen, Seen) else self._missed + 1
        if not isinstance(seen, Seen):
            if self._missed >= _IN_A_ROW:
                yield _trouble(TOLD, "the brokers describe the topics", str(seen), None)
            return
        now = problems(self._inventory, seen.value)
        before, last = self._before or now, self._last or now
        self._before, self._last = before, now
        for id, sentence, lasting, old in (
            (BROKERS, "no broker has left the cluster", now.brokers & last.brokers, before.brokers),
            (LEADERS, "no partition has lost its leader", now.leaders & last.leaders, before.leaders),
            (IN_SYNC, "no replica has fallen behind", now.in_sync & last.in_sync, before.in_sync),
        ):
            worse = sorted(lasting - old)
            yield _trouble(id, sentence, f"{len(worse):,}: {few(worse)}" if worse else "", not worse)
        dark = sorted((now.unreadable & last.unreadable) - before.unreadable)
        yield _trouble(TOLD, "the brokers describe the topics", few(dark), None if dark else True)

    def _seen(self) -> Reading[TopicPartitions]:
        """The topics of the run through few brokers; which topics these are is asked once."""
        if not self._topics:
            cluster = self._look.topics(KAFKA)
            if not isinstance(cluster, Seen):
                return cluster
            self._topics = topics_to_set(topic_config(self._inventory), cluster.value.names)
        return self._look.topic_partitions(KAFKA, self._topics, WITNESSES)


def _trouble(id: str, sentence: str, seen: str, held: bool | None) -> Finding:
    moves = (AGAIN, "rollback: it takes back what this run has set")
    return claim(id, sentence, held, seen=seen or "as before the change", moves=moves)


def _probes(inventory: Inventory, look: Look) -> tuple[Probe, ...]:
    return (Probe("topics", EVERY_S, Health(inventory, look).findings),)


def decide(phase: str, finding: Finding, _policy: Policy) -> Decision:
    """A partition that nobody leads serves nobody. The value may be why, and a stop would leave it in force:
    go back, where anything was changed. Everything else asks; nobody's answer stops the run, resumable."""
    return Decision.BACK if phase and finding.id == LEADERS else Decision.ASK


WATCH = WatchSpec(_probes, decide)


MEANINGS = meanings(
    """
    topics.brokers: A broker left the cluster since the change began. Cause: It stopped, or lost its
    session. To do: Bring it back and resume. Or roll back, which takes back what this run has set.

    topics.leaders: A partition lost its leader since the change began. Cause: Its brokers are down. To
    do: Bring them back and resume. Or roll back.

    topics.in-sync: A replica fell behind since the change began. Cause: A broker is down or overloaded.
    To do: Wait until it is in sync, then resume. Or roll back.

    topics.told: The brokers stopped telling how the topics are. Cause: They do not answer. To do: See
    why, then resume.
    """
)
