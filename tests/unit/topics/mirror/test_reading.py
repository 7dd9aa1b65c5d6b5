"""What a leader's answers mean: nothing there, not now, or refused; each for its own partition."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.batches import built
from tests.unit.topics.mirror.model_cluster import Log, ModelCluster
from zkmigrate.topics.mirror.clients import copier
from zkmigrate.topics.mirror.clients.cluster import Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.copier import Copier
from zkmigrate.topics.mirror.clients.reading import PartError, compared, last_data
from zkmigrate.topics.mirror.clients.survey import Mirrored, places
from zkmigrate.topics.mirror.rules import small_batches

P: Part = ("plain", 0)
Q: Part = ("other", 0)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SETTLE_S", "RETRY_S", "LOOK_S"):
        monkeypatch.setattr(copier, name, 0.0)
    monkeypatch.setattr(small_batches, "FEW", 0)


def log(batches: int, records: int = 10) -> Log:
    made = Log()
    for n in range(batches):
        made.append(built(records, first_value=100 * n))
    return made


def cluster(made: Log, most: int = 2) -> Any:
    return ModelCluster("source", {P: made}, most=most)


def equal(side: Any, end: int) -> int:
    """How many records up to an offset are equal to themselves."""
    found, _ = compared((side, side), (1, 1), P, 0, end, KafkaCodecs())
    assert found.first == ""
    return found.equal


@pytest.mark.parametrize("most", [1, 2, 1000])
@pytest.mark.parametrize("batches", [0, 1, 4, 5, 40])
def test_h8_the_last_five_batches_are_read_once_each_however_much_an_answer_holds(
    batches: int, most: int
) -> None:
    made = log(batches)
    found = last_data(cluster(made, most), 1, P, 0, made.end)
    assert [one.base_offset for one in found] == [one.base_offset for one in made.batches[-5:]]


def answering(monkeypatch: pytest.MonkeyPatch, side: Any, change: Any) -> None:
    """Each answer of this cluster is changed. change: of partition and answer; None leaves it out."""
    told, asks = side.fetched, count()

    def fetched(asked: Any) -> Any:
        assert next(asks) < 1000, "it asks for ever"
        found = {part: change(part, one) for part, one in told(asked).items()}
        return {part: one for part, one in found.items() if one is not None}

    monkeypatch.setattr(side, "fetched", fetched)


def test_h6_a_refused_fetch_is_no_empty_log(monkeypatch: pytest.MonkeyPatch) -> None:
    side = cluster(log(3))
    answering(monkeypatch, side, lambda _, one: replace(one, error=29, records=b""))
    for read in (
        lambda: last_data(side, 1, P, 0, 30),
        lambda: equal(side, 30),
    ):
        with pytest.raises(PartError, match="source: plain-0: TOPIC_AUTHORIZATION_FAILED") as raised:
            read()
        assert raised.value.code == 29


def test_h6_an_empty_answer_of_a_log_that_goes_on_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader may not know yet how far it may send."""
    side = cluster(log(3))
    answering(monkeypatch, side, lambda _, one: replace(one, end=7, stable=7, records=b""))
    with pytest.raises(PartError, match="the leader returned no record from offset 29 up to 30"):
        last_data(side, 1, P, 0, 30)
    with pytest.raises(PartError, match="the leader returned no record from offset 0 up to 30"):
        equal(side, 30)


def test_h6_a_broker_that_sends_no_partition_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does whose quota for this client is used up."""
    side, asked = cluster(log(3)), count()
    answering(monkeypatch, side, lambda _, one: one if next(asked) % 3 == 2 else None)
    assert len(last_data(side, 1, P, 0, 30)) == 3
    assert equal(side, 30) == 30


class Gone(Log):
    """A log of 30 records after compaction has removed its last batches."""

    @property
    def end(self) -> int:
        return 41


def test_h6_a_log_whose_last_offsets_are_gone_ends_before_them() -> None:
    side = cluster(Gone(0, log(3).batches))
    assert len(last_data(side, 1, P, 0, 41)) == 3
    assert equal(side, 41) == 30


def test_h6_a_partition_that_may_not_be_read_fails_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = ModelCluster("source", {P: log(3), Q: log(3)})
    there = ModelCluster("target", {P: log(1), Q: Log()})
    answering(monkeypatch, there, lambda part, one: replace(one, error=29) if part == P else one)
    made = Copier(cast(Any, here), cast(Any, there), here.logs, (), KafkaCodecs(), lambda _: None)
    rounds = count()
    made.copy(lambda: next(rounds) > 100, lambda: None, once=True)
    assert made.partitions[P].failed == "Kafka's error TOPIC_AUTHORIZATION_FAILED"
    assert there.logs[Q].read() == here.logs[Q].read()
    topics = [Mirrored(name, 1, 1, 1, {}, {}, {}, "") for name in ("plain", "other")]
    found = places(cast(Any, here), cast(Any, there), topics)
    assert [(one.state, one.why) for one in found] == [
        ("unknown", "target: plain-0: TOPIC_AUTHORIZATION_FAILED"),
        ("equal", ""),
    ]
