"""Where a run ends or waits: what the operator gives, and what the run does at each place."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from playbooks.kafka_reassign import PLAYBOOK
from playbooks.kafka_zookeeper_move import PLAYBOOK as MOVE
from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine.history import Next
from zkmigrate.runbook.engine.hold_file import Hold
from zkmigrate.runbook.engine.pause import (
    Moment,
    Pause,
    Spot,
    Verdict,
    decide,
    parse,
    requested,
    where,
    words,
)
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import Way

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime.fromisoformat("2026-11-26T21:00Z").timestamp()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("22:30", "2026-11-26T21:30Z"),
        ("06:00", "2026-11-27T05:00Z"),
        ("22:00", "2026-11-27T21:00Z"),
        ("2026-11-28T06:00", "2026-11-28T05:00Z"),
        ("2026-11-28T06:00Z", "2026-11-28T06:00Z"),
        ("2026-11-28T06:00-05:00", "2026-11-28T11:00Z"),
    ],
)
def test_a_time_is_the_next_one_by_the_clocks_of_the_machine(text: str, when: str) -> None:
    assert parse(PLAYBOOK, text, NOW, zone=BERLIN) == Pause(at=at(when))
    assert parse(PLAYBOOK, text, NOW, end=True, zone=BERLIN) == Pause(at=at(when), end=True)


def test_a_night_in_which_the_clocks_change() -> None:
    assert parse(PLAYBOOK, "06:00", at("2026-03-28T21:00Z"), zone=BERLIN).at == at("2026-03-29T04:00Z")
    assert parse(PLAYBOOK, "06:00", at("2026-10-24T20:00Z"), zone=BERLIN).at == at("2026-10-25T05:00Z")
    for now, then in (("00:10", "00:30"), ("00:45", "01:30")):  # this hour occurs twice
        asked = parse(PLAYBOOK, "02:30", at(f"2026-10-25T{now}Z"), zone=BERLIN)
        assert asked.at == at(f"2026-10-25T{then}Z")
    assert parse(PLAYBOOK, "02:30", at("2026-10-25T01:45Z"), zone=BERLIN).at == at("2026-10-26T01:30Z")
    assert parse(PLAYBOOK, "02:30", at("2026-03-29T00:45Z"), zone=BERLIN).at == at("2026-03-29T01:30Z")


@pytest.mark.parametrize(
    ("text", "end", "expected", "told"),
    [
        ("move.replicas", True, Pause("move.replicas", end=True), None),
        ("", True, Pause(end=True), None),
        ("move.replicas", False, Pause("move.replicas"), "before move.replicas"),
        ("", False, Pause(), "at the next place"),
        ("1", False, Pause(number=1), "after 1 partition"),
        ("20", False, Pause(number=20), "after 20 partitions"),
    ],
)
def test_a_name_stays_a_name_and_a_number_counts(
    text: str, end: bool, expected: Pause, told: str | None
) -> None:
    found = parse(PLAYBOOK, text, NOW, end=end)
    assert (found, found.text) == (expected, text)
    assert told is None or where(PLAYBOOK, found) == told


def test_a_step_of_a_window_is_held_after_and_needs_no_stage() -> None:
    assert where(MOVE, parse(MOVE, "cut", NOW)) == "after cutover.cut"
    assert where(MOVE, parse(MOVE, "cutover", NOW)) == "before cutover"


@pytest.mark.parametrize(
    ("text", "end", "why"),
    [
        ("2026-11-26T20:59Z", True, "is past"),
        ("2026-11-26T21:00Z", False, "is past"),
        ("2026-13-01T06:00", True, "needed: a time such as"),
        ("2026-11-28Tnoon", False, "needed: a time such as"),
        ("25:00", True, "is not a stage or step of kafka_reassign"),
        ("6:00", True, "is not a stage or step of kafka_reassign"),
        ("3", True, "is not a stage or step of kafka_reassign"),
        ("0", False, "cannot hold at 0"),
        ("nowhere", False, "cannot hold at 'nowhere' in kafka_reassign: no such place"),
    ],
)
def test_what_is_neither_is_refused(text: str, end: bool, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(PLAYBOOK, text, NOW, end=end)


def test_a_number_needs_a_step_that_counts() -> None:
    with pytest.raises(UsageError, match="cannot hold at 3: "):
        parse(replace(PLAYBOOK, counted=()), "3", NOW)


def test_a_clock_time_in_a_hold_file_counts_from_when_it_was_written() -> None:
    """It was a day ago: the time has come, though the same words mean tomorrow's now."""
    found, wrong = requested(PLAYBOOK, Hold(at="2026-11-26T21:30Z", since=NOW))
    assert (found.at, wrong) == (NOW + 1800, "")
    assert where(PLAYBOOK, found).startswith("at the next place from 2026-11-26T")
    clock = requested(PLAYBOOK, Hold(at="22:30", since=NOW))[0].at
    assert clock is not None
    assert NOW < clock <= NOW + 86_400
    found, wrong = requested(PLAYBOOK, Hold(at="nowhere", since=NOW))
    assert (found, wrong.partition(";")[0]) == (
        Pause(), "cannot hold at 'nowhere' in kafka_reassign: no such place"
    )  # fmt: skip


def stage(id: str) -> Stage:
    return next(stage for stage in MOVE.stages if stage.id == id)


def spot(name: str, moment: Moment, way: Way = Way.FORWARD, **facts: Any) -> Spot:
    of = stage(name.partition(".")[0])
    step = next(step for step in of.steps if f"{of.id}.{step.id}" == name)
    return Spot(Next(of, step, way), moment, **facts)


HERE, ROLL, CUT = Pause(), Pause("roll.roll"), Pause("cutover.cut")
BEFORE, BETWEEN, AFTER = Moment
BACK: dict[str, Any] = {"way": Way.BACK, "entered": True}
INSIDE: dict[str, Any] = {"entered": True}
GO, WAIT, END = Verdict
END_AT, END_AFTER = Pause(at=NOW, end=True), Pause("join", end=True)
LATE = Pause(at=NOW)


@pytest.mark.parametrize(
    ("pause", "place", "verdict"),
    [
        # the next place
        (HERE, spot("preflight.preflight", BEFORE), WAIT),
        (HERE, spot("roll.roll", BEFORE, **INSIDE), WAIT),
        (HERE, spot("roll.roll", BETWEEN, **INSIDE), WAIT),
        (HERE, spot("roll.roll", BEFORE, **BACK), WAIT),
        (HERE, spot("roll.roll", BETWEEN, **BACK), WAIT),
        (HERE, spot("roll.roll", AFTER, **INSIDE), GO),
        (HERE, spot("cutover.preflight", BEFORE), WAIT),
        (HERE, spot("cutover.cut", BEFORE, **INSIDE), GO),
        (HERE, spot("cutover.cut", BETWEEN, **INSIDE), GO),
        (HERE, spot("cutover.cut", AFTER, **INSIDE), WAIT),
        (HERE, spot("cutover.cut", AFTER, **BACK), GO),
        (HERE, spot("cutover.cut", BEFORE, **BACK), GO),
        # a rehearsal is held before it begins, not inside
        (HERE, spot("rehearse.arm", BEFORE), WAIT),
        (HERE, spot("rehearse.cut", BEFORE, **INSIDE), GO),
        (HERE, spot("rehearse.cut", AFTER, **INSIDE), GO),
        # a named place, forward only
        (ROLL, spot("roll.roll", BEFORE, **INSIDE), WAIT),
        (ROLL, spot("roll.preflight", BEFORE), GO),
        (ROLL, spot("roll.roll", BETWEEN, **INSIDE), GO),
        (ROLL, spot("roll.roll", BEFORE, **BACK), GO),
        (Pause("roll"), spot("roll.preflight", BEFORE), WAIT),
        (Pause("roll"), spot("roll.roll", BEFORE, **INSIDE), GO),
        (Pause("cutover"), spot("cutover.preflight", BEFORE), WAIT),
        (Pause("cutover"), spot("cutover.preflight", AFTER, **INSIDE), GO),
        (Pause("cutover.preflight"), spot("cutover.preflight", BEFORE), GO),
        (CUT, spot("cutover.cut", AFTER, **INSIDE), WAIT),
        (CUT, spot("cutover.stop", AFTER, **INSIDE), GO),
        (CUT, spot("cutover.cut", BEFORE, **INSIDE), GO),
        # a number of targets, forward only
        (Pause(number=2), spot("roll.roll", BETWEEN, changed=2, **INSIDE), WAIT),
        (Pause(number=2), spot("roll.roll", BETWEEN, changed=3, **INSIDE), WAIT),
        (Pause(number=2), spot("roll.roll", BETWEEN, changed=1, **INSIDE), GO),
        (Pause(number=2), spot("roll.roll", BETWEEN, changed=2, **BACK), GO),
        (Pause(number=2), spot("roll.roll", BEFORE, changed=2, **INSIDE), GO),
        # a time
        (LATE, spot("roll.roll", BEFORE, **INSIDE), WAIT),
        (Pause(at=NOW + 0.1), spot("roll.roll", BEFORE, **INSIDE), GO),
        # the end of a walk: after a place, or at a time before a window
        (END_AFTER, spot("roll.preflight", BEFORE, done={"join.join", "join"}), END),
        (END_AFTER, spot("roll.preflight", BEFORE, done={"join.join"}), GO),
        (END_AFTER, spot("roll.preflight", BEFORE, done={"join"}, **BACK), GO),
        (END_AT, spot("roll.roll", BEFORE, **INSIDE), END),
        (END_AT._replace(at=NOW + 0.1), spot("roll.roll", BEFORE, **INSIDE), GO),
        (END_AT, spot("roll.roll", BEFORE, **BACK), GO),
        (END_AT, spot("cutover.preflight", BEFORE), END),
        (END_AT, spot("cutover.cut", BEFORE, **INSIDE), GO),
        (END_AT, spot("cutover.cut", AFTER, **INSIDE), GO),
        (END_AT, spot("rehearse.cut", BEFORE, **INSIDE), GO),
    ],
)
def test_what_a_run_does_at_a_place(pause: Pause, place: Spot, verdict: Verdict) -> None:
    assert decide(pause, place, NOW) is verdict


def test_a_time_without_a_zone_is_of_this_machine() -> None:
    found = parse(PLAYBOOK, "2026-11-28T06:00", NOW).at
    assert found == datetime(2026, 11, 28, 6).astimezone().timestamp()
    assert words(at("2026-11-27T05:00Z"), BERLIN) == "2026-11-27T06:00+0100"
    assert words(at("2026-11-27T05:00:07Z"), BERLIN) == "2026-11-27T06:00:07+0100", "it stays to come"
