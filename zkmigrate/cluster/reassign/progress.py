"""Compute the progress of the moves and the remaining time, and describe both in words.

The functions have no side effects. Times are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.estimate import Copies, Throughput, busiest, ends
from zkmigrate.cluster.reassign.inflow import Inflow, endless
from zkmigrate.cluster.reassign.moves import Move, Stand, section
from zkmigrate.cluster.reassign.moves_facts import MovesFacts
from zkmigrate.cluster.reassign.rules import gib
from zkmigrate.inventory.hours import Closed, after_open
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Context, Far, Way

LEAST_S = 60.0
"""Seconds for which clients' writes are measured before rates that never finish are reported."""


@dataclass(frozen=True)
class Progress:
    """The progress of the moves at one time.

    far: the progress of the phase; its time includes hours in which no move may begin.
    throughput: the throughput of the broker that has most to do, with the newest reading.
    copying_s: the remaining seconds, without hours in which no move may begin.
    """

    far: Far
    throughput: Throughput
    copying_s: float

    @property
    def time_left(self) -> str:
        """The remaining time in words."""
        told = (
            f"about {self.copying_s:,.0f} s at {'this pace' if self.throughput.measured else 'the throttle'}"
        )
        if self.far.left_s is None:
            return f"{told}, more than the remaining time in which moves may begin"
        closed_s = round(self.far.left_s - self.copying_s)
        return f"{told} and {closed_s:,} s in which none may begin" if closed_s else told


def progress(c: Context, f: MovesFacts, finished: Collection[Name]) -> Progress:
    """Return the progress of the moves. finished: the moves that are complete."""
    assert f.plan is not None
    left = [move for move in f.plan.moves if move.name not in finished]
    taken = {move.name for move in f.taken}
    copied = sum(size for (_, name), size in f.copied.items() if name not in taken)
    in_all = sum(f.size(move) * len((*ends(move, c.way)[1], *move.inside)) for move in left)
    bytes_left = max(0, in_all - copied)
    most = round(busiest(left, c.way) * bytes_left / max(1, in_all))
    done = max(0, busiest(f.plan.moves, c.way) - most)
    expected = Copies(tuple(left), section(c.inventory), c.way, _throttle(c, f), most, done)
    throughput: Throughput = c.kept.get("throughput", Throughput()).with_reading(f.wall, most)
    copying_s = throughput.seconds(f.wall, most, expected.seconds)
    end = _ends_at(c, f.wall, copying_s)
    left_s = None if end is None else end - f.wall
    far = Far(len(f.plan.moves) - len(left), len(f.plan.moves), bytes_left, left_s)
    return Progress(far, throughput, copying_s)


def _ends_at(c: Context, wall: float, copying_s: float) -> float | None:
    """Return when copies end that take ``copying_s`` seconds in open hours; None if too few hours are left.

    The way back ignores the hours.
    """
    if c.way is Way.BACK:
        return wall + copying_s
    stops = math.inf if c.ends_at is None else c.ends_at
    return after_open(section(c.inventory).hours, c.inventory.policy.window, wall, copying_s, stops)


def _throttle(c: Context, f: MovesFacts) -> int:
    """Return the bytes per second that the fastest broker may copy."""
    rates = f.rates.wanted.values() if f.rates else ()
    return max((max(rate) for rate in rates), default=section(c.inventory).throttle_bytes_s)


def words(
    c: Context,
    f: MovesFacts,
    p: Progress,
    flying: Collection[Move],
    down: Collection[int],
    shut: Closed | None,
) -> str:
    """Describe the progress of the run, and each replica that is being copied or is behind.

    flying: the moves in flight or behind. down: brokers of the moves that are down. shut: why no move may
    begin.
    """
    assert f.plan is not None
    far = p.far
    told = f"phase {f.phase} of 0 to {f.last_phase}: " if f.last_phase else ""
    told += f"{far.done:,} of {counted(far.of, 'partition')}; {gib(far.bytes_left)} left"
    told += f", {p.time_left}" if far.bytes_left else ""
    told += (
        f"; {shut.words}"
        if shut
        else "; the time of --until has come, so no new move begins"
        if c.over
        else ""
    )
    told += f"; {f.rates.listening}" if f.rates and f.rates.listening else ""
    details = [*_endless(c, f, flying), *_copies(c, f, flying), *_obstacles(c, f)]
    details += [f"broker {id} is down" for id in sorted(down)]
    details += f.rates.of_others if f.rates else ()
    details += [f"the throttle file cannot be read: {c.overrides.wrong}"] if c.overrides.wrong else []
    return f"{told}; {few(details)}" if details else told


def _endless(c: Context, f: MovesFacts, flying: Collection[Move]) -> tuple[str, ...]:
    """Name the fixed rates at which the moves never finish.

    Rates that follow the load are reported when they change.
    """
    if f.found is None or f.rates is None or f.rates.control is not None:
        return ()
    inflow: Inflow = c.kept.get("inflow", Inflow())
    produced = inflow.produced(f.wall, f.sizes, LEAST_S)
    some = [replace(move, size=f.size(move)) for move in (*flying, *f.taken)]
    return endless(some, f.found.partitions, produced, f.rates.wanted, c.way)


def _copies(c: Context, f: MovesFacts, flying: Collection[Move]) -> Iterator[str]:
    """Yield a description of each replica that is being copied."""
    assert f.found is not None
    missing = f.found.missing_from
    yield from (_copy(f, move, broker) for move in flying for broker in missing(move.name))
    inside = (_inside(f, move, *at) for move in flying for at in move.paths(c.way).items())
    yield from filter(None, inside)
    yield from (
        f"moved by another tool: {_copy(f, move, broker)}"
        for move in f.taken
        for broker in missing(move.name)
    )


def _obstacles(c: Context, f: MovesFacts) -> Iterator[str]:
    """Yield a description of everything that delays moves."""
    assert f.plan is not None
    assert f.found is not None
    stands = f.stands(c.way).of
    if waiting := [move for move in f.cramped if stands.get(move.name) in (None, Stand.TO_SUBMIT)]:
        scarce = sorted({b for move in waiting for b in ends(move, c.way)[1]}.intersection(f.plan.tight))
        named = few(move.target for move in waiting)
        yield f"{named}: waiting for free space on brokers {few(map(str, scarce))}"
    yield from (f"{topic}-{number}: {why}" for (topic, number), why in f.disputes.items())
    known = {move.name for move in (*f.plan.moves, *f.plan.others)}
    if new := [f"{topic}-{number}" for topic, number in f.found.flights if (topic, number) not in known]:
        yield f"begun by another tool since, and not throttled: {few(new)}"


def _copy(f: MovesFacts, move: Move, broker: int) -> str:
    size = f.copied.get((broker, move.name))
    told = "not in sync" if size is None else f"{gib(size)} of {gib(f.size(move))}"
    state = f.found.partitions.get(move.name) if f.found else None
    reach = f.ends.words(broker, state.leader if state else -1, move.name)
    return f"{move.target} on {broker}: {told}, {reach}"


def _inside(f: MovesFacts, move: Move, broker: int, path: str) -> str:
    """Describe a replica that is being copied between directories of a broker; empty if none is."""
    if (broker, move.name) in f.disks.futures:
        size = f.disks.futures[broker, move.name][1]
        return f"{move.target} on {broker} into {path}: {gib(size)} of {gib(move.size)}"
    set_there = move.name not in (f.found.flights if f.found else {})
    untold = set_there and f.disks.stand(broker, move.name, path) is Stand.UNTOLD
    return f"{move.target} on {broker}: in an unknown directory, not seen in {path}" if untold else ""
