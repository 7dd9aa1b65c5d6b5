"""Provide a loaded Kafka cluster of six brokers in three racks, and run playbooks on it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kazoo.exceptions import KazooException

from zkmigrate.cluster.removal.rules import OWN_POLICY, POLICY
from zkmigrate.lab import fault
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_cluster_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import Follower
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.samples import BROKERS, ZOOKEEPER, Brokers, Partition
from zkmigrate.lab.load.target import of_cluster, runner_for
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.shape import FIRST_KRAFT, LAST_ZOOKEEPER, Shape, release
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.wait import Progress, silent, wait_until

CLUSTER = "kf"
"""The cluster's name; its hosts are kf1 to kf6, its brokers 1 to 6."""
IDS = (1, 2, 3, 4, 5, 6)
RACKS = ("a", "b", "c")
LOADED = ("load-a", "load-b")
SETS: Mapping[str, Sequence[Sequence[int]]] = {
    "load-a": ((1, 2, 3), (2, 3, 4), (3, 4, 2), (4, 2, 3), (1, 3, 5), (2, 4, 3)),
    "load-b": ((1, 2), (2, 3), (3, 4), (4, 2), (1, 5), (2, 4)),
}
"""The first replica lists of the load's topics: uneven, and without broker 6."""
FOREIGN = ("load-a", "leader.replication.throttled.replicas", "0:9")
"""A throttle setting that another user has made before the run: topic, key and value. It has no effect."""
POLICY_FILE = "/etc/kafka/excluded-brokers"
"""The file with excluded broker ids on a broker's host, which our CreateTopicPolicy reads."""
_READY_S, _REQUEST_S = 360.0, 60.0


def six_brokers(
    version: str, *, disk_mb: int = 2048, small: Mapping[int, int] | None = None, policy: bool = False
) -> LabSpec:
    """Return the spec of a lab with six brokers in three racks.

    The cluster uses ZooKeeper up to Kafka's last release with ZooKeeper, otherwise KRaft with controllers on
    brokers 1 to 3. disk_mb: the size of each broker's disk in megabytes. small: other sizes, by broker id.
    policy: whether the brokers load our CreateTopicPolicy. Raises LabError for a release with neither.
    """
    zookeeper = release(version) <= LAST_ZOOKEEPER
    if not zookeeper and release(version) < FIRST_KRAFT:
        raise LabError(
            f"no lab is possible for Kafka {version}, which has neither ZooKeeper nor KRaft for production"
        )
    brokers = [
        {
            "rack": RACKS[(id - 1) % len(RACKS)],
            "disks_mb": [(small or {}).get(id, disk_mb)],
            "controller": not zookeeper and id <= 3,
        }
        for id in IDS
    ]
    cluster: dict[str, Any] = {"name": CLUSTER, "version": version, "brokers": brokers}
    if zookeeper:
        cluster |= {"ensemble": "zk", "chroot": "/kafka"}
    ensembles = [{"name": "zk", "count": 1}] if zookeeper else []
    options = {POLICY: OWN_POLICY, "zkmigrate.excluded.brokers.file": POLICY_FILE} if policy else {}
    return LabSpec(
        shape=Shape.from_json({"ensembles": ensembles, "clusters": [cluster]}), broker_options=options
    )


def host_of(broker: int) -> str:
    return f"{CLUSTER}{broker}"


@dataclass
class ClusterSite:
    """The lab, its load that records to ``directory/history``, and the operator's runs below ``directory``.

    load_options: fields of ``LoadConfig`` besides the cluster's addresses. late: ids of brokers that join
    later. The load's clients do not get their addresses.
    """

    lab: Lab
    directory: Path
    progress: Progress = silent
    load_options: Mapping[str, Any] = field(default_factory=dict)
    late: Collection[int] = ()

    def __post_init__(self) -> None:
        own = of_cluster(self.lab.spec, CLUSTER)
        self.bootstrap: str = own["bootstrap"]
        self.sources = (BROKERS, ZOOKEEPER) if own["cluster_zookeeper"] else (BROKERS,)
        self.history = self.directory / "history"
        early = [at for id, at in zip(IDS, self.bootstrap.split(","), strict=True) if id not in self.late]
        own["bootstrap"] = ",".join(early)
        self.load: LoadRunner = runner_for(self.lab, self.history, **own, **self.load_options)

    # --- the cluster ----------------------------------------------------------------------------------------

    def create_topics(self, sets: Mapping[str, Sequence[Sequence[int]]] = SETS) -> None:
        """Create topics with these replica lists; `min.insync.replicas` allows one replica to fail."""
        new = [
            NewTopic(
                name,
                len(own),
                replica_assignment=[list(one) for one in own],
                config={"min.insync.replicas": str(max(1, len(own[0]) - 1))},
            )
            for name, own in sets.items()
        ]
        with self.lab.operator():
            admin = self._admin()  # its answers are lost when it is deleted
            for answer in admin.create_topics(new, request_timeout=_REQUEST_S).values():
                _confirmed(answer)

    def set_topic(self, topic: str, key: str, value: str) -> None:
        """Set a config of a topic directly, as another user would."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        with self.lab.operator():
            admin = self._admin()
            _confirmed(admin.incremental_alter_configs([resource])[resource])

    def _admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    @contextlib.contextmanager
    def _connect(self) -> Iterator[Brokers]:
        """Yield a connection to the brokers. Raises LabError if they do not answer."""
        with self.lab.operator(), answered(), contextlib.closing(Brokers(self.bootstrap)) as brokers:
            yield brokers

    def partitions(self) -> dict[str, Partition]:
        """Return the state of every partition as the brokers report it now, by name such as ``a-0``."""
        with self._connect() as brokers:
            return brokers.partitions()

    def in_flight(self) -> dict[str, tuple[int, ...]]:
        """Return the broker ids of the replicas that are being added now, by partition."""
        with self._connect() as brokers:
            return brokers.in_flight()

    def settings(self) -> dict[str, dict[str, str]]:
        """Return every throttle setting that the brokers report, by broker or topic and by key."""
        with self._connect() as brokers:
            return brokers.settings()

    def controller(self) -> int:
        """Return the id of the active controller. Raises LabError while there is none."""
        with self.lab.operator(), answered():
            if ZOOKEEPER in self.sources:
                with self.lab.zookeeper("zk") as client:
                    content = client.get(f"{self.lab.cluster(CLUSTER).chroot}/controller")[0]
                return int(json.loads(content)["brokerid"])
            client = KafkaAdminClient(bootstrap_servers=self.bootstrap.split(","))
            with contextlib.closing(client):
                return int(client.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"])

    def stop_broker(self, broker: int) -> None:
        """Stop a broker cleanly and wait until its registration has been removed."""
        self.lab.exec(host_of(broker), ["systemctl", "stop", "kafka"], timeout_s=_READY_S)
        self.lab.wait_until_unregistered(CLUSTER, broker, _READY_S)

    def runs(self, broker: int) -> bool:
        """Return whether the broker's process runs."""
        command = ["systemctl", "is-active", "kafka"]
        return self.lab.exec(host_of(broker), command, check=False).stdout.strip() == "active"

    def start_broker(self, broker: int) -> None:
        """Start a broker and wait until all brokers are registered and every ISR is full."""
        self.start_broker_alone(broker)
        self.lab.wait_for_brokers(deadline_s=_READY_S)

    def start_broker_alone(self, broker: int) -> None:
        """Start a broker once its old session has ended. Before that the broker would refuse to start."""
        self.lab.wait_until_unregistered(CLUSTER, broker, _READY_S)
        fault.start(self.lab, host_of(broker))

    def wait_for_controller(self, *, but: int, limit_s: float) -> int:
        """Wait until the active controller is a broker other than ``but``, and return its id."""
        found: list[int] = []

        def missing() -> str | None:
            found.append(self.controller())
            return None if found[-1] not in (but, -1) else f"another controller than {but}"

        wait_until("another controller", when_answered(missing), limit_s, poll_s=0.5)
        return found[-1]

    def wait_for_step(self, step: int, limit_s: float) -> None:
        """Wait until the producer has reached this step of its plan. limit_s: in seconds."""
        wait_for_step(self.history, step, limit_s)

    def wait_for_records(self, count: int, limit_s: float) -> None:
        """Wait until this many records are acknowledged. A busy machine writes fewer records per step."""
        wait_for_records(self.history, count, limit_s)

    def other_load(self, name: str, **options: Any) -> LoadRunner:
        """Return a second load, which records to ``directory/NAME``. options: fields of ``LoadConfig``."""
        own = of_cluster(self.lab.spec, CLUSTER)
        return runner_for(self.lab, self.directory / name, **{**own, **options})

    # --- the tool -------------------------------------------------------------------------------------------

    def inventory(self, path: Path, further: Mapping[str, Any]) -> Path:
        """Write an inventory of the cluster and return its path. further: the playbook's own sections."""
        return write_cluster_inventory(self.lab, path, CLUSTER, further)

    def placement(self, run: str, *words: str) -> dict[str, tuple[int, ...]]:
        """Create a run's ``plan.json`` by ``zkmigrate placement``. Return the new replicas by partition."""
        folder = self.directory / run
        folder.mkdir(parents=True, exist_ok=True)
        inventory = self.inventory(folder / "cluster.yml", {})
        out = folder / "plan.json"
        self.progress(f"tool: zkmigrate placement {' '.join(words)}")
        said = self.lab.run_module(
            "zkmigrate", "placement", *words, "-i", str(inventory), "--out", str(out), "--log-dirs", "kafka",
            "--force", timeout_s=300,
        )  # fmt: skip
        (folder / "placement.txt").write_text(said)
        return sets_of(out)

    def moves(self, run: str, **section: Any) -> Operator:
        """Return the operator for a run of ``kafka_reassign`` that uses the run's ``plan.json``.

        section: further keys of the section ``reassign``.
        """
        folder = self.directory / run
        wanted = {"plan": "plan.json", "throttle_bytes_s": 4_000_000, **section}
        if (folder / "plan-back.json").exists():
            wanted["back"] = "plan-back.json"
        return self.operator(run, {"reassign": wanted})

    def operator(self, run: str, sections: Mapping[str, Any]) -> Operator:
        """Return the operator for a run. sections: the playbook's own sections of the inventory."""
        folder = self.directory / run
        folder.mkdir(parents=True, exist_ok=True)
        self.inventory(folder / "migration.yml", sections)
        return Operator(self.lab, folder, run)

    def write_plan(self, run: str, sets: Mapping[str, Sequence[int]]) -> None:
        """Write these replica lists as a run's ``plan.json``, in Kafka's reassignment format."""
        folder = self.directory / run
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for name, ids in sets.items():
            topic, _, number = name.rpartition("-")
            rows.append({"topic": topic, "partition": int(number), "replicas": list(ids)})
        (folder / "plan.json").write_text(json.dumps({"version": 1, "partitions": rows}))


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Convert errors of cluster requests in the block to LabError."""
    try:
        yield
    except (KafkaException, KafkaError, KazooException, OSError) as error:
        raise LabError(f"the cluster does not answer: {error!r}") from error


def when_answered(missing: Callable[[], str | None]) -> Callable[[], str | None]:
    """Return a condition that is not met, and does not fail, while the cluster does not answer.

    missing: the condition to wrap. LabError means that the cluster does not answer.
    """

    def problem() -> str | None:
        try:
            return missing()
        except LabError as error:
            return str(error)

    return problem


def _confirmed(answer: Future[Any]) -> None:
    """Wait until the brokers confirm a change. Raises LabError if they refuse or do not answer."""
    try:
        answer.result(_REQUEST_S)
    except (KafkaException, TimeoutError) as error:
        raise LabError(f"the brokers refused a change: {error!r}") from error


def wait_for_step(history: Path, step: int, limit_s: float) -> None:
    """Wait until the producer that records to this directory has reached this step of its plan."""
    follower = Follower(history, "producer")

    def missing() -> str | None:
        steps = [event["step"] for event in follower.more() if event["event"] == "rate"]
        return None if any(seen >= step for seen in steps) else "its record"

    wait_until(f"step {step} of the load's plan", missing, limit_s)


def wait_for_records(history: Path, count: int, limit_s: float) -> None:
    """Wait until `count` records of the producer that records to this directory are acknowledged."""
    follower = Follower(history, "producer")
    seen = 0

    def missing() -> str | None:
        nonlocal seen
        seen += sum(event["event"] == "ack" for event in follower.more())
        return None if seen >= count else f"{count - seen:,} records"

    wait_until(f"{count:,} acknowledged records", missing, limit_s)


def sets_of(plan: Path) -> dict[str, tuple[int, ...]]:
    """Return the replica lists of a file in Kafka's reassignment format, by partition."""
    rows = json.loads(plan.read_text())["partitions"]
    return {f"{row['topic']}-{row['partition']}": tuple(row["replicas"]) for row in rows}


def not_as(partitions: Mapping[str, Partition], wanted: Mapping[str, Sequence[int]]) -> list[str]:
    """Return a text for each partition that is not as wanted.

    Such a partition has other replicas, another order of replicas, or a replica that is not in sync.
    """
    odd = []
    for name, ids in wanted.items():
        now = partitions.get(name)
        if now is None or now.replicas != tuple(ids) or set(now.isr) != set(ids):
            seen = "missing" if now is None else f"{list(now.replicas)}, in sync {sorted(now.isr)}"
            odd.append(f"{name}: {seen}, not {list(ids)}")
    return odd


def directories_left(lab: Lab, brokers: Iterable[int]) -> list[str]:
    """Return the partition directories on these brokers' disks, such as ``kf5: load-a-0``.

    Directories that Kafka is deleting are left out.
    """
    found = []
    for broker in brokers:
        disk = lab.host(host_of(broker)).root / "var/lib/kafka/disk1"
        names: Collection[str] = sorted(path.name for path in disk.iterdir() if path.is_dir())
        found += [
            f"{host_of(broker)}: {name}"
            for name in names
            if name.rpartition("-")[2].isdigit() and not name.endswith("-delete")
        ]
    return found
