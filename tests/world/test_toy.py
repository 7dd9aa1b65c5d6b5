"""The move of a dependent that only the tests know: forward to its end, and back from before OPEN."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.operator import Operator
from tests.world.test_move import footprint
from tests.world.toy import CONFIG, KEEPER, keeper_inventory, keeper_world, servers_of
from zkmigrate.model.change import PutFile, SetService
from zkmigrate.simulate.world import World
from zkmigrate.steps.move import move

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
    puts = [c.host for c, _ in world.applied if isinstance(c, PutFile) and c.path == CONFIG]
    assert puts == list(NAMES), "there once; back by before-images"
