"""Reassignments of another tool: refused, waited for, or throttled along; never cancelled or changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.engine_world import Killed, Points, back, forward, resume
from tests.world.cluster_desk import at
from tests.world.cluster_state import Flight
from tests.world.reassigning import ReassignDesk, found, inventory, plan, world
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST, FOLLOWER_RATE, LEADER_LIST
from zkmigrate.kafka.changes import CancelReassignment, ReassignPartition
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.model.change import Change

THEIRS = ("t2", 0)


def desk(
    tmp_path: Path, others: str, theirs: tuple[str, int] = THEIRS, hung: tuple[int, ...] = (5,)
) -> ReassignDesk:
    """The plan is for topics t0 and t1. Another hand moves a partition from brokers 3 and 1 to 5 and 1, and
    broker 5 copies nothing at first."""
    cluster = world(12)
    sets = {name: replicas for name, replicas in plan(cluster).items() if name[0] != "t2"}
    before = cluster.held[theirs].replicas
    cluster.flights[theirs] = Flight((5, before[1]), before, {5: 0})
    cluster.hung = set(hung)
    return ReassignDesk(tmp_path / "r", cluster, inventory(sets, {}, None, others=others))


def theirs(made: ReassignDesk) -> list[Change]:
    """The changes of the run to what another hand moves."""
    return [
        change
        for change in made.cluster.made
        if isinstance(change, ReassignPartition | CancelReassignment)
        and (change.topic, change.partition) == THEIRS
    ]


def waits(made: ReassignDesk, what: str) -> list[str]:
    return [event.progress for event in made.seen if isinstance(event, events.Waits) and event.what == what]


OVER = "other tools' reassignments have ended"
FLYING = "the moves in flight have ended"


def test_t4_by_default_they_are_refused_by_name(tmp_path: Path) -> None:
    made = desk(tmp_path, "refuse")
    ended = made.process(forward)
    assert (ended.code, [f.id for f in ended.findings if f.blocks]) == (3, ["reassign.foreign"])
    assert "set reassign.others" in ended.findings[3].moves[0]


def test_t4_the_run_waits_for_their_end_before_its_first_change(tmp_path: Path) -> None:
    made = desk(tmp_path, "wait", hung=())
    made.cluster.topics["t2"][FOLLOWER_LIST] = "*"
    made.cluster.rates[5] = {FOLLOWER_RATE: "500000"}
    made.first = made.cluster.copy()
    flying: list[bool] = []
    made.before_change = lambda _: flying.append(THEIRS in made.cluster.flights)
    assert made.process(forward).code == 0
    assert (set(flying), theirs(made)) == ({False}, [])
    made.first.held[THEIRS] = made.cluster.held[THEIRS]
    assert made.there
    assert "1 in flight; t2-0 on 5: 1,500,000 bytes of 3,000,000 bytes" in waits(made, OVER)
    assert (
        found(made, "reassign.others").seen
        == "t2-0 to 5,1; the run waits for their end before its first change"
    )


def test_one_that_hangs_is_not_waited_for_without_end(tmp_path: Path) -> None:
    made = desk(tmp_path, "wait")
    ended = made.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["engine.wait-over"])
    assert ended.findings[0].seen.startswith("1 in flight; t2-0 on 5: 0 bytes of 3,000,000 bytes")
    assert made.cluster.made == []
    made.cluster.hung.clear()
    assert made.process(resume).code == 0


def test_t4_taken_along_they_are_throttled_and_told_and_left_to_end(tmp_path: Path) -> None:
    made = desk(tmp_path, "take")
    lists: list[dict[str, str]] = []

    def goes_on() -> None:
        made.cluster.hung.clear()
        made.cluster.held[THEIRS].size = 40_000_000
        lists.append(dict(made.cluster.topics["t2"]))

    made.before_change = at(1, ReassignPartition, goes_on)
    assert made.process(forward).code == 0
    assert theirs(made) == []
    assert made.cluster.held[THEIRS].replicas == (5, 1)
    assert made.cluster.unthrottled == 0
    assert lists == [{**made.first.topics["t2"], LEADER_LIST: "0:1,0:3,0:5", FOLLOWER_LIST: "0:5"}]
    made.first.held[THEIRS] = made.cluster.held[THEIRS]
    assert made.there, "the throttle came off after their end"
    told = waits(made, FLYING)
    assert any("moved by another tool: t2-0 on 5: " in progress for progress in told)


def test_t4_a_run_without_moves_of_its_own_throttles_theirs(tmp_path: Path) -> None:
    made = desk(tmp_path, "take")
    made.inventory = inventory({("t0", 0): (1, 2)}, {}, None, others="take")
    made.before_change = lambda change: made.cluster.hung.clear() if _last_of_throttle(change) else None
    assert made.process(forward).code == 0
    assert made.cluster.unthrottled == 0
    assert made.cluster.held[THEIRS].replicas == (5, 1)
    assert made.settings_kept


def _last_of_throttle(change: Change) -> bool:
    return getattr(change, "key", "") == FOLLOWER_LIST


def test_t4_a_partition_of_the_plan_in_flight_is_waited_for_and_then_moved(tmp_path: Path) -> None:
    """Kafka would silently replace its target."""
    mine = ("t0", 0)
    made = desk(tmp_path, "take", mine)
    calls: list[int] = []

    def heard(event: events.Event) -> None:
        if isinstance(event, events.Waits) and event.what == OVER:
            calls.append(1)
            made.cluster.hung.clear()

    class Heard(list[events.Event]):
        def append(self, event: events.Event) -> None:
            super().append(event)
            heard(event)

    made.seen = Heard()
    assert made.process(forward).code == 0
    assert calls
    assert (made.there, made.cluster.replaced) == (True, [])
    made.first.held[mine].replicas = made.first.held[mine].isr = (5, 2)
    made.first.held[mine].leader = 5
    made.first.flights.clear()
    assert made.process(back).code == 0
    assert made.home, "back where the other hand had moved it"


def ends_at(made: ReassignDesk, number: int, act: Callable[[Walk], RunEnded]) -> bool:
    """Whether a process was killed at its change of this number."""
    try:
        made.process(act, Points(number, kinds=("applied",)))
    except Killed:
        return True
    return False


@pytest.mark.parametrize("number", range(1, 60, 4))
def test_t4_the_way_back_leaves_theirs_alone(tmp_path: Path, number: int) -> None:
    made = desk(tmp_path, "take")
    ends_at(made, number, forward)
    assert made.process(back) == RunEnded(0, "back at the beginning: asked by the operator")
    assert theirs(made) == []
    assert THEIRS in made.cluster.flights, "broker 5 copied nothing"
    del made.cluster.flights[THEIRS]
    assert made.home


def test_what_another_hand_begins_since_is_told(tmp_path: Path) -> None:
    made = desk(tmp_path, "refuse")
    made.cluster.flights.clear()
    made.cluster.hung.clear()
    made.first = made.cluster.copy()

    def begun() -> None:
        before = made.cluster.held[THEIRS].replicas
        made.cluster.flights[THEIRS] = Flight((5, before[1]), before, {5: -(5 * 10**12)})

    made.before_change = at(2, ReassignPartition, begun)
    assert made.process(forward).code == 0
    assert any("begun by another tool since, and not throttled: t2-0" in told for told in waits(made, FLYING))
