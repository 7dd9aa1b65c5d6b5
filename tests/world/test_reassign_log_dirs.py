"""Partitions moved into the log directories that a plan names: there and back, killed anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.engine_world import back, forward, homeward, left_by_kills, on_and_back
from tests.world.cluster_desk import at
from tests.world.reassigning import ReassignDesk, found, inventory, plan, world
from zkmigrate.cluster.placement.check import log_dirs_of
from zkmigrate.cluster.reassign.throttle import INSIDE_RATE
from zkmigrate.kafka.changes import AlterBrokerConfig, PlaceReplica, ReassignPartition
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Way

SIZE = 3_000_000


def desk(tmp_path: Path, partitions: int = 7, **section: int) -> ReassignDesk:
    """Two directories on every broker; all replicas are in the first. The plan wants every preferred leader
    in the second one. Partition t1-2 keeps its set."""
    cluster = world(partitions, SIZE)
    cluster.dirs = dict.fromkeys((1, 2, 3, 4, 5), ("/d1", "/d2"))
    cluster.rates[2] = {INSIDE_RATE: "55"}
    sets = plan(cluster)
    dirs = {name: ("/d2", *["any"] * (len(replicas) - 1)) for name, replicas in sets.items()}
    return ReassignDesk(tmp_path / "r", cluster, inventory(sets, {}, dirs, (), **section))


def inside(made: ReassignDesk) -> list[tuple[int, tuple[str, int]]]:
    """The replicas that stay on their broker and change their directory."""
    sets = made.inventory.sets
    return [(sets[name][0], name) for name, held in made.first.held.items() if sets[name][0] in held.replicas]


def test_replicas_are_copied_straight_into_the_directories_of_the_plan_and_back(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward) == RunEnded(0, "kafka_reassign is complete")
    assert made.there
    assert len(inside(made)) == 5
    assert made.cluster.twice == SIZE * 5, "only those that stay on their broker"
    assert made.cluster.unthrottled == 0
    written = log_dirs_of((made.run_dir / "way-back.json").read_text())
    assert written["t0", 0] == ("/d1", "any"), "broker 1 loses its copy, and the plan leaves that of 2"
    assert written["t1", 2] == ("/d1", "any")
    assert made.cluster.place(2, ("t0", 0)) == "/d1", "left to Kafka: it stays"
    assert found(made, "reassign.verified").seen == "7 partitions, reported only by brokers"
    assert "; and 15,000,000 bytes between directories of brokers" in found(made, "reassign.bytes").seen
    assert made.process(back).code == 0
    assert made.home, "each replica is in its directory from before, where Kafka would choose the other one"
    assert made.cluster.twice == SIZE * 10
    assert made.cluster.unthrottled == 0


def test_a_plan_without_directories_goes_back_into_those_from_before(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.inventory = inventory(made.inventory.sets)
    for number, name in enumerate(made.cluster.held):
        made.cluster.places |= {(id, name): f"/d{1 + number % 2}" for id in made.cluster.held[name].replicas}
    made.first = made.cluster.copy()
    for act in (forward, back):
        assert made.process(act).code == 0
    assert made.home
    assert made.cluster.twice == 0


def test_the_rate_between_directories_is_set_before_and_given_back(tmp_path: Path) -> None:
    made = desk(tmp_path)
    seen: list[dict[int, str | None]] = []
    rates = made.cluster.rates
    made.before_change = at(
        1, PlaceReplica, lambda: seen.append({id: own.get(INSIDE_RATE) for id, own in rates.items()})
    )
    assert made.process(forward).code == 0
    assert seen == [{**dict.fromkeys((1, 2, 3, 4), "1000000"), 5: None}], "nothing is chosen on 5"
    assert made.cluster.rates[2] == {INSIDE_RATE: "55"}
    assert f"broker-2: {INSIDE_RATE}=55" in found(made, "reassign.throttles-found").seen


def test_copies_inside_a_broker_count_for_its_cap(tmp_path: Path) -> None:
    made = desk(tmp_path, 32, in_flight=20, per_broker=1)
    assert made.process(forward).code == 0
    assert made.there
    assert made.cluster.to == 1


def test_killed_at_each_change_it_goes_on_or_back(tmp_path: Path) -> None:
    left = left_by_kills(desk(tmp_path), forward)
    assert len(left) > 60
    assert sum(bool(one.cluster.futures) for one in left) > 5, "some while replicas moved inside brokers"
    for on in on_and_back(left):
        for one in on:
            assert (one.cluster.unthrottled, one.cluster.replaced) == (0, []), one.run_dir


def test_killed_at_each_change_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    left = left_by_kills(made, back)
    assert len(left) > 60
    for one in homeward(left):
        assert one.cluster.replaced == [], one.run_dir


@pytest.mark.parametrize("way", list(Way))
def test_a_broker_that_forgot_a_directory_moves_the_replica_there_afterwards(
    tmp_path: Path, way: Way
) -> None:
    """It stopped between the two requests, and Kafka chose the directory with fewer replicas."""
    made = desk(tmp_path)
    whose = 4 if way is Way.FORWARD else 1
    if way is Way.BACK:
        assert made.process(forward).code == 0
    made.cluster.twice = 0
    made.before_change = at(1, ReassignPartition, lambda: made.cluster.forget(whose))
    if way is Way.FORWARD:
        made.cluster.held["t9", 0] = replace(made.cluster.held["t0", 0], replicas=(4,), isr=(4,), leader=4)
        made.cluster.topics["t9"] = {}
        made.cluster.places[4, ("t9", 0)] = "/d2"
        made.first = made.cluster.copy()
    assert made.process(forward if way is Way.FORWARD else back).code == 0
    assert made.there if way is Way.FORWARD else made.home
    assert made.cluster.twice > SIZE * 5 if way is Way.FORWARD else made.cluster.twice >= SIZE * 5


@pytest.mark.parametrize("trouble", ["lost", "down"])
@pytest.mark.parametrize("place", range(10, 40, 3))
def test_a_lost_answer_is_looked_at_and_never_assumed(tmp_path: Path, place: int, trouble: str) -> None:
    made = desk(tmp_path)
    made.cluster.wrong = [""] * place + [trouble]
    assert made.process(forward).code == 0
    assert made.there
    made.cluster.wrong = [""] * place + [trouble]
    assert made.process(back).code == 0
    assert made.home


def test_a_copy_inside_a_broker_that_hangs_is_named_by_directory(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.hung = {1}
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (6, "engine.wait-over")
    assert "t1-2 on 1 into /d2: 0 bytes of 3,000,000 bytes" in finding.seen
    assert made.process(back).code == 0, "what is copied is given up"
    assert made.home


def test_the_next_look_tells_copies_inside_brokers(tmp_path: Path) -> None:
    made = desk(tmp_path, throttle_bytes_s=100_000)
    assert made.process(forward).code == 0
    waits = [
        e.progress
        for e in made.seen
        if isinstance(e, events.Waits) and e.what == "the moves in flight have ended"
    ]
    assert any(" into /d2: 1,000,000 bytes of 3,000,000 bytes" in progress for progress in waits)


def refused(made: ReassignDesk) -> Finding:
    ended = made.process(forward)
    assert ended.code == 3
    assert made.cluster.made == []
    [finding] = [one for one in ended.findings if one.blocks]
    return finding


def test_a_directory_that_a_broker_lacks_is_named_before_the_first_change(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.dirs[4] = ("/d1", "/d3")
    finding = refused(made)
    assert (finding.id, finding.seen) == ("reassign.log-dirs", "broker 4 has no /d2, only /d1, /d3")


def test_a_cordoned_directory_is_named_before_the_first_change(tmp_path: Path) -> None:
    """Kafka 4.3 refuses a replica that names it."""
    made = desk(tmp_path)
    made.cluster.shut[4] = {"/d2"}
    finding = refused(made)
    assert (finding.id, finding.seen.split(", ")[0]) == ("reassign.log-dirs", "t0-0 on 4: /d2 is cordoned")


def test_a_broker_whose_directories_are_all_cordoned_has_no_room(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.inventory = inventory(made.inventory.sets)
    made.cluster.shut[4] = {"/d1", "/d2"}
    finding = refused(made)
    assert (finding.id, finding.seen) == (
        "reassign.room", "broker 4: all its log directories are cordoned"
    )  # fmt: skip


def test_replicas_that_leave_a_cordoned_directory_come_back_to_their_broker(tmp_path: Path) -> None:
    """Into the directory that Kafka chooses: it would refuse the one from before."""
    made = desk(tmp_path)
    made.cluster.shut[1] = {"/d1"}
    made.inventory = inventory(made.inventory.sets)
    assert made.process(forward).code == 0
    told = found(made, "reassign.cordoned")
    assert (told.held, "t0-0 on 1: /d1" in told.seen) == (Held.NO, True)
    assert made.process(back).code == 0
    assert {name: held.replicas for name, held in made.cluster.held.items()} == {
        name: held.replicas for name, held in made.first.held.items()
    }


def test_a_replica_that_another_hand_moves_inside_a_broker_is_named(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.futures[1, ("t1", 2)] = ["/d2", 0]
    made.cluster.hung = {1}
    finding = refused(made)
    assert (finding.id, finding.seen) == ("reassign.log-dirs", "t1-2 on 1 is moving to /d2 already")


def test_a_broker_that_tells_no_directories_is_named(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.dirs[4] = ()
    made.cluster.dirs[5] = ()
    finding = refused(made)
    assert (finding.id, finding.held) == ("reassign.log-dirs", Held.UNKNOWN)
    assert finding.seen.startswith("not reported: t0-0 on 4")


def test_a_refused_directory_stops_the_run_before_its_partition_moves(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.before_change = at(1, AlterBrokerConfig, lambda: made.cluster.dirs.update({4: ("/d1",)}))
    ended = made.process(forward)
    assert (ended.code, {f.id for f in ended.findings}) == (8, {"engine.no-progress"})
    assert "on broker 4: KAFKA_STORAGE_ERROR" in ended.findings[0].seen
    assert made.process(back).code == 0
    made.first.dirs = made.cluster.dirs
    assert made.home
