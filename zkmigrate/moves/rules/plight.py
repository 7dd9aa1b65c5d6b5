"""What to say of a window that nobody works on any more: where dest hosts stand, and what it costs."""

from __future__ import annotations

from functools import partial

from zkmigrate.hosts.facts.status import HostStatus, host_status
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.fact import Seen
from zkmigrate.model.look import Look
from zkmigrate.model.step import Context
from zkmigrate.model.step_record import known
from zkmigrate.model.window import IDLE, Phase, Plight, Stand, Toll
from zkmigrate.moves.dependent import Words
from zkmigrate.moves.facts.records import TimeoutAndLease
from zkmigrate.moves.rules.lease import in_force
from zkmigrate.moves.rules.window_rules import deadlines, expected_way_back_s

OBSERVES_S = 8.0
"""Seconds that a host takes at most, on a busy machine, to observe again once its lease has ended."""


def plight(words: Words) -> Plight:
    """Return how to tell of the window of a move. words: of the dependent."""
    return Plight(
        one="dest host",
        many="dest hosts",
        shut=f"{words.many} and other clients are shut out of ZooKeeper",
        opened="clients reach ZooKeeper again",
        stands=_stands,
        alone_s=_alone_s,
        toll=_toll,
    )


def stand(status: HostStatus) -> Stand:
    """Judge where a dest host stands for its clients."""
    if status.phase in (IDLE, Phase.ARMED, Phase.FENCED) and not status.fence_entries:
        return Stand.BEFORE
    if status.phase in Phase.GO.until(Phase.OPEN):
        return Stand.FINISHING if status.finisher == "running" else Stand.SEALED
    if status.phase == Phase.OPEN:
        return Stand.AFTER
    return Stand.SEALED if status.phase == Phase.SEALED or status.fence_permanent else Stand.LEASED


def _stands(inventory: Inventory, look: Look) -> dict[str, Stand]:
    told = look.each(inventory.dest_names, partial(host_status, look))
    return {
        host: stand(reading.value) if isinstance(reading, Seen) else Stand.UNHEARD
        for host, reading in told.items()
    }


def _alone_s(c: Context) -> float:
    return in_force(c).fence_ttl_ms / 1000 + OBSERVES_S


def _toll(c: Context) -> Toll | None:
    terms = known(TimeoutAndLease, c)
    if terms is None or terms.smallest_timeout_ms is None:
        return None
    timeout_s = terms.smallest_timeout_ms / 1000
    return Toll(
        f"sessions (the shortest lives {timeout_s:g} s)",
        deadlines(timeout_s, expected_way_back_s(c)).clients_back,
        "The way forward keeps them: dest counts their time anew once it has a leader, and must open within "
        f"{timeout_s:g} s of that",
    )
