"""How fast the copier sends, and how much it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.batches import built
from tests.unit.topics.mirror.model_cluster import Log, ModelCluster
from zkmigrate.topics.mirror.clients import copier
from zkmigrate.topics.mirror.clients.cluster import Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.copier import Copier

PARTS = [("one", 0), ("two", 0), ("three", 0)]


@dataclass
class Clock:
    """Of the module ``time``: only sleeping takes time. slept: called before."""

    now: float = 0.0
    slept: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept()
        self.now += max(seconds, 1e-6)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(copier, "time", made)
    monkeypatch.setattr(copier, "SETTLE_S", 0.0)
    return made


def clusters(batches: int) -> tuple[ModelCluster, ModelCluster]:
    here = ModelCluster("source", {part: Log() for part in PARTS})
    for log in here.logs.values():
        for n in range(batches):
            log.append(built(2, first_value=n))
    return here, ModelCluster("target", {part: Log() for part in PARTS})


def copying(here: ModelCluster, there: ModelCluster, rate: float) -> Copier:
    return Copier(cast(Any, here), cast(Any, there), PARTS, (), KafkaCodecs(), lambda _: None, rate)


def test_the_rate_holds_over_all_partitions_and_each_gets_its_share(clock: Clock) -> None:
    here, there = clusters(200)
    made = copying(here, there, 1000.0)
    made.copy(lambda: clock.now > 20, lambda: None)
    copied = {part: p.bytes for part, p in made.partitions.items()}
    assert 18_000 < sum(copied.values()) < 22_000, copied
    assert min(copied.values()) > 5_000, copied


def held(made: Copier) -> int:
    return sum(p.queued for p in made.partitions.values())


def test_answers_of_all_partitions_together_are_bounded(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be sent: the answers stay."""
    for name, size in (("QUEUE_BYTES", 3000), ("FETCH_BYTES", 1000), ("PARTITION_BYTES", 700)):
        monkeypatch.setattr(copier, name, size)
    here, there = clusters(100)
    made, most, rounds = copying(here, there, 1.0), list[int](), count()
    made.copy(lambda: next(rounds) > 200, lambda: most.append(held(made)))
    assert 2000 < max(most) <= 3000


def test_a_partition_that_waits_leaves_the_others_their_room(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first a large gap is filled meanwhile."""
    for name, size in (("PARTITION_QUEUE_BYTES", 1000), ("MARKERS", 1)):
        monkeypatch.setattr(copier, name, size)
    here, there = clusters(0)
    first = here.logs[PARTS[0]]
    first.start = 200
    for log in here.logs.values():
        for n in range(100):
            log.append(built(2, first_value=n))
    made, most, rounds = copying(here, there, 1e9), list[int](), count()
    first_one: Part = PARTS[0]
    made.copy(lambda: next(rounds) > 120, lambda: most.append(made.partitions[first_one].queued))
    assert made.partitions[first_one].position == pytest.approx(100, abs=30)
    assert max(most) < 2000
    assert [made.partitions[part].position for part in PARTS[1:]] == [200, 200]
