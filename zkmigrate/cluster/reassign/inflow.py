"""Measure what clients write to moving partitions, and find fixed rates that can never finish."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.choice import next_moves
from zkmigrate.cluster.reassign.estimate import Copies, ends
from zkmigrate.cluster.reassign.moves import Move, section
from zkmigrate.cluster.throttle.controller import never_finishing
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.kafka.rates import Moving, Rate, Role
from zkmigrate.runbook.model.finding import Finding, Held, Severity, claim, few, meanings
from zkmigrate.runbook.model.step import Context, Waiting, Way

APART_S = 5.0
"""Seconds between the two readings of sizes before a run."""
_SPAN_S = 1800.0
"""The longest time in seconds over which a rate of writes is measured."""
_END_WITHIN_S = 86_400.0
"""Seconds within which the moves would end at the recommended rate."""


@dataclass(frozen=True)
class Inflow:
    """The first reading of each partition's size.

    first: by partition, the time of its first reading in seconds since the epoch, and its bytes then.
    """

    first: Mapping[Name, tuple[float, int]] = field(default_factory=dict)

    def seen(self, at: float, sizes: Mapping[Name, int]) -> Inflow:
        """Return the readings with a new one.

        A partition that became smaller, as by retention, starts anew.
        """

        def kept(name: Name, size: int) -> tuple[float, int]:
            was = self.first.get(name)
            fits = was is not None and was[1] <= size and 0 <= at - was[0] <= _SPAN_S
            return was if was is not None and fits else (at, size)

        return Inflow({name: kept(name, size) for name, size in sizes.items()})

    def produced(self, at: float, sizes: Mapping[Name, int], least_s: float) -> dict[Name, float]:
        """Return bytes per second that clients wrote to partitions first seen ``least_s`` ago or earlier."""
        return {
            name: (sizes[name] - size) / (at - since)
            for name, (since, size) in self.first.items()
            if name in sizes and at - since >= least_s and sizes[name] >= size
        }


def endless(
    moves: Iterable[Move],
    partitions: Mapping[Name, PartitionState],
    produced: Mapping[Name, float],
    rates: Mapping[int, Rate],
    way: Way,
) -> tuple[str, ...]:
    """Describe each rate at which these moves never finish, if they copy at the same time."""
    some = _moving(moves, partitions, produced, way)
    return tuple(one.words() for one in never_finishing(some, rates, _END_WITHIN_S))


def _moving(
    moves: Iterable[Move], partitions: Mapping[Name, PartitionState], produced: Mapping[Name, float], way: Way
) -> list[Moving]:
    """Return the moves that copy from broker to broker, with what clients write to them."""

    def moving(move: Move) -> Moving:
        sender, receivers = ends(move, way)
        state = partitions.get(move.name)
        leader = state.leader if state is not None and state.leader >= 0 else sender
        in_sync = 0 if state is None else len({*state.isr} - {leader, *receivers})
        return Moving(*move.name, leader, receivers, move.size, produced[move.name], followers=in_sync)

    return [moving(move) for move in moves if move.name in produced and ends(move, way)[1]]


def _written(moves: Iterable[Moving]) -> float:
    """Return the most bytes per second of clients' writes that one throttle rate has to carry."""
    by_rate = defaultdict[tuple[int, Role], float](float)
    for one in moves:
        by_rate[one.leader, Role.LEADER] += one.produced * (len(one.adding) + one.followers)
        for broker in one.adding:
            by_rate[broker, Role.FOLLOWER] += one.produced
    return max(by_rate.values(), default=0.0)


def first_reading(c: Context, moves: Iterable[Move], at: float) -> Waiting | None:
    """Return the wait between two readings of the sizes, or None if there were two or none is needed.

    With ``adapt`` none is needed, because it measures what clients write at each tick.
    """
    sizes = {move.name: move.size for move in moves if move.copies}
    before: Inflow | None = c.kept.get("inflow")
    if not sizes or section(c.inventory).adapt is not None:
        return None
    if before is not None and any(at - since >= APART_S for since, _ in before.first.values()):
        return None
    keep = {**c.kept, "inflow": before or Inflow().seen(at, sizes)}
    what, told = (
        "a second reading of the partitions' sizes",
        "the run measures how much clients write to these partitions",
    )
    return Waiting(what, told, c.inventory.policy.step_deadline_s + APART_S, APART_S, keep)


def enough(
    c: Context, moves: Collection[Move], partitions: Mapping[Name, PartitionState], at: float
) -> tuple[Finding, ...]:
    """Return the finding that says whether the throttle exceeds what clients write to moving partitions."""
    before: Inflow | None = c.kept.get("inflow")
    if before is None:
        return ()
    pace = section(c.inventory)
    produced = before.produced(at, {move.name: move.size for move in moves}, APART_S)
    rate = Rate(pace.throttle_bytes_s, pace.throttle_bytes_s)
    rates = dict.fromkeys({id for move in moves for id in (*move.before, *move.after)}, rate)
    told = [
        clause
        for wave in _waves(c, moves)
        for clause in endless(wave, partitions, produced, rates, Way.FORWARD)
    ]
    seen = f"{sum(produced.values()):,.0f} bytes/s are written"
    if written_s := _written(_moving(moves, partitions, produced, Way.FORWARD)):
        seen += f"; with these writes the copies take {Copies.before(moves, pace, written_s=written_s).words}"
    return (
        claim(
            "reassign.endless",
            "the throttle is above the rate at which clients write to the moving partitions",
            not told,
            seen=few(dict.fromkeys(told)) if told else seen,
            needed="for each broker a rate above that of its clients' writes; otherwise its moves never end",
            severity=Severity.WARN,
        ),
    )


def measured(
    c: Context, moves: Collection[Move], partitions: Mapping[Name, PartitionState], at: float
) -> tuple[str, ...] | Waiting:
    """Return the lines that ``plan`` prints about the throttle and clients' writes, or a wait for figures."""
    waiting = first_reading(c, moves, at)
    if waiting is not None:
        return waiting
    return tuple(
        f"  {one.claim}: {one.seen}" if one.held is Held.YES else f"  warning: {one.id}: {one.seen}"
        for one in enough(c, moves, partitions, at)
    )


def _waves(c: Context, moves: Collection[Move]) -> Iterator[tuple[Move, ...]]:
    """Yield the moves in the largest groups that the caps allow in flight together."""
    left = [move for move in moves if move.copies]
    while left:
        wave = next_moves(section(c.inventory), (), left, Way.FORWARD)
        yield wave
        begun = set(wave)
        left = [move for move in left if move not in begun]


MEANINGS = meanings(
    """
    reassign.endless: A rate of the throttle is not above the rate at which clients write to the partitions
    that move, so these moves never end. Clients' writes are measured over 5 s before the run. Cause:
    throttle_bytes_s is too low, or the hour is busy. To do: Raise throttle_bytes_s, move at a quieter hour,
    or set adapt with raise_to_end: true.
    """
)
