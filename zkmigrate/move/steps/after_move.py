"""What: check dest, the brokers and source in the days after a move; change nothing.

Why now: an old file that comes back, or a client left on source, splits the cluster unnoticed.

Clients may notice: nothing; the checks open no session on either ensemble.

Way back: nothing was changed.

Proof: every claim holds; an unknown claim never passes.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.inventory.accept import Accept
from zkmigrate.move.dependent import OfDependent
from zkmigrate.move.facts.after_move import AfterMove, LogPosition, look_after_move
from zkmigrate.move.facts.records import Proved, Surveyed, seconds
from zkmigrate.move.rules import after_move
from zkmigrate.runbook.accepted import accepted, known_writes
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict
from zkmigrate.runbook.model.step_record import known


@dataclass(frozen=True)
class AfterMoveFacts:
    """The facts of one look after the move.

    known: the writes to source that a person has accepted. wall: when the look was made, in seconds since the
    epoch.
    """

    seen: AfterMove
    known: Accept | None
    wall: float


class AfterMoveStep(OfDependent, Reads[AfterMoveFacts]):
    id = "look"
    title = "Look at dest, brokers and source"

    def observe(self, c: Context, look: Look) -> AfterMoveFacts:
        wall, position = look.wall(), proof_end(c)
        writes = known_writes(c.inventory.accept, wall)
        if position is not None and writes is not None and writes.zxid > position.zxid:
            position = LogPosition(position.host, writes.zxid)
        else:
            writes = None
        return AfterMoveFacts(look_after_move(c.inventory, self.dependent, look, position), writes, wall)

    def check(self, c: Context, f: AfterMoveFacts) -> Verdict:
        found = after_move.findings(c.inventory, f.seen, f.known)
        return Done.unless_blocked(accepted(c.inventory.accept, found, f.wall))


def proof_end(c: Context) -> LogPosition | None:
    """Return where PROVE stopped reading source's log; None before dest was opened to clients."""
    proved, survey = known(Proved, c), known(Surveyed, c)
    if "open" not in seconds(c, "cutover") or proved is None or survey is None:
        return None
    return LogPosition(survey.leader, proved.delta.last, proved.cursor)
