"""A dest host that is not heard for a moment after GO: the hosts finish alone, so nothing may turn back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.model.look import WorldLook
from tests.world.operator import Operator, quiet_world
from zkmigrate.runbook.engine.events import Alarm, StepEnded, Turned
from zkmigrate.runbook.model.change import Change, Go, Outcome
from zkmigrate.runbook.model.fact import Reading, Unknown
from zkmigrate.runbook.model.step import Way

SILENT_LOOKS = 3


def test_a_host_not_heard_after_go_turns_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    gone = 0
    unheard = 0
    answer, act = WorldLook.zkm, world.apply

    def zkm(look: WorldLook, host: str, *words: str) -> Reading[str]:
        nonlocal unheard
        if gone == 3 and host == "dest1" and words[0] in ("phase", "status") and unheard < SILENT_LOOKS:
            unheard += 1
            return Unknown("timeout", "dest1: no answer")
        return answer(look, host, *words)

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        nonlocal gone
        gone += isinstance(change, Go) and operation.startswith("cutover.")
        return Outcome(*act(change, operation, fencing))

    monkeypatch.setattr(WorldLook, "zkm", zkm)
    monkeypatch.setattr(operator, "_apply", apply)

    assert operator.forward(until="cutover").code == 0

    assert unheard == SILENT_LOOKS
    turns = [e.to for e in operator.events if isinstance(e, Turned) and e.way is Way.BACK]
    assert turns == ["rehearse"], "only the rehearsal walked back"
    alarms = [(e.finding.id, e.decision) for e in operator.events if isinstance(e, Alarm)]
    assert alarms == [("host.dest1", "go")] * (SILENT_LOOKS - 1), "GO itself goes on with a warning"
    ends = [e for e in operator.events if isinstance(e, StepEnded)]
    assert [f.target for e in ends for f in e.findings if f.id == "go.not-heard"] == ["dest1"]
