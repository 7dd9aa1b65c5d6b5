"""DEST: its servers stop only behind the brokers, and their disks must agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import DEST, context, stopped_by, tail, well
from tests.unit.move.steps.outage import DOWN, SILENT, UNTOLD, UP, broker, brokers, ensemble, services
from zkmigrate.move.steps.dest_down import DestDownStep, DestFacts
from zkmigrate.runbook.model.fact import Unknown
from zkmigrate.runbook.model.step import Done, Ready, Verdict, Waiting, Way

SAME = {host: tail(5) for host in DEST}


def verdict(way: Way = Way.FORWARD, **facts: Any) -> Verdict:
    well = DestFacts(brokers(broker(DOWN)), services(DOWN), SAME)
    return DestDownStep().check(context(way=way), replace(well, **facts))


def test_servers_that_run_are_stopped_all_at_once() -> None:
    assert verdict(services=services(UP), tails={}) == Ready(DEST)
    assert verdict(services=services(DOWN, dest2=UP), tails={}) == Ready(("dest2",))


def test_a_broker_that_runs_keeps_dest_up() -> None:
    states = brokers(broker(DOWN), broker1=broker())
    assert stopped_by(verdict(brokers=states, services=services(UP))) == [("dest.brokers-down", "broker1")]


@pytest.mark.parametrize("status", [SILENT, UNTOLD])
def test_who_does_not_tell_blocks_both_ways(status: Any) -> None:
    for way in Way:
        states = brokers(broker(DOWN), broker1=broker(status))
        assert stopped_by(verdict(way, brokers=states)) == [("dest.service", "broker1")]
        assert stopped_by(verdict(way, services=services(DOWN, dest1=status))) == [("dest.service", "dest1")]


def test_a_majority_must_hold_the_newest_transaction() -> None:
    assert well(verdict())
    assert well(verdict(tails={**SAME, "dest3": tail(4)}))
    assert stopped_by(verdict(tails={**SAME, "dest3": tail(6)})) == [("dest.tail", "")]
    assert stopped_by(verdict(tails={**SAME, "dest3": Unknown("failed", "torn")})) == [("dest.tail", "dest3")]


def test_going_back_they_start_and_are_waited_for() -> None:
    assert verdict(Way.BACK, services=services(UP, dest1=DOWN)) == Ready(("dest1",))
    up = {"services": services(UP)}
    assert isinstance(verdict(Way.BACK, **up, view=ensemble(DEST, "follower", "", "")), Waiting)
    assert isinstance(verdict(Way.BACK, **up), Waiting)
    assert verdict(Way.BACK, **up, view=ensemble(DEST, "follower", "leader", "follower")) == Done()
