"""Before FENCE: a window that cannot succeed is not begun, and the lease fits the hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.model.look import WorldLook
from tests.world.operator import Operator, quiet_world
from tests.world.rolled import rehearsed_as, rolled
from zkmigrate.runbook.engine.events import StepEnded
from zkmigrate.runbook.model.change import Cut, Fence
from zkmigrate.runbook.model.fact import Reading, Unknown
from zkmigrate.runbook.model.finding import Finding, Held


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return rolled(tmp_path)


def slow(monkeypatch: pytest.MonkeyPatch, host: str, seconds: float) -> None:
    """A host that answers so late."""
    answer = WorldLook.zkm

    def zkm(look: WorldLook, name: str, *words: str) -> Reading[str]:
        if name == host and words[0] == "stamp":
            look.world.advance(seconds)
        return answer(look, name, *words)

    monkeypatch.setattr(WorldLook, "zkm", zkm)


def leases(operator: Operator) -> set[tuple[str, int]]:
    """The leases of FENCE and CUT that the cut-over sent."""
    sent = [c for c, op in operator.world.applied if op.startswith("cutover.") and isinstance(c, Fence | Cut)]
    return {(c.verb, c.ttl_ms) for c in sent}


def told(operator: Operator, id: str) -> Finding:
    ends = [e for e in operator.events if isinstance(e, StepEnded) and e.stage == "cutover"]
    [found] = [f for e in ends for f in e.findings if f.id == id]
    return found


def test_quick_hosts_get_the_lease_of_the_policy(operator: Operator) -> None:
    assert operator.forward(until="cutover").code == 0
    assert leases(operator) == {("fence", 5000), ("cut", 2000)}
    assert told(operator, "survey.window-fits").held is Held.YES


def test_a_host_that_answers_late_gets_a_longer_lease(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch, "dest2", 0.9)
    assert operator.forward(until="cutover").code == 0
    assert leases(operator) == {("fence", 6000), ("cut", 4000)}
    assert "lease: fence 6000 ms, cut 4000 ms" in told(operator, "survey.lease").seen


def test_a_host_that_answers_too_late_is_refused_before_fence_with_both_figures(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch, "dest2", 2.2)
    ended = operator.forward(until="cutover")
    assert ended.code == 7
    [found] = [f for f in ended.findings if f.blocks]
    assert found.id == "survey.lease"
    assert "dest2: 2.20 s" in found.seen
    assert "a cut of 8000 ms and a fence of 10000 ms cover the longest round trip" in found.needed
    assert "allow 6500 and 9000 ms" in found.needed
    assert leases(operator) == set()


def test_a_host_that_is_not_heard_while_it_is_measured_is_refused_before_fence(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = WorldLook.zkm

    def zkm(look: WorldLook, name: str, *words: str) -> Reading[str]:
        if name == "dest3" and words[0] == "stamp":
            return Unknown("timeout", "no answer")
        return answer(look, name, *words)

    monkeypatch.setattr(WorldLook, "zkm", zkm)
    ended = operator.forward(until="cutover")
    assert (ended.code, [f.id for f in ended.findings if f.blocks]) == (7, ["survey.lease"])
    assert leases(operator) == set()


@pytest.mark.parametrize(("took_s", "code"), [(6.4 / 1.5, 0), (6.6 / 1.5, 7)])
def test_fence_is_not_sent_where_the_rehearsed_time_does_not_fit(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, took_s: float, code: int
) -> None:
    """18 s sessions and a way back of 2.5 s leave 6.5 s."""
    rehearsed_as(operator, monkeypatch, took_s)
    ended = operator.forward(until="cutover")
    assert ended.code == code
    if code == 0:
        return
    [found] = [f for f in ended.findings if f.blocks]
    assert found.id == "survey.window-fits"
    assert "this took 4.4 s in the rehearsal, times 1.5 (policy.window_margin) is 6.6 s" in found.seen
    assert "6.5 s after FENCE" in found.seen
    assert leases(operator) == set()


def test_fence_is_not_sent_where_nobody_rehearsed_and_the_hosts_are_too_slow_for_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    slow(monkeypatch, "dest2", 0.4)
    ended = operator.forward(until="cutover", skip=("rehearse",))
    assert ended.code == 7
    [found] = [f for f in ended.findings if f.blocks]
    assert found.id == "survey.window-fits"
    assert found.seen == (
        "not rehearsed, so this is assumed to take 7.2 s: the longer of policy.way_back_s (2.5 s) times 1.5 "
        "(policy.window_margin) and 18 round trips of 0.40 s; the way back must start 6.5 s after FENCE"
    )
    assert found.moves[0] == "rehearse, which measures the time: zkmigrate rollback --to rehearse, then run"
    assert leases(operator) == set()
