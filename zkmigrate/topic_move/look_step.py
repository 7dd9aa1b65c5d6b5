"""What: check gateways, mirror, groups and clients of the set; change nothing.

Why now: each later step rests on it, and a client that cannot switch must show before anybody waits.

Clients may notice: nothing; it only reads.

Way back: nothing was changed.

Proof: every gateway answers and reaches each broker of both clusters, each application is open on source,
every partition is mirrored, and no group is in the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.model.look import Look, MirrorSurvey
from zkmigrate.model.step import Context, Done, Reads, Verdict
from zkmigrate.moves.rules.accepted import accepted
from zkmigrate.topic_move.facts import Copiers, Gateways, Looked, copiers, forward, gateways
from zkmigrate.topic_move.rules import not_silent, reached, surveyed, unread, used
from zkmigrate.topic_move.section import move_of, switched


@dataclass(frozen=True)
class LookFacts:
    """there, back: the copiers to target and to source. at: seconds since the epoch."""

    gateways: Gateways
    survey: Reading[MirrorSurvey]
    there: Copiers
    back: Copiers
    at: float


class LookStep(Reads[LookFacts]):
    id = Looked.step
    title = "Look at gateways, mirror and clients"

    def observe(self, c: Context, look: Look) -> LookFacts:
        move, topics = move_of(c.inventory).topic_move, switched(c.inventory)
        return LookFacts(
            gateways(c, look),
            forward(c, look).survey(topics.topics, topics.groups),
            copiers(c, look, move.target),
            copiers(c, look, move.source),
            look.wall(),
        )

    def check(self, c: Context, f: LookFacts) -> Verdict:
        later = tuple(tuple(one) for one in f.survey.value.later) if isinstance(f.survey, Seen) else ()
        found = accepted(c.inventory.accept, tuple(_findings(c, f)), f.at)
        return Done.unless_blocked(found, Looked(later).encode())


def _findings(c: Context, f: LookFacts) -> Iterator[Finding]:
    move = move_of(c.inventory).topic_move
    yield from f.gateways.unknown
    yield from f.gateways.outside(
        "switch.start",
        lambda app: app.gate == "open" and app.route == move.source,
        f"open on {move.source}",
    )
    yield from used(f.gateways)
    if isinstance(f.survey, Seen):
        here, there = f.survey.value.brokers
        yield reached(f.gateways, move.source, here, Severity.WARN)
        yield reached(f.gateways, move.target, there)
        yield from surveyed(f.survey.value)
    else:
        yield unread("the mirror", f.survey)
    yield from not_silent(f.there)
    yield from not_silent(f.back)
    yield claim(
        "switch.copies",
        f"a copier to {move.target} runs on every mirror host",
        not f.there.down,
        seen=f"down on {few(f.there.down)}" if f.there.down else f.there.unit,
        needed=f"{f.there.unit} active",
        moves=("start it, and wait until the mirror is equal",),
    )
    yield claim(
        "switch.copies-back",
        f"no copier to {move.source} runs",
        not f.back.running,
        seen=f"running on {few(f.back.running)}" if f.back.running else "none",
        needed=f"{f.back.unit} stopped: two copiers would copy each other's records",
        moves=("stop it",),
    )


MEANINGS = meanings(
    """
    switch.start: An application is not open on source. Cause: Another run holds it, or it has switched
    already. To do: Look at zkmigrate gateway status. Exchange topic_move.source and target for the way
    back.

    switch.copies: No copier to target runs on a mirror host. Cause: Its unit is down. To do: Start it,
    and wait until the mirror is equal.

    switch.copies-back: A copier to source runs. Cause: It was left from an earlier switch. To do: Stop
    it, or exchange topic_move.source and target.
    """
)
