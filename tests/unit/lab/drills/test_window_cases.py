"""The cases of the drill ``window_faults``: they name what there is, and leave out none of what is wanted."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import chain, repeat
from typing import get_args

import pytest
from click.testing import CliRunner

from playbooks.kafka_zookeeper_move import PLAYBOOK
from zkmigrate.lab.drills.window_cases import BEFORE_OPEN, CASES, DEST, LABS, TURNED, Case
from zkmigrate.lab.drills.window_faults import Pace, chosen, main, repeated
from zkmigrate.lab.drills.window_harm import (
    HostDead,
    LinkCut,
    NoRules,
    ServedAgain,
    Silence,
    SourceLeaderDead,
    served_again,
    sessions_on,
)
from zkmigrate.lab.failure import LabError
from zkmigrate.runbook.model import change

WINDOW = tuple(
    step.id for stage in PLAYBOOK.stages if stage.window and not stage.rehearsal for step in stage.steps
)
KINDS = set(change.KINDS)
VERBS = {getattr(kind, "verb", "") for kind in change.KINDS.values()} | set(get_args(change.SimpleVerb))


def of(harm: type) -> list[Case]:
    return [case for case in CASES if isinstance(case.harm, harm)]


def test_every_name_is_there_once() -> None:
    assert [name for name, times in Counter(case.name for case in CASES).items() if times > 1] == []


def test_cases_hold_at_phases_and_kill_at_changes_that_there_are() -> None:
    assert {case.hold for case in CASES} - {""} <= set(WINDOW)
    assert tuple(step for step in WINDOW if step not in ("preflight", "open")) == BEFORE_OPEN
    for case in CASES:
        if case.kill is not None:
            kind, host, others = case.kill
            assert kind in KINDS | VERBS, case.name
            assert host in (*DEST, "any"), case.name
            assert 0 <= others < len(DEST), case.name


def test_each_lab_is_lost_to_at_most_one_case_and_that_is_its_last() -> None:
    for lab in LABS:
        own = [case for case in CASES if case.lab == lab]
        assert own, lab
        assert not any(case.last for case in own[:-1]), lab


def test_a_killed_tool_is_always_taken_up_again() -> None:
    for case in CASES:
        killed = case.kill is not None or case.moment or case.answer == "kill"
        assert (case.code == (-9,)) == bool(killed), case.name
        assert not killed or case.resumed, case.name


def test_there_is_a_case_for_every_row_of_the_matrix() -> None:
    assert [c.hold for c in CASES if c.name.startswith("back-from-")] == list(BEFORE_OPEN)
    between = {c.kill[0] for c in CASES if c.kill is not None and c.kill[2] in (1, 2) and not c.hold}
    assert {"Fence", "Cut", "Seal", "Go"} <= between
    dead = [(c.hold, c.harm.host) for c in CASES if isinstance(c.harm, HostDead) and not c.last]
    assert {phase for phase, _ in dead} == set(BEFORE_OPEN)
    assert min(Counter(host for _, host in dead).values()) >= 2
    assert len({host for _, host in dead}) == len(DEST)
    assert {c.lab for c in CASES if c.name.startswith("broker-")} == {"ask", "back", "forward"}
    assert {"cut", "go"} <= {c.hold for c in of(LinkCut)}
    assert {"fence", "cut", "stop"} == {c.hold for c in of(SourceLeaderDead)}
    silent = {(c.hold, c.harm.kind) for c in CASES if isinstance(c.harm, Silence)}
    assert silent == {(hold, kind) for hold in BEFORE_OPEN for kind in ("frozen", "ssh", "dropped")}
    removed = " ".join(c.harm.command for c in CASES if isinstance(c.harm, NoRules))
    for rule in ("IN 1", "IN 6", "OUT 1", "OUT 3", "iptables -F", "ip6tables"):
        assert rule in removed


def test_chosen_cases_keep_their_order_and_a_pattern_for_none_is_refused() -> None:
    assert [case.name for case in chosen("^back-from-(cut|arm)$")] == ["back-from-arm", "back-from-cut"]
    with pytest.raises(LabError, match="no case 'nothing-of-the-sort'"):
        chosen("nothing-of-the-sort")


def test_cases_are_played_again_on_one_lab_but_none_that_goes_past_open() -> None:
    twice = repeated(chosen("^back-from-(cut|arm)$"), 2)
    assert [case.name for case in twice] == [
        "back-from-arm-1", "back-from-cut-1", "back-from-arm-2", "back-from-cut-2",
    ]  # fmt: skip
    assert {case.hold for case in twice} == {"arm", "cut"}
    with pytest.raises(LabError, match=r"past OPEN a lab cannot be used again.*silent-frozen-go"):
        repeated(chosen("silent-frozen-(go|cut)"), 2)


def test_the_client_that_knows_only_the_frozen_host_is_told_from_the_others() -> None:
    seen = [
        {"event": "connected", "host": "dest2", "session": "0x1"},
        {"event": "connected", "host": "dest3", "session": "0x2"},
        {"event": "connected", "host": "dest2", "session": "0x3"},
        {"event": "disconnected", "host": "dest2", "session": "0x4"},
    ]
    assert sessions_on("dest2", seen) == {"0x3"}
    assert sessions_on("dest1", seen) == set()


@pytest.mark.parametrize(
    ("asked", "again"),
    [
        ([(1, True), (2, True)], 1.0),
        ([(1, False), (2, False), (3, True), (4, True)], 3.0),
        ([(0.5, False), (1, True), (2, True)], 1.0),
        ([(0.5, True), (1, True), (2, False), (3, False), (6, True), (7, True)], 6.0),
        ([(1, False), (4, True), (5, False), (6, True)], 4.0),
        ([(1, False), (2, True), (3, False), (6, True)], 6.0),
    ],
    ids=[
        "always",
        "away since the start",
        "away before it",
        "away later",
        "then for a moment",
        "then for longer",
    ],
)
def test_served_again_is_the_end_of_the_longest_time_without_a_server(
    asked: list[tuple[float, bool]], again: float
) -> None:
    assert served_again(asked, 1.0) == again


def test_brokers_are_asked_for_until_one_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = chain([False, False, False, True], repeat(True))
    monkeypatch.setattr(ServedAgain, "_serves", lambda _self, address: next(answers))
    monkeypatch.setattr("zkmigrate.lab.network.inside", nullcontext)
    served = ServedAgain("broker1", ["10.0.0.1", "10.0.0.2"])
    asked = served.end(30)
    assert [serves for _, serves in asked][:2] == [False, True]
    assert served_again(asked, served.since) == asked[1][0] > served.since


def test_the_list_tells_what_is_expected() -> None:
    said = CliRunner().invoke(main, ["--list", "--only", "^leak-flush$"])
    assert said.exit_code == 0
    assert f"back: {TURNED}, alarm watch.block-leaks" in said.output


def test_what_is_left_is_reckoned_from_what_was_seen() -> None:
    pace = Pace(cases=3, labs=2)
    pace.of_labs.append(50.0)
    pace.of_cases += [10.0, 30.0]
    assert pace.left_s() == 20.0 + 50.0
