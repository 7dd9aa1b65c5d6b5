"""The check of the topic that the operator made for the produce canary: fit, unfit, unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.preflight_world import context, healthy, run_preflight, view
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Context

ID = "kafka.canary-topic"
ORDERS = {1: (1, 2, 3), 2: (2, 3, 1), 3: (3, 1, 2)}
FIT = tuple(PartitionState("canary", n, ids[0], ids, ids) for n, ids in enumerate(ORDERS.values()))


def with_canary(*partitions: PartitionState) -> Seen[KafkaView]:
    known = view()
    told = {**known.min_isr, "canary": 1}
    return Seen(replace(known, partitions=(*known.partitions, *partitions), min_isr=told))


def asking(topic: str | None) -> Context:
    c = context()
    kafka = c.inventory.kafka.model_copy(update={"canary_topic": topic})
    return replace(c, inventory=c.inventory.model_copy(update={"kafka": kafka}))


def found(seen: Reading[KafkaView], gate: str = "preflight", topic: str | None = "canary") -> list[Finding]:
    world = healthy()
    world.view = seen
    return [f for f in run_preflight(asking(topic), world, gate) if f.id == ID]


@pytest.mark.parametrize("gate", ["preflight", "roll", "cutover"])
def test_a_topic_with_a_partition_for_each_broker_is_fit(gate: str) -> None:
    [one] = found(with_canary(*FIT), gate)
    assert (one.held, one.seen) == (Held.YES, "3 partitions")


def test_without_a_topic_nothing_is_claimed() -> None:
    assert found(with_canary(*FIT), topic=None) == []


@pytest.mark.parametrize(
    ("partitions", "told"),
    [
        ((), "no topic canary"),
        (FIT[:2], "broker3 is the preferred leader of no partition"),
        ((*FIT[:2], replace(FIT[2], isr=(3, 1))), "canary-2 is not in sync"),
        ((*FIT[:2], replace(FIT[2], replicas=(3,), isr=(3,))), "canary-2 has one replica"),
    ],
)
def test_a_topic_that_is_not_fit_is_a_warning(partitions: tuple[PartitionState, ...], told: str) -> None:
    [one] = found(with_canary(*partitions))
    assert (one.held, one.seen, one.severity, one.blocks) == (Held.NO, told, Severity.WARN, False)
    assert any("kafka.canary_topic" in move for move in one.moves)


def test_many_reasons_are_cut_short() -> None:
    [one] = found(with_canary(*(PartitionState("canary", n, 1, (1,), (1,)) for n in range(9))))
    assert one.seen.endswith("and 6 more")


def test_brokers_that_do_not_answer_leave_it_unknown() -> None:
    [one] = found(Unknown("timeout", "no broker answered"))
    assert (one.held, one.severity, one.blocks) == (Held.UNKNOWN, Severity.WARN, False)
