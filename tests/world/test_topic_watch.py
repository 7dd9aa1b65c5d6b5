"""What is watched beside the change of topics' configs, in the world of topics."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.unit.engine_world import forward, resume
from tests.unit.topic_world import ID, Desk, TopicLook, inventory, topics
from zkmigrate.engine import events, journal
from zkmigrate.inventory.inventory import Policy
from zkmigrate.model.change import Change
from zkmigrate.model.fact import Reading
from zkmigrate.model.finding import Held, claim
from zkmigrate.model.look import ClusterTopics, Look, TopicPartitions
from zkmigrate.model.window import Decision, Word
from zkmigrate.moves.world.topics import TopicWorld
from zkmigrate.topics import watch
from zkmigrate.topics.set_step import WAVE

MANY = 1_000
CHANGES = 900


def desk(tmp_path: Path, count: int = 60, wave: int = 3) -> Desk:
    return Desk(tmp_path / "r", TopicWorld(ID, topics(count)), wave=wave, watched=True)


def at(number: int, act: Callable[[], object]) -> Callable[[Change], None]:
    """Does ``act`` before the change of this number."""
    numbers = itertools.count(1)

    def before(_change: Change) -> None:
        if next(numbers) == number:
            act()

    return before


def down(made: Desk, *ids: int) -> Callable[[], object]:
    return lambda: made.cluster.down.update(ids)


def test_many_topics_stop_within_two_waves_of_a_broker_that_left(tmp_path: Path) -> None:
    made = desk(tmp_path, MANY, WAVE)
    made.before_change = at(400, down(made, 1))
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id, finding.seen) == (6, watch.BROKERS, "1: broker1")
    assert 400 <= len(made.cluster.altered) <= 400 + 2 * WAVE
    made.cluster.down.clear()
    made.before_change = lambda _change: None
    assert made.process(resume).code == 0
    assert made.there
    assert len(made.cluster.altered) == CHANGES, "nothing was sent twice"


def test_many_topics_go_back_from_partitions_that_lost_their_leader(tmp_path: Path) -> None:
    """Asked about the broker that left first, the operator wanted to go on."""
    made = desk(tmp_path, MANY, WAVE)
    made.confirm.ask_means = "go"
    made.before_change = at(400, down(made, 1, 2))
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (7, watch.LEADERS)
    assert finding.seen.startswith("333: ")
    assert made.home
    assert len(made.cluster.altered) <= 2 * (400 + 2 * WAVE)
    assert journal.read(made.run_dir).touched("set.topic-config") == ()


@pytest.mark.parametrize(("means", "code"), [("go", 0), ("back", 7), ("stop", 6), (None, 6)])
def test_what_became_worse_is_asked_about(tmp_path: Path, means: Word | None, code: int) -> None:
    made = desk(tmp_path)
    made.confirm.ask_means = means
    made.before_change = at(20, down(made, 1))
    assert made.process(forward).code == code
    assert made.there is (code == 0)
    assert made.home is (code == 7)
    alarms = [e for e in made.seen if isinstance(e, events.Alarm)]
    assert {e.finding.id for e in alarms} == (
        {watch.BROKERS, watch.IN_SYNC} if means == "go" else {watch.BROKERS}
    )
    assert {e.decision for e in alarms} == {"ask"}


def test_what_was_not_well_before_does_not_count(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.down = {1, 2}
    assert made.process(forward).code == 0
    assert made.there
    assert [e for e in made.seen if isinstance(e, events.Alarm)] == []


def health(made: Desk) -> watch.Health:
    return watch.Health(made.inventory, cast(Look, TopicLook(made.cluster, made.clock)))


def told(one: watch.Health) -> dict[str, Held]:
    return {finding.id: finding.held for finding in one.findings()}


WELL = dict.fromkeys((watch.BROKERS, watch.LEADERS, watch.IN_SYNC, watch.TOLD), Held.YES)


def test_trouble_counts_when_two_looks_find_the_same(tmp_path: Path) -> None:
    made = desk(tmp_path)
    one = health(made)
    assert told(one) == WELL
    made.cluster.down = {1}
    assert told(one) == WELL
    assert told(one) == {**WELL, watch.BROKERS: Held.NO, watch.IN_SYNC: Held.NO}
    made.cluster.down = {2}
    assert told(one) == {**WELL, watch.IN_SYNC: Held.NO}, "broker2 left just now"
    made.cluster.down = set()
    assert told(one) == WELL


def test_an_election_is_no_trouble_yet(tmp_path: Path) -> None:
    made = desk(tmp_path)
    one = health(made)
    made.cluster.down = {1, 2}
    assert told(one)[watch.LEADERS] is Held.YES
    assert told(one)[watch.LEADERS] is Held.NO


def test_brokers_that_do_not_answer_twice_in_a_row_are_trouble(tmp_path: Path) -> None:
    made = desk(tmp_path)
    one = health(made)
    made.cluster.silent = True
    assert told(one) == {}
    assert told(one) == {watch.TOLD: Held.UNKNOWN}
    made.cluster.silent = False
    assert told(one) == WELL
    made.cluster.silent = True
    assert told(one) == {}


def test_where_the_first_look_fails_the_next_is_what_others_are_compared_with(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.silent, made.cluster.down = True, {1}
    one = health(made)
    made.cluster.silent = False
    assert [told(one), told(one), told(one)] == [WELL] * 3


def test_a_topic_that_may_not_be_described_any_more_is_trouble(tmp_path: Path) -> None:
    made = desk(tmp_path)
    one = health(made)
    made.cluster.denied = frozenset({"t00003"})
    assert told(one) == WELL
    assert told(one) == {**WELL, watch.TOLD: Held.UNKNOWN}


def test_the_topics_of_the_run_alone_are_asked_for_and_their_names_once(tmp_path: Path) -> None:
    made = desk(tmp_path, 4)
    made.inventory = inventory(leave_out=("t00001",))
    asked: list[object] = []

    class Noting(TopicLook):
        def topics(self, cluster: str) -> Reading[ClusterTopics]:
            asked.append("names")
            return super().topics(cluster)

        def topic_partitions(
            self, cluster: str, topics: Sequence[str], witnesses: int
        ) -> Reading[TopicPartitions]:
            asked.append((tuple(topics), witnesses))
            return super().topic_partitions(cluster, topics, witnesses)

    one = watch.Health(made.inventory, cast(Look, Noting(made.cluster, made.clock)))
    told(one)
    assert asked == ["names", *[(("t00000", "t00002", "t00003"), watch.WITNESSES)] * 2]


def test_a_topic_that_is_gone_is_the_steps_matter(tmp_path: Path) -> None:
    made = desk(tmp_path)
    one = health(made)
    del made.cluster.topics["t00059"]
    assert [told(one), told(one)] == [WELL] * 2


@pytest.mark.parametrize("phase", ["", "topic-config"])
@pytest.mark.parametrize("id", [*WELL, "topics.any", "watch.look-unknown"])
def test_each_finding_has_a_decision(phase: str, id: str) -> None:
    """Where nothing was changed yet, nothing is to be taken back."""
    back = phase and id == watch.LEADERS
    decision = watch.decide(phase, claim(id, "all is well", False), Policy())
    assert decision is (Decision.BACK if back else Decision.ASK)
