"""The plan of the whole move over the model world: what it shows is what the run then does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Operator, quiet_world
from tests.world.rolled import walked
from zkmigrate.hosts.zkm_host import kernel
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.sessions import Sessions, owning_sessions
from zkmigrate.move.rules import window_estimate
from zkmigrate.runbook.engine import plan, planfile
from zkmigrate.runbook.engine.plan import Plan, PlannedStep
from zkmigrate.runbook.model.change import Arm, Change, Go, InstallProgram, PutFile, Seal
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.ui import plan_text
from zkmigrate.zookeeper.data.chroot import Chroot


def made(world: World, unreachable: frozenset[str] = frozenset()) -> Plan:
    return plan.make(PLAYBOOK, world.inventory, WorldLook(world, unreachable), ())


def steps(of: Plan) -> dict[str, PlannedStep]:
    return {f"{stage.id}.{step.id}": step for stage in of.stages for step in stage.steps}


def text(world: World) -> str:
    return "\n".join(plan_text.lines(planfile.from_plan(made(world))))


def settled(change: Change) -> Change:
    """A change without what only the run can know: the run's id in a path, and what STOP and PROVE read."""
    if isinstance(change, PutFile | InstallProgram):
        return replace(change, path=change.path.replace("/zkmigrate/RUN/", "/zkmigrate/run/"))
    if isinstance(change, Seal):
        return replace(change, boot_id="", stamp="")
    return change


def test_the_plan_only_looks_and_is_the_same_every_time() -> None:
    world = quiet_world()
    first, second = made(world), made(world)
    assert planfile.from_plan(first).text() == planfile.from_plan(second).text()
    assert world.applied == []


def test_the_run_sends_exactly_the_planned_changes_forward(tmp_path: Path) -> None:
    world = quiet_world()
    wanted = [
        settled(planned_change.change)
        for step in steps(made(world)).values()
        for changes in step.targets.values()
        for planned_change in changes
    ]
    assert Operator(world, tmp_path / "run").forward().code == 0
    undone = {"restore", "disarm", "reopen", "uncut", "unseal", "image", "halt", "started-observer"}
    sent = [
        settled(change)
        for change, operation in world.applied
        if change.verb not in undone and not operation.startswith("journal")
    ]
    back = [c for c in sent if c not in wanted]
    assert back == [], "a change was sent that the plan does not show"
    for change in wanted:
        assert change in sent, f"planned and never sent: {change}"


def test_seal_and_go_say_what_is_decided_later() -> None:
    said = steps(made(quiet_world()))
    (seal,) = said["cutover.seal"].targets["dest1"]
    assert isinstance(seal.change, Seal)
    assert seal.command == "sudo zkm-host --run RUN --as N seal OPID BOOT-ID STAMP"
    assert "known only at SEAL" in seal.detail[0]
    (go,) = said["cutover.go"].targets["dest1"]
    assert isinstance(go.change, Go)
    assert "known only at GO" in go.detail[0]
    assert go.command.endswith("go OPID first 10.0.0.11:2181,10.0.0.12:2181,10.0.0.13:2181 2 10000")


def test_arm_fence_and_cut_show_the_rules_of_their_spec() -> None:
    said = steps(made(quiet_world()))
    arm = said["cutover.arm"].targets["dest2"][-1]
    assert isinstance(arm.change, Arm)
    shown = [line.removeprefix("  ") for line in arm.detail]
    assert set(kernel.lines(arm.change.spec, "arm")) <= set(shown)
    assert set(arm.change.spec.splitlines()) <= set(shown)
    (fence,) = said["cutover.fence"].targets["dest2"]
    assert "  add -exist ZKM-TAG-fence4 0.0.0.0/1 timeout 5" in fence.detail
    (cut,) = said["cutover.cut"].targets["dest2"]
    assert "  add -exist ZKM-TAG-cut4 10.0.0.3 timeout 2" in cut.detail


def test_the_roll_shows_the_one_line_it_edits_and_no_secret() -> None:
    world = quiet_world()
    path = world.inventory.kafka.config
    file = world.hosts["broker1"].files[path]
    secret = b"ssl.key.password=topsecret\nsasl.jaas.config: hidden-too\n"
    world.hosts["broker1"].files[path] = replace(file, content=file.content + secret)
    put, restart = steps(made(world))["roll.roll"].targets["broker1"]
    changed = [line for line in put.diff.splitlines() if re.match(r"[-+][^-+]", line)]
    assert changed == [
        "-zookeeper.connect=10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/kafka",
        "+zookeeper.connect=10.0.0.11:2181,10.0.0.12:2181,10.0.0.13:2181/kafka",
    ]
    assert restart.command == "sudo zkm-host --run RUN --as N service OPID kafka.service restart"
    body = planfile.from_plan(made(world)).text()
    assert "topsecret" not in body
    assert "hidden-too" not in body
    assert "ssl.key.password=(hidden)" in put.diff


def test_a_host_that_does_not_answer_is_said_and_not_taken_for_done() -> None:
    world = quiet_world()
    for name in world.inventory.source_names:
        world.source_files[name].clear()
    said = steps(made(world))
    assert said["join.join"].targets == {}
    assert said["join.join"].note.startswith("not known now: source's server lines cannot be read")


def test_what_is_done_already_is_not_planned_again(tmp_path: Path) -> None:
    world = walked(tmp_path, "join").world
    said = steps(made(world))
    assert said["install.install"].note == said["join.join"].note == plan.NOTHING
    assert set(said["roll.roll"].targets) == {"broker1", "broker2", "broker3"}


def test_the_text_shows_every_command_and_repeats_no_long_block() -> None:
    world = quiet_world()
    out = text(world)
    for step in steps(made(world)).values():
        for changes in step.targets.values():
            for change in changes:
                assert f"$ {change.command}" in out
    assert out.count("iptables-restore -w 5 --noflush <<END") == 1
    assert "on dest1, dest2, dest3:" in out
    assert out.count("(as under rehearse.arm on dest1)") >= 2


def test_the_window_lines_show_the_arithmetic_of_the_deadline() -> None:
    world = quiet_world()
    inventory = world.inventory
    hosts = (*inventory.source_names, *inventory.dest_names)
    said = "\n".join(
        window_estimate.plan_lines(
            KAFKA, Context("plan", inventory), owning_sessions(WorldLook(world), hosts, Chroot("/kafka"))
        )
    )
    assert "deadline: T = 18 s, the smallest timeout of the 3 sessions" in said
    assert "clients connected again by T - T/3 = 18 - 6.0 = 12.0 s after FENCE" in said
    assert "the way back starts by 12.0 - 2.5 (way back: policy.way_back_s) - 3 (" in said
    assert "= 6.5 s" in said


@pytest.mark.parametrize(
    ("sessions", "why"),
    [
        (Unknown("denied", "dump is not in the whitelist"), "dump is not in the whitelist"),
        (Seen(Sessions({}, {})), "no session owns an ephemeral there"),
        (Seen(Sessions({7: ("/kafka/controller",)}, {})), "no server shows the timeout"),
    ],
    ids=["unknown", "none", "no-timeout"],
)
def test_a_deadline_that_cannot_be_computed_yet_says_why(sessions: object, why: str) -> None:
    plan = Context("plan", quiet_world().inventory)
    said = "\n".join(window_estimate.plan_lines(KAFKA, plan, sessions))  # type: ignore[arg-type]
    assert why in said
    assert "T - T/3 - 2.5 (policy.way_back_s) - 3 s" in said


def test_the_plan_shows_all_that_zkm_host_may_change_on_a_host() -> None:
    said = steps(made(quiet_world()))
    for host, own in {"dest1": "window", "broker2": "rewrite /etc/kafka/server.properties"}.items():
        (install,) = said["install.install"].targets[host]
        assert isinstance(install.change, InstallProgram)
        assert own in install.change.policy.splitlines()
        assert {f"  {line}" for line in install.change.policy.splitlines()} <= set(install.detail)
        assert "0600 POLICY /var/lib/zkmigrate/RUN/policy" in install.command
