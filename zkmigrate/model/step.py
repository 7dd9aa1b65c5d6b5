"""Step: one readable file of the runbook, its undo beside it.

The engine's whole loop (``engine/run.py``): observe; ``Done`` or ``Blocked`` leave; ``Waiting`` pauses;
``Ready`` applies ``plan`` (or ``undo``) for each target; again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.finding import Finding, blocking
from zkmigrate.model.look import Look

if TYPE_CHECKING:
    from zkmigrate.inventory.inventory import Inventory

F = TypeVar("F")


class Hazard(StrEnum):
    """What a step can do to others.

    READ_ONLY = it sends nothing, and the engine refuses a change of it. LATE = it reads, and sends a host
    only what that host missed of an earlier step. WINDOW = under a lease with a deadline. FINAL = no plain
    way back.
    """

    READ_ONLY = "read-only"
    LATE = "read-only but for a late change"
    REVERSIBLE = "reversible"
    WINDOW = "window"
    FINAL = "final"

    @property
    def reads(self) -> bool:
        """Whether nothing of the step's own is sent: nobody is asked before it, and going back it has nothing
        to undo."""
        return self in (Hazard.READ_ONLY, Hazard.LATE)


class Way(StrEnum):
    """The direction a step is walked in."""

    FORWARD = "forward"
    BACK = "back"


@dataclass(frozen=True)
class Done:
    """The step is complete in this direction; ``findings`` are the evidence.

    record: facts that later steps compare with, journaled under the step's id (JSON values only).
    """

    findings: tuple[Finding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def unless_blocked(findings: tuple[Finding, ...], record: Mapping[str, Any] | None = None) -> Verdict:
        """``Blocked`` where one of the findings blocks, else ``Done``."""
        return Blocked(findings) if blocking(findings) else Done(findings, record or {})


@dataclass(frozen=True)
class Ready:
    """These targets can be changed now, as one wave (all at once).

    record: as that of ``Done``, durable before the first change of the wave is sent: an original map that the
    way back needs, or a plan that must not be made twice. Walking back nothing is recorded. While
    ``Context.begun`` the step goes on from the record it finds; otherwise that is of an earlier walk. Where
    the journal is lost there may be none.
    """

    targets: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiting:
    """Nothing to do but wait. ``deadline_s`` counts from when the same ``what`` was first returned.

    keep: what was found that the next looks of this visit go on from, as ``Context.kept``: a mark that others
    move on all the time is read once, then waited for. A later visit finds it anew; it is not journaled.
    mark: how far it is, compared with the look before. The wait also fails once looks have found the same
    mark for ``stalled_s``: with a far ``deadline_s`` hours of progress are waited for, and a standstill is
    not (``engine/limits.py``).
    """

    what: str
    progress: str
    deadline_s: float
    poll_s: float = 0.2
    keep: Mapping[str, Any] = field(default_factory=dict)
    mark: object = None
    stalled_s: float = math.inf


@dataclass(frozen=True)
class Blocked:
    """The step cannot go on; the findings say why and which moves are open.

    no_way_back: walking back, the step says that there is none any more, now or later: the run's direction is
    forward from here. others_back: walking back, every target that answers is back; the findings name those
    that do not. The others need not wait for these in the steps before.
    """

    findings: tuple[Finding, ...]
    no_way_back: bool = False
    others_back: bool = False


Verdict: TypeAlias = Done | Ready | Waiting | Blocked


Records: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What steps recorded and how long they took, as ``History.records`` gives it."""


Teller: TypeAlias = Callable[[str, str], None]
"""Takes what a long look is after, and how far it is: ``12 of 40 transactions``."""


def untold(_what: str, _progress: str) -> None:
    """For where nobody is told."""


@dataclass(frozen=True)
class Retired:
    """A broker that is gone for good and was left out of the run. id: its broker.id. by: who said so."""

    host: str
    id: int
    addresses: tuple[str, ...]
    by: str
    reason: str

    @property
    def words(self) -> str:
        return f"{self.host} (broker {self.id}) is retired from this run by {self.by}: {self.reason}"


@dataclass(frozen=True)
class Context:
    """What every step of a run may know without looking.

    run: id of the run, ``[a-z0-9-]{1,24}``. rehearsal: the cut-over steps act as rehearsal. records: step id
    → the record it journaled last (baseline, zxids, times). fencing: this operator's fencing number.
    unrestored: targets of this step on which the journal knows files that were written or moved aside, or
    settings of a cluster, and not put back. unconfirmed: targets of this step with a change that was refused,
    or of which nobody knows whether it happened. begun: changes of this step were, or may have been, sent and
    are not undone; true where the journal is lost. way: the direction of the walk. kept: what the step's last
    ``Waiting`` of this visit kept. tell: for looks that take long. retired: brokers that were left out of the
    run; the inventory does not name them. hold_at: the step of the window after which ``--hold-at`` holds.
    """

    run: str
    inventory: Inventory
    fencing: int = 0
    rehearsal: bool = False
    records: Records = field(default_factory=dict)
    unrestored: frozenset[str] = frozenset()
    unconfirmed: frozenset[str] = frozenset()
    begun: bool = False
    way: Way = Way.FORWARD
    kept: Mapping[str, Any] = field(default_factory=dict)
    tell: Teller = field(default=untold, compare=False)
    retired: tuple[Retired, ...] = ()
    hold_at: str = ""


@dataclass(frozen=True)
class Forecast(Generic[F]):
    """A step at its turn, as far as that can be known before the run.

    facts: what it will have seen; ``plan`` and ``undo`` take them as any others. targets: whom it will
    change, where ``check`` cannot tell yet; None: those that it makes ``Ready`` from these facts. records:
    what steps before it will have recorded, with words for what only the run can know.
    """

    facts: F
    targets: tuple[str, ...] | None = None
    records: Records = field(default_factory=dict)


class Step(Protocol[F]):
    """One step; its class names it as its base. A step's module docstring opens with: what, why now, what a
    client may notice, undo, proof."""

    id: str
    title: str
    hazard: Hazard

    def observe(self, c: Context, look: Look) -> F:
        """This step's frozen facts; the only method that may look."""
        ...

    def check(self, c: Context, f: F) -> Verdict:
        """Decide, from facts alone, in the direction ``c.way``."""
        ...

    def plan(self, c: Context, f: F, target: str) -> Changes:
        """Everything one target needs, forward. Shared by plan, runbook, staging and run."""
        ...

    def undo(self, c: Context, f: F, target: str, applied: tuple[Applied, ...]) -> Changes:
        """The way back for one target, from what the journal knows was applied (oldest first)."""
        ...

    def forecast(self, c: Context, look: Look) -> Forecast[F] | None:
        """What the step will see at its turn: what it sees now, unless it says otherwise. None: it is decided
        from facts when the step is reached. HostError where it can be known now, and the look for it failed.
        """
        return Forecast(self.observe(c, look))

    def basis(self, c: Context, f: F) -> Mapping[str, str] | None:
        """What a saved plan of this step rests on, by name, in words: where one of these is another when the
        plan is run, the plan is stale, and nothing else that the step sees makes it so. None: each change of
        the plan must be the same, with all of its content."""
        return None


class Reads(Step[F]):
    """Base of a step that sends nothing: it has no plan, so it is read-only. It is walked forward only."""

    hazard = Hazard.READ_ONLY

    def plan(self, c: Context, f: F, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: F, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()


AnyStep: TypeAlias = Step[Any]
