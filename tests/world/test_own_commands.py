"""The move where no host runs systemd: every change and look brings the inventory's commands along."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.examples import every
from tests.world.model.look import WorldLook
from tests.world.operator import Moment, Operator, inventory, quiet_world
from tests.world.rolled import walked
from tests.world.test_move import finish, footprint
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.arm import ArmStep
from zkmigrate.move.steps.roll import RollStep
from zkmigrate.runbook.model.change import Arm, Go, Seal, SetService
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.step import Blocked, Context, Ready


@dataclass(frozen=True)
class Whole:
    """The undisturbed move. first: the hosts before it. after: what a kill leaves after each change that has
    commands run, or leads to it."""

    first: dict[str, object]
    after: tuple[Moment, ...]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    world = quiet_world(own_commands=True)
    first = footprint(world)
    operator = Operator(world, tmp_path_factory.mktemp("whole") / "run", keeps=True)
    assert operator.forward().code == 0
    after = [
        one for one in operator.after if isinstance(one.world.applied[-1][0], SetService | Arm | Seal | Go)
    ]
    assert len(after) > 25
    return Whole(first, tuple(after))


def test_the_move_and_its_way_back_go_through_commands_alone(tmp_path: Path) -> None:
    world = quiet_world(own_commands=True)
    first = footprint(world)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="cutover.check").code == 0
    assert operator.back().code == 0
    assert footprint(world) == first
    assert operator.forward().code == 0
    assert {world.mode(h) for h in world.inventory.dest_names} == {"leader", "follower"}
    sent = [change for change, _ in world.applied if isinstance(change, SetService)]
    assert {change.action for change in sent} >= {"start", "stop", "kill", "restart"}
    assert all(change.commands for change in sent)


def test_killed_at_a_change_and_left_alone_the_run_resumes(tmp_path: Path, whole: Whole) -> None:
    for n, moment in enumerate(whole.after[:: every(4)]):
        again = moment.again(tmp_path / f"{n}" / "run")
        world = again.world
        world.advance(30.0)
        assert finish(again) == 0, again.run_dir
        assert {world.mode(h) for h in world.inventory.dest_names} == {"leader", "follower"}, again.run_dir


def test_killed_at_a_change_the_run_walks_back_to_the_first_world(tmp_path: Path, whole: Whole) -> None:
    for n, moment in enumerate(whole.after[:: every(4)]):
        again = moment.again(tmp_path / f"{n}" / "run")
        world = again.world
        ended = again.back()
        if any(host.phase == "open" for host in world.hosts.values()) or world.dest is not None:
            assert ended.code == 6, again.run_dir
            continue
        assert ended.code == 0, (again.run_dir, ended)
        assert footprint(world) == whole.first, again.run_dir


def test_a_broker_of_which_nobody_can_tell_whether_it_runs_is_not_restarted(tmp_path: Path) -> None:
    world = walked(tmp_path, "join").world
    world.hosts["broker2"].systemd = False
    step, c = RollStep(KAFKA), Context("run", world.inventory)
    verdict = step.check(c, step.observe(c, WorldLook(world)))
    assert isinstance(verdict, Blocked)
    assert [(f.id, f.target) for f in verdict.findings] == [("roll.service", "broker2")]


def test_a_host_armed_for_commands_is_armed_again_where_systemd_is_named(tmp_path: Path) -> None:
    world = quiet_world(own_commands=True)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="cutover.arm").code == 0
    spec = WorldLook(world).file("dest1", "/var/lib/zkmigrate/run/spec")
    assert isinstance(spec, Seen)
    assert b"\nports=2181,2888,3888\n" in spec.value
    step, c = ArmStep(), Context("run", inventory())
    verdict = step.check(c, step.observe(c, WorldLook(world)))
    assert verdict == Ready(world.inventory.dest_names)
    (arm,) = [x for x in step.plan(c, step.observe(c, WorldLook(world)), "dest1") if isinstance(x, Arm)]
    assert "start=" not in arm.spec


@pytest.mark.parametrize("action", ["start", "stop", "kill", "restart"])
def test_a_service_change_says_what_it_will_run(action: str) -> None:
    dest = inventory(own_commands=True).dest
    said = SetService("dest1", "zookeeper.service", action, dest.commands).describe()  # type: ignore[arg-type]
    script = "/opt/zookeeper/service"
    wanted = {
        "start": f"{script} start",
        "stop": f"{script} stop",
        "kill": f"{script} stop",
        "restart": f"{script} stop, then {script} start",
    }
    assert said == f"{action} zookeeper.service with: {wanted[action]}"
