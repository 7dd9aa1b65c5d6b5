"""The drill of disturbed moves: its cases, and how it sees that a throttle followed the load."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import KafkaConnectionError
from kazoo.exceptions import NoNodeError

from tests.drills import test_reassign_faults as reassign_faults
from tests.drills.roll_site import Unexpected
from tests.drills.test_reassign_faults import (
    AWAY,
    HOME,
    LEADER_RATE,
    POINTS,
    RAMP_GOAL,
    RAMP_SET,
    TARGET,
    Aim,
    Faults,
    followed,
)
from tests.drills.test_remove_faults import (
    NEIGHBOUR,
    ON_NEIGHBOUR,
    RemovalFaults,
    unfinished,
    without,
)
from tests.unit.judge_fixtures import SECOND, Event, event
from zkmigrate.cluster.placement.cluster import Broker, Cluster
from zkmigrate.cluster.placement.cluster import Partition as Sized
from zkmigrate.cluster.removal.section import Removal
from zkmigrate.cluster.removal.survey import Survey
from zkmigrate.inventory.accept import ACCEPTABLE, Accept
from zkmigrate.kafka.questions import KafkaView
from zkmigrate.lab.cluster_site import FOREIGN, IDS, RACKS, ClusterSite, answered, when_answered
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.load.samples import Partition
from zkmigrate.lab.operator import ToolProcess
from zkmigrate.runbook.accepted import given_up
from zkmigrate.runbook.model.fact import Seen


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
    points = ("first-rate", "first-list", "first-move", "stop", "in-flight", "back")
    assert {name for name in names if name.startswith("kill-")} == {f"kill-{point}" for point in points}
    assert {"controller", "half-way-back", "leaving-dies", "target-dies"} <= names
    assert all(ready for name, *_, ready in played if name != "target-dies"), "that one brings its own sets"


def test_what_is_left_of_a_removal_is_told_once_for_each_partition() -> None:
    now = {
        "a-0": Partition((1, 5), (1,), 1),
        "a-1": Partition((1, 2), (1,), 1),
        "a-2": Partition((1, 2), (2, 1), 1),
    }
    assert unfinished(now, 5) == ["a-0: [1, 5], in sync [1]", "a-1: [1, 2], in sync [1]"]


def test_the_drill_accepts_what_somebody_can_accept() -> None:
    made = Accept.model_validate(without(6))
    assert made.finding in ACCEPTABLE
    assert given_up((made,), made.end - 1) == {6}
    assert given_up((made,), made.end) == frozenset()


def test_what_leaves_the_neighbour_goes_to_the_target_first_and_has_another_place() -> None:
    def after(*alive: int) -> set[int]:
        racks = dict(zip(IDS, RACKS * 2, strict=True))
        brokers = [Broker(id, racks[id], RemovalFaults.small.get(id, 2048) << 20) for id in alive]
        rows = (Sized("load-a", number, ids, 5 << 20) for number, ids in enumerate(ON_NEIGHBOUR.values()))
        cluster = Cluster.of(brokers, rows)
        view = KafkaView("", 1, {id: ("", 0, racks[id]) for id in alive}, (), {}, ())
        wanted = Removal(brokers=(NEIGHBOUR,), throttle_bytes_s=1000)
        plan = Survey(wanted, Seen({}), view, cluster).plan
        return {id for move in getattr(plan, "moves", ()) for id in move.after if id not in (1, 4)}

    assert after(*IDS) == {TARGET}
    assert after(*(id for id in IDS if id != TARGET)) <= {2, 3}


def test_the_ramp_grows_on_no_small_disk() -> None:
    assert TARGET not in {*RAMP_SET, *RAMP_GOAL}
    assert len(set(RAMP_GOAL) - set(RAMP_SET)) == 1


# --- a cluster that is disturbed ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KafkaConnectionError(), NoNodeError(), ConnectionRefusedError()])
def test_a_cluster_that_does_not_answer_is_no_end_of_the_drill(error: Exception) -> None:
    with pytest.raises(LabError, match="does not answer"), answered():
        raise error


def test_a_wait_goes_on_while_the_cluster_does_not_answer() -> None:
    def missing() -> str | None:
        raise LabError("nobody answers")

    assert when_answered(missing)() == "nobody answers"
    assert when_answered(lambda: None)() is None


def test_a_wait_beside_the_tool_is_over_when_the_tool_ends() -> None:
    tool = cast(ToolProcess, SimpleNamespace(has_ended=True, troubles=lambda: "refused"))
    with pytest.raises(Unexpected, match="before a move: refused"):
        Faults(cast(ClusterSite, None)).meanwhile(tool, "a move", lambda: False)


class Site:
    """A cluster whose brokers tell something new at the third look. flowing: since when clients were seen."""

    def __init__(self, **late: Any) -> None:
        self.first: dict[str, Any] = {"partitions": partitions(HOME), "in_flight": {}, "settings": FOUND}
        self.late, self.looks = {**self.first, **late}, 0
        self.load = SimpleNamespace(wait_flowing=lambda *_, **__: None)

    def __getattr__(self, what: str) -> Callable[[], Any]:
        self.looks += what == "partitions"
        return lambda: (self.late if self.looks < 3 else self.first)[what]


FOUND = {f"topic-{FOREIGN[0]}": {FOREIGN[1]: FOREIGN[2]}}


def partitions(sets: reassign_faults.Sets) -> dict[str, Partition]:
    return {name: Partition(ids, ids, ids[0]) for name, ids in sets.items()}


LATE: list[tuple[dict[str, Any], str]] = [
    ({"partitions": partitions(AWAY)}, "not as before: load-a-0"),
    ({"in_flight": {"load-a-0": (6,)}}, "still in flight: .*load-a-0"),
    ({"settings": {}}, "throttles: "),
]


@pytest.mark.parametrize(("late", "told"), LATE)
def test_what_brokers_tell_late_is_waited_for_and_told_where_it_stays(
    late: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aim = Aim(cast(Any, None), HOME, list)
    faults = Faults(cast(ClusterSite, Site(**late)), FOUND)
    assert faults.restored(aim) == "as before, in order and in sync; throttles as found"
    monkeypatch.setattr(reassign_faults, "SETTLED_S", 0.0)
    with pytest.raises(NotReady, match=told):
        Faults(cast(ClusterSite, Site(**late)), FOUND).restored(aim)
