"""Describe a window in which no process of the tool runs: the state of dest and the cost for clients."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from zkmigrate.errors import RecordError
from zkmigrate.hosts.facts.status import HostStatus, host_status
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.connections import connections_of
from zkmigrate.move.facts.records import Surveyed, TimeoutAndLease
from zkmigrate.move.facts.sessions import dumps_of, homes, sessions_of
from zkmigrate.move.rules.lease import lease_in_force
from zkmigrate.move.rules.window_rules import deadlines, expected_way_back_s
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.step_record import known
from zkmigrate.runbook.model.window import IDLE, Kept, Loss, Phase, Stand, Unattended
from zkmigrate.zookeeper.data.session import unsigned

OBSERVES_S = 8.0
"""The longest time that a busy host takes to observe source again after its lease has ended, in seconds."""


def unattended(dependent: AnyDependent) -> Unattended:
    """Return the texts and functions that describe the window of a move without a running tool."""
    words = dependent.words
    return Unattended(
        one="dest host",
        many="dest hosts",
        shut=f"{words.many} and other clients are blocked from ZooKeeper",
        still="clients are still blocked from",
        opened="clients reach ZooKeeper again",
        stands=_states,
        alone_s=_alone_s,
        loss=_loss,
        kept=partial(_kept, dependent),
    )


def stand(status: HostStatus) -> Stand:
    """Return a dest host's situation: whether it lets clients in, and what it will do by itself."""
    if status.phase in (IDLE, Phase.ARMED, Phase.FENCED) and not status.fence_entries:
        return Stand.BEFORE
    if status.phase in Phase.GO.until(Phase.OPEN):
        return Stand.FINISHING if status.finisher == "running" else Stand.SEALED
    if status.phase == Phase.OPEN:
        return Stand.AFTER
    return Stand.SEALED if status.phase == Phase.SEALED or status.fence_permanent else Stand.LEASED


def _states(inventory: Inventory, look: Look) -> dict[str, Stand]:
    statuses = look.each(inventory.dest_names, partial(host_status, look))
    return {
        host: stand(reading.value) if isinstance(reading, Seen) else Stand.UNHEARD
        for host, reading in statuses.items()
    }


def _alone_s(c: Context) -> float:
    return lease_in_force(c).fence_ttl_ms / 1000 + OBSERVES_S


def _loss(c: Context) -> Loss | None:
    terms = known(TimeoutAndLease, c)
    if terms is None or terms.smallest_timeout_ms is None:
        return None
    timeout_s = terms.smallest_timeout_ms / 1000
    return Loss(
        f"sessions (the shortest timeout is {timeout_s:g} s)",
        deadlines(timeout_s, expected_way_back_s(c)).clients_back,
        "Going forward keeps the sessions: dest restarts their timeouts once it has a leader, "
        f"and must let clients in within {timeout_s:g} s of that",
    )


def _kept(dependent: AnyDependent, c: Context, look: Look) -> Kept:
    """Find which sessions that SURVEY found on dest still live, and which of these are clients of dest again.

    Source is not read: source may be the reason why the run went back, and dest observes it anyway.
    """
    try:
        surveyed = known(Surveyed, c)
    except RecordError:
        surveyed = None
    if surveyed is None or not surveyed.on_dest:
        return Kept("")
    dest = c.inventory.dest_names
    alive = sessions_of(dumps_of(look, dest), {}, dependent.chroot(c.inventory))
    at_dest = connections_of(look, dest)
    if not isinstance(alive, Seen):
        return Kept(f"whether sessions survived is not known: {alive}", settled=False)
    return kept(surveyed.on_dest, alive.value.owners, homes(surveyed.on_dest, at_dest, {}).on_dest)


def kept(sessions: Collection[int], alive: Iterable[int], back: Collection[int]) -> Kept:
    """Describe how these sessions survived the window.

    alive: the sessions that own ephemerals now. back: the sessions that are clients of dest again.
    """
    living = {unsigned(session) for session in alive}
    ended = [session for session in sessions if unsigned(session) not in living]
    away = [session for session in sessions if session not in back and session not in ended]
    if not ended and not away:
        return Kept(f"all {len(sessions)} sessions survived")
    lost = few([f"{unsigned(session):#x}" for session in ended])
    parts = [f"{len(ended)} of {len(sessions)} sessions ended ({lost})"] if ended else []
    parts += [f"{len(away)} of {len(sessions)} sessions live but have no client on dest yet"] if away else []
    return Kept("; ".join(parts), settled=not away)
