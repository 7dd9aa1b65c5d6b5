"""The cases of the drill ``window_faults``: they name what there is, and leave out none of what is wanted."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import chain, repeat
from typing import get_args

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.drills.roll_site import Unexpected
from tests.drills.test_window_faults import repeated
from tests.drills.window_cases import BEFORE_OPEN, CASES, DEST, LABS, Case
from tests.drills.window_harm import (
    HostDead,
    LinkCut,
    NoRules,
    ServedAgain,
    Silence,
    SourceLeaderDead,
    served_again,
    sessions_on,
)
from tests.drills.window_site import WindowSite
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


def test_every_case_is_played_once_and_all_of_a_lab_one_after_the_other() -> None:
    played = repeated(CASES, 1)
    assert sorted(case.name for case in played) == sorted(case.name for case in CASES)
    labs = [case.lab for case in played]
    assert labs == sorted(labs, key=list(LABS).index)


def test_cases_are_played_again_on_one_lab_and_one_that_goes_past_open_once_at_its_end() -> None:
    names = ("back-from-cut", "back-from-arm", "killed-open")
    twice = repeated([case for case in CASES if case.name in names], 2)
    assert [case.name for case in twice] == [
        "back-from-arm-1", "back-from-cut-1", "back-from-arm-2", "back-from-cut-2", "killed-open",
    ]  # fmt: skip
    assert {case.hold for case in twice} == {"arm", "cut", ""}


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


class Judged(WindowSite):
    """A site whose cut-over and hosts are as the test says."""

    def __init__(self, of_the_tool: list[str], of_a_harm: list[str], of_the_hosts: list[str]) -> None:
        self.of_the_tool, self.of_a_harm, self.of_the_hosts = of_the_tool, of_a_harm, of_the_hosts

    def _cut_over(self, case: Case) -> list[str]:
        self.notes.append("run 7")
        self.noticed += self.of_a_harm
        return self.of_the_tool

    def _judged(self, case: Case) -> list[str]:
        if "unreadable" in self.of_the_hosts:
            raise LabError("unreadable")
        return self.of_the_hosts


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (([], [], []), ""),
        ((["went forward"], [], []), "run 7; went forward"),
        (([], ["served late"], []), "run 7; served late"),
        (([], [], ["source changed"]), "run 7; source changed"),
        (([], [], ["unreadable"]), "run 7; unreadable"),
    ],
    ids=["right", "tool", "harm", "hosts", "hosts unreadable"],
)
def test_a_case_holds_when_the_tool_its_harm_and_the_hosts_are_as_they_must_be(
    seen: tuple[list[str], list[str], list[str]], outcome: str
) -> None:
    site = Judged(*seen)
    if not outcome:
        assert site.play(CASES[0]) == "run 7"
    else:
        with pytest.raises(Unexpected, match=rf"^{outcome}$"):
            site.play(CASES[0])


def test_a_lab_is_past_open_after_a_case_that_goes_there_whatever_its_outcome() -> None:
    [past] = [case for case in CASES if case.name == "killed-open"]
    site = Judged([], [], ["source changed"])
    with pytest.raises(Unexpected):
        site.play(past)
    assert site.past_open
