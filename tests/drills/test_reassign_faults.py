"""Disturb moves of partitions under load: each must end, or be taken back, with every set as planned.

It builds one lab for each Kafka version. Each case moves four partitions to or from broker 6 and has one
fault:

- the operator is killed, at five points forward and one back;
- the controller or the target is killed;
- the target's disk is full;
- half of the moves are taken back.

In one more case the clients' load doubles and halves, and the throttle has to follow.
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeAlias, cast

import pytest
from _pytest.mark.structures import ParameterSet

from tests.drills.labs import OneLab, Play, judge_last
from tests.drills.roll_site import require
from zkmigrate.lab import fault
from zkmigrate.lab.cluster_site import (
    FOREIGN,
    SETS,
    ClusterSite,
    host_of,
    not_as,
    six_brokers,
    wait_for_step,
    when_answered,
)
from zkmigrate.lab.judge import load_history
from zkmigrate.lab.judge.kafka import kafka_claims
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import Event, load_recording
from zkmigrate.lab.operator import Operator, ToolProcess
from zkmigrate.lab.wait import TimedProgress, wait_until

pytestmark = pytest.mark.drill

MINUTES = 60
VERSIONS = ("2.8.2", "3.9.1", "4.3.1")
TARGET = 6
KILLED = -signal.SIGKILL
BLOCKED = 6
"""The exit code of a run that stopped because a wait never ended."""
UNFINISHED = 8
"""The exit code of a way back that stopped."""
VERB_S, SEEN_S = 600.0, 120.0
SETTLED_S = 30.0
"""Brokers learn of sets and settings one by one, later than the broker that the run used."""
KINDS = ("producer", "consumer", "samples")
LOAD = {"record_bytes": 10_000, "produce_plan": ((25.0, 200.0), (7200.0, 10.0))}
"""50 MB first, then so little that a case half an hour later copies at most four times as much."""
THROTTLE = 1_000_000
"""Four partitions of 4 MB each take 16 s."""
PACE = {"throttle_bytes_s": THROTTLE, "in_flight": 2, "per_broker": 2}
STALLED_S = 30
"""Seconds without a copied byte after which a run stops if its target stays dead."""
RAMP: Mapping[str, object] = {
    "topics": ("ramp",), "partitions": 1, "record_bytes": 10_000, "group": "ramp",
    "produce_plan": ((13.0, 1000.0), (60.0, 100.0), (60.0, 200.0), (60.0, 100.0), (7200.0, 10.0)),
}  # fmt: skip
"""130 MB to copy; then 1, 2 and 1 MB/s.

At the end the load is so small that the move can finish too.
"""
RAMP_SET, RAMP_GOAL = (1, 2), (1, 5)
"""Sets without a small disk, because the partition grows to about 400 MB."""
RAMP_THROTTLE = 2_000_000
ADAPT = {"cap_bytes_s": 4_000_000, "floor_bytes_s": 250_000, "tick_s": 12, "busy_limit": None}
"""Settings for an adaptive throttle on a broker that can send 4 MB/s, of which the load is a large part."""
LEADER_RATE = "leader.replication.throttled.rate"
EXPECTED: Mapping[str, int] = {"lost": 0, "duplicated": 0, "cut_back": 0, "produce_failed": 0}
Sets: TypeAlias = Mapping[str, tuple[int, ...]]
Played: TypeAlias = tuple[str, str, str, Callable[[], str], bool]
"""A case: its name, what is done, what is expected, the act, and whether it needs ``Faults.ready``."""
HOME: Sets = {f"load-a-{n}": tuple(SETS["load-a"][n]) for n in range(4)}
AWAY: Sets = {name: (ids[1], ids[0], TARGET) for name, ids in HOME.items()}
"""Another order, another preferred leader, and broker 6 in place of the last one."""


@dataclass(frozen=True)
class Point:
    """A point at which the operator is killed: before this change.

    kill: class and part of the change, and the number of others that are confirmed first.
    """

    name: str
    kill: tuple[str, str, int]


POINTS = (
    Point("first-rate", ("AlterBrokerConfig", "any", 0)),
    Point("first-list", ("AlterTopicConfig", "any", 0)),
    Point("second-move", ("ReassignPartition", "load-a-1", 1)),
    Point("election", ("ElectLeaders", "any", 0)),
)
"""The changes before which the operator is killed.

A fifth point is a move in flight (``Faults.killed_in_flight``).
"""


@dataclass(frozen=True)
class Aim:
    """A run that will be disturbed.

    before: the sets when it began. wrong: returns what differs from the run's aim, in words.
    """

    operator: Operator
    before: Sets
    wrong: Callable[[], list[str]]


@dataclass
class Faults:
    """The cases in one lab, one after the other."""

    site: ClusterSite
    found: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    times_brought: int = 0
    book: tuple[str, str] = ("--playbook", "kafka_reassign")
    points: tuple[Point, ...] = POINTS
    back_point: Point = Point("back", ("ReassignPartition", "any", 0))
    small: ClassVar[Mapping[int, int]] = {TARGET: 512}
    """Sizes of disks that differ from the others, in MB by broker."""

    def begin(self) -> None:
        """Start the load and wait until there is something to move."""
        self.site.create_topics()
        self.site.set_topic(*FOREIGN)
        self.site.load.start(KINDS)
        self.site.load.wait_flowing(KINDS, SEEN_S)
        self.site.wait_for_step(1, SEEN_S)
        self.found = self.site.settings()

    # --- what each case uses --------------------------------------------------------------------------------

    def aim(self, case: str, **pace: int) -> Aim:
        """Return a run with a plan to the other one of the two placements.

        pace: further keys of its section.
        """
        at_home = not not_as(self.site.partitions(), HOME)
        before, goal = (HOME, AWAY) if at_home else (AWAY, HOME)
        operator = self.by_plan(case, goal, **pace)
        return Aim(operator, before, lambda: not_as(self.site.partitions(), goal))

    def by_plan(self, run: str, goal: Sets, **pace: int) -> Operator:
        """Return the operator for a run of kafka_reassign to these sets."""
        self.site.write_plan(run, goal)
        return self.site.moves(run, **{**PACE, **pace})

    def bring(self, goal: Sets) -> None:
        """Move the partitions to these sets if they are not there.

        The next run then copies to or from broker 6.
        """
        if not_as(self.site.partitions(), goal):
            self.times_brought += 1
            operator = self.by_plan(f"bring-{self.times_brought}", goal)
            operator.through("run", "run", "--playbook", "kafka_reassign", limit_s=VERB_S)

    def ready(self) -> None:
        """Prepare a case that has to copy."""
        self.bring(HOME)

    @contextlib.contextmanager
    def flying(self, operator: Operator) -> Iterator[ToolProcess]:
        """Start a run and yield it once a move of the load is in flight."""
        with operator.tool("run", "run", *self.book) as tool:
            self.meanwhile(tool, "a move in flight", lambda: bool(HOME.keys() & self.site.in_flight()))
            yield tool

    def meanwhile(self, tool: ToolProcess, what: str, come: Callable[[], bool]) -> None:
        """Wait until a condition holds. The tool must not end before that."""

        def missing() -> str | None:
            require(not tool.has_ended, f"the run ended before {what}: {tool.troubles()}")
            return when_answered(lambda: None if come() else what)()

        wait_until(what, missing, SEEN_S, poll_s=0.2)

    def ended(self, tool: ToolProcess, code: int) -> None:
        """Require that the tool ends with this exit code."""
        seen = tool.wait_for_end(VERB_S)
        require(seen == code, f"ended with {seen}, not {code}: {tool.troubles()}")

    def verb(self, operator: Operator, verb: str) -> None:
        """Run a verb to its end, which must be exit code 0."""
        with operator.tool(verb, verb, *self.book) as tool:
            self.ended(tool, 0)

    def reached(self, aim: Aim) -> str:
        """Wait until everything is as the run aims."""
        return self._settled(aim.wrong, "as planned")

    def restored(self, aim: Aim) -> str:
        """Wait until everything is as it was before the run."""
        return self._settled(lambda: not_as(self.site.partitions(), aim.before), "as before")

    def _settled(self, wrong: Callable[[], Sequence[str]], where: str) -> str:
        """Wait until sets and throttles are right, nothing is in flight, and clients are at work."""

        def missing() -> str | None:
            if odd := wrong():
                return f"not {where}: {'; '.join(odd[:5])}"
            if flights := self.site.in_flight():
                return f"still in flight: {flights}"
            now = self.site.settings()
            return None if now == self.found else f"throttles: {now}, found: {self.found}"

        wait_until(where, when_answered(missing), SETTLED_S)
        self.site.load.wait_flowing(("producer", "consumer"), SEEN_S, since_ns=time.monotonic_ns())
        return f"{where}, in order and in sync; throttles as found"

    # --- the cases ------------------------------------------------------------------------------------------

    def killed_before(self, point: Point) -> str:
        """Kill the operator before a change, then ``resume``."""
        aim = self.aim(f"kill-{point.name}")
        program = ("zkmigrate.lab.killing", *map(str, point.kill))
        with aim.operator.tool("run", "run", *self.book, program=program) as tool:
            self.ended(tool, KILLED)
        self.verb(aim.operator, "resume")
        return self.reached(aim)

    def killed_in_flight(self) -> str:
        """Kill the operator while Kafka copies, then ``resume``."""
        aim = self.aim("kill-in-flight")
        with self.flying(aim.operator) as tool:
            tool.kill()
            self.ended(tool, KILLED)
        self.verb(aim.operator, "resume")
        return self.reached(aim)

    def half_way_back(self) -> str:
        """Stop the run cleanly when some moves are done, and roll it back."""
        aim = self.aim("half-way")
        with self.flying(aim.operator) as tool:
            whole = len(aim.wrong())
            self.meanwhile(tool, "half of the moves", lambda: len(aim.wrong()) <= whole / 2)
            tool.process.send_signal(signal.SIGINT)
            self.ended(tool, 130)
        self.verb(aim.operator, "rollback")
        return self.restored(aim)

    def killed_going_back(self) -> str:
        """Kill the operator on the way back, before it changes the first set; then ``resume``."""
        aim = self.aim("kill-back")
        with self.flying(aim.operator) as tool:
            tool.process.send_signal(signal.SIGINT)
            self.ended(tool, 130)
        program = ("zkmigrate.lab.killing", *map(str, self.back_point.kill))
        with aim.operator.tool("rollback", "rollback", *self.book, program=program) as tool:
            self.ended(tool, KILLED)
        self.verb(aim.operator, "resume")
        return self.restored(aim)

    def controller_killed(self) -> str:
        """Kill the active controller while Kafka copies; restart it once another one is active."""
        aim = self.aim("controller")
        with self.flying(aim.operator) as tool:
            old = self.site.controller()
            fault.kill(self.site.lab, host_of(old))
            new = self.site.wait_for_controller(but=old, limit_s=SEEN_S)
            self.site.start_broker_alone(old)
            self.ended(tool, 0)
        self.site.lab.wait_for_brokers()
        return f"controller {old}, then {new}; {self.reached(aim)}"

    def target_returns(self) -> str:
        """Kill the target while it copies; restart it once the run has reported it as down."""
        aim = self.aim("target-returns")
        with self.flying(aim.operator) as tool:
            fault.kill(self.site.lab, host_of(TARGET))
            down = f"broker {TARGET} is down"
            self.meanwhile(tool, f"its words: {down}", lambda: down in tool.path.read_text())
            self.site.start_broker_alone(TARGET)
            self.ended(tool, 0)
        self.site.lab.wait_for_brokers()
        return self.reached(aim)

    def target_stays_dead(self, *, full: bool) -> str:
        """Stop the target while it copies, by a kill or by a full disk, and leave it dead.

        The run must stop and name it. Then it is rolled back as far as possible without the target, which
        keeps the throttle until it starts again.
        """
        aim = self.aim("disk-full" if full else "target-dead", stalled_s=STALLED_S)
        with self.flying(aim.operator) as tool:
            if full:
                fault.disk_full(self.site.lab, host_of(TARGET))
            else:
                fault.kill(self.site.lab, host_of(TARGET))
            self.ended(tool, BLOCKED)
            said = tool.troubles()
        named = re.search(rf"\b(on|broker) {TARGET}\b", said)
        require(named is not None, f"the run did not name broker {TARGET}: {said}")
        with aim.operator.tool("rollback", "rollback", *self.book) as tool:
            self.ended(tool, UNFINISHED)
            told = tool.path.read_text()
        kept = f"--entity-name {TARGET} --delete-config {LEADER_RATE}"
        require(kept in told, f"nobody told how the throttle of broker {TARGET} goes: {told}")
        wait_until("the sets of before", when_answered(lambda: self._not_back(aim)), SETTLED_S)
        if full:
            fault.disk_free(self.site.lab, host_of(TARGET))
        self.site.start_broker_alone(TARGET)
        self.site.lab.wait_for_brokers()
        self.verb(aim.operator, "resume")
        return self.restored(aim)

    def _not_back(self, aim: Aim) -> str | None:
        return "; ".join(not_as(self.site.partitions(), aim.before)) or None

    def follows(self) -> str:
        """Move one partition while its own load doubles, then halves; the throttle must follow."""
        self.site.create_topics({"ramp": (RAMP_SET,)})
        ramp = self.site.other_load("ramp", **RAMP)
        try:
            ramp.start(("producer",))
            wait_for_step(ramp.directory, 1, SEEN_S)
            self.site.write_plan("follow", {"ramp-0": RAMP_GOAL})
            operator = self.site.moves("follow", throttle_bytes_s=RAMP_THROTTLE, stalled_s=60, adapt=ADAPT)
            self.verb(operator, "run")
            wrong = ramp.stop(("producer",))
        finally:
            ramp.kill()
        require(not wrong, "; ".join(wrong))
        steps = [event["mono_ns"] for event in load_recording(ramp.directory, "producer").of("rate")]
        rates = followed(load_recording(self.site.history, "samples").of("sample"), 1, steps[1:])[:3]
        require(len(rates) == 3, f"the move ended before the load had doubled and halved: rates {rates}")
        once, doubled, halved = rates
        require(doubled < once and doubled < halved, f"rates at the end of each step: {rates}")
        settled = self._settled(lambda: not_as(self.site.partitions(), {"ramp-0": RAMP_GOAL}), "as planned")
        return (
            f"leader's rate of broker 1: {once:,}, at the doubled load {doubled:,}, then {halved:,} bytes/s; "
            f"{settled}"
        )

    def cases(self) -> Iterable[Played]:
        """Yield all cases."""
        done = "resume ends with 0, all as planned"
        for point in self.points:
            kind, part, others = point.kill
            what = f"kill -9 before {kind} of {part}, {others} others confirmed"
            yield f"kill-{point.name}", what, done, partial(self.killed_before, point), False
        yield "kill-in-flight", "kill -9 with a move in flight", done, self.killed_in_flight, True
        back = "all as before"
        yield "half-way-back", "stopped at half, then rollback", back, self.half_way_back, True
        yield "kill-back", "kill -9 on the way back, then resume", back, self.killed_going_back, True
        goes_on = "the run goes on by itself, all as planned"
        yield "controller", "kill -9 of the active controller", goes_on, self.controller_killed, True
        yield (
            "target-returns",
            f"kill -9 of broker {TARGET}, which returns",
            goes_on,
            self.target_returns,
            True,
        )
        stops = f"the run stops and names broker {TARGET}; rollback 8, and 0 once it is back: all as before"
        dead, full = (partial(self.target_stays_dead, full=full) for full in (False, True))
        yield "target-dead", f"kill -9 of broker {TARGET}, which stays dead", stops, dead, True
        yield "disk-full", f"the disk of broker {TARGET} fills", stops, full, True
        lower = "a lower rate while the load is doubled, a higher one after; all as planned"
        yield (
            "follow",
            "the load doubles and halves under a throttle that follows",
            lower,
            self.follows,
            False,
        )


def followed(samples: Iterable[Event], broker: int, began_ns: Sequence[int]) -> list[int]:
    """Return a leader's last seen rate in each step of the load, in bytes per second.

    Steps in which no rate was seen are left out. began_ns: when the steps began.
    """
    ends = [*began_ns[1:], math.inf]
    last: dict[int, int] = {}
    for event in samples:
        own = (event["rates"] or {}).get(f"broker-{broker}", {}).get(LEADER_RATE)
        for number, (begin, end) in enumerate(zip(began_ns, ends, strict=True)):
            if own is not None and begin <= event["mono_ns"] < end:
                last[number] = int(own)
    return [rate for _, rate in sorted(last.items())]


def judged(site: ClusterSite) -> str:
    """End the load and judge its records; return the figures in words. Raises Unexpected if one is wrong.

    The longest pause is only a figure, because a dead broker causes one. One fault at a time costs each set
    at most one replica, and no set of the lab has a min ISR of all its replicas.
    """
    wrong = site.load.finish()
    seen = load_recording(site.history, "samples").of("sample")
    most = max(len(event["in_flight"]) for event in seen)
    ill = {what: {name for event in seen for name in event[what]} for what in ("offline", "lack_two")}
    wrong += [f"{what}: {', '.join(sorted(names))}"[:1000] for what, names in ill.items() if names]
    wrong += [f"{most} moves in flight"] if most > PACE["in_flight"] else []
    claims = {claim.id: claim for claim in kafka_claims(load_history(site.history), math.inf)}
    wrong += [
        f"{name} {claims[name].value}: {claims[name].detail}"[:1000]
        for name, value in EXPECTED.items()
        if claims[name].value != value
    ]
    require(not wrong, "; ".join(wrong))
    gap = claims["longest_ack_gap_s"].value
    acked = claims["acked"].value
    words = [*(f"{name} {claims[name].value}" for name in EXPECTED), f"acked {acked}", f"gap {gap} s"]
    words += [f"{what} {len(names)}" for what, names in ill.items()]
    return ", ".join([*words, f"at most {most} in flight in {len(seen):,} samples"])


def rows(kind: type[Faults]) -> list[ParameterSet]:
    """Return the cases of each version of Kafka as parameters of a test: the version, and the case's name."""
    names = [name for name, *_ in kind(cast(ClusterSite, None)).cases()]
    return [pytest.param(version, name, id=f"{version}-{name}") for version in VERSIONS for name in names]


@contextlib.contextmanager
def in_lab(kind: type[Faults], version: str, directory: Path, wrong_loads: list[str]) -> Iterator[Faults]:
    """Build a lab for the cases under load, and judge the load at the end."""
    progress = TimedProgress()
    with Lab.up(six_brokers(version, small=kind.small), progress) as lab:
        site = ClusterSite(lab, directory / version, progress, LOAD)
        try:
            faults = kind(site)
            faults.begin()
            yield faults
            judge_last(wrong_loads, f"Kafka {version}", partial(judged, site))
        finally:
            site.load.kill()
        progress("lab: taking everything down")


Labs: TypeAlias = OneLab[str, Faults]


def play_one(faults: Faults, name: str, play: Play) -> None:
    """Play a case by its name."""
    [(what, expected, act, ready)] = [case[1:] for case in faults.cases() if case[0] == name]
    if ready:
        faults.ready()
    play(what, expected, act)


@pytest.fixture(scope="module")
def labs(directory: Path, wrong_loads: list[str]) -> Iterator[Labs]:
    up = partial(in_lab, Faults, directory=directory, wrong_loads=wrong_loads)
    with contextlib.closing(Labs(up)) as made:
        yield made


@pytest.mark.parametrize(("version", "name"), rows(Faults))
def test_a_disturbed_move_ends_or_is_taken_back(labs: Labs, version: str, name: str, play: Play) -> None:
    play_one(labs.of(version), name, play)
