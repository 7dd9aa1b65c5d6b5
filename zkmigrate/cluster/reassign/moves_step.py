"""What: give each partition of the plan its new replica list, as many at once as the caps allow. Set the
rates that an operator requests meanwhile with ``zkmigrate throttle``.

Why now: the throttle is set, and the former replica lists are recorded. The run submits the moves and watches
them; Kafka copies the data.

Clients may notice: the traffic of the copies, up to the throttle; a new leader for each partition whose old
leader is removed.

Way back: moves in flight are cancelled. Then each moved partition gets its former replica list, in its order.
The last move is undone first.

Proof: no move is in flight, each partition has its new replica list in order, and all its replicas are in
sync.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign import answers
from zkmigrate.cluster.reassign.answers import Disks, Flights
from zkmigrate.cluster.reassign.choice import next_moves
from zkmigrate.cluster.reassign.estimate import POLL_S, Throughput
from zkmigrate.cluster.reassign.facts import LOOKS, Stands, disputed
from zkmigrate.cluster.reassign.inflow import Inflow
from zkmigrate.cluster.reassign.look_step import of_plan
from zkmigrate.cluster.reassign.moves import Move, Originals, Stand, goal, planned, section
from zkmigrate.cluster.reassign.moves_facts import MovesFacts, pending, queued, resumed_phase, sent_back
from zkmigrate.cluster.reassign.moves_findings import changed, hours_over, left_for_later, moved
from zkmigrate.cluster.reassign.progress import progress, words
from zkmigrate.cluster.reassign.rates import keeping_control, rates_in_force
from zkmigrate.cluster.reassign.rules import foreign, originals_lost
from zkmigrate.cluster.reassign.throttle import SentRates
from zkmigrate.inventory.hours import Closed, closed
from zkmigrate.kafka.changes import KAFKA, CancelReassignment, PlaceReplica, ReassignPartition
from zkmigrate.kafka.questions import ListReassignments
from zkmigrate.kafka.rates import Rate
from zkmigrate.runbook.accepted import TARGET_DOWN, given_up
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import meanings
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

_CLOSED_POLL_S = 30.0
_RATE = "rate:"
"""The prefix of a broker id in targets that set a rate; no topic name has a colon."""
_GIVE_UP = (
    f"accept {TARGET_DOWN} of a broker that remains down in migration.yml, then resume: the "
    "run plans its moves again"
)

_FLYING = (Stand.MOVING, Stand.INSIDE, Stand.BEHIND, Stand.UNTOLD, Stand.DISPUTED)
"""The states of moves that were sent and are not complete."""


class MovesStep(Step[MovesFacts]):
    id = SentRates.step
    title = "Move the partitions"
    hazard = Hazard.REVERSIBLE

    def __init__(
        self,
        moves: Callable[[Context], Originals | None] = planned,
        foresee: Callable[[Context, Look], tuple[Move, ...]] = of_plan,
        *,
        sets_rates: bool = True,
        replans: bool = False,
    ) -> None:
        """Create the step.

        moves: returns the moves that the step makes.
        foresee: returns the moves as they will be, before they are recorded.
        sets_rates: whether the step also sets the rates that an operator requests.
        replans: whether a later step makes a new plan for moves that this step leaves. Then the operator may
        give up a broker that is down.
        """
        self._moves, self._foresee, self._sets_rates = moves, foresee, sets_rates
        self._replans = replans

    def observe(self, c: Context, look: Look) -> MovesFacts:
        """Read the state of the moves that were sent and are not complete, and of those that may start now.

        Once all moves are complete, read the state of all moves.
        """
        plan, wanted = self._moves(c), section(c.inventory)
        if plan is None:
            return MovesFacts()
        phase = c.kept.get("phase", resumed_phase(c, plan))
        in_flight = look.ask(ListReassignments(KAFKA))
        queue = queued(c, plan, phase, in_flight.value if isinstance(in_flight, Seen) else {})
        brokers, names = queue.log_dirs_to_read
        told = answers.disks(look, brokers, names) if brokers else Disks({}, {})
        cramped = queue.cramped(told)
        starting = queue.starting(wanted, cramped)
        looked = queue.looked(starting, cramped[: wanted.in_flight])
        found = answers.described(look, in_flight, (move.name for move in (*looked, *queue.taken)))
        disks = answers.placed(look, looked, found.alive, c.way)
        load = queue.load(c, starting, found)
        return MovesFacts(
            queue.plan,
            found,
            looked,
            {**queue.copied(told), **{at: size for at, (_, size) in disks.futures.items()}},
            queue.whole,
            disks,
            rates_in_force(c, look, load) if self._sets_rates else None,
            queue.taken,
            {} if queue.whole else disputed(c, look, looked, found, disks),
            cramped,
            look.wall(),
            phase,
            plan.last_phase,
            answers.log_ends(look, found, (m.name for m in (*looked, *queue.taken)), wanted.in_flight),
            given_up(c.inventory.accept, look.wall()) - found.alive if self._replans else frozenset(),
            queue.sizes(told),
        )

    def check(self, c: Context, f: MovesFacts) -> Verdict:
        return keeping_control(c, f.rates, self._verdict(c, f))

    def _verdict(self, c: Context, f: MovesFacts) -> Verdict:
        if f.plan is None or f.found is None:
            return Done() if c.way is Way.BACK and not c.begun else Blocked((originals_lost(),))
        if f.found.missing is not None:
            limit = c.inventory.policy.step_deadline_s
            what = "Kafka reports its partitions"
            return Waiting(what, str(f.found.missing), limit, poll_s=1.0, keep=c.kept)
        stands = f.stands(c.way)
        if others := _replaced(c, f, stands):
            return Blocked((foreign(others),))
        if turned := stands.at(Stand.TURNED) or stands.at(Stand.ADRIFT):
            return Ready(tuple(move.target for move in turned))
        if not f.whole and (new := _new_rates(c, f)):
            return new
        todo, flies = _todo(c, stands), bool(stands.at(*_FLYING))
        if c.over and (todo or f.taken) and not flies:
            return Ready(tuple(move.target for move in f.plan.moves[:1]))  # the run ends before sending it
        shut = _closed(c, f) if todo else None
        if not shut and (chosen := _starting(c, f, stands, todo)):
            return Ready(tuple(move.target for move in chosen))
        if shut and shut.opens is None and not flies:
            return Blocked((hours_over(shut),))
        return self._at_rest(c, f, stands, todo)

    def _at_rest(self, c: Context, f: MovesFacts, stands: Stands, todo: Collection[Move]) -> Verdict:
        """Return the verdict if no change can be sent at present."""
        looks, waits = c.kept.get("looks", 0), {move.name for move in todo}
        odd = [move for move in stands.at(Stand.TO_SUBMIT, Stand.FOREIGN) if move.name not in waits]
        if odd and looks >= LOOKS and c.way is Way.FORWARD:
            return Blocked((changed(f, odd),))
        unsettled = bool(odd) or bool(stands.at(Stand.GONE))
        settling = unsettled and looks < LOOKS
        if stands.at(*_FLYING) or todo or settling or not f.whole:
            moving = stands.at(Stand.MOVING, Stand.INSIDE)
            at_end = not (moving or settling or todo or f.taken or f.disputes or f.cramped)
            waiting = _wait(c, f, stands, looks + 1 if unsettled else 0, at_end=at_end)
            gives_up = self._replans and c.way is Way.FORWARD and waiting.keep["down"]
            return replace(waiting, moves=(_GIVE_UP,)) if gives_up else waiting
        if (then := f.phase + (1 if c.way is Way.FORWARD else -1)) in range(f.last_phase + 1):
            return _next_phase(c, f, then)
        without = left_for_later(c, f, stands.at(Stand.LEFT))
        return Done((moved(c, stands), *without, *(f.rates.found if f.rates else ())))

    def plan(self, c: Context, f: MovesFacts, target: str) -> Changes:
        assert f.plan is not None
        if target.startswith(_RATE):
            return _rate_changes(f, target)
        move = f.plan.by_target[target]
        if f.found is not None and f.stands(Way.FORWARD).of.get(move.name) is Stand.ADRIFT:
            return (CancelReassignment(KAFKA, move.topic, move.number, move.after),)
        return _towards(f, move, Way.FORWARD)

    def undo(self, c: Context, f: MovesFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        assert f.plan is not None
        if target.startswith(_RATE):
            return _rate_changes(f, target)
        move = f.plan.by_target[target]
        if f.found is not None and f.stands(c.way).of[move.name] is Stand.TURNED:
            return (CancelReassignment(KAFKA, move.topic, move.number, move.after),)
        return _towards(f, move, Way.BACK)

    def forecast(self, c: Context, look: Look) -> Forecast[MovesFacts]:
        moves = self._foresee(c, look)
        held = {(b, move.name): path for move in moves for b, path in move.paths(Way.BACK).items()}
        seen = MovesFacts(Originals(moves), disks=Disks({}, {}, held))
        return Forecast(seen, tuple(move.target for move in moves))


def _towards(f: MovesFacts, move: Move, way: Way) -> Changes:
    """Return the changes that give a partition its replica list and its log directories.

    The directories come first: a broker that is to get the replica remembers the directory and copies
    straight into it.
    """
    wished, other = goal(move, way), goal(move, Way.BACK if way is Way.FORWARD else Way.FORWARD)
    state = f.found.partitions.get(move.name) if f.found else None
    has = state.replicas if state else other
    at = {broker: f.disks.places.get((broker, move.name), "") for broker in move.paths(way)}
    placing = tuple(
        PlaceReplica(KAFKA, broker, move.topic, move.number, path, at[broker])
        for broker, path in move.paths(way).items()
        if f.disks.stand(broker, move.name, path) in (Stand.MISPLACED, Stand.UNTOLD)
    )
    reassigning = (ReassignPartition(KAFKA, move.topic, move.number, wished, other),)
    return placing if has == wished else (*placing, *reassigning)


def _replaced(c: Context, f: MovesFacts, stands: Stands) -> Flights:
    """Return the reassignments that other tools have started on partitions of the run.

    This includes a reassignment to the replica list of the run's other direction, if the run did not send
    that.
    """
    assert f.found is not None
    flights = f.found.flights
    others = [move for move in stands.at(Stand.FOREIGN) if move.name in flights]
    others += [m for m in stands.at(Stand.TURNED) if c.way is Way.FORWARD or sent_back(c, m)]
    return {move.name: flights[move.name] for move in others}


def _todo(c: Context, stands: Stands) -> tuple[Move, ...]:
    """Return the moves to submit.

    Misplaced replicas are included: a broker that restarted has forgotten the directory it was to use.
    """
    looks, misplaced = c.kept.get("looks", 0), set(stands.at(Stand.MISPLACED))
    waiting = stands.at(Stand.TO_SUBMIT, Stand.MISPLACED)
    return tuple(move for move in waiting if move in misplaced or _may_send(c, move, looks))


def _starting(c: Context, f: MovesFacts, stands: Stands, todo: Sequence[Move]) -> tuple[Move, ...]:
    """Return those of the moves to submit that are submitted now."""
    assert f.found is not None
    if c.over or (todo and f.rates and f.rates.withheld):
        return ()
    cramped = {move.name for move in f.cramped} - {move.name for move in stands.at(Stand.MISPLACED)}
    fit = [move for move in todo if move.name not in cramped]
    here = [move for move in fit if f.found.alive.issuperset(goal(move, c.way))]
    return next_moves(section(c.inventory), stands.at(Stand.MOVING, Stand.INSIDE), here, c.way)


def _wait(c: Context, f: MovesFacts, stands: Stands, looks: int, *, at_end: bool) -> Waiting:
    """Return the wait for moves in flight.

    at_end: whether all moves that were read this time are complete, so that other moves are read next time.
    While nothing moves because no move may be submitted, neither throughput nor a stall is measured.
    """
    assert f.found is not None
    finished = _finished(c, f, stands, looks)
    flying = [*stands.at(Stand.MOVING, Stand.INSIDE), *stands.at(Stand.BEHIND, Stand.UNTOLD)]
    shut = None if at_end or c.over else _closed(c, f)
    far = progress(c, f, finished)
    still = not flying and bool(shut or (f.rates and f.rates.withheld))
    down = frozenset(broker for move in stands.moves for broker in goal(move, c.way)) - f.found.alive
    inflow = c.kept.get("inflow", Inflow()).seen(f.wall, f.sizes)
    return Waiting(
        "the run may begin moves" if shut and not flying else "the moves in flight have ended",
        words(c, f, far, flying, down, shut),
        math.inf,
        poll_s=0.0 if at_end and not flying else 1.0 if looks else _poll_s(f, flying, shut),
        keep={
            "finished": finished,
            "looks": looks,
            "down": down,
            "phase": f.phase,
            "inflow": inflow,
            "throughput": Throughput() if still else far.throughput,
            **_rates_kept(c, f),
        },
        mark=(f.phase, len(finished), looks, tuple(sorted(f.copied.items())), f.wall if still else 0.0),
        stalled_s=section(c.inventory).stalled_s,
        far=far.far,
    )


def _finished(c: Context, f: MovesFacts, stands: Stands, looks: int) -> frozenset[Name]:
    """Return the partitions whose moves were seen complete so far.

    Once all moves are read together, only the newest reading counts.
    """
    over = {move.name for move in stands.at(Stand.DONE, Stand.LEFT)}
    if looks > LOOKS:  # deleted, or on the way back changed by other tools
        over |= {move.name for move in stands.at(Stand.GONE, Stand.TO_SUBMIT, Stand.FOREIGN)}
    return frozenset(over) if f.whole else c.kept.get("finished", frozenset()) | over


def _next_phase(c: Context, f: MovesFacts, phase: int) -> Waiting:
    """Return the wait that begins ``phase`` after all moves of the current phase are complete."""
    keep = {**_rates_kept(c, f), "down": c.kept.get("down", frozenset()), "phase": phase}
    what, mark = "the moves in flight have ended", (phase, 0)
    told = f"phase {f.phase} is complete"
    return Waiting(what, told, math.inf, 0.0, keep, mark, section(c.inventory).stalled_s)


def _new_rates(c: Context, f: MovesFacts) -> Ready | None:
    """Return the changes that set wanted rates, or None if none is to be sent.

    Each wanted rate is sent once, and again if its broker does not show it after ``LOOKS`` looks.
    """
    if f.rates is None:
        return None
    sent: Mapping[int, Rate] = c.kept.get("rates", {})
    again = c.kept.get("late", 0) >= LOOKS
    wanted = {id: f.rates.wanted[id] for id in f.rates.differ if again or sent.get(id) != f.rates.wanted[id]}
    if not wanted:
        return None
    return Ready(
        tuple(f"{_RATE}{id}" for id in wanted),
        record=f.rates.recorded(wanted).encode(),
        both_ways=True,
        keep={**c.kept, "rates": {**sent, **wanted}, "late": 0},
    )


def _rates_kept(c: Context, f: MovesFacts) -> dict[str, object]:
    """Return the values about the rates that the next call of the step needs."""
    if f.rates is None:
        return {}
    late = c.kept.get("late", 0) + 1 if f.rates.differ else 0
    settled = f.rates.wanted if f.rates.settled else None
    return {"rates": c.kept.get("rates", {}), "late": late, "settled": settled}


def _rate_changes(f: MovesFacts, target: str) -> Changes:
    assert f.rates is not None
    return f.rates.changes(int(target.removeprefix(_RATE)))


def _may_send(c: Context, move: Move, looks: int) -> bool:
    """Return whether to send a move that the brokers show as not begun.

    If Kafka has confirmed the move already, its state is read again first. On the way back such a move is
    never sent again, because another tool has changed the partition.
    """
    if pending(c, move) or (c.way is Way.FORWARD and move.target in c.unconfirmed):
        return True
    return c.way is Way.FORWARD and looks >= LOOKS


def _closed(c: Context, f: MovesFacts) -> Closed | None:
    """Return why no move may begin at this hour, or None if one may. The way back ignores the hours."""
    if c.way is Way.BACK:
        return None
    return closed(section(c.inventory).hours, c.inventory.policy.window, f.wall)


def _poll_s(f: MovesFacts, flying: list[Move], shut: Closed | None) -> float:
    if flying or shut is None or shut.opens is None:
        return POLL_S
    return min(_CLOSED_POLL_S, max(POLL_S, shut.opens - f.wall))


MEANINGS = meanings(
    """
    reassign.changed: A partition of this run has a replica list that is neither the plan's nor the one from
    before the run. Cause: Another person or tool moved the partition. To do: Give the partition one of these
    two replica lists, then resume. Or roll back, which leaves the partition as it is.

    reassign.target-down: A broker of the new replica lists is down, and the run continued without it. Cause:
    Somebody accepted this finding. To do: Nothing: a later stage plans these moves again.

    reassign.hours: The maintenance window ended before all partitions had moved. Cause: The window was too
    short for the plan, or the run began late. To do: Set policy.window in the inventory to another time, then
    resume. Or roll back, which is possible at any hour.

    reassign.moved: A partition does not have its planned replica list. Cause: Another person or tool moved
    the partition or deleted its topic. To do: Find out who changed the partition.

    reassign.back: A partition does not have its replica list or its leader from before the run. Cause:
    Another person or tool changed the partition, or its broker is down. To do: Find out who changed the
    partition, and give it the replica list in way-back.json of the run's directory.
    """
)
