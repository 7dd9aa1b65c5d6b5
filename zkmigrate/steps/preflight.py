"""What: look at everything that could go wrong and can be seen beforehand; change nothing.

Why now: every later step rests on it, and on day one it is useful by itself.

Clients may notice: nothing; it only reads.

Way back: nothing was changed.

Proof: every blocking check holds; unknown never passes.
"""

from __future__ import annotations

from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.finding import Finding, blocking
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Hazard, Step, Verdict, Way
from zkmigrate.preflight import run_preflight


class PreflightStep(Step[tuple[Finding, ...]]):
    """See the module. gate: which checks are due, ``preflight``, ``roll`` or ``cutover``."""

    id = "preflight"
    title = "Preflight"
    hazard = Hazard.READ_ONLY

    def __init__(self, gate: str = "preflight") -> None:
        self.gate = gate

    def observe(self, c: Context, look: Look) -> tuple[Finding, ...]:
        return run_preflight(c, look, self.gate)

    def check(self, c: Context, f: tuple[Finding, ...], way: Way) -> Verdict:
        if way is Way.BACK:
            return Done()
        return Blocked(f) if blocking(f) else Done(f)

    def plan(self, c: Context, f: tuple[Finding, ...], target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: tuple[Finding, ...], target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()
