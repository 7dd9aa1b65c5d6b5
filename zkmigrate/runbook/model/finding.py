"""Findings: one claim about the world, whether it held, and on what evidence. Preflight results, refusals and
proofs are findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

ACCESS = "host.access"
"""The check that best explains why a host that may be changed does not answer."""

LOGIN = "host.login"
"""The same for every host."""

OPERATOR = "operator.address"
"""The check that tells whether this is the wrong machine."""

NO_WAY_BACK = "open.no-way-back"
"""The finding that a host opened its door, so that no run walks back any more."""

AGAIN = "fix it, then look again"
"""The last move of a check that failed."""


class Held(StrEnum):
    """Whether a claim held. ``UNKNOWN`` never passes."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


_VERDICT = {Held.YES: "Held", Held.NO: "Failed", Held.UNKNOWN: "Unknown"}


class Severity(StrEnum):
    """What a claim that does not hold means: BLOCK stops the gate; WARN and INFO do not."""

    BLOCK = "block"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One claim.

    id: the same on screen, in the journal, the report, the docs and the test's name. claim: what should be
    true. seen / needed: what the world showed and what the claim needs. moves: what the operator can do, as
    imperative sentences. target: host or broker, empty for the whole cluster. cause: of one failed look, as
    in :class:`zkmigrate.runbook.model.fact.Unknown`, else empty. accepted: by whom, until when and why it
    does not block, else empty.
    """

    id: str
    claim: str
    held: Held
    severity: Severity = Severity.BLOCK
    seen: str = ""
    needed: str = ""
    moves: tuple[str, ...] = ()
    target: str = ""
    cause: str = ""
    accepted: str = ""

    @property
    def blocks(self) -> bool:
        """Whether it stops a gate: a blocking claim that is false or unknown."""
        return self.severity is Severity.BLOCK and self.held is not Held.YES

    @property
    def verdict(self) -> str:
        """What was seen, behind one word for how the claim stands; the claim itself where it holds or nothing
        was seen."""
        if self.held is Held.YES:
            return self.claim
        return f"{self.word}: {self.seen}" if self.seen else f"{self.word}; expected: {self.claim}"

    @property
    def word(self) -> str:
        """``Held``, ``Failed`` or ``Unknown``."""
        return _VERDICT[self.held]


@dataclass(frozen=True)
class Meaning:
    """What a finding means where it does not hold, for the page *findings* and ``zkmigrate help``.

    A word of the id in capitals stands for any name, as in ``STEP.phase``. means: the fact. cause: why it
    comes about, or why it matters. todo: what to do, in imperatives.
    """

    id: str
    means: str
    cause: str
    todo: str


def meanings(text: str) -> tuple[Meaning, ...]:
    """The meanings in a text of paragraphs ``ID: fact Cause: why To do: what``; a module keeps those of its
    findings in ``MEANINGS``. ValueError for a paragraph that lacks a part."""
    return tuple(map(_meaning, text.strip().split("\n\n")))


def _meaning(paragraph: str) -> Meaning:
    told = " ".join(paragraph.split())
    parts = re.fullmatch(r"(\S+): (.+?) Cause: (.+?) To do: (.+)", told)
    if parts is None:
        raise ValueError(f"not an entry with 'Cause:' and 'To do:': {told}")
    return Meaning(*parts.groups())


def claim(
    id: str,
    sentence: str,
    held: bool | None,
    *,
    seen: str = "",
    needed: str = "",
    moves: Sequence[str] = (),
    target: str = "",
    severity: Severity = Severity.BLOCK,
    cause: str = "",
) -> Finding:
    """A finding from a three-valued truth: ``None`` is unknown."""
    state = Held.UNKNOWN if held is None else Held.YES if held else Held.NO
    return Finding(id, sentence, state, severity, seen, needed, tuple(moves), target, cause)


def each(told: Mapping[str, object]) -> str:
    """What was seen, host by host; ``none`` without a host."""
    return "; ".join(f"{host}: {seen}" for host, seen in told.items()) or "none"


def doubts(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings over which somebody decides to go on: false or unknown, and more than a remark."""
    return tuple(f for f in findings if f.held is not Held.YES and f.severity is not Severity.INFO)


def blocking(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that stop a gate."""
    return tuple(f for f in findings if f.blocks)


def few(names: Iterable[str], most: int = 5) -> str:
    """The first of several names, and how many more follow."""
    listed: Sequence[str] = list(names)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return f"{', '.join(listed[:most])}{more}"
