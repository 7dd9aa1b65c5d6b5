"""The watch: renewals with the right times, findings, and how they turn the walk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.engine_world import (
    HOSTS,
    LEASE,
    Tiny,
    decide,
    eventually,
    forward,
    inventory,
    tiny_window,
    until,
    waiting,
)
from tests.world.model.ensemble import srvr
from zkmigrate.errors import HostError
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.inventory.inventory import Lease, Policy
from zkmigrate.move.rules import probes
from zkmigrate.runbook.engine import events, journal
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.ports import WatchPort
from zkmigrate.runbook.engine.renewal_process import SecondRenewer
from zkmigrate.runbook.engine.watch import Watch
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import Blocked, Context, Verdict, Way
from zkmigrate.runbook.model.window import Decide, Decision, Probe, Trouble, Word
from zkmigrate.zookeeper.data.four_letter_words import Srvr, parse_srvr
from zkmigrate.zookeeper.facts.ensemble import EnsembleView

CONTEXT = Context("tiny-1", inventory())


class Renewals:
    """Records renewals; ``answer`` says what a host answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, int]] = []
        self.answer: Callable[[str], Outcome] = lambda _host: Outcome(0, "renewed")

    def __call__(self, host: str, fence_ms: int, cut_ms: int) -> Outcome:
        self.sent.append((host, fence_ms, cut_ms))
        return self.answer(host)


class Moment:
    def __init__(self, t: float = 1000.0) -> None:
        self.t = t

    def now(self) -> float:
        return self.t

    def wall(self) -> float:
        return 1_700_000_000.0 + self.t


def fenced(tmp_path: Path, step: str = "main.fence", deadline_s: float = 8.0) -> tuple[Stage, History]:
    """Stage ``main`` and the history of a run that has walked through ``step`` at 1000 on both clocks."""
    tiny = Tiny(tmp_path / "r", window=tiny_window(decide, deadline_s))
    tiny.process(until(step))
    history = journal.read(tiny.run_dir)
    line, _, _ = history.first_sent["main.fence"]
    history.first_sent["main.fence"] = (line, 1_700_001_000.0, 1000.0)
    return tiny.playbook.stages[-1], history


@contextmanager
def watching(
    moment: Moment, renew: Renewals, *asked: Probe, second: SecondRenewer | None = None
) -> Iterator[Watch]:
    watch = Watch(HOSTS, renew, moment.now, moment.wall, lambda _stage: asked, second)
    try:
        yield watch
    finally:
        watch.close()


def what(watch: Watch) -> Finding:
    """What it found."""
    found = watch.finding()
    assert found is not None
    return found


def test_the_first_round_reaches_every_host_before_the_walk_goes_on(tmp_path: Path) -> None:
    renew = Renewals()
    with watching(Moment(), renew) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        assert sorted(renew.sent[:3]) == [(host, 5000, 2000) for host in HOSTS]
        assert watch.left_s() == pytest.approx(8.0)
        eventually(
            "every host is renewed again", lambda: all(sum(s[0] == h for s in renew.sent) > 2 for h in HOSTS)
        )
    count = len(renew.sent)
    assert not any(t.name.startswith("renew-") for t in threading.enumerate())
    assert len(renew.sent) == count


class Other(SecondRenewer):
    """A second process that reached every host at ``at``; keeps the orders it got."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.orders: list[float] = []
        self.calls: list[str] = []

    def ready(self) -> None:
        self.calls.append("ready")

    def renew(self, lease: Lease, until: float) -> None:
        assert lease == LEASE
        self.orders.append(until)

    def reached(self, host: str) -> float:
        assert host in HOSTS
        return self.at

    def close(self) -> None:
        self.calls.append("close")


def test_a_host_that_the_other_process_reaches_gets_no_renewal_from_the_thread(tmp_path: Path) -> None:
    moment, renew = Moment(), Renewals()
    other = Other(moment.t)
    with watching(moment, renew, second=other) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        eventually("every thread has come round", lambda: len(other.orders) > 12)
        assert len(renew.sent) == len(HOSTS)  # the first round
        other.at = moment.t - 0.2
        eventually("the threads renew", lambda: {sent[0] for sent in renew.sent[3:]} == set(HOSTS))


def unreachable(_host: str) -> Outcome:
    raise HostError("no route")


def test_what_the_other_process_reached_before_it_died_counts(tmp_path: Path) -> None:
    moment, renew = Moment(), Renewals()
    other = Other(moment.t + 10.0)
    with watching(moment, renew, second=other) as watch:
        watch.follow(*fenced(tmp_path, deadline_s=600.0), CONTEXT)
        renew.answer = unreachable
        moment.t += 10.0
        count = len(other.orders)
        eventually("every thread has come round", lambda: len(other.orders) > count + 12)
        other.at = 0.0
        count = len(renew.sent)
        eventually("renewals of the threads fail", lambda: len(renew.sent) > count + 6)
        assert watch.finding() is None


def test_what_the_other_process_reached_while_a_renewal_failed_counts(tmp_path: Path) -> None:
    moment, renew = Moment(), Renewals()
    other = Other(0.0)

    def slow(_host: str) -> Outcome:
        moment.t, other.at = 1010.0, 1009.0  # late for a renewal, early for the end of a lease
        raise HostError("timeout")

    with watching(moment, renew, second=other) as watch:
        watch.follow(*fenced(tmp_path, deadline_s=600.0), CONTEXT)
        renew.answer = slow
        count = len(renew.sent)
        eventually("renewals of the threads fail", lambda: len(renew.sent) > count + 6)
        assert watch.finding() is None


def test_a_host_that_the_other_process_reaches_again_is_no_longer_unreachable(tmp_path: Path) -> None:
    moment, renew = Moment(), Renewals()
    other = Other(0.0)
    with watching(moment, renew, second=other) as watch:
        watch.follow(*fenced(tmp_path, deadline_s=600.0), CONTEXT)
        renew.answer = unreachable
        moment.t += 10.0
        eventually("a host is unreachable", lambda: watch.finding() is not None)
        other.at = moment.t
        eventually("nothing is wrong", lambda: watch.finding() is None)


@pytest.mark.parametrize(("deadline_s", "until_s"), [(8.0, 1008.0), (600.0, 1030.0), (float("inf"), 1030.0)])
def test_the_other_process_is_told_an_end_that_a_hanging_walk_does_not_move(
    tmp_path: Path, deadline_s: float, until_s: float
) -> None:
    other = Other(1000.0)
    with watching(Moment(), Renewals(), second=other) as watch:
        watch.follow(*fenced(tmp_path, deadline_s=deadline_s), CONTEXT)
        assert other.orders[-1] == until_s
    assert other.orders[-1] == 0.0
    assert other.calls == ["close"]


def test_on_the_way_back_the_other_process_is_ordered_no_longer_than_the_fence_holds(tmp_path: Path) -> None:
    other = Other(1009.0)
    stage, history = fenced(tmp_path)
    history.way = Way.BACK
    with watching(Moment(1009.0), Renewals(), second=other) as watch:
        watch.follow(stage, history, CONTEXT)
        assert other.orders[-1] == 1009.0 + LEASE.fence_ttl_ms / 1000


def test_the_other_process_logs_in_before_fence_and_stops_renewing_after_seal(tmp_path: Path) -> None:
    other = Other(1000.0)
    stage, history = fenced(tmp_path)
    with watching(Moment(), Renewals(), second=other) as watch:
        watch.follow(stage, History(), CONTEXT)
        assert (other.calls, other.orders) == (["ready"], [])
        watch.follow(stage, history, CONTEXT)
        history.done.add("main.seal")
        watch.follow(stage, history, CONTEXT)
        eventually("the threads order nothing else", lambda: other.orders[-6:] == [0.0] * 6)
        assert other.calls == ["ready"]


def test_no_renewal_reaches_past_the_deadline(tmp_path: Path) -> None:
    renew, moment = Renewals(), Moment(1006.5)
    with watching(moment, renew) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        assert sorted(renew.sent[:3])[0] == ("d1", 1500, 1500)
        moment.t = 1008.5
        assert what(watch).id == Trouble.DEADLINE
        threads = [t for t in threading.enumerate() if t.name.startswith("renew-")]
        count = len(renew.sent)
        eventually("the renewers run on", lambda: len(threads) == 3 and all(t.is_alive() for t in threads))
        assert len(renew.sent) <= count + 3  # at most the round that was on its way


def test_on_the_way_back_the_lease_is_kept_past_the_deadline(tmp_path: Path) -> None:
    renew = Renewals()
    stage, history = fenced(tmp_path)
    history.way = Way.BACK
    with watching(Moment(1009.0), renew) as watch:
        watch.follow(stage, history, CONTEXT)
        assert sorted(renew.sent[:3]) == [(host, 5000, 2000) for host in HOSTS]


def test_a_resumed_window_counts_from_the_first_fence_by_the_wall_clock(tmp_path: Path) -> None:
    moment = Moment(1003.0)
    stage, history = fenced(tmp_path)
    line, wall, _ = history.first_sent["main.fence"]
    history.first_sent["main.fence"] = (line, wall, 999_999.0)  # another machine's monotonic clock
    with watching(moment, Renewals()) as watch:
        watch.follow(stage, history, CONTEXT)
        assert watch.left_s() == pytest.approx(5.0)


@pytest.mark.parametrize(("answer", "found"), [("lapsed", Trouble.LEASE_LAPSED), ("", Trouble.DEADLINE)])
def test_a_window_taken_up_after_its_deadline_asks_once_whether_the_lease_has_ended(
    tmp_path: Path, answer: str, found: str
) -> None:
    """The operator was away for a minute: that hosts have gone back alone is the reason, not the clock."""
    renew, moment = Renewals(), Moment(1060.0)
    renew.answer = lambda _host: Outcome(3, answer) if answer else Outcome(0, "permanent")
    with watching(moment, renew) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        assert what(watch).id == found
        assert sorted(renew.sent) == [(host, 1, 1) for host in HOSTS]


def test_nothing_is_renewed_before_fence_after_seal_and_after_open(tmp_path: Path) -> None:
    renew = Renewals()
    stage, history = fenced(tmp_path)
    with watching(Moment(), renew) as watch:
        watch.follow(stage, History(), CONTEXT)
        assert renew.sent == []
        assert watch.left_s() is None
        watch.follow(stage, history, CONTEXT)
        history.done.add("main.seal")
        watch.follow(stage, history, CONTEXT)
        assert watch.left_s() is None
        history.done.discard("main.seal")
        watch.follow(stage, history, CONTEXT)
        assert watch.left_s() is not None, "unsealed on the way back: the lease runs again"
        history.done.add("main.open")
        watch.follow(stage, history, CONTEXT)
        assert not any(t.name.startswith("renew-") for t in threading.enumerate())


def rounds(other: Other, many: int = 4) -> None:
    """Wait until every host's thread has come round so often."""
    count = len(other.orders)
    eventually("every thread has come round", lambda: len(other.orders) >= count + many * len(HOSTS))


def test_past_its_deadline_nothing_is_renewed_for_no_time_at_all(tmp_path: Path) -> None:
    renew, moment, other = Renewals(), Moment(1007.0), Other(0.0)
    with watching(moment, renew, second=other) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        moment.t = 1008.5
        rounds(other, 1)  # of which each may have begun before the deadline
        renew.sent.clear()
        rounds(other)
        assert renew.sent == []


def test_once_seal_is_done_no_thread_renews(tmp_path: Path) -> None:
    renew, other = Renewals(), Other(0.0)
    stage, history = fenced(tmp_path)
    with watching(Moment(), renew, second=other) as watch:
        watch.follow(stage, history, CONTEXT)
        history.done.add("main.seal")
        watch.follow(stage, history, CONTEXT)
        rounds(other, 1)
        renew.sent.clear()
        rounds(other)
        assert renew.sent == []
        assert other.orders[-1] == 0.0


def test_once_seal_is_done_a_deadline_that_has_passed_is_no_trouble(tmp_path: Path) -> None:
    moment = Moment()
    stage, history = fenced(tmp_path)
    with watching(moment, Renewals()) as watch:
        watch.follow(stage, history, CONTEXT)
        history.done.add("main.seal")
        watch.follow(stage, history, CONTEXT)
        moment.t += 100.0
        assert watch.finding() is None


def test_following_again_begins_no_second_thread_and_no_second_round(tmp_path: Path) -> None:
    renew, other, stage_and_history = Renewals(), Other(1000.0), fenced(tmp_path)
    with watching(Moment(), renew, second=other) as watch:
        for _ in range(3):
            watch.follow(*stage_and_history, CONTEXT)
        assert sum(t.name.startswith("renew-") for t in threading.enumerate()) == len(HOSTS)
        assert len(renew.sent) == len(HOSTS)


def test_a_window_of_this_process_counts_by_its_own_clock_whatever_the_wall_says(tmp_path: Path) -> None:
    stage, history = fenced(tmp_path)
    line, wall, _ = history.first_sent["main.fence"]
    history.first_sent["main.fence"] = (line, wall - 3600.0, 1000.0)
    before = History()
    before.entries = line - 1
    with watching(Moment(1003.0), Renewals()) as watch:
        watch.follow(stage, before, CONTEXT)
        watch.follow(stage, History(), CONTEXT)
        watch.follow(stage, history, CONTEXT)
        assert watch.left_s() == pytest.approx(5.0)


def test_without_a_deadline_no_time_is_counted(tmp_path: Path) -> None:
    with watching(Moment(), Renewals()) as watch:
        watch.follow(*fenced(tmp_path, deadline_s=float("inf")), CONTEXT)
        assert watch.left_s() is None


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Outcome(3, "lapsed"), Trouble.LEASE_LAPSED),
        (Outcome(3, "no lease of this run"), Trouble.HOST_UNREACHABLE),
        (Outcome(5, "cannot tell whether it has lapsed"), Trouble.HOST_UNREACHABLE),
        (Outcome(1, "broken"), Trouble.HOST_UNREACHABLE),
    ],
    ids=lambda it: it.output if isinstance(it, Outcome) else it,
)
def test_only_a_host_that_says_so_has_let_its_lease_end(tmp_path: Path, answer: Outcome, found: str) -> None:
    """A lapsed lease ends the run with 9; a host that does not renew for another reason, with 7."""
    renew = Renewals()
    renew.answer = lambda host: answer if host == "d2" else Outcome(0, "renewed")
    with watching(Moment(), renew) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        assert (what(watch).id, what(watch).target) == (found, "d2")


def test_what_was_answered_in_one_window_is_asked_again_in_the_next(tmp_path: Path) -> None:
    sick = Finding("watch.source-sick", "source is well", Held.NO, target="s1")
    stage, history = fenced(tmp_path)
    with watching(Moment(), Renewals(), Probe("source", 0.01, lambda: [sick])) as watch:
        watch.follow(stage, history, CONTEXT)
        eventually("it is seen", lambda: watch.finding() == sick)
        watch.answered(sick)
        fence = history.first_sent.pop("main.fence")
        watch.follow(stage, history, CONTEXT)
        history.first_sent["main.fence"] = fence
        watch.follow(stage, history, CONTEXT)
        eventually("it is asked again", lambda: watch.finding() == sick)


def test_h16_a_window_that_renews_nothing_is_watched_as_others_are(tmp_path: Path) -> None:
    """The gateways' own leases end its hold: nobody may lengthen them behind the walk."""
    renew, other, moment = Renewals(), Other(1000.0), Moment()
    sick = Finding("watch.source-sick", "source is well", Held.NO, target="s1")
    stage, history = fenced(tmp_path)
    assert stage.window is not None
    stage = replace(stage, window=replace(stage.window, renews=False))
    probe = Probe("source", 0.01, lambda: [sick], leased=True)
    with watching(moment, renew, probe, second=other) as watch:
        watch.follow(stage, History(), CONTEXT)
        watch.follow(stage, history, CONTEXT)
        assert watch.left_s() == pytest.approx(8.0)
        eventually("the probe asks", lambda: watch.finding() == sick)
        watch.answered(sick)
        moment.t += 8.0
        watch.follow(stage, history, CONTEXT)
        assert what(watch).id == Trouble.DEADLINE
        history.way = Way.BACK
        watch.follow(stage, history, CONTEXT)
        history.done.add("main.seal")
        watch.follow(stage, history, CONTEXT)
        assert watch.left_s() is None
        assert not any(t.name.startswith("renew-") for t in threading.enumerate())
    assert (renew.sent, other.orders, other.calls) == ([], [], ["close"])


def test_a_lapsed_lease_is_the_first_finding(tmp_path: Path) -> None:
    renew = Renewals()
    renew.answer = lambda host: Outcome(3, "lapsed\nnot put back") if host == "d2" else Outcome(0, "renewed")
    sick = Finding("watch.source-sick", "source is well", Held.NO, target="s1")
    with watching(Moment(), renew, Probe("source", 0.01, lambda: [sick])) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        eventually("both are seen", lambda: len(watch._found) == 2)
        found = what(watch)
        assert (found.id, found.target) == (Trouble.LEASE_LAPSED, "d2")
        assert found.seen == "no renewal came in time, and the host went back by itself"
        watch.answered(found)
        assert watch.finding() == sick
        watch.answered(sick)
        assert watch.finding() is None


def test_what_was_found_in_one_window_does_not_turn_the_next_one_back(tmp_path: Path) -> None:
    renew = Renewals()
    renew.answer = lambda host: Outcome(3, "lapsed") if host == "d3" else Outcome(0, "renewed")
    stage, history = fenced(tmp_path)
    with watching(Moment(), renew) as watch:
        watch.follow(stage, history, CONTEXT)
        eventually("the lapse is found", lambda: watch.finding() is not None)
        history.first_sent.pop("main.fence")  # walked back: the door is open again
        watch.follow(stage, history, CONTEXT)
        assert watch.finding() is None


def test_a_silent_host_counts_after_the_cuts_time_and_is_forgiven(tmp_path: Path) -> None:
    renew, moment = Renewals(), Moment(1000.0)

    def silent(host: str) -> Outcome:
        if host == "d3":
            raise HostError("d3: timed out")
        return Outcome(0, "renewed")

    renew.answer = silent
    with watching(moment, renew) as watch:
        stage, history = fenced(tmp_path, deadline_s=100.0)
        watch.follow(stage, history, CONTEXT)
        moment.t += 2.5
        count = len(renew.sent)
        eventually("a round at 2.5 s", lambda: len(renew.sent) > count + 6)
        assert watch.finding() is None, "only the fence is up: its time counts"
        history.first_sent["main.cut"] = history.first_sent["main.fence"]
        watch.follow(stage, history, CONTEXT)
        eventually("the silence is seen", lambda: watch.finding() is not None)
        found = what(watch)
        assert (found.id, found.target, found.held) == (Trouble.HOST_UNREACHABLE, "d3", Held.UNKNOWN)
        renew.answer = lambda _host: Outcome(0, "renewed")
        eventually("the answer is seen", lambda: watch.finding() is None)


def test_a_probe_that_breaks_is_a_finding_and_heals(tmp_path: Path) -> None:
    broken = [True]

    def ask() -> list[Finding]:
        if broken[0]:
            raise OSError("no route")
        return []

    with watching(Moment(), Renewals(), Probe("canary", 0.01, ask)) as watch:
        watch.follow(*fenced(tmp_path), CONTEXT)
        eventually("the broken probe is seen", lambda: watch.finding() is not None)
        found = what(watch)
        assert (found.id, found.target, found.seen) == (Trouble.LOOK_UNKNOWN, "canary", "OSError: no route")
        broken[0] = False
        eventually("the probe has healed", lambda: watch.finding() is None)


# --- the walk under the watch --------------------------------------------------------------------------


class ScriptedWatch(WatchPort):
    """A watch that reports what a test tells it, once fence has been sent."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.fenced = False
        self.closed = False
        self.asked_in: list[str] = []

    def follow(self, stage: Stage, history: History, _context: Context, /) -> None:
        self.fenced = f"{stage.id}.fence" in history.first_sent

    def finding(self) -> Finding | None:
        return self.findings[0] if self.findings and self.fenced else None

    def answered(self, finding: Finding, /) -> None:
        self.findings.remove(finding)

    def left_s(self) -> float | None:
        return 5.0 if self.fenced else None

    def close(self) -> None:
        self.closed = True


def rehearsed(folder: Path, decided: Decide = decide) -> tuple[Tiny, ScriptedWatch]:
    """A run behind its rehearsal, and its watch."""
    watch = ScriptedWatch()
    tiny = Tiny(folder / "r", watch=watch, window=tiny_window(decided))
    tiny.process(until("rehearse"))
    return tiny, watch


def trouble(id: str) -> Finding:
    return Finding(id, "all is well", Held.NO, seen="it is not", target="d1")


@pytest.mark.parametrize(("id", "code"), [(Trouble.LEASE_LAPSED, 9), (Trouble.HOST_UNREACHABLE, 7)])
def test_a_finding_turns_the_walk_back_between_steps(tmp_path: Path, id: str, code: int) -> None:
    tiny, watch = rehearsed(tmp_path)
    watch.findings = [trouble(id)]
    ended = tiny.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (code, [id])
    assert watch.closed
    done = [f"{e.stage}.{e.step} {e.way.value}" for e in tiny.seen if isinstance(e, events.StepEnded)]
    assert done[-2:] == ["main.fence forward", "main.fence back"], "never in the middle of a step's changes"
    assert not any(path in ("/fence", "/cut") for _, path in tiny.hosts.files)


def test_the_time_left_to_turn_back_is_not_counted_on_the_way_back(tmp_path: Path) -> None:
    tiny, watch = rehearsed(tmp_path)
    watch.findings = [trouble(Trouble.HOST_UNREACHABLE)]
    tiny.seen.clear()
    tiny.process(forward)
    turned = next(n for n, e in enumerate(tiny.seen) if isinstance(e, events.Turned) and e.way is Way.BACK)
    counted = [n for n, e in enumerate(tiny.seen) if isinstance(e, events.Countdown)]
    assert counted
    assert max(counted) < turned


def test_a_finding_is_heard_while_a_step_waits(tmp_path: Path) -> None:
    tiny, watch = rehearsed(tmp_path)

    def waits(way: Way) -> Verdict:
        watch.findings = [trouble(Trouble.HOST_UNREACHABLE)]
        return waiting("a proof", 1e9)(way)

    tiny.steps["prove"].verdict = waits
    assert tiny.process(forward).code == 7


def test_a_step_that_is_blocked_by_a_lapsed_lease_is_not_what_the_run_ended_for(tmp_path: Path) -> None:
    """A host whose lease lapsed went back by itself, and the step that looks at it there finds it changed."""
    tiny, watch = rehearsed(tmp_path)

    def lapsed(way: Way) -> Verdict | None:
        if way is Way.BACK:
            return None
        watch.findings = [trouble(Trouble.LEASE_LAPSED)]
        return Blocked((trouble("prove.changed"),))

    tiny.steps["prove"].verdict = lapsed
    ended = tiny.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (9, [Trouble.LEASE_LAPSED])


def asks(phase: str, finding: Finding, policy: Policy) -> Decision:
    return Decision.ASK


@pytest.mark.parametrize(("means", "code"), [("go", 0), ("back", 7), (None, 7)])
def test_ask_is_answered_by_somebody_and_only_once(tmp_path: Path, means: Word | None, code: int) -> None:
    tiny, watch = rehearsed(tmp_path, asks)
    watch.findings = [trouble("watch.broker-lost")]
    tiny.confirm.ask_means = means
    assert tiny.process(forward).code == code
    assert tiny.confirm.asked.count("decide fence watch.broker-lost") == 1
    told_of = [e for e in tiny.seen if isinstance(e, events.Consented) and e.step]
    assert [(e.answer, e.by) for e in told_of if e.stage == "main"] == [
        (means or "back", "tester" if means else "")
    ]


@pytest.mark.parametrize(("done", "code"), [(False, 7), (True, 0)], ids=["seal sent", "seal done"])
def test_ask_without_an_operator_means_go_only_once_all_hosts_are_sealed(
    tmp_path: Path, done: bool, code: int
) -> None:
    """From the first SEAL sent the phase is sealed; until that step is done nobody's answer is back."""
    tiny, watch = rehearsed(tmp_path, asks)

    def sent(way: Way) -> Verdict | None:
        if way is Way.BACK or not any(path == "/seal" for _, path in tiny.hosts.files):
            return None
        watch.findings = [trouble("watch.block-leaks")]
        return None if done else waiting("the last host", 1e9)(way)

    tiny.steps["seal"].verdict = sent
    assert tiny.process(forward).code == code
    assert tiny.confirm.asked.count("decide seal watch.block-leaks") == 1


def test_with_a_real_watch_a_lease_that_lapses_brings_everything_back(tiny: Tiny) -> None:
    renew = Renewals()
    tiny.watch = Watch(HOSTS, renew, tiny.clock.now, tiny.clock.wall)
    tiny.process(until("rehearse"))

    def cutting(change: Change) -> Outcome | None:
        if getattr(change, "path", "") == "/cut":
            renew.answer = lambda _host: Outcome(3, "lapsed")
            eventually("the lapse is seen", lambda: tiny.watch.finding() is not None)
        return None

    tiny.hosts.answer = cutting
    tiny.watch = Watch(HOSTS, renew, tiny.clock.now, tiny.clock.wall)
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].id) == (9, Trouble.LEASE_LAPSED)
    assert {path for _, path in tiny.hosts.files} == {"/one", "/two"}


def test_a_leased_probe_is_asked_no_more_once_seal_is_done_on_all_hosts(tmp_path: Path) -> None:
    leased, always = [0], [0]

    def count(calls: list[int]) -> Callable[[], list[Finding]]:
        def ask() -> list[Finding]:
            calls[0] += 1
            return []

        return ask

    stage, history = fenced(tmp_path)
    asked = (Probe("leased", 0.01, count(leased), leased=True), Probe("always", 0.01, count(always)))
    with watching(Moment(), Renewals(), *asked) as watch:
        watch.follow(stage, history, CONTEXT)
        eventually("it is asked", lambda: leased[0] > 2)
        history.done.add("main.seal")
        watch.follow(stage, history, CONTEXT)
        before, others = leased[0], always[0]
        eventually("the other one goes on", lambda: always[0] > others + 5)
        assert leased[0] <= before + 1, "at most the question that was on its way"


# --- probes --------------------------------------------------------------------------------------------


def test_one_silent_look_is_not_yet_trouble_two_are() -> None:
    reading = Unknown("timeout", "no answer in 3 s")
    probe = probes.block(("d1",), lambda: {"d1": reading})
    assert list(probe.ask()) == []
    (found,) = probe.ask()
    assert (found.id, found.held) == (Trouble.LOOK_UNKNOWN, Held.UNKNOWN)


def test_a_broker_must_stay_silent_twice() -> None:
    said = iter(["", "timed out", "timed out", ""])
    probe = probes.brokers(lambda: {"b1": next(said)})
    helds = [[f.held for f in probe.ask()] for _ in range(4)]
    assert helds == [[Held.YES], [Held.YES], [Held.NO], [Held.YES]]


LEADS, FOLLOWS, APART = Seen("leader"), Seen("follower"), Absent("not serving")
SILENT, REFUSED = Unknown("timeout", "no answer in 3 s"), Unknown("refused", "nothing listens")


def ensemble(*modes: Reading[str]) -> EnsembleView:
    """Source with these answers to ``srvr``, in a mode each."""
    template = parse_srvr(srvr("3.5.8", "leader", 0x100000001, 5))

    def reading(mode: Reading[str]) -> Reading[Srvr]:
        return Seen(replace(template, mode=mode.value)) if isinstance(mode, Seen) else mode

    leading = [f"s{n}" for n, mode in enumerate(modes, 1) if mode == LEADS]
    servers = {f"s{n}": reading(mode) for n, mode in enumerate(modes, 1)}
    return EnsembleView(servers, leading[0] if len(leading) == 1 else None)


@pytest.mark.parametrize(
    ("modes", "quorum"),
    [
        ((LEADS, FOLLOWS, FOLLOWS), True),
        ((LEADS, FOLLOWS, REFUSED), True),
        ((LEADS, FOLLOWS, APART), True),
        ((LEADS, FOLLOWS, SILENT), True),
        ((SILENT, FOLLOWS, FOLLOWS), True),
        ((Seen("standalone"),), True),
        ((LEADS, SILENT, SILENT), None),
        ((LEADS, REFUSED, SILENT), None),
        ((SILENT, SILENT, SILENT), None),
        ((SILENT, SILENT, REFUSED), None),
        ((FOLLOWS, APART, SILENT), None),
        ((LEADS, REFUSED, REFUSED), False),
        ((LEADS, REFUSED, APART), False),
        ((APART, APART, SILENT), False),
        ((REFUSED, REFUSED, SILENT), False),
        ((APART, APART, APART), False),
        ((FOLLOWS, FOLLOWS, REFUSED), False),
        ((LEADS, LEADS, FOLLOWS), False),
        ((Seen("read-only"), Seen("read-only"), APART), False),
    ],
    ids=lambda value: "-".join(str(v) for v in value) if isinstance(value, tuple) else str(value),
)
def test_whether_source_has_a_quorum_and_whether_that_can_be_known(
    modes: tuple[Reading[str], ...], quorum: bool | None
) -> None:
    assert ensemble(*modes).has_quorum() is quorum


OBSERVES = Seen("observer")


@pytest.mark.parametrize(
    ("modes", "quorum"),
    [
        ((LEADS, FOLLOWS, REFUSED, OBSERVES, OBSERVES), True),
        ((LEADS, FOLLOWS, REFUSED, REFUSED, SILENT), True),
        ((LEADS, REFUSED, SILENT, OBSERVES, OBSERVES), None),
        ((LEADS, REFUSED, REFUSED, OBSERVES, SILENT), False),
    ],
)
def test_observers_of_source_do_not_count_for_its_quorum(
    modes: tuple[Reading[str], ...], quorum: bool | None
) -> None:
    assert replace(ensemble(*modes), observers=frozenset({"s4", "s5"})).has_quorum() is quorum


WELL, SICK, UNHEARD = (
    ensemble(LEADS, FOLLOWS, FOLLOWS),
    ensemble(APART, APART, REFUSED),
    ensemble(SILENT, SILENT, LEADS),
)
HELD = [(Trouble.LOOK_UNKNOWN, Held.YES), (Trouble.SOURCE_SICK, Held.YES)]
NOT_HELD = [(Trouble.LOOK_UNKNOWN, Held.YES), (Trouble.SOURCE_SICK, Held.NO)]


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ([WELL, WELL], [HELD, HELD]),
        ([SICK, WELL, SICK], [[], HELD, []]),
        ([UNHEARD, WELL, UNHEARD], [[], HELD, []]),
        ([SICK, SICK, WELL], [[], NOT_HELD, HELD]),
        ([UNHEARD, UNHEARD, WELL], [[], [(Trouble.LOOK_UNKNOWN, Held.UNKNOWN)], HELD]),
        ([UNHEARD, SICK], [[], NOT_HELD]),
    ],
    ids=["well", "sick once", "unheard once", "sick", "unheard", "unheard, then sick"],
)
def test_source_must_be_sick_or_unheard_twice(
    seen: list[EnsembleView], found: list[list[tuple[str, Held]]]
) -> None:
    views = iter(seen)
    probe = probes.source(lambda: next(views))
    assert [[(f.id, f.held) for f in probe.ask()] for _ in seen] == found
    assert probe.leased
    assert probe.within_s <= 3, "a silent server must not hide the others for longer"


def test_a_sick_source_is_told_with_what_each_server_said() -> None:
    probe = probes.source(lambda: SICK)
    tuple(probe.ask())
    found = next(f for f in probe.ask() if f.id == Trouble.SOURCE_SICK)
    assert found.seen == "s1 not serving, s2 not serving, s3 unknown (refused): nothing listens"


WHOLE = HostStatus(
    version="1", boot_id="b", uptime_s=10.0, run="r", phase="stopped", phase_since=9.0, fencing=7,
    lapsed=False, in4="top", out4="top", in6="top", out6="top", fence_entries=4, fence_timeout_s=4.0,
    fence_permanent=False,
    cut_entries=3, cut_timeout_s=2.0, cut_permanent=False, client_sockets=0, source_sockets=0,
    unit_state="inactive", unit_pid=0, unit_since=9.0, finisher="none", finisher_note="", image="begun",
    missing=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("status", "ids"),
    [
        (WHOLE, []),
        (replace(WHOLE, fence_entries=0), [Trouble.BLOCK_LEAKS]),
        (replace(WHOLE, cut_entries=0), [Trouble.BLOCK_LEAKS]),
        (replace(WHOLE, out6="present"), [Trouble.BLOCK_LEAKS]),
        (replace(WHOLE, lapsed=True), [Trouble.LEASE_LAPSED]),
        (replace(WHOLE, phase="fenced", cut_entries=0), []),
        (replace(WHOLE, phase="armed", fence_entries=0, cut_entries=0), []),
        (replace(WHOLE, phase="open", fence_entries=0, cut_entries=0), []),
    ],
    ids=["whole", "no fence", "no cut", "not on top", "lapsed", "fenced", "armed", "open"],
)
def test_a_leak_in_the_block_is_seen_at_once(status: HostStatus, ids: list[str]) -> None:
    probe = probes.block(("d1",), lambda: {"d1": Seen(status)})
    assert [f.id for f in probe.ask() if f.blocks] == ids
