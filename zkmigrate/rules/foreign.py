"""Foreign clients of dest: what writes there after OPEN while others of its kind still write to source."""

from __future__ import annotations

from zkmigrate.facts.tenants import Tenants
from zkmigrate.model.finding import Finding, claim

FOREIGN = "dest.foreign-client"
NO_FOREIGNER = "dest has no client beside the brokers, the operator and the canary"

_NEEDED = "no session of anybody else on dest"
_MOVES = (
    "stop this client, or give it source's addresses",
    "if somebody answers for it: name it under accept in migration.yml, then resume",
)
_BLIND = ("allow cons and dump in dest's 4lw.commands.whitelist, and let the ssh account run ss",)


def foreign(found: Tenants) -> tuple[Finding, ...]:
    """One finding for each address, with the ephemerals it owns; unknown where a host's clients are."""
    findings = [
        claim(FOREIGN, NO_FOREIGNER, False, seen=t.words(), needed=_NEEDED, target=t.address, moves=_MOVES)
        for t in found.found
    ]
    if found.unknown:
        seen = "; ".join(found.unknown)
        findings.append(claim(FOREIGN, NO_FOREIGNER, None, seen=seen, needed=_NEEDED, moves=_BLIND))
    return tuple(findings) or (claim(FOREIGN, NO_FOREIGNER, True, seen="none", needed=_NEEDED),)
