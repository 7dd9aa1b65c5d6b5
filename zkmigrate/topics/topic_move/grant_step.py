"""What: give the rights to write on target that the step look found on source only.

Why now: both clusters are equal, and all requests wait. A write on target before this would have ended the
mirror.

Clients may notice: they still wait. Without these rights their first request on target would fail.

Way back: these rights are taken away again.

Proof: every broker of target reports these ACLs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.runbook.model.step_record import known, needed
from zkmigrate.topics.mirror.changes import MIRRORED, AlterAcls
from zkmigrate.topics.mirror.questions import FindGranted, Granted, SurveyMirror
from zkmigrate.topics.topic_move.facts import Looked, forward
from zkmigrate.topics.topic_move.rules import cannot_read
from zkmigrate.topics.topic_move.section import switched

RIGHTS = "target-acls"
"""The name that the step uses as target of the change that alters ACLs."""
_POLL_S = 0.05


@dataclass(frozen=True)
class GrantFacts:
    """Facts for the step grant.

    needed: the ACLs that the step look found missing on target. granted: which of them target's brokers have
    now.
    """

    needed: frozenset[Acl]
    granted: Reading[Granted]


class GrantStep(Step[GrantFacts]):
    id = "grant"
    title = "Grant the rights to write on target"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> GrantFacts:
        looked = known(Looked, c) if c.way is Way.BACK else needed(Looked, c)
        acls = [Acl(*one) for one in looked.later] if looked else []
        if not acls:
            return GrantFacts(frozenset(), Seen(_NOWHERE))
        return GrantFacts(frozenset(acls), look.ask(FindGranted(*forward(c), acls)))

    def check(self, c: Context, f: GrantFacts) -> Verdict:
        if not isinstance(f.granted, Seen):
            # A right that stays on target makes no client wait.
            return Blocked((cannot_read("target's ACLs", f.granted),), others_back=True)
        if c.way is Way.BACK:
            return Ready((RIGHTS,)) if f.granted.value.somewhere else Done()
        missing = f.needed - f.granted.value.everywhere
        if missing and "sent" in c.kept:
            told = f"{len(missing)} ACLs are missing on a broker"
            return Waiting("every broker of target has the ACLs", told, 10.0, _POLL_S, keep=c.kept)
        if missing:
            return Ready((RIGHTS,), keep={"sent": True})
        return Done(
            (
                claim(
                    "switch.granted",
                    "users who may write on source may write on target",
                    True,
                    seen=f"ACLs granted by this run: {len(f.needed)}",
                ),
            )
        )

    def plan(self, c: Context, f: GrantFacts, target: str) -> Changes:
        assert isinstance(f.granted, Seen)
        return _changes("grant", f.needed - f.granted.value.everywhere)

    def undo(self, c: Context, f: GrantFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        assert isinstance(f.granted, Seen)
        return _changes("revoke", f.granted.value.somewhere)

    def forecast(self, c: Context, look: Look) -> Forecast[GrantFacts]:
        topics = switched(c.inventory)
        survey = look.ask(SurveyMirror(*forward(c), topics.topics, topics.groups))
        later = frozenset(survey.value.later) if isinstance(survey, Seen) else frozenset[Acl]()
        return Forecast(GrantFacts(later, Seen(_NOWHERE)))


_NOWHERE = Granted(frozenset(), frozenset())


def _changes(action: Literal["grant", "revoke"], acls: Collection[Acl]) -> Changes:
    return (AlterAcls(MIRRORED, action, tuple(tuple(one) for one in sorted(acls))),) if acls else ()


MEANINGS = meanings(
    """
    switch.granted: Target lacks rights to write. Cause: The step is not finished. To do: Wait, or resume.
    """
)
