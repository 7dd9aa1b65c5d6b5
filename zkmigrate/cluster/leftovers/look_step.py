"""What: find what deleted topics and past operations left behind; change nothing.

Why now: every entry that is named for removal must be a leftover, and no reassignment may be in flight.

Clients may notice: nothing.

Way back: nothing was changed.

Proof: the list of leftovers, each with kind, name, size, age, the reason why it is one, and the cost of its
removal.
"""

from __future__ import annotations

from zkmigrate.cluster.leftovers.facts import Scan, scan
from zkmigrate.cluster.leftovers.rules import quiet, report
from zkmigrate.runbook.model.finding import blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict


class LeftoversCheckStep(Reads[Scan]):
    id = "scan"
    title = "Find leftovers"

    def observe(self, c: Context, look: Look) -> Scan:
        return scan(c, look)

    def check(self, c: Context, f: Scan) -> Verdict:
        findings = quiet(c, f)
        if blocking(findings):
            return Blocked(findings)
        return Done.unless_blocked((*findings, *report(c, f)))
