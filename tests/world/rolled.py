"""A world in which everything is done up to the cut-over, walked once and copied for each test."""

from __future__ import annotations

import copy
import shutil
import threading
from pathlib import Path

from tests.world.operator import Operator, quiet_world
from zkmigrate.moves.world.world import World


def rolled(directory: Path) -> Operator:
    """Walk a new world through the roll."""
    operator = Operator(quiet_world(), directory / "run")
    assert operator.forward(until="roll").code == 0
    return operator


def copied(operator: Operator, directory: Path) -> Operator:
    """An operator of a copy of that world, with a copy of the run."""
    shutil.copytree(operator.run_dir, directory / "run")
    world: World = copy.deepcopy(operator.world, {id(operator.world.lock): threading.RLock()})
    return Operator(world, directory / "run")
