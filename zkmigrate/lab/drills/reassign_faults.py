"""Moves of partitions under load that are disturbed: each must end, or be taken back, with all as claimed.

``python -m zkmigrate.lab.drills.reassign_faults`` builds one lab for each Kafka version. Each case moves four
partitions to or from broker 6 and has one fault: the operator killed at five points forward and one back, the
controller or the target killed, the target's disk full, and half of the moves taken back.
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from zkmigrate.lab import fault
from zkmigrate.lab.cluster_site import SETS, ClusterSite, host_of, not_as, six_brokers
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.drills.roll_site import require
from zkmigrate.lab.drills.runner import directory_option, play_case, run_drill
from zkmigrate.lab.judge import load_history
from zkmigrate.lab.judge.kafka import kafka_claims
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.operator import Operator, ToolProcess
from zkmigrate.lab.wait import Progress, wait_until

NAME = "reassign_faults"
VERSIONS = ("2.8.2", "3.9.1", "4.3.1")
BOOK = ("--playbook", "kafka_reassign")
TARGET = 6
KILLED = -signal.SIGKILL
OPERATOR_NEEDED = 8
VERB_S, SEEN_S = 600.0, 120.0
KINDS = ("producer", "consumer", "samples")
LOAD = {"record_bytes": 10_000, "produce_plan": ((10.0, 500.0), (7200.0, 10.0))}
"""50 MB first, then so little that the last case has no more to copy than the first one."""
THROTTLE = 1_000_000
"""Four partitions of 4 MB each take 16 s."""
STALLED_S = 20
EXPECTED: Mapping[str, int] = {"lost": 0, "duplicated": 0, "cut_back": 0, "produce_failed": 0}
HOME: Mapping[str, tuple[int, ...]] = {f"load-a-{n}": tuple(SETS["load-a"][n]) for n in range(4)}
AWAY: Mapping[str, tuple[int, ...]] = {name: (ids[1], ids[0], TARGET) for name, ids in HOME.items()}
"""Another order, another preferred leader, and broker 6 in place of the last one."""


@dataclass(frozen=True)
class Point:
    """Where the operator is killed: before this change (class, part, others that are confirmed first)."""

    name: str
    kill: tuple[str, str, int]


POINTS = (
    Point("first-rate", ("AlterBrokerConfig", "any", 0)),
    Point("first-list", ("AlterTopicConfig", "any", 0)),
    Point("second-move", ("ReassignPartition", "load-a-1", 1)),
    Point("election", ("ElectPreferred", "any", 0)),
)
"""The fifth point is a move in flight."""


@dataclass
class Faults:
    """The cases in one lab, one after the other."""

    site: ClusterSite
    found: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    times_home: int = 0

    def begin(self) -> None:
        """Start the load and wait until there is something to move."""
        self.site.create_topics()
        self.site.load.start(KINDS)
        self.site.load.wait_flowing(KINDS, SEEN_S)
        self.site.wait_for_step(1, SEEN_S)
        self.found = self.site.settings()

    # --- what each case uses --------------------------------------------------------------------------------

    def moves(
        self, case: str
    ) -> tuple[Operator, Mapping[str, tuple[int, ...]], Mapping[str, tuple[int, ...]]]:
        """A run with a plan to the sets that are not there now: the operator, the sets now, the planned
        ones."""
        at_home = not not_as(self.site.partitions(), HOME)
        now, goal = (HOME, AWAY) if at_home else (AWAY, HOME)
        self.site.write_plan(case, goal)
        section = {"throttle_bytes_s": THROTTLE, "in_flight": 2, "per_broker": 2, "stalled_s": STALLED_S}
        return self.site.moves(case, **section), now, goal

    def towards_target(self) -> None:
        """Bring the sets home where they are away: the next run then copies to the target."""
        if not_as(self.site.partitions(), HOME):
            self.times_home += 1
            operator, _, _ = self.moves(f"home-{self.times_home}")
            operator.through("run", "run", *BOOK, limit_s=VERB_S)

    @contextlib.contextmanager
    def flying(self, operator: Operator) -> Iterator[ToolProcess]:
        """A run under way that has a move in flight."""
        with operator.tool("run", "run", *BOOK) as tool:

            def missing() -> str | None:
                require(not tool.has_ended, f"the run ended before a move was in flight: {tool.troubles()}")
                return None if self.site.in_flight() else "a move in flight"

            wait_until("a move in flight", missing, SEEN_S, poll_s=0.2)
            yield tool

    def ended(self, tool: ToolProcess, code: int) -> None:
        """The tool must end so."""
        seen = tool.wait_for_end(VERB_S)
        require(seen == code, f"ended with {seen}, not {code}: {tool.troubles()}")

    def verb(self, operator: Operator, verb: str) -> None:
        """Run a verb to its end, which must be good."""
        with operator.tool(verb, verb, *BOOK) as tool:
            self.ended(tool, 0)

    def settled(self, goal: Mapping[str, tuple[int, ...]]) -> str:
        """All is as claimed: sets and order, nothing in flight, throttles as found, clients at work."""
        odd = not_as(self.site.partitions(), goal)
        require(not odd, f"not as claimed: {'; '.join(odd)}")
        flights = self.site.in_flight()
        require(not flights, f"still in flight: {flights}")
        now = self.site.settings()
        require(now == self.found, f"throttles: {now}, found: {self.found}")
        self.site.load.wait_flowing(("producer", "consumer"), SEEN_S, since_ns=time.monotonic_ns())
        where = "at the new sets" if goal is AWAY else "at the old sets"
        return f"{len(goal)} partitions {where}, in order and in sync; throttles as found"

    # --- the cases ------------------------------------------------------------------------------------------

    def killed_before(self, point: Point) -> str:
        """``kill -9`` of the operator before a change, then ``resume``."""
        operator, _, goal = self.moves(f"kill-{point.name}")
        program = ("zkmigrate.lab.killing", *map(str, point.kill))
        with operator.tool("run", "run", *BOOK, program=program) as tool:
            self.ended(tool, KILLED)
        self.verb(operator, "resume")
        return self.settled(goal)

    def killed_in_flight(self) -> str:
        """``kill -9`` of the operator while Kafka copies, then ``resume``."""
        operator, _, goal = self.moves("kill-in-flight")
        with self.flying(operator) as tool:
            tool.kill()
            self.ended(tool, KILLED)
        self.verb(operator, "resume")
        return self.settled(goal)

    def half_way_back(self) -> str:
        """Stopped in order when some moves are done, and rolled back."""
        operator, before, goal = self.moves("half-way")
        with self.flying(operator) as tool:

            def missing() -> str | None:
                require(not tool.has_ended, f"the run ended before half of it: {tool.troubles()}")
                return f"{len(goal) - 2} moves" if len(not_as(self.site.partitions(), goal)) > 2 else None

            wait_until("half of the moves", missing, SEEN_S, poll_s=0.2)
            tool.process.send_signal(signal.SIGINT)
            self.ended(tool, 130)
        self.verb(operator, "rollback")
        return self.settled(before)

    def killed_going_back(self) -> str:
        """``kill -9`` on the way back, before the first set is restored, then ``resume``."""
        operator, before, _ = self.moves("kill-back")
        with self.flying(operator) as tool:
            tool.process.send_signal(signal.SIGINT)
            self.ended(tool, 130)
        program = ("zkmigrate.lab.killing", "ReassignPartition", "any", "0")
        with operator.tool("rollback", "rollback", *BOOK, program=program) as tool:
            self.ended(tool, KILLED)
        self.verb(operator, "resume")
        return self.settled(before)

    def controller_killed(self) -> str:
        """``kill -9`` of the active controller while Kafka copies; it starts again once another one is
        active."""
        operator, _, goal = self.moves("controller")
        with self.flying(operator) as tool:
            old = self.site.controller()
            fault.kill(self.site.lab, host_of(old))
            new = self.site.wait_for_controller(but=old, limit_s=SEEN_S)
            self.site.start_broker_alone(old)
            self.ended(tool, 0)
        self.site.lab.wait_for_brokers()
        return f"controller {old}, then {new}; {self.settled(goal)}"

    def target_returns(self) -> str:
        """``kill -9`` of the target while it copies; it starts again once the run has said that it is
        down."""
        operator, _, goal = self.moves("target-returns")
        with self.flying(operator) as tool:
            fault.kill(self.site.lab, host_of(TARGET))
            wait_until("the run names the target", self._named(tool), SEEN_S, poll_s=0.2)
            self.site.start_broker_alone(TARGET)
            self.ended(tool, 0)
        self.site.lab.wait_for_brokers()
        return self.settled(goal)

    def _named(self, tool: ToolProcess) -> Callable[[], str | None]:
        def missing() -> str | None:
            require(not tool.has_ended, f"the run ended: {tool.troubles()}")
            said = tool.path.read_text()
            return None if f"broker {TARGET} is down" in said else f"broker {TARGET} is down"

        return missing

    def target_stays_dead(self, *, full: bool) -> str:
        """The target dies while it copies, killed or by a full disk, and stays dead. The run must stop and
        name it. Then it is rolled back, and the target starts again."""
        operator, before, _ = self.moves("disk-full" if full else "target-dead")
        with self.flying(operator) as tool:
            if full:
                fault.disk_full(self.site.lab, host_of(TARGET))
            else:
                fault.kill(self.site.lab, host_of(TARGET))
            self.ended(tool, OPERATOR_NEEDED)
            said = tool.troubles()
        named = re.search(rf"\b(on|broker) {TARGET}\b", said)
        require(named is not None, f"the run did not name broker {TARGET}: {said}")
        with operator.tool("rollback", "rollback", *BOOK) as tool:
            self.ended(tool, 0)
            told = tool.path.read_text()
        odd = not_as(self.site.partitions(), before)
        require(not odd, f"not back: {'; '.join(odd)}")
        if full:
            fault.disk_free(self.site.lab, host_of(TARGET))
        self.site.start_broker_alone(TARGET)
        self.site.lab.wait_for_brokers()
        left = {key: own for key, own in self.site.settings().items() if own != self.found.get(key)}
        claimed = all(key in told for key in left)
        require(claimed, f"throttles that nobody named: {left}; told: {told}")
        self.site.clear_rates(TARGET)
        stays = f"; rates of broker {TARGET} stayed, as told" if left else ""
        return self.settled(before) + stays


def cases(faults: Faults) -> Iterator[tuple[str, str, str, Callable[[], str], bool]]:
    """Name, what, expected outcome, how; and whether it has to copy to the target."""
    done = "resume ends with 0, all as planned"
    for point in POINTS:
        kind, part, others = point.kill
        what = f"kill -9 before {kind} of {part}, {others} others confirmed"
        yield f"kill-{point.name}", what, done, partial(faults.killed_before, point), False
    yield "kill-in-flight", "kill -9 with a move in flight", done, faults.killed_in_flight, True
    back = "all as before"
    yield "half-way-back", "stopped at half, then rollback", back, faults.half_way_back, True
    yield "kill-back", "kill -9 on the way back, then resume", back, faults.killed_going_back, True
    goes_on = "the run goes on by itself, all as planned"
    yield "controller", "kill -9 of the active controller", goes_on, faults.controller_killed, True
    yield "target-returns", f"kill -9 of broker {TARGET}, which returns", goes_on, faults.target_returns, True
    stops = f"the run stops and names broker {TARGET}; rollback: all as before"
    dead, full = (partial(faults.target_stays_dead, full=full) for full in (False, True))
    yield "target-dead", f"kill -9 of broker {TARGET}, which stays dead", stops, dead, True
    yield "disk-full", f"the disk of broker {TARGET} fills", stops, full, True


def judged(site: ClusterSite) -> str:
    """End the load and judge its records: the figures in words. Unexpected when one is wrong. The longest
    pause is only a figure: a dead broker makes one."""
    wrong = site.load.finish()
    claims = {claim.id: claim for claim in kafka_claims(load_history(site.history), math.inf)}
    wrong += [
        f"{name} {claims[name].value}: {claims[name].detail}"[:1000]
        for name, value in EXPECTED.items()
        if claims[name].value != value
    ]
    require(not wrong, "; ".join(wrong))
    gap = claims["longest_ack_gap_s"].value
    acked = claims["acked"].value
    return ", ".join(f"{name} {claims[name].value}" for name in EXPECTED) + f", acked {acked}, gap {gap} s"


def play(
    directory: Path, progress: Progress, found: list[Case], versions: tuple[str, ...], only: str
) -> None:
    """All cases of these versions, one lab each."""
    for version in versions:
        with Lab.up(six_brokers(version, small={TARGET: 512}), progress) as lab:
            site = ClusterSite(lab, directory / version, progress, LOAD)
            try:
                faults = Faults(site)
                faults.begin()
                for name, what, expected, act, to_target in cases(faults):
                    if not re.search(only, name):
                        continue
                    first = faults.towards_target if to_target else lambda: None
                    case = play_case(progress, f"{version} {name}", what, expected, act, first)
                    found.append(case)
                    if not case.held:
                        progress(f"{version}: the cluster may not be as the next case needs it")
                words = "no acknowledged record lost or read twice, none cut back"
                found.append(
                    play_case(progress, f"{version} load", "the load's records", words, partial(judged, site))
                )
            finally:
                site.load.kill()
            progress("lab: taking everything down")


@click.command()
@click.option(
    "--kafka-version", "versions", multiple=True, default=VERSIONS, show_default=True, help="Repeatable."
)
@click.option("--only", default="", help="Only cases whose name matches this regular expression.")
@directory_option(NAME)
def main(versions: tuple[str, ...], only: str, directory: Path) -> None:
    """Move partitions under load, with one fault each time."""
    run_drill(NAME, directory, lambda at, progress, found: play(at, progress, found, versions, only))


if __name__ == "__main__":
    main()
