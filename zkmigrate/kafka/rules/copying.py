"""Measure the progress and cost of partition moves from two readings of the brokers' log directories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from zkmigrate.hosts.facts.load import Load
from zkmigrate.kafka.questions import LogDirs, ReplicaLog
from zkmigrate.kafka.rates import Moving, Rate, Sample
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Pulse
from zkmigrate.runbook.model.series import quantile


@dataclass(frozen=True)
class Copied:
    """The progress and the traffic measured between two readings.

    moving: the partitions, each with its remaining bytes, produce rate and lags. rates: bytes per second that
    each broker sent and received as copies, by broker id. A broker has no rate if its directories, or those
    of a broker that copies from it, were not seen both times.
    """

    moving: tuple[Moving, ...]
    rates: Mapping[int, Rate]


def measure_copying(
    moving: Iterable[Moving], before: Mapping[int, LogDirs], after: Mapping[int, LogDirs], elapsed_s: float
) -> Copied:
    """Measure how much was copied between two readings.

    before, after: log directories by broker id. elapsed_s: seconds between the readings, greater than 0. The
    produce rate is the growth of the leader's log, so bytes that retention deletes meanwhile are missing. If
    the log shrank, the previous rate is kept. A partition is returned unchanged if its leader is not seen.
    """
    was, now = _logs(before), _logs(after)
    answers, sent, received = [], dict[int, float](), dict[int, float]()
    seen = {id_ for id_, dirs in before.items() if isinstance(dirs, Seen)}
    seen &= {id_ for id_, dirs in after.items() if isinstance(dirs, Seen)}
    unclear: set[int] = set()
    for one in moving:
        answers.append(_measure(one, was, now, elapsed_s))
        for broker in one.adding:
            if broker not in seen:
                unclear |= {one.leader, broker}
                continue
            key = one.topic, one.partition, broker
            size = now[key].size if key in now else 0
            grown = max(size - (was[key].size if key in was else 0), 0)
            sent[one.leader] = sent.get(one.leader, 0.0) + grown
            received[broker] = received.get(broker, 0.0) + grown
    rates = {
        id_: Rate(round(sent.get(id_, 0) / elapsed_s), round(received.get(id_, 0) / elapsed_s))
        for id_ in sorted(seen - unclear)
    }
    return Copied(tuple(answers), rates)


def sample(load: Load, own: Rate | None, pulses: Sequence[Pulse]) -> Sample:
    """Return the measurements of one broker since the last tick.

    own: the rates at which it copied, where known. pulses: results of the canary; one without an answer
    counts as slower than any limit.
    """
    took = sorted(math.inf if pulse.why else pulse.took_s * 1000 for pulse in pulses)
    return Sample(load.sent, load.received, own, load.busy, load.await_ms, quantile(took, 0.99))


def _measure(
    one: Moving,
    was: Mapping[tuple[str, int, int], ReplicaLog],
    now: Mapping[tuple[str, int, int], ReplicaLog],
    elapsed_s: float,
) -> Moving:
    leader = now.get((one.topic, one.partition, one.leader))
    if leader is None:
        return one
    earlier = was.get((one.topic, one.partition, one.leader))
    grown = -1 if earlier is None else leader.size - earlier.size
    copies = {b: now.get((one.topic, one.partition, b)) for b in one.adding}
    left = max((leader.size - (copy.size if copy else 0) for copy in copies.values()), default=0)
    return replace(
        one,
        left=max(left, 0),
        produced=one.produced if grown < 0 else grown / elapsed_s,
        lags={b: copy.lag for b, copy in copies.items() if copy is not None and copy.lag >= 0},
    )


def _logs(answers: Mapping[int, LogDirs]) -> dict[tuple[str, int, int], ReplicaLog]:
    """Return the replicas by topic, partition and broker.

    Copies between two directories of the same broker are left out.
    """
    return {
        (log.topic, log.partition, broker): log
        for broker, dirs in answers.items()
        if isinstance(dirs, Seen)
        for directory in dirs.value.values()
        if isinstance(directory, Seen)
        for log in directory.value.replicas
        if not log.future
    }
