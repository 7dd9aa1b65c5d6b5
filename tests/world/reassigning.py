"""Runs that reassign partitions of a model cluster by a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from playbooks.kafka_reassign import PLAYBOOK
from tests.world.build import World
from tests.world.cluster import Cluster
from tests.world.cluster_desk import ClusterDesk
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.section import Dirs, Phases, Reassign, ReassignInventory, Sets
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST, LEADER_LIST, LEADER_RATE
from zkmigrate.kafka.changes import ReassignPartition
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.playbook import Playbook

BROKERS = (1, 2, 3, 4, 5)
RATE = 1_000_000
SIZE = 3_000_000


def world(partitions: int = 8, size: int = SIZE) -> Cluster:
    """Topics of four partitions each, on brokers 1 to 3; brokers 4 and 5 hold nothing. Every third partition
    is led by its second replica. Topic t1 has throttles of another hand, and broker 1 has a rate."""
    sets = {(f"t{n // 4}", n % 4): (1 + n % 3, 1 + (n + 1) % 3) for n in range(partitions)}
    topics: dict[str, dict[str, str]] = {topic: {"cleanup.policy": "delete"} for topic, _ in sets}
    if "t1" in topics:
        topics["t1"] |= {LEADER_LIST: "3:1,0:1", FOLLOWER_LIST: "*"}
    made = World().brokers(5).topics(sets, size).cluster(topics=topics, rates={1: {LEADER_RATE: "77"}})
    for held in list(made.held.values())[2::3]:
        held.leader = held.replicas[1]
    return made


def plan(cluster: Cluster) -> dict[Name, tuple[int, ...]]:
    """A plan: move to brokers 4 and 5, change the order only, grow, shrink; one has its set already."""
    made: dict[Name, tuple[int, ...]] = {}
    for n, (name, held) in enumerate(cluster.held.items()):
        first, second = held.replicas
        made[name] = (
            (4, second), (second, first), (4, 5), (first, second, 5), (second,), (first, 4), (first, second),
            (5, second),
        )[n % 8]  # fmt: skip
    return made


def inventory(
    sets: Sets, back: Sets | None = None, dirs: Dirs | None = None, phases: Phases = (), **section: object
) -> ReassignInventory:
    given = {"plan": "plan.json", "throttle_bytes_s": RATE, "in_flight": 3, "per_broker": 2, **section}
    kafka, reassign = World().brokers(5).kafka, Reassign.model_validate(given)
    made = ReassignInventory(version=1, name="reassign", kafka=kafka, reassign=reassign)
    return made.with_sets(sets, back or {}, dirs, phases)


@dataclass
class ReassignDesk(ClusterDesk):
    """One run that moves partitions."""

    playbook: ClassVar[Playbook] = PLAYBOOK

    @property
    def home(self) -> bool:
        """Sets in order, leaders that were preferred, every setting."""
        now, first = self.cluster, self.first
        quiet = not now.flights and not now.futures
        return (now.sets, now.paths) == (first.sets, first.paths) and (
            self.leaders_back and self.settings_kept and quiet
        )

    @property
    def there(self) -> bool:
        """Every partition has the plan's set in order, all in sync, and every setting is as it was."""
        sets, now = self.inventory.sets, self.cluster
        placed = all(
            path in ("any", now.place(id, name))
            for name, dirs in self.inventory.dirs.items()
            for id, path in zip(sets[name], dirs, strict=True)
        )
        whole = all(set(held.isr) == set(held.replicas) for held in now.held.values())
        wanted = {
            name: sets.get(name, before) for name, before in self.first.sets.items() if name in now.held
        }
        return (
            self.settings_kept
            and not now.flights
            and not now.futures
            and placed
            and whole
            and now.sets == wanted
        )


def desk(tmp_path: Path, partitions: int = 8, size: int = SIZE, **section: object) -> ReassignDesk:
    cluster = world(partitions, size)
    return ReassignDesk(tmp_path / "r", cluster, inventory(plan(cluster), **section))  # type: ignore[arg-type]


def found(made: ClusterDesk, id: str) -> Finding:
    """The newest finding with this id that the journal holds."""
    return made.told(id)[-1]


def submitted(made: ClusterDesk) -> list[str]:
    """The partitions that were sent, in order."""
    return [f"{c.topic}-{c.partition}" for c in made.cluster.made if isinstance(c, ReassignPartition)]
