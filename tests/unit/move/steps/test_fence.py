"""FENCE: which facts say that the door is shut, and which that it is open again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.move.steps.facts import ARMED, DEST, FENCED, context, dest_states, stopped_by, well
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.dest_status import DestStates
from zkmigrate.move.steps.fence import FenceFacts, FenceStep
from zkmigrate.runbook.model.step import Blocked, Ready, Verdict, Way


def verdict(f: DestStates, way: Way = Way.FORWARD) -> Verdict:
    return FenceStep(KAFKA).check(context(way=way), FenceFacts(f))


def test_a_door_that_is_shut_on_every_host_is_done() -> None:
    assert well(verdict(dest_states(FENCED)))


@pytest.mark.parametrize(
    "fact",
    [
        {"in4": "present"},
        {"in6": "absent"},
        {"fence_entries": 1},
        {"client_sockets": 1},
        {"client_sockets": None},
    ],
    ids=str,
)
def test_one_false_fact_leaves_the_door_open(fact: dict[str, Any]) -> None:
    assert stopped_by(verdict(dest_states(FENCED, **fact))) == [("fence.closed", "dest2")]


def test_a_host_without_ipv6_can_be_shut() -> None:
    assert well(verdict(dest_states(FENCED, in6="noipv6", out6="noipv6")))


def test_armed_hosts_are_to_be_fenced() -> None:
    assert verdict(dest_states(FENCED, phase="armed")) == Ready(("dest2",))
    assert verdict(dest_states(ARMED)) == Ready(DEST)


def test_a_host_in_another_phase_or_silent_blocks() -> None:
    assert stopped_by(verdict(dest_states(FENCED, phase="cut"))) == [("fence.phase", "dest2")]
    assert stopped_by(verdict(dest_states(FENCED, silent="dest3"))) == [("host.dest3", "dest3")]


def test_the_way_back_opens_every_door_that_is_shut() -> None:
    assert verdict(dest_states(FENCED), Way.BACK) == Ready(DEST)
    assert verdict(dest_states(ARMED, fence_entries=2), Way.BACK) == Ready(("dest2",))
    assert well(verdict(dest_states(ARMED), Way.BACK))


def test_the_way_back_is_not_done_while_a_set_holds_an_entry() -> None:
    assert stopped_by(verdict(dest_states(ARMED, phase="idle", fence_entries=1), Way.BACK)) == [
        ("fence.reopened", "dest2")
    ]


def test_a_silent_host_leaves_the_others_back() -> None:
    silent = verdict(dest_states(ARMED, silent="dest1"), Way.BACK)
    assert isinstance(silent, Blocked)
    assert silent.others_back
    assert verdict(dest_states(FENCED, silent="dest1"), Way.BACK) == Ready(("dest2", "dest3"))
