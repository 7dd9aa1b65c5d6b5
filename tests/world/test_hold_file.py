"""A hold made at a second terminal: where the run waits, what lets it go, and what it never outlasts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.world.model.world import World
from tests.world.operator import Killed, Operator, quiet_world
from zkmigrate.kafka.changes import ElectLeaders
from zkmigrate.runbook.engine.events import HoldAsked, HoldEnded, Holding, Noted
from zkmigrate.runbook.engine.hold_file import NAME, Hold, HoldFile
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.window import Word

HELD_S = 5.0
FOR_EVER_S = 120.0
BEFORE_FENCE = ("preflight", "arm", "survey")
UNSEALED = ("fence", "drain", "cut", "stop", "prove")
SEALED = ("seal", "go", "serve", "check")


@dataclass
class Second(Operator):
    """An operator with a colleague, who acts once the run has held for ``HELD_S``, and again."""

    act: Callable[[], object] = lambda: None
    since: float = 0.0
    began: float = 0.0

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        if not any(isinstance(e, Holding) for e in self.events[-1:]):
            self.since = self.began = 0.0
            return
        self.began = self.began or self.world.now
        assert self.world.now - self.began < FOR_EVER_S, "it holds for ever"
        self.since = self.since or self.world.now
        if self.world.now - self.since >= HELD_S:
            self.since = 0.0
            self.act()


@dataclass
class Room:
    """A world, a run directory, and whoever works on it."""

    world: World
    run_dir: Path

    def hold(self, at: str = "", why: str = "", since: float = 1.0) -> None:
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        HoldFile(self.run_dir).place(Hold(at, why, "bert@desk", "/dev/pts/7", since))

    def release(self) -> None:
        HoldFile(self.run_dir).release("bert@desk", "/dev/pts/7", 2.0)

    def operator(self, act: Callable[[], object] | None = None) -> Second:
        return Second(self.world, self.run_dir, act=act or self.release)

    def lines(self, kind: str) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in (self.run_dir / "journal.jsonl").read_text().splitlines()]
        return [e["body"] for e in entries if e["kind"] == kind]

    def held(self) -> list[tuple[str, str]]:
        return [(f"{b['stage']}.{b['step']}", b.get("how", "begin")) for b in self.lines("hold")]

    def phases(self) -> set[str]:
        return {self.world.hosts[h].phase for h in self.world.inventory.dest_names}


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(quiet_world(), tmp_path / "run")


@pytest.mark.parametrize("stage", PLAYBOOK.stages, ids=lambda stage: stage.id)
def test_a_hold_is_honoured_before_each_stage_and_a_release_goes_on(room: Room, stage: Stage) -> None:
    room.hold(stage.id, "lunch")
    calls = 0

    def act() -> None:
        nonlocal calls
        calls += 1
        assert not [b for b in room.lines("step") if b["stage"] == stage.id], "nothing of it was begun"
        room.release()

    operator = room.operator(act)
    assert operator.forward().code == 0
    first = f"{stage.id}.{stage.steps[0].id}"
    assert (calls, room.held()) == (1, [(first, "begin"), (first, "released")])
    begin, end = room.lines("hold")
    assert begin["hold"] == {
        "at": stage.id, "why": "lunch", "by": "bert@desk", "place": "/dev/pts/7", "since": 1.0
    }  # fmt: skip
    assert end["by"] == "bert@desk"
    told = [e for e in operator.events if isinstance(e, HoldAsked | HoldEnded)]
    at_once = stage.id == "preflight"
    assert [type(e).__name__ for e in told] == ["HoldAsked"] * (not at_once) + ["HoldEnded"]


def test_a_hold_for_the_next_place_waits_between_two_brokers(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert room.operator().forward(until="rehearse").code == 0
    restarted: list[str] = []
    apply = room.world.apply

    def noting(change: Any, operation: str, fencing: int) -> Any:
        if type(change).__name__ == "SetService":
            restarted.append(change.host)
            if len(restarted) == 1:
                room.hold()
        return apply(change, operation, fencing)

    monkeypatch.setattr(room.world, "apply", noting)
    seen: list[int] = []

    def act() -> None:
        seen.append(len(restarted))
        room.release()

    operator = room.operator(act)
    assert operator.forward(until="roll").code == 0
    assert room.held() == [("roll.roll", "begin"), ("roll.roll", "released")]
    assert (seen, len(restarted)) == ([1], 3), "one broker was restarted, the others waited"
    [said] = {(e.before, e.progress) for e in operator.events if isinstance(e, Holding)}
    assert said == ("roll.roll", f"1 of 3 brokers done ({restarted[0]})")
    begun = room.lines("hold")[0]
    assert (begun["place"], begun["progress"]) == ("in", said[1])


@pytest.mark.parametrize("phase", [*BEFORE_FENCE, *UNSEALED, *SEALED])
def test_in_the_window_a_release_goes_on(room: Room, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.world.test_hold_file.HELD_S", 1.0)
    assert room.operator().forward(until="roll").code == 0
    room.hold(f"cutover.{phase}")
    assert room.operator().forward(until="cutover").code == 0
    assert room.held() == [(f"cutover.{phase}", "begin"), (f"cutover.{phase}", "released")]


@pytest.mark.parametrize("phase", UNSEALED)
def test_before_seal_a_hold_that_nobody_releases_turns_back_in_time(room: Room, phase: str) -> None:
    assert room.operator().forward(until="roll").code == 0
    sessions = room.world.sessions_made
    room.hold(phase)
    operator = room.operator(lambda: None)
    assert operator.forward(until="cutover").code == 7
    assert room.held() == [(f"cutover.{phase}", "begin"), (f"cutover.{phase}", "deadline")]
    assert room.phases() <= {"armed", "idle"}
    assert room.world.sessions_made == sessions, "no session was lost"
    assert (room.run_dir / NAME).exists(), "it is kept for the next run"
    assert sum(isinstance(e, HoldAsked) for e in operator.events) == 1, "and said once"


@pytest.mark.parametrize("phase", SEALED)
def test_after_seal_a_hold_that_nobody_releases_goes_on_in_time(room: Room, phase: str) -> None:
    assert room.operator().forward(until="roll").code == 0
    room.hold(phase)
    assert room.operator(lambda: None).forward(until="cutover").code == 0
    assert room.held() == [(f"cutover.{phase}", "begin"), (f"cutover.{phase}", "deadline")]
    assert room.phases() == {"open"}


def test_a_hold_for_the_next_place_that_the_window_outlasts_holds_again_after_it(room: Room) -> None:
    assert room.operator().forward(until="roll").code == 0
    world, apply = room.world, room.world.apply

    def noting(change: Any, operation: str, fencing: int) -> Any:
        if type(change).__name__ == "Seal" and not (room.run_dir / NAME).exists():
            room.hold()
        return apply(change, operation, fencing)

    world.apply = noting  # type: ignore[method-assign]

    def act() -> None:
        if room.phases() == {"open"}:
            room.release()

    assert room.operator(act).forward(until="verify").code == 0
    assert room.held() == [
        ("cutover.seal", "begin"), ("cutover.seal", "deadline"),
        ("verify.verify", "begin"), ("verify.verify", "released"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "code", "kept"), [("go", 0, False), ("stop", 130, True), ("back", 0, False)]
)
def test_an_answer_at_the_run_s_own_terminal_ends_a_hold(
    room: Room, word: Word, code: int, kept: bool
) -> None:
    room.hold("join")
    operator = room.operator(lambda: None)
    operator.answers["join.join"] = word
    assert operator.forward(until="join").code == code
    assert room.held() == [("join.join", "begin"), ("join.join", word)]
    assert (room.run_dir / NAME).exists() is kept
    operator = room.operator()
    operator.answers.clear()
    assert operator.forward(until="join").code == 0
    assert len(room.held()) == (4 if kept else 2)


@pytest.mark.parametrize("at", ["join", "cutover.cut"])
def test_killed_while_it_holds_the_run_holds_again_or_turns_back(room: Room, at: str) -> None:
    room.hold(at)

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        room.operator(kill).forward()
    assert room.held()[-1][1] == "left"
    operator = room.operator()
    room.world.advance(30.0)  # nobody renews a lease meanwhile
    code = operator.resume().code
    if at == "join":
        assert (code, room.held()[-2:]) == (0, [("join.join", "begin"), ("join.join", "released")])
    else:
        assert code in (7, 9)
        assert room.operator().forward().code == 0
        assert room.held()[-1] == ("cutover.cut", "released")
    assert room.phases() <= {"open", "idle"}


def test_a_hold_on_the_way_back_of_the_roll_names_brokers_alone(room: Room) -> None:
    policy = room.world.inventory.policy.model_copy(update={"roll_leaders": True})
    room.world.inventory = room.world.inventory.model_copy(update={"policy": policy})
    assert room.operator().forward(until="roll").code == 0
    assert isinstance(room.world.applied[-1][0], ElectLeaders)
    room.hold()
    assert room.operator().back("roll").code == 0
    told = {body["progress"] for body in room.lines("hold") if "how" not in body}
    assert told == {"3 brokers still to be put back (broker2, broker3, broker1)"}


def test_a_hold_behind_the_election_counts_brokers_alone(room: Room) -> None:
    """The operator is killed right behind the election, the roll's last change."""
    policy = room.world.inventory.policy.model_copy(update={"roll_leaders": True})
    room.world.inventory = room.world.inventory.model_copy(update={"policy": policy})
    walked = Operator(room.world, room.run_dir, keeps=True)
    assert walked.forward(until="roll", skip=("rehearse",)).code == 0
    killed = walked.after[-1].again(room.run_dir.with_name("again"))
    assert isinstance(killed.world.applied[-1][0], ElectLeaders)
    again = Room(killed.world, killed.run_dir)
    again.hold()
    assert again.operator().resume(until="roll").code == 0
    [told] = {body["progress"] for body in again.lines("hold") if "how" not in body}
    assert re.fullmatch(r"3 of 3 brokers done \((broker[123](, )?){3}\)", told)


def test_walking_back_a_hold_is_honoured_between_stages_and_not_in_the_window(room: Room) -> None:
    assert room.operator().forward(until="join").code == 0
    room.hold()
    assert room.operator().back().code == 0
    assert room.held() == [("join.join", "begin"), ("join.join", "released")]
    assert room.operator().forward(until="roll").code == 0
    operator = Operator(room.world, room.run_dir, answers={"cut": "back"})
    room.hold("fence")
    room.release()
    assert operator.forward(until="cutover", hold_at="cut").code == 0
    assert room.held()[-1] == ("cutover.cut", "back")


BAD: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\xff\x00{"),
    "a list": lambda path: path.write_text("[1]"),
    "numbers": lambda path: path.write_text('{"at": 1}'),
    "no time": lambda path: path.write_text('{"since": "soon"}'),
    "deep": lambda path: path.write_text("[" * 60000),
    "before all times": lambda path: path.write_text('{"at": "0001-01-01T00:00", "by": "x"}'),
    "after all times": lambda path: path.write_text('{"at": "9999-12-31T23:59-14:00", "by": "x"}'),
    "no place": lambda path: path.write_text('{"at": "nowhere", "by": "x"}'),
    "in the rehearsal": lambda path: path.write_text('{"at": "rehearse.cut", "by": "x"}'),
    "a directory": lambda path: path.mkdir(),
    "a loop": lambda path: path.symlink_to(path.name),
    "a link": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
def test_a_hold_file_that_does_not_read_holds_outside_the_window_and_breaks_nothing(
    room: Room, make: Callable[[Path], object]
) -> None:
    assert room.operator().forward(until="roll").code == 0
    path = room.run_dir / NAME

    def away() -> None:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    make(path)
    operator = room.operator(away)
    assert operator.forward().code == 0
    assert room.held() == [("cutover.preflight", "begin"), ("cutover.preflight", "released")]
    [holding] = {e.who for e in operator.events if isinstance(e, Holding)}
    assert holding.startswith("the hold file cannot be read: ")


@pytest.mark.parametrize("content", ["{", '{"at": "0001-01-01T00:00", "by": "x"}'], ids=["torn", "no time"])
def test_in_the_window_a_hold_file_that_does_not_read_is_passed_over(
    room: Room, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    assert room.operator().forward(until="roll").code == 0
    apply = room.world.apply

    def spoiling(change: Any, operation: str, fencing: int) -> Any:
        if type(change).__name__ == "Fence":
            (room.run_dir / NAME).write_text(content)
        return apply(change, operation, fencing)

    monkeypatch.setattr(room.world, "apply", spoiling)
    operator = room.operator(lambda: (room.run_dir / NAME).unlink())
    assert operator.forward(until="cutover").code == 0
    assert room.held() == []
    assert any(isinstance(e, HoldAsked) for e in operator.events)


def test_an_empty_file_made_by_hand_is_a_hold(room: Room) -> None:
    room.run_dir.mkdir(mode=0o700)
    (room.run_dir / NAME).touch()
    operator = room.operator(lambda: (room.run_dir / NAME).unlink())
    assert operator.forward(until="preflight").code == 0
    assert room.held() == [("preflight.preflight", "begin"), ("preflight.preflight", "released")]


def test_a_hold_that_is_taken_back_before_it_held_is_said_and_does_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert room.operator().forward(until="install").code == 0
    calls = 0

    def pause(operator: Operator, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            room.hold("roll")
        if calls == 3:
            room.release()
        Operator.pause(operator, seconds)

    operator = room.operator()
    monkeypatch.setattr(operator, "pause", lambda seconds: pause(operator, seconds))
    assert operator.forward(until="roll").code == 0
    assert room.held() == []
    told = [e for e in operator.events if isinstance(e, HoldAsked | Noted)]
    assert [type(e).__name__ for e in told] == ["HoldAsked", "Noted"]
    assert told[0] == HoldAsked("before roll", "bert@desk")
