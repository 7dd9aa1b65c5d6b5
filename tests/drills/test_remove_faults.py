"""Disturb the removal of a broker under load, as ``test_reassign_faults`` disturbs moves.

Each case empties broker 6, which holds four partitions of the load, and is rolled back. In two cases a broker
dies half way and stays dead: the one that is emptied, and one that receives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from tests.drills.labs import Play
from tests.drills.roll_site import require
from tests.drills.test_reassign_faults import (
    AWAY,
    BLOCKED,
    HOME,
    KILLED,
    LEADER_RATE,
    PACE,
    POINTS,
    SEEN_S,
    STALLED_S,
    TARGET,
    Aim,
    Faults,
    Labs,
    Played,
    Point,
    Sets,
    in_lab,
    play_one,
    rows,
)
from zkmigrate.lab import fault
from zkmigrate.lab.cluster_site import host_of
from zkmigrate.lab.load.samples import Partition
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.accepted import TARGET_DOWN

pytestmark = pytest.mark.drill

MINUTES = 60
OF_MOVES = ("target-returns", "target-dead", "disk-full", "follow")
"""Cases about the broker that is emptied here, or about the throttle alone."""
FIRST_MOVE = Point("first-move", ("ReassignPartition", "any", 0))
CANCEL = Point("back", ("CancelReassignment", "any", 0))
STOP = Point("stop", ("SetService", "any", 0))
SLOW = 250_000
"""Bytes per second, so low that moves are in flight for half a minute."""
NEIGHBOUR = 5
"""The broker that is emptied in the case in which broker 6 receives."""
ON_NEIGHBOUR: Sets = dict.fromkeys(HOME, (1, 4, NEIGHBOUR))
"""Two racks: brokers 2, 3 and 6 may replace broker 5, and broker 6 has most room."""


def without(broker: int) -> dict[str, str]:
    """Return the exception that lets a run continue without a broker."""
    answers = {"who": "the drill", "why": "it is dead", "until": "2999-01-01T00:00Z"}
    return {"finding": TARGET_DOWN, "target": f"broker-{broker}", **answers}


def unfinished(now: Mapping[str, Partition], removed: int) -> list[str]:
    """Return the partitions that a broker still holds, and those with a replica that is not in sync.

    Each partition is listed once.
    """
    return [
        f"{name}: {list(one.replicas)}, in sync {sorted(one.isr)}"
        for name, one in now.items()
        if removed in one.replicas or {*one.replicas} != {*one.isr}
    ]


@dataclass
class RemovalFaults(Faults):
    """The cases of the removal."""

    book: tuple[str, str] = ("--playbook", "kafka_remove_brokers")
    points: tuple[Point, ...] = (*POINTS[:2], FIRST_MOVE)
    back_point: Point = CANCEL
    small: ClassVar[Mapping[int, int]] = {2: 1024, 3: 1024}

    def aim(self, case: str, **pace: int) -> Aim:
        slow = {"throttle_bytes_s": SLOW} if case == "kill-back" else {}
        return self.removing(case, TARGET, {**slow, **pace})

    def removing(self, case: str, broker: int, more: Mapping[str, object], **sections: object) -> Aim:
        """Return a run that empties one broker.

        more: further keys of its section. sections: further sections.
        """
        section = {"brokers": [broker], "shutdown": False, **PACE, **more}
        before = {name: one.replicas for name, one in self.site.partitions().items()}
        operator = self.site.operator(case, {"removal": section, **sections})
        return Aim(operator, before, lambda: unfinished(self.site.partitions(), broker))

    def ready(self) -> None:
        self.bring(AWAY)

    def reached(self, aim: Aim) -> str:
        """Wait until the broker is empty; then roll back, and wait until it is refilled as it was."""
        planned = super().reached(aim)
        self.verb(aim.operator, "rollback")
        return f"{planned}; {self.restored(aim)}"

    # --- the cases ------------------------------------------------------------------------------------------

    def killed_before_the_stop(self) -> str:
        """Kill the operator before the empty broker stops, then ``resume``."""
        aim = self.removing("kill-stop", TARGET, {"shutdown": True})
        program = ("zkmigrate.lab.killing", *map(str, STOP.kill))
        with aim.operator.tool("run", "run", *self.book, program=program) as tool:
            self.ended(tool, KILLED)
        require(self.site.runs(TARGET), f"broker {TARGET} was stopped before its time")
        self.verb(aim.operator, "resume")
        require(not self.site.runs(TARGET), f"broker {TARGET} runs")
        words = self.reached(aim)
        require(self.site.runs(TARGET), f"broker {TARGET} was not started on the way back")
        return words

    def leaving_dies(self) -> str:
        """Kill the broker that is emptied, and leave it dead until the run has ended."""
        aim = self.removing("leaving-dies", TARGET, {"shutdown": True})
        with self.flying(aim.operator) as tool:
            fault.kill(self.site.lab, host_of(TARGET))
            self.ended(tool, 0)
            told = tool.path.read_text()
        kept = f"--entity-name {TARGET} --delete-config {LEADER_RATE}"
        require(kept in told, f"nobody told how the throttle of broker {TARGET} goes: {told[-2000:]}")
        odd = aim.wrong()
        require(not odd, f"not as planned: {'; '.join(odd)}")
        self.site.start_broker_alone(TARGET)
        self.site.lab.wait_for_brokers()
        self.verb(aim.operator, "rollback")
        return f"emptied without it; {self.restored(aim)}"

    def target_dies(self) -> str:
        """Kill a broker that receives, and leave it dead.

        The run stops and names it. Once that is accepted, ``resume`` plans its moves anew, and stops for the
        throttle that only the dead broker itself can unset.
        """
        self.bring(ON_NEIGHBOUR)
        pace = {"stalled_s": STALLED_S}
        aim = self.removing("target-dies", NEIGHBOUR, pace)
        with self.flying(aim.operator) as tool:

            def missing() -> str | None:
                require(not tool.has_ended, f"the run ended: {tool.troubles()}")
                adding = {id for name, ids in self.site.in_flight().items() if name in HOME for id in ids}
                return None if TARGET in adding else f"a move to {TARGET}, there are moves to {adding}"

            wait_until("a move to the target", missing, SEEN_S, poll_s=0.2)
            fault.kill(self.site.lab, host_of(TARGET))
            self.ended(tool, BLOCKED)
            said = tool.troubles()
        require(f"broker {TARGET} is down" in said, f"the run did not name broker {TARGET}: {said}")
        self.removing("target-dies", NEIGHBOUR, pace, accept=[without(TARGET)])
        with aim.operator.tool("resume-without", "resume", *self.book) as tool:
            self.ended(tool, BLOCKED)
            said = tool.troubles()
        require(f"reassign.throttle-stays broker-{TARGET}" in said, f"not stopped for the throttle: {said}")
        now = self.site.partitions()
        held = [name for name, one in now.items() if NEIGHBOUR in one.replicas]
        short = unfinished({n: one for n, one in now.items() if TARGET not in one.replicas}, NEIGHBOUR)
        require(not held and not short, f"not without broker {TARGET}: {held}, {'; '.join(short)}")
        again = [name for name in HOME if TARGET in now[name].replicas]
        require(len(again) < len(HOME), f"nothing was planned anew: all of {again} are on broker {TARGET}")
        self.site.start_broker_alone(TARGET)
        self.site.lab.wait_for_brokers()
        self.verb(aim.operator, "resume")
        return f"{len(HOME) - len(again)} of {len(HOME)} moves planned anew; {self.reached(aim)}"

    def cases(self) -> list[Played]:
        what = f"kill -9 of broker {TARGET}, which receives and stays dead"
        named = "named; once accepted, planned anew without it; rollback: all as before"
        own: list[Played] = [("target-dies", what, named, self.target_dies, False)]
        what = f"kill -9 of broker {TARGET}, which is emptied"
        alone = "the run ends by itself and names its throttle; rollback: all as before"
        own.append(("leaving-dies", what, alone, self.leaving_dies, True))
        what = f"kill -9 before broker {TARGET} stops"
        both = "resume: empty and stopped; rollback: started and refilled as before"
        own.append(("kill-stop", what, both, self.killed_before_the_stop, True))
        return [*own, *((*case[:4], True) for case in super().cases() if case[0] not in OF_MOVES)]


@pytest.fixture(scope="module")
def labs(directory: Path, wrong_loads: list[str]) -> Iterator[Labs]:
    up = partial(in_lab, RemovalFaults, directory=directory, wrong_loads=wrong_loads)
    with closing(Labs(up)) as made:
        yield made


@pytest.mark.parametrize(("version", "name"), rows(RemovalFaults))
def test_a_disturbed_removal_ends_or_is_taken_back(labs: Labs, version: str, name: str, play: Play) -> None:
    play_one(labs.of(version), name, play)
