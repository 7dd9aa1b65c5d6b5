"""Runs that remove what was left in a model cluster with ZooKeeper and disks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from playbooks.kafka_clean_leftovers import PLAYBOOK
from tests.world.build import World
from tests.world.cluster import Cluster
from tests.world.cluster_desk import ClusterDesk
from tests.world.cluster_state import DAY_S, DISK, ID
from zkmigrate.cluster.leftovers.section import Leftovers, LeftoversInventory
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST, LEADER_RATE
from zkmigrate.inventory.inventory import Ssh
from zkmigrate.runbook.model.playbook import Playbook

CHROOT = "/kafka"
MARK = "0" * 32


def world(log_dirs: str = DISK) -> Cluster:
    """Two topics that live, and one leftover of each kind."""
    made = World().brokers(2).hosts("/var", log_dirs).cluster(rates={2: {LEADER_RATE: "77"}})
    for topic in ("live", "live2"):
        made.create_topic(topic)
    made.topics["live"][FOLLOWER_LIST] = "0:2"
    made.put("/cluster/id", json.dumps({"version": "1", "id": ID}).encode())
    made.put("/controller", b'{"brokerid": 1}')
    made.put("/controller_epoch", b"3")
    made.put("/admin/delete_topics/gone")
    made.put("/brokers/topics/empty", b"not json")
    made.put("/brokers/topics/empty/partitions/0/state", b"{}")
    made.put("/brokers/topics/empty/partitions/0")
    made.put("/brokers/topics/empty/partitions")
    made.put("/config/topics/old", b'{"config":{"retention.ms":"1"}}', acl=((31, "digest", "a:b"),))
    made.put("/isr_change_notification/isr_change_0000000001", b"{}")
    made.put("/log_dir_event_notification/log_dir_event_0000000000", b"{}")
    for n in range(3):
        made.put(f"/config/changes/config_change_{n:010}", b"{}")
    made.put("/admin/reassign_partitions", b"garbage")
    made.put("/admin/preferred_replica_election", b"garbage")
    old = made.clock.wall() - DAY_S
    made.lay("broker1", "gone-0", 1000, old)
    made.lay("broker1", f"live2-0.{MARK}-delete", 20, old)
    made.lay("broker2", "live2-7", 30, old)
    return made


ALL = (
    "/admin/delete_topics/gone",
    "/brokers/topics/empty",
    "/config/topics/old",
    "/isr_change_notification/isr_change_0000000001",
    "/log_dir_event_notification/log_dir_event_0000000000",
    "/config/changes/config_change_0000000000",
    "/config/changes/config_change_0000000001",
    "/config/changes/config_change_0000000002",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "broker/2/leader.replication.throttled.rate",
    "topic/live/follower.replication.throttled.replicas",
    f"broker1:{DISK}/gone-0",
    f"broker1:{DISK}/live2-0.{MARK}-delete",
    f"broker2:{DISK}/live2-7",
)
"""Every leftover of that world, in the order in which they are listed."""

ZNODES_AND_SETTINGS = ALL[:12]


def inventory(*remove: str, ssh: bool = True, older_than_s: int = 3600) -> LeftoversInventory:
    given: dict[str, Any] = {"ssh": Ssh(user="a", key="k", known_hosts="h")} if ssh else {}
    doors = f"10.0.0.1:2181,10.0.0.2:2181{CHROOT}"
    return LeftoversInventory(
        version=1,
        name="leftovers",
        kafka=World().brokers(2).kafka,
        leftovers=Leftovers(zookeeper=doors, remove=remove, older_than_s=older_than_s),
        **given,
    )


@dataclass
class LeftoversDesk(ClusterDesk):
    """One run that removes leftovers."""

    playbook: ClassVar[Playbook] = PLAYBOOK
    chroot: ClassVar[str] = CHROOT

    @property
    def home(self) -> bool:
        """Everything lies where it lay."""
        return self.cluster.left == self.first.left

    @property
    def left(self) -> tuple[str, ...]:
        """The leftovers that are there, of those the world began with."""
        now = self.cluster
        settings = [f"broker/{id}/{key}" for id, own in now.rates.items() for key in own]
        settings += [f"topic/{name}/{key}" for name, own in now.topics.items() for key in own]
        dirs = [f"{host}:{DISK}/{name}" for host in now.hosts for name in now.laid(host)]
        return tuple(name for name in ALL if name in (*now.tree, *settings, *dirs))


def desk(tmp_path: Path, *remove: str, log_dirs: str = DISK, **given: Any) -> LeftoversDesk:
    """stopped: ids of brokers that do not run."""
    stopped = given.pop("stopped", ())
    made = LeftoversDesk(tmp_path / "r", world(log_dirs), inventory(*remove, **given))
    made.cluster.down |= {*stopped}
    return made
