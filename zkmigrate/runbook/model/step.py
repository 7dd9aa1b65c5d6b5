"""Step: one step of a runbook, with its undo.

The engine's loop (``runbook/engine/run.py``) calls ``observe`` and ``check``. ``Done`` or ``Blocked`` ends
the step; ``Waiting`` pauses; ``Ready`` applies ``plan`` (or ``undo``) to each target. Then it starts over.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from zkmigrate.kafka.rates import Overrides
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.finding import Finding, blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Note, note_nothing

if TYPE_CHECKING:
    from zkmigrate.inventory.inventory import Inventory

F = TypeVar("F")


class Hazard(StrEnum):
    """The effects that a step can have on hosts, clusters and clients.

    - READ_ONLY: it sends nothing, and the engine refuses to send a change of it.
    - LATE: it reads, and sends to a host only what that host missed in an earlier step.
    - WINDOW: it acts under a lease with a deadline.
    - FINAL: it has no plain way back.
    """

    READ_ONLY = "read-only"
    LATE = "read-only but for a late change"
    REVERSIBLE = "reversible"
    WINDOW = "window"
    FINAL = "final"

    @property
    def reads(self) -> bool:
        """Whether the step sends no changes of its own, so that it needs no question and no undo."""
        return self in (Hazard.READ_ONLY, Hazard.LATE)


class Way(StrEnum):
    """The direction in which a step is walked."""

    FORWARD = "forward"
    BACK = "back"


@dataclass(frozen=True)
class Done:
    """The step is complete in this direction.

    findings: the evidence. record: facts for later steps, journaled under the step's id (JSON values only).
    """

    findings: tuple[Finding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def unless_blocked(findings: tuple[Finding, ...], record: Mapping[str, Any] | None = None) -> Verdict:
        """Return ``Blocked`` if one of the findings blocks, else ``Done``."""
        return Blocked(findings) if blocking(findings) else Done(findings, record or {})


@dataclass(frozen=True)
class Ready:
    """The targets that can be changed now, all at once, as one wave.

    - record: as in ``Done``, but durable before the wave's first change. It holds what the way back needs,
      such as the original assignment of replicas, or a plan that must not be made twice. On the way back
      nothing is recorded, unless ``both_ways``. While ``Context.begun`` is true the step uses the record it
      finds; otherwise that record belongs to an earlier walk. With a lost journal there may be none.
    - keep: as in ``Waiting``.
    - ask: findings, each with a target, about which the operator is asked before this wave.
    """

    targets: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    both_ways: bool = False
    keep: Mapping[str, Any] = field(default_factory=dict)
    ask: tuple[Finding, ...] = ()


class Far(NamedTuple):
    """A step's progress in its direction.

    done, of: the number of finished targets and of all targets. bytes_left: bytes still to be copied. left_s:
    estimated seconds for the rest, None if unknown.
    """

    done: int
    of: int
    bytes_left: int
    left_s: float | None


@dataclass(frozen=True)
class Waiting:
    """The step can only wait.

    - what: a clause that fits after "until".
    - deadline_s: seconds until the wait fails, counted from the first return with the same ``what``.
    - keep: facts for the next looks of this visit, available as ``Context.kept``; not journaled.
    - mark: a value that changes with progress. The wait fails once it stays the same for ``stalled_s``, so
      that long progress is allowed but a standstill is not.
    - far: the progress of a step that reports it.
    - moves: further actions for the operator if the wait fails.
    """

    what: str
    progress: str
    deadline_s: float
    poll_s: float = 0.2
    keep: Mapping[str, Any] = field(default_factory=dict)
    mark: object = None
    stalled_s: float = math.inf
    far: Far | None = None
    moves: tuple[str, ...] = ()


@dataclass(frozen=True)
class Blocked:
    """The step cannot continue; the findings say why and what the operator can do.

    no_way_back: on the way back, whether the run can only go forward from here. others_back: on the way back,
    whether every target that answers is back. The findings then name the targets that do not answer; the
    walk back through earlier steps need not wait for those targets.
    """

    findings: tuple[Finding, ...]
    no_way_back: bool = False
    others_back: bool = False


Verdict: TypeAlias = Done | Ready | Waiting | Blocked


Records: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What each step recorded and how long it took, from ``History.records``."""


Teller: TypeAlias = Callable[[str, str], None]
"""A callback for the progress of a long look: its subject, and progress such as ``12 of 40 transactions``."""


def tell_nobody(_what: str, _progress: str) -> None:
    """Discard the reported progress of a long look."""


@dataclass(frozen=True)
class Retired:
    """A broker that is gone permanently and was left out of the run.

    id: its broker.id. by: the person who retired it.
    """

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
    """The information that every step of a run has without observing hosts or clusters.

    - run: id of the run, ``[a-z0-9-]{1,24}``. way: the direction of the walk.
    - rehearsal: whether the steps of the cut-over are only rehearsed. fencing: this operator's fencing
      number.
    - records: step id → the record it journaled last (baseline, zxids, times).
    - unrestored: targets on which this step wrote or moved files, or changed cluster settings, that are not
      put back. unconfirmed: targets with a change that was refused or has an unknown outcome.
    - begun: whether changes of this step were, or may have been, sent and are not undone; true with a lost
      journal.
    - kept: facts kept by the step's last ``Waiting`` or ``Ready`` of this visit. tell: shows the progress of
      long looks.
    - retired: brokers left out of the run; the inventory does not name them.
    - hold_at: the step of the window after which a hold is requested.
    - overrides: the rates that ``zkmigrate throttle`` set for this run.
    - note: records a sample for the report.
    - over: whether the time of ``--until`` has come, so that the engine ends the run instead of the next
      wave. ends_at: that time in seconds since the epoch, or None.
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
    tell: Teller = field(default=tell_nobody, compare=False)
    retired: tuple[Retired, ...] = ()
    hold_at: str = ""
    overrides: Overrides = field(default_factory=Overrides)
    over: bool = False
    ends_at: float | None = None
    note: Note = field(default=note_nothing, compare=False)


@dataclass(frozen=True)
class Forecast(Generic[F]):
    """The expected facts and targets of a step when the walk reaches it, as far as known before the run.

    - facts: the expected observation, as ``plan`` and ``undo`` take it.
    - targets: the targets that the step will change, if ``check`` cannot decide that yet. None: the targets
      that ``check`` returns as ``Ready``.
    - records: the expected records of earlier steps, with placeholders for values that only the run can know.
    """

    facts: F
    targets: tuple[str, ...] | None = None
    records: Records = field(default_factory=dict)


class Step(Protocol[F]):
    """One step of a runbook; the base class of all steps.

    Its module's docstring explains the step in five paragraphs (:data:`HEADINGS`).
    """

    id: str
    title: str
    hazard: Hazard

    def observe(self, c: Context, look: Look) -> F:
        """Return this step's facts as a frozen value; the only method that may look."""

    def check(self, c: Context, f: F) -> Verdict:
        """Decide from the facts alone, for the direction ``c.way``."""

    def plan(self, c: Context, f: F, target: str) -> Changes:
        """Return all forward changes of one target; used by plan, runbook, staging and run."""

    def undo(self, c: Context, f: F, target: str, applied: tuple[Applied, ...]) -> Changes:
        """Return the changes that undo one target, given its journaled changes, oldest first."""

    def forecast(self, c: Context, look: Look) -> Forecast[F] | None:
        """Return what the step will see when the walk reaches it; by default, what it sees now.

        Return None if that is only known when the step is reached. Raises HostError if a look failed.
        """
        return Forecast(self.observe(c, look))

    def basis(self, c: Context, f: F) -> Mapping[str, str] | None:
        """Return the values on which a saved plan of this step depends, as texts by name.

        The plan is stale if and only if one of these values differs. If None is returned, the plan is stale
        unless every change is identical, with all of its content.
        """
        return None


class Reads(Step[F]):
    """Base class of a step that sends nothing and that is only walked forward."""

    hazard = Hazard.READ_ONLY

    def plan(self, c: Context, f: F, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: F, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()


AnyStep: TypeAlias = Step[Any]


HEADINGS = ("What", "Why now", "Clients may notice", "Way back", "Proof")
_START = re.compile(rf"^({'|'.join(HEADINGS)}):[ \n]", re.MULTILINE)


@dataclass(frozen=True)
class Brief:
    """The five paragraphs of a step's module docstring, each as one line and empty if missing.

    A paragraph begins with one of ``HEADINGS`` and ends at the next. The prompt, ``plan`` and the runbook
    show them.
    """

    what: str
    why_now: str
    clients_may_notice: str
    way_back: str
    proof: str

    def lines(self) -> tuple[str, ...]:
        """Return ``Heading: text`` for every paragraph that is not empty."""
        texts = (self.what, self.why_now, self.clients_may_notice, self.way_back, self.proof)
        return tuple(f"{heading}: {text}" for heading, text in zip(HEADINGS, texts, strict=True) if text)


def brief_of(step: AnyStep) -> Brief:
    """Return the brief of a step, from the docstring of the module that defines its class."""
    return brief_in(sys.modules[type(step).__module__].__doc__ or "")


def brief_in(text: str) -> Brief:
    """Return the brief that a docstring contains."""
    pieces = _START.split(text)
    found = {
        heading: " ".join(body.replace("``", "`").split())
        for heading, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    return Brief(*(found.get(heading, "") for heading in HEADINGS))
