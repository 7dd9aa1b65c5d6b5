"""Waiting by progress: hours of it are waited for, a standstill is not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.unit.engine_world import Tiny
from zkmigrate.errors import HostError
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.pause_points import PausePoints
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.engine.run import Patience, Walk
from zkmigrate.runbook.model.step import Ready, Verdict, Waiting, Way

HOUR_S = 3600.0


def forward(walk: Walk) -> RunEnded:
    return walk.forward(until="prepare.one")


def moves(mark: object, deadline_s: float = math.inf) -> Waiting:
    return Waiting("every replica is in place", f"{mark} of 9", deadline_s, 30.0, mark=mark, stalled_s=60.0)


class Moved:
    """A step's verdict while something moves at the hour; it stands still from ``stuck_s`` on."""

    def __init__(self, tiny: Tiny, stuck_s: float = math.inf, step_s: float = 45.0) -> None:
        self.tiny, self.begun = tiny, tiny.clock.t
        self.stuck_s, self.step_s = stuck_s, step_s

    def __call__(self, _way: Way) -> Verdict | None:
        passed = self.tiny.clock.t - self.begun
        if passed >= 9 * HOUR_S:
            return None
        return moves(min(passed, self.stuck_s) // self.step_s)


def test_nine_hours_that_get_on_are_waited_for(tiny: Tiny) -> None:
    tiny.steps["one"].verdict = Moved(tiny)
    assert tiny.process(forward).code == 0
    assert tiny.clock.t - 1000.0 == pytest.approx(9 * HOUR_S, abs=60.0)


def test_a_minute_without_progress_ends_the_wait_and_says_so(tiny: Tiny) -> None:
    tiny.steps["one"].verdict = Moved(tiny, stuck_s=2 * HOUR_S)
    ended = tiny.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (6, "engine.wait-over")
    assert finding.claim == "progress at least every 60 s until every replica is in place"
    assert finding.seen == "160.0 of 9; no progress for 60 s"
    assert "rollback" in finding.moves
    assert tiny.clock.t - 1000.0 == pytest.approx(2 * HOUR_S + 60.0)


def test_on_the_way_back_no_way_back_is_offered(tiny: Tiny) -> None:
    assert tiny.process(forward).code == 0
    tiny.steps["one"].verdict = lambda way: moves(3) if way is Way.BACK else None
    [finding] = tiny.process(lambda walk: walk.back()).findings
    assert finding.id == "engine.wait-over"
    assert "rollback" not in finding.moves


def test_a_process_that_resumes_gives_the_whole_time_again(tiny: Tiny) -> None:
    tiny.steps["one"].verdict = lambda _way: moves(3)
    for _ in range(2):
        begun = tiny.clock.t
        assert tiny.process(lambda walk: walk.resume()).code == 6
        assert tiny.clock.t - begun == pytest.approx(60.0)


def test_a_wall_clock_that_is_set_changes_nothing(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny.clock, "wall", lambda: 1_700_000_000.0 + tiny.clock.t * -1000.0)
    tiny.steps["one"].verdict = Moved(tiny, stuck_s=HOUR_S)
    assert tiny.process(forward).code == 6
    assert tiny.clock.t - 1000.0 == pytest.approx(HOUR_S + 60.0)


@pytest.mark.parametrize(("found", "code"), [(3, 6), (4, 0)], ids=["as it was", "it got on"])
def test_a_process_that_was_stopped_for_hours_looks_before_it_judges(
    tiny: Tiny, found: int, code: int
) -> None:
    turns = iter([moves(3), moves(found)])

    def verdict(_way: Way) -> Verdict | None:
        turn = next(turns, None)
        if turn is not None and turn.mark == found:
            tiny.clock.t += 5 * HOUR_S
        return turn

    tiny.steps["one"].verdict = verdict
    assert tiny.process(forward).code == code


def test_hosts_that_do_not_answer_in_between_hide_no_standstill(tiny: Tiny) -> None:
    looks = iter(range(10_000))

    def verdict(_way: Way) -> Verdict | None:
        if next(looks) % 2:
            raise HostError("no answer")
        return moves(3)

    tiny.steps["one"].verdict = verdict
    ended = tiny.process(forward)
    assert ended.findings[0].seen.startswith("3 of 9; no progress for")


def at(clock: list[float], *steps: tuple[float, Callable[[Patience], float | None]]) -> list[float]:
    """What is left after each step that waits; a step comes so many seconds after the one before."""
    patience, left = Patience(lambda: clock[0]), []
    for seconds, step in steps:
        clock[0] += seconds
        if (said := step(patience)) is not None:
            left.append(said)
    return left


def wait(mark: object, deadline_s: float = math.inf) -> Callable[[Patience], float | None]:
    return lambda patience: patience.left(moves(mark, deadline_s))


def test_waves_and_holds_neither_count_as_standing_still_nor_hide_it() -> None:
    steps = ((0.0, wait(1)), (20.0, wait(1)), (5.0, Patience.ready), (HOUR_S, wait(1)), (30.0, wait(1)))
    assert at([7.0], *steps) == [60.0, 40.0, 40.0, 10.0]


def test_any_other_mark_is_progress_and_the_deadline_holds_all_the_same() -> None:
    steps = ((0.0, wait(5, 100.0)), (50.0, wait(4, 100.0)), (45.0, wait(5, 100.0)))
    assert at([7.0], *steps) == [60.0, 50.0, 5.0]


def test_another_wait_in_between_does_not_begin_the_standstill_anew() -> None:
    other: Callable[[Patience], float | None] = lambda p: p.left(Waiting("an answer", "", 300.0))  # noqa: E731
    assert at([7.0], (0.0, wait(1)), (40.0, wait(1)), (1.0, other), (1.0, wait(1))) == [
        60.0,
        20.0,
        300.0,
        19.0,
    ]


def test_an_operators_hold_does_not_eat_up_the_wait_after_it(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waiting("in sync", "no", 50.0)
    turns = iter([Ready(("d1",)), waits, Ready(("d2",)), waits])
    tiny.steps["one"].verdict = lambda _way: next(turns, None)

    held = iter([Answer("go")])

    def between(*_: object, **__: object) -> Answer | None:
        tiny.clock.t += HOUR_S
        return next(held, None)

    monkeypatch.setattr(PausePoints, "between", between)
    assert tiny.process(forward).code == 0
    assert tiny.clock.t > 1000.0 + HOUR_S
