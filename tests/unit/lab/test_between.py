"""Hosts between two clusters: what they are given, and when their clients are switched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playbooks import kafka_topic_move
from zkmigrate.inventory.inventory import GatewayProgram, load
from zkmigrate.lab import between, render, state, topic_site
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_topic_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.spec import HostPlan, hosts_of
from zkmigrate.lab.topic_site import two_clusters
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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"clusters": []}, "need two clusters; the shape has 0"),
        ({"gateways": 0, "clusters": []}, "need two clusters; the shape has 0"),
        ({"ensembles": [{"name": "mirror"}]}, "the name mirror is used twice or reserved"),
    ],
)
def test_they_need_two_clusters_and_their_names(changed: dict[str, Any], said: str) -> None:
    assert SPEC.shape is not None
    with pytest.raises(LabError, match=said):
        Shape.from_json({**SPEC.shape.model_dump(mode="json"), **changed})


@pytest.mark.parametrize("pair", [("4.3.1", "4.3.1"), ("2.8.2", "2.8.2")])
def test_a_pair_that_is_not_from_zookeeper_to_kraft_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(LabError, match="Needed: a release with ZooKeeper, then one with KRaft"):
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
    with pytest.raises(LabError, match=r"does not show the end of step 'switch.open'"):
        topic_site.switched(operator, "new")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([("old", "open"), ("old", "open")], ""),
        ([("old", "open"), ("new", "open")], "the gateways do not all route the application to one cluster"),
        ([("old", "open"), ("old", "held")], "the gateways do not all route the application to one cluster"),
        (
            [("old", "sealed"), ("old", "sealed")],
            "the gateways do not all route the application to one cluster",
        ),
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
