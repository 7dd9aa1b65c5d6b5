"""Partitions moved by a plan: there and back, killed anywhere, with lost answers and other hands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.engine_world import (
    CHANGES,
    Killed,
    Points,
    back,
    forward,
    homeward,
    left_by_kills,
    on_and_back,
    resume,
)
from tests.world.cluster import Cluster
from tests.world.cluster_desk import at
from tests.world.cluster_state import Flight
from tests.world.reassigning import (
    BROKERS,
    RATE,
    ReassignDesk,
    desk,
    found,
    inventory,
    plan,
    submitted,
)
from zkmigrate.cluster.placement import maps
from zkmigrate.cluster.reassign.inflow import APART_S
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST, FOLLOWER_RATE, LEADER_LIST, LEADER_RATE
from zkmigrate.hosts import parallel
from zkmigrate.inventory.accept import Accept
from zkmigrate.inventory.hours import Hours, closed
from zkmigrate.inventory.inventory import Window
from zkmigrate.kafka.changes import (
    AlterBrokerConfig,
    AlterTopicConfig,
    CancelReassignment,
    ElectLeaders,
    ReassignPartition,
)
from zkmigrate.kafka.questions import TopicSetting
from zkmigrate.kafka.rates import Overrides
from zkmigrate.runbook.engine import events, journal
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.journal import NAME
from zkmigrate.runbook.engine.pause import words
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.throttle_file import ThrottleFile
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.ui.recent_events import RecentEvents


def test_r13_there_and_back(tmp_path: Path) -> None:
    made = desk(tmp_path, 16)
    assert made.process(forward) == RunEnded(0, "kafka_reassign is complete")
    assert made.there
    assert found(made, "reassign.verified").seen == "14 partitions, reported only by brokers"
    assert sorted(submitted(made)) == sorted(
        f"{topic}-{number}" for (topic, number) in made.cluster.held if (topic, number) not in done(made)
    ), "once each, and not where the set was there"
    made.cluster.made.clear()
    assert made.process(back).code == 0
    assert made.home
    assert len(submitted(made)) == 14
    assert found(made, "reassign.back").held is Held.YES
    assert made.history.touched("move.replicas") == ()


def done(made: ReassignDesk) -> set[tuple[str, int]]:
    return {name for name, held in made.first.held.items() if held.replicas == made.inventory.sets[name]}


def test_no_cap_is_exceeded_and_each_byte_is_throttled_in_both_directions(tmp_path: Path) -> None:
    made = desk(tmp_path, 32)
    for act in (forward, back):
        made.cluster.peak = made.cluster.to = made.cluster.of = 0
        assert made.process(act).code == 0
        assert (made.cluster.peak, made.cluster.to, made.cluster.of) == (3, 2, 2), "reached, not exceeded"
        assert made.cluster.unthrottled == 0
        assert made.cluster.replaced == []


def test_a_higher_cap_of_the_cluster_does_not_raise_that_of_a_broker(tmp_path: Path) -> None:
    made = desk(tmp_path, 32, in_flight=20, per_broker=1)
    assert made.process(forward).code == 0
    assert (made.cluster.to, made.cluster.of) == (1, 1)


def test_t3_t11_the_throttle_is_merged_into_what_was_there_and_given_back(tmp_path: Path) -> None:
    made = desk(tmp_path)
    seen: list[dict[str, str]] = []
    made.before_change = at(1, ReassignPartition, lambda: seen.append(dict(made.cluster.topics["t1"])))
    assert made.process(forward).code == 0
    [lists] = seen
    assert lists[FOLLOWER_LIST] == "*", "it names every replica already"
    entries = lists[LEADER_LIST].split(",")
    assert entries[:2] == ["3:1", "0:1"]
    assert len(entries) == len(set(entries))
    assert made.cluster.rates[1] == {LEADER_RATE: "77"}
    assert made.cluster.topics["t1"][LEADER_LIST] == "3:1,0:1", "byte for byte"
    told = found(made, "reassign.throttles-found").seen
    assert told.startswith("3, which the run restores: broker-1: leader.replication.throttled.rate=77")


def test_t2_rates_are_set_before_the_first_move_on_every_broker_that_takes_part(tmp_path: Path) -> None:
    made = desk(tmp_path)
    rates: list[dict[int, dict[str, str]]] = []
    made.before_change = at(
        1, ReassignPartition, lambda: rates.append({id: dict(own) for id, own in made.cluster.rates.items()})
    )
    assert made.process(forward).code == 0
    assert rates == [{id: {LEADER_RATE: str(RATE), FOLLOWER_RATE: str(RATE)} for id in (1, 2, 3, 4, 5)}]


def test_t3_what_others_set_meanwhile_stays_and_ours_goes(tmp_path: Path) -> None:
    made = desk(tmp_path)
    own = made.cluster.topics

    def meddle() -> None:
        own["t0"][LEADER_LIST] += ",9:9"
        made.cluster.rates[4][FOLLOWER_RATE] = "500000"

    made.before_change = at(3, ReassignPartition, meddle)
    assert made.process(forward).code == 0
    assert own["t0"][LEADER_LIST] == "9:9"
    assert made.cluster.rates[4] == {FOLLOWER_RATE: "500000"}
    told = found(made, "reassign.throttle")
    assert told.held is Held.NO
    assert "broker-4: follower.replication.throttled.rate is 500000" in told.seen
    assert f"topic-t0: {LEADER_LIST} is 9:9" in told.seen


def test_p7_only_partitions_with_another_preferred_leader_are_elected(tmp_path: Path) -> None:
    """One that another replica led before keeps that leader, where its preferred leader stays."""
    made = desk(tmp_path, 16)
    assert made.process(forward).code == 0
    elected = {name for c in made.cluster.made if isinstance(c, ElectLeaders) for name in c.partitions}
    for name, held in made.cluster.held.items():
        before = made.first.held[name]
        same = before.replicas[0] == held.replicas[0] and before.leader in held.replicas
        if same and before.leader != before.replicas[0]:
            assert held.leader == before.leader
            assert name not in elected
        elif name not in done(made):
            assert held.leader == held.replicas[0]
    assert made.cluster.held["t2", 3].leader == 1, "its second replica led it, and its first one stays"
    assert ("t0", 1) in elected, "its order has changed"


def way_back(made: ReassignDesk) -> dict[tuple[str, int], tuple[int, ...]]:
    return maps.parse((made.run_dir / "way-back.json").read_bytes(), "way-back.json")


def test_the_way_back_is_a_file_for_kafkas_own_tool_before_the_first_change(tmp_path: Path) -> None:
    """U1."""
    made = desk(tmp_path, 16)
    seen: list[object] = []
    made.before_change = at(1, AlterBrokerConfig, lambda: seen.append(way_back(made)))
    assert made.process(forward).code == 0
    moved = [name for name in made.first.held if name not in done(made)]
    assert seen == [{name: made.first.held[name].replicas for name in moved}]
    assert list(way_back(made)) == moved[::-1], "the last move first"
    assert made.process(back).code == 0
    told = [e.text for e in made.seen if isinstance(e, events.Noted) and "way-back.json moves" in e.text]
    assert len(told) == 2, "named once by each process"
    assert told[0].startswith(f"{made.run_dir / 'way-back.json'} moves 14 partitions back without zkmigrate")


def test_nothing_is_sent_where_the_file_of_the_way_back_cannot_be_written(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(lambda walk: walk.forward(until="preflight")).code == 0
    (made.run_dir / "way-back.json").mkdir()
    ended = made.process(resume)
    assert (ended.code != 0, "cannot write" in ended.message, made.cluster.made) == (True, True, [])
    (made.run_dir / "way-back.json").rmdir()
    assert made.process(resume).code == 0


def test_a_broker_that_is_gone_is_not_named_on_the_way_back(tmp_path: Path) -> None:
    """Kafka's tool would refuse the whole file."""
    made = desk(tmp_path)
    made.cluster.down = {3}
    for held in made.cluster.held.values():
        held.isr = tuple(id for id in held.isr if id != 3)
        held.leader = held.isr[0]
    name = "t0", 1
    made.inventory = inventory({name: (2, 4), ("t0", 0): (4, 2)})
    assert made.process(forward).code == 0
    assert way_back(made) == {("t0", 0): (1, 2)}
    [told] = [e.text for e in made.seen if isinstance(e, events.Noted) and "way-back.json moves" in e.text]
    assert told.endswith("The file leaves out 1 with a replica on brokers that no longer exist")


# --- killed, lost, late --------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [forward, back])
def test_what_is_left_by_kills_is_what_a_killed_process_leaves(
    tmp_path: Path, act: Callable[[Walk], RunEnded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One move and one thread at a time: there the order of the changes is always the same."""
    monkeypatch.setattr(parallel, "MAX_THREADS", 1)

    def begun(name: str) -> ReassignDesk:
        made = desk(tmp_path / name, in_flight=1)
        if act is back:
            assert made.process(forward).code == 0
        return made

    left = left_by_kills(begun("whole"), act, every=20)
    assert len(left) >= 3
    for number, kept in enumerate(left, start=1):
        made = begun(str(number))
        with pytest.raises(Killed):
            made.process(act, Points(20 * number, kinds=CHANGES))
        assert kept.cluster.state == made.cluster.state, number
        assert kept.clock.now() == made.clock.now(), number
        assert lines(kept) == lines(made), number


def lines(made: ReassignDesk) -> Counter[str]:
    """The journal's lines without their sums."""
    return Counter(str((entry.kind, entry.body)) for entry in journal.kept_lines(made.run_dir))


def test_killed_at_each_change_it_goes_on_or_back(tmp_path: Path) -> None:
    left = left_by_kills(desk(tmp_path), forward)
    assert len(left) > 60
    cancelled = 0
    for number, (made, other) in enumerate(on_and_back(left)):
        for one in (made, other):
            assert (one.cluster.unthrottled, one.cluster.replaced) == (0, []), number
        cancelled += sum(isinstance(c, CancelReassignment) for c in other.cluster.made)
        if number % 8 == 0:
            assert made.process(back).code == 0, number
            assert made.home, number
    assert cancelled > 5, "some were killed with moves in flight"


def test_killed_at_each_change_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    left = left_by_kills(made, back)
    assert len(left) > 60
    for one in homeward(left):
        assert one.cluster.replaced == [], one.run_dir


def test_killed_at_each_line_of_the_journal_it_goes_on(tmp_path: Path) -> None:
    left = left_by_kills(desk(tmp_path), forward, kinds=(), every=7)
    assert len(left) > 200 // 7
    for number, made in enumerate(left):
        assert made.process(resume).code == 0, number
        assert made.there, number


def test_half_way_moves_are_cancelled_and_the_original_order_is_restored(tmp_path: Path) -> None:
    """Kafka keeps the target's order after a cancel: [1, 2] towards [4, 2] becomes [2, 1]."""
    made = desk(tmp_path)
    with pytest.raises(Killed):
        made.process(forward, Points(5, kinds=("applied",), error=Killed()))
    made.before_change = lambda _change: None
    while not [f for f in made.cluster.flights.values() if f.copied]:
        with pytest.raises(Killed):
            made.process(resume, Points(1, kinds=("applied",)))
    assert ("t0", 0) in made.cluster.flights
    assert made.process(back).code == 0
    kinds = [c for c in made.cluster.made if isinstance(c, CancelReassignment | ReassignPartition)]
    mine = [c for c in kinds if (c.topic, c.partition) == ("t0", 0)]
    assert [type(c) for c in mine] == [ReassignPartition, CancelReassignment, ReassignPartition]
    assert mine[-1].replicas == (1, 2)
    assert made.home


@pytest.mark.parametrize("lag", [1, 3])
@pytest.mark.parametrize("way", list(Way))
def test_what_brokers_tell_late_is_waited_for(tmp_path: Path, lag: int, way: Way) -> None:
    made = desk(tmp_path)
    if way is Way.BACK:
        assert made.process(forward).code == 0
        made.cluster.made.clear()
    made.cluster.lag = lag
    assert made.process(forward if way is Way.FORWARD else back).code == 0
    assert made.there if way is Way.FORWARD else made.home
    assert Counter(submitted(made)).most_common(1)[0][1] == 1, "nothing is sent twice"


@pytest.mark.parametrize("place", range(0, 40, 3))
@pytest.mark.parametrize("trouble", ["lost", "down"])
@pytest.mark.parametrize("way", list(Way))
def test_a_lost_answer_is_looked_at_and_never_assumed(
    tmp_path: Path, place: int, trouble: str, way: Way
) -> None:
    made = desk(tmp_path)
    if way is Way.BACK:
        assert made.process(forward).code == 0
        made.cluster.made.clear()
    made.cluster.wrong = [""] * place + [trouble]
    assert made.process(forward if way is Way.FORWARD else back).code == 0
    assert made.there if way is Way.FORWARD else made.home
    assert Counter(submitted(made)).most_common(1)[0][1] == 1, "sent again only where it did not happen"


# --- rates that an operator sets under way --------------------------------------------------------------

M = 1_000_000


def operator(made: ReassignDesk, wishes: dict[int, Overrides]) -> list[dict[int, tuple[str, str]]]:
    """Sets rates before moves of these numbers are submitted, as ``zkmigrate throttle`` does. Returns a list
    that gets the rates of all brokers at each move."""
    file, numbers, seen = ThrottleFile(made.run_dir), iter(range(1, 1000)), []

    def heeded(change: Change) -> None:
        if not isinstance(change, ReassignPartition):
            return
        rates = {id: (own[LEADER_RATE], own[FOLLOWER_RATE]) for id, own in made.cluster.rates.items()}
        seen.append(rates)
        if (wish := wishes.get(next(numbers))) is not None:
            with made.points.turn:  # nobody copies the run's files meanwhile
                file.change(lambda _: wish, "op@desk", "", 1.0)

    made.before_change = heeded
    return seen


def rates_at(seen: list[dict[int, tuple[str, str]]], number: int) -> dict[int, int]:
    """The rate of each broker as that move was submitted; it is the same in both directions."""
    assert all(leader == follower for leader, follower in seen[number - 1].values())
    return {id: int(leader) for id, (leader, _) in sorted(seen[number - 1].items())}


def test_a_rate_that_an_operator_sets_holds_from_the_next_look_until_it_is_cleared(tmp_path: Path) -> None:
    made = desk(tmp_path, 16, in_flight=1)
    wishes = {2: Overrides(every=3 * M), 4: Overrides(every=3 * M, each={4: 2 * M}), 6: Overrides()}
    seen = operator(made, wishes)
    assert made.process(forward).code == 0
    assert made.there, "what was found is back byte for byte"
    assert rates_at(seen, 2) == dict.fromkeys((1, 2, 3, 4, 5), RATE)
    assert rates_at(seen, 3) == dict.fromkeys((1, 2, 3, 4, 5), 3 * M)
    assert rates_at(seen, 5) == {**dict.fromkeys((1, 2, 3, 5), 3 * M), 4: 2 * M}
    assert rates_at(seen, 7) == dict.fromkeys((1, 2, 3, 4, 5), RATE), "the inventory's again"
    seen = operator(made, {1: Overrides(every=4 * M)})
    assert made.process(back).code == 0
    assert made.home
    assert rates_at(seen, 3) == dict.fromkeys((1, 2, 3, 4, 5), 4 * M), "on the way back too"
    assert made.cluster.unthrottled == 0


def test_progress_counts_partitions_and_no_brokers(tmp_path: Path) -> None:
    made = desk(tmp_path, 16)
    operator(made, {2: Overrides(every=3 * M)})
    made.hold("6")
    assert made.process(forward).code == 0
    told = [e for e in made.seen if isinstance(e, events.Progressed)]
    assert (told[-1].done, told[-1].of) == (14, 14)
    [held, _] = [e.body for e in journal.kept_lines(made.run_dir) if e.kind == "hold"]
    assert held["progress"].startswith("6 of 14 partitions begun (t0-0, ")


def test_a_rate_of_another_hand_stays_whatever_the_operator_sets(tmp_path: Path) -> None:
    made = desk(tmp_path, 16)
    operator(made, {3: Overrides(every=3 * M)})
    made.after_change = at(
        2, ReassignPartition, lambda: made.cluster.rates[4].update({FOLLOWER_RATE: "500000"})
    )
    assert made.process(forward).code == 0
    assert made.cluster.rates[4] == {FOLLOWER_RATE: "500000"}
    said = (
        "broker-4: follower.replication.throttled.rate is 500000 (set by another tool), and the run keeps it"
    )
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits) and e.step == "replicas"]
    assert any(said in progress for progress in waits)


def test_a_broker_that_is_down_gets_its_rate_once_it_answers(tmp_path: Path) -> None:
    made = desk(tmp_path, 16, in_flight=1)
    seen = operator(made, {3: Overrides(every=3 * M)})
    down, up = made.cluster.down.add, made.cluster.down.discard
    dies, lives = at(2, ReassignPartition, lambda: down(3)), at(6, ReassignPartition, lambda: up(3))
    made.after_change = lambda change: (dies(change), lives(change), None)[-1]
    assert made.process(forward).code == 0
    assert made.there
    assert (rates_at(seen, 5)[3], rates_at(seen, 5)[1]) == (RATE, 3 * M)
    assert rates_at(seen, 9)[3] == 3 * M


WISHES = {1: Overrides(every=2 * M), 3: Overrides(every=2 * M, each={1: 3 * M}), 5: Overrides()}


def wished(made: ReassignDesk) -> int:
    """How often a rate of the operator was sent."""
    return sum(isinstance(c, AlterBrokerConfig) and c.value == str(2 * M) for c in made.cluster.made)


@pytest.mark.parametrize(("kinds", "every"), [(CHANGES, 1), ((), 5)], ids=["changes", "lines"])
def test_t11_killed_anywhere_no_rate_of_an_operator_stays(
    tmp_path: Path, kinds: tuple[str, ...], every: int
) -> None:
    """At each change, and at places of the journal between record and change."""
    whole = desk(tmp_path)
    operator(whole, WISHES)
    left = left_by_kills(whole, forward, kinds, every)
    assert len(left) > (80 if kinds else 40)
    assert sum(map(wished, left)) > 100
    for number, made in enumerate(left):
        other = made.copy(made.run_dir.with_name(f"back-{number}"))
        operator(made, WISHES)
        assert made.process(resume).code == 0, number
        assert made.there, number
        operator(other, {2: Overrides(each={2: 5 * M})})
        assert other.process(back).code == 0, number
        assert other.home, number


def test_killed_on_the_way_back_no_rate_of_an_operator_stays(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    operator(made, WISHES)
    left = left_by_kills(made, back, (), 5)
    assert sum(map(wished, homeward(left))) > 100


def rates_sent(made: ReassignDesk, rate: int) -> Counter[tuple[int, str]]:
    alters = [c for c in made.cluster.made if isinstance(c, AlterBrokerConfig) and c.value == str(rate)]
    return Counter((c.broker, c.key) for c in alters)


def test_a_rate_that_brokers_tell_late_is_sent_once(tmp_path: Path) -> None:
    made = desk(tmp_path, 16)
    operator(made, {2: Overrides(every=3 * M)})
    made.cluster.rates_lag = 4
    assert made.process(forward).code == 0
    assert made.there
    assert set(rates_sent(made, 3 * M).values()) == {1}
    assert len(rates_sent(made, 3 * M)) == 10


def test_a_rate_that_did_not_arrive_is_sent_again(tmp_path: Path) -> None:
    made = desk(tmp_path, throttle_bytes_s=20_000)
    operator(made, {2: Overrides(every=30_000)})
    heeded = made.before_change
    fail = at(11, AlterBrokerConfig, lambda: made.cluster.wrong.append("down"))
    made.before_change = lambda change: (heeded(change), fail(change), None)[-1]
    assert made.process(forward).code == 0
    assert made.there
    assert len(rates_sent(made, 30_000)) == 10


@pytest.mark.parametrize("place", range(14, 40, 2))
def test_a_lost_answer_about_a_rate_is_looked_at(tmp_path: Path, place: int) -> None:
    made = desk(tmp_path)
    operator(made, WISHES)
    made.cluster.wrong = [""] * place + ["lost", "down"]
    assert made.process(forward).code == 0
    assert made.there


# --- refused before the first change -------------------------------------------------------------------


def refused(made: ReassignDesk) -> tuple[Finding, ...]:
    ended = made.process(forward)
    assert ended.code == 3, ended
    assert made.cluster.made == []
    return tuple(f for f in ended.findings if f.blocks)


def moved_by_others(cluster: Cluster) -> None:
    held = cluster.held["t1", 2]
    cluster.flights["t1", 2] = Flight((5, 1), held.replicas, {5: -(10**9)})


@pytest.mark.parametrize(
    ("trouble", "id", "seen"),
    [
        (moved_by_others, "reassign.foreign", "1 in flight: t1-2 to 5,1"),
        (lambda c: c.down.add(5), "reassign.brokers", "not registered: 5"),
        (lambda c: setattr(c.held["t0", 0], "isr", ()), "reassign.leaders", "1 have no leader: t0-0"),
        (lambda c: setattr(c, "denied", frozenset({"t1"})), "reassign.partitions", "metadata of topic t1"),
        (lambda c: setattr(c, "cluster_id", "B" * 22), "reassign.cluster", "B" * 22),
        (
            lambda c: setattr(c, "old", True),
            "reassign.release",
            "the brokers do not support the request ListPartitionReassignments",
        ),
        (lambda c: setattr(c, "silent", True), "reassign.answer", "no broker answers"),
    ],
    ids=["others", "dead", "leaderless", "denied", "another cluster", "before 2.4", "silent"],
)
def test_what_stops_a_plan_is_named(
    tmp_path: Path, trouble: Callable[[Cluster], object], id: str, seen: str
) -> None:
    made = desk(tmp_path)
    trouble(made.cluster)
    assert seen in next(f for f in refused(made) if f.id == id).seen


def test_a_replica_that_stays_must_be_in_sync_and_one_that_goes_need_not(tmp_path: Path) -> None:
    """Partition t0-0 moves from brokers 1 and 2 to 4 and 2."""
    made = desk(tmp_path)
    made.cluster.held["t0", 0].isr = (1,)
    [finding] = refused(made)
    assert (finding.id, finding.seen) == ("reassign.in-sync", "under-replicated: 1: t0-0 on 2")
    other = desk(tmp_path / "other")
    other.cluster.held["t0", 0].isr = (2,)
    other.cluster.held["t0", 0].leader = 2
    assert other.process(forward).code == 0


def test_a_stale_plan_is_refused_by_name_and_what_is_done_is_not_stale(tmp_path: Path) -> None:
    made = desk(tmp_path)
    sets = made.cluster.sets
    made.inventory = inventory(made.inventory.sets, {**sets, ("t0", 0): (3, 1)})
    [finding] = refused(made)
    assert (finding.id, finding.seen) == ("reassign.stale", "1 changed: t0-0 has 1,2, not 3,1")
    made.inventory = inventory({**made.inventory.sets, ("t0", 9): (1,), ("x", 0): (1,)})
    [finding] = refused(made)
    assert (finding.id, finding.seen) == ("reassign.partitions", "missing: t0-9, x-0")
    made.inventory = inventory(plan(made.cluster), {**sets, ("t1", 2): (5, 4)})
    assert made.process(resume).code == 0
    assert made.there


def test_a_broker_without_room_for_its_new_replicas_is_named(tmp_path: Path) -> None:
    """Brokers 4 and 5 get three copies of 3 MB each."""
    made = desk(tmp_path)
    made.cluster.usable = {4: 8_999_999, 5: 9_000_000}
    [finding] = refused(made)
    seen = "broker 4 is 1 bytes short after all moves; free now: 8999999"
    assert (finding.id, finding.seen) == ("reassign.room", seen)
    made.cluster.usable[4] += 1
    assert made.process(resume).code == 0
    assert found(made, "reassign.room").held is Held.YES


def test_brokers_that_tell_no_room_are_named_and_no_obstacle(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    told = found(made, "reassign.room")
    assert (told.held, told.seen) == (Held.UNKNOWN, "not reported by brokers 4, 5")


def test_the_check_is_made_again_before_the_first_change(tmp_path: Path) -> None:
    """Days may pass between the check and the consent."""
    made = desk(tmp_path)
    assert made.process(lambda walk: walk.forward(until="preflight")).code == 0
    made.cluster.down = {5}
    ended = made.process(resume)
    assert (ended.code, [f.id for f in ended.findings if f.blocks]) == (6, ["reassign.brokers"])
    assert made.cluster.made == []
    assert made.process(back).code == 0


def test_what_is_copied_and_how_long_it_takes_is_told_before(tmp_path: Path) -> None:
    """Copies of 3 MB each: broker 1 leads most partitions and sends five of the six."""
    made = desk(tmp_path)
    assert made.process(lambda walk: walk.forward(until="preflight")).code == 0
    assert found(made, "reassign.bytes").seen == (
        "18,000,000 bytes for 7 partitions, about 16 s at 1,000,000 bytes/s"
    )
    assert found(made, "reassign.done").seen == "1 of 8; the run does not change them"


def test_t6_p8_settings_that_bound_a_copy_are_told_with_where_they_hold_and_which_can_change(
    tmp_path: Path,
) -> None:
    made = desk(tmp_path)
    for id, lag in ((1, "10000"), (2, "30000"), (3, "10000"), (4, "30000")):
        made.cluster.bounds[id] = {
            "num.replica.fetchers": TopicSetting("4", False, "4"),
            "replica.fetch.max.bytes": TopicSetting(None, True, "1048576"),
            "replica.fetch.response.max.bytes": TopicSetting(None, True, "10485760"),
            "replica.lag.time.max.ms": TopicSetting(None, True, lag),
        }
    assert made.process(lambda walk: walk.forward(until="preflight")).code == 0
    assert found(made, "reassign.copying").seen == (
        "num.replica.fetchers 4 (can be changed while they run); replica.fetch.max.bytes 1048576; "
        "replica.fetch.response.max.bytes 10485760; replica.lag.time.max.ms 10000 on 1, 3; "
        "replica.lag.time.max.ms 30000 on 2, 4; not reported by brokers 5"
    )


# --- other hands and sick brokers, under way -----------------------------------------------------------


def test_a_target_that_another_hand_replaced_stops_the_run_by_name(tmp_path: Path) -> None:
    made = desk(tmp_path)

    def replaced() -> None:
        made.cluster.flights["t0", 0].target = (5, 2)
        made.cluster.flights["t0", 0].copied = {5: -(10**9)}

    made.after_change = at(3, ReassignPartition, replaced)
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id, finding.seen) == (6, "reassign.foreign", "1 in flight: t0-0 to 5,2")
    ended = made.process(back)
    assert (ended.code, [f.id for f in ended.findings]) == (8, ["reassign.foreign"])
    assert made.cluster.replaced == [], "not even on the way back"
    made.cluster.flights.pop(("t0", 0))
    assert made.process(resume).code == 0
    assert made.home


def killed_there() -> None:
    raise Killed


def test_a_partition_that_another_hand_moved_blocks_forward_and_stays_on_the_way_back(tmp_path: Path) -> None:
    made = desk(tmp_path)

    def moved() -> None:
        made.cluster.held["t0", 1].replicas = made.cluster.held["t0", 1].isr = (3, 1)

    made.before_change = at(6, ReassignPartition, moved)
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id, finding.seen) == (6, "reassign.changed", "t0-1 has 3,1")
    made.after_change = at(1, AlterBrokerConfig, killed_there)
    with pytest.raises(Killed):
        made.process(back)
    ended = made.process(resume)
    assert made.cluster.held["t0", 1].replicas == (3, 1)
    told = found(made, "reassign.back")
    words = (
        "back at the beginning: asked by the operator; not as before the run: reassign.moved, reassign.back"
    )
    assert (ended.code, ended.message) == (0, words), "another process saw the first of them"
    assert told in ended.findings
    assert (told.held, told.seen) == (
        Held.NO,
        "1 of 7 partitions differ: t0-1: [3, 1] (before the run: [2, 3])",
    )
    made.first.held["t0", 1] = made.cluster.held["t0", 1]
    assert made.home
    made.before_change = made.after_change = lambda _change: None
    assert made.process(lambda walk: walk.forward(until="move.throttle")).code == 0
    words = "back at the start of move.throttle: asked by the operator"
    assert made.process(lambda walk: walk.back("move.throttle")) == RunEnded(0, words)


def test_what_another_hand_cancelled_is_submitted_again_once_all_brokers_tell(tmp_path: Path) -> None:
    made = desk(tmp_path)
    cancel = CancelReassignment("kafka", "t0", 0, (4, 2))
    made.after_change = at(3, ReassignPartition, lambda: made.cluster.alter(cancel))
    assert made.process(forward).code == 0
    assert made.there
    assert Counter(submitted(made))["t0-0"] == 2


def test_a_topic_that_is_deleted_under_way_is_named_and_no_obstacle(tmp_path: Path) -> None:
    made = desk(tmp_path, 16)

    def deleted() -> None:
        made.cluster.topics.pop("t3")
        made.first.topics.pop("t3")
        for number in range(4):
            made.cluster.held.pop(("t3", number))
            made.first.held.pop(("t3", number))

    made.before_change = at(3, ReassignPartition, deleted)
    assert made.process(forward).code == 0
    assert made.there
    moved = found(made, "reassign.moved")
    assert "deleted since: t3-0, t3-1" in moved.seen
    assert (moved.held, moved.severity) == (Held.NO, Severity.WARN), "a move that was not made is not ok"
    assert made.process(back).code == 0
    assert made.home


def test_u2_a_move_that_hangs_is_named_by_partition_and_replica(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.hung = {4}
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (6, "engine.wait-over")
    assert "t0-0 on 4: 0 bytes of 3,000,000 bytes" in finding.seen
    assert finding.seen.endswith("no progress for 600 s")
    assert made.process(back).code == 0
    assert made.home
    assert any(isinstance(c, CancelReassignment) for c in made.cluster.made)


def test_slow_moves_are_waited_for_as_long_as_bytes_come(tmp_path: Path) -> None:
    made = desk(tmp_path, throttle_bytes_s=10_000, stalled_s=10)
    assert made.process(forward).code == 0
    assert made.there
    waits = [
        e for e in made.seen if isinstance(e, events.Waits) and e.what == "the moves in flight have ended"
    ]
    assert len(waits) > 500
    assert any("t0-0 on 4: 1,500,000 bytes of 3,000,000 bytes" in e.progress for e in waits)
    first = "2 of 7 partitions; 17,960,000 bytes left, about 70 s at the throttle; t0-0 on 4: 30,000 bytes"
    assert waits[0].progress.startswith(first)


def test_p14_the_log_of_each_replica_that_moves_is_told_against_its_leaders(tmp_path: Path) -> None:
    """Broker 5 does not tell it: that is unknown, and stops nothing."""
    made = desk(tmp_path, throttle_bytes_s=100_000)
    made.cluster.endless = frozenset({5})
    assert made.process(forward).code == 0
    waits = [
        e for e in made.seen if isinstance(e, events.Waits) and e.what == "the moves in flight have ended"
    ]
    reach = "LEO 1,500 of 3,000, records behind: 1,500, HW 2,999, leader epoch 7"
    assert any(f"t0-0 on 4: 1,500,000 bytes of 3,000,000 bytes, {reach}" in e.progress for e in waits)
    unknown = "LEO unknown of 3,000, records behind: unknown, HW 2,999, leader epoch 7"
    assert any(f" on 5: 1,500,000 bytes of 3,000,000 bytes, {unknown}" in e.progress for e in waits)


def test_x15_what_clients_write_meanwhile_is_left_to_copy_too(tmp_path: Path) -> None:
    """A partition becomes twice as large once its move is sent."""
    made = desk(tmp_path, throttle_bytes_s=100_000)
    whole = made.cluster.held["t0", 0]
    made.after_change = at(1, ReassignPartition, lambda: setattr(whole, "size", 2 * whole.size))
    assert made.process(forward).code == 0
    assert made.there
    told = [e.progress for e in made.seen if isinstance(e, events.Waits) and "t0-0 on 4: " in e.progress]
    assert any("t0-0 on 4: 4,500,000 bytes of 6,000,000 bytes" in words for words in told)
    assert not any(" 0 bytes left" in words for words in told)


def test_a_target_broker_that_dies_holds_up_its_own_moves_alone(tmp_path: Path) -> None:
    """Kafka would refuse a set with it. Once it is back, the run goes on."""
    made = desk(tmp_path, 16)
    made.after_change = at(2, ReassignPartition, lambda: made.cluster.down.add(4))
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (6, "engine.wait-over")
    assert "t0-0 on 4: " in finding.seen
    assert "broker 4 is down" in finding.seen
    on_four = {name for name, sets in made.inventory.sets.items() if 4 in sets} - done(made)
    moved = {name for name, held in made.cluster.held.items() if held.replicas == made.inventory.sets[name]}
    assert moved == set(made.inventory.sets) - on_four
    made.cluster.down.clear()
    assert made.process(resume).code == 0
    assert made.there


def test_a_refusal_stops_after_three_tries_with_kafkas_reason(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.refuses_moves = lambda c: "policy: no" if c.topic == "t1" else ""
    ended = made.process(forward)
    assert ended.code == 8
    assert {f.id for f in ended.findings} == {"engine.no-progress"}
    assert "policy: no" in ended.findings[0].seen
    assert made.process(back).code == 0
    assert made.home


def test_the_throttle_is_not_off_while_a_broker_that_died_keeps_it(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.before_change = at(1, ElectLeaders, lambda: made.cluster.down.add(2))
    ended = made.process(forward)
    [told] = ended.findings
    assert (ended.code, told.id, told.target) == (6, "reassign.throttle-stays", "broker-2")
    assert told.moves[:2] == (
        "start broker-2, then resume",
        "once broker-2 responds: kafka-configs.sh --bootstrap-server BOOTSTRAP --alter --entity-type brokers "
        f"--entity-name 2 --delete-config {LEADER_RATE}",
    )
    assert [id for id, own in made.cluster.rates.items() if own] == [1, 2]
    assert made.cluster.topics == made.first.topics, "the others have theirs back"
    made.cluster.down.clear()
    assert made.process(resume).code == 0
    assert made.there


def test_a_way_back_is_not_over_while_a_broker_that_died_keeps_the_throttle(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.after_change = at(3, ReassignPartition, lambda: made.cluster.hung.update(BROKERS))
    assert made.process(forward).code == 6
    made.cluster.hung.clear()
    made.before_change = at(1, AlterBrokerConfig, lambda: made.cluster.down.add(3))
    ended = made.process(back)
    [told] = ended.findings
    assert (ended.code, told.id, told.target) == (8, "reassign.throttle-stays", "broker-3")
    assert made.process(resume).code == 8, "again, as long as it is down"
    made.cluster.down.clear()
    assert made.process(resume).code == 0
    assert made.home


@pytest.mark.parametrize("dies", [1, 2])
def test_without_zookeeper_the_controller_gives_back_the_rates_of_a_broker_that_died(
    tmp_path: Path, dies: int
) -> None:
    """Also a rate that was there before the run: broker 1 had one."""
    made = desk(tmp_path)
    made.cluster.kraft = True
    made.before_change = at(1, ElectLeaders, lambda: made.cluster.down.add(dies))
    made.process(forward)
    assert made.settings_kept
    assert "move.unthrottle" in made.history.done
    assert f"restored at the controller for broker-{dies}" in found(made, "reassign.throttle").seen


@pytest.mark.parametrize("dies", [1, 3])
def test_without_zookeeper_a_way_back_ends_though_a_broker_with_its_rates_died(
    tmp_path: Path, dies: int
) -> None:
    made = desk(tmp_path)
    made.cluster.kraft = made.cluster.walled = True
    made.after_change = at(3, ReassignPartition, lambda: made.cluster.hung.update(BROKERS))
    assert made.process(forward).code == 6
    made.cluster.hung.clear()
    made.before_change = at(1, AlterBrokerConfig, lambda: made.cluster.down.add(dies))
    ended = made.process(back)
    [told] = [f for f in ended.findings if f.id == "reassign.throttle-stays"]
    assert (ended.code, told.target) == (8, f"broker-{dies}")
    assert "; the controller: " in told.seen
    made.cluster.walled = False
    assert made.process(resume).code == 0
    assert made.settings_kept
    assert not made.cluster.flights


def test_a_broker_that_kafka_has_forgotten_keeps_its_rates_and_is_named(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.kraft = True
    made.cluster.forgotten.add(2)
    made.before_change = at(1, ElectLeaders, lambda: made.cluster.down.add(2))
    [told] = made.process(forward).findings
    assert (told.id, told.target) == ("reassign.throttle-stays", "broker-2")
    assert told.seen.endswith("; the controller: BROKER_ID_NOT_REGISTERED")


def test_somebody_may_accept_that_a_broker_that_is_gone_keeps_the_throttle(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.before_change = at(1, ElectLeaders, lambda: made.cluster.down.add(2))
    assert made.process(forward).code == 6
    entry = Accept(
        finding="reassign.throttle-stays",
        target="broker-2",
        who="Lea",
        why="its disks are gone",
        until="2999-01-01T00:00Z",
    )
    made.inventory = made.inventory.model_copy(update={"accept": (entry,)})
    made.process(resume)
    assert "move.unthrottle" in made.history.done
    told = found(made, "reassign.throttle-stays")
    assert (told.held, told.severity) == (Held.NO, Severity.WARN)
    assert told.accepted.startswith("accepted by Lea")


def test_a_broker_that_got_no_rate_does_not_hold_up_the_way_back(tmp_path: Path) -> None:
    """It had that rate before the run."""
    made = desk(tmp_path)
    made.cluster.rates[5] = {LEADER_RATE: str(RATE), FOLLOWER_RATE: str(RATE)}
    made.first = made.cluster.copy()
    made.after_change = at(3, AlterTopicConfig, lambda: made.cluster.down.add(5))
    assert made.process(forward).code == 6
    assert 5 not in {change.broker for change in made.cluster.made if isinstance(change, AlterBrokerConfig)}
    assert made.process(back).code == 0
    assert made.home


def test_no_move_begins_while_a_broker_does_not_tell_its_rate(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.after_change = at(3, AlterTopicConfig, lambda: made.cluster.down.add(2))
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (6, "engine.wait-over")
    assert finding.seen == "broker-2"
    assert submitted(made) == []
    made.cluster.down.clear()
    assert made.process(resume).code == 0
    assert made.there


def test_without_the_journals_lines_nobody_knows_the_old_order(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.process(forward)
    (made.run_dir / NAME).unlink()
    made.process(lambda walk: _lost(walk))
    ended = made.process(back)
    assert ended.code == 8
    assert [f.id for f in ended.findings] == ["reassign.original"]


def _lost(walk: Walk) -> RunEnded:
    walk.journal.append("note", {"text": "lost", "lost": True})
    return RunEnded(0, "")


def test_between_waves_a_run_holds_and_tells_how_far_it_is(tmp_path: Path) -> None:
    made = desk(tmp_path, 16)
    assert made.process(forward).code == 0
    waves = [e for e in made.seen if isinstance(e, events.WaveBegun) and e.step == "replicas"]
    told = [e for e in made.seen if isinstance(e, events.Progressed)]
    assert {(e.of, e.many) for e in told} == {(14, "partitions")}
    assert (told[-1].done, told[-1].bytes_left) == (14, 0)
    assert [e.done for e in told] == sorted(e.done for e in told)
    assert max(len(e.targets) for e in waves) <= 3


def test_a_run_that_changed_nothing_goes_back_without_the_cluster(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(lambda walk: walk.forward(until="preflight")).code == 0
    made.cluster.silent = True
    assert made.process(back).code == 0


def test_some_moves_are_a_canary(tmp_path: Path) -> None:
    """The run holds between two moves, with the throttle on, and goes on when it is let go."""
    made = desk(tmp_path, 16)
    made.hold("2")
    assert made.process(forward).code == 0
    assert made.there
    [held, _] = [e.body for e in journal.kept_lines(made.run_dir) if e.kind == "hold"]
    assert held["progress"].startswith("2 of 14 partitions begun (t0-0, ")
    made.hold("2")
    made.seen.clear()
    assert made.process(back).code == 0
    assert made.home
    waves = [e.targets for e in made.seen if isinstance(e, events.WaveBegun) and e.step == "replicas"]
    assert max(map(len, waves)) > 1, "the way back does not count"


def test_the_journal_of_a_thousand_partitions_is_small(tmp_path: Path) -> None:
    """Of 250 topics, each with a throttle. Ten times as many take 20 MB in proportion."""
    made = desk(tmp_path, 1_000, size=10, in_flight=50, per_broker=50)
    assert made.process(forward).code == 0
    assert made.there
    assert (made.run_dir / NAME).stat().st_size < 2_000_000


# --- hours, and a time to end --------------------------------------------------------------------------

OPEN = Hours(begin="22:41", end="22:31")
"""The run begins at 22:30, so moves pause for ten minutes after one."""


def paced(made: ReassignDesk, hours: Hours | None, window: Window | None = None) -> list[float]:
    """Give the run these hours; returns when moves will have begun."""
    reassign = made.inventory.reassign.model_copy(update={"hours": hours})
    policy = made.inventory.policy.model_copy(update={"window": window})
    made.inventory = made.inventory.model_copy(update={"reassign": reassign, "policy": policy})
    begun: list[float] = []

    def note(change: Change) -> None:
        if isinstance(change, ReassignPartition):
            begun.append(made.clock.wall())

    made.before_change = note
    return begun


def test_outside_the_hours_no_move_begins_and_those_in_flight_go_on(tmp_path: Path) -> None:
    made = desk(tmp_path, 32, throttle_bytes_s=100_000)
    made.clock.t -= APART_S  # the preflight measures for so long
    begun, told_left = paced(made, OPEN), list[tuple[float, float | None]]()

    class Heard(list[events.Event]):
        def append(self, event: events.Event) -> None:
            if isinstance(event, events.Progressed):
                told_left.append((made.clock.now(), event.left_s))
            super().append(event)

    made.seen = Heard()
    assert made.process(forward).code == 0
    assert made.there
    assert all(closed(OPEN, None, at) is None for at in begun)
    starts, ends = told_left[0][0], told_left[-1][0]
    early = [(at, left_s) for at, left_s in told_left if 60 <= at - starts <= 200]
    assert early
    assert all(left_s is not None and 0.8 < left_s / (ends - at) < 1.2 for at, left_s in early), "it counts"
    pauses = [(one, two) for one, two in pairwise(begun) if two - one > 500]
    assert len(pauses) == 1
    told = {e.what: e.progress for e in made.seen if isinstance(e, events.Waits) and "outside" in e.progress}
    assert set(told) == {"the moves in flight have ended", "the run may begin moves"}
    outside = "outside the hours 22:41 to 22:31 UTC: the next move begins 2023-11-14T22:41Z"
    assert all(outside in progress for progress in told.values())
    begun.clear()
    made.clock.t += 24 * 3600 - made.clock.t % 60
    while closed(OPEN, None, made.clock.wall()) is None:
        made.clock.t += 60
    assert made.process(back).code == 0
    assert made.home
    assert closed(OPEN, None, begun[0]) is not None, "the way back waits for no hour"


def test_what_a_second_terminal_reads_is_how_far_the_run_is(tmp_path: Path) -> None:
    """Moves that have their set, and bytes that are not there yet; the time left is that of the pace."""
    made = desk(tmp_path, 64, throttle_bytes_s=50_000)
    recent, told = RecentEvents(), list[tuple[float, float | None]]()

    class Heard(list[events.Event]):
        def append(self, event: events.Event) -> None:
            recent.add({**events.to_json(event), "at": made.clock.wall()})
            if not isinstance(event, events.Progressed) or not recent.waits:
                return
            wave = recent.wave
            assert wave is not None
            there = sum(made.cluster.held[name].replicas == wanted for name, wanted in left.items())
            copied = sum(sum(flight.copied.values()) for flight in made.cluster.flights.values())
            every = sum(
                made.first.held[name].size * len(set(wanted) - set(made.first.held[name].replicas))
                for name, wanted in left.items()
                if made.cluster.held[name].replicas != wanted
            )
            assert (wave["of"], wave["many"]) == (len(left), "partitions")
            assert 0 <= there - wave["done"] <= 6, "those of this look"
            assert 0 <= wave["bytes_left"] - (every - copied) < 7 * 3_000_000
            told.append((made.clock.now(), wave["left_s"]))

    left = {name: wanted for name, wanted in made.inventory.sets.items() if name not in done(made)}
    made.seen = Heard()
    assert made.process(forward).code == 0
    ends = told[-1][0]
    middle = [(at, left_s) for at, left_s in told if 0.3 * ends < at < 0.7 * ends]
    assert len(middle) > 200
    assert all(left_s is not None and 0.75 < left_s / (ends - at) < 1.25 for at, left_s in middle)


def test_a_window_that_has_ended_ends_the_run_once_nothing_is_in_flight(tmp_path: Path) -> None:
    made = desk(tmp_path, 32, throttle_bytes_s=100_000)
    window = Window(begin="2023-11-14T22:00Z", end="2023-11-14T22:31Z")
    begun = paced(made, None, window)
    ended = made.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["reassign.hours"])
    assert ended.findings[0].seen == (
        "now it is outside policy.window (from 2023-11-14T22:00Z to 2023-11-14T22:31Z)"
    )
    assert made.cluster.flights == {}
    assert 0 < len(begun) < 28
    paced(made, None)
    assert made.process(resume).code == 0
    assert made.there


def test_at_the_time_of_until_the_run_ends_between_two_moves_and_goes_on_later(tmp_path: Path) -> None:
    made = desk(tmp_path, 32, throttle_bytes_s=100_000)
    begun, end = paced(made, None), made.clock.wall() + 60
    file = ThrottleFile(made.run_dir)

    def slower() -> None:
        if made.clock.wall() > end and not file.read():
            file.change(lambda _: Overrides(every=50_000), "op@desk", "", 1.0)

    made.cluster.before_look = slower
    assert made.process(lambda walk: walk.forward(end_at=end)) == RunEnded(
        0, f"stopped at {words(end)} as asked; zkmigrate resume continues"
    )
    waits = [e for e in made.seen if isinstance(e, events.Waits)]
    told = [e.progress for e in waits if e.what == "the moves in flight have ended"]
    assert "at the throttle, more than the remaining time in which moves may begin;" in told[0]
    assert made.cluster.flights == {}, "those in flight were waited for"
    assert made.clock.wall() > end
    assert 0 < len(begun) < 28
    assert max(begun) < end
    rates = {own[FOLLOWER_RATE] for own in made.cluster.rates.values()}
    assert rates == {"50000"}, "the throttle stays, and what is set meanwhile holds"
    assert made.process(lambda walk: walk.resume(end_at=made.clock.wall())).code == 0
    assert max(begun) < end, "nothing begins before it ends again"
    assert made.process(resume).code == 0
    assert made.there
    assert made.process(back).code == 0
    assert made.home


def test_until_ends_a_run_between_two_steps_too(tmp_path: Path) -> None:
    made = desk(tmp_path)
    ended = made.process(lambda walk: walk.forward(end_at=made.clock.wall()))
    assert ended.code == 0
    assert made.history.begun == set()
    assert made.process(resume).code == 0
    assert made.there


def test_after_the_machine_slept_the_run_finds_what_kafka_did_and_keeps_to_the_hours(tmp_path: Path) -> None:
    """It sleeps for eight hours with three moves in flight, and wakes outside the hours."""
    made = desk(tmp_path, 32, throttle_bytes_s=100_000)
    hours = Hours(begin="22:00", end="06:00")
    begun, looks, slept = paced(made, hours), iter(range(10**6)), 8 * 3600.0

    def sleep() -> None:
        if next(looks) == 25:
            made.clock.t += slept
            for _ in range(100):
                made.cluster.tick()

    made.cluster.before_look = sleep
    assert made.process(forward).code == 0
    assert made.there
    assert all(closed(hours, None, at) is None for at in begun)
    assert max(two - one for one, two in pairwise(begun)) > slept
    assert Counter(submitted(made)).most_common(1)[0][1] == 1


# --- two runs at once ----------------------------------------------------------------------------------


def test_a_throttle_that_another_run_set_since_the_preflight_is_not_taken_for_what_was_there(
    tmp_path: Path,
) -> None:
    """Both pass the preflight before one sets its throttle. The other one begins once that is off again."""
    one = desk(tmp_path)
    two = ReassignDesk(tmp_path / "two", one.cluster, one.inventory)
    for made in (one, two):
        assert made.process(lambda walk: walk.forward(until="preflight")).code == 0
    assert one.process(lambda walk: walk.resume(until="move.throttle")).code == 0
    ended = two.process(resume)
    [finding] = ended.findings
    assert finding.id == "reassign.throttle-changed"
    assert f"broker-2: {LEADER_RATE} is {RATE} (at the preflight: unset)" in finding.seen
    assert not submitted(two)
    assert one.process(resume).code == 0
    assert two.process(resume).code == 0
    assert one.there
    assert one.settings_kept, "neither has left a rate of the other"


def test_a_throttle_that_came_after_the_preflight_stays_once_the_run_began_anew(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(lambda walk: walk.forward(until="move.originals")).code == 0
    made.cluster.rates[2] = {LEADER_RATE: "555"}
    assert [f.id for f in made.process(resume).findings] == ["reassign.throttle-changed"]
    assert made.process(back).code == 0
    assert made.process(forward).code == 0
    assert submitted(made)
    assert made.cluster.rates[2] == {LEADER_RATE: "555"}
