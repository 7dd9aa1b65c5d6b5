"""Estimate how much each broker copies and how long that takes, before a run and during it.

The functions have no side effects. The figures below were measured on Kafka 2.8.2 and 4.3.1, with 1 to 60
partitions of 0.1 to 240 MB and rates of 1 to 16 MB/s. A throttle below ``ANSWER_BYTES`` in ``QUOTA_WINDOW_S``
delays little, and the estimate is coarse there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.runbook.model.step import Way

QUOTA_WINDOW_S = 11.0
"""The window in seconds over which Kafka averages a throttled rate.

It consists of 11 samples of 1 s (``replication.quota.window.num`` and
``replication.quota.window.size.seconds``). Kafka forgets what was copied before them.
"""
FETCH_BYTES, ANSWER_BYTES = 1 << 20, 10 << 20
"""The most bytes of one partition in a fetch response, and the most bytes of a whole response.

Kafka calls them ``replica.fetch.max.bytes`` and ``replica.fetch.response.max.bytes``. A response that has
begun is sent as a whole, whatever the throttle, so the first response is not delayed.
"""
USED = 0.9
"""The share of a throttle that copies use; 0.88 to 1.0 were measured.

A delayed follower asks again after 1 s (``replica.fetch.backoff.ms``).
"""
BATCH_S = 1.0
"""Seconds from one batch of short moves to the next; each batch has as many moves as the caps allow."""
POLL_S = 2.0
"""Seconds between two queries about moves in flight. The last one confirms that all replicas are in sync."""

SPAN_S, APART_S = 1800.0, 10.0
"""The seconds of history that count for the throughput, and the fewest seconds between its readings."""


@dataclass(frozen=True)
class Load:
    """The moves in flight, counted by broker.

    total: the number of moves.
    to: how many moves bring a copy to a broker, by broker id.
    of: how many moves copy from a leader, by broker id.
    """

    total: int
    to: Mapping[int, int]
    of: Mapping[int, int]


def ends(move: Move, way: Way) -> tuple[int, tuple[int, ...]]:
    """Return the broker that sends a move's copies, and the brokers that receive them.

    On the way back the plan's preferred leader sends.
    """
    if way is Way.FORWARD:
        return move.leader, move.added
    return move.after[0], move.dropped


def load(moves: Iterable[Move], way: Way) -> Load:
    """Return the load of these moves.

    A copy between directories of a broker counts as one that it receives.
    """
    flying = tuple(moves)
    to = Counter(broker for move in flying for broker in (*ends(move, way)[1], *move.inside))
    of = Counter(ends(move, way)[0] for move in flying if ends(move, way)[1])
    return Load(len(flying), to, of)


def copied(moves: Iterable[Move], way: Way = Way.FORWARD) -> dict[int, tuple[int, int]]:
    """Return the bytes that each broker receives and sends, as (received, sent) by broker id, in order."""
    received: Counter[int] = Counter()
    sent: Counter[int] = Counter()
    for move in moves:
        sender, receivers = ends(move, way)
        sent[sender] += move.size * len(receivers)
        received.update(dict.fromkeys(receivers, move.size))
    return {broker: (received[broker], sent[broker]) for broker in sorted({*received, *sent})}


def busiest(moves: Iterable[Move], way: Way = Way.FORWARD) -> int:
    """Return the bytes of the busiest broker.

    A broker sends, receives, or copies between its directories; the largest of these sums counts.
    """
    some = tuple(moves)
    inside: Counter[int] = Counter()
    for move in some:
        inside.update(dict.fromkeys(move.inside, move.size))
    both = copied(some, way).values()
    return max((count for pair in (*both, inside.values()) for count in pair), default=0)


def batches(moves: Iterable[Move], how: Pace, way: Way = Way.FORWARD) -> int:
    """Return the fewest batches in which the caps allow these moves to be sent."""
    all_at_once = load(moves, way)
    most = max((*all_at_once.to.values(), *all_at_once.of.values()), default=0)
    return max(math.ceil(all_at_once.total / how.in_flight), math.ceil(most / how.per_broker))


@dataclass(frozen=True)
class Copies:
    """The bytes that remaining moves still copy.

    bytes_s: the throttle.
    left: the bytes that the busiest broker still has to copy. done: the bytes that it has copied.
    written_s: bytes per second of clients' writes that the throttle carries too.
    """

    moves: tuple[Move, ...]
    how: Pace
    way: Way
    bytes_s: float
    left: int
    done: int = 0
    written_s: float = 0.0

    @staticmethod
    def before(moves: Iterable[Move], how: Pace, way: Way = Way.FORWARD, written_s: float = 0.0) -> Copies:
        """Return the copies of moves that have not begun, at the throttle of the inventory."""
        some = tuple(moves)
        return Copies(some, how, way, how.throttle_bytes_s, busiest(some, way), written_s=written_s)

    @property
    def seconds(self) -> float:
        """The estimated time of the copies in seconds.

        Clients' writes to a partition burden the throttle only while its move is in flight.
        """
        if not self.moves:
            return 0.0
        sent = batches(self.moves, self.how, self.way)
        at_once = min(len(self.moves), self.how.in_flight, self.how.per_broker)
        answer = min(at_once * FETCH_BYTES, ANSWER_BYTES)
        pace = USED * self.bytes_s - self.written_s * (sent + 1) / (2 * sent)
        held_up = max(0, self.left - max(0, answer - self.done))
        return max(held_up / max(pace, answer / QUOTA_WINDOW_S), sent * BATCH_S) + POLL_S

    @property
    def words(self) -> str:
        """The estimate in words, for use before a run."""
        return f"about {self.seconds:,.0f} s at {self.bytes_s:,} bytes/s"


@dataclass(frozen=True)
class Throughput:
    """The progress of the copies in the last minutes, from which their rate follows.

    looks: (time, bytes left) of each reading with fewer bytes left than before, oldest first.
    begun: whether the first copied bytes were seen. The throttle does not delay these, so they do not show
    the rate.
    """

    looks: tuple[tuple[float, int], ...] = ()
    begun: bool = False

    def with_reading(self, at: float, left: int) -> Throughput:
        """Return the throughput with one more reading.

        It starts anew if more bytes are left, as after a cancelled move.
        """
        kept = tuple(look for look in self.looks if at - SPAN_S <= look[0] <= at and look[1] >= left)
        if not kept or (left < kept[-1][1] and not self.begun):
            return Throughput(((at, left),), begun=bool(kept))
        if left == kept[-1][1]:
            return Throughput(kept, self.begun)
        if len(kept) > 1 and kept[-1][0] - kept[-2][0] < APART_S:
            kept = kept[:-1]
        return Throughput((*kept, (at, left)), self.begun)

    @property
    def measured(self) -> bool:
        """Whether two readings have seen bytes being copied."""
        return len(self.looks) > 1

    def seconds(self, at: float, left: int, expected_s: float) -> float:
        """Return the estimated seconds for the bytes that are left.

        expected_s: the estimate without any reading. It counts as much as one window of Kafka's quota, and
        less with time. Until that window has passed without a byte, the estimate only decreases.
        """
        if not self.looks or left <= 0 or expected_s <= POLL_S:
            return expected_s
        (since, most), (last, least) = self.looks[0], self.looks[-1]
        idle_s = max(0.0, at - last)
        weight_s = QUOTA_WINDOW_S**2 / (QUOTA_WINDOW_S + last - since)
        looked_s = weight_s + last - since + max(0.0, idle_s - QUOTA_WINDOW_S)
        expected = weight_s * left / (expected_s - POLL_S)
        copying_s = left * looked_s / (expected + most - least)
        return max(0.0, copying_s - min(idle_s, QUOTA_WINDOW_S)) + POLL_S
