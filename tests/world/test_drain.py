"""DRAIN while source goes on for other tenants and dest hears it late."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Operator, quiet_world
from zkmigrate.runbook.engine.events import Alarm, StepEnded
from zkmigrate.runbook.model.fact import Reading, Seen


@dataclass(frozen=True)
class LateLook(WorldLook):
    """Dest shows what source had some transactions ago; with each look another tenant writes one more."""

    behind: int = 5

    def zkm(self, host: str, *args: str) -> Reading[str]:
        answer = super().zkm(host, *args)
        if args[0] != "drain" or not isinstance(answer, Seen) or "mode=observer" not in answer.value:
            return answer
        self.world.write("/other/counter")
        return Seen(f"outstanding=0 zxid={self.world.source.zxid - self.behind:#x} mode=observer\n")


@dataclass
class Late(Operator):
    """Sees dest with a LateLook."""

    behind: int = 5

    def _ports(self) -> dict[str, Any]:
        return {**super()._ports(), "look": LateLook(self.world, self.unreachable, self.behind)}


def rolled(tmp_path: Path, behind: int) -> tuple[World, Late]:
    world = quiet_world()
    operator = Late(world, tmp_path / "run", behind=0)
    assert operator.forward(until="roll").code == 0
    operator.behind = behind
    return world, operator


def test_hosts_that_hear_source_late_while_others_write_have_caught_up_with_one_z(tmp_path: Path) -> None:
    _, operator = rolled(tmp_path, 40)

    assert operator.forward(until="cutover").code == 0

    ended = [e for e in operator.events if isinstance(e, StepEnded) and e.step == "drain"]
    assert [f.id for f in ended[-1].findings] == ["drain.applied"] * 3


def test_hosts_too_far_behind_turn_back(tmp_path: Path) -> None:
    """What they lack is not waited for longer than DRAIN's own time."""
    _, operator = rolled(tmp_path, 100_000)

    assert operator.forward(until="cutover").code == 7

    alarms = [(e.phase, e.finding.id, e.decision) for e in operator.events if isinstance(e, Alarm)]
    assert alarms == [("fence", "engine.wait-over", "back")]
