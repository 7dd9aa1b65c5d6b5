"""The window of a runbook, in which clients are shut out under a lease: its steps, phases and pure rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from zkmigrate.inventory.inventory import Inventory, Lease, Policy
from zkmigrate.model.finding import Finding
from zkmigrate.model.look import Look
from zkmigrate.model.sampling import Note
from zkmigrate.model.step import Context

Word: TypeAlias = Literal["go", "stop", "back", "skip"]
"""What an operator wants, or what no answer means."""


class Phase(StrEnum):
    """Where a window is: the last step that is done or has sent its first change. zkm-host uses the same
    words; before ARM a host is :data:`IDLE`."""

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
        """True until the first SEAL is sent: every host goes back by itself when its lease ends. Whether all
        hosts are sealed is another question: ``WindowSpec.without_operator``."""
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
    """``ASK`` asks the operator. Without an answer ``WindowSpec.without_operator`` decides in a window;
    beside a stage without one it means stop."""

    GO = "go"
    BACK = "back"
    ASK = "ask"


class Decide(Protocol):
    """What to do about a finding: total and pure. phase: id of the stage's last step that is done or has sent
    a change, empty before the first."""

    def __call__(self, phase: str, finding: Finding, policy: Policy, /) -> Decision: ...


@dataclass(frozen=True)
class Probe:
    """A question that is repeated beside a stage. ask: gives findings; those that hold clear earlier ones,
    and an error is a finding too. leased: asked only while the lease is renewed, until all hosts are sealed.
    within_s: seconds for each of its looks, so that one silent host does not hide the others."""

    name: str
    every_s: float
    ask: Callable[[], Iterable[Finding]]
    leased: bool = False
    within_s: float = math.inf


@dataclass(frozen=True)
class WatchSpec:
    """What is watched beside a stage without a window, going forward. probes: from the inventory and a look.
    decide: go on, walk back to the start of the stage, or ask."""

    probes: Callable[[Inventory, Look], tuple[Probe, ...]]
    decide: Decide


def no_limits(_phase: str, _verb: str, _back: bool, _left_s: float | None) -> tuple[float, float]:
    """Every wait has only its own limit."""
    return math.inf, math.inf


@dataclass(frozen=True)
class WindowSteps:
    """The steps of a window by their ids. phases: each step in order → the phase that its first change
    begins. begins / cuts / seals / serves / opens: the steps that start the lease, add the cut to it, make it
    permanent, wait until every host serves and counts to its own limit, and open the door."""

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
        ids = list(self.phases)
        return tuple(ids[ids.index(step) + 1 :])

    @property
    def shut(self) -> tuple[str, ...]:
        """The steps in which clients are shut out, or begin to be."""
        return self.between(self.begins, self.opens)

    def reached(self, step: str) -> Phase:
        """The phase once this step has sent a change; the first one for a step before the window's own."""
        return self.phases.get(step, next(iter(self.phases.values())))


@dataclass(frozen=True)
class WindowSpec:
    """The window of a stage.

    - deadline_s: seconds from the first change of ``steps.begins`` until the way back must have started,
      infinite for no limit; it may read the rehearsal's times from the context.
    - without_operator: what Ask means without an answer, given whether ``steps.seals`` is done, so that all
      hosts are sealed.
    - limits: seconds for one message of a look or change, and for all of it, given the phase, the change's
      verb (empty for a look), whether the walk goes back, and the seconds until it must (None without a
      deadline).
    - remarks: lines shown before the window opens. lease: how long hosts hold the block without a renewal.
      Both from what the run has recorded.
    - probes: from the inventory, a look, and where samples of answers go.
    """

    steps: WindowSteps
    decide: Decide
    deadline_s: Callable[[Context], float]
    without_operator: Callable[[bool], Word]
    limits: Callable[[str, str, bool, float | None], tuple[float, float]] = no_limits
    remarks: Callable[[Context], tuple[str, ...]] = lambda _context: ()
    lease: Callable[[Context], Lease] = lambda context: context.inventory.policy.lease
    probes: Callable[[Inventory, Look, Note], tuple[Probe, ...]] = lambda _inventory, _look, _note: ()
