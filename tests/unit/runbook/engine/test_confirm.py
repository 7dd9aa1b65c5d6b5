"""Who says go, and what a step says about itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import cast

import pytest

from tests.unit.engine_world import Hosts, WriteStep
from zkmigrate.move.rules.window_rules import WINDOW
from zkmigrate.runbook.engine.confirm import Console, Terminal, Unattended
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.model.finding import Finding, Held, Severity, claim
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import AnyStep, Hazard, brief_in, brief_of
from zkmigrate.runbook.model.window import Word
from zkmigrate.runbook.runs import playbook_files
from zkmigrate.runbook.ui import finding_lines
from zkmigrate.runbook.ui.console import StdConsole

STAGE = Stage("roll", "Roll", (), consent="Restart the brokers?")
TROUBLE = Finding("watch.broker-lost", "the broker answers requests", Held.NO, seen="silent", target="b1")


class Script:
    """A console with its lines written beforehand; an empty one is silence, None the end."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.shown: list[str] = []
        self.forgotten = 0

    def show(self, lines: Sequence[str]) -> None:
        self.shown += lines

    def ask(self, question: str) -> str | None:
        self.shown.append(question)
        return self.lines.pop(0)

    def poll(self, seconds: float) -> str | None:
        return self.lines.pop(0) if self.lines else ""

    def forget(self) -> None:
        self.forgotten += 1


@dataclass
class Papers:
    """What can be looked up: some findings, and places of which only ``far`` is out of reach."""

    remark: str = ""
    past: str = ""
    asked: list[str] = field(default_factory=list)

    def remarks(self, stage: Stage) -> Sequence[str]:
        return [self.remark] if self.remark else []

    def cannot_go_back(self, to: str) -> str:
        return self.past or ("far is ahead" if to == "far" else "")

    def findings(self, name: str) -> Sequence[str]:
        return [f"behind {name or 'the newest'}"]

    def in_short(self, told: Sequence[Finding]) -> Sequence[str]:
        return finding_lines.findings(told)

    def whole(self, told: Sequence[Finding]) -> Sequence[str]:
        return finding_lines.whole(told)

    def asking(self, where: str, keys: str = "", left_s: float | None = None) -> None:
        self.asked.append(" ".join(filter(None, (where, keys, f"{left_s:g}" if left_s else ""))))


def terminal(*lines: str | None, papers: Papers | None = None) -> tuple[Terminal, Script]:
    script = Script(*lines)
    ticks = iter(range(10_000))
    return Terminal(cast(Console, script), "anna", lambda: float(next(ticks)), papers or Papers()), script


def unattended(*lines: str | None) -> Unattended:
    return Unattended(cast(Console, Script(*lines)), Papers())


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["g"], Answer("go")),
        (["perhaps", "", "stop"], Answer("stop")),
        (["back"], Answer("back")),
        (["b join.join"], Answer("back", "join.join")),
        (["b far", "back far", "b near"], Answer("back", "near")),
        (["f", "findings join", "f x y", "g"], Answer("go")),
        (["k", "skip", "g"], Answer("go")),
        (["go now", "YES"], Answer("go")),
        ([None], Answer("stop")),
    ],
    ids=str,
)
def test_a_step_is_shown_and_asked_until_answered(typed: list[str | None], answer: Answer) -> None:
    someone, script = terminal(*typed)
    step = cast(AnyStep, WriteStep("one", Hosts()))
    assert someone.step(STAGE, step, (claim("a.b", "it is", True, seen="yes", target="d1"),)) == answer
    assert script.shown[1] == "roll.one: write (reversible)"
    assert "    [ok] a.b d1: it is; yes" in script.shown


@pytest.mark.parametrize(("stopped", "by"), [(True, "anna: Ctrl-C"), (False, "nobody: the input ended")])
def test_who_ends_a_question_by_ctrl_c_is_named(stopped: bool, by: str) -> None:
    console = cast(Console, Script(None))
    someone = Terminal(console, "anna", lambda: 0.0, Papers(), lambda: stopped)
    assert someone.step(STAGE, cast(AnyStep, WriteStep("one", Hosts())), ()).by == by


def test_what_cannot_be_meant_is_said_and_asked_again() -> None:
    papers = Papers()
    someone, script = terminal("b far", "f", "f join", "k", "maybe", "s", papers=papers)
    step = cast(AnyStep, WriteStep("one", Hosts()))
    assert someone.step(STAGE, step, ()) == Answer("stop")
    question = "roll.one: go (g), stop (s), back [TO] (b), findings [STEP] (f)? "
    assert script.shown.count(question) == 6
    said = [line for line in script.shown if line.startswith("  ")]
    assert "  far is ahead" in said
    assert "  behind the newest" in said
    assert "  behind join" in said
    assert [line for line in said if "not understood" in line] == [
        "  not understood: 'k'. g goes on; s stops here, and resume continues;",
        "  not understood: 'maybe'. g goes on; s stops here, and resume continues;",
    ]
    assert papers.asked == ["roll.one"]


def test_a_way_back_that_there_is_not_is_not_offered() -> None:
    someone, script = terminal("b", "b near", "what", "g", papers=Papers(past="there is none after open"))
    assert someone.step(STAGE, cast(AnyStep, WriteStep("one", Hosts())), ()) == Answer("go")
    assert script.shown.count("roll.one: go (g), stop (s), findings [STEP] (f)? ") == 4
    assert script.shown.count("  there is none after open") == 2
    assert not [line for line in script.shown if "walks back" in line]


def test_a_stage_that_may_be_skipped_says_what_is_missing_then_and_takes_skip() -> None:
    stage = Stage("rehearse", "Try", (), consent="Try now?", skip="nothing is known")
    someone, script = terminal("k")
    said = someone.consent(stage)
    assert (said, said.by) == (Answer("skip"), "anna")
    assert script.shown[-3:] == [
        "  Without this stage: nothing is known",
        "  Try now?",
        "rehearse: go (g), stop (s), back [TO] (b), skip (k), findings [STEP] (f)? ",
    ]


def test_a_hold_says_what_it_did_not_understand_and_holds_on() -> None:
    held, script = terminal(" ", "b far", "f roll", "k", "what", "b near")
    answers = [held.hold("cut") for _ in range(6)]
    assert answers == [None, None, None, None, None, Answer("back", "near")]
    assert [line.split(".")[0] for line in script.shown] == [
        "  far is ahead", "  behind roll", "  not understood: 'k'", "  not understood: 'what'"
    ]  # fmt: skip


def test_a_hold_that_somebody_else_ends_does_not_end_with_the_input() -> None:
    assert unattended(None).hold("roll.roll") is None
    assert unattended("g").hold("roll.roll") == Answer("go")


def test_while_it_waits_findings_are_shown_and_stop_is_heard() -> None:
    someone, script = terminal("", " ", "f join", "g", "s")
    assert [someone.listen() for _ in range(5)] == [False, False, False, False, True]
    assert script.shown == [
        "  behind join",
        "  possible input while the run waits: findings [STEP] (f), stop (s); from another "
        "terminal: zkmigrate status, zkmigrate hold",
    ]
    assert terminal(None)[0].listen() is False, "the end of input is no wish"
    held = unattended("s", "back")
    assert held.listen() is False
    assert held.hold("cut") == Answer("stop"), "it was left for the hold"


def test_a_decision_shows_its_finding_whole() -> None:
    someone, script = terminal("f", "b")
    assert someone.decide("cut", TROUBLE, "go", 60.0) == Answer("back")
    shown = [line.partition("expected: ")[0] for line in script.shown]
    assert shown[3:5] == ["  [NO] watch.broker-lost b1: Failed: silent", "       "]


def test_a_consent_names_who_gave_it() -> None:
    someone, script = terminal("y")
    said = someone.consent(STAGE)
    assert (said, said.by) == (Answer("go"), "anna")
    assert "  Restart the brokers?" in script.shown
    said = unattended().consent(STAGE)
    assert (said, said.by) == (Answer("go"), "--yes")


def test_one_step_is_not_asked_about_twice_unless_something_is_doubtful() -> None:
    step = cast(AnyStep, WriteStep("one", Hosts()))
    stage = Stage("roll", "Roll", (step,), consent="Restart?")
    doubt = claim("a.b", "it is", None, severity=Severity.WARN)
    someone, script = terminal("y", "s")
    assert someone.consent(stage) == Answer("go")
    assert someone.step(stage, step, (claim("a.b", "it is", True),)) == Answer("go")
    assert len(script.lines) == 1, "it was not asked"
    assert someone.step(stage, step, (doubt,)) == Answer("stop")
    two = Stage("prepare", "Prepare", (step, step), consent="Write?")
    someone, script = terminal("y", "s")
    someone.consent(two)
    assert someone.step(two, step, ()) == Answer("stop")


def test_before_a_window_its_phases_and_what_was_rehearsed_are_shown() -> None:
    window = cast(AnyStep, WriteStep("fence", Hosts(), Hazard.WINDOW))
    stage = Stage("cutover", "Cut over", (window,), consent="Now?", window=WINDOW)
    someone, script = terminal("g", papers=Papers("as rehearsed: 1.8 s"))
    assert someone.consent(stage) == Answer("go")
    assert "  Phases: fence; there is no question between phases" in script.shown
    assert script.shown.index("  as rehearsed: 1.8 s") < script.shown.index("  Now?")


@pytest.mark.parametrize("rule", ["go", "back"])
def test_ask_without_an_answer_means_what_the_rules_say(rule: Word) -> None:
    assert unattended().decide("cut", TROUBLE, rule, 5.0).word == rule
    silent, script = terminal()
    assert silent.decide("cut", TROUBLE, rule, 5.0).word == rule
    assert f"no answer within 4 s means {rule}" in script.shown[-1]
    ended, _ = terminal(None)
    assert ended.decide("cut", TROUBLE, rule, None).word == rule
    typed, _ = terminal("", "b" if rule == "go" else "g")
    assert typed.decide("cut", TROUBLE, rule, 60.0).word != rule


def test_where_nothing_presses_ask_may_be_answered_with_stop() -> None:
    assert unattended().decide("moves", TROUBLE, "stop", None).word == "stop"
    typed, script = terminal("s")
    assert typed.decide("moves", TROUBLE, "stop", None).word == "stop"
    assert "go (g), stop (s), back (b)" in script.shown[-1]
    pressed, script = terminal("s", "g")
    assert pressed.decide("cut", TROUBLE, "back", 60.0).word == "go", "in a window nobody stops"
    assert "stop" not in script.shown[-1]


def test_a_decision_says_what_a_go_agrees_to_and_lets_others_know_that_it_is_asked() -> None:
    """A second terminal saw a step that works, while the run waited for an answer."""
    papers = Papers()
    typed, script = terminal("g", papers=papers)
    down = replace(TROUBLE, needed="an operator agrees that the roll starts b1 with its new file")
    assert typed.decide("roll.roll", down, "stop", 601.0).word == "go"
    assert "  needed: an operator agrees that the roll starts b1 with its new file" in script.shown
    assert papers.asked == ["watch.broker-lost b1 go (g), stop (s), back (b) or findings (f)? 600"]


def test_ctrl_c_stops_where_stop_is_what_no_answer_means() -> None:
    script = Script("g")
    pressed = Terminal(cast(Console, script), "anna", lambda: 0.0, Papers(), lambda: True)
    assert pressed.decide("roll.roll", TROUBLE, "stop", 600.0) == Answer("stop")
    assert pressed.decide("cut", TROUBLE, "back", 600.0) == Answer("go")


def test_a_hold_goes_on_until_something_is_typed() -> None:
    held, script = terminal("", "what", "go")
    assert [held.hold("cut") for _ in range(3)] == [None, None, Answer("go")]
    assert script.forgotten == 1, "what was typed before the hold, and not what is typed during it"


def test_the_console_reads_whole_lines_and_sees_the_end() -> None:
    reader, writer = os.pipe()
    out = StringIO()
    console = StdConsole(reader, out)
    assert console.poll(0.0) == ""
    os.write(writer, b"ba")
    assert console.poll(0.0) == ""
    os.write(writer, b"ck\ngo\n")
    assert console.poll(1.0) == "back"
    assert console.ask("now? ") == "go"
    assert out.getvalue() == "now? "
    os.close(writer)
    assert console.ask("again? ") is None
    os.close(reader)


def test_an_input_without_lines_keeps_nobody_waiting() -> None:
    with open("/dev/zero", "rb") as endless:
        console = StdConsole(endless.fileno(), StringIO())
        assert console.poll(0.0) == ""
        assert len(console._buffer) == 0


def test_a_brief_is_the_five_paragraphs_of_the_module() -> None:
    text = """What: do it,
in two ``lines``.

Why now: because
it: is time.

Clients may notice: nothing.

Way back: undo it.

Proof: it is there.
"""
    made = brief_in(text)
    assert made.what == "do it, in two `lines`."
    assert made.why_now == "because it: is time."
    assert made.lines()[-1] == "Proof: it is there."
    assert brief_in("Something else.").lines() == ()


def test_every_shipped_step_says_all_five() -> None:
    from playbooks.kafka_zookeeper_move import PLAYBOOK

    for stage in PLAYBOOK.stages:
        for step in stage.steps:
            assert len(brief_of(step).lines()) == 5, f"{stage.id}.{step.id}"


def test_a_rehearsal_says_that_no_client_notices() -> None:
    fence = WriteStep("fence", Hosts(), Hazard.WINDOW)
    nobody = "nothing, no broker uses dest yet"
    for why in (nobody, ""):
        someone, script = terminal("g")
        stage = Stage("try", "Try", (cast(AnyStep, fence),), consent="Now?", window=WINDOW, unnoticed=why)
        someone.consent(stage)
        notice = [line.partition("notice: ")[2] for line in script.shown if "Clients may notice" in line]
        assert (notice == [nobody]) is bool(why)
    [told] = [
        stage.unnoticed for stage in playbook_files.load(playbook_files.DEFAULT).stages if stage.rehearsal
    ]
    assert told == nobody


def test_what_happens_while_a_question_is_open_is_said_and_the_question_repeated() -> None:
    reader, writer = os.pipe()
    said = iter([["a hold is requested, at the next place (anna)"], []])

    def news() -> Sequence[str]:
        lines = next(said)
        if not lines:
            os.write(writer, b"g\n")
        return lines

    out = StringIO()
    assert StdConsole(reader, out, news=news).ask("roll: go? ") == "g"
    assert out.getvalue() == "roll: go? \na hold is requested, at the next place (anna)\nroll: go? "
    os.close(reader)
    os.close(writer)
