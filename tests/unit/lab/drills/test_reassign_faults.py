"""The drill of disturbed moves: its cases, and how it sees that a throttle followed the load."""

from __future__ import annotations

from typing import cast

from tests.unit.judge_fixtures import SECOND, Event, event
from zkmigrate.lab.cluster_site import ClusterSite
from zkmigrate.lab.drills.reassign_faults import (
    AWAY,
    HOME,
    LEADER_RATE,
    POINTS,
    TARGET,
    Faults,
    followed,
)
from zkmigrate.lab.drills.remove_faults import RemovalFaults


def sample(second: int, rate: int | None, broker: int = 1) -> Event:
    rates = None if rate is None else {f"broker-{broker}": {LEADER_RATE: str(rate)}}
    return event("sample", second * SECOND, rates=rates)


def test_the_last_rate_in_each_step_counts() -> None:
    steps = [10 * SECOND, 20 * SECOND, 30 * SECOND]
    seen = [sample(5, 9), sample(11, 1), sample(19, 4), sample(20, 3), sample(29, None), sample(31, 7)]
    seen += [sample(32, 8, broker=2)]
    assert followed(seen, 1, steps) == [4, 3, 7]
    assert followed(seen[:4], 1, steps) == [4, 3], "no rate was seen in the last step"


def test_the_cases_have_names_of_runs_and_there_are_five_points_of_a_kill() -> None:
    names = [name for name, *_ in Faults(cast(ClusterSite, None)).cases()]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 24 and name.replace("-", "").isalnum() for name in names)
    assert len(POINTS) + 1 == 5
    assert {"controller", "target-dead", "target-returns", "disk-full", "half-way-back", "follow"} <= set(
        names
    )


def test_each_move_copies_to_the_target_and_changes_the_preferred_leader() -> None:
    for name, ids in HOME.items():
        assert TARGET in AWAY[name]
        assert TARGET not in ids
        assert AWAY[name][0] != ids[0]


def test_the_removal_has_the_same_kills_and_each_needs_a_broker_that_holds_something() -> None:
    played = RemovalFaults(cast(ClusterSite, None)).cases()
    names = {name for name, *_ in played}
    points = ("first-rate", "first-list", "first-move", "election", "in-flight", "back")
    assert {name for name in names if name.startswith("kill-")} == {f"kill-{point}" for point in points}
    assert {"controller", "half-way-back"} <= names
    assert all(ready for *_, ready in played)
