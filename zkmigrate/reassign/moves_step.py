"""What: give each partition of the plan its new replica set, as many at once as the caps allow. Give
brokers the rates that ``zkmigrate throttle`` sets meanwhile.

Why now: the throttle holds, and the sets from before are recorded. Kafka copies; the run submits and looks.

Clients may notice: the traffic of the copies, up to the throttle; a new leader where the old one goes.

Way back: moves in flight are cancelled. Then each moved partition gets its set from before, in its order, the
last one first.

Proof: no move is in flight, each set is there in order, and all of it is in sync.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from zkmigrate.model.by_hand import Block, ByHand, Sheet
from zkmigrate.model.change import (
    KAFKA,
    Applied,
    CancelReassignment,
    Changes,
    PlaceReplica,
    ReassignPartition,
)
from zkmigrate.model.fact import Seen
from zkmigrate.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.model.look import Look
from zkmigrate.model.step import (
    Blocked,
    Context,
    Done,
    Far,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.moves.rules.accepted import TARGET_DOWN, accepted, given_up
from zkmigrate.placement.cluster import Name
from zkmigrate.reassign import facts
from zkmigrate.reassign.facts import (
    LOOKS,
    Cluster,
    Disks,
    Flights,
    Move,
    Originals,
    Stand,
    Stands,
    goal,
    planned,
    section,
)
from zkmigrate.reassign.hours import Closed, closed
from zkmigrate.reassign.look_step import of_plan
from zkmigrate.reassign.pace import Pace
from zkmigrate.reassign.rate_control import Copying
from zkmigrate.reassign.rules import AGAIN, ends, fitting, foreign, gib, lost, next_moves, seconds
from zkmigrate.reassign.throttle import RatesInForce, SentRates, keeping_control, rates_in_force
from zkmigrate.throttle.values import Rate

POLL_S = 2.0
_CLOSED_POLL_S = 30.0
_RATE = "rate:"
"""Before a broker's id, in targets: no topic's name has a colon."""
_GIVE_UP = f"accept {TARGET_DOWN} of a broker that stays down in migration.yml, then resume: it plans anew"


@dataclass(frozen=True)
class MovesFacts:
    """plan: the moves of the run. found: what brokers tell about ``looked``. copied: bytes of the replicas
    that are being added, by broker and partition. whole: these are all moves of the run. disks: where the
    replicas are whose directories are named. rates: of the throttle; None where there is none. taken: moves
    of another hand that are in flight and throttled along. disputes: why ZooKeeper shows a move that seems
    to be at its end as not done. cramped: moves that wait until a broker has room. wall: when it was looked,
    seconds since the epoch. phase: whose moves these are, from 0 to ``last_phase``. given_up: brokers that
    are down, and that the run goes on without."""

    plan: Originals | None
    found: Cluster | None
    looked: tuple[Move, ...]
    copied: Mapping[tuple[int, Name], int]
    whole: bool
    disks: Disks
    rates: RatesInForce | None = None
    taken: tuple[Move, ...] = ()
    disputes: Mapping[Name, str] = field(default_factory=dict)
    cramped: tuple[Move, ...] = ()
    wall: float = 0.0
    phase: int = 0
    last_phase: int = 0
    given_up: frozenset[int] = frozenset()

    def stands(self, way: Way) -> Stands:
        """Where the moves stand that were looked at."""
        assert self.found is not None
        gone = self.given_up if way is Way.FORWARD else ()
        return facts.stands(self.looked, self.found, way, self.disks, gone).but(self.disputes)


class MovesStep(Step[MovesFacts]):
    id = SentRates.step
    title = "Move the partitions"
    hazard = Hazard.REVERSIBLE
    by_hand = ByHand(
        needs="the throttle is set: look at it by `kafka-configs.sh --describe`.",
        weaker="All moves begin together: no cap holds, and nobody looks for free bytes or for others. With "
        "more than you want at once, paste the lines in parts, and wait in between.",
        forward=lambda s: (*s.waves(Way.FORWARD), _moved_by_hand(s, Way.FORWARD)),
        back=lambda s: (*s.waves(Way.BACK), _moved_by_hand(s, Way.BACK)),
    )

    def __init__(
        self,
        moves: Callable[[Context], Originals | None] = planned,
        foresee: Callable[[Context, Look], tuple[Move, ...]] = of_plan,
        *,
        sets_rates: bool = True,
        replans: bool = False,
    ) -> None:
        """moves: those that it makes. foresee: what they will be, before they are recorded. sets_rates: it
        also gives brokers the rates that an operator wants. replans: a later step plans anew what it leaves,
        so that the operator may give up a broker that stays down."""
        self._moves, self._foresee, self._sets_rates = moves, foresee, sets_rates
        self._replans = replans

    def observe(self, c: Context, look: Look) -> MovesFacts:
        """Look at the moves that were sent and are not seen at their end, and at those that may start now. At
        the end look at all of them."""
        plan = self._moves(c)
        if plan is None:
            return MovesFacts(None, None, (), {}, False, Disks({}, {}))
        phase = c.kept.get("phase", _phase(c, plan))
        every, plan = plan, plan.of_phase(phase)
        moves = plan.moves if c.way is Way.FORWARD else plan.moves[::-1]
        finished = c.kept.get("finished", frozenset())
        left = [move for move in moves if move.name not in finished]
        in_flight = look.reassignments(KAFKA)
        flights = in_flight.value if isinstance(in_flight, Seen) else {}
        flying = [move for move in moves if move.name in flights]
        pending = [move for move in left if _pending(c, move) and move.name not in flights]
        sent = [move for move in left if not _pending(c, move)]
        down = c.kept.get("down", frozenset())
        ready = [move for move in pending if down.isdisjoint(goal(move, c.way))] or pending
        taken = tuple(move for move in plan.others if move.name in flights and c.way is Way.FORWARD)
        whole = not left and not (taken and phase == every.last_phase)
        copying = (*flying, *taken)
        begins = {move.name for move in (*ready, *sent)} - flights.keys() if plan.tight else ()
        queue = [move for move in left if move.name in begins]  # what was sent may not have reached Kafka
        tight = {b for move in queue for b in ends(move, c.way)[1]}.intersection(plan.tight)
        adding = {broker for move in copying for broker in flights[move.name].adding} | tight
        asked = [move.name for move in (*copying, *queue[:1])]
        told = facts.disks(look, sorted(adding), asked) if adding else Disks({}, {})
        mine = {
            (b, name): size
            for (b, name), size in told.sizes.items()
            if name in flights and b in flights[name].adding
        }
        room = {b: told.room.get(b, -1) - _to_come(copying, flights, mine, b) for b in tight}
        may = {move.name for move in fitting(queue, c.way, room)}
        cramped = [move for move in queue if move.name not in may]
        fit = [move for move in ready if move.name in may] if plan.tight else ready
        starting = next_moves(section(c.inventory), flying, fit, c.way)
        some = (*sent, *flying, *starting, *cramped[: section(c.inventory).in_flight])
        looked = moves if whole else tuple({m.name: m for m in some}.values())
        found = facts.described(look, in_flight, (move.name for move in (*looked, *taken)))
        disks = facts.placed(look, looked, found.alive, c.way)
        mine |= {at: size for at, (_, size) in disks.futures.items()}
        begun = frozenset(move.name for move in moves if move.name in flights or not _pending(c, move))
        load = Copying(plan.moves, copying, starting, begun | {move.name for move in plan.others}, found)
        rates = rates_in_force(c, look, load) if self._sets_rates else None
        disputes = {} if whole else facts.disputed(c, look, looked, found, disks)
        return MovesFacts(
            plan,
            found,
            looked,
            mine,
            whole,
            disks,
            rates,
            taken,
            disputes,
            tuple(cramped),
            look.wall(),
            phase,
            every.last_phase,
            given_up(c.inventory.accept, look.wall()) - found.alive if self._replans else frozenset(),
        )

    def check(self, c: Context, f: MovesFacts) -> Verdict:
        return keeping_control(c, f.rates, self._verdict(c, f))

    def _verdict(self, c: Context, f: MovesFacts) -> Verdict:
        if f.plan is None or f.found is None:
            return Done() if c.way is Way.BACK and not c.begun else Blocked((lost(),))
        if f.found.missing is not None:
            limit = c.inventory.policy.step_deadline_s
            what = "an answer of Kafka about partitions"
            return Waiting(what, str(f.found.missing), limit, poll_s=1.0, keep=c.kept)
        stands = f.stands(c.way)
        flights = f.found.flights
        turned = stands.at(Stand.TURNED)
        others = [move for move in stands.at(Stand.FOREIGN) if move.name in flights]
        others += [move for move in turned if c.way is Way.FORWARD or _sent_back(c, move)]
        if others:
            return Blocked((foreign({move.name: flights[move.name] for move in others}),))
        if turned := turned or stands.at(Stand.ADRIFT):
            return Ready(tuple(move.target for move in turned))
        if not f.whole and (new := _new_rates(c, f)):
            return new
        looks = c.kept.get("looks", 0)
        misplaced = set(stands.at(Stand.MISPLACED))  # a broker that stopped has forgotten the directory
        todo = [
            move
            for move in stands.at(Stand.TO_SUBMIT, Stand.MISPLACED)
            if move in misplaced or _may_send(c, move, looks)
        ]
        flying = stands.at(Stand.MOVING, Stand.INSIDE)
        todo_now = [move for move in todo if move in misplaced or move not in f.cramped]
        here = [move for move in todo_now if f.found.alive.issuperset(goal(move, c.way))]
        behind = stands.at(Stand.BEHIND, Stand.UNTOLD, Stand.DISPUTED)
        if c.over and (todo or f.taken) and not (flying or behind):
            return Ready(tuple(move.target for move in f.plan.moves[:1]))  # in place of which the run ends
        withheld = c.over or (f.rates.withheld if f.rates and todo else ())
        shut = _closed(c, f) if todo else None
        if not withheld and not shut and (chosen := next_moves(section(c.inventory), flying, here, c.way)):
            return Ready(tuple(move.target for move in chosen))
        if shut and shut.opens is None and not (flying or behind):
            return Blocked((_hours_over(shut),))
        waits = {move.name for move in todo}
        odd = [move for move in stands.at(Stand.TO_SUBMIT, Stand.FOREIGN) if move.name not in waits]
        unsettled = bool(odd) or bool(stands.at(Stand.GONE))
        if odd and looks >= LOOKS and c.way is Way.FORWARD:
            return Blocked((_changed(f, odd),))
        settling = unsettled and looks < LOOKS
        if flying or todo or settling or behind or not f.whole:
            at_end = not (flying or settling or todo or f.taken or f.disputes or f.cramped)
            return self._wait(c, f, stands, looks + 1 if unsettled else 0, at_end=at_end)
        if (then := f.phase + (1 if c.way is Way.FORWARD else -1)) in range(f.last_phase + 1):
            return _next_phase(c, f, then)
        without = _without(c, f, stands.at(Stand.LEFT))
        return Done((_moved(c, stands), *without, *(f.rates.found if f.rates else ())))

    def _wait(self, c: Context, f: MovesFacts, stands: Stands, looks: int, *, at_end: bool) -> Waiting:
        """at_end: all that was looked at is at its end, and the next look is at others. Where nothing moves
        because no move may be submitted, there is neither a pace nor a standstill."""
        assert f.plan is not None
        assert f.found is not None
        over = {move.name for move in stands.at(Stand.DONE, Stand.LEFT)}
        if looks > LOOKS:  # deleted, or of other hands on the way back
            over |= {move.name for move in stands.at(Stand.GONE, Stand.TO_SUBMIT, Stand.FOREIGN)}
        finished = frozenset(over) if f.whole else c.kept.get("finished", frozenset()) | over
        flying = [*stands.at(Stand.MOVING, Stand.INSIDE), *stands.at(Stand.BEHIND, Stand.UNTOLD)]
        shut = None if at_end or c.over else _closed(c, f)
        far, longest = _far(c, f, finished)
        known = _pace(c).seconds(f.wall, longest) is not None
        still = not flying and bool(shut or (f.rates and f.rates.withheld))
        pace = Pace() if still else _pace(c).seen(f.wall, longest)
        goals = {broker for move in stands.moves for broker in goal(move, c.way)}
        down = frozenset(goals - f.found.alive)
        return Waiting(
            "the hour when moves may begin" if shut and not flying else "the moves in flight",
            _progress(c, f, flying, down, shut, far, "this pace" if known else "the throttle"),
            math.inf,
            poll_s=0.0 if at_end and not flying else 1.0 if looks else _poll_s(f, flying, shut),
            keep={
                "finished": finished,
                "looks": looks,
                "down": down,
                "phase": f.phase,
                "pace": pace,
                **_rates_kept(c, f),
            },
            mark=(f.phase, len(finished), looks, tuple(sorted(f.copied.items())), f.wall if still else 0.0),
            stalled_s=section(c.inventory).stalled_s,
            far=far,
            moves=(_GIVE_UP,) if down and self._replans and c.way is Way.FORWARD else (),
        )

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
        seen = MovesFacts(Originals(moves), None, (), {}, False, Disks({}, {}, held))
        return Forecast(seen, tuple(move.target for move in moves))


def _towards(f: MovesFacts, move: Move, way: Way) -> Changes:
    """What gives a partition its set and its directories. The directories come first: a broker that is to get
    the replica remembers its own, and copies straight into it."""
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


def _without(c: Context, f: MovesFacts, left: Collection[Move]) -> tuple[Finding, ...]:
    """What is left for another plan, by the broker that is given up."""
    findings = [
        claim(
            TARGET_DOWN,
            "the brokers of the new sets are up",
            False,
            target=f"broker-{broker}",
            seen=f"it is down; planned anew: {few(named)}",
            needed="each broker that a new set names",
            moves=("nothing: the next state moves these",),
        )
        for broker in sorted(f.given_up)
        if (named := [move.target for move in left if broker in move.after])
    ]
    return accepted(c.inventory.accept, findings, f.wall)


def _phase(c: Context, plan: Originals) -> int:
    """The phase at which a process goes on. Forward the last one with a move that was sent: it began when the
    one before was complete. Back the last one that is not undone; the one after it may still be on its way,
    unless this one was begun."""
    if not plan.last_phase:
        return 0
    sent = {move.phase for move in plan.moves if move.target in c.unrestored}
    last = max(sent, default=0 if c.way is Way.FORWARD else -1)
    if c.way is Way.FORWARD:
        return last
    begun = any(move.target not in c.unrestored for move in plan.moves if move.phase == last)
    return max(last, 0) if begun else min(last + 1, plan.last_phase)


def _next_phase(c: Context, f: MovesFacts, phase: int) -> Waiting:
    """All moves of this phase are at their end."""
    keep = {**_rates_kept(c, f), "down": c.kept.get("down", frozenset()), "phase": phase}
    what, mark = "the moves in flight", (phase, 0)
    told = f"phase {f.phase} is complete"
    return Waiting(what, told, math.inf, 0.0, keep, mark, section(c.inventory).stalled_s)


def _moved_by_hand(s: Sheet, way: Way) -> Block:
    kafka = f"--bootstrap-server {s.inventory.brokers[0].endpoint}"
    text = (
        f"until kafka-reassign-partitions.sh {kafka} --list | grep -q '^No partition'; do sleep 10; done; "
        f"kafka-topics.sh {kafka} --describe --under-replicated-partitions && echo OK moved",
    )
    return Block(
        (KAFKA,), text, "only `OK moved`; this takes as long as the copies", "wait and look again", way
    )


def _to_come(
    copying: Iterable[Move], flights: Flights, copied: Mapping[tuple[int, Name], int], broker: int
) -> int:
    """Bytes that copies in flight will still take on a broker."""
    return sum(
        max(0, move.size - copied.get((broker, move.name), 0))
        for move in copying
        if broker in flights[move.name].adding
    )


def _new_rates(c: Context, f: MovesFacts) -> Ready | None:
    """Rates to send: each wanted one once, and again where its broker does not show it after ``LOOKS``."""
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
    """What the next look needs to know of the rates."""
    if f.rates is None:
        return {}
    late = c.kept.get("late", 0) + 1 if f.rates.differ else 0
    settled = f.rates.wanted if f.rates.settled else None
    return {"rates": c.kept.get("rates", {}), "late": late, "settled": settled}


def _rate_changes(f: MovesFacts, target: str) -> Changes:
    assert f.rates is not None
    return f.rates.changes(int(target.removeprefix(_RATE)))


def _pending(c: Context, move: Move) -> bool:
    """Whether nothing is sent yet in this direction: back, the move itself is still to be undone."""
    return (move.target in c.unrestored) is (c.way is Way.BACK)


def _sent_back(c: Context, move: Move) -> bool:
    return c.way is Way.BACK and move.target not in c.unrestored


def _may_send(c: Context, move: Move, looks: int) -> bool:
    """Whether a move that the brokers show as not begun is sent. One that Kafka has confirmed is looked at
    again first; back, it is left as it is then, because another hand was there."""
    if _pending(c, move) or (c.way is Way.FORWARD and move.target in c.unconfirmed):
        return True
    return c.way is Way.FORWARD and looks >= LOOKS


def _closed(c: Context, f: MovesFacts) -> Closed | None:
    """Why no move may begin at this hour; None where one may. The way back waits for no hour."""
    if c.way is Way.BACK:
        return None
    return closed(section(c.inventory).hours, c.inventory.policy.window, f.wall)


def _poll_s(f: MovesFacts, flying: list[Move], shut: Closed | None) -> float:
    if flying or shut is None or shut.opens is None:
        return POLL_S
    return min(_CLOSED_POLL_S, max(POLL_S, shut.opens - f.wall))


def _hours_over(shut: Closed) -> Finding:
    return claim(
        "reassign.hours",
        "moves begin inside the maintenance window only",
        False,
        seen=f"now it is {shut.why}",
        needed="a window that has not ended",
        moves=("give policy.window in the inventory another time, then resume", "rollback, at any hour"),
    )


def _progress(
    c: Context,
    f: MovesFacts,
    flying: list[Move],
    down: frozenset[int],
    shut: Closed | None,
    far: Far,
    basis: str,
) -> str:
    """How far the run is, and each replica that is being copied or is behind. basis: of the time left."""
    assert f.plan is not None
    assert f.found is not None
    told = [_copy(f, move, broker) for move in flying for broker in _missing(f, move)]
    told += [_inside(f, move, *at) for move in flying for at in move.paths(c.way).items()]
    told = [words for words in told if words]
    told += [f"of another hand: {_copy(f, move, broker)}" for move in f.taken for broker in _missing(f, move)]
    stands = f.stands(c.way).of
    if waiting := [move for move in f.cramped if stands.get(move.name) in (None, Stand.TO_SUBMIT)]:
        scarce = sorted({b for move in waiting for b in ends(move, c.way)[1]}.intersection(f.plan.tight))
        named = few(move.target for move in waiting)
        told.append(f"{named}: wait for room on brokers {few(map(str, scarce))}")
    told += [f"{topic}-{number}: {why}" for (topic, number), why in f.disputes.items()]
    known = {move.name for move in (*f.plan.moves, *f.plan.others)}
    if new := [f"{topic}-{number}" for topic, number in f.found.flights if (topic, number) not in known]:
        told.append(f"begun by another hand since, and not throttled: {few(new)}")
    words = f"phase {f.phase} of 0 to {f.last_phase}: " if f.last_phase else ""
    words += f"{far.done:,} of {far.of:,} partitions; {gib(far.bytes_left)} left"
    if far.bytes_left and far.left_s is not None:
        words += f", about {far.left_s:,.0f} s at {basis}"
    words += f"; {shut.words}" if shut else "; --until has come: no new move" if c.over else ""
    words += f"; {f.rates.listening}" if f.rates and f.rates.listening else ""
    told += [f"broker {broker} is down" for broker in sorted(down)]
    told += f.rates.of_others if f.rates else ()
    told += [f"the throttle file cannot be read: {c.overrides.wrong}"] if c.overrides.wrong else []
    return f"{words}; {few(told)}" if told else words


def _far(c: Context, f: MovesFacts, finished: frozenset[Name]) -> tuple[Far, int]:
    """How far the run is, and bytes left of the broker that has most to do: its pace is that of the run.
    Until the pace is known, the time is that of the throttle."""
    assert f.plan is not None
    left = [move for move in f.plan.moves if move.name not in finished]
    taken = {move.name for move in f.taken}
    copied = sum(size for (_, name), size in f.copied.items() if name not in taken)
    in_all = sum(move.size * len((*ends(move, c.way)[1], *move.inside)) for move in left)
    bytes_left = max(0, in_all - copied)
    longest = round(seconds(left, 1, c.way) * bytes_left / max(1, in_all))
    left_s = _pace(c).seconds(f.wall, longest)
    if left_s is None:
        rates = f.rates.wanted.values() if f.rates else ()
        most = max((max(rate) for rate in rates), default=section(c.inventory).throttle_bytes_s)
        left_s = longest / most
    return Far(len(f.plan.moves) - len(left), len(f.plan.moves), bytes_left, left_s), longest


def _pace(c: Context) -> Pace:
    pace: Pace = c.kept.get("pace", Pace())
    return pace


def _missing(f: MovesFacts, move: Move) -> tuple[int, ...]:
    """The brokers whose replica is still to come in sync."""
    assert f.found is not None
    if move.name in f.found.flights:
        return f.found.flights[move.name].adding
    state = f.found.partitions.get(move.name)
    return tuple(broker for broker in state.replicas if broker not in state.isr) if state else ()


def _copy(f: MovesFacts, move: Move, broker: int) -> str:
    size = f.copied.get((broker, move.name))
    told = "not in sync" if size is None else f"{gib(size)} of {gib(move.size)}"
    return f"{move.target} on {broker}: {told}"


def _inside(f: MovesFacts, move: Move, broker: int, path: str) -> str:
    """A replica that is being copied from directory to directory; empty where it is not."""
    if (broker, move.name) in f.disks.futures:
        size = f.disks.futures[broker, move.name][1]
        return f"{move.target} on {broker} into {path}: {gib(size)} of {gib(move.size)}"
    set_there = move.name not in (f.found.flights if f.found else {})
    untold = set_there and f.disks.stand(broker, move.name, path) is Stand.UNTOLD
    return f"{move.target} on {broker}: in an unknown directory, not seen in {path}" if untold else ""


def _changed(f: MovesFacts, odd: list[Move]) -> Finding:
    assert f.found is not None
    partitions = f.found.partitions
    named = (f"{move.target} has {','.join(map(str, partitions[move.name].replicas))}" for move in odd)
    return claim(
        "reassign.changed",
        "nobody else moves a partition of this run",
        False,
        seen=few(named),
        needed="the set of the plan, or the one before",
        moves=(
            f"give them one of the two sets, then {AGAIN}",
            "rollback: it leaves them as they are",
        ),
    )


def _moved(c: Context, stands: Stands) -> Finding:
    whose = "the new" if c.way is Way.FORWARD else "their old"
    done, gone = stands.at(Stand.DONE), stands.at(Stand.GONE)
    other, left = stands.at(Stand.TO_SUBMIT, Stand.FOREIGN), stands.at(Stand.LEFT)
    seen = f"{len(done):,} of {len(stands.moves):,} partitions"
    seen += f"; gone since: {few(move.target for move in gone)}" if gone else ""
    seen += f"; changed by others: {few(move.target for move in other)}" if other else ""
    seen += f"; left for another plan: {len(left):,}" if left else ""
    return claim(
        "reassign.moved",
        f"the partitions have {whose} sets, in order and in sync",
        not (gone or other),
        seen=seen,
        needed="all partitions of the run",
        moves=("see who changed these",),
        severity=Severity.WARN,
    )


MEANINGS = meanings(
    """
    reassign.changed: A partition of this run has a set that is neither the plan's nor the one before.
    Cause: Somebody else moved it. To do: Give it one of the two sets, then resume. Or roll back, which
    leaves it as it is.

    reassign.target-down: A broker of the new sets is down, and the run went on without it. Cause: Somebody
    accepted that. To do: Nothing: the next state plans these moves anew.

    reassign.hours: The maintenance window ended before all partitions had moved. Cause: It was too short
    for the plan, or the run began late. To do: Give policy.window another time, then resume. Or roll back.

    reassign.moved: A partition does not have its set. Cause: Somebody else moved it or deleted its topic. To
    do: See who changed it.

    reassign.back: A partition does not have its set or its leader from before the run. Cause: Somebody
    else changed it, or its broker is down. To do: See who changed it.
    """
)
