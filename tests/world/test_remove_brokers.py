"""Brokers removed while topics are born: there and back, killed anywhere, and refused before any change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.engine_world import Killed, back, forward, homeward, left_by_kills, on_and_back, resume
from tests.world.cluster import Cluster
from tests.world.cluster_desk import at
from tests.world.cluster_state import DISK
from tests.world.reassigning import BROKERS, RATE, found, submitted
from tests.world.removing import GONE, POLICY_FILE, RACKS, RemovalDesk, desk
from zkmigrate.cluster.reassign.throttle import FOLLOWER_RATE, LEADER_RATE
from zkmigrate.cluster.removal.exclude_step import ExcludeFacts, ExcludeStep
from zkmigrate.cluster.removal.policy_step import CLOSED_S
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED, OWN_POLICY
from zkmigrate.cluster.removal.section import Removal
from zkmigrate.cluster.removal.validate_step import foreseen
from zkmigrate.inventory.accept import Accept
from zkmigrate.inventory.hours import Hours, closed
from zkmigrate.kafka.changes import KAFKA, AlterBrokerConfig, ElectLeaders, ReassignPartition
from zkmigrate.kafka.questions import TopicSetting
from zkmigrate.runbook.engine import events, journal
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.model.change import InstallProgram, PutFile, SetService
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Held, Severity
from zkmigrate.runbook.model.step import Context, Waiting, Way


def born(count: int, *sets: tuple[int, ...]) -> Callable[[Cluster], None]:
    """A topic at each look at all topics, so many in all, with these sets in turn."""

    def bear(world: Cluster) -> None:
        if len(world.birthplaces) < count:
            world.bear(*sets[len(world.birthplaces) % len(sets)])

    return bear


BORN = ((1, 4), (5, 2), (1, 2), (3, 5))


def busy(tmp_path: Path, count: int = 6, partitions: int = 12, **section: Any) -> RemovalDesk:
    """A desk over a cluster in which topics are born."""
    made = desk(tmp_path, partitions, **section)
    made.cluster.born = born(count, *BORN)
    return made


def states(made: RemovalDesk) -> list[str]:
    """The states that the journal says were reached, in order."""
    lines = [entry.body for entry in journal.kept_lines(made.run_dir) if entry.kind == "stage"]
    return [body["stage"] for body in lines if body["event"] == "done"]


def skipped(made: RemovalDesk) -> list[tuple[str, str]]:
    """The states that were passed over, and why."""
    lines = [entry.body for entry in journal.kept_lines(made.run_dir) if entry.kind == "stage"]
    return [(body["stage"], body["by"]) for body in lines if body["event"] == "skipped"]


def on(world: Cluster, ids: tuple[int, ...]) -> list[tuple[str, int]]:
    """The partitions with a replica on one of these brokers."""
    return [name for name, held in world.held.items() if set(ids) & set(held.replicas)]


def received(made: RemovalDesk, id: int) -> int:
    """Bytes that a broker holds now and did not hold before."""
    first = made.first.held
    return sum(
        h.size for n, h in made.cluster.held.items() if id in h.replicas and id not in first[n].replicas
    )


# --- there and back ------------------------------------------------------------------------------------


def test_x1_x14_x16_x19_several_brokers_are_emptied_in_one_run_and_refilled(tmp_path: Path) -> None:
    made = desk(tmp_path, 24)
    assert made.process(forward) == RunEnded(0, "kafka_remove_brokers is complete")
    assert made.there
    assert states(made) == ["validated", "excluded", "planned", "moving", "empty", "clean"]
    assert skipped(made) == [("stopped", "removal.shutdown: false")]
    assert sorted(submitted(made)) == sorted(f"{t}-{n}" for t, n in on(made.first, GONE)), (
        "once, and no other"
    )
    assert any(name.startswith("__consumer_offsets") for name in submitted(made))
    got = {id: received(made, id) for id in (1, 2, 3)}
    largest = max(held.size for held in made.cluster.held.values())
    assert max(got.values()) - min(got.values()) <= largest, "as even as one partition allows"
    assert not any(h.leader in GONE for h in made.cluster.held.values())
    assert made.process(back).code == 0
    assert made.home
    assert found(made, "reassign.back").held is Held.YES


def test_x6_no_cap_is_exceeded_and_each_byte_is_throttled(tmp_path: Path) -> None:
    made = desk(tmp_path, 40)
    made.cluster.born = born(6, *BORN)
    for act in (forward, back):
        made.cluster.peak = made.cluster.to = made.cluster.of = 0
        assert made.process(act).code == 0
        assert (made.cluster.peak, made.cluster.to, made.cluster.of) == (3, 2, 2), "reached, not exceeded"
        assert made.cluster.unthrottled == 0
        assert made.cluster.replaced == []


def test_outside_the_hours_of_a_removal_no_move_begins_not_even_of_what_is_born(tmp_path: Path) -> None:
    """The run begins at 22:30. What is born then is found while no move may begin."""
    hours = Hours(begin="22:41", end="22:31")
    made = desk(tmp_path, 12, hours=hours, throttle_bytes_s=RATE // 10, in_flight=100, per_broker=100)

    def bear(world: Cluster) -> None:
        if not world.birthplaces and closed(hours, None, made.clock.wall()) is not None:
            world.bear(1, 4)

    made.cluster.born = bear
    begun: list[float] = []

    def note(change: object) -> None:
        if isinstance(change, ReassignPartition):
            begun.append(made.clock.wall())

    made.before_change = note
    made.clock.t += -made.clock.wall() % 86400 - 5400 + 30  # 22:30:30
    assert made.process(forward).code == 0
    assert begun
    assert made.cluster.birthplaces, "one was born while none may begin"
    assert all(closed(hours, None, at) is None for at in begun)
    waits = [e for e in made.seen if isinstance(e, events.Waits)]
    assert any("outside the hours 22:41 to 22:31 UTC" in e.progress for e in waits)
    assert not on(made.cluster, GONE)


def test_the_throttle_of_a_removal_follows_the_load(tmp_path: Path) -> None:
    adapt = {"cap_bytes_s": 4 * RATE, "percent": 50, "floor_bytes_s": 100_000, "tick_s": 12}
    made = desk(tmp_path, 12, adapt=adapt)
    for host in made.cluster.loads.values():
        host.clients = lambda _now: 3 * RATE
    assert made.process(forward).code == 0
    assert found(made, "reassign.listened").held is Held.YES
    assert made.noted, "each tick is a sample"
    assert min(rate for _, body in made.noted for both in body["rates"].values() for rate in both) < RATE // 2
    assert made.settings_kept
    assert not on(made.cluster, GONE)


def test_x10_what_is_born_on_the_brokers_is_found_and_moved_until_none_is_left(tmp_path: Path) -> None:
    made = busy(tmp_path, 12)
    assert made.process(forward).code == 0
    assert made.there
    assert len(made.cluster.birthplaces) == 12
    assert found(made, "remove.empty").held is Held.YES
    assert made.process(back).code == 0
    assert made.home, "the born ones are back where they were born, and no throttle is left on them"


def test_x10_two_looks_apart_must_find_the_brokers_empty(tmp_path: Path) -> None:
    """One is born between the two looks: the first of them does not count."""
    made = desk(tmp_path)
    looks: list[int] = []

    def bear(world: Cluster) -> None:
        looks.append(len(on(world, GONE)))
        if len(looks) == 2:
            world.bear(4, 1)

    made.cluster.born = bear
    assert made.process(forward).code == 0
    assert made.there
    assert len(looks) > 3


def test_a_partition_that_comes_a_second_time_is_moved_again(tmp_path: Path) -> None:
    """Another hand assigns it to a broker that is to be removed, twice."""
    made = desk(tmp_path)
    name = ("t1", 0)
    came: list[tuple[int, ...]] = []

    def assigned(world: Cluster) -> None:
        held = world.held[name]
        if len(came) < 2 and name not in world.flights:
            came.append(held.replicas)
            held.replicas = held.isr = (4, held.replicas[0] if held.replicas[0] != 4 else 3)
            held.leader = 4

    made.cluster.born = assigned
    assert made.process(forward).code == 0
    assert made.there
    assert len(came) == 2
    assert made.process(back).code == 0


def test_a_reassignment_of_another_hand_onto_the_brokers_is_waited_for(tmp_path: Path) -> None:
    made = desk(tmp_path)
    looks: list[int] = []

    def assigned(world: Cluster) -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            held = world.held["t1", 1]
            world.answer(ReassignPartition("kafka", "t1", 1, (held.replicas[0], 5), held.replicas))
            world.hung.add(5)
        if len(looks) == 5:
            world.hung.clear()

    made.cluster.born = assigned
    assert made.process(forward).code == 0
    assert made.there
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits) and e.step == "sweep"]
    assert any("t1-1 is being moved by another tool" in progress for progress in waits)
    assert made.cluster.replaced == []


def test_x19_a_stray_replica_on_a_disk_is_named_and_waited_for(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.lay("broker4", "old-7")
    looks: list[int] = []

    def gone(world: Cluster) -> None:
        looks.append(1)
        if len(looks) == 3:
            world.unlay("broker4", "old-7")

    made.cluster.born = gone
    assert made.process(forward).code == 0
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits) and e.step == "sweep"]
    assert any("old-7 on broker 4" in progress for progress in waits)
    assert len(looks) >= 4


ASIDE = (f"t1-0.{'a' * 32}-stray", f"t2-1.{'b' * 32}-delete", "__cluster_metadata-0", "log.tmp")


@pytest.mark.parametrize(
    ("shutdown", "step", "log_dirs"),
    [
        (False, "sweep", "/var/lib/kafka"),
        (True, "forget", "/var/lib/kafka"),
        (True, "forget", "./var/lib/kafka"),
    ],
)
def test_x19_what_kafka_set_aside_on_the_disks_is_told(
    tmp_path: Path, shutdown: bool, step: str, log_dirs: str
) -> None:
    """A relative log directory is below the one where the unit starts the broker."""
    made = desk(tmp_path, log_dirs=log_dirs, shutdown=shutdown)
    for name in ASIDE:
        made.cluster.lay("broker4", name)
    assert made.process(forward).code == 0
    [told] = [
        f
        for e in made.seen
        if isinstance(e, events.StepEnded) and e.step == step
        for f in e.findings
        if f.id == "remove.directories"
    ]
    assert (told.held, told.blocks) == (Held.NO, False)
    assert told.seen == (f"broker4: 1 stray: {DISK}/{ASIDE[0]}; broker4: 1 being deleted: {DISK}/{ASIDE[1]}")


def test_every_broker_that_stays_gets_a_rate_before_anything_moves(tmp_path: Path) -> None:
    """What is born later may go to any of them."""
    made = desk(tmp_path, 8, brokers=(5,))
    rates: list[dict[int, dict[str, str]]] = []
    made.before_change = at(
        1, ReassignPartition, lambda: rates.append({id: dict(own) for id, own in made.cluster.rates.items()})
    )
    assert made.process(forward).code == 0
    assert rates == [{id: {LEADER_RATE: str(RATE), FOLLOWER_RATE: str(RATE)} for id in (1, 2, 3, 4, 5)}]


def test_x12_x17_brokers_that_are_empty_already_are_a_success_without_a_change(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    again = RemovalDesk(tmp_path / "again", made.cluster, made.inventory)
    made.cluster.made.clear()
    assert again.process(forward).code == 0
    assert not [c for c in made.cluster.made if isinstance(c, ReassignPartition | ElectLeaders)]
    made.cluster.down |= {4, 5}
    gone = RemovalDesk(tmp_path / "gone", made.cluster, made.inventory)
    assert gone.process(forward).code == 0
    assert "removed already: 4, 5" in found(gone, "remove.known").seen


# --- refused before any change -------------------------------------------------------------------------


def refused(made: RemovalDesk, id: str) -> str:
    """What the finding says that stopped the run before its first change."""
    ended = made.process(forward)
    assert ended.code == 3, ended
    assert made.cluster.made == []
    assert found(made, id).blocks
    return found(made, id).seen


def test_x3_x21_too_little_disk_with_the_margin(tmp_path: Path) -> None:
    made = desk(tmp_path, margin=0.5)
    need = sum(h.size for n, h in made.cluster.held.items() for b in h.replicas if b in GONE)
    made.cluster.usable = dict.fromkeys((1, 2, 3, 4, 5), int(need / 3 * 1.6))
    assert "the limit is disk" in refused(made, "remove.placed")
    made = desk(tmp_path / "b", margin=0.0)
    made.cluster.usable = dict.fromkeys((1, 2, 3, 4, 5), int(need / 3 * 1.6))
    assert made.process(forward).code == 0


def test_what_moves_goes_to_as_many_racks_as_there_are(tmp_path: Path) -> None:
    made = desk(tmp_path, 24)
    made.cluster.racks = {1: "a", 2: "a", 3: "b", 4: "a", 5: "a"}
    assert made.process(forward).code == 0
    moved = [made.cluster.held[name].replicas for name in on(made.first, GONE)]
    assert moved
    assert all(3 in replicas for replicas in moved), "rack b has one broker, and each set two replicas"


def test_a_size_that_is_told_late_is_waited_for(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.unsized = {("t2", 2)}
    pauses: list[int] = []

    class Late(type(made.clock)):  # type: ignore[misc]
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            pauses.append(1)
            if len(pauses) == 3:
                made.cluster.unsized = set()

    made.clock = Late()
    assert made.process(forward).code == 0
    assert made.there


def below_min_isr(cluster: Cluster) -> None:
    cluster.min_isr = 2
    cluster.held["t2", 0].isr = (4,)


def moved_by_others(cluster: Cluster) -> None:
    cluster.answer(ReassignPartition("kafka", "t1", 1, (3, 2), cluster.held["t1", 1].replicas))


@pytest.mark.parametrize(
    ("section", "trouble", "id", "seen"),
    [
        ({"brokers": (4, 9)}, None, "remove.known", "unknown: 9"),
        ({"brokers": (2, 3, 4, 5)}, None, "remove.placed", "placement.few-brokers"),
        ({"brokers": (2, 3, 4, 5)}, None, "remove.placed", "the limit: 1 chosen brokers"),
        ({}, lambda c: c.racks.update({2: "a", 3: "a", 4: "b", 5: "c"}), "remove.placed", "few-racks"),
        ({}, lambda c: c.unsized.add(("t2", 2)), "remove.placed", "placement.size-missing"),
        ({}, lambda c: c.unsized.add(("t2", 2)), "remove.placed", "t2-2"),
        ({}, below_min_isr, "remove.min-isr", "1 partition below it: t2-0 has 1 of 2"),
        ({}, moved_by_others, "reassign.foreign", "1 in flight: t1-1 to 3,2"),
        ({}, lambda c: c.down.add(3), "remove.others-alive", "not registered: 3"),
        (
            {},
            lambda c: setattr(c, "old", True),
            "reassign.release",
            "the brokers do not support the request ListPartitionReassignments",
        ),
        ({"exclusion": "cordon"}, None, "remove.exclusion", "not supported by brokers 4, 5"),
        ({"exclusion": "policy"}, None, "remove.exclusion", "no policy on brokers"),
    ],
)
def test_what_stops_a_removal_before_any_change_is_named(
    tmp_path: Path, section: dict[str, Any], trouble: Callable[[Cluster], object] | None, id: str, seen: str
) -> None:
    made = desk(tmp_path, **section)
    if trouble is not None:
        trouble(made.cluster)
    assert seen in refused(made, id)


# --- how new replicas are kept away --------------------------------------------------------------------


def test_x7_x9_x11_a_cordon_is_set_kept_while_the_brokers_run_and_given_back(tmp_path: Path) -> None:
    made = busy(tmp_path)
    made.cluster.cordons = True
    made.cluster.rates[5] = {CORDONED: "/var/lib/kafka"}
    made.first = made.cluster.copy()
    assert made.process(forward).code == 0
    assert made.there
    assert {id: own[CORDONED] for id, own in made.cluster.rates.items() if CORDONED in own} == {
        4: "*",
        5: "*",
    }
    first = next(c for c in made.cluster.made)
    assert isinstance(first, AlterBrokerConfig), "before anything else"
    assert first.key == CORDONED
    assert found(made, "remove.exclusion").seen.startswith(
        "by cordon: these brokers support cordoned.log.dirs"
    )
    assert made.process(back).code == 0
    assert made.home, "broker 5 has what it had, and broker 4 nothing"


def test_x9_brokers_with_several_directories_are_refilled_while_they_are_cordoned(tmp_path: Path) -> None:
    """Kafka refuses a replica that names one of theirs, and takes one that names none."""
    made = desk(tmp_path)
    made.cluster.cordons = True
    made.cluster.dirs = dict.fromkeys((1, 2, 3, 4, 5), ("/d1", "/d2"))
    made.first = made.cluster.copy()
    assert made.process(forward).code == 0
    assert made.process(back).code == 0
    assert made.home


def test_x8_a_cordon_that_is_there_is_not_set_again(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.cordons = True
    made.cluster.rates |= {4: {CORDONED: "*"}, 5: {CORDONED: "*"}}
    made.first = made.cluster.copy()
    assert made.process(forward).code == 0
    assert not [c for c in made.cluster.made if isinstance(c, AlterBrokerConfig) and c.key == CORDONED]
    assert made.process(back).code == 0
    assert made.home, "it was there before the run, and stays"


def test_a_policy_is_named_and_what_it_lets_through_is_moved(tmp_path: Path) -> None:
    made = busy(tmp_path, exclusion="policy")
    made.cluster.policy = "org.example.NoTopicThere"
    assert made.process(forward).code == 0
    assert made.there
    assert "org.example.NoTopicThere" in found(made, "remove.exclusion").seen


OWN = {"exclusion": "policy", "policy_file": POLICY_FILE}
REFUSES = b"removal=remove\nbrokers=4,5\n"
CLOSES = REFUSES + b"closed_s=300\n"


def told(made: RemovalDesk, content: bytes) -> bool:
    """Whether the policy reads this on every broker's host."""
    return made.policies == {f"broker{id}": content for id in BROKERS}


def fenced(tmp_path: Path, **section: Any) -> RemovalDesk:
    """A desk over a cluster that has loaded our policy, in which topics come while it lets them."""
    made = desk(tmp_path, 8, **{"shutdown": True, **OWN, **section})
    made.cluster.policy, made.cluster.outrun = OWN_POLICY, True
    without_end = always((4, 1), (2, 5), (1, 2))

    def bear(world: Cluster) -> None:
        if not any(b"closed_s" in content for content in made.policies.values()):
            without_end(world)

    made.cluster.born = bear
    return made


def test_x2_with_our_policy_no_topic_is_born_while_a_broker_stops(tmp_path: Path) -> None:
    made, closed = fenced(tmp_path), []

    def before(change: object) -> None:
        if isinstance(change, SetService):
            closed.append((change.action, told(made, CLOSES)))

    made.before_change = before
    assert made.process(forward).code == 0
    assert made.there
    assert closed == [("stop", True), ("stop", True)]
    assert made.cluster.spared == [], "no partition named a broker that stopped"
    assert told(made, b"removal=remove\n"), "open again, and nothing is refused"
    assert found(made, "remove.closed").held is Held.YES
    assert "the policy refuses explicit assignments to the brokers" in found(made, "remove.exclusion").seen
    made.cluster.born = born(0)
    assert made.process(back).code == 0
    assert made.home, "no file is left, and no zkm-host"


def test_x7_x11_an_explicit_assignment_is_refused_before_anything_moves_and_as_long_as_the_brokers_run(
    tmp_path: Path,
) -> None:
    made, refusing = fenced(tmp_path, shutdown=False), []
    made.cluster.born = born(0)
    made.before_change = at(1, ReassignPartition, lambda: refusing.append(told(made, REFUSES)))
    assert made.process(forward).code == 0
    assert refusing == [True]
    assert told(made, REFUSES)
    assert made.process(back).code == 0
    assert made.home


def test_x2_a_stop_that_outlasts_the_closed_seconds_is_said(tmp_path: Path) -> None:
    made = fenced(tmp_path)
    made.after_change = at(1, SetService, lambda: made.clock.pause(CLOSED_S))
    assert made.process(forward).code == 0
    assert made.there
    warned = found(made, "remove.closed")
    assert (warned.held, warned.blocks) == (Held.NO, False)


def test_x2_the_closed_seconds_count_from_the_first_host(tmp_path: Path) -> None:
    """Killed with one host closed, and gone on much later."""
    made, closing = fenced(tmp_path), []

    def fall(change: object) -> None:
        if isinstance(change, PutFile) and change.content == CLOSES:
            closing.append(change)
            raise Killed

    made.after_change = fall
    with pytest.raises(Killed):
        made.process(forward)
    assert closing
    made.after_change = lambda _change: None
    made.clock.pause(CLOSED_S)
    assert made.process(resume).code == 0
    assert found(made, "remove.closed").held is Held.NO


def test_a_file_for_a_policy_that_is_not_asked_for_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="policy_file needs exclusion: policy"):
        Removal(brokers=GONE, throttle_bytes_s=RATE, policy_file=POLICY_FILE)


@pytest.mark.parametrize("trouble", ["class", "host", "kraft"])
def test_x2_our_policy_must_be_there_before_anything_is_promised(tmp_path: Path, trouble: str) -> None:
    made = fenced(tmp_path)
    match trouble:
        case "class":
            made.cluster.policy, words = "org.example.Other", "another policy, or none, on brokers 1, 2"
        case "host":
            kafka = made.inventory.kafka.model_copy(update={"brokers": made.inventory.kafka.brokers[1:]})
            made.inventory = made.inventory.model_copy(update={"kafka": kafka})
            words = "no host for brokers 1"
        case _:
            made.cluster.kraft, words = True, "a cluster without ZooKeeper"
    assert words in refused(made, "remove.policy-file")
    assert made.cluster.installed == set()


def test_x2_x5_killed_while_hosts_are_told_it_goes_on_or_back(tmp_path: Path) -> None:
    made = fenced(tmp_path)
    made.cluster.born = born(0)
    left = left_by_kills(made, forward, every=4)
    assert len(left) > 12
    for one, _ in on_and_back(left):
        assert told(one, b"removal=remove\n"), one.run_dir


# --- stopped -------------------------------------------------------------------------------------------


def test_x11_x16_x18_empty_brokers_stop_one_by_one_the_controller_last(tmp_path: Path) -> None:
    made = busy(tmp_path, shutdown=True)
    made.cluster.controller = 4
    assert made.process(forward).code == 0
    assert made.there
    assert made.cluster.down == set(GONE)
    assert made.cluster.stops == ["broker5", "broker4"]
    assert made.settings_kept, "no rate stays on a broker that is down"
    assert states(made) == ["validated", "excluded", "planned", "moving", "empty", "stopped", "clean"]
    assert found(made, "remove.stopped").held is Held.YES
    assert made.process(back).code == 0
    assert made.home, "they run again, and hold what they held"


@pytest.mark.parametrize("log_dirs", ["/var/lib/kafka", "./var/lib/kafka"], ids=["whole", "relative"])
def test_p12_a_broker_that_would_not_start_as_itself_is_not_started(tmp_path: Path, log_dirs: str) -> None:
    made = desk(tmp_path, log_dirs=log_dirs, shutdown=True)
    assert made.process(forward).code == 0
    made.cluster.own("broker4", 9)
    ended = made.process(back)
    [finding] = [f for f in ended.findings if f.blocks]
    assert (finding.id, finding.target) == ("remove.identity", "broker4")
    assert finding.seen == f"{log_dirs}/meta.properties: broker.id=9, /etc/kafka/server.properties: 4"
    assert made.cluster.down == set(GONE)
    made.cluster.own("broker4", 4)
    assert made.process(resume).code == 0
    assert made.home


def test_x9_without_zookeeper_the_cluster_forgets_them_with_their_cordons(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)
    made.cluster.kraft = made.cluster.cordons = True
    assert made.process(forward).code == 0
    assert made.cluster.forgotten == set(GONE)
    assert not any(made.cluster.cordoned(id) for id in GONE)
    told = found(made, "remove.cordon-stays")
    assert (told.held, told.seen) == (Held.YES, "unset at the controller for brokers 4, 5")
    assert made.process(back).code == 0
    assert made.home


def test_x9_a_cordon_that_stays_is_named_where_the_controller_does_not_answer(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)
    made.cluster.kraft = made.cluster.cordons = made.cluster.walled = True
    assert made.process(forward).code == 0
    assert made.cluster.forgotten == set(GONE)
    assert all(made.cluster.cordoned(id) for id in GONE)
    told = found(made, "remove.cordon-stays")
    assert (told.held, told.blocks) == (Held.NO, False)
    assert "broker 4: " in told.seen
    assert "the controller did not answer" in told.seen
    assert made.process(back).code == 0
    assert made.home, "the brokers run again, so the setting is back as well"


def test_a_removed_broker_that_dies_before_it_stops_holds_nothing_up_and_its_rates_are_named(
    tmp_path: Path,
) -> None:
    made = desk(tmp_path, shutdown=True)
    made.after_change = at(1, InstallProgram, lambda: made.cluster.down.add(5))
    assert made.process(forward).code == 0
    assert made.there
    told = [
        f for e in made.seen if isinstance(e, events.StepEnded) and e.step == "loosen" for f in e.findings
    ]
    assert [f.moves[0] for f in told if f.held is Held.NO] == [
        "once broker-5 responds: kafka-configs.sh --bootstrap-server BOOTSTRAP --alter --entity-type brokers "
        f"--entity-name 5 --delete-config {LEADER_RATE}"
    ]


def test_the_rates_of_a_removed_broker_that_died_go_before_kafka_forgets_it(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)
    made.cluster.kraft = True
    made.after_change = at(1, InstallProgram, lambda: made.cluster.down.add(5))
    assert made.process(forward).code == 0
    assert made.cluster.forgotten == set(GONE)
    assert made.settings_kept


def test_x10_what_lands_on_a_broker_before_it_stops_is_moved_first(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)

    def bear(world: Cluster) -> None:
        if len(world.birthplaces) < 4 and world.installed:
            world.bear(*((4, 5), (5, 1), (1, 4), (2, 5))[len(world.birthplaces)])

    made.cluster.born = bear
    assert made.process(forward).code == 0
    assert made.there
    assert len(made.cluster.birthplaces) == 4
    assert made.cluster.down == set(GONE)
    assert made.process(back).code == 0
    assert made.home


def test_x10_what_names_a_stopped_broker_is_moved_away_from_it(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)

    def bear(world: Cluster) -> None:
        if world.stops and len(world.birthplaces) < 2:
            world.bear(4, 1)

    made.cluster.born = bear
    assert made.process(forward).code == 0
    assert made.there
    assert made.cluster.stops == ["broker4", "broker5"]
    assert len(made.cluster.birthplaces) == 2


def always(*sets: tuple[int, ...]) -> Callable[[Cluster], None]:
    """A topic at each look, as long as the brokers that it names run: as good as without end."""

    def bear(world: Cluster) -> None:
        if len(world.birthplaces) < 60 and (up := [one for one in sets if not world.down & set(one)]):
            world.bear(*up[len(world.birthplaces) % len(up)])

    return bear


def outrun(tmp_path: Path, *sets: tuple[int, ...]) -> RemovalDesk:
    """A desk over a cluster in which topics on these brokers come faster than they are moved."""
    made = desk(tmp_path, shutdown=True)
    made.cluster.outrun, made.cluster.born = True, always(*sets)
    return made


def test_x10_topics_that_come_without_end_do_not_hold_the_stop_up(tmp_path: Path) -> None:
    """They are in sync elsewhere, and moved once the broker has stopped."""
    made = outrun(tmp_path, (4, 1), (2, 5), (1, 2))
    assert made.process(forward).code == 0
    assert made.there
    assert made.cluster.down == set(GONE)
    assert made.cluster.spared, "born just before a stop"
    assert "topics are being created continuously" in found(made, "remove.empty").seen
    made.cluster.born = born(0)
    assert made.process(back).code == 0
    assert made.home, "the born ones are back where they were born, and no throttle is left on them"


def test_x10_a_broker_that_writes_need_does_not_stop_though_topics_come_without_end(tmp_path: Path) -> None:
    """Each of them needs both of its replicas: the broker stops once none comes any more."""
    made = outrun(tmp_path, (4, 1))
    made.cluster.min_isr = 2
    made.cluster.born = born(20, (4, 1))
    assert made.process(forward).code == 0
    assert made.there
    assert made.cluster.down == set(GONE)
    assert made.cluster.spared == []


def test_x10_a_service_that_does_not_stop_is_named_though_topics_come_without_end(tmp_path: Path) -> None:
    made = outrun(tmp_path, (4, 1), (2, 5), (1, 2))
    made.cluster.deaf = {"broker4"}
    assert made.process(forward).code == 6
    assert made.cluster.stops.count("broker4") == 3
    told = found(made, "remove.stopped")
    assert (told.target, told.held) == ("broker4", Held.NO)
    made.cluster.deaf = set()
    made.cluster.born = born(0)
    assert made.process(forward).code == 0
    assert made.there


def test_x10_an_empty_broker_that_goes_on_running_has_no_birth_left(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.born = born(20, (4, 1))
    assert made.process(forward).code == 0
    assert made.there
    assert len(made.cluster.birthplaces) == 20


def test_data_that_is_only_on_a_stopped_broker_is_named_and_a_restart_brings_it(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)

    def bear(world: Cluster) -> None:
        if world.stops and not world.birthplaces:
            world.bear(4)

    made.cluster.born = bear
    assert made.process(forward).code == 6
    told = found(made, "remove.only-there")
    assert (told.held, told.seen) == (Held.NO, "born0-0 on brokers [4]")
    assert made.process(lambda walk: walk.back("stopped")).code == 0
    assert made.cluster.down == set()
    assert made.process(forward).code == 0
    assert made.there
    assert made.cluster.down == set(GONE)


def test_x20_a_broker_that_was_down_before_is_emptied_and_not_started_on_the_way_back(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)
    made.cluster.down.add(5)
    assert made.process(forward).code == 0
    assert made.there
    assert made.cluster.stops == ["broker4"]
    assert made.process(back).code == 8, "nobody refills a broker that is down"
    assert made.cluster.down == {5}
    made.cluster.down.clear()
    assert made.process(resume).code == 0
    sets = {name: held.replicas for name, held in made.first.held.items()}
    assert {name: held.replicas for name, held in made.cluster.held.items()} == sets


def test_a_broker_without_a_host_in_the_inventory_cannot_be_stopped(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)
    brokers = tuple(broker for broker in made.inventory.kafka.brokers if broker.id != 5)
    kafka = made.inventory.kafka.model_copy(update={"brokers": brokers})
    made.inventory = made.inventory.model_copy(update={"kafka": kafka})
    assert refused(made, "remove.stoppable") == "none for brokers 5"


# --- killed, lost ----------------------------------------------------------------------------------------


def cordoned(tmp_path: Path) -> RemovalDesk:
    """A desk over a busy cluster that knows cordons; its removed brokers stop."""
    made = busy(tmp_path, 2, 8, shutdown=True)
    made.cluster.cordons = True
    return made


def test_x5_killed_at_each_change_it_goes_on_or_back(tmp_path: Path) -> None:
    left = left_by_kills(cordoned(tmp_path), forward)
    assert len(left) > 50
    for number, (made, other) in enumerate(on_and_back(left)):
        for one in (made, other):
            assert one.cluster.replaced == [], number
        assert max(Counter(submitted(made)).values()) == 1, number
        if number % 8 == 0:
            assert made.process(back).code == 0, number
            assert made.home, number


def test_x5_killed_at_each_change_on_the_way_back_it_comes_home(tmp_path: Path) -> None:
    made = cordoned(tmp_path)
    assert made.process(forward).code == 0
    left = left_by_kills(made, back)
    assert len(left) > 45
    for one in homeward(left):
        assert one.cluster.replaced == [], one.run_dir


@pytest.mark.parametrize("place", range(0, 48, 5))
@pytest.mark.parametrize("trouble", ["lost", "down"])
@pytest.mark.parametrize("way", list(Way))
def test_a_lost_answer_is_looked_at_and_never_assumed(
    tmp_path: Path, place: int, trouble: str, way: Way
) -> None:
    made = busy(tmp_path, 4)
    made.cluster.cordons = True
    if way is Way.BACK:
        assert made.process(forward).code == 0
        made.cluster.made.clear()
    made.cluster.wrong = [""] * place + [trouble]
    assert made.process(forward if way is Way.FORWARD else back).code == 0
    assert made.there if way is Way.FORWARD else made.home
    assert max(Counter(submitted(made)).values()) == 1, "sent again only where it did not happen"


def test_after_a_way_back_it_goes_there_again(tmp_path: Path) -> None:
    made = busy(tmp_path, 4)
    for _ in range(2):
        assert made.process(forward).code == 0
        assert made.there
        assert made.process(back).code == 0
        assert made.home


def test_x20_a_target_that_dies_is_named_and_the_run_goes_on_once_it_is_back(tmp_path: Path) -> None:
    made = busy(tmp_path, 2)
    made.before_change = at(3, ReassignPartition, lambda: made.cluster.down.add(2))
    assert made.process(forward).code == 6
    assert "broker 2 is down" in found(made, "engine.wait-over").seen
    assert not made.cluster.stops
    made.before_change = lambda _change: None
    made.cluster.down.clear()
    for held in made.cluster.held.values():
        held.isr = held.replicas  # it has caught up
    assert made.process(resume).code == 0
    assert made.there


def gone_without(broker: int) -> tuple[Accept, ...]:
    """Somebody goes on without this broker."""
    ids, until = ("reassign.target-down", "reassign.throttle-stays"), "2999-01-01T00:00Z"
    return tuple(
        Accept(finding=id, target=f"broker-{broker}", who="Lea", why="broken", until=until) for id in ids
    )


@pytest.mark.parametrize(("place", "state"), [(3, "moving"), (6, "empty")])
def test_x20_moves_to_a_target_that_stays_dead_are_planned_anew_once_that_is_accepted(
    tmp_path: Path, place: int, state: str
) -> None:
    """What was on it before stays there. Once it is back, all comes home."""
    made = busy(tmp_path, 2, shutdown=True)
    made.cluster.racks = dict.fromkeys(RACKS, "a")
    made.before_change = at(place, ReassignPartition, lambda: made.cluster.down.add(2))
    ended = made.process(forward)
    assert ended.code == 6
    assert state not in states(made)
    assert "accept reassign.target-down" in " ".join(ended.findings[0].moves)
    made.before_change = lambda _change: None
    made.inventory = made.inventory.model_copy(update={"accept": gone_without(2)})
    assert made.process(resume).code == 0
    assert not made.cluster.flights
    assert on(made.cluster, GONE) == []
    assert made.cluster.stops == ["broker4", "broker5"]
    assert made.cluster.replaced == [], "cancelled first"
    if state == "moving":
        told = found(made, "reassign.target-down")
        assert (told.held, told.severity, told.target) == (Held.NO, Severity.WARN, "broker-2")
    for name, held in made.cluster.held.items():
        assert set(held.replicas) - {2} <= set(held.isr)
        before = made.first.held.get(name, held).replicas
        assert set(before) & set(GONE) or held.replicas == before, "only what must move moves"
    made.cluster.down.discard(2)
    for held in made.cluster.held.values():
        held.isr = held.replicas
    assert made.process(back).code == 0
    sets = {name: held.replicas for name, held in made.first.held.items()}
    assert {name: one.replicas for name, one in made.cluster.held.items() if name in sets} == sets
    assert not made.cluster.down


def test_x20_an_accepted_target_that_is_up_keeps_its_moves(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.inventory = made.inventory.model_copy(update={"accept": gone_without(2)})
    assert made.process(forward).code == 0
    assert made.there
    assert received(made, 2) > 0
    assert "; 0 partitions were created on these brokers meanwhile" in found(made, "remove.empty").seen, (
        "nothing was planned anew"
    )


def test_x15_the_plan_tells_bytes_time_exclusion_and_how_it_ends(tmp_path: Path) -> None:
    made = desk(tmp_path, shutdown=True)
    c = Context("plan", made.inventory)
    told = "\n".join(foreseen(c, made.look()))
    assert "  broker 5: 0 bytes in, 12,029,000 bytes out" in told
    assert "  5 partitions, 18,034,000 bytes, about 13 s at 1,000,000 bytes/s" in told
    assert "exclusion: by watch: Kafka before 4.3 has no cordoned.log.dirs" in told
    assert told.endswith("then the brokers stop")
    steps = {step.id: step for stage in made.playbook.stages for step in stage.steps}
    forecast = steps["replicas"].forecast(c, made.look())
    assert forecast is not None
    assert sorted(forecast.targets or ()) == sorted(f"{t}-{n}" for t, n in on(made.cluster, GONE))
    assert made.cluster.made == []


def test_x3_the_plan_says_why_there_is_none(tmp_path: Path) -> None:
    made = desk(tmp_path, brokers=(2, 3, 4, 5))
    told = "\n".join(foreseen(Context("plan", made.inventory), made.look()))
    assert "  no plan: placement." in told


def test_x15_t9_the_plan_tells_of_a_throttle_that_can_never_end(tmp_path: Path) -> None:
    made = desk(tmp_path)
    name = on(made.cluster, GONE)[0]
    made.cluster.grows[name] = 40_000_000
    c = Context("plan", made.inventory)
    first = made.playbook.measured(c, made.look())
    assert isinstance(first, Waiting)
    made.clock.pause(first.poll_s)
    told = made.playbook.measured(replace(c, kept=first.keep), made.look())
    assert isinstance(told, tuple)
    assert told[0].startswith("  warning: reassign.endless: broker ")
    assert "1 MB/s can never finish, because clients produce" in told[0]


def test_the_page_for_hands_takes_a_cordon_off_again() -> None:
    """Before the run nothing is recorded: what is there now comes back."""
    step, c = ExcludeStep(), cast(Context, None)
    facts = ExcludeFacts(None, {4: Seen(TopicSetting(None))}, None)
    assert step.plan(c, facts, "broker-4") == (AlterBrokerConfig(KAFKA, 4, CORDONED, CORDON_ALL, None),)
    assert step.undo(c, facts, "broker-4", ()) == (AlterBrokerConfig(KAFKA, 4, CORDONED, None, CORDON_ALL),)
