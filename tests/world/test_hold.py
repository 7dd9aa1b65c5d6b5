"""A hold behind the closed door lasts as long as the hosts wait for OPEN, and says how long that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.world.model.world import SESSION_TIMEOUT_MS
from tests.world.operator import Killed, Operator, quiet_world
from tests.world.rolled import rehearsed_as, rolled
from zkmigrate.runbook.engine.events import HoldEnded, Holding
from zkmigrate.runbook.engine.hold_file import HoldFile
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.model.change import Fence


def test_a_hold_behind_the_closed_door_counts_down_to_the_hosts_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    limit = world.inventory.policy.open_limit_s
    shut: list[bool] = []

    def hold(_phase: str) -> None:
        shut.append({world.hosts[h].phase for h in world.inventory.dest_names} != {"open"})

    monkeypatch.setattr(operator, "hold", hold)
    assert operator.forward(until="cutover", hold_at="check").code == 0
    left = [e.opens_s for e in operator.events if isinstance(e, Holding) and e.opens_s is not None]
    assert left == sorted(left, reverse=True)
    assert limit - 1.0 < left[0] <= limit
    assert sum(shut) > 50
    assert 0.0 <= left[-1] < 1.0, "they opened when it was said, not later"
    assert [(e.how, e.by) for e in operator.events if isinstance(e, HoldEnded)] == [("deadline", "")]
    assert HoldFile(operator.run_dir).wanted() is None, "the run is past its place"


def test_a_hold_before_the_hosts_serve_has_no_such_limit(tmp_path: Path) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    assert operator.forward(until="cutover", hold_at="seal").code == 0
    assert [(e.phase, e.opens_s) for e in operator.events if isinstance(e, Holding)] == [("seal", None)]


def test_until_a_hold_says_too_late_the_way_back_keeps_every_session(tmp_path: Path) -> None:
    """The world repeats itself: what the first run measures is the second one's last moment."""

    def held(directory: str, *, until_s: float) -> tuple[float, bool]:
        """Hold after CHECK for `until_s` or until it is late, then go back; how long, and if all sessions
        are still the same."""
        world = quiet_world()
        operator = Holds(world, tmp_path / directory, until_s=until_s)
        assert operator.forward(until="roll").code == 0
        sessions = {name: process.session for name, process in world.brokers.items()}
        assert operator.forward(hold_at="check").code == 0
        world.advance(SESSION_TIMEOUT_MS / 1000 + 5)
        return operator.held_s, {name: p.session for name, p in world.brokers.items()} == sessions

    late_s, _ = held("late", until_s=math.inf)
    assert 1.0 < late_s < SESSION_TIMEOUT_MS / 1000
    last_s, kept = held("in-time", until_s=late_s - 0.3)
    assert last_s < late_s
    assert kept


@dataclass
class Holds(Operator):
    """Answers "back" once `until_s` of the hold are over, or once it is said to be late."""

    until_s: float = 0.0
    since: float = math.nan
    held_s: float = 0.0

    def hold(self, phase: str) -> Answer | None:
        if math.isnan(self.since):
            self.since = self.world.now
        self.held_s = self.world.now - self.since
        said = self.events[-1]
        assert isinstance(said, Holding)
        return Answer("back") if said.late or self.held_s >= self.until_s else None


@pytest.mark.parametrize("phase", ["seal", "go", "serve", "check"])
def test_killed_while_it_held_behind_seal_the_next_process_holds_there_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")

    def dies(_phase: str) -> Answer | None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(operator, "hold", dies)
        with pytest.raises(Killed):
            operator.forward(hold_at=phase)
    operator.answers[phase] = "back"
    operator.events.clear()

    assert operator.resume(until="cutover").code == 0

    assert {e.phase for e in operator.events if isinstance(e, Holding)} == {phase}
    assert {world.hosts[h].phase for h in world.inventory.dest_names} == {"idle"}


def test_a_hold_that_leaves_no_time_for_an_answer_is_refused_before_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rolled(tmp_path)
    rehearsed_as(operator, monkeypatch, to_seal_s=3.1)
    ended = operator.forward(until="cutover", hold_at="cut")
    assert ended.code == 7
    [found] = [f for f in ended.findings if f.blocks]
    assert found.id == "survey.window-fits"
    assert found.seen == (
        "this took 3.1 s in the rehearsal, times 1.5 (policy.window_margin) is 4.7 s; "
        "an answer to the hold after cut needs 2 s more; the way back must start 6.5 s after FENCE"
    )
    assert not [c for c, op in operator.world.applied if op.startswith("cutover.") and isinstance(c, Fence)]
    assert operator.forward(until="cutover", hold_at="seal").code == 0, "without such a hold it fits"
