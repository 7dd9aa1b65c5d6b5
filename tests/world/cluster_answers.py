"""What a model Kafka cluster and the hosts of its brokers answer to looks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.world.cluster_state import DISK, Node, State
from tests.world.model import program
from tests.world.model.host import Host, entries
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST, LEADER_LIST
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED, POLICY
from zkmigrate.hosts import zkm_host
from zkmigrate.kafka.changes import AlterAtController
from zkmigrate.kafka.questions import (
    ClusterTopics,
    InFlight,
    KafkaView,
    LogDir,
    LogDirs,
    LogEnd,
    PartitionState,
    ReplicaLog,
    Settings,
    TopicPartitions,
    TopicSetting,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry
from zkmigrate.zookeeper.questions import Rights, Znode

SILENT = Unknown("timeout", "no broker answers")
KEYS = frozenset({"cleanup.policy", "min.insync.replicas", "retention.bytes", "retention.ms"})
"""The settings of topics that brokers know, beside those of throttles."""


class Answers(State):
    """What is asked of brokers, then of ZooKeeper and of hosts."""

    def names(self) -> Reading[ClusterTopics]:
        self.born(self)
        if self.silent:
            return SILENT
        return Seen(ClusterTopics(self.cluster_id, tuple(sorted({*self.topics} - self.unnamed))))

    def partitions(self, topics: Sequence[str], witnesses: int) -> Reading[TopicPartitions]:
        if self.silent:
            return SILENT
        by_topic: dict[str, list[PartitionState]] = {}
        for state in self.states(frozenset(topics)):
            by_topic.setdefault(state.topic, []).append(state)
        told: dict[str, Reading[tuple[PartitionState, ...]]] = {}
        for topic in topics:
            if topic in self.denied:
                told[topic] = Unknown("denied", f"metadata of topic {topic}: TOPIC_AUTHORIZATION_FAILED")
            else:
                told[topic] = Seen(tuple(by_topic[topic])) if topic in by_topic else Absent(topic)
        self.shown = {name: (left - 1, state) for name, (left, state) in self.shown.items() if left > 1}
        ids = {topic: f"id{self.ids.get(topic, 1)}" for topic in by_topic}
        up = self.up
        return Seen(TopicPartitions(self.cluster_id, frozenset(up), tuple(up[:witnesses]), told, ids))

    def view(self) -> Reading[KafkaView]:
        if self.silent:
            return SILENT
        up = {id: (f"10.0.0.2{id}", 9092, self.racks[id]) for id in self.up}
        topics = dict.fromkeys(self.topics, self.min_isr)
        moving = tuple(sorted(self.flights))
        first = self.controller or min(up)
        return Seen(KafkaView(self.cluster_id, first, up, tuple(self.states()), topics, moving))

    def log_dirs(
        self, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None
    ) -> Reading[Mapping[int, LogDirs]]:
        if self.silent:
            return SILENT
        names = None if partitions is None else {(topic, n) for topic, ns in partitions.items() for n in ns}
        held = [name for name in self.held if names is None or name in names]
        return Seen({id: self._log_dirs(id, held, names) for id in brokers})

    def _log_dirs(self, id: int, held: Sequence[Name], names: set[Name] | None) -> LogDirs:
        if id in self.down or id not in self.brokers:
            return Unknown("timeout", f"broker {id} does not answer")
        logs: dict[str, list[ReplicaLog]] = {path: [] for path in self.dirs_of(id)}
        for name in held:
            size = self.size(name, id)
            if size is None:
                continue
            logs[self.place(id, name)].append(ReplicaLog(*name, size, 0, future=False))
            if (id, name) in self.futures:
                path, have = self.futures[id, name]
                logs[path].append(ReplicaLog(*name, have, size - have, future=True))
        for name, size in self._strays(id).items():
            if names is None or name in names:
                logs[self.dirs_of(id)[0]].append(ReplicaLog(*name, size, 0, future=False))
        return Seen(
            {
                path: Seen(
                    LogDir(tuple(own), 10**12 + n, self.usable.get(id, self.free(id)), self.is_shut(id, path))
                )
                for n, (path, own) in enumerate(logs.items())
            }
        )

    def _strays(self, id: int) -> dict[Name, int]:
        """Replicas on a disk that no set names; KRaft's own log is none."""
        laid = self.laid(f"broker{id}") if f"broker{id}" in self.hosts else {}
        found = {re.fullmatch(r"([^.]+)-(\d+)", name): size for name, size in laid.items()}
        told = {(match[1], int(match[2])): size for match, size in found.items() if match}
        return {name: size for name, size in told.items() if name[0] != "__cluster_metadata"}

    def is_shut(self, id: int, path: str) -> bool:
        """Whether a log directory is cordoned."""
        return self.cordoned(id) or path in self.shut.get(id, ())

    def cordoned(self, id: int) -> bool:
        """Whether all directories of a broker are."""
        return self.rates.get(id, {}).get(CORDONED) == CORDON_ALL

    def log_ends(
        self, replicas: Mapping[int, Mapping[str, Sequence[int]]]
    ) -> Reading[Mapping[int, Reading[Mapping[Name, Reading[LogEnd]]]]]:
        """Records have a thousand bytes; one is not in sync yet."""
        told: dict[int, Reading[Mapping[Name, Reading[LogEnd]]]] = {}
        for id, asked in replicas.items():
            names = [(topic, number) for topic, numbers in asked.items() for number in numbers]
            if id in self.down | self.endless:
                told[id] = Unknown("timeout", f"broker {id} does not answer")
            else:
                told[id] = Seen({name: self._log_end(id, name) for name in names})
        return Seen(told)

    def _log_end(self, id: int, name: Name) -> Reading[LogEnd]:
        size = self.size(name, id)
        if size is None:
            return Unknown("failed", "NotLeaderForPartitionError")
        leads = id == self.held[name].leader
        return Seen(LogEnd(size // 1000, size // 1000 - 1 if leads else None, self.epoch))

    def settings(self, key: str, topics: Sequence[str]) -> Settings:
        if self.silent:
            return SILENT
        if key not in {*KEYS, LEADER_LIST, FOLLOWER_LIST} and any(topic in self.topics for topic in topics):
            return Absent(key)
        return Seen({topic: self._setting(topic, key) for topic in topics})

    def _setting(self, topic: str, key: str) -> Reading[TopicSetting]:
        if topic in self.denied:
            return Unknown("denied", f"config {key} of topic {topic}: TOPIC_AUTHORIZATION_FAILED")
        return Seen(TopicSetting(self.topics[topic].get(key))) if topic in self.topics else Absent(topic)

    def broker_settings(
        self, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        if self.silent:
            return SILENT
        dark = self.down.intersection(brokers)
        told: dict[int, Reading[TopicSetting]] = {id: Seen(self._broker_setting(id, key)) for id in brokers}
        return Seen(told | {id: Unknown("timeout", f"broker {id} does not answer") for id in dark})

    def _broker_setting(self, id: int, key: str) -> TopicSetting:
        late = self.rates_shown.get((id, key))
        own = late.pop() if late else self.rates.get(id, {}).get(key)
        listed = {CORDONED: "" if self.cordons else None, POLICY: self.policy or None}.get(key)
        known = TopicSetting(own)
        if listed is not None:
            known = TopicSetting(own, value=listed if own is None else own)
        return self.bounds.get(id, {}).get(key) or known

    def reassignments(self) -> Reading[Mapping[Name, InFlight]]:
        self.before_look()
        if self.silent:
            return SILENT
        if self.old:
            return Absent("ListPartitionReassignments")
        self.measure()
        told = {
            name: InFlight(
                flight.replicas,
                tuple(b for b in flight.target if b not in flight.before),
                tuple(b for b in flight.before if b not in flight.target),
            )
            for name, flight in self.flights.items()
        }
        self.tick()
        return Seen(told)

    def measure(self) -> None:
        """Count what is in flight."""
        raise NotImplementedError

    def tick(self) -> None:
        """A second passes."""
        raise NotImplementedError

    def refused_at_controller(self, change: AlterAtController) -> Reading[str]:
        """As the controller answers."""
        if not self.kraft:
            return Absent("DescribeQuorum")
        if self.walled:
            return Unknown("failed", "the controller did not answer")
        return Seen("BROKER_ID_NOT_REGISTERED" if change.broker in self.forgotten else "")

    # --- ZooKeeper -------------------------------------------------------------------------------------

    def znode(self, path: str) -> Reading[Znode]:
        """One below the chroot; where a test has put none, those of topics as Kafka 2.8 writes them."""
        if self.keeper is not None:
            return self.keeper
        if path == "/controller" and self.elected:
            self.elected -= 1
            del self.tree[path]
            self.put(path, b'{"brokerid": 1}', 0)
        above = f"{path}/"
        children = {rest[len(above) :].partition("/")[0] for rest in self.tree if rest.startswith(above)}
        node = self.tree.get(path)
        if node is None and not children:
            written = None if self.tree else self._written(path)
            return Absent(path) if written is None else Seen(Znode(written, 0, 0, 0, 0, 0, ()))
        node = node or Node(b"", 1, 1, 0, 0.0)
        ms = int(node.changed_s * 1000)
        return Seen(
            Znode(node.data, node.made, node.changed, 0, 0, node.version, tuple(sorted(children)), ms)
        )

    def _written(self, path: str) -> bytes | None:
        """``/brokers/topics/T`` and ``/brokers/topics/T/partitions/N/state``."""
        _, _, _, topic, *rest = path.split("/")
        told: dict[str, Any] = {"partitions": {}, "adding_replicas": {}, "removing_replicas": {}}
        for name, held in self.held.items():
            if name[0] != topic:
                continue
            own = {"set": list(held.replicas), "isr": list(held.isr), **self.zookeeper.get(name, {})}
            told["partitions"][str(name[1])] = own["set"]
            for act in ("adding", "removing"):
                told[f"{act}_replicas"] |= {str(name[1]): own[act]} if act in own else {}
            if rest == ["partitions", str(name[1]), "state"]:
                told = {"leader": held.leader, "isr": own["isr"]}
                break
        return json.dumps(told).encode()

    def acls(self, paths: Mapping[str, str]) -> Reading[Mapping[str, Rights]]:
        """paths: below the chroot, by path."""
        return Seen({path: self.tree[at].acl for path, at in paths.items() if at in self.tree})

    # --- hosts -----------------------------------------------------------------------------------------

    def _host(self, name: str) -> Host:
        host = self.hosts[name]
        host.running = self.id_of(name) not in self.down
        return host

    def zkm(self, name: str, *words: str) -> Reading[str]:
        host = self._host(name)
        if words[0] == "facts":
            return Seen(program.facts(host, self.clock.wall(), words[2:]))
        assert words[0] == "status"
        return Seen(program.status(host, self.clock.now(), self.clock.wall(), words[1:], 0, 0))

    def file(self, name: str, path: str) -> Reading[bytes]:
        host = self._host(name)
        if path == zkm_host.INSTALLED_PATH:
            return Seen(host.installed) if host.installed else Absent(path)
        if path == "/proc/mounts":
            return Seen("".join(f"/dev/vda {at} ext4 rw 0 0\n" for at in self.mounts).encode())
        file = host.files.get(program.plain(host, path))
        return Absent(path) if file is None else Seen(file.content)

    def listing(self, name: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        if name not in self.hosts:
            return Unknown("unreachable", f"{name} does not answer")
        host, below = self._host(name), program.plain(self.hosts[name], path)
        found = entries(host.files, below)
        if below in self.dirs_of(id := self.id_of(name)):
            own = [one for one in self.leads(id) if self.place(id, one) == below]
            found |= {f"{t}-{n}": DirEntry(f"{t}-{n}", "d", 4096, 0) for t, n in own}
        return Seen(tuple(found.values())) if found or below == DISK else Absent(path)
