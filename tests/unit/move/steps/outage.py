"""What the cases of the return begin from: brokers that run against dest, or are all down."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.move.steps import facts
from tests.unit.move.steps.facts import ARMED, DEST
from tests.world.build import PROPERTIES
from tests.world.operator import inventory
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.kafka.rules.connect import connect_to_dest, with_connect
from zkmigrate.move.facts.outage import BrokerState, Registered
from zkmigrate.move.facts.replay import Batch, Condition, ReplayScope
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.four_letter_words import Srvr
from zkmigrate.zookeeper.facts.ensemble import EnsembleView

BROKERS = ("broker1", "broker2", "broker3")
SOURCE = ("source1", "source2", "source3")
TO_SOURCE = PROPERTIES
TO_DEST = with_connect(PROPERTIES, connect_to_dest(inventory()))
ENTRY = DirEntry("server.properties", "f", 100, 0, "0640", "kafka", "kafka")
UP: Reading[HostStatus] = Seen(ARMED)
DOWN: Reading[HostStatus] = Seen(replace(ARMED, unit_state="inactive", unit_pid=0))
UNTOLD: Reading[HostStatus] = Seen(replace(ARMED, unit_state="unknown"))
SILENT: Reading[HostStatus] = Unknown("timeout", "no answer in 3 s")


def broker(status: Reading[HostStatus] = UP, content: bytes = TO_DEST) -> BrokerState:
    return BrokerState(Seen(content), ENTRY, status)


def brokers(every: BrokerState, **one: BrokerState) -> dict[str, BrokerState]:
    return {**dict.fromkeys(BROKERS, every), **one}


def services(every: Reading[HostStatus], **one: Reading[HostStatus]) -> dict[str, Reading[HostStatus]]:
    return {**dict.fromkeys(DEST, every), **one}


def view(
    isr: tuple[int, ...] = (1, 2, 3),
    controller: int = 2,
    reassigning: tuple[tuple[str, int], ...] | None = (),
) -> Seen[KafkaView]:
    """One partition of three replicas."""
    registered = {id: (f"10.0.0.2{id}", 9092, "") for id in isr}
    partition = PartitionState("t", 0, isr[0] if isr else -1, (1, 2, 3), isr)
    return Seen(KafkaView("id", controller, registered, (partition,), {"t": 2}, reassigning))


def registered(
    *ids: int, controller: int | None = None, epoch: int = 3, changed: int = 0
) -> Seen[Registered]:
    return Seen(Registered(frozenset(ids), controller, epoch, changed))


def ensemble(hosts: tuple[str, ...], *modes: str) -> EnsembleView:
    """Modes by host, an empty one for a host that does not answer."""
    silent: Reading[Srvr] = Unknown("timeout", "no answer")
    return facts.ensemble({h: facts.srvr(m) if m else silent for h, m in zip(hosts, modes, strict=True)})


def looked(*failing: str, unknown: str = "") -> Seen[ReplayScope]:
    """Two batches to replay, and every condition holds but for these."""
    ids = ("cut.same", "source.untouched", "source.at-rest", "dest.at-rest", "replay.possible")
    found = ReplayScope(Chroot("/kafka"), "dest2", 1 << 32 | 9, 2 << 32 | 8)
    found.conditions += [
        Condition(id, id, None if id == unknown else id not in failing, "seen") for id in ids
    ]
    found.batches += [Batch(2 << 32 | 4, 2, "a" * 32), Batch(2 << 32 | 8, 3, "b" * 32)]
    found.tally.transactions = 5
    return Seen(found)
