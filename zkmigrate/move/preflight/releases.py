"""Checks of the Kafka release of each broker, as its jars and its API answers show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.inventory.inventory import Broker
from zkmigrate.kafka.facts.release import Release, release
from zkmigrate.move.preflight.check import Judged, Scope, check, unseen
from zkmigrate.move.preflight.drilled import DRILLED, NEEDED
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.kafka_evidence import of_kafka, to_start
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context

GUARDED_FROM = (2, 4)
"""The first release in which a broker keeps the cluster's id in meta.properties and rejects another id.

Source: KAFKA-7335.
"""


@dataclass(frozen=True)
class Bug:
    """A Kafka bug that a lost or renewed ZooKeeper session triggers.

    since: the first release with the bug. fixed: the first release without it. what: its effect, as text.
    """

    id: str
    since: tuple[int, ...]
    fixed: tuple[int, ...]
    what: str


BUGS = (
    Bug("KAFKA-2729", (0, 8), (1, 1), "a broker whose session was renewed may never get back into an ISR"),
    Bug("KAFKA-7165", (0, 8), (2, 2), "a broker may fail to register again after its session has ended"),
    Bug("KAFKA-9307", (2, 2), (2, 4, 1), "a transaction coordinator may hang after its session has ended"),
)
OPEN_BUG = (
    "KAFKA-14845 (after a lost answer to a registration the next registration fails) is open in every release"
)


@dataclass(frozen=True)
class Releases:
    """The release of a broker from two sources.

    jars: the full release in the names of its jars. answers: the release without its last number, derived
    from the APIs that the broker offers. unseen: the reading that explains why neither is known.
    """

    jars: Release | None
    answers: Release | None
    unseen: Reading[object]

    @property
    def best(self) -> Reading[Release]:
        """The release by the jars or, if the jars do not show it, the release by the broker's answer."""
        known = self.jars or self.answers
        return Seen(known) if known is not None else self._none

    @property
    def _none(self) -> Unknown:
        return (
            self.unseen
            if isinstance(self.unseen, Unknown)
            else Unknown("failed", "no jar of Kafka's is seen")
        )

    @property
    def differ(self) -> bool:
        """Whether jars and answer show different minor releases, because jars were replaced under a running
        broker.
        """
        return bool(self.jars and self.answers) and self._minor(self.jars) != self._minor(self.answers)

    @staticmethod
    def _minor(of: Release | None) -> tuple[int, ...]:
        return of.numbers[:2] if of is not None else ()


def releases(e: Evidence, broker: Broker) -> Releases:
    """Return a broker's release, as its jars and its answer show it."""
    k = of_kafka(e)
    process = k.brokers[broker.name].process
    answers = k.view.value.releases.get(broker.endpoint, "") if isinstance(k.view, Seen) else ""
    absence = Unknown("failed", "no broker runs") if isinstance(process, Absent) else process
    return Releases(process.value.release if isinstance(process, Seen) else None, release(answers), absence)


@check(
    "kafka.version", "a move with the broker's Kafka has been drilled", Scope.BROKERS, severity=Severity.WARN
)
def version(c: Context, e: Evidence) -> Iterator[Judged]:
    """P34. Nobody has drilled a move with this release. The check reads the names of the jars that the
    process loads. If they are not visible, it uses the offered APIs, which distinguish 2.8 from 2.7 but
    not 2.8.2 from 2.8.1. If jars and answer differ, somebody replaced the jars: the roll would upgrade the
    broker.

    To do: Rehearse with particular care. If the jars were replaced, restart this broker by itself first.
    """
    drilled = {drill.kafka for drill in DRILLED}
    for broker in c.inventory.kafka.brokers:
        known = releases(e, broker)
        best = known.best
        if not isinstance(best, Seen):
            yield unseen(best, NEEDED, broker.name, to_start(e, broker.name))
        elif known.differ and known.answers is not None:
            seen = f"jars of {best.value.text}, but it answers as {known.answers.text}"
            moves = ("restart this broker by itself first, because the roll would start the new jars",)
            yield Judged(False, seen, NEEDED, broker.name, moves)
        elif known.jars is None:
            minor = {text.rpartition(".")[0] for text in drilled}
            held = None if best.value.text in minor else False
            seen = f"{best.value.text}, inferred from the APIs that it offers; its jars could not be read"
            yield Judged(held, seen, NEEDED, broker.name, ("rehearse with particular care",))
        else:
            held = best.value.text in drilled
            yield Judged(held, best.value.text, NEEDED, broker.name, ("rehearse with particular care",))


@check(
    "kafka.cluster-guard", "the broker refuses to join another cluster than its own", Scope.BROKERS,
    severity=Severity.WARN,
)  # fmt: skip
def cluster_guard(c: Context, e: Evidence) -> Iterator[Judged]:
    """P30. Before 2.4 (KAFKA-7335) a broker with a wrong or empty chroot makes a new cluster there and
    serves it, without its partitions. Then dest.cluster-id, before every wave, is the only guard.

    To do: Let only zkmigrate write zookeeper.connect. Start no broker by hand between roll and finalize.
    """
    needed = "Kafka 2.4 or later"
    moves = (
        "let zkmigrate alone write zookeeper.connect, and start no broker by hand between roll and finalize",
    )
    for broker in c.inventory.kafka.brokers:
        best = releases(e, broker).best
        if isinstance(best, Seen):
            old = best.value.before(*GUARDED_FROM)
            yield Judged(None if old is None else not old, best.value.text, needed, broker.name, moves)
        else:
            yield unseen(best, needed, broker.name, to_start(e, broker.name))


@check(
    "kafka.known-bugs", "no bug that a newer Kafka has fixed makes a lost session worse", Scope.BROKERS,
    severity=Severity.WARN,
)  # fmt: skip
def known_bugs(c: Context, e: Evidence) -> Iterator[Judged]:
    """P34. The move loses no session. If one is lost anyway, these bugs decide whether the broker comes back
    by itself. KAFKA-14845 is open in every release that uses ZooKeeper.

    To do: After any lost session, see that every broker is registered and in its ISRs. Restart a broker that
    is not.
    """
    k = of_kafka(e)
    needed = "none of " + ", ".join(f"{b.id} ({_dotted(b.since)} to before {_dotted(b.fixed)})" for b in BUGS)
    moves = ("if a broker loses its session: check that it serves and is in its ISRs, otherwise restart it",)
    for broker in c.inventory.kafka.brokers:
        best = releases(e, broker).best
        if not isinstance(best, Seen):
            yield unseen(best, needed, broker.name, to_start(e, broker.name))
            continue
        verdicts = {bug: _has(bug, best.value) for bug in BUGS}
        found = [f"{bug.id}: {bug.what}" for bug, has in verdicts.items() if has]
        unsure = [
            f"{bug.id} unless the release is {_dotted(bug.fixed)} or later"
            for bug in BUGS
            if verdicts[bug] is None
        ]
        process = k.brokers[broker.name].process
        client = process.value.client if isinstance(process, Seen) else None
        named = f"Kafka {best.value.text}" + (f", ZooKeeper client {client.text}" if client else "")
        held = False if found else None if unsure else True
        yield Judged(held, "; ".join((named, *(found or unsure or [OPEN_BUG]))), needed, broker.name, moves)


def _has(bug: Bug, release: Release) -> bool | None:
    """Return whether a release has this bug, or None if that depends on an unknown third number."""
    fixed = release.before(*bug.fixed)
    return False if release.before(*bug.since) or fixed is False else fixed


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


CHECKS = (version, cluster_guard, known_bugs)
