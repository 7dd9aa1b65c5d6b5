"""Who says go, and what a step says about itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import StringIO
from typing import cast

import pytest

from tests.unit.engine_world import Hosts, WriteStep
from zkmigrate.engine import brief
from zkmigrate.engine.confirm import Console, Terminal, Unattended
from zkmigrate.engine.ports import Answer, Fallback
from zkmigrate.model.finding import Finding, Held, Severity, claim
from zkmigrate.model.playbook import Stage
from zkmigrate.model.step import AnyStep, Hazard
from zkmigrate.ui import found
from zkmigrate.ui.console import StdConsole

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


def terminal(*lines: str | None) -> tuple[Terminal, Script]:
    script = Script(*lines)
    ticks = iter(range(10_000))
    return Terminal(cast(Console, script), "anna", lambda: float(next(ticks)), found.findings), script


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["g"], Answer("go")),
        (["perhaps", "", "stop"], Answer("stop")),
        (["back"], Answer("back")),
        (["b join.join"], Answer("back", "join.join")),
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


def test_a_consent_names_who_gave_it() -> None:
    someone, script = terminal("y")
    assert someone.consent(STAGE) == (Answer("go"), "anna")
    assert "  Restart the brokers?" in script.shown
    assert Unattended(cast(Console, Script())).consent(STAGE) == (Answer("go"), "--yes")


def test_one_step_is_not_asked_about_twice_unless_something_is_doubtful() -> None:
    step = cast(AnyStep, WriteStep("one", Hosts()))
    stage = Stage("roll", "Roll", (step,), consent="Restart?")
    doubt = claim("a.b", "it is", None, severity=Severity.WARN)
    someone, script = terminal("y", "s")
    assert someone.consent(stage) == (Answer("go"), "anna")
    assert someone.step(stage, step, (claim("a.b", "it is", True),)) == Answer("go")
    assert len(script.lines) == 1, "it was not asked"
    assert someone.step(stage, step, (doubt,)) == Answer("stop")
    two = Stage("prepare", "Prepare", (step, step), consent="Write?")
    someone, script = terminal("y", "s")
    someone.consent(two)
    assert someone.step(two, step, ()) == Answer("stop")


def test_before_a_window_its_phases_and_what_was_rehearsed_are_shown() -> None:
    window = cast(AnyStep, WriteStep("fence", Hosts(), Hazard.WINDOW))
    stage = Stage("cutover", "Cut over", (window,), consent="Now?", window=True)
    script = Script("g")
    remarks = {"cutover": ["as rehearsed: 1.8 s"]}
    someone = Terminal(cast(Console, script), "anna", lambda: 0.0, found.findings, lambda s: remarks[s.id])
    assert someone.consent(stage)[0] == Answer("go")
    assert "  Phases: fence; no question between them" in script.shown
    assert script.shown.index("  as rehearsed: 1.8 s") < script.shown.index("  Now?")


@pytest.mark.parametrize("rule", ["go", "back"])
def test_ask_without_an_answer_means_what_the_rules_say(rule: Fallback) -> None:
    assert Unattended(cast(Console, Script())).decide("cut", TROUBLE, rule, 5.0) == rule
    silent, script = terminal()
    assert silent.decide("cut", TROUBLE, rule, 5.0) == rule
    assert f"no answer in time means {rule}" in script.shown[-1]
    ended, _ = terminal(None)
    assert ended.decide("cut", TROUBLE, rule, None) == rule
    typed, _ = terminal("", "b" if rule == "go" else "g")
    assert typed.decide("cut", TROUBLE, rule, 60.0) != rule


def test_a_hold_goes_on_until_something_is_typed() -> None:
    held, script = terminal("", "what", "go")
    assert [held.hold("cut", "back", 5.0) for _ in range(3)] == [None, None, Answer("go")]
    assert script.forgotten == 1, "what was typed before the hold, and not what is typed during it"
    closed = Unattended(cast(Console, Script(None, None)))
    rules: tuple[Fallback, ...] = ("back", "go")
    assert [closed.hold("cut", rule, None) for rule in rules] == [Answer("back"), Answer("go")]


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


def test_a_brief_is_the_five_paragraphs_of_the_module() -> None:
    text = """What: do it,
in two lines.

Why now: because
it: is time.

Clients may notice: nothing.

Way back: undo it.

Proof: it is there.
"""
    made = brief.parse(text)
    assert made.what == "do it, in two lines."
    assert made.why_now == "because it: is time."
    assert made.lines()[-1] == "Proof: it is there."
    assert brief.parse("Something else.").lines() == ()


def test_every_shipped_step_says_all_five() -> None:
    from playbooks.kafka_zookeeper_move import PLAYBOOK

    for stage in PLAYBOOK.stages:
        for step in stage.steps:
            assert len(brief.of(step).lines()) == 5, f"{stage.id}.{step.id}"
