"""Rollbacks that are themselves killed, after each of their changes: resume still comes to the start."""

from __future__ import annotations

import copy
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.world.operator import Killed, Operator, quiet_world
from tests.world.test_move import footprint
from zkmigrate.simulate.world import World

STAGES = ("join", "half", "roll", "cutover.cut", "cutover.stop", "cutover.seal", "cutover.check")
WINDOW = frozenset({"uncut", "reopen", "disarm", "restore"})
# What the way back sends besides: each must be among the changes after which it is killed.
KINDS = {
    "join": frozenset({"service", "move-aside", "restore", "discard", "uninstall"}),
    "half": frozenset({"restore", "service"}),
    "roll": frozenset({"restore", "service"}),
    "cutover.cut": WINDOW,
    "cutover.stop": WINDOW | {"started-observer"},
    "cutover.seal": WINDOW | {"started-observer", "image", "unseal"},
    "cutover.check": WINDOW | {"started-observer", "image", "unseal", "halt"},
}


@dataclass(frozen=True)
class Begun:
    """A run that has come to a stage, to be copied: its world, its journal, the world before it."""

    world: World
    run_dir: Path
    first: dict[str, object]

    def copied(self, directory: Path) -> Operator:
        """The same moment again, for an operator who has just come."""
        shutil.copytree(self.run_dir, directory)
        return Operator(copy.deepcopy(self.world, {id(self.world.lock): threading.RLock()}), directory)


def begun(stage: str, run_dir: Path) -> Begun:
    """A run up to and with a stage; ``half``: one broker rolled, of the next one only the file is written."""
    world = quiet_world()
    first = footprint(world)
    operator = Operator(world, run_dir)
    if stage != "half":
        assert operator.forward(until=stage).code == 0
        return Begun(world, run_dir, first)
    assert operator.forward(until="rehearse").code == 0
    operator.kill_after = operator.calls + 3
    with pytest.raises(Killed):
        operator.forward()
    return Begun(world, run_dir, first)


@pytest.mark.parametrize("away_s", [0.0, 30.0])
@pytest.mark.parametrize("stage", STAGES)
def test_a_rollback_killed_after_each_of_its_changes_is_resumed_to_the_first_world(
    tmp_path: Path, stage: str, away_s: float
) -> None:
    """Left alone for half a minute, hosts that were still to be halted open: only then it ends with 6."""
    start = begun(stage, tmp_path / "begun")
    whole = start.copied(tmp_path / "whole")
    assert whole.back().code == 0
    hit: set[str] = set()
    opened: list[int] = []
    for n in range(1, whole.calls + 1):
        operator = start.copied(tmp_path / f"{n}")
        world = operator.world
        operator.kill_after = n
        with pytest.raises(Killed):
            operator.back()
        hit.add(world.applied[-1][0].verb)
        world.advance(away_s)
        alone = any(host.phase == "open" for host in world.hosts.values())
        ended = Operator(world, operator.run_dir).resume()
        if alone:
            opened.append(n)
            assert (ended.code, [f.id for f in ended.findings]) == (6, ["open.no-way-back"]), n
            assert Operator(world, operator.run_dir).resume().code == 0, n
            assert {world.mode(h) for h in world.inventory.dest_names} == {"leader", "follower"}, n
            continue
        assert ended.code == 0, (n, ended)
        assert footprint(world) == start.first, n
        assert all(p.connected.startswith("source") for p in world.brokers.values()), n
    assert hit >= KINDS[stage]
    # With two of three halted no quorum is left that could open.
    assert opened == ([1] if stage == "cutover.check" and away_s else [])
