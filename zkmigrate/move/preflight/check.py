"""The type of a check: a claim, the gates at which it counts, and a pure function that judges evidence."""

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
    """The points, in order, at which the run stops unless the checks of that point hold."""

    PREFLIGHT = "preflight"
    ROLL = "roll"
    CUTOVER = "cutover"


class Scope(StrEnum):
    """The targets of a check: the whole cluster, or each host of a role."""

    CLUSTER = "cluster"
    SOURCE = "each source host"
    DEST = "each dest host"
    BROKERS = "each broker"
    OWN = "each dest host and broker"
    EACH = "each host"


@dataclass(frozen=True)
class Judged:
    """The verdict about a check's claim for one target.

    held: whether the claim is true; None means unknown. later: whether the claim cannot be judged yet; it
    then cannot block at this gate, and a later gate shows it. blocks: whether the verdict blocks at this gate
    although the check only warns. The other fields are those of a Finding.
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
NOT_HEARD = "find out why the host does not answer: is it up, is its address right, does a firewall block it"


@dataclass(frozen=True)
class Check:
    """One check of the preflight.

    gates: the gates at which the check runs and counts, in order; at earlier gates it is shown as *later*.
    early: whether it also runs before its first gate, as a warning. about: why the claim matters and what the
    check reads. todo: what the operator can do if the check fails. decide: judges the evidence.
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
        """Return the check with the words of a dependent filled in.

        Each placeholder, such as ``{one}``, is replaced by the field of :class:`Words` with that name.
        """
        texts = {field.name: getattr(words, field.name) for field in fields(words)}
        own = (self.id, self.claim, self.about, self.todo)
        id, sentence, about, todo = (text.format_map(texts) for text in own)
        return replace(self, id=id, claim=sentence, about=about, todo=todo)

    def findings(self, c: Context, e: Evidence, gate: Gate) -> tuple[Finding, ...]:
        """Return the check's findings at a gate.

        Before the check's first gate this is one finding that cannot block, unless the check is early. At a
        later gate where the check does not count the result is empty.
        """
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
    """Return a decorator that turns a function into a Check.

    The function's docstring is split at "To do:" into ``about`` and ``todo``.
    """

    def made(decide: Decide) -> Check:
        about, _, todo = " ".join((decide.__doc__ or "").split()).partition(" To do: ")
        return Check(id, claim, scope, gates, severity, early, about, todo, decide)

    return made


def unseen(
    reading: Reading[object], needed: str = "", target: str = "", moves: tuple[str, ...] = ()
) -> Judged:
    """Return the verdict for evidence that could not be read: unknown, so the check does not pass.

    moves: what the operator can do if the host answers. If the host does not answer, NOT_HEARD is shown
    instead.
    """
    if not isinstance(reading, Unknown):
        return Judged(None, why(reading), needed, target, moves)
    answered = reading.cause not in get_args(NotHeard)
    return Judged(None, why(reading), needed, target, moves if answered else (NOT_HEARD,), reading.cause)


def why(reading: Reading[object]) -> str:
    """Return a text for a reading that is not as expected: the failure, "absent", or the value."""
    if isinstance(reading, Unknown):
        return str(reading)
    if isinstance(reading, Absent):
        return f"absent: {reading.what}" if reading.what else "absent"
    return str(reading.value)
