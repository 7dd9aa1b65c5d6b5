"""A source that may reconfigure itself: its members stand in a dynamic file, with a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.build import PROPERTIES, SOURCE_CONFIG
from tests.world.model.world import Disaster, World, new_world
from tests.world.operator import Operator, inventory
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.model.change import SetService

VERSION = 0x100000000
CONFIG = "/etc/zookeeper/conf/zoo.cfg"


def reconfiguring(directory: Path, *, dest_too: bool = True) -> tuple[World, Operator]:
    """A world whose source has reconfigEnabled, and dest is to have it too or not."""
    plain = inventory()
    settings = {**plain.dest.settings, **({"reconfigEnabled": "true"} if dest_too else {})}
    dest = plain.dest.model_copy(update={"settings": settings})
    source = SOURCE_CONFIG.replace(b"tickTime=2000\n", b"tickTime=2000\nreconfigEnabled=true\n")
    world = new_world(plain.model_copy(update={"dest": dest}), PROPERTIES, source)
    world.reconfigure_source(VERSION)
    return world, Operator(world, directory / "run")


def config_files(world: World, host: str) -> dict[str, str]:
    """Everything beside a dest host's zoo.cfg that has its name, by what follows that."""
    files = world.hosts[host].files
    return {p.removeprefix(CONFIG): f.content.decode() for p, f in files.items() if p.startswith(CONFIG)}


def server_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("server.")]


def modes(world: World) -> list[str]:
    return sorted(world.mode(name) for name in world.inventory.dest_names)


def blocked(ended: RunEnded) -> dict[str, str]:
    """What blocks, by id: what was seen."""
    return {f.id: f.seen for f in ended.findings if f.blocks}


@pytest.mark.parametrize("dest_too", [True, False], ids=["dest too", "source alone"])
def test_the_move_ends_with_dests_own_members(tmp_path: Path, dest_too: bool) -> None:
    world, operator = reconfiguring(tmp_path, dest_too=dest_too)
    assert operator.forward(until="join").code == 0
    for name in world.inventory.dest_names:
        files = config_files(world, name)
        assert list(files) == [""], "an observer writes no dynamic file"
        assert "version=100000000\n" in files[""]
        assert ("reconfigEnabled=false\n" in files[""]) == dest_too
        assert "reconfigEnabled=true" not in files[""]
        sids = [line.partition("=")[0] for line in server_lines(files[""])]
        assert sids == [f"server.{n}" for n in (1, 2, 3, 11, 12, 13)]
    assert operator.resume().code == 0
    own = [f"server.{n}=10.0.0.{n}:2888:3888" for n in (11, 12, 13)]
    for name in world.inventory.dest_names:
        files = config_files(world, name)
        assert "version=" not in files[""]
        assert server_lines("".join(files.values()).replace(files.get(".bak", "-"), "")) == own
        assert any(".dynamic." in suffix for suffix in files) == dest_too
    assert modes(world) == ["follower", "follower", "leader"]


@pytest.mark.parametrize("phase", ["stop", "go", "serve", "check"])
def test_the_way_back_leaves_none_of_its_files(tmp_path: Path, phase: str) -> None:
    world, operator = reconfiguring(tmp_path)
    before = {name: config_files(world, name) for name in world.inventory.dest_names}
    assert operator.forward(until="roll", skip=("rehearse",)).code == 0
    observing = {name: config_files(world, name) for name in world.inventory.dest_names}
    operator.answers[phase] = "back"
    ended = operator.forward(hold_at=phase)
    assert (ended.code, modes(world)) == (0, ["observer"] * 3)
    for name in world.inventory.dest_names:
        left = config_files(world, name)
        # The .bak is read by people only; the join's own way back takes it away.
        assert {k: v for k, v in left.items() if k != ".bak"} == observing[name]
    assert operator.back().code == 0
    assert {name: config_files(world, name) for name in world.inventory.dest_names} == before


def test_past_the_door_there_is_no_way_back_though_zookeeper_rewrote_its_config(tmp_path: Path) -> None:
    world, operator = reconfiguring(tmp_path)
    assert operator.forward(skip=("rehearse",)).code == 0
    assert all("server." not in config_files(world, name)[""] for name in world.inventory.dest_names)
    assert operator.back().code == 6
    assert modes(world) == ["follower", "follower", "leader"]


def test_a_source_that_changes_its_members_after_the_join_is_refused_by_name(tmp_path: Path) -> None:
    world, operator = reconfiguring(tmp_path)
    assert operator.forward(until="join").code == 0
    world.reconfigure_source(0x200000005)
    assert modes(world) == ["observer"] * 3, "nothing has cut them off yet"
    ended = operator.forward(until="rehearse")
    assert blocked(ended) == {"arm.members": "version 0x100000000"}
    assert "rollback --to join" in ended.findings[0].moves[0]
    assert operator.back("join").code == 0
    assert operator.forward().code == 0
    assert modes(world) == ["follower", "follower", "leader"]


@pytest.mark.parametrize("gate", ["roll", "cutover"])
def test_each_gate_sees_that_source_has_other_members(tmp_path: Path, gate: str) -> None:
    world, operator = reconfiguring(tmp_path)
    assert operator.forward(until="join" if gate == "roll" else "roll", skip=("rehearse",)).code == 0
    world.reconfigure_source(0x200000005)
    ended = operator.forward(until=gate, skip=("rehearse",))
    assert blocked(ended) == {"dest.members": "it observes version 0x100000000"}
    assert operator.back().code == 0


def test_servers_of_source_that_disagree_are_not_joined(tmp_path: Path) -> None:
    world, operator = reconfiguring(tmp_path)
    one = dict(world.source_files["source1"])
    assert operator.forward(until="install").code == 0
    world.reconfigure_source(0x200000005)
    world.source_files["source1"] = one
    ended = operator.forward(until="join")
    assert ended.code == 6
    assert "source1 0x100000000, source2 0x200000005" in blocked(ended)["join.source-config"]
    assert not [change for change, _ in world.applied if isinstance(change, SetService)]


def test_an_observer_of_earlier_members_is_lost_once_it_is_cut_off(tmp_path: Path) -> None:
    """The world itself: what the refusals are for."""
    world, operator = reconfiguring(tmp_path)
    assert operator.forward(until="join").code == 0
    world.reconfigure_source(0x200000005)
    host = world.hosts["dest1"]
    host.stop()
    host.start(world.now)
    world.advance(30)
    assert modes(world) == ["", "observer", "observer"]


def test_no_observer_may_have_reconfig_enabled(tmp_path: Path) -> None:
    """The world itself: such a server becomes a follower of source."""
    world, operator = reconfiguring(tmp_path)
    assert operator.forward(until="join").code == 0
    file = world.hosts["dest1"].files[CONFIG]
    file.content = file.content.replace(b"reconfigEnabled=false", b"reconfigEnabled=true")
    with pytest.raises(Disaster, match="dest1 observes with reconfigEnabled"):
        world.advance(1)
