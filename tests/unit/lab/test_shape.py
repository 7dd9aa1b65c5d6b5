"""Labs of other shapes than a move's: hosts and addresses, rendered configs, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from playbooks import kafka_remove_brokers
from zkmigrate.inventory.inventory import load
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.lab import cli, fault, readiness, state
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_cluster_inventory, write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.network import netns
from zkmigrate.lab.shape import Broker, Ensemble, KafkaCluster, Shape
from zkmigrate.lab.spec import HostPlan, LabSpec, Role, hosts_of, members
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

TWO = LabSpec(
    shape=Shape(
        ensembles=(Ensemble(name="zk", count=1),),
        clusters=(
            KafkaCluster(
                name="old",
                ensemble="zk",
                chroot="/old",
                brokers=(Broker(rack="a", disks_mb=(128, 256)), Broker()),
            ),
            KafkaCluster(
                name="new",
                version="3.9.1",
                controllers=1,
                brokers=(Broker(rack="a", disks_mb=(128, 128), controller=True), Broker(rack="b")),
            ),
        ),
        clients=2,
    )
)


def host(name: str) -> HostPlan:
    return next(plan for plan in hosts_of(TWO) if plan.name == name)


def test_hosts_are_named_after_their_part_and_each_group_has_a_ten_of_addresses() -> None:
    assert [(plan.name, plan.role, plan.address) for plan in hosts_of(TWO)] == [
        ("zk1", Role.SOURCE, "10.71.0.11"),
        ("old1", Role.BROKER, "10.71.0.21"),
        ("old2", Role.BROKER, "10.71.0.22"),
        ("new1", Role.BROKER, "10.71.0.31"),
        ("new2", Role.BROKER, "10.71.0.32"),
        ("new-ctl1", Role.CONTROLLER, "10.71.0.41"),
        ("client1", Role.CLIENT, "10.71.0.51"),
        ("client2", Role.CLIENT, "10.71.0.52"),
    ]
    assert [plan.name for plan in members(hosts_of(TWO), "new")] == ["new1", "new2", "new-ctl1"]


@pytest.mark.parametrize(("count", "client"), [(9, "10.71.0.31"), (10, "10.71.0.41")])
def test_a_group_of_ten_takes_two_tens_of_addresses(count: int, client: str) -> None:
    big = KafkaCluster(name="big", ensemble="zk", brokers=(Broker(),) * count)
    hosts = hosts_of(LabSpec(shape=Shape(ensembles=(Ensemble(name="zk"),), clusters=(big,))))
    assert hosts[-1].address == client
    assert len({plan.address for plan in hosts}) == len(hosts)


def test_the_longest_name_is_a_network_port() -> None:
    cluster = KafkaCluster(name="longest-x", version="3.9.1", controllers=9, brokers=(Broker(),) * 99)
    for plan in members(hosts_of(LabSpec(shape=Shape(clusters=(cluster,)))), "longest-x"):
        assert len(plan.name) <= 15
        assert netns("a1b2c3", plan.name).endswith(plan.name)


def test_a_spec_with_a_shape_survives_json_and_one_without_is_what_it_was() -> None:
    assert LabSpec.from_json(json.loads(json.dumps(TWO.to_json()))) == TWO
    assert "shape" not in LabSpec().to_json()


ZK = {"name": "zk"}
ONE: dict[str, Any] = {"name": "one", "ensemble": "zk", "brokers": [{}]}
KRAFT = {"name": "one", "version": "3.9.1", "brokers": [{"controller": True}]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "needs an ensemble or a cluster"),
        ({"ensembles": [ZK, ZK]}, "the name zk is used twice"),
        ({"ensembles": [{"name": "client"}]}, "the name client is used twice"),
        ({"ensembles": [{"name": "zk1"}]}, r"ensembles\.0\.name"),
        ({"ensembles": [{"name": "far-too-long"}]}, r"ensembles\.0\.name"),
        ({"ensembles": [{"name": "zk", "count": 2}]}, "1, 3, 5 or 7"),
        ({"ensembles": [ZK], "clusters": [ONE | {"brokers": []}]}, r"clusters\.0\.brokers"),
        ({"ensembles": [ZK], "clusters": [ONE | {"racks": 2}]}, r"clusters\.0\.racks: Extra"),
        ({"ensembles": [ZK], "clusters": [ONE | {"brokers": [{"disks_mb": [63]}]}]}, "equal to 64"),
        ({"ensembles": [ZK], "clusters": [ONE | {"brokers": [{"disk_mb_s": 9}]}]}, "needs disks_mb"),
        ({"ensembles": [ZK], "clusters": [ONE | {"chroot": "kafka"}]}, "absolute znode path"),
        ({"ensembles": [ZK], "clusters": [ONE | {"version": "4.3.1"}]}, "4.3.1 has no ZooKeeper"),
        ({"ensembles": [ZK], "clusters": [ONE | {"controllers": 1}]}, "not both"),
        ({"ensembles": [ZK | {"empty": True}], "clusters": [ONE]}, "there is no running ensemble zk"),
        ({"clusters": [ONE]}, "Running ensembles: none"),
        (
            {"ensembles": [ZK], "clusters": [ONE, ONE | {"name": "two"}]},
            "two clusters have the chroot /kafka of zk",
        ),
        ({"clusters": [KRAFT | {"brokers": [{}]}]}, "needs an ensemble or controllers"),
        ({"clusters": [KRAFT | {"version": "2.8.2"}]}, "2.8.2 has no KRaft"),
    ],
)
def test_impossible_shapes_are_refused_and_say_where(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(LabError, match=said):
        Shape.from_json(wrong)


def test_what_the_shape_says_is_said_nowhere_else() -> None:
    with pytest.raises(LabError, match="a shape defines kafka_version, chroot itself"):
        LabSpec(kafka_version="3.9.1", chroot="/a", shape=Shape.from_json({"clusters": [KRAFT]}))


def test_more_hosts_than_addresses_are_refused() -> None:
    crowd = KRAFT | {"brokers": [{"controller": True}] * 240}
    with pytest.raises(LabError, match=r"241 hosts do not fit into 10\.71\.0\.0/24"):
        LabSpec(shape=Shape.from_json({"clusters": [crowd]}))


def view(brokers: tuple[int, ...], isr: tuple[int, ...] = (1, 2)) -> Seen[KafkaView]:
    partition = PartitionState("t", 0, 1, (1, 2), isr)
    return Seen(KafkaView("id", 1, dict.fromkeys(brokers, ("h", 9092, "")), (partition,), {}, (), {}))


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        (view((1, 2)), None),
        (view((1,)), "registrations of new2"),
        (view((1, 2), (2,)), "full ISR of t-0"),
        (Unknown("timeout", "nobody answers"), "unknown (timeout): nobody answers"),
    ],
)
def test_a_kraft_cluster_is_ready_when_all_are_registered_and_in_sync(
    seen: Reading[KafkaView], missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(readiness, "_accepts", lambda *_: True)

    def answer(brokers: Sequence[str], _: object) -> Reading[KafkaView]:
        asked.append(brokers)
        return seen

    monkeypatch.setattr("zkmigrate.kafka.clients.cluster_view.view", answer)
    assert readiness.kraft_ready([host("new1"), host("new2")])() == missing
    assert asked == [["10.71.0.31:9092", "10.71.0.32:9092"]]


def test_a_killed_kraft_broker_is_not_ready_while_it_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkmigrate.kafka.clients.cluster_view.view", lambda *_: view((1, 2)))
    monkeypatch.setattr(readiness, "_accepts", lambda address, _: address == host("new1").address)
    assert readiness.kraft_ready([host("new1"), host("new2")])() == "port 9092 of new2"


@pytest.mark.parametrize(
    ("modes", "ready"),
    [
        (["standalone"], True),
        (["leader"], False),
        (["leader", "follower"], True),
        (["standalone", "standalone"], False),
        (["leader", "leader"], False),
    ],
)
def test_one_server_stands_alone_and_several_have_one_leader(modes: list[str], ready: bool) -> None:
    answers = iter(modes)
    condition = readiness.quorum_serves(hosts_of(TWO)[: len(modes)], lambda *_: f"Mode: {next(answers)}\n")
    assert (condition() is None) is ready


class Hosts:
    """As much of a lab as the faults of disks ask for."""

    spec = TWO

    def __init__(self) -> None:
        self.plans = {plan.name: plan for plan in hosts_of(TWO)}
        self.run: list[list[str]] = []

    def host(self, name: str) -> HostPlan:
        return self.plans[name]

    def exec(self, _host: str, argv: list[str], **_: object) -> None:
        self.run.append(argv)


def test_a_named_disk_is_filled_by_files_and_no_other_disk_is_there() -> None:
    made = Hosts()
    lab = cast(Lab, made)
    fault.disk_full(lab, "old1", 2)
    fault.disk_free(lab, "old1")
    assert [argv[-1] for argv in made.run] == ["/var/lib/kafka/disk2", "/var/lib/kafka/disk1"]
    assert "mkdir" not in made.run[0][2]
    for name, disk, has in (("old1", 3, 2), ("old1", 0, 2), ("old2", 1, 0), ("zk1", 1, 0)):
        with pytest.raises(LabError, match=f"{name} has {has} separate data disks"):
            fault.disk_full(lab, name, disk)
    with pytest.raises(LabError, match="client1 runs no server"):
        fault.disk_full(lab, "client1")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab of which only the record is there, and what a broker of each cluster writes first."""
    monkeypatch.setenv("ZKMIGRATE_LAB_DIR", str(tmp_path))
    found = Lab(state.create(TWO, kept=False))
    for name, folder, id in (("old2", "var/lib/kafka", "O" * 22), ("new1", "var/lib/kafka/disk1", "N" * 22)):
        place = found.host(name).root / folder
        place.mkdir(parents=True)
        (place / "meta.properties").write_text(f"#\nversion=1\ncluster.id={id}\n")
    return found


def test_each_cluster_has_an_inventory_for_its_playbook(made: Lab, tmp_path: Path) -> None:
    wanted = {"removal": {"brokers": [2], "throttle_bytes_s": 5_000_000}}
    path = write_cluster_inventory(made, tmp_path / "new.yml", "new", wanted)
    book = kafka_remove_brokers.PLAYBOOK
    inventory = load(path, book.inventory, book.sections)
    assert inventory.name == f"lab-{made.id}-new"
    assert inventory.kafka.cluster_id == "N" * 22
    assert [(b.name, str(b.address), b.id) for b in inventory.kafka.brokers] == [
        ("new1", "10.71.0.31", 1),
        ("new2", "10.71.0.32", 2),
    ]
    text = write_cluster_inventory(made, tmp_path / "old.yml", "old").read_text()
    assert "chroot: /old\n" in text
    assert f"cluster_id: {'O' * 22}\n" in text
    assert "chroot" not in path.read_text()


def test_what_a_lab_does_not_have_is_refused_by_name(made: Lab, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="not the lab of a move"):
        write_inventory(made, tmp_path / "migration.yml")
    with pytest.raises(LabError, match=r"lab .* needs the name of a cluster\. Its clusters: old, new"):
        made.cluster()
    with pytest.raises(
        LabError, match=r"no ensemble or cluster dest\. Its ensembles and clusters: zk, old, new"
    ):
        made.members(Role.DEST)
    (made.host("new1").root / "var/lib/kafka/disk1/meta.properties").unlink()
    with pytest.raises(LabError, match="no broker of new has a cluster id yet"):
        write_cluster_inventory(made, tmp_path / "new.yml", "new")


def test_a_lab_is_brought_up_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LabSpec] = []

    def up(spec: LabSpec, *_: object, **__: object) -> Lab:
        asked.append(spec)
        raise LabError("enough")

    monkeypatch.setattr(Lab, "up", up)
    file = tmp_path / "shape.yml"
    file.write_text(json.dumps(TWO.to_json()["shape"]))
    assert CliRunner().invoke(cli.lab, ["up", "--shape", str(file)]).output == "Error: enough\n"
    assert asked == [TWO]
    file.write_text("clusters: [")
    assert "is not YAML" in CliRunner().invoke(cli.lab, ["up", "--shape", str(file)]).output
