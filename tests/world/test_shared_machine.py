"""A move whose brokers are on the machines of ZooKeeper servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.build import World
from tests.world.model.world import World as Move
from tests.world.operator import Operator
from tests.world.test_move import footprint, owners

STAGES = ("install", "join", "rehearse", "roll", "cutover.cut", "cutover.seal", "cutover.check")
BESIDE = pytest.mark.parametrize("role", ["source"])


def shared(role: str) -> Move:
    return World().ensemble(3).brokers(3).beside(role).move()


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


@BESIDE
@pytest.mark.parametrize("stage", STAGES)
def test_the_rollback_leaves_the_first_world(tmp_path: Path, role: str, stage: str) -> None:
    world = shared(role)
    first = footprint(world)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until=stage).code == 0
    assert operator.back().code == 0
    assert footprint(world) == first
    assert all(p.connected.startswith("source") for p in world.brokers.values())
