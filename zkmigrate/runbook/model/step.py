"""Step: one readable file of the runbook, with its undo.

The engine's loop (``runbook/engine/run.py``): observe; ``Done`` or ``Blocked`` end the step; ``Waiting``
pauses; ``Ready`` applies ``plan`` (or ``undo``) for each target; again.
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
    """What a step can do to others. READ_ONLY: it sends nothing, and the engine refuses a change of it. LATE:
    it reads, and sends a host only what that host missed of an earlier step. WINDOW: under a lease with a
    deadline. FINAL: no plain way back."""

    READ_ONLY = "read-only"
    LATE = "read-only but for a late change"
    REVERSIBLE = "reversible"
    WINDOW = "window"
    FINAL = "final"

    @property
    def reads(self) -> bool:
        """Whether the step sends nothing of its own: nobody is asked before it and nothing is undone."""
        return self in (Hazard.READ_ONLY, Hazard.LATE)


class Way(StrEnum):
    """The direction a step is walked in."""

    FORWARD = "forward"
    BACK = "back"


@dataclass(frozen=True)
class Done:
    """The step is complete in this direction. findings: the evidence. record: facts for later steps,
    journaled under the step's id (JSON values only)."""

    findings: tuple[Finding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def unless_blocked(findings: tuple[Finding, ...], record: Mapping[str, Any] | None = None) -> Verdict:
        """``Blocked`` where one of the findings blocks, else ``Done``."""
        return Blocked(findings) if blocking(findings) else Done(findings, record or {})


@dataclass(frozen=True)
class Ready:
    """These targets can be changed now, all at once, as one wave. record: as in ``Done``, but durable before
    the wave's first change: an original map that the way back needs, or a plan that must not be made twice.
    Going back nothing is recorded, unless ``both_ways``. While ``Context.begun`` the step uses the record it
    finds; otherwise that belongs to an earlier walk. With a lost journal there may be none. keep: as in
    ``Waiting``. ask: findings, each with a target, about which the operator is asked before this wave."""

    targets: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    both_ways: bool = False
    keep: Mapping[str, Any] = field(default_factory=dict)
    ask: tuple[Finding, ...] = ()


class Far(NamedTuple):
    """How far a step is in its direction: how many targets are done, of how many, bytes that are still to be
    copied, and estimated seconds for the rest, None where unknown."""

    done: int
    of: int
    bytes_left: int
    left_s: float | None


@dataclass(frozen=True)
class Waiting:
    """Nothing to do but wait. what: a clause that fits after "until". deadline_s: counts from the first
    return of the same ``what``. keep: facts for the next looks of this visit, in ``Context.kept``; not
    journaled. mark: progress, compared with the look before; the wait fails once it stays the same for
    ``stalled_s``, so that hours of progress are waited for and a standstill is not. far: of a step that
    tells how far it is. moves: what else an operator can do where the wait fails."""

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
    """The step cannot go on; the findings say why and what is possible. no_way_back: going back, there is no
    way back any more: the run's direction is forward from here. others_back: going back, every target that
    answers is back; the findings name the others, for which the steps before need not wait."""

    findings: tuple[Finding, ...]
    no_way_back: bool = False
    others_back: bool = False


Verdict: TypeAlias = Done | Ready | Waiting | Blocked


Records: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What steps recorded and how long they took, from ``History.records``."""


Teller: TypeAlias = Callable[[str, str], None]
"""Takes what a long look is after, and its progress: ``12 of 40 transactions``."""


def tell_nobody(_what: str, _progress: str) -> None:
    """For looks that nobody watches."""


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
    """What every step of a run knows without looking.

    - run: id of the run, ``[a-z0-9-]{1,24}``. way: the direction of the walk.
    - rehearsal: the cut-over steps rehearse. fencing: this operator's fencing number.
    - records: step id → the record it journaled last (baseline, zxids, times).
    - unrestored: targets of this step with files that were written or moved aside, or cluster settings, and
      not put back. unconfirmed: targets with a change that was refused or has an unknown outcome.
    - begun: changes of this step were, or may have been, sent and are not undone; true with a lost journal.
    - kept: what the step's last ``Waiting`` or ``Ready`` of this visit kept. tell: shows the progress of long
      looks.
    - retired: brokers left out of the run; the inventory does not name them.
    - hold_at: the step of the window after which ``--hold-at`` holds.
    - overrides: the rates that ``zkmigrate throttle`` set for this run.
    - note: leaves a sample for the report.
    - over: the time of ``--until`` has come: the engine ends the run in place of the next wave. ends_at: that
      time, seconds since the epoch; None without one.
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
    """A step at its turn, as far as it can be known before the run. facts: what it will see, as ``plan`` and
    ``undo`` take them. targets: whom it will change, where ``check`` cannot tell yet; None: those that it
    makes ``Ready``. records: what earlier steps will have recorded, with words for what only the run can
    know."""

    facts: F
    targets: tuple[str, ...] | None = None
    records: Records = field(default_factory=dict)


class Step(Protocol[F]):
    """One step, the base of its class. Its module's docstring says what, why now, what a client may notice,
    way back, proof."""

    id: str
    title: str
    hazard: Hazard

    def observe(self, c: Context, look: Look) -> F:
        """This step's frozen facts; the only method that may look."""

    def check(self, c: Context, f: F) -> Verdict:
        """Decide from facts alone, in the direction ``c.way``."""

    def plan(self, c: Context, f: F, target: str) -> Changes:
        """All changes of one target, forward; used by plan, runbook, staging and run."""

    def undo(self, c: Context, f: F, target: str, applied: tuple[Applied, ...]) -> Changes:
        """The way back for one target, from its journaled changes, oldest first."""

    def forecast(self, c: Context, look: Look) -> Forecast[F] | None:
        """What the step will see at its turn; by default what it sees now. None: only known when the step is
        reached. HostError where a look for it failed."""
        return Forecast(self.observe(c, look))

    def basis(self, c: Context, f: F) -> Mapping[str, str] | None:
        """What a saved plan of this step rests on, by name, in words: the plan is stale when one of these
        differs, and only then. None: each change must be the same, with all of its content."""
        return None


class Reads(Step[F]):
    """Base of a step that sends nothing and is walked forward only."""

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
    """The five paragraphs of a step's module docstring as single lines, empty where missing. A paragraph
    begins with one of ``HEADINGS`` and ends at the next. The prompt, ``plan`` and the runbook show them."""

    what: str
    why_now: str
    clients_may_notice: str
    way_back: str
    proof: str

    def lines(self) -> tuple[str, ...]:
        """``Heading: text`` for every section."""
        texts = (self.what, self.why_now, self.clients_may_notice, self.way_back, self.proof)
        return tuple(f"{heading}: {text}" for heading, text in zip(HEADINGS, texts, strict=True) if text)


def brief_of(step: AnyStep) -> Brief:
    """The brief of a step, from the docstring of its class's module."""
    return brief_in(sys.modules[type(step).__module__].__doc__ or "")


def brief_in(text: str) -> Brief:
    """The brief in a docstring."""
    pieces = _START.split(text)
    found = {
        heading: " ".join(body.replace("``", "`").split())
        for heading, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    return Brief(*(found.get(heading, "") for heading in HEADINGS))
