"""Hosts between two clusters: where they are, what they are given, and that the program of this tree runs."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playbooks import kafka_topic_move
from zkmigrate.inventory.inventory import GatewayProgram, load
from zkmigrate.lab import between, machines, provision, render, service, state, topic_site
from zkmigrate.lab.clients.contract import PLAIN
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_topic_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.spec import HostPlan, LabSpec, Role, hosts_of
from zkmigrate.lab.topic_site import two_clusters
from zkmigrate.lab.wait import silent
from zkmigrate.topics.gateway.order import GATEWAY
from zkmigrate.topics.gateway.rules.plan import Port
from zkmigrate.topics.gateway.serving import config
from zkmigrate.topics.topic_move.section import TopicMoveInventory

SPEC = two_clusters("2.8.2", "4.3.1", gateways=2, mirrors=2)
OLD = {1: "10.71.0.21:9092", 2: "10.71.0.22:9092", 3: "10.71.0.23:9092"}
NEW = {1: "10.71.0.31:9092", 2: "10.71.0.32:9092", 3: "10.71.0.33:9092"}


def host(name: str) -> HostPlan:
    return next(plan for plan in hosts_of(SPEC) if plan.name == name)


def files(name: str) -> dict[str, render.HostFile]:
    """All files of a host; a later one replaces an earlier one of its path, as on disk."""
    made = (*render.host_files(SPEC, host(name), "KEY", "PUBLIC"), *between.files(SPEC, host(name)))
    return {file.path: file for file in made}


def test_gateways_and_mirrors_have_addresses_before_the_clients() -> None:
    assert [(plan.name, plan.role, plan.address) for plan in hosts_of(SPEC)][-5:] == [
        ("gateway1", Role.GATEWAY, "10.71.0.41"),
        ("gateway2", Role.GATEWAY, "10.71.0.42"),
        ("mirror1", Role.MIRROR, "10.71.0.51"),
        ("mirror2", Role.MIRROR, "10.71.0.52"),
        ("client1", Role.CLIENT, "10.71.0.61"),
    ]
    assert LabSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"clusters": []}, "between two clusters; here: 0"),
        ({"gateways": 0, "clusters": []}, "between two clusters; here: 0"),
        ({"ensembles": [{"name": "mirror"}]}, "the name mirror is taken"),
    ],
)
def test_they_need_two_clusters_and_their_names(changed: dict[str, Any], said: str) -> None:
    assert SPEC.shape is not None
    with pytest.raises(LabError, match=said):
        Shape.from_json({**SPEC.shape.model_dump(mode="json"), **changed})


@pytest.mark.parametrize("pair", [("4.3.1", "4.3.1"), ("2.8.2", "2.8.2")])
def test_a_pair_that_is_not_from_zookeeper_to_kraft_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(LabError, match="from a release with ZooKeeper to one with KRaft"):
        two_clusters(*pair)


def test_the_gateway_takes_its_file_and_has_a_port_for_each_broker(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yml"
    file.write_text(str(files("gateway2")[between.GATEWAY_FILE].content))
    found = config.load(file)
    plan = found.plan()
    assert plan.clusters == {"old": OLD, "new": NEW}
    assert plan.ports[Port(between.LISTENER, "old", 3)] == 19_003
    assert plan.ports[Port(between.LISTENER, "new", 1)] == 29_001
    assert plan.advertise == {between.LISTENER: "10.71.0.42"}
    assert (found.routes[between.APP], found.state) == ("old", between.STATE)
    assert between.ports(SPEC, "new")[:2] == [("10.71.0.41", 29_001), ("10.71.0.41", 29_002)]
    assert len(between.ports(SPEC)) == len(set(between.ports(SPEC))) == 12


def test_the_ssh_account_gives_orders_to_the_gateway_and_nothing_else() -> None:
    made = files("gateway1")
    line = "ops ALL=(zkmigrate) NOPASSWD: /usr/local/bin/zkmigrate gateway *\n"
    assert made["/etc/sudoers.d/ops"].content == line
    assert between.GATEWAY_PROGRAM == "/usr/bin/sudo -n -u zkmigrate /usr/local/bin/zkmigrate"
    unit = str(made[f"{render.UNITS}/zkmigrate-gateway.service"].content)
    assert f"ExecStart={between.PROGRAM} gateway serve --config {between.GATEWAY_FILE}\n" in unit
    assert "\nRestart=always\n" in unit
    assert f"StateDirectory={between.STATE.removeprefix('/var/lib/')}\n" in unit


def test_a_mirror_has_a_copier_for_each_direction_that_reads_the_file_of_its_own_name() -> None:
    made = files("mirror1")
    units = {path: str(file.content) for path, file in made.items() if "zkmigrate-mirror" in path}
    assert units.keys() == {f"{render.UNITS}/zkmigrate-mirror-{name}.service" for name in ("old", "new")}
    for text in units.values():
        assert "EnvironmentFile=/etc/zkmigrate/%p.env\n" in text
        assert "\nKillSignal=SIGINT\nSuccessExitStatus=130\n" in text
    there = between.mirror_environment(SPEC, "new", ["a", "b"], (2, 2))
    assert there.path == "/etc/zkmigrate/zkmigrate-mirror-new.env"
    assert str(there.content).splitlines() == [
        f"ZKM_SOURCE={','.join(OLD.values())}",
        f"ZKM_TARGET={','.join(NEW.values())}",
        "ZKM_TOPICS=--topic a --topic b",
        "ZKM_SHARE=2/2",
    ]
    back = between.mirror_environment(SPEC, "old", ["a"])
    assert str(back.content).startswith(f"ZKM_SOURCE={','.join(NEW.values())}\n")
    assert made["/etc/sudoers.d/ops"].content == "ops ALL=(ALL) NOPASSWD: ALL\n"


def test_every_other_host_is_what_it_was() -> None:
    for name in ("zk1", "old1", "new1", "client1"):
        assert between.files(SPEC, host(name)) == ()


def test_only_they_get_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(provision, "ensure_rootfs", lambda _progress: tmp_path)
    for name in ("kafka_classpath", "zookeeper_classpath"):
        monkeypatch.setattr(provision, name, lambda _version, _progress: (tmp_path / "jars" / "one.jar",))
    bound = machines.fetch(SPEC, silent).bound
    with_program = {name for name, of in bound.items() if of == between.program()}
    assert with_program == {"gateway1", "gateway2", "mirror1", "mirror2"}
    assert bound["client1"] == {}


def test_the_program_runs_from_what_a_host_is_given(tmp_path: Path) -> None:
    """The same paths below another root, by links in place of mounts."""
    for inside, here in between.program().items():
        place = tmp_path / inside.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(here)
    launcher = tmp_path / "zkmigrate"
    launcher.write_text(str(files("mirror1")[between.PROGRAM].content).replace("/opt/", f"{tmp_path}/opt/"))
    launcher.chmod(0o755)
    asked = ["env", "-i", "PATH=/usr/bin:/bin", str(launcher), "gateway", "status", "--config", "/none"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert (done.returncode, "/none: cannot read" in done.stderr) == (2, True), done.stdout + done.stderr


def test_a_mirror_and_a_client_have_no_single_server() -> None:
    assert service.name_of(Role.GATEWAY) == "zkmigrate-gateway"
    for role in (Role.MIRROR, Role.CLIENT):
        assert not service.has_server(role)
        with pytest.raises(LabError, match=f"a {role} host runs no server"):
            service.name_of(role)


def test_the_inventory_of_a_switch_is_one_that_its_playbook_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKMIGRATE_LAB_DIR", str(tmp_path))
    lab = Lab(state.create(SPEC, kept=False))
    book = kafka_topic_move.PLAYBOOK
    for target, source, first in (("new", "old", NEW), ("old", "new", OLD)):
        path = write_topic_inventory(lab, tmp_path / "switch.yml", target, ["a"], ["g"], {"hold_ms": 9000})
        found = load(path, book.inventory, book.sections)
        assert isinstance(found, TopicMoveInventory)
        move = found.topic_move
        assert (move.source, move.target, move.hold_ms) == (source, target, 9000)
        own = next(one for one in found.clusters if one.name == target)
        assert own.brokers == tuple(first.values())
        assert own.mirror == f"zkmigrate-mirror-{target}.service"
        assert found.hosts == {"gateways": ("gateway1", "gateway2"), "mirrors": ("mirror1", "mirror2")}
        assert found.address("mirror2") == "10.71.0.52"
        program = GatewayProgram(tuple(between.GATEWAY_PROGRAM.split()), between.GATEWAY_FILE)
        assert found.programs == {GATEWAY: program}
        assert [(one.topics, one.apps, one.groups) for one in found.sets] == [
            (("a",), (between.APP,), ("g",))
        ]


def entry(stage: str, step: str, event: str, at_s: float) -> str:
    body = {"stage": stage, "step": step, "way": "forward", "event": event, "mono": at_s}
    return json.dumps({"kind": "step", "body": body})


def test_the_times_of_a_switch_are_those_of_its_window_not_of_its_rehearsal(tmp_path: Path) -> None:
    lines = [entry("rehearse", "hold", "begin", 1.0), entry("rehearse", "hold", "done", 1.5)]
    for step, begun, done in (("hold", 10.0, 10.2), ("go", 11.0, 11.25), ("open", 11.5, 11.75)):
        lines += [entry("switch", step, "begin", begun), entry("switch", step, "done", done)]
    operator = Operator(Lab.__new__(Lab), tmp_path, "one")
    operator.journal.mkdir(parents=True)
    (operator.journal / "journal.jsonl").write_text("".join(f"{line}\n" for line in lines))
    found = topic_site.switched(operator, "new")
    assert (found.held_s, found.waited_s) == (1.25, 1.75)
    assert (found.began_ns, found.ended_ns) == (10_000_000_000, 11_750_000_000)
    (operator.journal / "journal.jsonl").write_text("".join(f"{line}\n" for line in lines[:-2]))
    with pytest.raises(LabError, match=r"no end of step 'switch.open'"):
        topic_site.switched(operator, "new")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([("old", "open"), ("old", "open")], ""),
        ([("old", "open"), ("new", "open")], "not open on exactly one cluster"),
        ([("old", "open"), ("old", "held")], "not open on exactly one cluster"),
        ([("old", "sealed"), ("old", "sealed")], "not open on exactly one cluster"),
    ],
)
def test_clients_are_on_one_cluster_alone(
    seen: list[tuple[str, str]], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKMIGRATE_LAB_DIR", str(tmp_path))
    site = topic_site.TopicSite(Lab(state.create(SPEC, kept=False)), tmp_path, ["kafka-python"])
    told = {f"gateway{number}": one for number, one in enumerate(seen, 1)}
    monkeypatch.setattr(site, "app", lambda name: dict(zip(("route", "gate"), told[name], strict=True)))
    if not said:
        assert site.open_on() == "old"
        assert site.matrix().log_at() == ",".join(OLD.values())  # type: ignore[operator]
        return
    with pytest.raises(LabError, match=said):
        site.open_on()


def test_clients_know_only_the_gateways_ports_of_the_old_cluster(tmp_path: Path) -> None:
    lab = Lab.__new__(Lab)
    lab._record = state.LabRecord("a1b2c3", ProcessId.mine(), False, SPEC)
    site = topic_site.TopicSite(lab, tmp_path, ["kafka-python"])
    doors = site.matrix().bootstrap.split(",")
    assert doors == [f"10.71.0.4{gateway}:1900{id}" for gateway in (1, 2) for id in (1, 2, 3)]
    assert site.groups == ["shop-kafka-python"]


def test_a_plain_client_is_the_same_program_with_a_producer_that_is_not_idempotent() -> None:
    usual, plain = topic_site.clients(["kafka-python", "kafka-python-plain"], silent).values()
    assert PLAIN not in usual.environment
    assert plain == replace(usual, environment={**usual.environment, PLAIN: "yes"})
