"""The check of the machine on which zkmigrate runs."""

from __future__ import annotations

from collections.abc import Iterator

from zkmigrate.move.preflight.check import ALWAYS, Judged, Scope, check, unseen
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import OPERATOR, Severity
from zkmigrate.runbook.model.step import Context


@check(OPERATOR, "this machine has one of the operator's addresses", Scope.CLUSTER, ALWAYS,
       Severity.WARN)  # fmt: skip
def address(c: Context, e: Evidence) -> Iterator[Judged]:
    """The fence lets only the operator's addresses pass. Behind NAT the hosts may see another address than
    this machine has, so the check warns. If no host lets this machine in, it is probably the wrong
    machine: then the check blocks and is shown first.

    To do: Run zkmigrate on the machine that operator names, or correct operator in migration.yml.
    """
    given = c.inventory.operator
    needed = f"one of {', '.join(given)}"
    if not isinstance(e.here, Seen):
        yield unseen(e.here, needed)
        return
    alone = bool(e.dates) and not any(isinstance(dated.clock, Seen) for dated in e.dates.values())
    own = [text for text in e.here.value if text in given]
    towards = ", ".join(e.here.value) or "no address at all"
    seen = f"it has {', '.join(own)}" if own else f"it has none of these addresses; it sends from {towards}"
    right = f"run zkmigrate on the machine that has {' or '.join(given)}; is this the right one?"
    moves = (
        right,
        "if the hosts see this machine under another address, add it to operator in migration.yml",
    )
    if not own and alone:
        seen += "; and no host lets it in"
    yield Judged(bool(own), seen, needed, moves=moves, blocks=alone and not own)


CHECKS = (address,)
