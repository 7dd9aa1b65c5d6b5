"""What a check is: one claim, when it counts, and a pure function from evidence to verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TypeAlias, get_args

from zkmigrate.move.dependent import Words
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.runbook.model.fact import Absent, NotHeard, Reading, Unknown
from zkmigrate.runbook.model.finding import AGAIN, Finding, Severity, claim
from zkmigrate.runbook.model.step import Context


class Gate(StrEnum):
    """The points at which the run stops unless its checks hold, in this order."""

    PREFLIGHT = "preflight"
    ROLL = "roll"
    CUTOVER = "cutover"


class Scope(StrEnum):
    """Whether a check makes one claim about the whole, or one about each host of a role."""

    CLUSTER = "cluster"
    SOURCE = "each source host"
    DEST = "each dest host"
    BROKERS = "each broker"
    OWN = "each dest host and broker"
    EACH = "each host"


@dataclass(frozen=True)
class Judged:
    """Whether the claim held for one target; None is unknown. The rest as in a Finding.

    later: it cannot be seen yet and has no weight at this gate; one of the later gates shows it.
    blocks: it stands in the way here, although its check warns.
    """

    held: bool | None
    seen: str
    needed: str = ""
    target: str = ""
    moves: tuple[str, ...] = ()
    cause: str = ""
    later: bool = False
    blocks: bool = False


Decide: TypeAlias = Callable[[Context, Evidence], Iterable[Judged]]

AT_FIRST = (Gate.PREFLIGHT,)
ALWAYS = (Gate.PREFLIGHT, Gate.ROLL, Gate.CUTOVER)
JOINED = (Gate.ROLL, Gate.CUTOVER)
NOT_HEARD = (
    "see why it does not answer: is it up, is its address right, does a firewall let this machine through"
)


@dataclass(frozen=True)
class Check:
    """One check.

    gates: where it runs and counts, in order; before the first of them it is *later*. early: it runs before
    its first gate all the same, as a warning. about: why it matters and what it reads. todo: what to do where
    it fails.
    """

    id: str
    claim: str
    scope: Scope
    gates: tuple[Gate, ...]
    severity: Severity
    early: bool
    about: str
    todo: str
    decide: Decide

    def of(self, words: Words) -> Check:
        """The check in the words of a dependent: ``{one}`` and the others of :class:`Words` filled in."""
        told = {field.name: getattr(words, field.name) for field in fields(words)}
        own = (self.id, self.claim, self.about, self.todo)
        id, sentence, about, todo = (text.format_map(told) for text in own)
        return replace(self, id=id, claim=sentence, about=about, todo=todo)

    def findings(self, c: Context, e: Evidence, gate: Gate) -> tuple[Finding, ...]:
        """The findings at a gate; none where the check is over, one of no weight where it comes later."""
        if gate not in self.gates:
            order = list(Gate)
            if order.index(gate) > order.index(self.gates[0]):
                return ()
            if not self.early:
                text = f"later: checked at the gate {self.gates[0]}"
                return (claim(self.id, self.claim, None, seen=text, severity=Severity.INFO),)
        severity = self.severity if gate in self.gates else Severity.WARN
        return tuple(
            claim(
                self.id,
                self.claim,
                j.held,
                seen=j.seen,
                needed=j.needed,
                moves=() if j.held or j.later else (*j.moves, AGAIN),
                target=j.target,
                severity=Severity.INFO if j.later else Severity.BLOCK if j.blocks else severity,
                cause=j.cause,
            )
            for j in self.decide(c, e)
        )


def check(
    id: str,
    claim: str,
    scope: Scope,
    gates: tuple[Gate, ...] = AT_FIRST,
    severity: Severity = Severity.BLOCK,
    early: bool = False,
) -> Callable[[Decide], Check]:
    """Make a Check of a function. Its docstring is ``about`` and, behind "To do:", ``todo``."""

    def made(decide: Decide) -> Check:
        about, _, todo = " ".join((decide.__doc__ or "").split()).partition(" To do: ")
        return Check(id, claim, scope, gates, severity, early, about, todo, decide)

    return made


def unseen(
    reading: Reading[object], needed: str = "", target: str = "", moves: tuple[str, ...] = ()
) -> Judged:
    """The verdict over evidence that could not be had: unknown, so it does not pass. moves: where the host
    answers; one that does not leaves another."""
    if not isinstance(reading, Unknown):
        return Judged(None, why(reading), needed, target, moves)
    heard = reading.cause not in get_args(NotHeard)
    return Judged(None, why(reading), needed, target, moves if heard else (NOT_HEARD,), reading.cause)


def why(reading: Reading[object]) -> str:
    """A reading that is not what was hoped for, as text."""
    if isinstance(reading, Unknown):
        return str(reading)
    if isinstance(reading, Absent):
        return f"absent: {reading.what}" if reading.what else "absent"
    return str(reading.value)
