"""A hold behind the closed door lasts as long as the hosts wait for OPEN, and says how long that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.world.model.world import SESSION_TIMEOUT_MS
from tests.world.operator import Killed, Operator, quiet_world
from tests.world.rolled import rolled
from zkmigrate.errors import UsageError
from zkmigrate.move.rules.window_rules import TO_SEAL
from zkmigrate.runbook.engine.confirm import Console, LookUp, Unattended
from zkmigrate.runbook.engine.events import HoldEnded, Holding, Noted
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.change import Fence
from zkmigrate.runbook.model.window import Word


def test_a_hold_behind_the_closed_door_counts_down_to_the_hosts_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    limit = world.inventory.policy.open_limit_s
    shut: list[float] = []

    def hold(phase: str, unanswered: Word | None, left_s: float | None) -> Answer | None:
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

    def hold(self, phase: str, unanswered: Word | None, left_s: float | None) -> Answer | None:
        if math.isnan(self.since):
            self.since = self.world.now
        self.held_s = self.world.now - self.since
        said = self.events[-1]
        assert isinstance(said, Holding)
        return Answer("back") if said.late or self.held_s >= self.until_s else None


@pytest.mark.parametrize("phase", ["seal", "go", "serve", "check"])
@pytest.mark.parametrize("asked_again", [True, False], ids=["asked-again", "not-asked"])
def test_killed_while_it_held_a_process_that_is_asked_to_hold_there_holds_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, asked_again: bool
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")

    def dies(_phase: str, _unanswered: Word | None, _left_s: float | None) -> Answer | None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(operator, "hold", dies)
        with pytest.raises(Killed):
            operator.forward(hold_at=phase)
    operator.answers[phase] = "back"
    operator.events.clear()

    ended = operator.resume(until="cutover", hold_at=phase if asked_again else "")

    held = [e.phase for e in operator.events if isinstance(e, Holding)]
    phases = {world.hosts[h].phase for h in world.inventory.dest_names}
    assert ended.code == 0
    assert (set(held), phases) == (({phase}, {"idle"}) if asked_again else (set(), {"open"}))


def test_a_hold_at_a_phase_that_is_behind_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    operator.kill_before_second = "Go"
    with pytest.raises(Killed):
        operator.forward()
    operator.kill_before_second = ""
    phases = {name: world.hosts[name].phase for name in world.inventory.dest_names}
    size = (tmp_path / "run" / "journal.jsonl").stat().st_size
    for behind in ("cut", "seal"):
        with pytest.raises(
            UsageError, match=f"cutover.{behind}: it is behind, the run is at cutover.go"
        ) as why:
            operator.resume(hold_at=behind)
        assert "Next: --hold-at cutover.go, cutover.serve, cutover.check" in str(why.value)
    assert {name: world.hosts[name].phase for name in world.inventory.dest_names} == phases
    assert (tmp_path / "run" / "journal.jsonl").stat().st_size == size
    operator.answers["go"] = "go"
    assert operator.resume(until="cutover", hold_at="go").code == 0
    assert {e.phase for e in operator.events if isinstance(e, Holding)} == {"go"}


@pytest.mark.parametrize(
    ("phase", "told"), [("fence", True), ("prove", True), ("seal", False), ("check", False), ("", False)]
)
def test_a_hold_that_the_deadline_breaks_is_said_before_the_cut_over_is_asked_about(
    tmp_path: Path, phase: str, told: bool
) -> None:
    """18 s sessions and a way back of 2.5 s leave 6.5 s."""
    operator = rolled(tmp_path)
    assert operator.forward(until="cutover", hold_at=phase).code == 0
    kinds = [type(e).__name__ for e in operator.events]
    said = [(n, e.text) for n, e in enumerate(operator.events) if isinstance(e, Noted)]
    if not told:
        assert said == []
        return
    [(at, text)] = said
    assert at < kinds.index("Consented")
    assert f"the hold after cutover.{phase} ends by itself" in text
    assert "6.5 s after FENCE" in text


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
        "it took 3.1 s in the rehearsal, times 1.5 (policy.window_margin) is 4.7 s; "
        "an answer to --hold-at cut needs 2 s more; the way back must start 6.5 s after FENCE"
    )
    assert not [c for c, op in operator.world.applied if op.startswith("cutover.") and isinstance(c, Fence)]
    assert operator.forward(until="cutover", hold_at="seal").code == 0, "without such a hold it fits"


def rehearsed_as(operator: Operator, monkeypatch: pytest.MonkeyPatch, to_seal_s: float) -> None:
    """What the rehearsal measured from FENCE to SEAL."""
    walk = operator._walk

    def rehearsed() -> Walk:
        made = walk()
        for step in TO_SEAL:
            made.history.seconds[f"rehearse.{step}"] = {"forward": to_seal_s / len(TO_SEAL), "back": 0.1}
        return made

    monkeypatch.setattr(operator, "_walk", rehearsed)


class Silence:
    """An input that stays open, and nobody types."""

    def forget(self) -> None:
        return None

    def poll(self, _seconds: float) -> str:
        return ""


@dataclass
class Nobody(Operator):
    """``--yes`` with such an input."""

    polls: int = 0

    def hold(self, phase: str, unanswered: Word | None, left_s: float | None) -> Answer | None:
        self.polls += 1
        assert self.polls < 500, "it holds for ever"
        return Unattended(cast(Console, Silence()), cast(LookUp, None)).hold(phase, unanswered, left_s)


@pytest.mark.parametrize("phase", ["seal", "check"])
def test_with_yes_a_hold_that_nobody_answers_ends_when_a_way_back_comes_too_late(
    tmp_path: Path, phase: str
) -> None:
    """18 s sessions and a way back of 2.5 s leave 6.5 s; the hosts would wait 10 s after CHECK."""
    rolled_out = rolled(tmp_path)
    operator = Nobody(rolled_out.world, rolled_out.run_dir)
    began = operator.world.now
    assert operator.forward(until="cutover", hold_at=phase).code == 0
    assert [(e.how, e.by) for e in operator.events if isinstance(e, HoldEnded)] == [("go", "--yes")]
    world = operator.world
    assert {world.hosts[h].phase for h in world.inventory.dest_names} == {"open"}
    assert 6.5 < world.now - began < 12.0
