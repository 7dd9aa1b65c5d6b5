"""The walk: forward, back, stopped anywhere, resumed."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples import every, seeds
from tests.unit.engine_world import (
    HOSTS,
    Hosts,
    Killed,
    Points,
    Tiny,
    WriteStep,
    back,
    blocked,
    forward,
    resume,
    until,
    waiting,
)
from zkmigrate.errors import HostError, JournalError, RecordError, UsageError
from zkmigrate.runbook.engine import chain, events, journal
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import Arrived, Next
from zkmigrate.runbook.engine.journal import NAME
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.step_names import operation_id
from zkmigrate.runbook.model.change import Change, Changes, Outcome, PutFile
from zkmigrate.runbook.model.finding import Severity, claim
from zkmigrate.runbook.model.step import Done, Hazard, Ready, Verdict, Way
from zkmigrate.runbook.model.window import Word


def walked(tiny: Tiny, way: Way) -> list[str]:
    return [f"{e.stage}.{e.step}" for e in tiny.seen if isinstance(e, events.StepEnded) and e.way is way]


# --- plain walks ---------------------------------------------------------------------------------------


def test_forward_walks_everything_and_the_rehearsal_both_ways(tiny: Tiny) -> None:
    assert tiny.process(forward) == RunEnded(0, "tiny is complete")
    assert tiny.hosts.files == tiny.everything()
    assert walked(tiny, Way.FORWARD) == list(tiny.playbook.step_ids())
    assert walked(tiny, Way.BACK) == ["rehearse.cut", "rehearse.fence"]


def test_back_from_everything_needs_what_is_not_final(tiny: Tiny) -> None:
    tiny.process(forward)
    files = dict(tiny.hosts.files)
    ended = tiny.process(back)
    assert (ended.code, ended.findings[0].id) == (6, "tiny.final")
    assert tiny.hosts.files == files
    assert tiny.process(resume).code == 0


@pytest.mark.parametrize("step", ["prepare.one", "prepare.two", "main.fence", "main.cut", "main.seal"])
def test_back_from_each_step_restores_the_first_world(tiny: Tiny, step: str) -> None:
    tiny.hosts.files[("d2", "/one")] = b"old"
    first = dict(tiny.hosts.files)
    assert tiny.process(until(step)) == RunEnded(
        0, f"stopped after {step} as asked; zkmigrate resume continues"
    )
    assert tiny.process(back) == RunEnded(0, "back at the beginning: asked by the operator")
    assert tiny.hosts.files == first


def test_back_to_a_named_step_leaves_what_came_before_it(tiny: Tiny) -> None:
    tiny.process(until("main.cut"))
    ended = tiny.process(lambda walk: walk.back("prepare.two"))
    assert ended == RunEnded(0, "back at the start of prepare.two: asked by the operator")
    assert tiny.hosts.files == {(host, "/one"): b"new" for host in HOSTS}


def test_after_a_finished_way_back_run_goes_forward_again_and_rehearses_again(tiny: Tiny) -> None:
    tiny.process(until("main.cut"))
    tiny.process(lambda walk: walk.back("rehearse"))
    tiny.seen.clear()
    assert tiny.process(forward).code == 0
    assert walked(tiny, Way.BACK) == ["rehearse.cut", "rehearse.fence"]
    assert tiny.hosts.files == tiny.everything()


def test_until_stops_after_a_stage_and_knows_its_names(tiny: Tiny) -> None:
    assert tiny.process(until("rehearse")).code == 0
    assert walked(tiny, Way.BACK) == ["rehearse.cut", "rehearse.fence"]
    with pytest.raises(UsageError, match=r"'rehearse.open' is not a stage or step of tiny; possible: pre"):
        tiny.process(until("rehearse.open"))


def test_records_reach_later_steps_and_measured_times_too(tmp_path: Path, tiny: Tiny) -> None:
    tiny.process(until("rehearse"))
    records = journal.read(tmp_path / "r").records()
    assert records["prepare.two"] == records["two"] == {"seen": 4}
    assert set(records["rehearse"]["seconds"]["cut"]) == {"forward", "back"}


# --- killed and resumed --------------------------------------------------------------------------------


def lives(
    tmp_path: Path, number: int, act: Callable[[Walk], RunEnded], before: str = ""
) -> tuple[Tiny, bool]:
    """Walk to ``before``, then be killed at the ``number``-th point of ``act``; True when it was."""
    tiny = Tiny(tmp_path / f"r{number}")
    if before:
        tiny.process(until(before))
    try:
        tiny.process(act, Points(number))
    except Killed:
        return tiny, True
    return tiny, False


def test_killed_at_every_point_forward_resume_reaches_the_same_end(tmp_path: Path) -> None:
    number = 0
    killed = True
    while killed:
        number += every(5)
        tiny, killed = lives(tmp_path, number, forward)
        ended = tiny.process(resume)
        assert ended.code == 0, (number, ended)
        assert tiny.hosts.files == tiny.everything(), number
    assert number > 300


def test_killed_at_every_point_of_the_way_back_resume_reaches_the_first_world(tmp_path: Path) -> None:
    number = 0
    killed = True
    while killed:
        number += every(5)
        tiny, killed = lives(tmp_path, number, back, before="main.seal")
        history = journal.read(tiny.run_dir)
        ended = tiny.process(resume if history.way is Way.BACK else back)
        assert ended.code == 0, (number, ended)
        assert tiny.hosts.files == {}, number
        position = journal.read(tiny.run_dir).next(tiny.playbook)
        assert isinstance(position, Arrived)
    assert number > 100


def test_killed_at_every_point_forward_rollback_reaches_the_first_world(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path / "r0")
    tiny.steps["open"] = WriteStep("open", tiny.hosts)
    number = 0
    killed = True
    while killed:
        number += every(7)
        tiny, killed = Tiny(tmp_path / f"r{number}"), True
        tiny.steps["open"] = WriteStep("open", tiny.hosts)
        try:
            tiny.process(forward, Points(number))
            killed = False
        except Killed:
            pass
        ended = tiny.process(back)
        assert ended.code == 0, (number, ended)
        assert tiny.hosts.files == {}, number


@pytest.mark.parametrize("seed", seeds(60))
def test_killed_twice_in_one_run_the_third_life_reaches_the_end_or_the_beginning(
    tiny: Tiny, seed: int
) -> None:
    dice = random.Random(seed)
    tiny.steps["open"] = WriteStep("open", tiny.hosts)
    for life in (forward, dice.choice((resume, back))):
        with contextlib.suppress(Killed):
            tiny.process(life, Points(dice.randrange(1, 250)))
    turn = journal.read(tiny.run_dir).turn
    last = back if seed % 2 else resume
    ended = tiny.process(last)
    assert ended.code == 0
    home = last is back or (turn is not None and turn.then == "end")
    assert tiny.hosts.files == ({} if home else tiny.everything())


def test_a_rehearsal_cut_short_walks_back_and_starts_again(tiny: Tiny) -> None:
    tiny.process(until("rehearse.fence"))
    tiny.seen.clear()
    tiny.process(lambda walk: walk.resume(until="rehearse"))
    assert walked(tiny, Way.FORWARD) == ["rehearse.fence", "rehearse.cut"]
    assert walked(tiny, Way.BACK) == ["rehearse.fence", "rehearse.cut", "rehearse.fence"]


def test_a_full_disk_at_every_write_never_lets_an_effect_pass_its_intent(tmp_path: Path) -> None:
    number = 0
    while True:
        number += every(3)
        tiny = Tiny(tmp_path / f"r{number}")
        points = Points(number, OSError(errno.ENOSPC, "No space left on device"), ("write", "fsync"))
        try:
            ended = tiny.process(forward, points)
        except JournalError:
            ended = RunEnded(8, "while opening")
        if ended.code == 0:
            break
        assert ended.code == 8
        assert tiny.process(resume).code == 0, number
        assert tiny.hosts.files == tiny.everything(), number
    assert number > 80


# --- failed, unknown and stuck changes -----------------------------------------------------------------


def failing(hosts: Hosts, times: int, error: Exception | Outcome, host: str = "d2") -> None:
    left = [times]

    def answer(change: Change) -> Outcome | None:
        if change.where != host or left[0] == 0:
            return None
        left[0] -= 1
        if isinstance(error, Outcome):
            return error
        raise error

    hosts.answer = answer


@pytest.mark.parametrize("error", [HostError("d2: the connection broke"), Outcome(5, "no space")], ids=str)
def test_a_change_that_fails_or_stays_unknown_is_looked_at_and_tried_again(
    tiny: Tiny, error: Exception | Outcome
) -> None:
    failing(tiny.hosts, 2, error)
    assert tiny.process(until("prepare.one")).code == 0
    assert {h for h, _ in tiny.hosts.files} == set(HOSTS)
    applied = journal.read(tiny.run_dir).applied("prepare.one", "d2")
    assert [a.confirmed for a in applied] == [False, False, True]
    assert len({a.operation for a in applied}) == 3


def test_the_same_change_failing_three_times_is_blocked(tiny: Tiny) -> None:
    failing(tiny.hosts, 99, Outcome(5, "no space"))
    ended = tiny.process(forward)
    assert ended.code == 8
    assert [(f.id, f.target) for f in ended.findings] == [("engine.no-progress", "d2")]
    assert "no space" in ended.findings[0].seen
    assert sum(op.startswith("prepare.one.d2") for op in tiny.hosts.sent) == 3


def test_a_change_that_is_confirmed_but_never_seen_is_blocked(tiny: Tiny) -> None:
    tiny.hosts.answer = lambda _change: Outcome(0)
    ended = tiny.process(forward)
    assert ended.code == 8
    assert {f.target for f in ended.findings} == set(HOSTS)
    assert "still needs it" in ended.findings[0].seen


def test_a_host_that_fences_this_operator_off_ends_the_walk(tiny: Tiny) -> None:
    failing(tiny.hosts, 1, Outcome(9, "fenced off: the host has seen 8"))
    ended = tiny.process(forward)
    assert ended.code == 5
    assert "higher fencing number" in ended.message


class TwoChanges(WriteStep):
    def plan(self, c: object, f: object, target: str) -> Changes:
        first = PutFile(target, "/extra", b"x", "root:root")
        return (first, *super().plan(c, f, target))  # type: ignore[arg-type]


def test_after_a_failed_change_the_rest_of_its_target_is_not_sent(tiny: Tiny) -> None:
    tiny.steps["one"] = TwoChanges("one", tiny.hosts)
    failing(tiny.hosts, 1, Outcome(5, "no"))
    tiny.process(until("prepare.one"))
    assert [op for op in tiny.hosts.sent if ".d2." in op] == [
        "prepare.one.d2.1.1",
        "prepare.one.d2.2.1",
        "prepare.one.d2.2.2",
    ]
    applied = journal.read(tiny.run_dir).applied("prepare.one", "d2")
    assert [a.operation for a in applied] == [
        "prepare.one.d2.1.1",
        "prepare.one.d2.2.1",
        "prepare.one.d2.2.2",
    ]


class SourceStep(WriteStep):
    def plan(self, c: object, f: object, target: str) -> Changes:
        return (PutFile("s1", "/one", b"new", "root:root"),)


def test_a_change_on_source_is_refused(tiny: Tiny) -> None:
    tiny.steps["one"] = SourceStep("one", tiny.hosts)
    ended = tiny.process(forward)
    assert ended.code == 2
    assert "source is read-only" in ended.message
    assert tiny.hosts.sent == []


def test_operation_ids_stay_within_eighty_characters() -> None:
    assert operation_id("join.join", "d1", Way.FORWARD, 3, 2) == "join.join.d1.3.2"
    assert operation_id("join.join", "d1", Way.BACK, 3, 2) == "join.join.d1.back3.2"
    long = [operation_id("rehearse.prove", "x" * 60 + end, Way.FORWARD, 123456789, 12) for end in "ab"]
    assert long[0] != long[1]
    assert max(map(len, long)) <= 80


# --- verdicts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "code"), [("look", 3), ("one", 6), ("fence", 6), ("cut", 7), ("prove", 7)], ids=lambda v: str(v)
)
def test_a_blocked_step_ends_with_the_documented_code(tiny: Tiny, step: str, code: int) -> None:
    tiny.steps[step].verdict = blocked("tiny.sick")
    ended = tiny.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (code, ["tiny.sick"])


def test_blocked_in_the_window_turns_back_to_the_start_of_the_stage(tiny: Tiny) -> None:
    tiny.steps["prove"].verdict = blocked("tiny.sick")
    ended = tiny.process(forward)
    assert ended.code == 7
    assert ended.message == "back at the start of main: tiny.sick: sick"
    assert tiny.hosts.files == {(host, f"/{name}"): b"new" for name in ("one", "two") for host in HOSTS}
    tiny.steps["prove"].verdict = lambda _way: None
    visits = tiny.steps["prove"].visits
    tiny.confirm.asked.clear()
    assert tiny.process(forward).code == 0
    assert tiny.confirm.asked.count("main") == 1, "the consent is asked again after a way back"
    assert tiny.steps["prove"].visits > visits
    assert tiny.hosts.files == tiny.everything()


def test_blocked_on_the_way_back_needs_an_operator(tiny: Tiny) -> None:
    tiny.process(until("prepare"))
    tiny.steps["one"].verdict = blocked("tiny.stuck", Way.BACK)
    ended = tiny.process(back)
    assert (ended.code, ended.findings[0].id) == (8, "tiny.stuck")
    with pytest.raises(UsageError, match="on its way back"):
        tiny.process(forward)
    tiny.steps["one"].verdict = lambda _way: None
    assert tiny.process(resume).code == 0
    assert tiny.hosts.files == {}


def test_past_the_point_of_no_return_a_blocked_step_is_tried_until_its_deadline(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path / "r", policy={"step_deadline_s": 20.0})
    step = tiny.steps["open"]
    step.verdict = lambda way: blocked("tiny.late")(way) if ("d1", "/open") in tiny.hosts.files else None
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].id) == (8, "tiny.late")
    assert tiny.hosts.files == tiny.everything()
    assert tiny.clock.pauses >= 20


def test_stop_typed_while_it_waits_stops_outside_the_window_only(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path / "run")
    tiny.steps["one"].verdict = waiting("all in sync", 5.0)
    tiny.confirm.words["listen"] = Answer("stop")
    assert tiny.process(forward).code == 130
    assert tiny.confirm.asked[-1] == "listen"
    tiny.steps["one"].verdict = lambda _way: None
    tiny.steps["prove"].verdict = waiting("a proof", 1.0)
    tiny.confirm.asked.clear()
    tiny.process(resume)
    assert "listen" not in tiny.confirm.asked


def test_each_process_is_told_what_became_of_the_stages_before_it(tiny: Tiny) -> None:
    tiny.process(until("rehearse"))
    tiny.process(lambda walk: walk.back("prepare"))
    tiny.process(until("preflight"))
    begun = [dict(e.over) for e in tiny.seen if isinstance(e, events.RunBegun)]
    whole = {"preflight": "ok", "prepare": "ok", "rehearse": "ok"}
    assert begun[:2] == [{}, whole]
    assert begun[2] == {"preflight": "ok", "prepare": "undone", "rehearse": "undone"}


def answers(tiny: Tiny) -> list[tuple[str, str, str, str, list[str]]]:
    """(where, question, answer, who, ids in doubt) of every question in the journal."""
    entries = chain.parse((tiny.run_dir / NAME).read_bytes()).entries
    return [
        (f"{b['stage']}.{b['step']}".rstrip("."), b["question"], f"{b['answer']} {b['to']}".strip(), b["by"],
         [f["id"] for f in b["findings"]])
        for b in (entry.body for entry in entries if entry.kind == "consent")
    ]  # fmt: skip


def test_every_answer_is_journaled_with_who_gave_it_and_what_was_in_doubt(tiny: Tiny) -> None:
    found = (
        claim("tiny.warns", "it is quiet", False, severity=Severity.WARN),
        claim("tiny.holds", "it is whole", True),
        claim("tiny.note", "nothing to say", False, severity=Severity.INFO),
    )
    tiny.steps["look"].verdict = lambda _way: Done(found)
    tiny.confirm.words["prepare.one"] = Answer("stop")
    assert tiny.process(forward).code == 130
    tiny.confirm.words["prepare.one"] = Answer("back", "preflight")
    tiny.process(resume)
    tiny.confirm.words.clear()
    tiny.confirm.found.clear()
    assert tiny.process(lambda walk: walk.forward(until="prepare")).code == 0
    asked = ("prepare.one", "write?")
    assert answers(tiny) == [
        (*asked, "stop", "tester", ["tiny.warns"]),
        (*asked, "back preflight", "tester", ["tiny.warns"]),
        (*asked, "go", "tester", ["tiny.warns"]),
        ("prepare.two", "write?", "go", "tester", []),
    ]


def test_a_process_that_comes_later_asks_with_what_the_one_before_found(tiny: Tiny) -> None:
    doubt = (claim("tiny.warns", "it is quiet", False, severity=Severity.WARN),)
    tiny.steps["look"].verdict = lambda _way: Done(doubt)
    tiny.process(lambda walk: walk.forward(until="preflight"))
    tiny.process(lambda walk: walk.resume(until="prepare.one"))
    assert tiny.confirm.found["prepare.one"] == doubt


@pytest.mark.parametrize("word", ["stop", "back"])
def test_a_stage_that_was_not_consented_to_is_asked_about_again(tiny: Tiny, word: Word) -> None:
    tiny.confirm.words["main"] = Answer(word)
    assert tiny.process(forward).code == {"stop": 130, "back": 0}[word]
    tiny.confirm.words.clear()
    tiny.confirm.asked.clear()
    assert tiny.process(forward).code == 0
    assert tiny.confirm.asked.count("main") == 1
    assert [row[:4] for row in answers(tiny) if row[0] == "main"] == [
        ("main", "Now?", word, "tester"),
        ("main", "Now?", "go", "tester"),
    ]


def test_a_wait_past_its_deadline_is_a_closed_gate(tiny: Tiny) -> None:
    tiny.steps["one"].verdict = waiting("all in sync", 5.0)
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].claim) == (6, "all in sync within 5 s")
    assert ended.findings[0].seen == "not yet"
    assert tiny.clock.t == pytest.approx(1005.0)


def test_a_wait_past_its_deadline_in_the_window_turns_back(tiny: Tiny) -> None:
    tiny.steps["prove"].verdict = waiting("a proof", 1.0)
    assert tiny.process(forward).code == 7


def test_a_wait_counts_from_the_first_of_the_same_words(tiny: Tiny) -> None:
    turns = iter(["a"] * 20 + ["b"] * 20 + [""])

    def verdict(_way: Way) -> Verdict | None:
        what = next(turns, "")
        return waiting(what, 5.0)(Way.FORWARD) if what else None

    tiny.steps["one"].verdict = verdict
    assert tiny.process(until("prepare.one")).code == 0


def test_an_error_in_a_window_step_turns_back_and_is_kept(tiny: Tiny) -> None:

    def broken(way: Way) -> Verdict | None:
        if way is Way.FORWARD:
            raise ZeroDivisionError("in a step")
        return None

    tiny.steps["cut"].verdict = broken
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].id) == (7, "engine.step-error")
    assert b"ZeroDivisionError" in (tiny.run_dir / journal.NAME).read_bytes()


def unreadable(way: Way) -> Verdict | None:
    if way is Way.FORWARD:
        raise RecordError("run r: the journal's record of one cannot be read: z is missing")
    return None


def test_a_record_that_cannot_be_read_blocks_and_is_named(tiny: Tiny) -> None:
    tiny.steps["one"].verdict = unreadable
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].id) == (6, "engine.record")
    assert ended.findings[0].seen == "run r: the journal's record of one cannot be read: z is missing"


def test_a_record_that_cannot_be_read_turns_a_window_back(tiny: Tiny) -> None:
    tiny.steps["cut"].verdict = unreadable
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].id) == (7, "engine.record")
    assert b"Traceback" not in (tiny.run_dir / journal.NAME).read_bytes()


def test_a_change_of_a_step_that_says_read_only_is_refused_before_it_is_sent(tiny: Tiny) -> None:
    tiny.steps["one"].hazard = Hazard.READ_ONLY
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].id) == (6, "engine.read-only")
    assert ended.findings[0].seen.startswith("one plans to send: ")
    assert not any(path == "/one" for _, path in tiny.hosts.files)
    written = (tiny.run_dir / NAME).read_bytes()
    assert b'"event":"blocked"' in written
    assert b'"engine.read-only"' in written
    assert b'"intent"' not in written


def test_a_window_turns_back_where_a_step_sends_that_says_read_only(tiny: Tiny) -> None:
    tiny.steps["cut"].hazard = Hazard.READ_ONLY
    ended = tiny.process(forward)
    assert (ended.code, ended.findings[0].id) == (7, "engine.read-only")


def test_a_step_that_may_send_a_late_change_sends_it_unasked_and_is_not_walked_back(tiny: Tiny) -> None:
    tiny.steps["one"].hazard = Hazard.LATE
    tiny.process(until("prepare.one"))
    assert ("d1", "/one") in tiny.hosts.files
    assert "prepare.one" not in tiny.confirm.asked
    assert tiny.process(back).code == 0
    assert ("d1", "/one") in tiny.hosts.files


def test_a_reader_that_fails_is_waited_for(tiny: Tiny) -> None:
    left = [3]

    def fails(_way: Way) -> Verdict | None:
        left[0] -= 1
        if left[0] >= 0:
            raise HostError("d1: timed out")
        return None

    tiny.steps["one"].verdict = fails
    assert tiny.process(until("prepare.one")).code == 0


# --- people --------------------------------------------------------------------------------------------


def test_the_operator_is_asked_before_changes_and_once_before_the_window(tiny: Tiny) -> None:
    tiny.process(forward)
    assert tiny.confirm.asked == ["prepare.one", "prepare.two", "main"]


def test_stop_and_roll_back_at_a_question(tiny: Tiny) -> None:
    tiny.confirm.words["prepare.two"] = Answer("stop")
    assert tiny.process(forward).code == 130
    tiny.confirm.words = {"main": Answer("back", "prepare.two")}
    assert tiny.process(resume) == RunEnded(0, "back at the start of prepare.two: asked by the operator")
    assert tiny.hosts.files == {(host, "/one"): b"new" for host in HOSTS}


@pytest.mark.parametrize("phase", ["cut", "main.cut"])
def test_a_run_holds_after_a_phase_until_answered(tiny: Tiny, phase: str) -> None:
    tiny.hold(phase)
    tiny.confirm.words["hold cut"] = Answer("back")
    ended = tiny.process(forward)
    assert ended.code == 0
    assert ended.message.startswith("back at the start of main")
    assert walked(tiny, Way.FORWARD)[-1] == "main.cut"


def test_ctrl_c_finishes_the_wave_and_stops_resumable(tiny: Tiny) -> None:

    def answer(change: Change) -> Outcome | None:
        tiny.interrupt.ask()
        return None

    tiny.hosts.answer = answer
    ended = tiny.process(forward)
    assert ended.code == 130
    assert ended.message == "interrupted; run tiny-1 is at prepare.one, forward; zkmigrate resume continues"
    assert set(tiny.hosts.files) == {(host, "/one") for host in HOSTS}
    assert journal.read(tiny.run_dir).unconfirmed() == ()
    tiny.interrupt = Interrupt()
    tiny.hosts.answer = lambda _change: None
    assert tiny.process(resume).code == 0


# --- a lost journal ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(Way))
def test_with_a_lost_journal_the_position_comes_from_the_world(tiny: Tiny, way: Way) -> None:
    tiny.process(until("prepare.two"))
    sent = set(tiny.hosts.sent)
    (tiny.run_dir / journal.NAME).unlink()
    book = journal.Journal.recover(tiny.run_dir, tiny.clock.wall)
    book.append("begin", {"run": "tiny-1", "name": "", "playbook": "tiny", "inventory": "0", "plan": "0"})
    walk = tiny.walk(book)
    if way is Way.FORWARD:
        assert walk.resume().code == 0
        assert tiny.hosts.files == tiny.everything()
    else:
        # Nothing is known of what was there before: the files stay, and the walk says so.
        assert walk.back().code == 8
    book.close()
    later = tiny.hosts.sent[len(sent) :]
    assert sent.isdisjoint(later)


def test_a_target_outside_the_plan_is_not_invented_by_the_engine(tiny: Tiny) -> None:
    tiny.steps["one"].verdict = lambda _way: (
        Ready(("d2",)) if ("d2", "/one") not in tiny.hosts.files else None
    )
    tiny.process(until("prepare.one"))
    waves = [e.targets for e in tiny.seen if isinstance(e, events.WaveBegun)]
    assert waves == [("d2",), ("d1", "d3")]


def test_every_step_of_the_position_is_next_exactly_once(tiny: Tiny) -> None:
    book = tiny.journal()
    at = book.history.next(tiny.playbook)
    assert isinstance(at, Next)
    assert (at.id, at.way) == ("preflight.look", Way.FORWARD)
    assert at.step.hazard is Hazard.READ_ONLY
    book.close()
