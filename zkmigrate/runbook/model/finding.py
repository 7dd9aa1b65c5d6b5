"""Findings: each is one claim about the world, whether it held, and the evidence.

Preflight results, refusals and proofs are findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

ACCESS = "host.access"
"""Id of the check that best explains why a host that may be changed does not answer."""

LOGIN = "host.login"
"""Id of the check that best explains why any host does not answer."""

OPERATOR = "operator.address"
"""Id of the check that reports whether this is the wrong machine."""

NO_WAY_BACK = "open.no-way-back"
"""Id of the finding that a host has opened its door, after which no run walks back."""

AGAIN = "fix the cause, then check again"
"""The last move of a check that failed."""


class Held(StrEnum):
    """Whether a claim held. ``UNKNOWN`` never passes."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


_VERDICT = {Held.YES: "Held", Held.NO: "Failed", Held.UNKNOWN: "Unknown"}


class Severity(StrEnum):
    """The consequence of a claim that does not hold: BLOCK stops the gate; WARN and INFO do not."""

    BLOCK = "block"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One claim and its evidence.

    - id: the same on screen, in the journal, the report, the docs and the test's name.
    - claim: what should be true. seen / needed: what was observed and what the claim needs.
    - moves: what the operator can do, as imperative sentences.
    - target: host or broker, empty for the whole cluster.
    - cause: the cause of one failed look, as in :class:`zkmigrate.runbook.model.fact.Unknown`, else empty.
    - accepted: the person who accepted it, until when, and the reason why it does not block; else empty.
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
        """Whether the finding stops a gate: its claim has severity BLOCK and is false or unknown."""
        return self.severity is Severity.BLOCK and self.held is not Held.YES

    @property
    def verdict(self) -> str:
        """The result as one line.

        It is the claim if that holds. Otherwise it is ``Failed`` or ``Unknown`` and what was seen; if nothing
        was seen, the claim that was expected.
        """
        if self.held is Held.YES:
            return self.claim
        return f"{self.word}: {self.seen}" if self.seen else f"{self.word}; expected: {self.claim}"

    @property
    def word(self) -> str:
        """The result as one word: ``Held``, ``Failed`` or ``Unknown``."""
        return _VERDICT[self.held]


@dataclass(frozen=True)
class Meaning:
    """The meaning of a finding that does not hold, for the page *findings* and ``zkmigrate help``.

    A word of the id in capitals matches any name, as in ``STEP.phase``. means: what a failed finding says.
    cause: how it comes about, or why it matters. todo: what to do, in imperatives.
    """

    id: str
    means: str
    cause: str
    todo: str


_REMEDIES: dict[str, str] = {}
"""What to do about a finding, by its id."""


def meanings(text: str) -> tuple[Meaning, ...]:
    """Parse a text of paragraphs ``ID: fact Cause: why To do: what``, and remember what to do.

    A module keeps the meanings of its findings in ``MEANINGS``. Raises ValueError for a paragraph that lacks
    a part.
    """
    parsed = tuple(map(_meaning, text.strip().split("\n\n")))
    todo = {one.id: one.todo.rstrip(".") for one in parsed}
    _REMEDIES.update({id: text for id, text in todo.items() if not text.startswith("Nothing")})
    return parsed


def _meaning(paragraph: str) -> Meaning:
    entry = " ".join(paragraph.split())
    parts = re.fullmatch(r"(\S+): (.+?) Cause: (.+?) To do: (.+)", entry)
    if parts is None:
        raise ValueError(f"not an entry with 'Cause:' and 'To do:': {entry}")
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
    """Return a finding about a claim.

    sentence: the claim. held: whether it is true; None: unknown. moves: what the operator can do, by default
    the remedy in ``MEANINGS`` for the id.
    """
    state = Held.UNKNOWN if held is None else Held.YES if held else Held.NO
    if not moves and not held and id in _REMEDIES:
        moves = (_REMEDIES[id],)
    return Finding(id, sentence, state, severity, seen, needed, tuple(moves), target, cause)


def each(values: Mapping[str, object]) -> str:
    """Return what was seen on each host, as one line; ``none`` without a host."""
    return "; ".join(f"{host}: {seen}" for host, seen in values.items()) or "none"


def doubts(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that need a decision before going on.

    Their claims are false or unknown, and their severity is not INFO.
    """
    return tuple(f for f in findings if f.held is not Held.YES and f.severity is not Severity.INFO)


def blocking(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that stop a gate."""
    return tuple(f for f in findings if f.blocks)


def few(names: Iterable[str], most: int = 5) -> str:
    """Return the first names as one line, and how many more there are."""
    listed: Sequence[str] = list(names)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return f"{', '.join(listed[:most])}{more}"
