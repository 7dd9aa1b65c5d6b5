"""What: check everything that could go wrong and can be seen beforehand; change nothing.

Why now: every later step depends on these checks, and they are useful by themselves from the first day.

Clients may notice: nothing; the checks only read.

Way back: nothing was changed.

Proof: every blocking check holds; an unknown check never passes.
"""

from __future__ import annotations

from zkmigrate.move.dependent import AnyDependent, OfDependent
from zkmigrate.move.preflight import run_preflight
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict


class PreflightStep(OfDependent, Reads[tuple[Finding, ...]]):
    """Runs the checks of one gate: ``preflight``, ``roll`` or ``cutover``."""

    id = "preflight"
    title = "Preflight"

    def __init__(self, dependent: AnyDependent, gate: str = "preflight") -> None:
        super().__init__(dependent)
        self.gate = gate

    def observe(self, c: Context, look: Look) -> tuple[Finding, ...]:
        return run_preflight(c, self.dependent, look, self.gate)

    def check(self, c: Context, f: tuple[Finding, ...]) -> Verdict:
        return Done.unless_blocked(f)
