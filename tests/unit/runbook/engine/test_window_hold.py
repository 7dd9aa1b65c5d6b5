"""A window asks its watch before it judges, holds no longer than it may, and never waits without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.unit.engine_world import Tiny, TinyClock, back, tiny_window, until
from zkmigrate.inventory.inventory import Policy
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.history import Leave, Next, Turn
from zkmigrate.runbook.engine.hold_file import Hold, HoldFile
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.ports import Answer, WatchPort
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Blocked, Context, Verdict, Way
from zkmigrate.runbook.model.window import Decision, Trouble

PATIENCE_S = 200.0


class Clock(TinyClock):
    """Time passes a little with each question too, and nobody may ask for hours."""

    def now(self) -> float:
        self.t += 0.001
        assert self.t < 1000.0 + PATIENCE_S, "it waits without end"
        return self.t

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        self.now()


@dataclass
class Watched(WatchPort):
    """A watch with findings of the test's choice; each is told until it is answered."""

    found: list[Finding] = field(default_factory=list)
    left: float | None = None
    asked: int = 0

    def finding(self) -> Finding | None:
        self.asked += 1
        assert self.asked < 2000, "it is asked without end"
        return self.found[0] if self.found else None

    def answered(self, finding: Finding, /) -> None:
        self.found.remove(finding)

    def left_s(self) -> float | None:
        return self.left


def trouble(id: str, held: Held = Held.NO) -> Finding:
    return Finding(id, "all is well", held, seen="it is not")


LAPSED = trouble(Trouble.LEASE_LAPSED)


def turns_back(_phase: str, finding: Finding, _policy: Policy) -> Decision:
    return Decision.GO if finding.id.startswith("main.harmless") else Decision.BACK


WINDOW = tiny_window(turns_back, 1e9)


def in_the_window(folder: Path, **also: object) -> Tiny:
    """A run that has sealed nothing yet, before ``prove``."""
    tiny = Tiny(folder / "r", clock=Clock(), **{"window": WINDOW, **also})  # type: ignore[arg-type]
    assert tiny.process(until("main.cut")).code == 0
    return tiny


def always(*findings: Finding, way: Way = Way.FORWARD) -> Callable[[Way], Verdict | None]:
    return lambda asked: Blocked(findings) if asked is way else None


# --- a step that is refused ----------------------------------------------------------------------------


def test_a_lapsed_lease_is_heard_of_before_the_step_that_it_blocks_is_judged(tmp_path: Path) -> None:
    """Its code is 9: the hosts went back alone. What the step saw came of that."""
    watch = Watched()
    tiny = in_the_window(tmp_path, watch=watch)

    def lapses(way: Way) -> Verdict | None:
        if way is Way.FORWARD:
            watch.found.append(LAPSED)
            return Blocked((trouble("main.trouble"),))
        return None

    tiny.steps["prove"].verdict = lapses
    ended = tiny.process(lambda walk: walk.resume())
    assert (ended.code, [f.id for f in ended.findings]) == (9, [Trouble.LEASE_LAPSED])


def test_a_step_that_stays_blocked_is_looked_at_again_for_the_steps_time(tmp_path: Path) -> None:
    tiny = in_the_window(tmp_path, policy={"step_deadline_s": 30.0})
    tiny.steps["prove"].verdict = always(trouble("main.harmless"))
    begun = tiny.clock.t
    ended = tiny.process(lambda walk: walk.resume())
    assert (ended.code, ended.message) == (
        8, "main.prove was still blocked when it was too late to turn back"
    )  # fmt: skip
    assert 30.0 < tiny.clock.t - begun < 40.0
    assert tiny.steps["prove"].visits < 40, "a second lies between two looks"


def test_what_does_not_block_turns_nothing_back_beside_what_does(tmp_path: Path) -> None:
    tiny = in_the_window(tmp_path, policy={"step_deadline_s": 5.0})
    tiny.steps["prove"].verdict = always(trouble("main.remark", Held.YES), trouble("main.harmless"))
    assert tiny.process(lambda walk: walk.resume()).code == 8


def test_a_step_that_is_blocked_without_a_blocking_finding_is_judged_by_those_it_has(tmp_path: Path) -> None:
    tiny = in_the_window(tmp_path)
    tiny.steps["prove"].verdict = always(trouble("main.remark", Held.YES))
    assert tiny.process(lambda walk: walk.resume()).code == 7


# --- a missing answer on the way back ------------------------------------------------------------------


def unheard(times: int, held: Held = Held.UNKNOWN) -> Callable[[Way], Verdict | None]:
    left = [times]

    def verdict(way: Way) -> Verdict | None:
        if way is Way.FORWARD or not left[0]:
            return None
        left[0] -= 1
        return Blocked((trouble("main.silent", held), trouble("main.remark", Held.YES)))

    return verdict


@pytest.mark.parametrize(
    ("times", "held", "code"),
    [(5, Held.UNKNOWN, 0), (1, Held.NO, 8), (10_000, Held.UNKNOWN, 8)],
    ids=["it answers again", "it says no", "it stays silent"],
)
def test_on_the_way_back_a_silent_host_is_asked_again_for_ten_seconds(
    tmp_path: Path, times: int, held: Held, code: int
) -> None:
    tiny = in_the_window(tmp_path)
    tiny.steps["cut"].verdict = unheard(times, held)
    begun = tiny.clock.t
    assert tiny.process(back).code == code
    if times == 5:
        assert tiny.clock.pauses >= 5
        assert tiny.hosts.files == {}
    else:
        assert tiny.clock.t - begun < 20.0


def silent_for(clock: TinyClock, seconds: float) -> Callable[[Way], Verdict | None]:
    """The verdict of a step that gets no answer for so long, from its first look on the way back."""
    ends: list[float] = []

    def verdict(way: Way) -> Verdict | None:
        if way is Way.FORWARD:
            return None
        ends.append(clock.t + seconds)
        return Blocked((trouble("main.silent", Held.UNKNOWN),)) if clock.t < ends[0] else None

    return verdict


@pytest.mark.parametrize(
    ("renews", "silent_s", "code"),
    [(False, 25.0, 0), (False, 90.0, 8), (True, 25.0, 8)],
    ids=["a broker's session", "longer than a step may take", "hosts under a lease"],
)
def test_what_opens_by_itself_leaves_a_silent_coordinator_the_time_of_a_step(
    tmp_path: Path, renews: bool, silent_s: float, code: int
) -> None:
    """A broker under ZooKeeper needs 18 s by default until another one coordinates its groups."""
    tiny = in_the_window(tmp_path, policy={"step_deadline_s": 60.0}, window=replace(WINDOW, renews=renews))
    tiny.steps["cut"].verdict = silent_for(tiny.clock, silent_s)
    assert tiny.process(back).code == code


def test_outside_a_window_a_silent_host_stops_the_way_back_at_once(tmp_path: Path) -> None:
    tiny = in_the_window(tmp_path)
    tiny.steps["two"].verdict = unheard(1)
    assert tiny.process(back).code == 8


# --- holding -------------------------------------------------------------------------------------------


@dataclass
class Holds:
    """A hold after a step of the cut-over, as the walk makes it."""

    tiny: Tiny
    book: Journal
    walk: Walk
    stops: int = 0
    how: str = ""

    def hold(self, step: str = "cut", let_go: Callable[[], bool] = lambda: False) -> Answer:
        stage = self.tiny.playbook.stages[3]
        at = Next(stage, next(s for s in stage.steps if s.id == step), Way.FORWARD)
        file = HoldFile(self.tiny.run_dir)
        file.place(Hold(at=at.id, why="lunch", by="ann@ops"))

        def stop_if_asked() -> None:
            self.stops += 1
            if let_go():
                file.answered()

        self.walk._pauses._stop_if_asked = stop_if_asked
        try:
            return self.walk._pauses.after(at)
        finally:
            self.how = next(e.how for e in reversed(self.tiny.seen) if isinstance(e, events.HoldEnded))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[..., Holds]]:
    books: list[Journal] = []

    def made(watch: WatchPort | None = None, deadline_s: float = 60.0, until_step: str = "cut") -> Holds:
        tiny = Tiny(
            tmp_path / "r",
            window=tiny_window(turns_back, deadline_s),
            clock=Clock(),
            watch=watch or WatchPort(),
            policy={"open_limit_s": 30.0},
        )
        assert tiny.process(until(f"main.{until_step}")).code == 0
        book = tiny.journal()
        books.append(book)
        walk = tiny.walk(book)
        tiny.confirm.hold = lambda _phase: None  # type: ignore[method-assign, assignment]
        walk._window._context = Context("tiny-1", walk.inventory)
        return Holds(tiny, book, walk)

    yield made
    for book in books:
        book.close()


def test_a_hold_ends_when_it_is_released_and_listens_meanwhile(desk: Callable[..., Holds]) -> None:
    watch = Watched()
    held = desk(watch)
    asked = watch.asked
    looks = iter(range(1, 6))
    assert held.hold(let_go=lambda: next(looks) == 5) == Answer("go")
    assert (held.stops, held.how) == (5, "released"), "Ctrl-C is asked for at each turn"
    assert watch.asked - asked == 5, "and so is the watch"
    assert held.tiny.clock.pauses >= 4
    shown = [e for e in held.tiny.seen if isinstance(e, events.Holding)]
    assert (len(shown), shown[0].who) == (5, "ann@ops: lunch")


def test_trouble_ends_a_hold(desk: Callable[..., Holds]) -> None:
    held = desk(watch := Watched())
    watch.found.append(trouble("main.trouble"))
    with pytest.raises(Leave) as left:
        held.hold()
    assert isinstance(left.value.outcome, Turn)
    assert (left.value.outcome.code, held.how) == (7, "left")


def test_a_hold_that_was_forgotten_ends_when_the_way_back_must_begin(desk: Callable[..., Holds]) -> None:
    held = desk(deadline_s=60.0)
    with pytest.raises(Leave) as left:
        held.hold()
    turn = left.value.outcome
    assert isinstance(turn, Turn)
    assert (turn.to, turn.code, [f.id for f in turn.findings]) == ("main", 7, [Trouble.DEADLINE])
    assert "lasted until the way back had to begin" in turn.why
    assert HoldFile(held.tiny.run_dir).wanted() is not None, "it is kept for the next run"


def test_a_hold_on_sealed_hosts_ends_and_the_run_goes_on(desk: Callable[..., Holds]) -> None:
    held = desk(until_step="seal")
    assert held.hold("seal") == Answer("go")
    assert held.how == "deadline"
    assert HoldFile(held.tiny.run_dir).wanted() is None, "the run is past its place"


def test_an_answer_at_the_run_s_terminal_ends_a_hold(desk: Callable[..., Holds]) -> None:
    held = desk()
    answers = iter([None, None])
    held.tiny.confirm.hold = lambda _phase: next(answers, Answer("back", by="ann"))  # type: ignore[method-assign, assignment]
    assert held.hold() == Answer("back", by="ann")
    assert held.how == "back"
    assert HoldFile(held.tiny.run_dir).wanted() is None


@pytest.mark.parametrize(("since_s", "ends_after_s"), [(0.0, 30.0), (29.0, 1.0)])
def test_once_hosts_serve_a_hold_file_ends_when_they_open_alone(
    desk: Callable[..., Holds], since_s: float, ends_after_s: float
) -> None:
    """It is too late for a way back by then, which is nothing to them."""
    held = desk(deadline_s=0.0, until_step="seal")
    clock = held.tiny.clock
    history = held.book.history
    history.done.add("main.serve")
    history.done_at["main.serve"] = clock.wall() - since_s
    begun = clock.t
    assert held.hold("seal") == Answer("go")
    assert held.how == "deadline"
    assert clock.t - begun == pytest.approx(ends_after_s, abs=0.5)


def test_what_served_before_a_turn_or_at_a_time_that_is_not_known_ends_no_hold(
    desk: Callable[..., Holds],
) -> None:
    held = desk(deadline_s=60.0)
    clock, history = held.tiny.clock, held.book.history
    history.done_at["main.serve"] = clock.wall() - 1000.0
    begun = clock.t
    with pytest.raises(Leave):
        held.hold()
    assert clock.t - begun == pytest.approx(60.0, abs=1.0)
    history.done.add("main.serve")
    del history.done_at["main.serve"]
    with pytest.raises(Leave):
        held.hold()


def test_before_anything_was_fenced_nothing_is_late(desk: Callable[..., Holds]) -> None:
    held = desk(deadline_s=0.0)
    held.book.history.first_sent.clear()
    looks = iter(range(9))
    assert held.hold(let_go=lambda: next(looks) == 5) == Answer("go")
    assert held.how == "released"
