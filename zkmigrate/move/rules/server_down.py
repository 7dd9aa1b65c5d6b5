"""Judge whether source's servers run, and which one a person accepts to be down during the move."""

from __future__ import annotations

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.facts.ensemble import (
    Down,
    EnsembleView,
    mntr_of_leader,
    server_down,
    source_view,
)
from zkmigrate.zookeeper.facts.members import Members, source_members

ID = "source.server-down"
CLAIM = "the server of source serves"

_NEEDED = "a server that serves, or one that is down and accepted while the others keep the quorum"


def findings(view: EnsembleView, down: Down | str) -> tuple[Finding, ...]:
    """Return a finding for each source server; only that of a server that is certainly down can be accepted.

    view: the servers without the one that is down. down: see :func:`server_down`.
    """
    found = [_serves(view, host, down) for host in view.servers]
    return tuple(found) if isinstance(down, str) else (*found, down_finding(view, down))


def _serves(view: EnsembleView, host: str, reason: Down | str) -> Finding:
    reading, mode = view.servers[host], view.modes()[host]
    if isinstance(reading, Seen):
        return claim(ID, CLAIM, True, seen=mode, target=host)
    return claim(
        ID,
        CLAIM,
        None,
        seen=f"{mode}; nobody can accept it: {reason}",
        needed=_NEEDED,
        target=host,
        moves=(f"start the server on {host}, or find out why it does not answer",),
        cause=reading.cause if isinstance(reading, Unknown) else "",
    )


def down_finding(view: EnsembleView, down: Down) -> Finding:
    """Return the finding about the server that is down. view: the servers without it."""
    spare = f"{down.spare} to spare" if down.spare else "none to spare"
    votes = f"{down.serving} of {down.serving + 1} servers with a vote"
    return claim(
        ID,
        CLAIM,
        False,
        seen=f"{down.why}; without it the quorum holds: {votes} serve under {view.leader}, {spare}",
        needed=_NEEDED,
        target=down.host,
        moves=(
            f"start the server on {down.host}",
            f"if the move must not wait for it, add an accept entry for {ID} with target {down.host} to "
            "migration.yml",
        ),
    )


def servers_to_ask(inventory: Inventory, look: Look) -> tuple[str, ...]:
    """Return the source servers that a step asks: all but one that is down and that a person accepts.

    A server outside of the quorum serves no session, so it has no clients.
    """
    names = inventory.source_names
    if not any(one.finding == ID for one in inventory.accept):
        return names
    view = source_view(inventory, look)
    down = server_down(view, mntr_of_leader(look, view))
    if not isinstance(down, Down):
        return names
    rest = view.without(down.host)
    (judged,) = accepted(inventory.accept, (down_finding(rest, down),), look.wall())
    return names if judged.blocks else tuple(rest.servers)


def members_to_copy(inventory: Inventory, look: Look) -> Reading[Members]:
    """Read source's server lines and ports for dest, from the servers that a step asks."""
    return source_members(inventory, look, servers_to_ask(inventory, look))
