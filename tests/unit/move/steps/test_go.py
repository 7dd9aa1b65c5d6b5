"""GO: who gets it, with which place; and until when it can be taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import (
    DEST,
    OPEN,
    SEALED,
    STARTED,
    context,
    in_phases,
    proved,
    statuses,
    stopped_by,
    well,
)
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.go import GoFacts, GoStep
from zkmigrate.runbook.model.change import Go
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Verdict, Waiting, Way


def verdict(good: HostStatus, **fact: Any) -> Verdict:
    return GoStep(KAFKA).check(context(), GoFacts(statuses(good, **fact), ()))


def test_sealed_hosts_get_their_go_and_no_others() -> None:
    assert verdict(SEALED) == Ready(DEST)
    assert verdict(STARTED, phase="sealed") == Ready(("dest2",))
    for phase in ("go", "started", "checked", "open"):
        assert well(verdict(STARTED, phase=phase)), phase
    assert stopped_by(verdict(SEALED, phase="stopped")) == [("go.phase", "dest2")]
    assert stopped_by(verdict(SEALED, phase="cut")) == [("go.phase", "dest2")]


@pytest.mark.parametrize(
    ("first", "wanted"),
    [
        (("dest1", "dest2", "dest3"), {"dest1": "first", "dest2": "first", "dest3": "first"}),
        (("dest3",), {"dest1": "quorum", "dest2": "rest", "dest3": "first"}),
        (("dest1", "dest3"), {"dest1": "first", "dest2": "rest", "dest3": "first"}),
    ],
)
def test_the_newest_disks_start_first_and_the_others_are_no_majority(
    first: tuple[str, ...], wanted: dict[str, str]
) -> None:
    c = context(prove=proved(first=first))
    found = {h: GoStep(KAFKA).plan(c, GoFacts(statuses(SEALED), ()), h)[0] for h in DEST}
    assert {h: go.place for h, go in found.items() if isinstance(go, Go)} == wanted


def test_without_proves_record_a_sealed_host_starts_last() -> None:
    """Whose disk is the newest is not known; hosts that have opened are led by it."""
    (go,) = GoStep(KAFKA).plan(context(), GoFacts(statuses(OPEN, phase="sealed"), ()), "dest2")
    assert isinstance(go, Go)
    assert go.place == "rest"


def unheard(c: Context, *phases: str, first: tuple[str, ...] = DEST) -> Verdict:
    """dest1, dest2, dest3 in these phases; ``-`` does not answer. first: whose disks are the newest."""
    c = replace(c, records={"prove": proved(first=first)})
    return GoStep(KAFKA).check(c, GoFacts(in_phases(*phases), ()))


def test_before_the_first_go_a_silent_host_stops_the_step() -> None:
    assert stopped_by(unheard(context(), "sealed", "-", "sealed")) == [("host.dest2", "dest2")]
    sent = replace(context(), begun=True)
    assert unheard(sent, "sealed", "-", "sealed") == Ready(("dest1", "dest3"))
    assert unheard(context(), "go", "-", "sealed") == Ready(("dest3",)), "one has it, so it was sent"


def test_a_rehearsal_goes_on_without_no_host() -> None:
    for phase in ("sealed", "go"):
        rehearsal = replace(context(rehearsal=True), begun=True)
        assert stopped_by(unheard(rehearsal, "go", "-", phase)) == [("host.dest2", "dest2")]


@pytest.mark.parametrize(
    ("first", "phases", "enough"),
    [
        (DEST, ("go", "-", "go"), True),
        (DEST, ("go", "-", "-"), False),
        (("dest1", "dest2"), ("go", "go", "-"), True),
        (("dest1", "dest2"), ("go", "-", "go"), False),
        (("dest1",), ("go", "go", "-"), True),
        (("dest1",), ("go", "-", "go"), False),
        (("dest3",), ("go", "-", "go"), True),
        (("dest3",), ("go", "go", "-"), False),
        (("dest3",), ("-", "go", "go"), False),
        (("dest3",), ("started", "go", "-"), True),
        (("dest3",), ("-", "checked", "checked"), True),
    ],
)
def test_hosts_with_go_finish_without_silent_ones_where_they_can_form_the_quorum(
    first: tuple[str, ...], phases: tuple[str, ...], enough: bool
) -> None:
    """Where F is no majority its helper waits for it, and the others never lead; who serves has a quorum."""
    verdict = unheard(context(), *phases, first=first)
    silent = [host for host, phase in zip(DEST, phases, strict=True) if phase == "-"]
    if enough:
        assert isinstance(verdict, Done)
        assert well(verdict)
        assert [f.target for f in verdict.findings if f.id == "go.not-heard"] == silent
    else:
        assert stopped_by(verdict) == [("go.majority", ""), *((f"host.{host}", host) for host in silent)]


@pytest.mark.parametrize(
    ("phase", "begun", "others_back"),
    [("sealed", False, True), ("sealed", True, False), ("go", False, False)],
)
def test_going_back_the_others_leave_a_silent_host_only_where_no_go_was_sent(
    phase: str, begun: bool, others_back: bool
) -> None:
    stopped = unheard(replace(context(way=Way.BACK), begun=begun), phase, "-", "sealed")
    assert isinstance(stopped, Blocked)
    assert stopped.others_back is others_back


def back(good: HostStatus, alive: tuple[str, ...] = DEST, **fact: Any) -> Verdict:
    return GoStep(KAFKA).check(context(way=Way.BACK), GoFacts(statuses(good, **fact), alive))


def test_going_back_all_that_have_their_go_are_stopped() -> None:
    assert back(STARTED) == Ready(DEST)
    assert back(SEALED, phase="go") == Ready(("dest2",))
    assert well(back(SEALED))


def test_a_host_that_has_opened_leaves_no_way_back() -> None:
    refused = back(STARTED, phase="open")
    assert isinstance(refused, Blocked)
    assert refused.no_way_back


def test_hosts_about_to_open_by_themselves_are_not_stopped_one_by_one() -> None:
    limit = context().inventory.policy.open_limit_s
    assert isinstance(back(STARTED, served_s=limit - 1.0), Waiting)
    assert back(STARTED, served_s=limit - 10.0) == Ready(DEST)
    assert back(STARTED, ("dest2",), served_s=limit - 1.0) == Ready(DEST), "alone it never opens"
