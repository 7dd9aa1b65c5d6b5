"""A dest host falls silent in the window: its connections stay, nobody answers. Brokers must not wait for it.

Time passes in the model as it does for the tool: a question to a silent host takes as long as the tool waits.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.move.steps.facts import surveyed
from tests.world.model.look import WorldLook
from tests.world.model.world import SESSION_TIMEOUT_MS, SLICE_S
from tests.world.operator import Operator, quiet_world
from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.move.rules.window_rules import WINDOW, deadline_s
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.ports import Answer, WatchPort
from zkmigrate.runbook.engine.watch import past_deadline
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.model.fact import Reading, Unknown
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import Trouble

SILENT = "dest2"
APPLY_S, ZKM_S, WORD_S, MUTE_S = 20.0, 30.0, 3.0, 0.3
"""What a question takes without a limit, as in ``runbook/engine/apply.py`` and
``runbook/site/observe.py``."""
OTHERS_S = 60.0
FORWARD_S = SESSION_TIMEOUT_MS / 1000
PHASES = ("fence", "cut", "stopped", "seal")


@dataclass
class ModelWatch(WatchPort):
    """The watch in the model's time: renews what answers, knows the deadline, says who is silent."""

    operator: Silenced
    back: bool = False
    end: float = math.inf
    renewing: bool = False
    heard: dict[str, float] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)

    def follow(self, stage: Stage, history: History, context: Context, /) -> None:
        fenced = history.first_sent.get(f"{stage.id}.fence")
        done = {step for step in history.done if step.startswith(f"{stage.id}.")}
        if fenced is None or f"{stage.id}.open" in done:
            self.renewing, self.end = False, math.inf
            return
        if not self.renewing and f"{stage.id}.seal" not in done:
            self.heard = dict.fromkeys(self.operator.world.inventory.dest_names, self.operator.world.now)
        self.renewing = f"{stage.id}.seal" not in done
        self.back = history.way is Way.BACK
        self.end = fenced[2] + deadline_s(context)

    def renew(self) -> None:
        world = self.operator.world
        lease = world.inventory.policy.lease
        left_ms = math.inf if self.back else (self.end - world.now) * 1000
        for name in world.inventory.dest_names:
            if not self.renewing or name in self.operator.silent or left_ms < 1:
                continue
            self.heard[name] = world.now
            if world.hosts[name].phase in ("fenced", "cut", "stopped"):
                world.renew(name, int(min(lease.fence_ttl_ms, left_ms)), int(min(lease.cut_ttl_ms, left_ms)))

    def finding(self) -> Finding | None:
        world = self.operator.world
        late = past_deadline(WINDOW.steps)
        if self.renewing and world.now >= self.end and late.id not in self.known:
            return late
        for name in sorted(self.operator.silent - self.known):
            if self.renewing and world.now - self.heard.get(name, world.now) > 2.0:
                return Finding(Trouble.HOST_UNREACHABLE, "the lease is renewed", Held.UNKNOWN, target=name)
        return None

    def answered(self, finding: Finding, /) -> None:
        self.known.add(str(finding.target) or finding.id)

    def left_s(self) -> float | None:
        return None if not self.renewing or math.isinf(self.end) else self.end - self.operator.world.now

    def close(self) -> None:
        return None


@dataclass
class Silenced(Operator):
    """``SILENT`` falls silent at the first change ``verb`` of the cut-over that it is sent.

    at_hold: it does so at the hold instead. taken: it has carried the change out. frozen: everything on the
    host stands still, not the ssh login alone. unserved: seconds from the first FENCE until all brokers were
    served again. held_until: of a hold, counted likewise. ahead: hosts that took the change before it, all
    the others.
    """

    verb: str = ""
    at_hold: bool = False
    taken: bool = False
    frozen: bool = False
    silent: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    fenced_at: float = 0.0
    unserved: float = 0.0
    held_until: float = 0.0
    ahead: set[str] = field(default_factory=set)
    others: threading.Condition = field(default_factory=threading.Condition)

    def hold(self, phase: str) -> Answer | None:
        if self.at_hold:
            self.falls_silent()
        return Answer("go") if self.world.now - self.fenced_at >= self.held_until else None

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        if operation.startswith("cutover.") and change.verb == "fence":
            self.fenced_at = self.fenced_at or self.world.now
        harmed = operation.startswith("cutover.") and change.verb == self.verb and not self.silent
        if harmed and change.where == SILENT:
            with self.others:
                assert self.others.wait_for(lambda: len(self.ahead) == 2, OTHERS_S), "the others answered"
            if self.taken:
                super()._apply(change, operation, fencing)
            self.falls_silent()
        if change.where in self.silent:
            raise HostError(self.waited_for(change.where, APPLY_S))
        outcome = super()._apply(change, operation, fencing)
        if harmed:
            with self.others:
                self.ahead.add(change.where)
                self.others.notify()
        return outcome

    def falls_silent(self) -> None:
        self.silent.add(SILENT)
        if self.frozen:
            self.world.frozen.add(SILENT)

    def waited_for(self, host: str, most_s: float) -> str:
        """Let the time pass that a question to a silent host takes; what is said of it."""
        if not (deadline.bounded() and host in self.mute):
            with self.world.lock:
                self.pass_time(deadline.remaining(most_s))
        if deadline.bounded():
            self.mute.add(host)
        return f"{host}: no answer"

    def pause(self, seconds: float) -> None:
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.watch, ModelWatch)
        end = self.world.now + seconds
        while self.world.now < end - 1e-9:
            self.watch.renew()
            self.world.advance(min(SLICE_S, end - self.world.now))
            if self.fenced_at and not all(p.connected for p in self.world.brokers.values()):
                self.unserved = self.world.now - self.fenced_at


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Silenced:
    """Everything done up to the cut-over; looks at silent hosts take their time."""
    world = quiet_world()
    operator = Silenced(world, tmp_path / "run")
    operator.watch = ModelWatch(operator)
    assert operator.forward(until="roll").code == 0
    zkm, word = WorldLook.zkm, WorldLook.word

    def silent_zkm(look: WorldLook, host: str, *words: str) -> Reading[str]:
        if host in operator.silent:
            return Unknown("timeout", operator.waited_for(host, ZKM_S))
        return zkm(look, host, *words)

    def silent_word(look: WorldLook, host: str, asked: str) -> Reading[str]:
        if host in world.frozen:
            operator.pass_time(deadline.remaining(MUTE_S if host in operator.mute else WORD_S))
            operator.mute.add(host)
            return Unknown("timeout", f"{host}: no answer")
        return word(look, host, asked)

    monkeypatch.setattr(WorldLook, "zkm", silent_zkm)
    monkeypatch.setattr(WorldLook, "word", silent_word)
    return operator


def back_by(operator: Silenced) -> float:
    """The way back has to start by then, in seconds after the first FENCE."""
    records = {"survey": surveyed(smallest_timeout_ms=SESSION_TIMEOUT_MS)}
    return deadline_s(Context("run", operator.world.inventory, records=records))


def sessions(operator: Silenced) -> dict[str, int]:
    return {name: process.session for name, process in operator.world.brokers.items()}


@pytest.mark.parametrize("frozen", [False, True], ids=["sshd", "host"])
@pytest.mark.parametrize("taken", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", PHASES)
def test_a_host_that_falls_silent_before_go_keeps_no_broker_waiting(
    made: Silenced, verb: str, taken: bool, frozen: bool
) -> None:
    before = sessions(made)
    made.verb, made.taken, made.frozen = verb, taken, frozen

    ended = made.forward(until="cutover")

    assert ended.code in (7, 8, 9)
    assert made.silent == {SILENT}
    assert made.unserved <= back_by(made) + 2
    made.pass_time(2 * SESSION_TIMEOUT_MS / 1000)
    assert sessions(made) == before
    assert set(before.values()) <= set(made.world.source.tree().sessions)


@pytest.mark.parametrize("verb", ["seal", "stopped"])
def test_a_host_that_falls_silent_just_before_the_deadline_is_waited_for_no_longer_than_until_then(
    made: Silenced, verb: str
) -> None:
    before = sessions(made)
    made.verb, made.taken, made.frozen = verb, True, True
    made.held_until = back_by(made) - 0.7

    ended = made.forward(until="cutover", hold_at="prove" if verb == "seal" else "cut")

    assert ended.code in (7, 8, 9)
    assert made.unserved <= back_by(made) + 2
    assert sessions(made) == before


@pytest.mark.parametrize("frozen", [False, True], ids=["sshd", "host"])
@pytest.mark.parametrize("phase", ["arm", "survey"])
def test_a_host_that_is_silent_before_fence_keeps_the_others_from_being_fenced(
    made: Silenced, phase: str, frozen: bool
) -> None:
    """The drills ``silent-*-arm`` and ``silent-*-survey`` expect the same: 8, then 7."""
    before = sessions(made)
    made.at_hold, made.frozen = True, frozen

    assert made.forward(until="cutover", hold_at=phase).code == 8
    assert made.fenced_at == 0
    made.silent.clear()
    made.world.frozen.clear()
    assert made.resume(until="cutover").code == 7
    assert {made.world.hosts[name].phase for name in made.world.inventory.dest_names} == {"idle"}
    assert sessions(made) == before


@pytest.mark.parametrize("frozen", [False, True], ids=["sshd", "host"])
@pytest.mark.parametrize("phase", ["go", "serve", "check"])
def test_a_host_that_is_silent_from_go_on_is_not_waited_for(made: Silenced, phase: str, frozen: bool) -> None:
    before = sessions(made)
    made.at_hold, made.frozen = True, frozen

    assert made.forward(until="cutover", hold_at=phase).code == 0
    assert made.world.hosts["dest1"].phase == made.world.hosts["dest3"].phase == "open"
    assert made.unserved <= FORWARD_S + 2
    assert sessions(made) == before


@pytest.mark.parametrize("frozen", [False, True], ids=["sshd", "host"])
@pytest.mark.parametrize("taken", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", ["go", "checked", "open"])
def test_a_host_that_falls_silent_after_seal_keeps_no_broker_waiting(
    made: Silenced, verb: str, taken: bool, frozen: bool
) -> None:
    before = sessions(made)
    made.verb, made.taken, made.frozen = verb, taken, frozen

    made.forward(until="cutover")

    made.pass_time(2 * FORWARD_S)
    assert made.unserved <= FORWARD_S + 2
    assert sessions(made) == before
    assert made.world.dest is not None
    assert set(before.values()) <= set(made.world.dest.tree().sessions)
