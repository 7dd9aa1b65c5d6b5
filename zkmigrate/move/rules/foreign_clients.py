"""Report clients of dest that belong neither to the members nor to the operator.

After OPEN such a client would write to dest, while other clients of its kind still write to source.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.move.dependent import AnyDependent, Words
from zkmigrate.move.facts.sessions import dumps_of
from zkmigrate.move.facts.tenants import Tenants, foreign_clients
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.four_letter_words import Connection

FOREIGN = "dest.foreign-client"
NO_FOREIGNER = "dest has no clients other than the {many}, the operator and the canary"
"""The claim that the findings are about. The placeholder ``many`` is the plural noun for the members."""

_NEEDED = "no session of any other client on dest"
_MOVES = (
    "stop this client, or give it source's addresses",
    "if its owner takes responsibility for it, add it under accept in migration.yml, then resume",
)
_BLIND = ("allow cons and dump in dest's 4lw.commands.whitelist, and let the ssh account run ss",)


def foreign_findings(
    c: Context, dependent: AnyDependent, look: Look, cons: Mapping[str, Reading[tuple[Connection, ...]]]
) -> tuple[Finding, ...]:
    """Return findings about the foreign clients that dest has now. An accepted finding only warns.

    cons: the answer of each dest host.
    """
    found = foreign_clients(c.inventory, dependent, look, cons, dumps_of(look, c.inventory.dest_names))
    return accepted(c.inventory.accept, foreign(dependent.words, found), look.wall())


def foreign(words: Words, found: Tenants) -> tuple[Finding, ...]:
    """Return a finding for each foreign client address, with the client's ephemerals.

    The finding is unknown for a host whose clients could not be read.
    """
    sentence = NO_FOREIGNER.format(many=words.many)
    findings = [
        claim(FOREIGN, sentence, False, seen=t.words(), needed=_NEEDED, target=t.address, moves=_MOVES)
        for t in found.found
    ]
    if found.unknown:
        seen = "; ".join(found.unknown)
        findings.append(claim(FOREIGN, sentence, None, seen=seen, needed=_NEEDED, moves=_BLIND))
    return tuple(findings) or (claim(FOREIGN, sentence, True, seen="none", needed=_NEEDED),)
