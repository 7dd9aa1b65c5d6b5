"""A topic that is created or grows: there and back, killed anywhere, and what other hands do meanwhile."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Self, cast

import pytest

from playbooks.kafka_new_partitions import PLAYBOOK
from tests.answers import Answering
from tests.unit.engine_world import (
    PointDisk,
    Points,
    TinyClock,
    TinyConfirm,
    TinyLock,
    back,
    forward,
    homeward,
    left_by_kills,
    on_and_back,
    resume,
)
from zkmigrate.cluster.new_partitions.section import NewPartitions, NewPartitionsInventory, Sets
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Broker, Kafka
from zkmigrate.kafka.changes import CreateTopic, DeleteTopic, GrowTopic
from zkmigrate.kafka.questions import LogEnd, PartitionState, TopicPartitions
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.journal import NAME, Journal
from zkmigrate.runbook.engine.ports import Ports
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look

ID, TOPIC = "A" * 22, "t"
SETS: Sets = ((1, 2), (2, 1))
MORE: Sets = ((1, 2), (2, 1), (1, 2))


@dataclass
class Cluster:
    """A cluster with one topic at most. lag: so many looks still tell what was before a change. lost: the
    answer to the next change does not come. refuses: why Kafka would refuse."""

    sets: Sets = ()
    id: int = 0
    records: int = 0
    lag: int = 0
    lost: bool = False
    silent: bool = False
    refuses: str = ""
    cluster_id: str = ID
    made: list[Change] = field(default_factory=list)
    old: tuple[int, Sets] = (0, ())
    turn: RLock = field(default_factory=RLock, repr=False)

    def alter(self, change: Change) -> Outcome:
        with self.turn:
            self.old = (self.lag, self.sets)
            match change:
                case CreateTopic() if not self.sets:
                    self.sets, self.id = change.sets, self.id + 1
                case DeleteTopic() if self.sets and change.before in ("", f"id{self.id}"):
                    self.sets = ()
                case GrowTopic() if len(self.sets) == len(change.old):
                    self.sets = (*self.sets, *change.sets)
                case _:
                    return Outcome(1, "Kafka refuses that")
            self.made.append(change)
            if self.lost:
                self.lost = False
                raise HostError("the connection broke")
            return Outcome(0, "")


@dataclass(frozen=True)
class NewLook(Answering):
    cluster: Cluster
    clock: TinyClock

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.wall()

    def topic_partitions(self, _cluster: str, topics: Sequence[str], _count: int) -> Reading[TopicPartitions]:
        of = self.cluster
        if of.silent:
            return Unknown("timeout", "no broker answers")
        left, sets = of.old
        of.old = (left - 1, sets)
        sets = sets if left > 0 else of.sets
        states = tuple(PartitionState(TOPIC, number, one[0], one, one) for number, one in enumerate(sets))
        told: Reading[tuple[PartitionState, ...]] = Seen(states) if sets else Absent(TOPIC)
        ids = {TOPIC: f"id{of.id}"} if sets else {}
        return Seen(TopicPartitions(of.cluster_id, frozenset({1, 2}), (1, 2), {TOPIC: told}, ids))

    def refused_topic(self, _change: CreateTopic | GrowTopic) -> Reading[str]:
        return Seen(self.cluster.refuses)

    def log_ends(
        self, _cluster: str, replicas: Mapping[int, Mapping[str, Sequence[int]]]
    ) -> Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]:
        def end(number: int) -> LogEnd:
            return LogEnd(self.cluster.records if number == 1 else 0, None, 0)

        return Seen(
            {
                id_: Seen({(topic, n): Seen(end(n)) for topic, numbers in of.items() for n in numbers})
                for id_, of in replicas.items()
            }
        )


@dataclass
class Desk:
    """One run of the plan over one cluster. first: the number of its first partition."""

    run_dir: Path
    cluster: Cluster = field(default_factory=Cluster)
    sets: Sets = SETS
    first: int = 0
    clock: TinyClock = field(default_factory=TinyClock)
    confirm: TinyConfirm = field(default_factory=TinyConfirm)

    def __post_init__(self) -> None:
        self.before = self.cluster.sets

    def copy(self, run_dir: Path) -> Self:
        shutil.copytree(self.run_dir, run_dir)
        cluster = replace(self.cluster, made=[*self.cluster.made], turn=RLock())
        made = replace(self, run_dir=run_dir, cluster=cluster, clock=copy.copy(self.clock))
        made.before = self.before
        return made

    @property
    def home(self) -> bool:
        return self.cluster.sets == self.before

    @property
    def there(self) -> bool:
        return self.cluster.sets == (*self.before, *self.sets)

    def process(self, act: object, points: Points | None = None) -> RunEnded:
        self.points = points or Points()
        disk = PointDisk(self.points)
        there = (self.run_dir / NAME).exists()
        journal = (Journal.open if there else Journal.create)(self.run_dir, self.clock.wall, disk)
        if not journal.history.run:
            body = {"run": "r-1", "name": "", "playbook": PLAYBOOK.id, "inventory": "0", "plan": "0"}
            journal.append("begin", body)
        kafka = Kafka(
            cluster_id=ID,
            brokers=tuple(Broker(name=f"b{n}", address=f"10.0.0.{n}", id=n) for n in (1, 2)),
        )
        inventory = NewPartitionsInventory(
            version=1, name="new", kafka=kafka, new_partitions=NewPartitions(plan="plan.json")
        ).with_sets(TOPIC, self.first, self.sets)
        ports = Ports(
            look=cast(Look, NewLook(self.cluster, self.clock)),
            apply=self._apply,
            clock=self.clock,
            confirm=self.confirm,
            lock=TinyLock(),
            interrupt=Interrupt(),
            emit=lambda _event: None,
        )
        try:
            return act(Walk(PLAYBOOK, inventory, journal, ports))  # type: ignore[operator, no-any-return]
        finally:
            journal.close()

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        self.points.hit("apply")
        outcome = self.cluster.alter(change)
        self.points.hit("applied")
        return outcome


def growing(folder: Path) -> Desk:
    return Desk(folder / "r", Cluster(SETS, 1), sets=(MORE[2],), first=2)


def ids(ended: RunEnded) -> list[str]:
    return [one.id for one in ended.findings if one.blocks]


@pytest.mark.parametrize("lag", [0, 3])
def test_a_topic_is_created_and_its_way_back_deletes_it_by_its_id(tmp_path: Path, lag: int) -> None:
    made = Desk(tmp_path / "r", Cluster(lag=lag))
    assert made.process(forward).code == 0
    assert made.there
    assert made.process(back).code == 0
    assert made.home
    assert made.cluster.made[1:] == [DeleteTopic("kafka", TOPIC, "id1")]
    assert len(made.cluster.made) == 2, "brokers that are late get nothing twice"


def test_killed_anywhere_a_created_topic_goes_on_or_back(tmp_path: Path) -> None:
    left = left_by_kills(Desk(tmp_path / "r"), forward, kinds=())
    assert len(left) > 10
    for made, _ in on_and_back(left):
        assert made.process(back).code == 0
        assert made.home


def test_killed_anywhere_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    made = Desk(tmp_path / "r")
    assert made.process(forward).code == 0
    assert len(list(homeward(left_by_kills(made, back, kinds=())))) > 5


@pytest.mark.parametrize("trouble", ["records", "replaced", "grown"])
def test_a_topic_that_is_not_empty_or_not_ours_is_never_deleted(tmp_path: Path, trouble: str) -> None:
    made = Desk(tmp_path / "r")
    assert made.process(forward).code == 0
    if trouble == "records":
        made.cluster.records = 1
    elif trouble == "replaced":
        made.cluster.id += 1
    else:
        made.cluster.sets = MORE
    sets = made.cluster.sets
    ended = made.process(back)
    assert (ended.code, ids(ended)) == (6, ["new.kept"])
    assert made.cluster.sets == sets
    assert made.process(resume).code == (6 if trouble == "grown" else 0), "forward from here"


def test_a_topic_of_another_hand_is_refused_before_and_during_the_run(tmp_path: Path) -> None:
    for name, sets in (("same", SETS), ("other", MORE)):
        made = Desk(tmp_path / name, Cluster(sets, 1))
        ended = made.process(forward)
        assert (ended.code, ids(ended), made.cluster.made) == (3, ["new.topic"], [])
    made = Desk(tmp_path / "late")
    looked = made.process(lambda walk: walk.forward(until="preflight"))
    assert looked.code == 0
    made.cluster.sets = SETS
    ended = made.process(resume)
    assert made.cluster.made == []
    assert ended.code != 0


def test_a_lost_answer_is_looked_at_and_never_assumed(tmp_path: Path) -> None:
    made = Desk(tmp_path / "r", Cluster(lost=True))
    assert made.process(forward).code == 0
    assert (made.there, len(made.cluster.made)) == (True, 1)
    made.cluster.lost = True
    assert made.process(back).code == 0
    assert (made.home, len(made.cluster.made)) == (True, 2)


@pytest.mark.parametrize("trouble", ["refuses", "cluster_id", "silent"])
def test_what_kafka_would_refuse_stops_before_the_first_change(tmp_path: Path, trouble: str) -> None:
    found = {"refuses": "policy", "cluster_id": "B" * 22, "silent": True}[trouble]
    made = Desk(tmp_path / "r", replace(Cluster(), **{trouble: found}))  # type: ignore[arg-type]
    ended = made.process(forward)
    assert ended.code == 3
    assert ids(ended) == [{"refuses": "new.accepted", "cluster_id": "new.cluster"}.get(trouble, "new.answer")]


def test_a_broker_that_is_not_registered_gets_no_replica(tmp_path: Path) -> None:
    """Kafka 2.8.2 with ZooKeeper takes such a set, and even validates it."""
    made = Desk(tmp_path / "r", sets=((1, 7),))
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
    made.cluster.sets = MORE
    ended = made.process(forward)
    assert (ended.code, ids(ended), made.cluster.made) == (3, ["new.topic"], [])
