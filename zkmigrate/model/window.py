"""The window of a runbook, as a value that its stages carry: its steps, its phases, and its pure rules.

The window is the time in which clients are shut out under a lease. The engine walks it by what the value
says: which step begins the lease, which ones shut more, who decides about trouble, how long it may last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from zkmigrate.inventory.inventory import Inventory, Lease, Policy
from zkmigrate.model.finding import Finding, meanings
from zkmigrate.model.look import Look
from zkmigrate.model.sampling import Note
from zkmigrate.model.step import Context

Word: TypeAlias = Literal["go", "stop", "back", "skip"]
"""What an operator wants, or nobody's answer means."""


class Phase(StrEnum):
    """Where a window is: the last step that is done, or has sent its first change to a host.

    The words are those in which zkm-host says where a host stands; before ARM a host is :data:`IDLE`.
    """

    ARMED = "armed"
    FENCED = "fenced"
    CUT = "cut"
    STOPPED = "stopped"
    SEALED = "sealed"
    GO = "go"
    STARTED = "started"
    CHECKED = "checked"
    OPEN = "open"

    @property
    def none_sealed(self) -> bool:
        """True until the first SEAL is sent: every host goes back by itself when its lease ends.

        From then on any host may be sealed. Whether *all* are is another question:
        ``WindowSpec.without_operator``.
        """
        return self in Phase.ARMED.until(Phase.SEALED)

    def until(self, end: Phase) -> tuple[Phase, ...]:
        """This phase and those after it, before ``end``."""
        every = list(Phase)
        return tuple(every[every.index(self) : every.index(end)])


IDLE = "idle"


class Trouble(StrEnum):
    """What can go wrong in a window; the values are the ids of the watch's findings."""

    LEASE_LAPSED = "watch.lease-lapsed"
    HOST_UNREACHABLE = "watch.host-unreachable"
    BLOCK_LEAKS = "watch.block-leaks"
    DEADLINE = "watch.deadline"
    BROKER_LOST = "watch.broker-lost"
    SOURCE_SICK = "watch.source-sick"
    STEP_BLOCKED = "watch.step-blocked"
    LOOK_UNKNOWN = "watch.look-unknown"


class Decision(StrEnum):
    """``ASK`` asks the operator. In a window ``WindowSpec.without_operator`` says what nobody's answer means;
    beside a stage without a window it means stop."""

    GO = "go"
    BACK = "back"
    ASK = "ask"


class Decide(Protocol):
    """What is done about a finding: total and pure.

    ``phase`` is the id of the stage's last step that is done or has sent a change, empty before the first.
    """

    def __call__(self, phase: str, finding: Finding, policy: Policy, /) -> Decision: ...


@dataclass(frozen=True)
class Probe:
    """A question asked again and again beside a stage.

    ask: gives findings; held ones too, they clear earlier ones. It may raise: that is a finding as well.
    leased: asked only while the lease is renewed, which ends when SEAL is done on all hosts. within_s:
    seconds that each of its looks may take, so that one silent host does not hide the others.
    """

    name: str
    every_s: float
    ask: Callable[[], Iterable[Finding]]
    leased: bool = False
    within_s: float = math.inf


@dataclass(frozen=True)
class WatchSpec:
    """What is watched beside a stage without a window, going forward, however long it takes.

    probes: the questions, given how the world is looked at. decide: what is done about a finding: go on, walk
    back to the start of the stage, or ask.
    """

    probes: Callable[[Inventory, Look], tuple[Probe, ...]]
    decide: Decide


def no_remarks(_context: Context) -> tuple[str, ...]:
    """Nothing is known before the window opens."""
    return ()


def policy_lease(context: Context) -> Lease:
    """The lease is the policy's."""
    return context.inventory.policy.lease


def no_probes(_inventory: Inventory, _look: Look, _note: Note) -> tuple[Probe, ...]:
    """Only the lease is watched."""
    return ()


def no_limits(_phase: str, _verb: str, _back: bool, _left_s: float | None) -> tuple[float, float]:
    """Every wait has its own limit only."""
    return math.inf, math.inf


@dataclass(frozen=True)
class WindowSteps:
    """The steps of a window by their ids.

    phases: each step in its order, and the phase that its first message begins. begins / cuts / seals /
    serves / opens: the steps that start the lease, add the cut to it, make it permanent, wait until every
    host serves and counts to its own limit, and open the door.
    """

    phases: Mapping[str, Phase] = field(hash=False)
    begins: str
    cuts: str
    seals: str
    serves: str
    opens: str

    def between(self, first: str, end: str) -> tuple[str, ...]:
        """The steps from ``first`` on, before ``end``."""
        ids = list(self.phases)
        return tuple(ids[ids.index(first) : ids.index(end)])

    def after(self, step: str) -> tuple[str, ...]:
        """The steps behind this one."""
        ids = list(self.phases)
        return tuple(ids[ids.index(step) + 1 :])

    @property
    def shut(self) -> tuple[str, ...]:
        """The steps during which clients are shut out, or begin to be."""
        return self.between(self.begins, self.opens)

    def reached(self, step: str) -> Phase:
        """The phase once this step has sent a change; the first one for a step before the window's own."""
        return self.phases.get(step, next(iter(self.phases.values())))


@dataclass(frozen=True)
class WindowSpec:
    """The window of a stage.

    deadline_s: how many seconds after the first message of ``steps.begins`` the way back must have started,
    ``math.inf`` for no limit; it may read the rehearsal's times from the context. without_operator: what Ask
    means when nobody answers, told whether the step ``steps.seals`` is done, that is, whether all hosts are
    sealed. limits: seconds that one message of a look or change, and all of it, may take in the window. It is
    told the phase, the verb of the change (empty for a look), whether the walk goes back, and the seconds
    left until the way back must start (None without such a deadline). remarks: lines that are shown before
    the window opens, from what the run has recorded. lease: how long the hosts hold the block without a
    renewal, from what the run has recorded. probes: the questions beside it, given how the world is looked
    at and where a sample of an answer goes.
    """

    steps: WindowSteps
    decide: Decide
    deadline_s: Callable[[Context], float]
    without_operator: Callable[[bool], Word]
    limits: Callable[[str, str, bool, float | None], tuple[float, float]] = no_limits
    remarks: Callable[[Context], tuple[str, ...]] = no_remarks
    lease: Callable[[Context], Lease] = policy_lease
    probes: Callable[[Inventory, Look, Note], tuple[Probe, ...]] = no_probes


MEANINGS = meanings(
    """
    watch.lease-lapsed: The lease of a dest host ended before a renewal reached it. Cause: The operator's
    machine or the network was too slow, or the host stood still. The host goes back by itself. To do: Let
    the run walk back. Find the cause of the delay, then run again.

    watch.host-unreachable: No renewal reached a dest host for longer than its lease. Cause: The ssh
    connection to the host is gone. To do: Let the run walk back. Repair the connection, then run again.

    watch.block-leaks: The block on a dest host has a gap: its rules are not first or not whole, or a set
    is empty. Cause: Another program changed the host's firewall rules. To do: Stop the program that
    writes rules on that host, then run again.

    watch.deadline: The time has come at which the way back must start. Cause: A step took longer than
    rehearsed. Going on would cost sessions. To do: Let the run walk back. See in the report which step
    was slow.

    watch.broker-lost: A broker did not answer twice in a row. Cause: The broker stopped, or its host does
    not answer. policy.broker_lost_in_window says whether the run turns back. To do: Bring the broker
    back. Answer the question, if the run asks one.

    watch.source-sick: No majority of source's servers serves under one leader, twice in a row. Cause:
    Source lost its leader or its quorum. To do: Let the run walk back, then repair source.

    watch.step-blocked: A step of the window cannot go on. Cause: Another finding beside this one names
    the cause. To do: Read that finding's entry.

    watch.look-unknown: A question beside the window had no answer, twice in a row. Cause: A host or its
    ssh connection does not answer, or a probe failed. To do: See why the host does not answer. After GO
    the dest hosts finish by themselves.
    """
)
