"""BROKERS: who is stopped next, when dest has let go of all, and how they come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import ARMED, context, stopped_by, well
from tests.unit.move.steps.outage import BROKERS, DOWN, SILENT, UNTOLD, broker, brokers, registered, view
from zkmigrate.inventory.inventory import without_brokers
from zkmigrate.kafka.facts.recovery import Recovery
from zkmigrate.move.facts.records import Outage
from zkmigrate.move.steps.brokers_down import BrokersDownStep, DownFacts, stopped_order
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.step import Context, Done, Ready, Verdict, Waiting, Way

ALL_DOWN = brokers(broker(DOWN))
STOPPED = Outage(("broker3", "broker1", "broker2"))


def c(way: Way = Way.FORWARD, begun: bool = True) -> Context:
    return replace(context(way=way, brokers=STOPPED.encode()), begun=begun)


def verdict(way: Way = Way.FORWARD, begun: bool = True, **facts: Any) -> Verdict:
    well = DownFacts(brokers(broker()), view(), registered(1, 2, 3, controller=2))
    return BrokersDownStep().check(c(way, begun), replace(well, **facts))


def test_the_controller_stops_last_and_the_order_is_recorded_before_each_stop() -> None:
    first = verdict(begun=False)
    assert first == Ready(("broker1",), record=Outage(("broker2", "broker3", "broker1")).encode())
    left: dict[str, Any] = {
        "brokers": brokers(broker(DOWN), broker2=broker(), broker3=broker()),
        "view": view((2, 3)),
    }
    assert isinstance(second := verdict(**left), Ready)
    assert second.targets == ("broker3",)
    last: dict[str, Any] = {"brokers": brokers(broker(DOWN), broker2=broker()), "view": view((2,))}
    assert verdict(**last) == Ready(("broker2",), record=STOPPED.encode())


def test_a_replica_that_is_up_and_out_of_sync_is_waited_for() -> None:
    assert isinstance(verdict(view=view((1, 3))), Waiting)
    gone = brokers(broker(), broker2=broker(DOWN))
    assert isinstance(verdict(brokers=gone, view=view((1, 3))), Ready)


def test_a_broker_that_takes_its_time_to_stop_is_waited_for() -> None:
    slow = Seen(replace(ARMED, unit_state="deactivating"))
    stopping = verdict(brokers=brokers(broker(), broker1=broker(slow)))
    assert isinstance(stopping, Waiting)
    assert stopping.what == "broker1 has stopped"


@pytest.mark.parametrize("status", [SILENT, UNTOLD])
def test_a_broker_that_may_run_blocks_both_ways(status: Any) -> None:
    states = brokers(broker(DOWN), broker3=broker(status))
    for way in Way:
        assert stopped_by(verdict(way, brokers=states)) == [("brokers.service", "broker3")]


def test_brokers_that_do_not_answer_are_waited_for() -> None:
    assert isinstance(verdict(view=Unknown("refused", "nobody")), Waiting)


@pytest.mark.parametrize("dest", [registered(2), registered(controller=1), Unknown("failed", "no")])
def test_all_are_down_only_once_dest_has_ended_their_sessions(dest: Any) -> None:
    assert isinstance(verdict(brokers=ALL_DOWN, dest=dest), Waiting)


def test_with_nobody_left_the_order_and_the_epoch_are_recorded() -> None:
    done = verdict(brokers=ALL_DOWN, dest=registered(epoch=7))
    assert well(done)
    assert isinstance(done, Done)
    assert done.record == Outage(STOPPED.order, 7).encode()


def test_going_back_the_last_one_comes_first_and_alone() -> None:
    nobody: dict[str, Any] = {"brokers": ALL_DOWN, "dest": registered(), "view": Unknown("refused", "nobody")}
    assert verdict(Way.BACK, **nobody) == Ready(("broker2",))
    begun: dict[str, Any] = {"brokers": brokers(broker(DOWN), broker2=broker()), "view": view((2,))}
    assert isinstance(verdict(Way.BACK, **begun, dest=registered()), Waiting)
    assert verdict(Way.BACK, **begun, dest=registered(2)) == Ready(("broker1", "broker3"))


@pytest.mark.parametrize(
    "facts", [{"view": view((1, 2))}, {"dest": registered(1, 2)}, {"view": Unknown("refused", "nobody")}]
)
def test_going_back_it_is_done_once_all_are_registered_and_in_sync(facts: dict[str, Any]) -> None:
    assert verdict(Way.BACK) == Done()
    assert isinstance(verdict(Way.BACK, **facts), Waiting)


def test_brokers_that_load_their_logs_are_waited_for() -> None:
    def mark(logs: int) -> object:
        states = brokers(replace(broker(), recovery=Seen(Recovery(logs, 800, 0))))
        waits = verdict(Way.BACK, brokers=states, view=view((1, 2)))
        assert isinstance(waits, Waiting)
        return waits.mark

    assert mark(5) == mark(5) != mark(6)


def test_the_plan_stops_and_the_undo_starts() -> None:
    step, facts = BrokersDownStep(), DownFacts(ALL_DOWN, view(), registered())
    for host in BROKERS:
        assert [x.action for x in step.plan(c(), facts, host)] == ["stop"]  # type: ignore[union-attr]
        assert [x.action for x in step.undo(c(), facts, host, ())] == ["start"]  # type: ignore[union-attr]


def test_a_broker_that_was_retired_meanwhile_is_left_out_of_the_order() -> None:
    gone = replace(c(), inventory=without_brokers(c().inventory, ["broker1"]))
    assert stopped_order(gone) == ("broker3", "broker2")
    assert stopped_order(replace(gone, begun=False)) == ("broker2", "broker3")
