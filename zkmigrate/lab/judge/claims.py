"""Define the claims of a verdict, each with its value, its result and the files that it is based on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.runbook.model.finding import Held


@dataclass(frozen=True)
class Claim:
    """One statement of the verdict.

    value: a JSON value; None if it could not be computed. needed: the required value, in words. source: the
    files from which the value is computed. detail: why the claim did not hold, or other helpful information.
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
    """The number of incomplete last lines, for each file that has one."""

    @property
    def held(self) -> bool:
        """Whether every claim held. An unknown claim has not held."""
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

    bad_is_certain: the files refute the claim, even if they are incomplete. problems: why files are
    incomplete; empty strings are ignored.
    """
    if bad_is_certain:
        return Held.NO
    if any(problems):
        return Held.UNKNOWN
    return Held.YES if good else Held.NO


def explain(*parts: str) -> str:
    """Return the non-empty parts, joined by semicolons."""
    return "; ".join(part for part in parts if part)
