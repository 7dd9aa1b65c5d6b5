"""Provide two clusters with gateways and mirrors, clients at work, and runs that switch them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from zkmigrate.lab import between, network
from zkmigrate.lab import host as lab_host
from zkmigrate.lab.clients.contract import PLAIN
from zkmigrate.lab.clients.families import FAMILIES, Program
from zkmigrate.lab.clients.matrix import Matrix
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_topic_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.producer import create_topics
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.render import OWN_USER
from zkmigrate.lab.shape import FIRST_KRAFT, LAST_ZOOKEEPER, Shape, release
from zkmigrate.lab.spec import LabSpec, Role, shape_of
from zkmigrate.lab.timeline import step_spans
from zkmigrate.lab.wait import Progress, silent, wait_until

OLD, NEW = "old", "new"
"""The clusters' names. Their hosts are old1, old2 and so on, and new1, new2 and so on."""
TOPIC, PARTITIONS, REPLICAS = "orders", 6, 3
GROUPS = "shop"
"""The first part of the names of the clients' consumer groups."""
BOOK = ("--playbook", "kafka_topic_move")
PLAIN_NAME = "-plain"
"""The suffix of the name of a client whose producer is not idempotent."""
_VERB_S, _MIRRORED_S = 300.0, 120.0


def two_clusters(old: str, new: str, *, gateways: int = 1, mirrors: int = 1) -> LabSpec:
    """Return the spec of a lab with two clusters of three brokers.

    The old cluster uses ZooKeeper, the new one KRaft. old, new: Kafka versions. gateways, mirrors: numbers of
    hosts. Raises LabError for a version without ZooKeeper or KRaft.
    """
    if release(old) > LAST_ZOOKEEPER or release(new) < FIRST_KRAFT:
        raise LabError(
            f"no lab is possible for {old} to {new}. Needed: a release with ZooKeeper, then one with KRaft"
        )
    clusters = [
        {"name": OLD, "version": old, "brokers": [{}] * 3, "ensemble": "zk", "chroot": f"/{OLD}"},
        {"name": NEW, "version": new, "brokers": [{"controller": True}] * 3},
    ]
    shape = {"ensembles": [{"name": "zk", "count": 1}], "clusters": clusters}
    return LabSpec(shape=Shape.from_json({**shape, "gateways": gateways, "mirrors": mirrors}))


def clients(names: Sequence[str], progress: Progress) -> dict[str, Program]:
    """Return the programs of these clients, by name.

    names: names in FAMILIES. A producer whose name also ends with ``-plain`` is not idempotent.
    """
    found = {}
    for name in names:
        program = FAMILIES[name.removesuffix(PLAIN_NAME)](progress)
        plain = {PLAIN: "yes"} if name.endswith(PLAIN_NAME) else {}
        found[name] = replace(program, environment={**program.environment, **plain})
    return found


@dataclass(frozen=True)
class Switched:
    """One completed switch.

    held_s: the seconds from the hold to the last gateway's new route. waited_s: the seconds from the hold
    until all requests flow again. began_ns, ended_ns: the beginning of the hold and the end of OPEN, by
    CLOCK_MONOTONIC.
    """

    run: str
    target: str
    held_s: float
    waited_s: float
    began_ns: int
    ended_ns: int


@dataclass
class TopicSite:
    """A lab with two clusters, its clients, and the runs that switch them, below ``directory``.

    names: the clients that will work. more_topics: the numbers of partitions of further topics that switch,
    each with one replica. more_groups: further groups that switch.
    """

    lab: Lab
    directory: Path
    names: Sequence[str]
    progress: Progress = silent
    more_topics: Mapping[str, int] = field(default_factory=dict)
    more_groups: Sequence[str] = ()

    @property
    def topics(self) -> list[str]:
        """The names of all topics that switch."""
        return [TOPIC, *self.more_topics]

    @property
    def groups(self) -> list[str]:
        """The names of the clients' consumer groups, and of the further groups."""
        return [*(f"{GROUPS}-{name}" for name in self.names), *self.more_groups]

    def bootstrap(self, cluster: str) -> str:
        """Return the addresses of a cluster's brokers, without the gateway."""
        return ",".join(between.brokers(self.lab.spec, cluster).values())

    def matrix(self, **changes: Any) -> Matrix:
        """Return the clients' matrix. The clients know only the gateways' ports for the old cluster.

        changes: fields of the matrix to replace.
        """
        doors = ",".join(f"{address}:{port}" for address, port in between.ports(self.lab.spec, OLD))
        matrix = Matrix(doors, TOPIC, PARTITIONS, REPLICAS, GROUPS, log_at=self._log_at)
        return replace(matrix, **changes)

    def _log_at(self) -> str:
        """Return the addresses of the brokers of the cluster to which the clients were switched."""
        return self.bootstrap(self.open_on())

    @contextlib.contextmanager
    def among_clients(self) -> Iterator[None]:
        """Move the calling thread, and processes it starts, into the network of the lab's client host."""
        with network.inside(network.netns(self.lab.id, f"{Role.CLIENT}1")):
            yield

    def begin(self) -> None:
        """Create the topics on the old cluster with default settings, and mirror them to the new cluster."""
        wanted = [LoadConfig(self.bootstrap(OLD), REPLICAS, 1, (TOPIC,), PARTITIONS)]
        wanted += [LoadConfig(self.bootstrap(OLD), 1, 1, (t,), n) for t, n in self.more_topics.items()]
        with self.lab.operator():
            try:
                for one in wanted:
                    create_topics(one)
            except KafkaException as error:
                raise LabError(f"not every topic could be created: {error}") from error
        hosts = self.lab.role(Role.MIRROR)
        for number, host in enumerate(hosts, 1):
            for cluster in (one.name for one in shape_of(self.lab.spec).clusters):
                share = (number, len(hosts))
                file = between.mirror_environment(self.lab.spec, cluster, self.topics, share)
                lab_host.place(host.root, file)
        self.copy_to(NEW)
        self.progress(f"mirror: copies {', '.join(self.topics[:3])} to {NEW}, topics: {len(self.topics)}")

    def copy_to(self, target: str) -> None:
        """Run only the copiers to this cluster, and wait until every partition is mirrored."""
        for host in self.lab.names(Role.MIRROR):
            self.lab.exec(
                host, ["systemctl", "stop", between.mirror_unit(between.other(self.lab.spec, target))]
            )
            self.lab.exec(host, ["systemctl", "start", between.mirror_unit(target)])
        self.wait_for_mirror(target)

    def wait_for_mirror(self, target: str) -> None:
        """Wait until all partitions are mirrored to this cluster and no group is active there.

        A mirrored partition is equal, or behind. Members of groups from an earlier switch have sessions,
        which must end by themselves.
        """

        def missing() -> str | None:
            try:
                report = json.loads(self._mirror("status", target, "--json"))
            except LabError as error:
                return str(error)[-300:]
            states = {one["state"] for one in report["partitions"]}
            active = [one["group"] for one in report["groups"] if one["state"] == "active"]
            return ", ".join([*sorted(states - {"equal", "behind"}), *active]) or None

        wait_until(f"{TOPIC} on {target}", missing, _MIRRORED_S, poll_s=1.0)

    def _mirror(self, verb: str, target: str, *words: str) -> str:
        """Run a command of ``zkmigrate mirror`` towards this cluster, and return its output.

        The command runs in the operator's network.
        """
        source = self.bootstrap(between.other(self.lab.spec, target))
        ends = ("--source", source, "--target", self.bootstrap(target), "--topic", TOPIC)
        return self.lab.run_module("zkmigrate", "mirror", verb, *ends, *words, timeout_s=_VERB_S)

    def compare(self, target: str) -> str:
        """Stop all copiers, copy the remaining records, and compare every record of both clusters.

        Returns the last line of the comparison. Raises LabError if a record differs.
        """
        for host in self.lab.names(Role.MIRROR):
            units = [between.mirror_unit(one.name) for one in shape_of(self.lab.spec).clusters]
            self.lab.exec(host, ["systemctl", "stop", *units])
        self._mirror("run", target, "--once")
        return self._mirror("compare", target).strip().splitlines()[-1]

    # --- the gateways ---------------------------------------------------------------------------------------

    def app(self, gateway: str) -> dict[str, Any]:
        """Return a gateway's report about the application, as JSON values."""
        ask = [between.PROGRAM, "gateway", "status", "--config", between.GATEWAY_FILE, "--json"]
        status = json.loads(self.lab.exec(gateway, ["runuser", "-u", OWN_USER, "--", *ask]).stdout)
        found: dict[str, Any] = status["apps"][between.APP]
        return found

    def places(self) -> set[tuple[str, str]]:
        """Return route and gate of the application on each gateway, without repetition."""
        seen = (self.app(name) for name in self.lab.names(Role.GATEWAY))
        return {(one["route"], one["gate"]) for one in seen}

    def open_on(self) -> str:
        """Return the cluster to which every gateway routes the application.

        Raises LabError unless all gateways name the same cluster and their gates are open.
        """
        places = self.places()
        if len(places) != 1 or {gate for _, gate in places} != {"open"}:
            raise LabError(f"the gateways do not all route the application to one cluster: {sorted(places)}")
        return next(route for route, _ in places)

    # --- the runs -------------------------------------------------------------------------------------------

    def operator(self, run: str, target: str, further: Mapping[str, Any] | None = None) -> Operator:
        """Return the operator of a switch to this cluster.

        further: more keys of the section ``topic_move``.
        """
        folder = self.directory / run
        folder.mkdir(parents=True, exist_ok=True)
        write_topic_inventory(self.lab, folder / "migration.yml", target, self.topics, self.groups, further)
        return Operator(self.lab, folder, run)


def switched(operator: Operator, target: str) -> Switched:
    """Return the times of a switch, from its journal.

    Raises LabError if one of the steps hold, go and open did not end.
    """
    spans = {span["name"]: span for span in step_spans(operator.journal)}
    try:
        hold, go, opened = (spans[f"switch.{name}"] for name in ("hold", "go", "open"))
    except KeyError as error:
        raise LabError(f"the journal of run {operator.run} does not show the end of step {error}") from error
    began = hold["start_mono_ns"]
    held_s, waited_s = (round((one["end_mono_ns"] - began) / 1e9, 3) for one in (go, opened))
    return Switched(operator.run, target, held_s, waited_s, began, opened["end_mono_ns"])
