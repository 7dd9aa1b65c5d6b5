"""Sample a Kafka cluster: round trips to its brokers, the produce canary and the cluster's state.

- ``brokers`` {ms: {broker: milliseconds of a round trip}, silent: {broker: why there was no answer}}
- ``produce`` {topic, acks: {partition: [[broker, milliseconds ago, milliseconds it took], …]}, late: [[broker
  whose partition it is, partition or null, seconds since it was sent, why], …]}: the produce canary
- ``kafka`` {controller, brokers, partitions, under, offline}: ids of the registered brokers; the numbers of
  partitions in all, not fully in sync, and without a leader
"""

from __future__ import annotations

from collections.abc import Collection

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.questions import DescribeCluster, KafkaView, PingBrokers
from zkmigrate.kafka.rules.report import SAMPLE_REPORT
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Body, Question, Sampling, age, span

PULSE_S = 1.0
"""The limit of a round trip to a broker, in seconds."""

BROKERS_S = 0.5
_MORE_PER_BROKER_S = 0.01
_RESTS_S = 10.0
_WHY = 200


def questions(inventory: Inventory, look: Look) -> tuple[Question, ...]:
    """Return the question that measures a round trip to every broker; empty without brokers."""
    count = len(inventory.brokers)

    def ask() -> Body:
        pulses = look.ask(PingBrokers(PULSE_S))
        return {
            "ms": {name: round(p.took_s * 1000, 2) for name, p in pulses.items() if not p.why},
            "silent": {name: p.why[:_WHY] for name, p in pulses.items() if p.why},
        }

    return (Question("brokers", BROKERS_S + _MORE_PER_BROKER_S * count, ask),) if count else ()


def cluster_state(view: KafkaView) -> Body:
    """Return the sample of a cluster's state."""
    return {
        "controller": view.controller,
        "brokers": sorted(view.brokers),
        "partitions": len(view.partitions),
        "under": sum(len(p.isr) < len(p.replicas) for p in view.partitions),
        "offline": sum(p.leader < 0 for p in view.partitions),
    }


class BrokersView:
    """A live view of each broker's newest round trip and of the produce canary."""

    def __init__(self) -> None:
        self._trips: tuple[float, Body] | None = None
        self._answered: dict[str, float] = {}
        self._produced: tuple[float, Body] | None = None
        self._acked: dict[str, tuple[str, float]] = {}

    def take(self, at: float, kind: str, body: Body) -> None:
        if kind == "brokers":
            self._trips = at, body
            self._answered |= dict.fromkeys(body["ms"], at)
        if kind == "produce":
            self._produced = at, body
            self._acked |= {p: (acks[-1][0], acks[-1][2]) for p, acks in body["acks"].items() if acks}

    def head(self, _hosts: Collection[str], now: float) -> tuple[str, bool] | None:
        if self._produced is None or now - self._produced[0] > _RESTS_S:
            return None
        at, body = self._produced
        if body["late"]:
            home, partition, since, why = max(body["late"], key=lambda late: float(late[2]))
            which = f"{body['topic']}-{partition}" if partition is not None else f"the partition of {home}"
            more = f", {len(body['late']) - 1} more" if len(body["late"]) > 1 else ""
            waited = since + max(0.0, now - at)
            return f"producer: {which} not acknowledged for {span(waited)}{more}: {why}", True
        if not self._acked:
            return None
        slowest = max(ms for _, ms in self._acked.values())
        leaders = len({broker for broker, _ in self._acked.values()})
        count = len(self._acked)
        text = f"{count} partitions acknowledged by {leaders} brokers, the slowest in {slowest:.0f} ms"
        return f"producer: {text}{age(now - at)}", False

    def host(self, host: str, _hosts: Collection[str], now: float) -> str:
        if self._trips is None:
            return ""
        at, body = self._trips
        if host in body["ms"]:
            return f"answers in {body['ms'][host]:.0f} ms{age(now - at)}"
        if host in body["silent"]:
            last = self._answered.get(host)
            return f"silent for {span(now - last)}" if last is not None else "silent"
        return ""

    def troubled(self, host: str) -> bool:
        return self._trips is not None and host in self._trips[1].get("silent", {})


BROKERS = Sampling(
    questions,
    BrokersView,
    ("produce", "zkmigrate.kafka.clients.produce:canary"),
    ("kafka", DescribeCluster, cluster_state),
    SAMPLE_REPORT,
)
