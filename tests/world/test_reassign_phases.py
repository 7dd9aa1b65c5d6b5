"""A plan in phases: each is complete before the next begins, forward and back, killed anywhere."""

from __future__ import annotations

from pathlib import Path

from tests.unit.engine_world import back, forward, homeward, left_by_kills, on_and_back
from tests.world.cluster import Cluster
from tests.world.reassigning import ReassignDesk, inventory, plan, world
from tests.world.test_reassign import way_back
from zkmigrate.cluster.placement.leaders import led_by
from zkmigrate.cluster.reassign.section import Sets
from zkmigrate.kafka.changes import CancelReassignment, ReassignPartition
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.step import Way


def halves(cluster: Cluster, sets: Sets) -> tuple[Sets, Sets]:
    """As ``placement --phased-reassignment`` writes them: first with the old leader, then without it."""
    first = {name: led_by(cluster.held[name].replicas[0], after) for name, after in sets.items()}
    return first, {name: after for name, after in sets.items() if first[name] != after}


def desk(tmp_path: Path, partitions: int = 8) -> ReassignDesk:
    cluster = world(partitions)
    sets = plan(cluster)
    first, second = halves(cluster, sets)
    return checked(
        ReassignDesk(tmp_path / "r", cluster, inventory(sets, {}, None, ((first, {}), (second, {}))))
    )


def checked(made: ReassignDesk) -> ReassignDesk:
    """The same desk; each of its changes is looked at."""
    made.before_change = lambda change: in_turn(made, change)
    return made


def in_turn(made: ReassignDesk, change: Change) -> None:
    """No move of a phase begins before those of the other are over."""
    if not isinstance(change, ReassignPartition) or made.history.way is Way.BACK:
        return
    (first, _), (second, _) = made.inventory.phases
    name = change.topic, change.partition
    if second.get(name) == change.replicas:
        early = [
            name for name in first if made.cluster.held[name].replicas not in (first[name], second.get(name))
        ]
        flying = [one for one, flight in made.cluster.flights.items() if flight.target == first.get(one)]
        assert (early, flying) == ([], []), "the first phase is complete"


def test_b12_each_phase_is_complete_before_the_next_begins(tmp_path: Path) -> None:
    """P7: the old leader stays preferred in the first phase."""
    made = desk(tmp_path, 16)
    assert made.process(forward) == RunEnded(0, "kafka_reassign is complete")
    assert made.there
    assert made.cluster.unthrottled == 0
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert "phase 0 is complete" in waits
    assert any(told.startswith("phase 1 of 0 to 1: ") for told in waits)
    assert way_back(made) == {
        name: held.replicas
        for name, held in made.first.held.items()
        if held.replicas != made.inventory.sets[name]
    }
    assert made.process(back).code == 0
    assert made.home
    assert made.cluster.replaced == []


def test_b12_killed_at_each_change_it_goes_on_or_back(tmp_path: Path) -> None:
    left = [checked(one) for one in left_by_kills(desk(tmp_path), forward, every=2)]
    assert len(left) > 30
    for on in on_and_back(left):
        for one in on:
            assert (one.cluster.unthrottled, one.cluster.replaced) == (0, []), one.run_dir


def test_b12_killed_at_each_change_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    left = left_by_kills(made, back, every=2)
    assert len(left) > 30
    for one in homeward(left):
        assert (one.cluster.unthrottled, one.cluster.replaced) == (0, []), one.run_dir


def test_a_partition_in_the_middle_goes_on_from_there(tmp_path: Path) -> None:
    """Another run did the first phase, and for topic t1 all; what the plan rests on was before that."""
    made = desk(tmp_path)
    (first, _), _ = made.inventory.phases
    back_sets = {name: held.replicas for name, held in made.cluster.held.items()}
    made.inventory = made.inventory.with_sets(made.inventory.sets, back_sets, {}, made.inventory.phases)
    for name, held in made.cluster.held.items():
        held.replicas = held.isr = first[name] if name[0] == "t0" else made.inventory.sets[name]
        held.leader = held.replicas[0]
    made.first = made.cluster.copy()
    assert made.process(forward).code == 0
    assert made.there
    sent = [change.replicas for change in made.cluster.made if isinstance(change, ReassignPartition)]
    second = made.inventory.phases[1][0]
    assert sorted(sent) == sorted(of for name, of in second.items() if name[0] == "t0")


def test_a_move_in_flight_is_cancelled_in_its_own_phase(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.hung = {5}
    assert made.process(forward).code == 6
    made.cluster.hung.clear()
    assert made.process(back).code == 0
    assert made.home
    assert any(isinstance(change, CancelReassignment) for change in made.cluster.made)
