"""The claims of a verdict, each with its value, whether it held and its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.runbook.model.finding import Held


@dataclass(frozen=True)
class Claim:
    """One line of the verdict.

    value: a JSON value, None when it could not be computed. needed: what it had to be, in words. source: its
    files. detail: why it did not hold, or what helps to read it.
    """

    id: str
    value: Any
    held: Held
    needed: str
    source: str
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """All claims of one run."""

    claims: tuple[Claim, ...]
    torn: Mapping[str, int] = field(default_factory=dict)
    """Torn last lines per file that had one."""

    @property
    def held(self) -> bool:
        """True only when every claim held: unknown is not yes."""
        return all(claim.held is Held.YES for claim in self.claims)

    def __getitem__(self, id: str) -> Claim:
        return next(claim for claim in self.claims if claim.id == id)

    def result(self) -> dict[str, Any]:
        """The verdict for ``result.json``: the values on top, their grounds under ``claims``."""
        grounds = {
            claim.id: {
                "held": claim.held.value, "needed": claim.needed, "source": claim.source,
                "detail": claim.detail,
            }
            for claim in self.claims
        }  # fmt: skip
        values = {claim.id: claim.value for claim in self.claims}
        return {**values, "held": self.held, "claims": grounds, "torn_lines": dict(self.torn)}


def truth(good: bool, problems: Iterable[str], *, bad_is_certain: bool = False) -> Held:
    """YES only for ``good`` without ``problems`` of files, else UNKNOWN.

    bad_is_certain: NO, whatever the files lack.
    """
    if bad_is_certain:
        return Held.NO
    if any(problems):
        return Held.UNKNOWN
    return Held.YES if good else Held.NO


def explain(*parts: str) -> str:
    """The non-empty parts in one line."""
    return "; ".join(part for part in parts if part)
