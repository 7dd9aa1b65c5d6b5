"""The type of a check: a claim, the gates where it counts, and a pure function that judges evidence."""

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
    """What a check is about: the whole cluster, or each host of a role."""

    CLUSTER = "cluster"
    SOURCE = "each source host"
    DEST = "each dest host"
    BROKERS = "each broker"
    OWN = "each dest host and broker"
    EACH = "each host"


@dataclass(frozen=True)
class Judged:
    """The verdict about the claim for one target.

    held: None means unknown. later: whether the claim cannot be judged yet; it then cannot block at this
    gate, and a later gate shows it. blocks: whether it blocks here, although its check only warns. The other
    fields are those of a Finding.
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
    """One check of the preflight.

    gates: where it runs and counts, in order; before the first of them it is shown as *later*. early: whether
    it also runs before its first gate, as a warning. about: why it matters and what it reads. todo: what to
    do if it fails.
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
        """Return the check in the words of a dependent.

        It replaces ``{one}`` and the other fields of :class:`Words`.
        """
        told = {field.name: getattr(words, field.name) for field in fields(words)}
        own = (self.id, self.claim, self.about, self.todo)
        id, sentence, about, todo = (text.format_map(told) for text in own)
        return replace(self, id=id, claim=sentence, about=about, todo=todo)

    def findings(self, c: Context, e: Evidence, gate: Gate) -> tuple[Finding, ...]:
        """Return the findings at a gate.

        Before the check's first gate there is one finding that cannot block, unless the check is early. There
        are none at a later gate where the check does not count.
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
    """Turn a function into a Check. Its docstring is ``about`` and, after "To do:", ``todo``."""

    def made(decide: Decide) -> Check:
        about, _, todo = " ".join((decide.__doc__ or "").split()).partition(" To do: ")
        return Check(id, claim, scope, gates, severity, early, about, todo, decide)

    return made


def unseen(
    reading: Reading[object], needed: str = "", target: str = "", moves: tuple[str, ...] = ()
) -> Judged:
    """Return the verdict for evidence that could not be read: unknown, so it does not pass.

    moves: what to do if the host answers. For a host that does not answer, NOT_HEARD replaces them.
    """
    if not isinstance(reading, Unknown):
        return Judged(None, why(reading), needed, target, moves)
    heard = reading.cause not in get_args(NotHeard)
    return Judged(None, why(reading), needed, target, moves if heard else (NOT_HEARD,), reading.cause)


def why(reading: Reading[object]) -> str:
    """Return as text what a reading has instead of the expected value."""
    if isinstance(reading, Unknown):
        return str(reading)
    if isinstance(reading, Absent):
        return f"absent: {reading.what}" if reading.what else "absent"
    return str(reading.value)
