"""What: check the plan against the cluster; change nothing.

Why now: a stale plan, a dead broker or another reassignment must be found before the first change.

Clients may notice: nothing.

Way back: nothing was changed.

Proof: the partitions exist and are in sync, the brokers are alive, no other reassignment is in flight, and
each partition has the replica list that the plan expects.
"""

from __future__ import annotations

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.answers import Disks, described, disks
from zkmigrate.cluster.reassign.estimate import Copies, copied
from zkmigrate.cluster.reassign.facts import FirstLook, unmade
from zkmigrate.cluster.reassign.inflow import enough, first_reading, measured
from zkmigrate.cluster.reassign.moves import Move, joined, originals, reassign_inventory, section
from zkmigrate.cluster.reassign.rate_control import unreadable_loads
from zkmigrate.cluster.reassign.rules import COPYING, before, gib
from zkmigrate.cluster.reassign.throttle import FirstLimits, choosing, involved, listed, read, values
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import ListReassignments, ReadBrokerSettings
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict, Waiting, Way


def first_look(c: Context, look: Look) -> FirstLook:
    """Read every partition of the plan, its size, and the throttle settings."""
    sets, dirs = reassign_inventory(c.inventory).sets, reassign_inventory(c.inventory).dirs
    in_flight = look.ask(ListReassignments(KAFKA))
    others = in_flight.value if isinstance(in_flight, Seen) else {}
    found = described(look, in_flight, (*sets, *others))
    if found.missing_answer is not None or not isinstance(found.seen, Seen):
        return FirstLook(found, {}, (), Disks({}, {}), {})
    moves = FirstLook(found, {}, (), Disks({}, {}), {}).moves(sets, dirs)
    alive = found.seen.value.brokers
    holding = {b for move in moves for b in (*move.before, *move.added)}
    holding |= {b for flight in others.values() for b in flight.replicas}
    told = disks(look, sorted(holding & alive), [*(move.name for move in moves), *others])
    largest: dict[Name, int] = {}
    for (_, name), size in told.sizes.items():
        largest[name] = max(size, largest.get(name, 0))
    topics = tuple(dict.fromkeys(move.topic for move in moves if move.copies))
    moves = FirstLook(found, {}, (), told, {}).moves(sets, dirs)
    takes_part, inside = ([b for b in of if b in alive] for of in (involved(moves), choosing(moves)))
    throttles = read(look, takes_part, topics, inside)
    limits = values(throttles.value) if isinstance(throttles, Seen) else {}
    words = listed(limits) if isinstance(throttles, Seen) else (str(throttles),)
    copying = (
        {key: look.ask(ReadBrokerSettings(KAFKA, key, takes_part)) for key in COPYING} if takes_part else {}
    )
    bounds = {key: one.value for key, one in copying.items() if isinstance(one, Seen)}
    adapt = section(c.inventory).adapt
    loads = unreadable_loads(c, look, adapt, takes_part, told.paths) if adapt is not None else {}
    return FirstLook(found, largest, words, told, bounds, limits, loads, look.wall())


def of_plan(c: Context, look: Look) -> tuple[Move, ...]:
    """Return the moves of the plan that are not complete yet."""
    return unmade(c, first_look(c, look))


def foreseen(c: Context, look: Look) -> tuple[str, ...]:
    """Return the lines that ``plan`` prints about the whole run: the bytes of each broker, and the time."""
    moves = joined(of_plan(c, look))
    brokers = tuple(
        f"  broker {broker}: {gib(to)} in, {gib(of)} out"
        for broker, (to, of) in copied(moves).items()
        if to or of
    )
    takes = f"  {counted(len(moves), 'partition')}, {gib(sum(move.bytes for move in moves))}, "
    return (*brokers, f"{takes}{Copies.before(moves, section(c.inventory)).words}")


def measured_writes(c: Context, look: Look) -> tuple[str, ...] | Waiting:
    """Return the lines that ``plan`` prints about the throttle and clients' writes to these partitions."""
    f = first_look(c, look)
    return measured(c, unmade(c, f), f.cluster.partitions, f.wall)


def foreseen_back(c: Context) -> tuple[str, ...]:
    """Return the lines that ``rollback`` prints about the moves that are not undone.

    A move in flight copies nothing back.
    """
    record = originals(c)
    sent = [move for move in record.moves if move.target in c.unrestored] if record else []
    moves = joined(sent)
    whole = sum(move.size * len(move.dropped) for move in moves)
    takes = f"{gib(whole)}, {Copies.before(moves, section(c.inventory), Way.BACK).words}"
    return (
        (f"  {counted(len(moves), 'partition')} to move back, if all were moved: {takes}",) if moves else ()
    )


class PlanCheckStep(Reads[FirstLook]):
    id = FirstLimits.step
    title = "Check the plan against the cluster"

    def observe(self, c: Context, look: Look) -> FirstLook:
        return first_look(c, look)

    def check(self, c: Context, f: FirstLook) -> Verdict:
        moves, findings = unmade(c, f), before(c, f)
        if not blocking(findings) and (waiting := first_reading(c, moves, f.wall)):
            return waiting
        findings += enough(c, moves, f.cluster.partitions, f.wall)
        return Done.unless_blocked(findings, FirstLimits.of(f.limits).encode())
