"""The window of a runbook, in which clients are refused under a lease: its steps, phases and pure rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from zkmigrate.inventory.inventory import Inventory, Lease, Policy
from zkmigrate.runbook.model.finding import Finding, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Note
from zkmigrate.runbook.model.step import Context

Word: TypeAlias = Literal["go", "stop", "back", "skip"]
"""The operator's answer, or the answer assumed without one."""


class Phase(StrEnum):
    """The position of a window: the last of its steps that is done or has sent its first change.

    zkm-host uses the same names; before ARM a host is :data:`IDLE`.
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

    def until(self, end: Phase) -> tuple[Phase, ...]:
        """Return this phase and those after it, up to but without ``end``."""
        every = list(Phase)
        return tuple(every[every.index(self) : every.index(end)])


IDLE = "idle"


class Stand(StrEnum):
    """The state of a host in a window: whether it lets clients in, and how that changes without an operator.

    - BEFORE: clients are let in as before the window.
    - LEASED: it opens by itself when its lease ends.
    - SEALED: it stays closed until it gets an order.
    - FINISHING: it opens by itself after its checks.
    - AFTER: clients are let in on the new side.
    - UNHEARD: it does not answer.
    """

    BEFORE = "open, as before the window"
    LEASED = "closed to clients until its lease ends"
    SEALED = "sealed: closed to clients until it receives an order"
    FINISHING = "has received GO, and opens by itself"
    AFTER = "open, after the window"
    UNHEARD = "does not answer"


class Trouble(StrEnum):
    """A kind of trouble in a window; the values are the ids of the watch's findings."""

    LEASE_LAPSED = "watch.lease-lapsed"
    HOST_UNREACHABLE = "watch.host-unreachable"
    BLOCK_LEAKS = "watch.block-leaks"
    DEADLINE = "watch.deadline"
    BROKER_LOST = "watch.broker-lost"
    SOURCE_SICK = "watch.source-sick"
    STEP_BLOCKED = "watch.step-blocked"
    LOOK_UNKNOWN = "watch.look-unknown"


class Decision(StrEnum):
    """The reaction to a finding: go on, turn back, or ask the operator.

    Without an answer to ``ASK``, ``WindowSpec.without_operator`` decides.
    """

    GO = "go"
    BACK = "back"
    ASK = "ask"


class Decide(Protocol):
    """Decide what to do about a finding: a pure function that is defined for every phase and finding.

    phase: id of the stage's last step that is done or has sent a change, empty before the first.
    """

    def __call__(self, phase: str, finding: Finding, policy: Policy, /) -> Decision: ...


@dataclass(frozen=True)
class Probe:
    """A question that is repeated beside a window.

    - ask: returns findings. A finding that holds clears an earlier one with the same id and target; an error
      becomes a finding.
    - leased: whether to ask only while the lease is renewed, until all hosts are sealed.
    - within_s: seconds for each of its looks, so that one silent host does not hide the others.
    """

    name: str
    every_s: float
    ask: Callable[[], Iterable[Finding]]
    leased: bool = False
    within_s: float = math.inf


def no_limits(_phase: str, _verb: str, _back: bool, _left_s: float | None) -> tuple[float, float]:
    """Return infinite limits, so that every wait has only its own limit."""
    return math.inf, math.inf


@dataclass(frozen=True)
class WindowSteps:
    """The ids of a window's steps.

    - phases: step id → the phase that begins with the step's first change, in the order of the steps.
    - begins: the step that blocks clients under a lease, a block that ends unless it is renewed.
    - cuts: the step that also blocks traffic between dest and source under the lease.
    - seals: the step that makes the block permanent.
    - serves: the step that waits until every host serves. Then each host counts down to its own limit.
    - opens: the step that lets clients in on the new side.
    """

    phases: Mapping[str, Phase] = field(hash=False)
    begins: str
    cuts: str
    seals: str
    serves: str
    opens: str

    def between(self, first: str, end: str) -> tuple[str, ...]:
        """Return the steps from ``first`` on, up to but without ``end``."""
        ids = list(self.phases)
        return tuple(ids[ids.index(first) : ids.index(end)])

    def after(self, step: str) -> tuple[str, ...]:
        ids = list(self.phases)
        return tuple(ids[ids.index(step) + 1 :])

    @property
    def goes(self) -> str:
        """The step that is the first to let hosts finish the window without an operator."""
        return next(step for step, phase in self.phases.items() if phase is Phase.GO)

    @property
    def shut(self) -> tuple[str, ...]:
        """The steps in which clients are refused, including the step that begins to refuse them."""
        return self.between(self.begins, self.opens)

    def reached(self, step: str) -> Phase:
        """Return the phase that the window has reached once this step has sent a change.

        Return the first phase for a step that is not one of the window's own.
        """
        return self.phases.get(step, next(iter(self.phases.values())))


@dataclass(frozen=True)
class Loss:
    """The loss of clients in a window that lasts too long.

    what: the loss, such as their sessions. from_s: seconds from the first change of ``begins`` until the
    first client can suffer it. forward: why going forward costs less; empty if it does not.
    """

    what: str
    from_s: float
    forward: str = ""


@dataclass(frozen=True)
class Kept:
    """A statement about the sessions or other state that clients kept through a way back.

    words: a sentence, empty if nothing was at risk. settled: False if a later look may show something else.
    """

    words: str
    settled: bool = True


@dataclass(frozen=True)
class Unattended:
    """The description of a window whose process has died.

    - one, many: the noun for its hosts, singular and plural.
    - shut, still, opened: a clause each about clients: while all hosts are closed, while only some are, and
      once the hosts have opened on either side.
    - stands: returns the state of each host.
    - alone_s: seconds from the last renewal until hosts without a seal have opened by themselves.
    - loss: what clients lose, None if unknown.
    - kept: what clients kept, measured after all hosts are open again.
    """

    one: str
    many: str
    shut: str
    still: str
    opened: str
    stands: Callable[[Inventory, Look], Mapping[str, Stand]]
    alone_s: Callable[[Context], float]
    loss: Callable[[Context], Loss | None]
    kept: Callable[[Context, Look], Kept] = lambda _context, _look: Kept("")


@dataclass(frozen=True)
class WindowSpec:
    """The window of a stage.

    - deadline_s: seconds from the first change of ``steps.begins`` until the way back must have started,
      infinite for no limit. It may read the rehearsal's times from the context.
    - without_operator: the answer assumed for Ask without an operator's answer. Its argument: whether
      ``steps.seals`` is done, so that all hosts are sealed.
    - limits: seconds for one message of a look or change, and for all of it. Its arguments: the phase, the
      change's verb (empty for a look), whether the walk goes back, and the seconds until it must (None
      without a deadline).
    - remarks: lines shown before the window opens. lease: how long hosts keep the block without a renewal.
      Both are computed from what the run has recorded.
    - probes: computed from the inventory, a look, and the callback that records samples.
    - renews: whether the block on hosts is a lease that is renewed. Otherwise the block ends by itself, at
      the deadline or soon after.
    - keeps_s: seconds after the first change of ``steps.begins`` in which a way back costs clients nothing,
      given the last step reached. None: ``deadline_s`` applies.
    - unattended: how ``status`` and ``resume`` describe a window whose process has died.
    """

    steps: WindowSteps
    decide: Decide
    deadline_s: Callable[[Context], float]
    without_operator: Callable[[bool], Word]
    limits: Callable[[str, str, bool, float | None], tuple[float, float]] = no_limits
    remarks: Callable[[Context], tuple[str, ...]] = lambda _context: ()
    lease: Callable[[Context], Lease] = lambda context: context.inventory.policy.lease
    probes: Callable[[Inventory, Look, Note], tuple[Probe, ...]] = lambda _inventory, _look, _note: ()
    renews: bool = True
    keeps_s: Callable[[Context, str], float] | None = None
    unattended: Unattended | None = None


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
