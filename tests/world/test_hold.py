"""A hold behind the closed door lasts as long as the hosts wait for OPEN, and says how long that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.operator import Operator, quiet_world
from zkmigrate.engine.events import Holding
from zkmigrate.engine.ports import Answer, Fallback


def test_a_hold_behind_the_closed_door_counts_down_to_the_hosts_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    limit = world.inventory.policy.open_limit_s
    shut: list[float] = []

    def hold(phase: str, unanswered: Fallback | None, left_s: float | None) -> Answer | None:
        opened = {world.hosts[h].phase for h in world.inventory.dest_names} == {"open"}
        if not opened:
            shut.append(world.now)
        return Answer("stop") if opened else None

    monkeypatch.setattr(operator, "hold", hold)
    assert operator.forward(hold_at="check").code == 130
    shown = [e.opens_s for e in operator.events if isinstance(e, Holding)]
    assert all(s is not None for s in shown)
    left = [s for s in shown if s is not None]
    assert left == sorted(left, reverse=True)
    assert limit - 1.0 < left[0] <= limit
    assert len(shut) > 50
    assert 0.0 <= left[-1] < 1.0, "they opened when it was said, not later"
    assert operator.resume().code == 0


def test_a_hold_before_the_hosts_serve_has_no_such_limit(tmp_path: Path) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    assert operator.forward(until="cutover", hold_at="seal").code == 0
    assert [(e.phase, e.opens_s) for e in operator.events if isinstance(e, Holding)] == [("seal", None)]
