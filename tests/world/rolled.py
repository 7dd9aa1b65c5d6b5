"""Worlds in which a run has come to some stage, walked once and copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.world.operator import Operator, copied, quiet_world
from zkmigrate.move.rules.window_rules import TO_SEAL
from zkmigrate.runbook.engine.run import Walk

_walked: dict[str, Operator] = {}


def walked(directory: Path, until: str) -> Operator:
    """An operator of a copy of a quiet world in which a run has come to the end of a stage, with a copy of
    the run. The first call for a stage walks it."""
    if until not in _walked:
        operator = Operator(quiet_world(), directory / f"until-{until}" / "run")
        assert operator.forward(until=until).code == 0
        _walked[until] = operator
    operator = _walked[until]
    shutil.copytree(operator.run_dir, directory / "run")
    return Operator(copied(operator.world), directory / "run")


def rolled(directory: Path) -> Operator:
    """Everything is done up to the cut-over."""
    return walked(directory, "roll")


def rehearsed_as(operator: Operator, monkeypatch: pytest.MonkeyPatch, to_seal_s: float) -> None:
    """What the rehearsal measured from FENCE to SEAL."""
    process = operator._process

    @contextmanager
    def rehearsed() -> Iterator[Walk]:
        with process() as made:
            for step in TO_SEAL:
                made.history.seconds[f"rehearse.{step}"] = {"forward": to_seal_s / len(TO_SEAL), "back": 0.1}
            yield made

    monkeypatch.setattr(operator, "_process", rehearsed)
