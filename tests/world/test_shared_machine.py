"""A move whose brokers are on the machines of ZooKeeper servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.world.build import World
from tests.world.model.world import World as Move
from tests.world.operator import Operator
from tests.world.returned import opened, returning
from tests.world.test_lost_journal import go_on, lose, started
from tests.world.test_move import footprint, owners
from zkmigrate.runbook.engine.events import ChangeSent
from zkmigrate.runbook.model.change import Change, InstallProgram, Outcome, UninstallProgram
from zkmigrate.runbook.model.step import Way

STAGES = ("install", "join", "rehearse", "roll", "cutover.cut", "cutover.seal", "cutover.check")
BESIDE = pytest.mark.parametrize("role", ["source", "dest"])


def shared(role: str) -> Move:
    return World().ensemble(3).brokers(3).beside(role).move()


def removals(operator: Operator) -> list[str]:
    """Where zkm-host was told to remove itself."""
    sent = (event.change for event in operator.events if isinstance(event, ChangeSent))
    return sorted(change.host for change in sent if isinstance(change, UninstallProgram))


@BESIDE
def test_the_move_completes_and_keeps_every_session(tmp_path: Path, role: str) -> None:
    world = shared(role)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    before = owners(world)
    assert len(before) == 4
    assert operator.resume().code == 0
    assert owners(world) == before
    assert all(p.connected.startswith("dest") for p in world.brokers.values())
    assert not any(h.installed or h.armed or h.cut.filled for h in world.hosts.values())
    assert {change.where for change, _ in world.applied}.isdisjoint(world.inventory.source_names)
    assert removals(operator) == sorted(world.inventory.one_a_machine(world.hosts))


def test_one_install_serves_both_hosts_of_a_machine_with_all_that_both_need(tmp_path: Path) -> None:
    world = shared("dest")
    assert Operator(world, tmp_path / "run").forward(until="install").code == 0
    sent = [change for change, _ in world.applied if isinstance(change, InstallProgram)]
    assert [change.host for change in sent] == ["dest1", "dest2", "dest3"]
    for change in sent:
        assert "\nwindow\n" in change.policy
        assert "\nrewrite /etc/kafka/server.properties\n" in change.policy
        assert "\nservice kafka.service restart\n" in change.policy
        assert "\nservice zookeeper.service kill\n" in change.policy
        ports = re.search(r"(?m)^arm cut_ports=(.*)$", change.policy)
        assert ports is not None
        assert "2181" in ports[1], "ARM refuses source's client port again once the broker is retired"


def test_the_rehearsal_cuts_no_broker_on_a_dest_host_off_from_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = shared("dest")
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="join").code == 0
    act = operator._apply
    without: list[str] = []

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        done = act(change, operation, fencing)
        without.extend(name for name, p in world.brokers.items() if not p.connected.startswith("source"))
        return done

    monkeypatch.setattr(operator, "_apply", apply)
    assert operator.forward(until="rehearse").code == 0
    assert without == []


@BESIDE
def test_the_return_leads_every_broker_back_to_source(tmp_path: Path, role: str) -> None:
    world = opened(tmp_path, 9, shared(role))
    assert returning(world, tmp_path / "back").forward().code == 0
    assert all(p.connected.startswith("source") and p.registered for p in world.brokers.values())


def test_a_broker_that_runs_as_root_on_a_dest_host_is_refused(tmp_path: Path) -> None:
    world = shared("dest")
    world.hosts["broker2"].user = 0
    ended = Operator(world, tmp_path / "run").forward()
    assert ended.code == 3
    (found,) = (f for f in ended.findings if f.id == "host.one-role" and f.target == "broker2")
    assert found.seen == "it runs as user 0 on a dest host"


@pytest.mark.parametrize("stage", ["join", "roll", "cutover.check"])
def test_without_its_journal_a_shared_machine_goes_back(tmp_path: Path, stage: str) -> None:
    """Both hosts of a machine have one record there."""
    operator = started(tmp_path, shared("dest"))
    first = footprint(operator.world)
    assert operator.forward(until=stage).code == 0
    lose(operator)
    assert go_on(operator, Way.BACK).code == 0
    assert footprint(operator.world) == first


@BESIDE
@pytest.mark.parametrize("stage", STAGES)
def test_the_rollback_leaves_the_first_world(tmp_path: Path, role: str, stage: str) -> None:
    world = shared(role)
    first = footprint(world)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until=stage).code == 0
    assert operator.back().code == 0
    assert footprint(world) == first
    assert removals(operator) == sorted(world.inventory.one_a_machine(world.hosts))
    assert all(p.connected.startswith("source") for p in world.brokers.values())
