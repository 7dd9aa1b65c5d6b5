"""Source loses its quorum while dest is fenced and cut off: the watch sees it, the way back loses nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.world.model.look import WorldLook
from tests.world.model.world import SESSION_TIMEOUT_MS, World
from tests.world.operator import Operator, quiet_world
from zkmigrate.move.rules import probes
from zkmigrate.runbook.engine.events import Alarm, Turned
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.ports import Answer, WatchPort
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import Trouble
from zkmigrate.zookeeper.facts.ensemble import source_view

HELD_S = 5.0


class Asking(WatchPort):
    """The source probe, asked in the world's own time, once a second from FENCE to SEAL."""

    def __init__(self, world: World, look: WorldLook) -> None:
        self._world = world
        self._probe = probes.source(lambda: source_view(world.inventory, look))
        self._next = 0.0
        self._leased = False
        self._found: dict[str, Finding] = {}

    def follow(self, stage: Stage, history: History, _context: Context, /) -> None:
        done = f"{stage.id}.seal" in history.done
        self._leased = f"{stage.id}.fence" in history.first_sent and not done

    def finding(self) -> Finding | None:
        while self._leased and self._next <= self._world.now:
            self._next = max(self._next, self._world.now) + self._probe.every_s
            self._found |= {f.id: f for f in self._probe.ask()}
        return next((f for f in self._found.values() if f.held is not Held.YES), None)

    def answered(self, finding: Finding, /) -> None:
        del self._found[finding.id]


@dataclass
class Holding(Operator):
    """Holds after CUT for ``HELD_S``; there ``down`` of source stop, to run again ``back_after_s`` later."""

    down: tuple[str, ...] = ()
    back_after_s: float = 0.0
    held_at: float = 0.0

    def hold(self, phase: str) -> Answer | None:
        if not self.held_at:
            self.held_at = self.world.now
            self.world.source_down = set(self.down)
        return Answer("go") if self.world.now - self.held_at > HELD_S else None

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        if self.held_at and self.world.now - self.held_at > self.back_after_s:
            self.world.source_down.clear()


def watched(tmp_path: Path, down: tuple[str, ...], back_after_s: float) -> tuple[World, Holding]:
    """A world moved up to the cut-over, and its operator with the source probe beside it."""
    world = quiet_world()
    operator = Holding(world, tmp_path / "run", down=down, back_after_s=back_after_s)
    assert operator.forward(until="roll").code == 0
    operator.watch = Asking(world, WorldLook(world))
    return world, operator


@pytest.mark.parametrize("down", [("source2", "source3"), ("source1", "source2", "source3")], ids=str)
def test_source_without_a_quorum_turns_the_window_back_and_no_session_is_lost(
    tmp_path: Path, down: tuple[str, ...]
) -> None:
    """It stays down for longer than a session lives: nobody expires one while source has no leader."""
    away_s = SESSION_TIMEOUT_MS / 1000 + 5
    world, operator = watched(tmp_path, down, away_s)
    sessions = {name: process.session for name, process in world.brokers.items()}

    ended = operator.forward(hold_at="cut")

    assert (ended.code, [f.id for f in ended.findings]) == (7, [Trouble.SOURCE_SICK])
    alarms = [(e.phase, e.finding.id, e.decision) for e in operator.events if isinstance(e, Alarm)]
    assert alarms == [("cut", Trouble.SOURCE_SICK, "back")]
    assert world.now - operator.held_at > away_s, "the way back waited for source"
    assert [n for n in world.inventory.dest_names if world.hosts[n].fence.holds(world.now)] == []
    assert {world.mode(name) for name in world.inventory.dest_names} == {"observer"}
    world.advance(SESSION_TIMEOUT_MS / 1000 + 5)
    assert {name: process.session for name, process in world.brokers.items()} == sessions
    assert set(sessions.values()) <= set(world.source.tree().sessions)


def test_source_that_stays_down_leaves_no_door_shut(tmp_path: Path) -> None:
    """The way back gives up after its time; what the operator holds shut then opens by itself."""
    world, operator = watched(tmp_path, ("source1", "source2"), 10_000.0)

    assert operator.forward(hold_at="cut").code == 8

    world.advance(30.0)
    assert [n for n in world.inventory.dest_names if world.hosts[n].fence.holds(world.now)] == []
    world.source_down.clear()
    world.advance(30.0)
    assert operator.resume().code == 7
    assert {world.mode(name) for name in world.inventory.dest_names} == {"observer"}


def test_one_source_host_down_turns_nothing_back(tmp_path: Path) -> None:
    """A follower of three: a majority serves under the same leader."""
    _, operator = watched(tmp_path, ("source1",), HELD_S)

    assert operator.forward(until="cutover", hold_at="cut").code == 0

    turns = [e.to for e in operator.events if isinstance(e, Turned) and e.way is Way.BACK]
    assert turns == ["rehearse"]


def test_source_hosts_that_are_not_heard_are_unknown_not_sick(tmp_path: Path) -> None:
    world = quiet_world()
    operator = Holding(world, tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    operator.watch = Asking(world, WorldLook(world, frozenset(("source1", "source3"))))

    ended = operator.forward(hold_at="cut")

    assert (ended.code, [f.id for f in ended.findings]) == (7, [Trouble.LOOK_UNKNOWN])
    assert {world.mode(name) for name in world.inventory.dest_names} == {"observer"}
