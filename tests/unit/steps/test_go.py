"""GO: who gets it, with which place; and until when it can be taken back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.steps.facts import DEST, OPEN, SEALED, STARTED, context, statuses, stopped_by, well
from zkmigrate.facts.host import HostStatus
from zkmigrate.model.change import Go
from zkmigrate.model.step import Blocked, Ready, Verdict, Waiting, Way
from zkmigrate.steps.go import GoFacts, GoStep


def verdict(good: HostStatus, **fact: Any) -> Verdict:
    return GoStep().check(context(), GoFacts(statuses(good, **fact), ()), Way.FORWARD)


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
    c = context(prove={"first": list(first)})
    found = {h: GoStep().plan(c, GoFacts(statuses(SEALED), ()), h)[0] for h in DEST}
    assert {h: go.place for h, go in found.items() if isinstance(go, Go)} == wanted


def test_without_proves_record_a_sealed_host_starts_last() -> None:
    """Whose disk is the newest is not known; hosts that have opened are led by it."""
    (go,) = GoStep().plan(context(), GoFacts(statuses(OPEN, phase="sealed"), ()), "dest2")
    assert isinstance(go, Go)
    assert go.place == "rest"


def back(good: HostStatus, alive: tuple[str, ...] = DEST, **fact: Any) -> Verdict:
    return GoStep().check(context(way=Way.BACK), GoFacts(statuses(good, **fact), alive), Way.BACK)


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
