"""A topic that is created or grows: there and back, killed anywhere, and what other hands do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from playbooks.kafka_new_partitions import PLAYBOOK
from tests.unit.engine_world import back, forward, homeward, left_by_kills, on_and_back, resume
from tests.world.build import World
from tests.world.cluster_desk import ClusterDesk
from zkmigrate.cluster.new_partitions.section import NewPartitions, NewPartitionsInventory, Sets
from zkmigrate.kafka.changes import DeleteTopic, GrowTopic
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.model.playbook import Playbook

TOPIC = "t"
SETS: Sets = ((1, 2), (2, 1))
MORE: Sets = ((1, 2), (2, 1), (1, 2))


@dataclass
class NewDesk(ClusterDesk):
    """One run of a plan over one cluster."""

    playbook: ClassVar[Playbook] = PLAYBOOK

    @property
    def sets(self) -> Sets:
        """Those of the topic, now."""
        return tuple(self.cluster.sets.values())

    @sets.setter
    def sets(self, sets: Sets) -> None:
        """Another hand sets them."""
        self.cluster.held = World().topics(named(sets)).cluster().held

    @property
    def home(self) -> bool:
        return self.cluster.sets == self.first.sets

    @property
    def there(self) -> bool:
        return self.sets == (*self.first.sets.values(), *self.inventory.sets)


def named(sets: Sets) -> dict[tuple[str, int], tuple[int, ...]]:
    return {(TOPIC, number): replicas for number, replicas in enumerate(sets)}


def desk(run_dir: Path, before: Sets = (), sets: Sets = SETS, **cluster: Any) -> NewDesk:
    """before: the sets of the partitions that are there. sets: of those that the plan makes."""
    built = World().brokers(2).topics(named(before))
    new = NewPartitions(plan="plan.json")
    given = NewPartitionsInventory(version=1, name="new", kafka=built.kafka, new_partitions=new)
    return NewDesk(run_dir, built.cluster(**cluster), given.with_sets(TOPIC, len(before), sets))


def growing(folder: Path) -> NewDesk:
    return desk(folder / "r", SETS, MORE[2:])


def ids(ended: RunEnded) -> list[str]:
    return [one.id for one in ended.findings if one.blocks]


@pytest.mark.parametrize("lag", [0, 3])
def test_a_topic_is_created_and_its_way_back_deletes_it_by_its_id(tmp_path: Path, lag: int) -> None:
    made = desk(tmp_path / "r", lag=lag)
    assert made.process(forward).code == 0
    assert made.there
    assert made.process(back).code == 0
    assert made.home
    assert made.cluster.made[1:] == [DeleteTopic("kafka", TOPIC, "id1")]
    assert len(made.cluster.made) == 2, "brokers that are late get nothing twice"


def test_killed_anywhere_a_created_topic_goes_on_or_back(tmp_path: Path) -> None:
    left = left_by_kills(desk(tmp_path / "r"), forward, kinds=())
    assert len(left) > 10
    for made, _ in on_and_back(left):
        assert made.process(back).code == 0
        assert made.home


def test_killed_anywhere_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    made = desk(tmp_path / "r")
    assert made.process(forward).code == 0
    assert len(list(homeward(left_by_kills(made, back, kinds=())))) > 5


@pytest.mark.parametrize("trouble", ["records", "replaced", "grown"])
def test_a_topic_that_is_not_empty_or_not_ours_is_never_deleted(tmp_path: Path, trouble: str) -> None:
    made = desk(tmp_path / "r")
    assert made.process(forward).code == 0
    if trouble == "records":
        made.cluster.held[TOPIC, 1].size = 1000
    elif trouble == "replaced":
        made.cluster.ids[TOPIC] += 1
    else:
        made.sets = MORE
    sets = made.sets
    ended = made.process(back)
    assert (ended.code, ids(ended)) == (6, ["new.kept"])
    assert made.sets == sets
    assert made.process(resume).code == (6 if trouble == "grown" else 0), "forward from here"


def test_a_topic_of_another_hand_is_refused_before_and_during_the_run(tmp_path: Path) -> None:
    for name, sets in (("same", SETS), ("other", MORE)):
        made = desk(tmp_path / name)
        made.sets = sets
        ended = made.process(forward)
        assert (ended.code, ids(ended), made.cluster.made) == (3, ["new.topic"], [])
    made = desk(tmp_path / "late")
    looked = made.process(lambda walk: walk.forward(until="preflight"))
    assert looked.code == 0
    made.sets = SETS
    ended = made.process(resume)
    assert made.cluster.made == []
    assert ended.code != 0


def test_a_lost_answer_is_looked_at_and_never_assumed(tmp_path: Path) -> None:
    made = desk(tmp_path / "r", wrong=["lost"])
    assert made.process(forward).code == 0
    assert (made.there, len(made.cluster.made)) == (True, 1)
    made.cluster.wrong = ["lost"]
    assert made.process(back).code == 0
    assert (made.home, len(made.cluster.made)) == (True, 2)


@pytest.mark.parametrize("trouble", ["refuses", "cluster_id", "silent"])
def test_what_kafka_would_refuse_stops_before_the_first_change(tmp_path: Path, trouble: str) -> None:
    found: Any = {"refuses": "policy", "cluster_id": "B" * 22, "silent": True}[trouble]
    made = desk(tmp_path / "r", **{trouble: found})
    ended = made.process(forward)
    assert ended.code == 3
    assert ids(ended) == [{"refuses": "new.accepted", "cluster_id": "new.cluster"}.get(trouble, "new.answer")]


def test_a_broker_that_is_not_registered_gets_no_replica(tmp_path: Path) -> None:
    """Kafka 2.8.2 with ZooKeeper takes such a set, and even validates it."""
    made = desk(tmp_path / "r", sets=((1, 7),))
    ended = made.process(forward)
    assert (ended.code, ids(ended), made.cluster.made) == (3, ["new.brokers"], [])


def test_p10_a_topic_grows_and_has_no_way_back(tmp_path: Path) -> None:
    made = growing(tmp_path)
    assert made.process(forward).code == 0
    assert made.cluster.made == [GrowTopic("kafka", TOPIC, SETS, (MORE[2],))]
    ended = made.process(back)
    assert (ended.code, ids(ended)) == (6, ["new.grown-back"])
    assert made.there


def test_p10_killed_anywhere_a_topic_goes_on_growing(tmp_path: Path) -> None:
    left = left_by_kills(growing(tmp_path), forward, kinds=())
    for number, made in enumerate(left):
        assert made.process(resume).code == 0, number
        assert made.there, number
        assert len(made.cluster.made) == 1, number


def test_p10_a_topic_that_another_hand_lets_grow_is_left_alone(tmp_path: Path) -> None:
    made = growing(tmp_path)
    made.sets = MORE
    ended = made.process(forward)
    assert (ended.code, ids(ended), made.cluster.made) == (3, ["new.topic"], [])
