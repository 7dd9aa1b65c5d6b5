"""Compute the figures of a plan: spreads of bytes, leaders and replicas, bytes moved, and a lower bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isqrt

from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.order import after as free_after
from zkmigrate.cluster.placement.plan import Reassignment


@dataclass(frozen=True, slots=True)
class Spread:
    """How far apart values of brokers are, in whole units.

    deviation: the standard deviation of the whole population, rounded down.
    """

    lowest: int
    highest: int
    deviation: int

    @property
    def range(self) -> int:
        return self.highest - self.lowest

    @property
    def percent(self) -> float | None:
        """The range as a share of the lowest value in percent; None if that is not above 0."""
        return 100 * self.range / self.lowest if self.lowest > 0 else None


@dataclass(frozen=True, slots=True)
class Held:
    """The figures of one broker.

    free: its free bytes.
    degree: the number of other brokers in the replica lists that name it.
    rate: bytes per second of all its replicas; None if the rate of one is unknown.
    """

    free: int
    leaders: int
    replicas: int
    degree: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """A registered broker before and after a plan.

    bytes_in: bytes of the copies that it gets. bytes_out: bytes of the replicas that it gives up.
    """

    broker: int
    rack: str
    before: Held
    after: Held
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """The figures of a plan.

    before, after: the spread of free bytes over the brokers that count.
    rate_before, rate_after: the spread of their rates, in whole bytes per second; None if not all are known.
    leaders, degree: pairs of spreads, before and after.
    moved: the bytes that are copied.
    lower_bound: the lower bound of ``moved`` for this range.
    """

    before: Spread
    after: Spread
    rate_before: Spread | None
    rate_after: Spread | None
    leaders: tuple[Spread, Spread]
    degree: tuple[Spread, Spread]
    brokers: tuple[BrokerStatistics, ...]
    moves: int
    moved: int
    lower_bound: int

    @property
    def eta(self) -> float | None:
        """The lower bound as a share of the bytes moved, where 1 is optimal; None if nothing is moved."""
        return self.lower_bound / self.moved if self.moved else None


def statistics(
    cluster: Cluster, moves: Sequence[Reassignment], brokers: Collection[int] | None = None
) -> Statistics:
    """Return the figures of moves.

    brokers: the brokers that count in a spread, and that the plan does not empty; None for all registered
    ones. The moves from any other broker are part of every plan, so the lower bound includes them.
    """
    counted = [broker for broker in cluster.brokers if brokers is None or broker in brokers]
    incoming: dict[int, int] = defaultdict(int)
    outgoing: dict[int, int] = defaultdict(int)
    for move in moves:
        for broker in move.added:
            incoming[broker] += move.size
        for broker in move.dropped:
            outgoing[broker] += move.size
    sets = {one.name: one.replicas for one in cluster.partitions}
    before = _statistics_by_broker(cluster, sets, cluster.free)
    sets |= {move.name: move.after for move in moves}
    after = _statistics_by_broker(cluster, sets, free_after(cluster.free, moves))
    spread = _spread(after[id_].free for id_ in counted)
    return Statistics(
        before=_spread(before[id_].free for id_ in counted),
        after=spread,
        rate_before=_rates(before, counted),
        rate_after=_rates(after, counted),
        leaders=(
            _spread(before[id_].leaders for id_ in counted),
            _spread(after[id_].leaders for id_ in counted),
        ),
        degree=(
            _spread(before[id_].degree for id_ in counted),
            _spread(after[id_].degree for id_ in counted),
        ),
        brokers=tuple(
            BrokerStatistics(id_, broker.rack, before[id_], after[id_], incoming[id_], outgoing[id_])
            for id_, broker in cluster.brokers.items()
        ),
        moves=len(moves),
        moved=sum(move.bytes for move in moves),
        lower_bound=lower_bound([cluster.brokers[id_].free for id_ in counted], spread.range, moves, counted),
    )


def lower_bound(
    free: Sequence[int], reached: int, moves: Iterable[Reassignment] = (), counted: Collection[int] = ()
) -> int:
    """Return the fewest bytes that any plan copies to bring free bytes within a range.

    free: the free bytes before, of the brokers that count.
    reached: the range.
    moves: moves that show which bytes must move anyway, and how many replicas partitions get.
    counted: the brokers that count.

    With L the lowest free bytes afterwards, a broker above L + range must be filled down to that level, and a
    broker below L must give up the missing bytes. Every byte that fills a broker is copied. So is every byte
    given up, except those of replica lists that get shorter. L is unknown, so the result is the minimum over
    all L.
    """
    forced = shorter = left = 0
    staying = set(counted)
    for move in moves:
        had, has = (sum(broker in staying for broker in of) for of in (move.before, move.after))
        forced += move.size * max(has - had, 0)
        shorter += move.size * (len(move.before) - len(move.after))
        left += move.size * sum(broker not in staying for broker in move.dropped)

    def filled(low: int) -> int:
        return sum(max(one - low - reached, 0) for one in free)

    def given(low: int) -> int:
        return sum(max(low - one, 0) for one in free) + left - shorter

    # One falls with L and the other rises, so their maximum is least where they cross.
    low, high = min(free, default=0) - reached - 1, max(free, default=0) + 1
    while low < high:
        middle = (low + high) // 2
        if given(middle) >= filled(middle):
            high = middle
        else:
            low = middle + 1
    return max(forced, min(max(filled(at), given(at)) for at in (low - 1, low)))


def _statistics_by_broker(
    cluster: Cluster, sets: Mapping[tuple[str, int], tuple[int, ...]], free: Mapping[int, int]
) -> dict[int, Held]:
    leaders: dict[int, int] = defaultdict(int)
    replicas: dict[int, int] = defaultdict(int)
    beside: dict[int, set[int]] = defaultdict(set)
    rates: dict[int, list[float]] = defaultdict(list)
    silent: set[int] = set()
    for name, members in sets.items():
        rate = cluster.by_name[name].rate
        leaders[members[0]] += 1
        for broker in members:
            replicas[broker] += 1
            beside[broker].update(members)
            if rate is None:
                silent.add(broker)
            else:
                rates[broker].append(rate)
    return {
        id_: Held(
            free[id_],
            leaders[id_],
            replicas[id_],
            len(beside[id_] - {id_}),
            None if id_ in silent else fsum(rates[id_]),
        )
        for id_ in cluster.brokers
    }


def _rates(held: Mapping[int, Held], counted: Iterable[int]) -> Spread | None:
    rates = [held[id_].rate for id_ in counted]
    known = [round(rate) for rate in rates if rate is not None]
    return _spread(known) if len(known) == len(rates) else None


def _spread(values: Iterable[int]) -> Spread:
    all_ = list(values)
    if not all_:
        return Spread(0, 0, 0)
    count, total = len(all_), sum(all_)
    squares = count * sum(value * value for value in all_) - total * total
    return Spread(min(all_), max(all_), isqrt(squares) // count)
