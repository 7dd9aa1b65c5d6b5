"""The roll over the model world: who restarts, when, and how often."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.world.model.look import WorldLook
from tests.world.model.members import Process
from tests.world.model.world import World
from tests.world.operator import Killed, Operator, quiet_world
from tests.world.rolled import rolled, walked
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Window
from zkmigrate.kafka.changes import ElectLeaders
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.kafka.rules.connect import connect_to_dest, with_connect
from zkmigrate.kafka.rules.leaders import not_led_by_preferred
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps import roll
from zkmigrate.move.steps.roll import RollStep
from zkmigrate.runbook.engine.events import StepBegun, Waits, WaveBegun
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.model.change import Change, SetService
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Waiting, Way


def restarts(world: World) -> dict[str, int]:
    """Restarts by broker."""
    counts = dict.fromkeys(world.inventory.broker_names, 0)
    for change, _ in world.applied:
        if isinstance(change, SetService) and change.host in counts:
            counts[change.host] += 1
    return counts


@pytest.mark.parametrize("skew_s", [5.0, -5.0, 3600.0])
def test_a_clock_that_differs_restarts_no_broker_twice(tmp_path: Path, skew_s: float) -> None:
    world = quiet_world()
    for name in world.inventory.broker_names:
        world.hosts[name].skew_s = skew_s
    assert Operator(world, tmp_path / "run").forward(until="roll").code == 0
    assert restarts(world) == dict.fromkeys(world.inventory.broker_names, 1)


@pytest.mark.parametrize("last", range(1, 7))
def test_killed_at_each_change_of_its_way_back_the_roll_is_walked_back_by_resume(
    tmp_path: Path, last: int
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    operator.kill_after = operator.calls + last
    with pytest.raises(Killed):
        operator.back("roll")
    assert all(world.hosts[n].running for n in world.inventory.broker_names), "none is down meanwhile"
    assert Operator(world, operator.run_dir).resume().code == 0
    assert all(p.connected.startswith("source") for p in world.brokers.values())


def half_done(world: World, *names: str) -> None:
    """Write dest's file on these brokers, without the restart that belongs to it."""
    inventory = world.inventory
    for name in names:
        file = world.hosts[name].files[inventory.kafka.config]
        content = with_connect(file.content, connect_to_dest(inventory))
        world.hosts[name].files[inventory.kafka.config] = replace(file, content=content, changed=world.wall)


def joined(tmp_path: Path) -> World:
    return walked(tmp_path, "join").world


def verdict(world: World, way: Way = Way.FORWARD, unrestored: frozenset[str] = frozenset()) -> object:
    step, c = RollStep(KAFKA), Context("run", world.inventory, way=way, unrestored=unrestored)
    return step.check(c, step.observe(c, WorldLook(world)))


def test_a_broker_that_is_down_comes_before_one_whose_old_process_still_runs(tmp_path: Path) -> None:
    world = joined(tmp_path)
    half_done(world, "broker1")
    world.hosts["broker2"].stop()
    world.advance(0.5)
    ready = verdict(world)
    assert isinstance(ready, Ready)
    assert (ready.targets, [(f.id, f.target) for f in ready.ask]) == (
        ("broker2",),
        [("roll.stopped", "broker2")],
    )


def test_a_half_done_broker_waits_while_another_broker_is_behind(tmp_path: Path) -> None:
    world = joined(tmp_path)
    half_done(world, "broker1")
    world.hosts["broker2"].start(world.now)
    world.advance(1.0)
    waits = verdict(world)
    assert isinstance(waits, Waiting)
    assert "ISR [1, 3] of [1, 2, 3]" in waits.progress
    world.advance(5.0)
    assert verdict(world) == Ready(("broker1",))


def test_another_process_on_a_broker_host_is_named_and_restarts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = joined(tmp_path)
    half_done(world, "broker1")
    world.hosts["broker1"].start(world.now + 0.1)
    world.advance(10.0)
    answer = WorldLook.sockets

    def sockets(look: WorldLook, host: str) -> Reading[str]:
        own = answer(look, host)
        assert isinstance(own, Seen)
        return Seen(own.value + "0 0 10.0.0.21:41000 10.0.0.2:2181\n") if host == "broker1" else own

    monkeypatch.setattr(WorldLook, "sockets", sockets)
    waits = verdict(world)
    assert isinstance(waits, Waiting)
    assert waits.what == "no process of broker1 is a client of source any more"
    assert "source2 of source. Find the process" in waits.progress
    assert restarts(world)["broker1"] == 0


def test_the_way_back_without_before_images_restarts_nobody(tmp_path: Path) -> None:
    world = walked(tmp_path, "roll").world
    refused = verdict(world, Way.BACK)
    assert isinstance(refused, Blocked)
    assert [f.id for f in refused.findings] == ["roll.before-image"]
    known = frozenset(world.inventory.broker_names)
    assert isinstance(verdict(world, Way.BACK, known), Ready)


@pytest.mark.parametrize("trouble", ["killed", "failed"])
def test_a_file_put_back_without_its_restart_is_no_broker_moved_back(tmp_path: Path, trouble: str) -> None:
    """The file put back is not older than the process that had read the one before."""
    world = quiet_world()
    first = {n: dict(world.hosts[n].files) for n in world.inventory.broker_names}
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    world.advance(3600.0)
    sent: list[str] = []

    def fault(change: Change, operation: str) -> None:
        if isinstance(change, SetService) and change.host in world.inventory.broker_names:
            sent.append(change.host)
            if len(sent) == 1:
                raise Killed if trouble == "killed" else HostError(f"{change.host}: no answer")

    world.faults.append(fault)
    if trouble == "killed":
        with pytest.raises(Killed):
            operator.back("roll")
        operator = Operator(world, operator.run_dir)
        assert operator.resume().code == 0
    else:
        assert operator.back("roll").code == 0
    assert sorted(sent) == sorted((*world.inventory.broker_names, sent[0]))
    assert restarts(world) == dict.fromkeys(world.inventory.broker_names, 2), "there and back"
    for name, files in first.items():
        path = world.inventory.kafka.config
        assert replace(world.hosts[name].files[path], changed=0) == replace(files[path], changed=0)
    assert all(p.connected.startswith("source") for p in world.brokers.values())


def test_a_broker_on_source_by_its_second_address_is_seen(tmp_path: Path) -> None:
    world = quiet_world()
    kafka = world.inventory.kafka
    assert Operator(world, tmp_path / "run").forward(until="roll").code == 0
    # broker2 keeps one connection to source, from an address that is only its second in the inventory.
    brokers = tuple(
        b.model_copy(update={"also": (b.address,), "address": f"k{b.id}.test"}) for b in kafka.brokers
    )
    inventory = world.inventory.model_copy(update={"kafka": kafka.model_copy(update={"brokers": brokers})})
    step, c = RollStep(KAFKA), Context("run", inventory)
    f = step.observe(c, WorldLook(world))
    assert not isinstance(step.check(c, f), Blocked)
    world.brokers["broker2"].connected = "source1"
    look = WorldLook(world)
    left = {**f.source_clients, "source1": step.observe(c, look).source_clients["source1"]}
    ended = step.check(c, replace(f, source_clients=left))
    assert isinstance(ended, Blocked)
    assert {x.target: x.seen for x in ended.findings}["source1"] == "broker2"


def test_on_the_way_back_a_broker_that_hangs_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never came back whole from its restart, so that no partition it holds is in sync until the next."""
    operator = rolled(tmp_path)
    world = operator.world
    hung = world.hosts["broker2"].started
    answer = World.in_sync

    def in_sync(world: World, process: Process) -> bool:
        hangs = process.member.name == "broker2" and world.hosts["broker2"].started == hung
        return not hangs and answer(world, process)

    monkeypatch.setattr(World, "in_sync", in_sync)
    assert operator.back("roll").code == 0
    begun = [e for e in operator.events if isinstance(e, WaveBegun) and e.way is Way.BACK]
    order = [e.targets for e in begun if e.stage == "roll"]
    assert order == [("broker2",), ("broker1",), ("broker3",)]
    assert all(p.connected.startswith("source") for p in world.brokers.values())


def silenced(monkeypatch: pytest.MonkeyPatch, host: str, until: float, what: str = "status") -> None:
    """Have ``zkm-host status`` of this host unanswered until a moment of the world's clock."""
    answer = WorldLook.zkm

    def zkm(look: WorldLook, asked: str, *args: str) -> Reading[str]:
        if asked == host and args[0] == what and look.world.now < until:
            return Unknown("timeout", f"{host}: no answer in 10 s")
        return answer(look, asked, *args)

    monkeypatch.setattr(WorldLook, "zkm", zkm)


def test_one_unanswered_status_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = joined(tmp_path)
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="roll.preflight").code == 0
    silenced(monkeypatch, "broker2", world.now + 60)
    assert operator.resume(until="roll").code == 0
    told = [e for e in operator.events if isinstance(e, Waits) and e.what == "broker2 answers"]
    assert told
    assert "broker2: no answer in 10 s" in told[0].progress
    assert restarts(world) == dict.fromkeys(world.inventory.broker_names, 1)


def test_the_others_go_on_while_one_is_silent_and_every_partition_is_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = joined(tmp_path)
    silenced(monkeypatch, "broker2", world.now + 3600)
    assert verdict(world) == Ready(("broker3",)), "broker1 is the controller, the last one"
    world.hosts["broker2"].stop()
    world.advance(1.0)
    waits = verdict(world)
    assert isinstance(waits, Waiting), "nobody stops while a silent broker is out of sync"
    assert waits.what == "broker2 answers"
    assert "ISR [1, 3] of [1, 2, 3]" in waits.progress
    assert "zkmigrate retire broker2 --run-id run" in waits.progress
    assert waits.deadline_s == world.inventory.policy.step_deadline_s


def test_the_roll_is_not_done_while_a_broker_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = walked(tmp_path, "roll").world
    silenced(monkeypatch, "broker2", world.now + 3600)
    for way in Way:
        waits = verdict(world, way, frozenset(world.inventory.broker_names))
        assert not isinstance(waits, Done)


@pytest.mark.parametrize("step_s", [-60.0, -3600.0])
def test_a_clock_that_is_set_back_before_the_restart_restarts_no_broker_twice(
    tmp_path: Path, step_s: float
) -> None:
    operator = walked(tmp_path, "join")
    world = operator.world

    def fault(change: Change, operation: str) -> None:
        if isinstance(change, SetService) and change.host in world.inventory.broker_names:
            world.hosts[change.host].skew_s += step_s

    world.faults.append(fault)
    assert operator.resume(until="roll").code == 0
    assert restarts(world) == dict.fromkeys(world.inventory.broker_names, 1)
    assert operator.back("roll").code == 0
    assert restarts(world) == dict.fromkeys(world.inventory.broker_names, 2), "there and back"


def test_a_file_changed_by_hand_after_ours_is_compared_by_the_hosts_own_clock(tmp_path: Path) -> None:
    """What zkm-host noted is of its own change, and tells nothing of a later one."""
    operator = rolled(tmp_path)
    world = operator.world
    file = world.hosts["broker1"].files[world.inventory.kafka.config]
    world.advance(60.0)
    world.hosts["broker1"].files[world.inventory.kafka.config] = replace(file, changed=world.wall)
    world.brokers["broker1"].connected = ""
    facts = RollStep(KAFKA).observe(Context("run", world.inventory), WorldLook(world))
    broken = replace(facts.members["broker1"], zookeepers=Seen(frozenset()))
    facts = replace(facts, members={**facts.members, "broker1": broken})
    assert RollStep(KAFKA).check(Context("run", world.inventory), facts) == Ready(("broker1",))


def at(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")


def test_the_roll_stops_at_the_end_of_the_window_and_goes_on_in_the_next(tmp_path: Path) -> None:
    world = joined(tmp_path)
    inventory = world.inventory
    operator = Operator(world, tmp_path / "run")

    def open_for(seconds: float) -> None:
        window = Window(begin=at(world.wall - 1), end=at(world.wall + seconds))
        policy = inventory.policy.model_copy(update={"window": window})
        world.inventory = inventory.model_copy(update={"policy": policy})

    def restarted(change: Change, operation: str) -> None:
        """The first restart takes until after the end."""
        if isinstance(change, SetService) and change.host in inventory.broker_names and not moved:
            moved.append(change.host)
            world.now += 3600.0

    moved: list[str] = []
    open_for(600.0)
    world.faults.append(restarted)
    ended = operator.resume(until="roll")
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["roll.hour"])
    assert sum(restarts(world).values()) == 1
    assert all(world.hosts[n].running for n in inventory.broker_names)
    assert operator.resume(until="roll").code == 6, "still closed"
    assert sum(restarts(world).values()) == 1
    open_for(600.0)
    assert operator.resume(until="roll").code == 0
    assert restarts(world) == dict.fromkeys(inventory.broker_names, 1)
    world.advance(3600.0)
    assert operator.back("roll").code == 0
    assert restarts(world) == dict.fromkeys(inventory.broker_names, 2), "there and back"


def test_between_two_waves_the_roll_soaks(tmp_path: Path) -> None:
    world = joined(tmp_path)
    policy = world.inventory.policy.model_copy(update={"roll_soak_s": 30.0})
    world.inventory = world.inventory.model_copy(update={"policy": policy})
    operator, restarted = Operator(world, tmp_path / "run"), []

    def note(change: Change, operation: str) -> None:
        if isinstance(change, SetService) and change.host in world.inventory.broker_names:
            restarted.append(world.now)

    world.faults.append(note)
    before = world.now
    assert operator.resume(until="roll").code == 0
    assert restarted[0] - before < 30.0, "none before the first wave"
    assert all(later - earlier >= 30.0 for earlier, later in pairwise(restarted))
    soaks = [e.progress for e in operator.events if isinstance(e, Waits) and "healthy for 30 s" in e.what]
    assert soaks[0].startswith("1 of 3 have moved")
    assert soaks[0].endswith(" in 30 s")
    left = [float(text.rsplit(" ", 2)[1]) for text in soaks if text.startswith("1 of 3")]
    assert left == sorted(left, reverse=True)


def test_each_wave_tells_how_far_the_roll_is_and_about_how_long_the_rest_takes(tmp_path: Path) -> None:
    world = joined(tmp_path)
    operator = Operator(world, tmp_path / "run")
    begun: list[float] = []

    def note(change: Change, operation: str) -> None:
        if isinstance(change, SetService) and change.host in world.inventory.broker_names:
            begun.append(world.now)

    world.faults.append(note)
    assert operator.resume(until="roll").code == 0
    waves = [e for e in operator.events if isinstance(e, WaveBegun) and e.stage == "roll"]
    assert [(e.done, e.of) for e in waves] == [(0, 3), (1, 3), (2, 3)]
    assert waves[0].left_s is None, "no wave has ended"
    first, second = begun[1] - begun[0], begun[2] - begun[1]
    assert waves[1].left_s == pytest.approx(2 * first, abs=1.0)
    assert waves[2].left_s == pytest.approx((first + second) / 2, abs=1.0)


def test_the_time_between_two_processes_is_no_pace(tmp_path: Path) -> None:
    operator = walked(tmp_path, "rehearse")
    world = operator.world
    operator.kill_after = operator.calls + 2
    with pytest.raises(Killed):
        operator.resume(until="roll")
    world.advance(7200.0)
    again = Operator(world, operator.run_dir)
    assert again.resume(until="roll").code == 0
    waves = [e for e in again.events if isinstance(e, WaveBegun) and e.stage == "roll"]
    assert (waves[0].done, waves[0].left_s) == (1, None)
    begun = next(e for e in again.events if isinstance(e, StepBegun) and e.stage == "roll")
    assert (begun.waves, begun.done, begun.of, begun.left_s) == (1, 0, 3, None), "as its last wave told"
    assert waves[-1].left_s is not None
    assert waves[-1].left_s < 3600.0


def test_a_walk_that_comes_again_counts_its_waves_anew(tmp_path: Path) -> None:
    operator = Operator(joined(tmp_path), tmp_path / "run")
    for _ in range(2):
        assert operator.forward(until="roll").code == 0
        assert operator.back("roll").code == 0
    begun = [(e.way, e.waves) for e in operator.events if isinstance(e, StepBegun) and e.step == "roll"]
    assert begun == [(Way.FORWARD, 0), (Way.BACK, 0)] * 2


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not get on is waited for 30 s instead of ten minutes."""
    monkeypatch.setattr(roll, "WAVE_DEADLINE_S", 30.0)
    monkeypatch.setattr(roll, "STOP_MARGIN_S", 5.0)


@pytest.mark.usefixtures("short")
def test_a_broker_that_recovers_its_logs_is_waited_for_as_long_as_it_gets_on(tmp_path: Path) -> None:
    world = joined(tmp_path)
    world.recovers_s["broker2"] = 80.0
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="roll").code == 0
    assert restarts(world) == dict.fromkeys(world.inventory.broker_names, 1)
    told = [e.progress for e in operator.events if isinstance(e, Waits) and "broker2 is back" in e.what]
    assert any(text.startswith("recovered 400 of 800 logs, registered: no") for text in told)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("trouble", ["it stands still", "it takes longer than the policy's limit"])
def test_a_recovery_that_leads_nowhere_ends_the_wait(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = joined(tmp_path)
    world.recovers_s["broker2"] = 1000.0
    most_s = 50.0
    policy = world.inventory.policy.model_copy(update={"roll_recovery_s": most_s})
    world.inventory = world.inventory.model_copy(update={"policy": policy})
    if trouble == "it stands still":
        monkeypatch.setattr(World, "loaded", lambda *_: 17)
    before = world.now
    ended = Operator(world, tmp_path / "run").resume(until="roll")
    assert [f.id for f in ended.findings] == ["engine.wait-over"]
    waited_s = world.now - before
    assert (waited_s < most_s) is (trouble == "it stands still")
    assert world.recovers_s["broker2"] > waited_s


@pytest.mark.usefixtures("short")
def test_a_broker_that_systemd_is_still_stopping_is_not_restarted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit gives it a minute; the answer to the restart was waited for in vain before."""
    world = joined(tmp_path)
    begun: list[float] = []
    answer = WorldLook.zkm

    def fault(change: Change, operation: str) -> None:
        if isinstance(change, SetService) and change.host == "broker2":
            begun.append(world.now)
            raise HostError("broker2: no answer in 180 s")

    def zkm(look: WorldLook, host: str, *args: str) -> Reading[str]:
        stopping = host == "broker2" and begun and world.now < begun[0] + 55.0
        if host == "broker2" and begun and not stopping and world.hosts[host].started < begun[0]:
            world.hosts[host].start(world.now)
        told = answer(look, host, *args)
        if not stopping or args[0] != "status" or not isinstance(told, Seen):
            return told
        return Seen(told.value.replace("unit_state=active", "unit_state=deactivating\nunit_stop=1min"))

    world.faults.append(fault)
    monkeypatch.setattr(WorldLook, "zkm", zkm)
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="roll").code == 0
    assert len(begun) == 1
    told = [e for e in operator.events if isinstance(e, Waits) and e.what == "broker2 has stopped"]
    assert told[0].progress == "systemd is stopping the service; TimeoutStopSec is 1min"


def electing(tmp_path: Path) -> World:
    """A run before its roll that is to elect preferred leaders."""
    world = joined(tmp_path)
    policy = world.inventory.policy.model_copy(update={"roll_leaders": True})
    world.inventory = world.inventory.model_copy(update={"policy": policy})
    return world


def elections(world: World) -> int:
    return sum(isinstance(change, ElectLeaders) for change, _ in world.applied)


def led(world: World) -> tuple[PartitionState, ...]:
    """Partitions that another than their preferred replica leads."""
    view = WorldLook(world).kafka()
    assert isinstance(view, Seen)
    return not_led_by_preferred(view.value)


def test_preferred_leaders_are_elected_behind_the_last_broker_there_and_back(tmp_path: Path) -> None:
    world = electing(tmp_path)
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="roll").code == 0
    assert (elections(world), led(world)) == (1, ())
    brokers = dict.fromkeys(world.inventory.broker_names, 1)
    assert restarts(world) == brokers
    assert isinstance(world.applied[-1][0], ElectLeaders)
    waves = [e for e in operator.events if isinstance(e, WaveBegun) and e.stage == "roll"]
    assert [(e.targets, e.done, e.of) for e in waves[2:]] == [(waves[2].targets, 2, 3), (("leaders",), 0, 0)]
    assert operator.back("roll").code == 0
    assert (elections(world), led(world)) == (2, ())
    assert restarts(world) == dict.fromkeys(brokers, 2)


def test_nobody_asks_for_an_election_where_the_policy_does_not(tmp_path: Path) -> None:
    world = joined(tmp_path)
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="roll").code == 0
    assert elections(world) == 0
    assert led(world)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_the_election_the_roll_is_finished_by_resume(tmp_path: Path, when: str, way: Way) -> None:
    world = electing(tmp_path)
    operator = Operator(world, tmp_path / "run")
    if way is Way.BACK:
        assert operator.resume(until="roll").code == 0
    before = elections(world)

    def kill(change: Change, operation: str) -> None:
        if isinstance(change, ElectLeaders):
            world.faults.clear()
            if when == "after":
                world.apply(change, operation, 0)
            raise Killed

    world.faults.append(kill)
    with pytest.raises(Killed):
        operator.resume(until="roll") if way is Way.FORWARD else operator.back("roll")
    again = Operator(world, operator.run_dir)
    assert again.resume(until="roll").code == 0
    assert (elections(world), led(world)) == (before + 1, ())
    assert set(restarts(world).values()) == ({1} if way is Way.FORWARD else {2})


def test_an_election_that_changes_nothing_is_asked_for_three_times_and_the_roll_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = electing(tmp_path)
    operator = Operator(world, tmp_path / "run")
    monkeypatch.setattr(World, "leaders", property(lambda _: {0: 3}, lambda *_: None), raising=False)
    ended = operator.resume(until="roll")
    assert [(f.id, f.target) for f in ended.findings] == [("engine.no-progress", "leaders")]
    assert elections(world) == 3


@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize("moved", [False, True], ids=["not moved yet", "moved before"])
def test_a_broker_that_somebody_stopped_is_named_and_started_only_after_a_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way, moved: bool
) -> None:
    """Stopped by hand while the roll was held; ``--yes`` is nobody's word about it."""
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    if way is Way.FORWARD:
        assert operator.forward(until="rehearse").code == 0
        operator.kill_after_verb = ("roll", "service", 2 if moved else 1)
        name = "broker1" if moved else "broker3"
    else:
        assert operator.forward(until="roll").code == 0
        operator.kill_after_verb = ("roll", "service", 2)
        name = "broker1" if moved else "broker3"
    with pytest.raises(Killed):
        operator.forward(until="roll") if way is Way.FORWARD else operator.back("roll")
    world.advance(60.0)
    world.hosts[name].stop()
    world.advance(60.0)
    again = Operator(world, operator.run_dir)
    ended = again.resume()
    assert (ended.code, [(f.id, f.target) for f in ended.findings]) == (6, [("roll.stopped", name)]), ended
    assert f"{name} is down, and this run did not stop it" in ended.message
    assert not world.hosts[name].running
    agreeing = Operator(world, operator.run_dir)
    monkeypatch.setattr(agreeing, "decide", lambda *_: Answer("go", by="tester"))
    assert agreeing.resume(until="roll").code == 0
    assert world.hosts[name].running
