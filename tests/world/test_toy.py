"""The move of a dependent that only the tests know: forward to its end, and back from before OPEN."""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard

import pytest

from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Operator, copied
from tests.world.site import INVENTORY
from tests.world.test_move import footprint
from tests.world.toy import CONFIG, KEEPER, KeeperInventory, keeper_inventory, keeper_world, servers_of
from zkmigrate.errors import InventoryError, UsageError
from zkmigrate.inventory.inventory import load
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.sessions import owning_sessions
from zkmigrate.move.move import dependent_of, move
from zkmigrate.move.rules.window_estimate import plan_lines
from zkmigrate.move.steps.roll import RollStep
from zkmigrate.runbook.model.change import EditLine, PutFile, SetService
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.step import Context, Ready
from zkmigrate.runbook.runs import playbook_files
from zkmigrate.zookeeper.data.chroot import Chroot

PLAYBOOK = move(KEEPER)
NAMES = ("keeper1", "keeper2", "keeper3")


def named(world: World) -> list[tuple[str, ...]]:
    return [servers_of(world.hosts[name].files[CONFIG].content) for name in NAMES]


def test_keepers_are_moved_by_reloads_and_lose_their_sessions_without_harm(tmp_path: Path) -> None:
    world = keeper_world()
    before = {name: world.brokers[name].session for name in NAMES}
    operator = Operator(world, tmp_path / "run", PLAYBOOK)
    assert operator.forward().code == 0
    dest = tuple(f"{host.address}:2181" for host in world.inventory.dest.hosts)
    assert named(world) == [dest] * 3
    asked = [(c.host, c.action) for c, _ in world.applied if isinstance(c, SetService) and c.host in NAMES]
    assert asked == [(name, "reload") for name in NAMES]
    assert {world.hosts[name].starts for name in NAMES} == {1}, "no keeper was restarted"
    assert world.dest is not None
    now = {name: world.brokers[name].session for name in NAMES}
    assert not set(now.values()) & set(before.values())
    live = {
        path: z.owner for path, z in world.dest.tree().znodes.items() if path.startswith("/keepers/live/")
    }
    assert live == {f"/keepers/live/{name}": session for name, session in now.items()}
    assert all(world.hosts[name].installed == b"" for name in world.hosts), "finalize has removed zkm-host"


def test_an_operator_killed_after_any_change_of_the_roll_is_followed_by_one_that_finishes(
    tmp_path: Path,
) -> None:
    operator = Operator(keeper_world(), tmp_path / "run", PLAYBOOK, keeps=True)
    assert operator.forward(until="roll").code == 0
    moments = [
        moment
        for moment, (_, operation) in zip(operator.after, operator.world.applied, strict=True)
        if operation.startswith("roll.roll.")
    ]
    assert len(moments) == 2 * len(NAMES), "a file and a reload each"
    for number, moment in enumerate(moments):
        run_dir = moment.again(tmp_path / f"again-{number}").run_dir
        again = Operator(copied(moment.world), run_dir, PLAYBOOK)
        assert again.resume().code == 0
        assert [change.host for change, _ in again.world.applied if is_reload(change)] == list(NAMES)
        assert {again.world.hosts[name].reloads for name in NAMES} == {1}


def test_a_keeper_that_is_down_comes_first_and_the_same_change_starts_it(tmp_path: Path) -> None:
    world = keeper_world()
    assert Operator(world, tmp_path / "run", PLAYBOOK).forward(until="join").code == 0
    world.hosts["keeper2"].stop()
    world.advance(1.0)
    step, c = RollStep(KEEPER), Context("run", world.inventory)
    facts = step.observe(c, WorldLook(world))
    verdict = step.check(c, facts)
    assert isinstance(verdict, Ready)
    assert (verdict.targets, [one.id for one in verdict.ask]) == (("keeper2",), ["roll.stopped"])
    for number, change in enumerate(step.plan(c, facts, "keeper2")):
        assert world.apply(change, f"by-hand-{number}", 1)[0] == 0
    world.advance(5.0)
    found = step.check(c, step.observe(c, WorldLook(world)))
    assert found == Ready(("keeper1",)), "keeper2 is registered through dest"
    assert world.brokers["keeper2"].connected.startswith("dest")


def is_reload(change: object) -> TypeGuard[SetService]:
    return isinstance(change, SetService) and change.action == "reload"


def test_before_the_run_it_is_told_that_no_session_bounds_the_window() -> None:
    world, look = keeper_world(), WorldLook(keeper_world())
    sessions = owning_sessions(look, world.inventory.source_names, Chroot("/keepers"))
    assert isinstance(sessions, Seen)
    assert len(sessions.value.owners) == len(NAMES)
    told = plan_lines(KEEPER, Context("plan", world.inventory), sessions)
    assert "  deadline: none, the keepers keep no session through the window" in told
    assert "no keeper reloads in it" in told[0]


def test_the_file_keeps_every_byte_but_the_servers() -> None:
    world = keeper_world()
    old = world.hosts["keeper1"].files[CONFIG].content
    new = KEEPER.with_dest(keeper_inventory(), old)
    assert new.split(b"[")[0] == old.split(b"[")[0]
    assert new.split(b"]")[1] == old.split(b"]")[1]


@pytest.mark.parametrize("until", ["roll", "cutover.seal", "cutover.check"])
def test_every_keeper_comes_back_from_before_open(tmp_path: Path, until: str) -> None:
    world = keeper_world()
    first = footprint(world)
    operator = Operator(world, tmp_path / "run", PLAYBOOK)
    assert operator.forward(until=until).code == 0
    assert operator.back().code == 0
    assert footprint(world) == first
    assert [process.connected[:6] for process in world.brokers.values()] == ["source"] * 3
    puts = [c.host for c, _ in world.applied if isinstance(c, PutFile | EditLine) and c.path == CONFIG]
    assert puts == list(NAMES), "there once; back by before-images"


def test_a_verb_takes_the_dependent_from_the_playbook() -> None:
    assert dependent_of(PLAYBOOK) is KEEPER
    assert dependent_of(playbook_files.load("kafka_zookeeper_return")) is KAFKA
    with pytest.raises(UsageError, match="kafka_reassign moves no system that uses ZooKeeper"):
        dependent_of(playbook_files.load("kafka_reassign"))


def test_its_own_service_and_file_are_checked_as_those_of_the_house_are(tmp_path: Path) -> None:
    file = tmp_path / "keepers.yml"
    file.write_text(
        INVENTORY[: INVENTORY.index("kafka:")] + "keeper:\n  realm: north\n  root: /keepers\n  hosts:\n"
        "    - {name: keeper1, address: 10.0.0.31}\n    - {name: keeper2, address: 10.0.0.32}\n"
        "  config: /etc/../keeper.json\n  service: {unit: keeper.service, start: /bin/x}\n"
    )
    with pytest.raises(InventoryError) as caught:
        load(file, KeeperInventory, PLAYBOOK.sections)
    said = str(caught.value)
    assert "keeper.service.start: start without stop, status (needed:" in said
    assert "keeper.config: not a usable path" in said
    assert len(said.splitlines()) == 2


def test_its_own_hosts_are_checked_against_all_others(tmp_path: Path) -> None:
    """A host in two sections, and the operator's machine as one of the keepers."""
    brokers = INVENTORY.index("kafka:")
    file = tmp_path / "keepers.yml"
    file.write_text(
        INVENTORY[:brokers].replace("10.0.0.9", "10.0.0.32")
        + "keeper:\n  realm: north\n  root: /keepers\n  hosts:\n"
        "    - {name: keeper1, address: 10.0.0.31}\n"
        "    - {name: keeper2, address: 10.0.0.32}\n"
        "    - {name: keeper1, address: 10.0.0.33}\n"
        "    - {name: dest3, address: 10.0.0.11}\n"
    )
    with pytest.raises(InventoryError) as caught:
        load(file, KeeperInventory, PLAYBOOK.sections)
    said = str(caught.value)
    one_role = "(needed: each host in one role; "
    assert "operator[0]: 10.0.0.32 is the keeper host keeper2 (needed:" in said
    assert "keeper.hosts[2].name: name 'keeper1' occurs twice among the keeper hosts (needed:" in said
    assert f"keeper.hosts[3].name: name 'dest3' is already a dest host, dest3 {one_role}" in said
    assert f"keeper.hosts[3].address: address 10.0.0.11 is already a dest host, dest1 {one_role}" in said
    assert len(said.splitlines()) == 4
