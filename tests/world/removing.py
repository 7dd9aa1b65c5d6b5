"""Runs that remove brokers of a model cluster while topics are born."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from playbooks.kafka_remove_brokers import PLAYBOOK
from tests.world.build import World
from tests.world.cluster import Cluster
from tests.world.cluster_desk import ClusterDesk
from tests.world.reassigning import BROKERS, RATE
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.throttle import LEADER_LIST, LEADER_RATE
from zkmigrate.cluster.removal.section import Removal, RemovalInventory
from zkmigrate.inventory.inventory import Ssh
from zkmigrate.runbook.model.playbook import Playbook

GONE = (4, 5)
RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}
FREE = 10**9
POLICY_FILE = "/etc/kafka/excluded-brokers"


def world(partitions: int = 12, size: int = 3_000_000, log_dirs: str = "/var/lib/kafka") -> Cluster:
    """Topics of four partitions each, on brokers 1 to 5 in turn, each set in two racks. Every third partition
    is led by its second replica. Topic t1 and broker 1 have throttles of another hand."""
    sets: dict[Name, tuple[int, ...]] = {}
    for n in range(partitions):
        replicas = (1 + n % 5, 1 + (n + 1 + n % 2 * 2 * (n % 5 != 0)) % 5)
        if RACKS[replicas[0]] == RACKS[replicas[1]]:
            replicas = (replicas[0], 1 + replicas[0] % 5)
        sets["__consumer_offsets" if n < 4 else f"t{n // 4}", n % 4] = replicas
    topics: dict[str, dict[str, str]] = {topic: {"cleanup.policy": "delete"} for topic, _ in sets}
    topics["t1"] |= {LEADER_LIST: "3:1,0:1"}
    built = World().brokers(5).hosts(log_dirs=log_dirs).topics(sets)
    made = built.cluster(
        topics=topics,
        rates={1: {LEADER_RATE: "77"}},
        racks=dict(RACKS),
        usable=dict.fromkeys(BROKERS, FREE),
    )
    for n, held in enumerate(made.held.values()):
        held.size, held.leader = size + n * 1000, held.replicas[1 if n % 3 == 2 else 0]
    return made


def inventory(**section: Any) -> RemovalInventory:
    paced = {"throttle_bytes_s": RATE, "in_flight": 3, "per_broker": 2}
    given = {"brokers": GONE, "shutdown": False, **paced, **section}
    return RemovalInventory(
        version=1,
        name="remove",
        ssh=Ssh(user="ops", key="k", known_hosts="h"),
        kafka=World().brokers(5).kafka,
        removal=Removal.model_validate(given),
    )


@dataclass
class RemovalDesk(ClusterDesk):
    """One run that removes brokers."""

    playbook: ClassVar[Playbook] = PLAYBOOK

    @property
    def policies(self) -> dict[str, bytes]:
        """What our policy reads, by host."""
        hosts = self.cluster.hosts.items()
        return {name: host.files[POLICY_FILE].content for name, host in hosts if POLICY_FILE in host.files}

    @property
    def there(self) -> bool:
        """Nothing is on the removed brokers, every set is whole and in sync, and no other set was touched."""
        gone = self.inventory.removal.brokers
        return not self.cluster.flights and all(
            not set(gone) & set(held.replicas)
            and len(held.replicas) == len(before.replicas)
            and set(held.isr) == set(held.replicas)
            and (set(before.replicas) & set(gone) or held.replicas == before.replicas)
            for name, held in self.cluster.held.items()
            if (before := self.first.held.get(name, held))
        )  # fmt: skip

    @property
    def home(self) -> bool:
        """As before the run, and what was born meanwhile stands where it was born."""
        now = self.cluster
        return (
            now.sets == {**self.first.sets, **now.birthplaces}
            and self.leaders_back
            and self.settings_kept
            and not now.flights
            and not now.down
            and not now.installed
            and not self.policies
        )


def desk(
    tmp_path: Path, partitions: int = 12, log_dirs: str = "/var/lib/kafka", **section: Any
) -> RemovalDesk:
    cluster = world(partitions, log_dirs=log_dirs)
    return RemovalDesk(tmp_path / "r", cluster, inventory(**section))
