"""Checks of the members of any dependent, and of other clients of ZooKeeper.

Their texts have placeholders for the words of the dependent.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from zkmigrate.move.dependent import Member
from zkmigrate.move.preflight.check import JOINED, Gate, Judged, Scope, check, unseen
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.rules.foreign_clients import FOREIGN, NO_FOREIGNER, foreign
from zkmigrate.move.rules.window_rules import FIND_DOOR_S, deadlines, expected_way_back_s
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Held, Severity
from zkmigrate.runbook.model.step import Context

LISTED = 5


@check("{kind}.left-source", "the {one} is no longer a client of source", Scope.BROKERS, (Gate.CUTOVER,))
def left_source(c: Context, e: Evidence) -> Iterator[Judged]:
    """One {one} left on source splits {system} between two ensembles. The check reads source's cons, else the
    socket lists of source and {many}. If neither can be read, the result is unknown and blocks.

    To do: Restart the {one} with {key} naming dest. Allow cons on source if the result is unknown.
    """
    for member in e.dependent.members(c.inventory):
        yield _left(member, e)


def _left(member: Member, e: Evidence) -> Judged:
    words, needed = e.dependent.words, "no connection to source"
    moves = (f"{words.again} this {words.one} with {words.key} naming dest",)
    if e.clients is None:
        return Judged(None, "not read", needed, member.name, moves)
    where = e.clients.members[member.name]
    if where:
        return Judged(False, ", ".join(where), needed, member.name, moves)
    if e.clients.unknown:
        allow = ("allow cons in source's 4lw.commands.whitelist, or let the ssh account run ss",)
        return Judged(None, "; ".join(e.clients.unknown), needed, member.name, allow)
    return Judged(True, "nowhere", needed, member.name)


@check(
    "{kind}.sessions-on-dest",
    "every session that owns an ephemeral under the chroot is a client of dest only",
    Scope.CLUSTER, (Gate.CUTOVER,),
)  # fmt: skip
def sessions_on_dest(_c: Context, e: Evidence) -> Iterator[Judged]:
    """After OPEN dest expires every session that is connected to no dest host, and deletes the session's
    ephemerals. The check reads cons of every dest and source host. If a host cannot be asked, the result
    is unknown and blocks. SURVEY checks again before FENCE.

    To do: Move this client to dest, or stop it. Allow cons in 4lw.commands.whitelist.
    """
    needed = "listed in cons of a dest host and of no source host"
    allow, move = "allow cons in 4lw.commands.whitelist", "move this client to dest, or stop it"
    if e.homes is None or not isinstance(e.sessions, Seen):
        yield unseen(e.sessions, needed, moves=("allow dump in source's 4lw.commands.whitelist",))
        return
    astray = [f"session {s:#x}: {where}" for s, where in sorted(e.homes.astray.items())]
    held = None if e.homes.unknown else not astray
    seen = "; ".join((*e.homes.unknown, *astray[:LISTED])) or f"{len(e.homes.on_dest)} sessions, all on dest"
    moves = ((move,) if astray else ()) + ((allow,) if e.homes.unknown else ())
    yield Judged(held, seen, needed, moves=moves)


@check(
    "{kind}.session-timeout", "the session timeouts leave time for the way back", Scope.CLUSTER,
    (Gate.CUTOVER,), early=True,
)  # fmt: skip
def session_timeout(c: Context, e: Evidence) -> Iterator[Judged]:
    """P33. T is the smallest timeout of the sessions that own ephemerals under the chroot. Source may expire
    such a session T - T/3 after FENCE. Before that the way back must have ended, and clients need 3 s to
    reconnect. The way back takes the policy's time, or the rehearsed time if that is longer. Session
    timeouts of 6 s leave no time for it.

    To do: Raise {session_key} on the {many} and roll them.
    """
    way_back = expected_way_back_s(c)
    needed = f"more than 0 s after FENCE to start the way back (T - T/3 - {way_back:g} - 3)"
    enough = max(18, ceil((way_back + FIND_DOOR_S) * 3 / 2) + 3)
    words = e.dependent.words
    moves: tuple[str, ...] = (f"raise {words.session_key} on the {words.many} to {enough}000 and roll them",)
    if not isinstance(e.sessions, Seen):
        yield unseen(e.sessions, needed, moves=("allow dump in source's 4lw.commands.whitelist",))
        return
    kept = e.sessions.value.kept(e.dependent.keeps)
    smallest = kept.smallest_timeout_ms
    if e.sessions.value.owners and not kept.owners:
        yield Judged(True, f"the {words.many} keep no session through the window", "no session to keep")
        return
    if smallest is None:
        chroot, seen = e.dependent.chroot(c.inventory), "no server reports the timeout of an owner"
        moves = ("allow cons in 4lw.commands.whitelist of source and dest",)
        if not e.sessions.value.owners:
            seen = f"no session owns anything under {chroot}"
            moves = (
                f"correct {words.kind}.chroot in migration.yml",
                f"if {chroot} is right: start the {words.many}",
            )
        yield Judged(None, seen, needed, moves=moves)
        return
    left = deadlines(smallest / 1000, way_back).start_back
    yield Judged(left > 0, f"T = {smallest / 1000:g} s leaves {left:.1f} s", needed, moves=moves)


@check(
    "{kind}.other-clients", "source has no clients other than the {many} and the operator", Scope.CLUSTER,
    (Gate.PREFLIGHT, Gate.ROLL), Severity.WARN,
)  # fmt: skip
def other_clients(c: Context, e: Evidence) -> Iterator[Judged]:
    """P06, P35. Each address belongs to a tenant that stays on source. That is right for clients that have
    nothing to do with {system}, and wrong for {system}'s own tools: they would go on writing to source. A
    client that owns an ephemeral under the chroot is a part of {system} that the inventory does not know.
    The check reads cons and dump; it cannot see which clients only read.

    To do: Find out what each client is. Leave other tenants alone; give {system}'s tools dest's addresses.
    Stop a client that owns a part of the chroot, or add it to migration.yml.
    """
    words, chroot = e.dependent.words, e.dependent.chroot(c.inventory)
    needed = f"each client known, and none part of {words.system}"
    for tenant in e.tenants.found:
        inside = [path for path in tenant.owns if chroot.holds(path)]
        moves = (
            (f"list it as a {words.one}, or stop it: it owns a part of the chroot",)
            if inside
            else (
                "find out what each client is: leave other tenants alone, give "
                f"{words.system}'s tools dest's addresses",
            )
        )
        yield Judged(False, tenant.words(tuple(inside)), needed, tenant.address, moves)
    if e.tenants.unknown:
        allow = ("allow cons in source's 4lw.commands.whitelist, or let the ssh account run ss",)
        yield Judged(None, "; ".join(e.tenants.unknown), needed, moves=allow)
    elif not e.tenants.found:
        yield Judged(True, "none", needed)


@check(FOREIGN, NO_FOREIGNER, Scope.CLUSTER, JOINED)
def foreign_client(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P06, P35. A session on dest belongs to no {one}, not to the operator and not to the canary. After OPEN
    this client would write to dest while other clients of its kind write to source. The check reads cons
    and dump of dest's servers; SURVEY checks once more before FENCE. A session from a {one}'s host belongs
    to the {one} if it registered the {one}. It also does if it owns nothing and the {one} is known to have
    such a session. Every session from the operator's machine belongs to the operator.

    To do: Stop this client, or give it source's addresses. If somebody answers for it, name it under accept
    in migration.yml.
    """
    for f in foreign(e.dependent.words, e.foreign):
        held = None if f.held is Held.UNKNOWN else f.held is Held.YES
        yield Judged(held, f.seen, f.needed, f.target, f.moves)


CHECKS = (left_source, sessions_on_dest, session_timeout, other_clients, foreign_client)
