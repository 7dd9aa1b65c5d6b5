"""A dest of five hosts: a majority is three, so more than one host may be missing, and the places differ."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.world.model.host import Host
from tests.world.model.world import World
from tests.world.operator import Killed, Operator, quiet_world
from tests.world.test_move import footprint, owners
from zkmigrate.runbook.model.change import Go

FIVE = ("dest1", "dest2", "dest3", "dest4", "dest5")


def modes(world: World) -> Counter[str]:
    return Counter(world.mode(host) for host in world.inventory.dest_names)


def test_the_move_completes_and_keeps_every_session(tmp_path: Path) -> None:
    world = quiet_world(5)
    assert world.inventory.dest_names == FIVE
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    assert modes(world) == {"observer": 5}
    before = owners(world)
    assert len(before) == 4

    assert operator.resume().code == 0

    assert owners(world) == before
    assert modes(world) == {"leader": 1, "follower": 4}
    gone = {change.host: change for change, _ in world.applied if isinstance(change, Go)}
    assert set(gone) == set(FIVE)
    assert {change.majority for change in gone.values()} == {3}
    assert not any(h.installed or h.armed or h.cut.filled for h in world.hosts.values())


@pytest.mark.parametrize(
    ("kind", "alone", "code"),
    [("Seal", {"sealed": 1, "armed": 4}, 7), ("Go", {"go": 1, "sealed": 4}, 0)],
)
def test_killed_between_two_hosts_it_resumes(
    tmp_path: Path, kind: str, alone: dict[str, int], code: int
) -> None:
    """One host has its change, four have not: before GO the run turns back, after it the run goes on."""
    world = quiet_world(5)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    before = owners(world)
    operator.kill_before_second = kind
    with pytest.raises(Killed):
        operator.forward(until="cutover")
    world.advance(10.0)
    assert Counter(world.hosts[host].phase for host in FIVE) == alone

    again = Operator(world, operator.run_dir)
    assert again.resume(until="cutover").code == code
    if code:
        assert modes(world) == {"observer": 5}
        assert owners(world) == before
        assert again.forward(until="cutover").code == 0
    assert modes(world) == {"leader": 1, "follower": 4}
    assert owners(world) == before


@pytest.mark.parametrize("stage", ["join", "roll", "cutover.check"])
def test_the_rollback_leaves_the_first_world(tmp_path: Path, stage: str) -> None:
    world = quiet_world(5)
    first = footprint(world)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until=stage).code == 0
    assert operator.back().code == 0
    assert footprint(world) == first
    assert all(p.connected.startswith("source") for p in world.brokers.values())


def test_two_hosts_that_do_not_come_up_after_go_turn_nobody_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world(5)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    before = owners(world)
    ready = Host.ready

    def late(host: Host, now: float) -> bool:
        stuck = host.name in ("dest4", "dest5") and host.phase == "go" and host.spec.get("rehearsal") != "yes"
        return not stuck and ready(host, now)

    monkeypatch.setattr(Host, "ready", late)
    assert operator.forward(until="cutover").code == 0
    assert [world.hosts[host].phase for host in FIVE] == ["open", "open", "open", "go", "go"]
    assert owners(world) == before
    monkeypatch.setattr(Host, "ready", ready)
    world.advance(30.0)
    assert operator.resume().code == 0
    assert modes(world) == {"leader": 1, "follower": 4}
