"""Define the claims of a verdict; each has its value, whether it held, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.runbook.model.finding import Held


@dataclass(frozen=True)
class Claim:
    """One statement of the verdict.

    value: a JSON value; None when it could not be computed. needed: the required value, in words. source: the
    files that it is computed from. detail: why it did not hold, or what helps to understand it.
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
    """Incomplete last lines per file that has one."""

    @property
    def held(self) -> bool:
        """Whether every claim held; an unknown claim did not."""
        return all(claim.held is Held.YES for claim in self.claims)

    def __getitem__(self, id: str) -> Claim:
        return next(claim for claim in self.claims if claim.id == id)

    def result(self) -> dict[str, Any]:
        """Return the verdict for ``result.json``: values at the top level, other fields under ``claims``."""
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
    """Return NO if ``bad_is_certain``, else UNKNOWN if there are ``problems``, else YES or NO by ``good``.

    bad_is_certain: the files prove the contrary, even if they are incomplete. problems: why files are
    incomplete; empty strings do not count.
    """
    if bad_is_certain:
        return Held.NO
    if any(problems):
        return Held.UNKNOWN
    return Held.YES if good else Held.NO


def explain(*parts: str) -> str:
    """Return the non-empty parts, joined by semicolons."""
    return "; ".join(part for part in parts if part)
