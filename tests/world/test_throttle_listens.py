"""Partitions moved under a throttle that follows the load: T1, T2, T7 to T11 of the table of features."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.engine_world import Killed, back, forward, homeward, left_by_kills, on_and_back, resume
from tests.world.reassigning import BROKERS, RATE, ReassignDesk, found, inventory, plan, submitted, world
from zkmigrate.cluster.reassign.throttle import FOLLOWER_RATE, LEADER_RATE
from zkmigrate.kafka.changes import AlterBrokerConfig, ReassignPartition
from zkmigrate.kafka.questions import InFlight, LogDirs
from zkmigrate.kafka.rates import Overrides
from zkmigrate.kafka.rules.throttle_series import KIND, curves
from zkmigrate.runbook.engine import events, journal
from zkmigrate.runbook.engine.throttle_file import ThrottleFile
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held

M = 1_000_000
ADAPT = {"cap_bytes_s": 4 * M, "percent": 50, "floor_bytes_s": 100_000, "tick_s": 12}
STEPS = [100_000]
while (above := int(STEPS[-1] * 1.25)) <= 4 * M:
    STEPS.append(above)


def listening(tmp_path: Path, partitions: int = 8, size: int = 40 * M, **adapt: object) -> ReassignDesk:
    cluster = world(partitions, size)
    return ReassignDesk(tmp_path / "r", cluster, inventory(plan(cluster), {}, adapt={**ADAPT, **adapt}))


def everywhere(made: ReassignDesk, **of: Callable[[float], float]) -> None:
    """Gives every host this load, as a function of the time since the run began."""
    for host in made.cluster.loads.values():
        for name, at in of.items():
            setattr(host, name, lambda now, at=at: at(now - 1000.0))


def rates(made: ReassignDesk, broker: int, role: int = 0) -> list[tuple[float, int]]:
    """What each tick gave a broker, with the seconds since the run began."""
    return [(at - 1000.0, body["rates"][str(broker)][role]) for at, body in made.noted]


def settings_sent(made: ReassignDesk) -> set[str]:
    return {c.value for c in made.cluster.made if isinstance(c, AlterBrokerConfig) and c.value is not None}


def test_rates_fall_at_the_next_tick_when_the_load_doubles_and_rise_by_steps_when_it_halves_T1(
    tmp_path: Path,
) -> None:
    made = listening(tmp_path)
    everywhere(made, clients=lambda t: 3 * M if 100 <= t < 200 else 1.5 * M)
    assert made.process(forward).code == 0
    assert made.there
    told = rates(made, 4, 1)
    free, busy = (4 * M - 1.5 * M) / 2, (4 * M - 3 * M) / 2
    before = [rate for at, rate in told if 60 < at < 100]
    first = next(rate for at, rate in told if at >= 100 + ADAPT["tick_s"])
    assert all(rate <= free for rate in before)
    assert first <= busy * 1.25, "the first tick that saw only the doubled load"
    low = [rate for at, rate in told if 130 < at < 200]
    assert low
    assert set(low) == {max(step for step in STEPS if step <= busy)}
    after = [rate for at, rate in told if at >= 200]
    assert after[-1] == max(step for step in STEPS if step <= free), "back where it was"
    assert all(b <= a * 1.25 for a, b in pairwise(after)), "by steps"
    assert len(set(after)) > 3


def test_without_the_section_no_host_is_asked_and_the_rate_stays(tmp_path: Path) -> None:
    cluster = world(8)
    made = ReassignDesk(tmp_path / "r", cluster, inventory(plan(cluster), {}))
    everywhere(made, clients=lambda _t: 9 * M)
    assert made.process(forward).code == 0
    assert made.there
    assert made.noted == []
    assert all(host.at == 0.0 for host in made.cluster.loads.values())
    assert settings_sent(made) <= {
        str(RATE),
        "77",
        *(v for own in made.first.topics.values() for v in own.values()),
    }


def test_no_move_is_submitted_before_the_load_is_known(tmp_path: Path) -> None:
    made = listening(tmp_path)
    times: list[float] = []
    made.before_change = lambda change: (
        times.append(made.clock.now() - 1000) if isinstance(change, ReassignPartition) else None
    )
    assert made.process(forward).code == 0
    first, _ = made.noted[0]
    assert times[0] >= first - 1000 >= ADAPT["tick_s"]


def test_a_busy_disk_lowers_the_rate_of_its_broker_alone_T7(tmp_path: Path) -> None:
    made = listening(tmp_path)
    made.cluster.loads[4].busy = lambda now: 0.98 if now > 1060 else 0.1
    assert made.process(forward).code == 0
    assert rates(made, 4, 1)[-1][1] == STEPS[0]
    assert rates(made, 2)[-1][1] == max(step for step in STEPS if step <= 2 * M)


def test_without_figures_a_rate_is_kept_for_a_tick_and_then_the_floor_holds_T8(tmp_path: Path) -> None:
    made = listening(tmp_path, size=100 * M)
    made.cluster.loads[2].blind = lambda now: 1060 < now < 1140
    assert made.process(forward).code == 0
    assert made.there
    told = rates(made, 2)
    blind = [rate for at, rate in told if 60 < at < 140]
    seeing = [rate for at, rate in told if at <= 60][-1]
    assert blind[0] == seeing
    assert set(blind[1:]) == {STEPS[0]}
    assert told[-1][1] > STEPS[0], "it rises again"
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert any("no load figures of broker 2: " in told and "does not answer" in told for told in waits)


@pytest.mark.parametrize("busy_limit", [None, 0.9])
def test_log_directories_on_no_disk_matter_only_where_disks_have_a_limit(
    tmp_path: Path, busy_limit: float | None
) -> None:
    """As on NFS, ZFS or an overlay."""
    made = listening(tmp_path, busy_limit=busy_limit)
    everywhere(made, clients=lambda _t: M)
    for host in made.cluster.loads.values():
        host.device = "0:41"
    assert made.process(forward).code == 0
    free = max(step for step in STEPS if step <= (4 * M - M) / 2)
    assert rates(made, 4, 1)[-1][1] == (free if busy_limit is None else STEPS[0])
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert any("set busy_limit to null" in one for one in waits) == (busy_limit is not None)
    told = found(made, "reassign.load")
    assert (told.held is Held.YES) == (busy_limit is None), "told before the first change"
    assert ("broker 2: unknown (failed): the volume of" in told.seen) == (busy_limit is not None)


def test_a_broker_that_does_not_tell_its_directories_has_no_figures(tmp_path: Path) -> None:
    """Its disk would look idle."""
    made = listening(tmp_path)
    told = made.cluster.log_dirs

    def some_dark(
        brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None
    ) -> Reading[Mapping[int, LogDirs]]:
        seen = told(brokers, partitions)
        assert isinstance(seen, Seen)
        return Seen({id: own if id != 2 else Unknown("denied", "no") for id, own in seen.value.items()})

    setattr(made.cluster, "log_dirs", some_dark)  # noqa: B010 (a method)
    assert made.process(forward).code == 0
    assert rates(made, 2)[-1][1] == STEPS[0]
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert any("no load figures of broker 2: " in one and "log directories" in one for one in waits)


def test_every_rate_is_a_step_between_floor_and_ceiling_and_the_record_stays_small_T8(tmp_path: Path) -> None:
    made = listening(tmp_path, size=100 * M)
    everywhere(made, clients=lambda t: (0.5 + (t // 40 * 37) % 31 / 10) * M)
    assert made.process(forward).code == 0
    sent = {int(value) for value in settings_sent(made) if value.isdigit()} - {RATE, 77}
    assert sent <= set(STEPS)
    assert len(sent) > 5
    assert max(sent) <= 2 * M
    records = [
        entry.body["record"]
        for entry in journal.kept_lines(made.run_dir)
        if entry.kind == "record" and entry.body["step"] == "replicas"
    ]
    assert {json.dumps(record) for record in records} == {json.dumps({"rates": {}, "steps": STEPS})}


def test_a_slow_canary_first_lowers_the_rates_and_then_no_move_is_submitted_T10(tmp_path: Path) -> None:
    made = listening(tmp_path, 48, 4 * M)
    made.inventory = inventory(plan(made.cluster), {}, adapt={**ADAPT, "latency_limit_ms": 100}, stalled_s=30)
    everywhere(made, canary_ms=lambda t: 250 if 40 < t < 400 else 20)
    times: list[float] = []
    made.before_change = lambda change: (
        times.append(made.clock.now() - 1000) if isinstance(change, ReassignPartition) else None
    )
    assert made.process(forward).code == 0, "a pause is no standstill"
    assert made.there
    paused = [at - 1000 for at, body in made.noted if body["paused"]]
    lowered = next(at for at, rate in rates(made, 2) if at > 40 and rate < RATE)
    assert lowered < paused[0]
    assert not [at for at in times if paused[0] < at <= paused[-1]]
    assert [at for at in times if at > 400]
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert any(
        "no move is submitted: broker 1: the canary's p99 was above its limit" in told for told in waits
    )
    assert f"no move was submitted after {len(paused)} of them" in found(made, "reassign.listened").seen


def endless(tmp_path: Path, *, raise_to_end: bool = False) -> tuple[ReassignDesk, list[str]]:
    """A run whose partition t0-0 grows faster than the rate. What was told and sent, in order."""
    made = listening(tmp_path, 1, end_within_s=100, raise_to_end=raise_to_end)
    everywhere(made, clients=lambda t: 3.2 * M if t < 150 else 0.0)
    made.cluster.grows["t0", 0] = 1_200_000  # in a look, so every 2 s
    story: list[str] = []

    def heeded(change: Change) -> None:
        if made.clock.now() > 1140:
            made.cluster.grows.clear()
        seen = [e.progress for e in made.seen if isinstance(e, events.Waits)]
        if isinstance(change, AlterBrokerConfig) and str(change.value) in map(str, STEPS):
            story.append(f"{change.broker} {change.key} {change.value} after {seen[-1] if seen else ''}")

    made.before_change = heeded
    assert made.process(forward).code == 0
    assert made.there
    return made, story


def test_a_rate_that_can_never_finish_is_told_before_it_is_set_T9(tmp_path: Path) -> None:
    made, story = endless(tmp_path)
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    twice = "1 as leader: 476.8 kB/s can never finish, because clients produce 1.2 MB/s"
    assert any(twice in told for told in waits), "600 kB/s, to the new replica and to the follower in sync"
    low = next(told for told in story if int(told.split()[2]) < 600_000)
    assert "can never finish" in low
    assert "would finish in" in low
    assert "which the run reported first: broker" in found(made, "reassign.listened").seen


def fixed_and_growing(tmp_path: Path) -> ReassignDesk:
    """A run at a fixed rate of 1 MB/s. Its first partition grows by 1.2 MB in each of the first looks."""
    cluster = world(1, 40 * M)
    made = ReassignDesk(tmp_path / "r", cluster, inventory(plan(cluster), {}))
    made.cluster.grows["t0", 0] = 1_200_000 * 5
    return made


def test_a_fixed_rate_that_can_never_finish_is_told_before_the_run_and_while_it_runs_T9(
    tmp_path: Path,
) -> None:
    made = fixed_and_growing(tmp_path)
    made.before_change = lambda _change: made.cluster.grows.update({("t0", 0): 2_400_000})

    def waits() -> list[str]:
        return [e.progress for e in made.seen if isinstance(e, events.Waits)]

    own_pause = made.clock.pause

    def pause(seconds: float) -> None:
        if made.clock.now() > 1400 or any("can never finish" in told for told in waits()):
            made.cluster.grows.clear()
        own_pause(seconds)

    setattr(made.clock, "pause", pause)  # noqa: B010 (a method)
    assert made.process(forward).code == 0
    assert made.there
    told = found(made, "reassign.endless")
    assert told.held is Held.NO
    assert not told.blocks
    assert "1 as leader: 1 MB/s can never finish, because clients produce" in told.seen
    assert any("1 as leader: 1 MB/s can never finish" in one for one in waits())


def test_a_fixed_rate_above_what_clients_write_is_said_to_be_enough_T9(tmp_path: Path) -> None:
    cluster = world(8)
    made = ReassignDesk(tmp_path / "r", cluster, inventory(plan(cluster), {}))
    made.cluster.grows["t0", 0] = 50_000
    made.before_change = lambda _change: made.cluster.grows.clear()
    assert made.process(forward).code == 0
    told = found(made, "reassign.endless")
    assert told.held is Held.YES
    assert "bytes/s are written" in told.seen
    assert not [e for e in made.seen if isinstance(e, events.Waits) and "never finish" in e.progress]


def test_a_rate_that_can_never_finish_is_raised_where_that_is_wished_T9(tmp_path: Path) -> None:
    made, _ = endless(tmp_path, raise_to_end=True)
    assert max(rate for at, rate in rates(made, 4, 1) if 60 < at < 140) > 600_000


def test_an_operators_rate_wins_at_the_next_look_within_floor_and_ceiling(tmp_path: Path) -> None:
    made = listening(tmp_path)
    everywhere(made, clients=lambda _t: 2 * M)
    file = ThrottleFile(made.run_dir)
    shown: list[tuple[float, str]] = []

    def heeded(change: Change) -> None:
        if isinstance(change, AlterBrokerConfig) and change.broker == 4:
            shown.append((made.clock.now() - 1000, str(change.value)))
        if isinstance(change, ReassignPartition):
            file.change(lambda _: Overrides(every=300_000, each={4: 9 * M}), "op@desk", "", 1.0)

    made.before_change = heeded
    assert made.process(forward).code == 0
    assert made.there
    assert rates(made, 2)[-1][1] == 300_000
    assert rates(made, 4)[-1][1] == 2 * M, "the ceiling"
    assert min(at for at, value in shown if value == "2000000") < 2 * ADAPT["tick_s"], (
        "before the second tick"
    )
    assert str(9 * M) not in [value for _, value in shown]


@pytest.mark.parametrize("follows", [False, True], ids=["fixed", "follows the load"])
def test_a_rate_that_an_operator_sets_before_the_run_is_its_first_one(tmp_path: Path, follows: bool) -> None:
    made = listening(tmp_path)
    if not follows:
        made.inventory = inventory(plan(made.cluster), {})
    made.run_dir.mkdir(mode=0o700)
    file = ThrottleFile(made.run_dir)
    file.change(lambda _: Overrides(every=300_000, each={4: 9 * M}), "op@desk", "", 1.0)
    shown: dict[int, list[str | None]] = {}

    def note(change: Change) -> None:
        if isinstance(change, AlterBrokerConfig) and change.key == FOLLOWER_RATE:
            shown.setdefault(change.broker, []).append(change.value)
        if isinstance(change, ReassignPartition):
            file.change(lambda _: Overrides(), "op@desk", "", 2.0)

    made.before_change = note
    assert made.process(forward).code == 0
    assert made.there, "each setting is as it was found"
    assert shown[2][0] == "300000"
    assert shown[4][0] == (str(2 * M) if follows else str(9 * M)), "the ceiling bounds it"
    if not follows:
        assert shown[2][1] == str(RATE), "cleared: the inventory's rate"


def test_copies_of_our_own_are_no_load_also_those_that_ended_since_the_last_tick(tmp_path: Path) -> None:
    made = listening(tmp_path, 64, 2 * M)
    assert made.process(forward).code == 0
    for broker in (2, 4):
        assert all(b >= a for (_, a), (_, b) in pairwise(rates(made, broker)))
    assert rates(made, 4, 1)[-1][1] == max(step for step in STEPS if step <= 2 * M)


def test_after_a_hold_the_load_is_read_anew_before_a_move_is_submitted(tmp_path: Path) -> None:
    made = listening(tmp_path)
    everywhere(made, clients=lambda t: 3.9 * M if 100 < t < 2000 else 0.5 * M)
    held: list[float] = []

    def hold(change: Change) -> None:
        if isinstance(change, ReassignPartition) and not held and made.clock.now() > 1060:
            held.append(made.clock.now() - 1000)
            made.clock.t += 2000

    made.after_change = hold
    assert made.process(forward).code == 0
    assert held
    high = max(step for step in STEPS if step <= 1.75 * M)
    assert {rate for at, rate in rates(made, 2) if at > 2000} == {high}


@pytest.mark.parametrize("size", [36 * M, 40 * M, 44 * M])
def test_a_broker_that_copies_nothing_keeps_its_rate_and_a_move_there_begins_at_a_lower_one(
    tmp_path: Path, size: int
) -> None:
    """The plan moves to broker 5 first and to broker 4 later: at a tick or between two of them."""
    made = listening(tmp_path, size=size)
    made.inventory = inventory(
        {("t0", 0): (5, 2), ("t0", 1): (4, 3)}, {}, adapt=ADAPT, in_flight=1, throttle_bytes_s=RATE
    )
    made.cluster.loads[4].clients = lambda now: 3.4 * M if now > 1016 else 0.0
    sent: list[tuple[str, str]] = []

    def heeded(change: Change) -> None:
        if isinstance(change, ReassignPartition):
            sent.append(("move", f"{change.topic}-{change.partition}"))
        if isinstance(change, AlterBrokerConfig) and change.broker == 4 and change.key == FOLLOWER_RATE:
            sent.append(("rate", str(change.value)))

    made.before_change = heeded
    assert made.process(forward).code == 0
    at = sent.index(("move", "t0-1"))
    assert sent[:at][-1] == ("rate", str(max(step for step in STEPS if step <= 0.3 * M)))
    assert sent[:at][:2] == [("rate", str(RATE)), ("move", "t0-0")], "not at each tick"
    assert len(sent[:at]) == 3


def test_nothing_is_decided_while_no_broker_tells_what_is_in_flight(tmp_path: Path) -> None:
    made = listening(tmp_path)
    told = made.cluster.reassignments

    def sometimes() -> Reading[Mapping[tuple[str, int], InFlight]]:
        silent = 1060 < made.clock.now() < 1100
        return Unknown("timeout", "no broker answers") if silent else told()

    setattr(made.cluster, "reassignments", sometimes)  # noqa: B010 (a method)
    assert made.process(forward).code == 0
    assert made.there
    assert not [at for at, _ in made.noted if 1060 < at < 1100]
    left = [body["left"] for at, body in made.noted if at < 1130]
    assert left[0] > left[-1] > 0


def test_a_rate_of_another_hand_stays(tmp_path: Path) -> None:
    made = listening(tmp_path)
    everywhere(made, clients=lambda t: 3 * M if t > 60 else M)
    changes: list[Change] = []

    def heeded(change: Change) -> None:
        changes.append(change)
        if sum(isinstance(one, ReassignPartition) for one in changes) == 2:
            made.cluster.rates[4][FOLLOWER_RATE] = "512345"

    made.after_change = heeded
    assert made.process(forward).code == 0
    assert made.cluster.rates[4] == {FOLLOWER_RATE: "512345"}


def test_there_and_back_both_ways_listen(tmp_path: Path) -> None:
    made = listening(tmp_path)
    everywhere(made, clients=lambda t: 3 * M if (t // 60) % 2 else M)
    assert made.process(forward).code == 0
    made.noted.clear()
    assert made.process(back).code == 0
    assert made.home
    assert len({rate for broker in (1, 2, 3) for _, rate in rates(made, broker, 1)}) > 2
    assert made.cluster.unthrottled == 0


def swinging(tmp_path: Path) -> ReassignDesk:
    """A short run whose rates change at nearly every tick."""
    made = listening(tmp_path, 4, 3 * M)
    everywhere(made, clients=lambda t: 3.4 * M if (t // 24) % 2 else 1.0 * M)
    return made


@pytest.mark.parametrize("kinds", [("apply", "applied"), ()], ids=["changes", "lines"])
def test_killed_anywhere_it_goes_on_or_back_and_no_rate_of_ours_stays_T11(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    left = left_by_kills(swinging(tmp_path), forward, kinds, 1 if kinds else 23)
    stepped = 0
    for made, _ in on_and_back(left):
        assert (made.cluster.unthrottled, made.cluster.replaced) == (0, []), made.run_dir
        stepped += bool({str(step) for step in STEPS} & settings_sent(made))
    assert stepped > 5


def test_killed_on_the_way_back_no_rate_of_ours_stays_T11(tmp_path: Path) -> None:
    made = swinging(tmp_path)
    assert made.process(forward).code == 0
    left = left_by_kills(made, back, kinds=(), every=23)
    assert len(list(homeward(left))) > 100 // 23


def test_a_killed_run_goes_on_from_the_rates_that_brokers_show(tmp_path: Path) -> None:
    made = listening(tmp_path)
    everywhere(made, clients=lambda _t: 3.4 * M)

    def dies(change: Change) -> None:
        if isinstance(change, ReassignPartition) and made.clock.now() > 1060:
            raise Killed

    made.before_change = dies
    with pytest.raises(Killed):
        made.process(forward)
    made.before_change = lambda _change: None
    low = {id: dict(own) for id, own in made.cluster.rates.items()}
    assert int(low[2][LEADER_RATE]) < RATE
    made.cluster.made.clear()
    made.noted.clear()
    assert made.process(resume).code == 0
    assert made.there
    assert str(RATE) not in settings_sent(made), "it does not begin anew"


def test_each_tick_is_a_sample_and_they_make_the_curves_of_the_report(tmp_path: Path) -> None:
    made = listening(tmp_path)
    assert made.process(forward).code == 0
    told = curves([(at, {"kind": KIND, **body}) for at, body in made.noted])
    left = next(one for one in told if one.plot == "remaining, GB")
    assert [b <= a for (_, a), (_, b) in pairwise(left.points)]
    assert left.points[0][1] > left.points[-1][1]
    assert {one.name for one in told if one.plot == "send rate, MB/s"} == {f"broker {id}" for id in BROKERS}
    assert len(submitted(made)) == 7
