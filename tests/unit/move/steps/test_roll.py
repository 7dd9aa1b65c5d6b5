"""ROLL: when a broker counts as moved, and what keeps the roll from being done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.move.steps.facts import ARMED, DEST, SILENT, context, stopped_by, well
from tests.world.operator import inventory
from zkmigrate.hosts.facts.status import WrittenFile
from zkmigrate.inventory.inventory import Window
from zkmigrate.kafka.changes import KAFKA as CLUSTER
from zkmigrate.kafka.changes import ElectLeaders
from zkmigrate.kafka.facts.recovery import Recovery
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.kafka.rules.connect import connect_to_dest
from zkmigrate.kafka.rules.leaders import not_led_by_preferred
from zkmigrate.move.dependent import MemberFacts
from zkmigrate.move.dependents.kafka import KAFKA, Brokers
from zkmigrate.move.steps.roll import WAVE_DEADLINE_S, RollFacts, RollStep
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Verdict, Waiting, Way
from zkmigrate.zookeeper.data.four_letter_words import Connection

ID = inventory().kafka.cluster_id
DEST_FILE: Reading[bytes] = Seen(f"zookeeper.connect={connect_to_dest(inventory())}\n".encode())
SOURCE_FILE: Reading[bytes] = Seen(b"zookeeper.connect=10.0.0.1:2181/kafka\n")
ON_DEST: Reading[frozenset[str]] = Seen(frozenset({"10.0.0.11"}))
ON_SOURCE: Reading[frozenset[str]] = Seen(frozenset({"10.0.0.1"}))
RUNS = replace(ARMED, phase="idle", clock=1_000_000.0)
"""It started 900 s before the clock said this."""
PARTITION = PartitionState("t", 0, 1, (1, 2, 3), (1, 2, 3))
VIEW = KafkaView(ID, 3, dict.fromkeys((1, 2, 3), ("", 0, "")), (PARTITION,), {"t": 2})


def entry(changed_s: float) -> DirEntry:
    return DirEntry("server.properties", "f", 9, int(changed_s * 1e9), "0644", "kafka", "kafka")


MOVED = MemberFacts(file=DEST_FILE, entry=entry(999_000.0), status=Seen(RUNS), zookeepers=ON_DEST)
THERE = MemberFacts(file=SOURCE_FILE, entry=entry(500_000.0), status=Seen(RUNS), zookeepers=ON_SOURCE)


def facts(
    all_brokers: MemberFacts = MOVED, view: Reading[KafkaView] | None = None, **broker2: Any
) -> RollFacts:
    recovery = {"broker2": broker2.pop("recovery")} if "recovery" in broker2 else {}
    members = {f"broker{n}": all_brokers for n in (1, 2, 3)}
    if broker2:
        members["broker2"] = replace(all_brokers, **broker2)
    return RollFacts(
        members=members,
        own=Brokers(view or Seen(VIEW), recovery),
        identities=dict.fromkeys(DEST, Seen(ID)),
        source_clients=dict.fromkeys(inventory().source_names, Seen(())),
    )


def verdict(f: RollFacts) -> Verdict:
    return RollStep(KAFKA).check(context(), f)


def test_brokers_that_have_moved_are_done() -> None:
    assert well(verdict(facts()))


ALIAS: Reading[bytes] = Seen(b"zookeeper.connect=zk.alias:2181/kafka\n")


@pytest.mark.parametrize(("found", "moved"), [("10.0.0.12", True), ("10.0.0.2", False)])
def test_a_file_that_names_an_ensemble_by_another_name_counts_by_what_it_resolves_to(
    found: str, moved: bool
) -> None:
    names = {"zk.alias": Seen((found,))}
    at = facts(MOVED if moved else THERE, file=ALIAS, names=names)
    told = verdict(at) if moved else RollStep(KAFKA).check(context(way=Way.BACK), at)
    assert well(told) if moved else isinstance(told, Done)


@pytest.mark.parametrize("way", Way)
def test_a_name_that_does_not_resolve_on_a_broker_is_unknown_and_named(way: Way) -> None:
    names = {"zk.alias": Absent("zk.alias")}
    at = facts(MOVED, file=ALIAS, names=names)
    told = RollStep(KAFKA).check(context(way=way), at)
    assert stopped_by(told) == [("roll.names", "broker2")]
    assert isinstance(told, Blocked)
    assert told.findings[0].seen == "zk.alias does not resolve on broker2"


def test_a_way_back_does_not_end_at_a_name_of_a_broker_that_it_left_alone() -> None:
    """Its process is connected to source alone, and the run wrote no file there."""
    at = facts(THERE, file=ALIAS, names={"zk.alias": Absent("zk.alias")})
    assert isinstance(RollStep(KAFKA).check(context(way=Way.BACK), at), Done)
    wrote = replace(context(way=Way.BACK), unrestored=frozenset({"broker2"}))
    assert stopped_by(RollStep(KAFKA).check(wrote, at)) == [("roll.names", "broker2")]


def test_the_names_of_a_members_file_are_resolved_on_its_host() -> None:
    """Those that the inventory has are not: nobody is asked for them."""
    asked: list[tuple[str, str]] = []

    class Hosts:
        def listing(self, _host: str, _path: str) -> Reading[tuple[DirEntry, ...]]:
            return Seen(())

        def file(self, host: str, _path: str) -> Reading[bytes]:
            return SOURCE_FILE if host == "broker1" else ALIAS

        def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
            asked.append((host, name))
            return Seen(("127.0.0.1",))

        def each(self, hosts: Any, ask: Any) -> dict[str, Any]:
            return {host: ask(host) for host in hosts}

    seen = RollStep(KAFKA).forecast(context(), cast(Look, Hosts()))
    assert asked == [("broker2", "zk.alias"), ("broker3", "zk.alias")]
    own = {broker.name: broker.address for broker in inventory().kafka.brokers}
    told = [member.names for member in seen.facts.members.values()]
    assert told == [{}, *({"zk.alias": Seen((own[host],))} for host in ("broker2", "broker3"))]


def test_the_first_broker_to_go_is_not_the_controller() -> None:
    assert verdict(facts(THERE)) == Ready(("broker1",))
    assert verdict(facts(THERE, Seen(replace(VIEW, controller=1)))) == Ready(("broker2",))


def test_a_half_done_broker_is_restarted() -> None:
    old = facts(MOVED, entry=entry(999_900.0), zookeepers=ON_SOURCE)
    assert verdict(old) == Ready(("broker2",))


@pytest.mark.parametrize(
    "lacks",
    [
        {"zookeepers": Seen(frozenset())},
        {"zookeepers": Seen(frozenset({"10.0.0.11", "10.0.0.2"}))},
        {"zookeepers": SILENT},
    ],
    ids=["connected nowhere", "connected to both", "its sockets are not told"],
)
def test_a_restarted_broker_is_waited_for_until_it_uses_dest_alone(lacks: dict[str, Any]) -> None:
    assert isinstance(verdict(facts(**lacks)), Waiting)


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, brokers={1: ("", 0, ""), 3: ("", 0, "")}),
        replace(VIEW, partitions=(replace(PARTITION, isr=(1, 3)),)),
        replace(VIEW, partitions=(replace(PARTITION, leader=-1),)),
    ],
    ids=["one is not registered", "one is behind", "one partition is offline"],
)
def test_the_cluster_must_be_whole_before_the_roll_is_done(view: KafkaView) -> None:
    assert isinstance(verdict(facts(view=Seen(view))), Waiting)


@pytest.mark.parametrize(
    ("boot", "written_s", "restarted"),
    [("boot", 99.0, True), ("boot", 100.0, True), ("boot", 101.0, False), ("earlier", 5000.0, True)],
)
def test_a_restart_is_told_by_the_clock_of_the_boot(boot: str, written_s: float, restarted: bool) -> None:
    """The process runs since 100 s after the host's boot."""
    changed = entry(999_000.0)
    assert changed.changed_ns is not None
    written = WrittenFile(boot, written_s, changed.changed_ns, inventory().kafka.config)
    status = Seen(replace(RUNS, written=written))
    waits = verdict(facts(entry=changed, status=status, zookeepers=ON_SOURCE))
    assert isinstance(waits, Waiting) if restarted else waits == Ready(("broker2",))


def test_nobody_is_restarted_while_the_brokers_do_not_answer() -> None:
    assert isinstance(verdict(facts(THERE, SILENT)), Waiting)


@pytest.mark.parametrize(
    "id", [Seen("another"), Absent("no /kafka/cluster/id"), SILENT], ids=["other", "none", "silent"]
)
def test_the_chroot_seen_through_dest_must_be_this_clusters(id: Reading[str]) -> None:
    f = facts(THERE)
    assert stopped_by(verdict(replace(f, identities={**f.identities, "dest2": id}))) == [
        ("roll.cluster-id", "dest2")
    ]


def client(address: str) -> Reading[tuple[Connection, ...]]:
    return Seen((Connection(address, 40000, 0, 1, 1, 0x77, 18000),))


@pytest.mark.parametrize(
    ("clients", "held"),
    [(client("10.0.0.22"), False), (SILENT, False), (client("10.0.0.77"), True)],
    ids=["a broker", "not told", "another tenant"],
)
def test_sources_own_client_lists_hold_no_broker(
    clients: Reading[tuple[Connection, ...]], held: bool
) -> None:
    f = facts()
    found = verdict(replace(f, source_clients={**f.source_clients, "source2": clients}))
    assert isinstance(found, Done) is held
    assert stopped_by(found) == ([] if held else [("roll.left-source", "source2")])


def test_a_broker_of_which_nobody_tells_whether_it_runs_is_not_restarted() -> None:
    f = facts(THERE, status=Seen(replace(RUNS, unit_state="unknown")))
    assert not isinstance(verdict(f), Ready) or "broker2" not in getattr(verdict(f), "targets", ())


AT_END = 1795309200.0
OPEN, OVER, EARLY = AT_END - 1, AT_END, AT_END - 14401


def with_policy(way: Way = Way.FORWARD, **policy: Any) -> Context:
    asked = inventory()
    changed = asked.model_copy(update={"policy": asked.policy.model_copy(update=policy)})
    return Context("run", changed, way=way, unrestored=frozenset(asked.broker_names))


NIGHT = Window(begin="2026-11-21T22:00+01:00", end="2026-11-22T02:00:00+01:00")


@pytest.mark.parametrize("wall", [OPEN, OVER, EARLY], ids=["inside", "after its end", "before it begins"])
def test_no_broker_restarts_outside_the_maintenance_window(wall: float) -> None:
    f = replace(facts(MOVED, file=SOURCE_FILE, zookeepers=ON_SOURCE), wall=wall)
    found = RollStep(KAFKA).check(with_policy(window=NIGHT), f)
    if wall == OPEN:
        assert found == Ready(("broker2",))
        return
    assert stopped_by(found) == [("roll.hour", "")]
    assert isinstance(found, Blocked)
    assert "2 of 3 brokers have moved" in found.findings[0].seen


@pytest.mark.parametrize("wall", [OPEN, OVER])
def test_a_broker_that_is_down_is_started_at_any_hour(wall: float) -> None:
    stopped = replace(RUNS, unit_state="inactive", unit_since=0.0)
    f = facts(MOVED, status=Seen(stopped), zookeepers=Seen(frozenset()))
    found = RollStep(KAFKA).check(with_policy(window=NIGHT), replace(f, wall=wall))
    assert isinstance(found, Ready)
    assert (found.targets, [one.id for one in found.ask]) == (("broker2",), ["roll.stopped"])


def test_the_way_back_waits_for_no_hour() -> None:
    found = RollStep(KAFKA).check(with_policy(Way.BACK, window=NIGHT), replace(facts(), wall=OVER))
    assert isinstance(found, Ready)


def test_a_broker_that_restarted_in_time_is_waited_for_after_the_end_and_the_roll_may_be_done() -> None:
    c = with_policy(window=NIGHT)
    waits = replace(facts(zookeepers=Seen(frozenset())), wall=OVER)
    assert isinstance(RollStep(KAFKA).check(c, waits), Waiting)
    assert well(RollStep(KAFKA).check(c, replace(facts(), wall=OVER)))


LEFT: dict[str, Any] = {"file": SOURCE_FILE, "zookeepers": ON_SOURCE}
"""What makes broker2 one that still has to move."""


def looked(c: Context, uptime_s: float, **first: Any) -> Verdict:
    """A look at two brokers that have moved and one that has not; first: what is different of broker1."""
    f = facts(replace(MOVED, status=Seen(replace(RUNS, uptime_s=uptime_s))), **LEFT)
    if first:
        changed = replace(RUNS, **{"uptime_s": uptime_s, **first})
        f = replace(f, members={**f.members, "broker1": replace(MOVED, status=Seen(changed))})
    return RollStep(KAFKA).check(c, f)


def soaking(c: Context, found: Verdict) -> Context:
    """The context of the next look."""
    assert isinstance(found, Waiting)
    return replace(c, kept=found.keep or c.kept)


def test_the_next_wave_waits_until_the_brokers_that_have_moved_were_well_for_long_enough() -> None:
    c = with_policy(roll_soak_s=60.0)
    first = looked(c, 1000.0)
    c = soaking(c, first)
    assert "broker2 next, in 60 s" in getattr(first, "progress", "")
    later = looked(c, 1059.0)
    assert isinstance(later, Waiting)
    assert "in 1 s" in later.progress
    assert looked(soaking(c, later), 1060.0) == Ready(("broker2",))
    assert looked(with_policy(), 1000.0) == Ready(("broker2",)), "no soak is asked for"


@pytest.mark.parametrize(
    ("first", "anew"),
    [({}, False), ({"unit_since": 1050.0}, True), ({"boot_id": "another"}, True)],
    ids=["well", "restarted", "booted"],
)
def test_the_soak_begins_anew_when_a_broker_was_restarted(first: dict[str, Any], anew: bool) -> None:
    c = with_policy(roll_soak_s=60.0)
    c = soaking(c, looked(c, 1000.0))
    assert isinstance(looked(c, 1060.0, **first), Waiting) is anew


@pytest.mark.parametrize("isr", [(1, 2), (1, 3)], ids=["one that has moved", "one that has not"])
def test_the_soak_begins_anew_when_a_replica_was_out_of_sync(isr: tuple[int, ...]) -> None:
    c = with_policy(roll_soak_s=60.0)
    c = soaking(c, looked(c, 1000.0))
    sick = Seen(replace(VIEW, partitions=(replace(PARTITION, isr=isr),)))
    c = soaking(c, RollStep(KAFKA).check(c, facts(MOVED, sick, **LEFT)))
    assert isinstance(looked(c, 1060.0), Waiting)


def test_the_first_wave_the_half_done_broker_and_the_way_back_need_no_soak() -> None:
    c = with_policy(roll_soak_s=60.0)
    assert RollStep(KAFKA).check(c, facts(THERE)) == Ready(("broker1",))
    half_done = facts(MOVED, entry=entry(999_900.0), zookeepers=ON_SOURCE)
    assert RollStep(KAFKA).check(c, half_done) == Ready(("broker2",))
    back = with_policy(Way.BACK, roll_soak_s=60.0)
    assert RollStep(KAFKA).check(back, facts(MOVED, **LEFT)) == Ready(("broker1",))


GONE = replace(VIEW, brokers={1: ("", 0, ""), 3: ("", 0, "")})
"""Broker 2 is not registered."""


def coming(c: Context, now: float, loaded: int, **status: Any) -> Waiting:
    """A look at broker2 while it comes back."""
    recovery = Seen(Recovery(loaded, 800, 0))
    f = facts(view=Seen(GONE), recovery=recovery, status=Seen(replace(RUNS, **status)))
    found = RollStep(KAFKA).check(c, replace(f, now=now))
    assert isinstance(found, Waiting)
    return found


def test_a_broker_that_loads_its_logs_is_waited_for_longer_than_one_that_does_not() -> None:
    c = context()
    first = coming(c, 1000.0, 312)
    assert first.progress.startswith("recovered 312 of 800 logs, registered: no, partitions behind: 0")
    assert first.deadline_s == WAVE_DEADLINE_S
    c = replace(c, kept=first.keep)
    assert coming(c, 1500.0, 312).deadline_s == WAVE_DEADLINE_S
    assert coming(c, 1500.0, 313).deadline_s == 500.0 + WAVE_DEADLINE_S
    assert coming(c, 1500.0, 313, unit_since=1400.0).deadline_s == WAVE_DEADLINE_S, "another process"
    short = with_policy(roll_recovery_s=700.0)
    assert coming(replace(short, kept=first.keep), 1500.0, 313).deadline_s == 700.0


@pytest.mark.parametrize(
    ("stop", "deadline_s"),
    [("15min", 960.0), ("1min 30s", WAVE_DEADLINE_S), ("infinity", 7200.0), ("", WAVE_DEADLINE_S)],
)
def test_a_broker_that_is_being_stopped_is_waited_for_as_long_as_its_unit_allows(
    stop: str, deadline_s: float
) -> None:
    stopping = Seen(replace(RUNS, unit_state="deactivating", unit_stop=stop))
    for file in (DEST_FILE, SOURCE_FILE):
        found = verdict(facts(MOVED, Seen(GONE), status=stopping, file=file))
        assert isinstance(found, Waiting)
        assert (found.what, found.deadline_s) == ("broker2 has stopped", deadline_s)


@pytest.mark.parametrize("state", ["activating", "reloading"])
def test_a_broker_that_systemd_is_starting_is_restarted_only_where_its_file_is_wrong(state: str) -> None:
    starting = Seen(replace(RUNS, unit_state=state))
    found = verdict(facts(MOVED, Seen(GONE), status=starting))
    assert isinstance(found, Waiting)
    assert found.what == "broker2 has started"
    assert verdict(facts(MOVED, Seen(GONE), status=starting, file=SOURCE_FILE)) == Ready(("broker2",))


BROKER1 = inventory().broker("broker1")
ELECTION = (ElectLeaders(CLUSTER),)


def view(*partitions: PartitionState, **of: Any) -> Reading[KafkaView]:
    return Seen(replace(VIEW, partitions=partitions, **of))


LED_BY_2 = replace(PARTITION, leader=2)


@pytest.mark.parametrize(
    ("found", "elects"),
    [
        (view(PARTITION), False),
        (view(PARTITION, LED_BY_2), True),
        (view(replace(LED_BY_2, replicas=(2, 1, 3))), False),
    ],
    ids=["its first replica leads", "one of two is led by its second", "the second is the preferred one"],
)
@pytest.mark.parametrize("way", Way)
def test_the_roll_elects_preferred_leaders_where_the_policy_asks_for_it(
    found: Reading[KafkaView], elects: bool, way: Way
) -> None:
    f = facts(MOVED if way is Way.FORWARD else THERE, found)
    asked = replace(with_policy(way, roll_leaders=True), unrestored=frozenset())
    said = RollStep(KAFKA).check(asked, f)
    assert said == Ready(("leaders",)) if elects else well(said)
    assert well(RollStep(KAFKA).check(replace(with_policy(way), unrestored=frozenset()), f)), "not asked for"


@pytest.mark.parametrize(
    "found",
    [
        KafkaView(ID, 3, VIEW.brokers, (replace(LED_BY_2, isr=(2, 3)),), {}),
        KafkaView(ID, 3, dict.fromkeys((2, 3), ("", 0, "")), (LED_BY_2,), {}),
        KafkaView(ID, 3, VIEW.brokers, (replace(LED_BY_2, replicas=()),), {}),
    ],
    ids=["not in sync", "not registered", "no replica"],
)
def test_no_election_is_wanted_of_a_preferred_replica_that_could_not_lead(found: KafkaView) -> None:
    assert not_led_by_preferred(found) == ()
    assert not_led_by_preferred(replace(VIEW, partitions=(LED_BY_2,))) == (LED_BY_2,)


@pytest.mark.parametrize("wall", [OPEN, OVER, EARLY], ids=["inside", "after its end", "before it begins"])
def test_no_leader_is_elected_outside_the_maintenance_window(wall: float) -> None:
    f = replace(facts(MOVED, view(LED_BY_2)), wall=wall)
    found = RollStep(KAFKA).check(with_policy(roll_leaders=True, window=NIGHT), f)
    if wall == OPEN:
        assert found == Ready(("leaders",))
        return
    assert stopped_by(found) == [("roll.hour", "")]
    assert isinstance(found, Blocked)
    assert "3 of 3 brokers have moved" in found.findings[0].seen
    assert "set policy.roll_leaders to false, then resume" in found.findings[0].moves
    assert well(RollStep(KAFKA).check(with_policy(window=NIGHT), f)), "so it may be done"


def test_the_election_on_the_way_back_waits_for_no_hour() -> None:
    back = replace(with_policy(Way.BACK, roll_leaders=True, window=NIGHT), unrestored=frozenset())
    f = replace(facts(THERE, view(LED_BY_2)), wall=OVER)
    assert RollStep(KAFKA).check(back, f) == Ready(("leaders",))


def test_an_election_is_undone_by_another() -> None:
    c = with_policy(roll_leaders=True)
    assert RollStep(KAFKA).plan(c, facts(), "leaders") == ELECTION
    assert RollStep(KAFKA).undo(c, facts(), "leaders", ()) == ELECTION


def test_no_election_comes_before_every_broker_has_moved() -> None:
    f = facts(MOVED, view(LED_BY_2), file=SOURCE_FILE, zookeepers=ON_SOURCE)
    assert RollStep(KAFKA).check(with_policy(roll_leaders=True), f) == Ready(("broker2",))
