"""Kafka as a dependent: its brokers, how they are restarted, and which ephemerals must survive the window.

A broker is settled once it is registered and each of its replicas is in sync. Every ephemeral under the
chroot keeps its owner and czxid: brokers keep their sessions, and no leader or controller is elected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zkmigrate.hosts.facts.host_names import Resolve
from zkmigrate.hosts.facts.properties import properties_of
from zkmigrate.inventory.inventory import Broker, Inventory, Service, without_brokers
from zkmigrate.kafka import changes
from zkmigrate.kafka.facts.cluster import cluster_id, kafka_view
from zkmigrate.kafka.facts.recovery import Recovery, recovery
from zkmigrate.kafka.questions import KafkaView, PingBrokers
from zkmigrate.kafka.rules import connect as kafka
from zkmigrate.kafka.rules import next_wave
from zkmigrate.kafka.rules.leaders import not_led_by_preferred
from zkmigrate.kafka.rules.next_wave import BrokerPosition, out_of_sync
from zkmigrate.kafka.rules.recovery_wait import UNSEEN, patience
from zkmigrate.kafka.rules.sampling import BROKERS, PULSE_S
from zkmigrate.move.dependent import Ending, MemberFacts, Position, Progress, Words, started_after, unit_of
from zkmigrate.move.preflight import broker, broker_security, chroot, releases
from zkmigrate.move.preflight import kafka as cluster
from zkmigrate.move.preflight.check import Check
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.kafka_evidence import KafkaEvidence, gather
from zkmigrate.move.rules import probes
from zkmigrate.runbook.accepted import spared_topics
from zkmigrate.runbook.model.change import Changes, SetService
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Sampling
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.window import Probe
from zkmigrate.zookeeper.data.chroot import Chroot

CHECKS = (
    *cluster.CHECKS, *broker.CHECKS, *broker_security.CHECKS, *releases.CHECKS, *chroot.CHECKS,
)  # fmt: skip

LEADERS = "leaders"
"""The name under which the election of preferred leaders is listed after the last broker."""

QUICK_START_S = 20.0
"""Seconds after which a starting broker is checked less often, because each look reads its log."""


@dataclass(frozen=True)
class Brokers:
    """The Kafka cluster as its brokers report it.

    Only the roll fills in ``recovery`` and ``spared``. recovery: for each running broker that is not
    registered, how much of its logs it has loaded. spared: topics that a person has accepted to be
    unavailable while one broker restarts.
    """

    view: Reading[KafkaView]
    recovery: Mapping[str, Reading[Recovery]] = field(default_factory=dict)
    spared: frozenset[str] = frozenset()


class KafkaDependent:
    """Kafka's implementation of :class:`zkmigrate.move.dependent.Dependent`."""

    words = Words(
        kind="kafka",
        one="broker",
        many="brokers",
        system="Kafka",
        key="zookeeper.connect",
        identity="cluster_id",
        session_key="zookeeper.session.timeout.ms",
    )

    shape: type[Inventory] = Inventory
    sampling: tuple[Sampling, ...] = (BROKERS,)
    clusters: Mapping[str, str] = {changes.KAFKA: "zkmigrate.kafka.clients.admin:alterer"}

    def members(self, inventory: Inventory) -> tuple[Broker, ...]:
        return inventory.kafka.brokers

    def without(self, inventory: Inventory, names: Collection[str]) -> Inventory:
        return without_brokers(inventory, names)

    def chroot(self, inventory: Inventory) -> Chroot:
        return inventory.kafka.subtree

    def config(self, inventory: Inventory) -> str:
        return inventory.kafka.config

    def identity(self, inventory: Inventory) -> str:
        return inventory.kafka.cluster_id

    def identity_seen(self, inventory: Inventory, look: Look, via: str) -> Reading[str]:
        return cluster_id(look, via, inventory.kafka.prefix)

    def service(self, inventory: Inventory) -> Service:
        return inventory.kafka.service

    def names_dest(self, inventory: Inventory, content: bytes, resolve: Resolve) -> bool | None:
        connect = kafka.current_connect(content)
        return kafka.names_any(connect, inventory.dest.hosts, inventory.source.hosts, resolve)

    def with_dest(self, inventory: Inventory, content: bytes) -> bytes:
        return kafka.with_connect(content, kafka.connect_to_dest(inventory, kafka.current_connect(content)))

    def restart_or_reload(self, inventory: Inventory, member: str) -> Changes:
        unit, commands = unit_of(self, inventory, inventory.broker(member))
        return (SetService(member, unit, "restart", commands),)

    def has_read(self, inventory: Inventory, _own: Brokers, _member: str, facts: MemberFacts) -> bool:
        return started_after(facts, inventory.kafka.config)

    def cluster(self, c: Context, look: Look) -> Brokers:
        return Brokers(kafka_view(c, look))

    def for_roll(self, c: Context, look: Look, own: Brokers, members: Mapping[str, MemberFacts]) -> Brokers:
        inventory = c.inventory
        registered = own.view.value.brokers if isinstance(own.view, Seen) else {}
        brokers = {b.name: b for b in inventory.kafka.brokers}
        starting = [name for name, b in brokers.items() if members[name].runs and b.id not in registered]
        loaded = look.each(starting, lambda h: recovery(look, h, *unit_of(self, inventory, brokers[h])))
        return replace(own, recovery=loaded, spared=spared_topics(inventory.accept, look.wall()))

    def why_silent(self, own: Brokers) -> str:
        return "" if isinstance(own.view, Seen) else str(own.view)

    def settled(self, inventory: Inventory, own: Brokers, member: str) -> bool:
        view, id = _view(own), inventory.broker(member).id
        if view is None or id not in view.brokers:
            return False
        return all(id in p.isr for p in view.partitions if id in p.replicas)

    def is_spare(self, inventory: Inventory, own: Brokers, member: str) -> bool:
        """Return whether the broker holds replicas and none of them is in sync."""
        view, id = _view(own), inventory.broker(member).id
        held = [p for p in view.partitions if id in p.replicas] if view is not None else []
        return bool(held) and not any(id in p.isr for p in held)

    def next_wave(
        self, inventory: Inventory, own: Brokers, positions: tuple[Position, ...]
    ) -> tuple[tuple[str, ...], str]:
        view = _view(own)
        if view is None:
            return (), self.why_silent(own)
        brokers = tuple(
            BrokerPosition(p.name, inventory.broker(p.name).id, p.moved, p.touched, p.down, p.settling)
            for p in positions
        )
        return next_wave.next_wave(brokers, view, inventory.policy.roll_wave, own.spared)

    def progress(
        self, c: Context, own: Brokers, member: str, marks: Mapping[str, Any], now: float, least_s: float
    ) -> Progress:
        view, id = _view(own), c.inventory.broker(member).id
        if view is None:
            return Progress(self.why_silent(own), least_s)
        behind = sum(id in p.replicas and id not in p.isr for p in view.partitions)
        reading = own.recovery.get(member)
        seen = reading.value if isinstance(reading, Seen) else UNSEEN
        deadline_s, marks = patience(seen, behind, marks, now, least_s, c.inventory.policy.roll_recovery_s)
        loads = f"{seen.words}, " if seen.words else ""
        words = f"{loads}registered: {'yes' if id in view.brokers else 'no'}, partitions behind: {behind}"
        return Progress(words, deadline_s, 2.0 if now - marks["first"] > QUICK_START_S else 0.2, marks)

    def why_unsettled(self, own: Brokers) -> str:
        view = _view(own)
        if view is None:
            return self.why_silent(own)
        behind = len(out_of_sync(view, frozenset()))
        return f"{behind} are not in sync" if behind else ""

    def ending(self, inventory: Inventory) -> Ending:
        """Return the election of preferred leaders, because each restart moves leaders off a broker."""
        return Ending(
            LEADERS,
            (changes.ElectLeaders(changes.KAFKA),),
            inventory.policy.roll_leaders,
            "set policy.roll_leaders to false, then resume",
        )

    def ending_due(self, own: Brokers) -> bool:
        view = _view(own)
        return view is not None and bool(not_led_by_preferred(view))

    def who_is_behind(self, inventory: Inventory, own: Brokers) -> str:
        view = _view(own)
        if view is None:
            return self.why_silent(own)
        missing = [b.name for b in inventory.kafka.brokers if b.id not in view.brokers]
        if missing:
            return f"not registered: {', '.join(missing)}"
        behind = out_of_sync(view, frozenset())
        return f"{len(behind)} of {len(view.partitions)} partitions are catching up" if behind else ""

    def proofs(self, own: Brokers) -> tuple[Finding, ...]:
        view = _view(own)
        held = None if view is None else True
        brokers, partitions = (len(view.brokers), len(view.partitions)) if view is not None else (0, 0)
        return (
            claim("verify.registered", "every broker is registered", held, seen=f"{brokers} brokers"),
            claim("verify.isr", "every partition is fully in sync", held, seen=f"{partitions} partitions"),
        )

    def probes(self, _inventory: Inventory, look: Look) -> tuple[Probe, ...]:
        return (
            probes.brokers(
                lambda: {name: pulse.wrong for name, pulse in look.ask(PingBrokers(PULSE_S)).items()}
            ),
        )

    @property
    def checks(self) -> tuple[Check, ...]:
        return CHECKS

    def evidence(self, c: Context, look: Look, common: Evidence, gate: str) -> KafkaEvidence:
        return gather(c, look, common, gate)

    def keeps(self, _path: str) -> bool:
        return True

    def claims(self, inventory: Inventory, member: str, owns: tuple[str, ...]) -> bool:
        return kafka.registration(inventory.kafka.prefix, inventory.broker(member).id) in owns

    def idle_sessions(self, inventory: Inventory, look: Look, member: str) -> Reading[int]:
        """Return 1 if the broker has an authorizer, which keeps a session of its own, else 0."""
        path = inventory.kafka.config
        properties = properties_of(look.file(member, path), path)
        if not isinstance(properties, Seen):
            return Unknown("failed", f"{path}, whether it has an authorizer: {properties}")
        return Seen(1 if properties.value.get("authorizer.class.name", "").strip() else 0)


def _view(own: Brokers) -> KafkaView | None:
    return own.view.value if isinstance(own.view, Seen) else None


KAFKA = KafkaDependent()


MEANINGS = meanings(
    """
    verify.registered: A broker is not registered on dest after clients were let in. Cause: Its session ended,
    or the broker still tries to reach source. To do: Check that broker's log and its zookeeper.connect.
    Restart the broker if it does not come back.

    verify.isr: A partition is not fully in sync after clients were let in. Cause: A follower is still
    catching up, or its broker is down. To do: Wait. If the partition stays behind, check the broker that
    holds the missing replica.
    """
)
