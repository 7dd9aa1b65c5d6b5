"""A world in which everything is done up to the cut-over, walked once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.world.operator import Operator, copied, quiet_world

_walked: list[Operator] = []


def rolled(directory: Path) -> Operator:
    """An operator of a copy of that world, with a copy of the run; the first call walks it."""
    if not _walked:
        operator = Operator(quiet_world(), directory / "rolled" / "run")
        assert operator.forward(until="roll").code == 0
        _walked.append(operator)
    [operator] = _walked
    shutil.copytree(operator.run_dir, directory / "run")
    return Operator(copied(operator.world), directory / "run")
