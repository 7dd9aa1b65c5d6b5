"""Compute how long acknowledgements took, for each second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from zkmigrate.lab.load.json_lines import Event, Recording
from zkmigrate.runbook.model.series import quantile

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Second:
    """The acknowledged records that were sent in one second.

    at_s: the second, by CLOCK_MONOTONIC. planned: the plan's rate at the end of the second, in records per
    second; None without a plan. acked: the number of records. p50_ms, p99_ms, max_ms: milliseconds from
    sending to the acknowledgement.
    """

    at_s: int
    planned: float | None
    acked: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def by_second(producer: Recording) -> tuple[Second, ...]:
    """Return, in order, the seconds in which acknowledged records were sent.

    A record belongs to the second in which it was sent, so that an outage shows at its own time. Records
    without an acknowledgement are not included; the claim ``produce_failed`` counts them.
    """
    took: dict[int, list[float]] = defaultdict(list)
    for ack in producer.of("ack"):
        sent_ns = int(ack["sent_mono_ns"])
        took[sent_ns // _SECOND_NS].append((ack["mono_ns"] - sent_ns) / 1e6)
    rates = [(int(change["mono_ns"]), float(change["rate"])) for change in producer.of("rate")]
    return tuple(_second(at_s, sorted(own), rates) for at_s, own in sorted(took.items()))


def _second(at_s: int, took: list[float], rates: Iterable[tuple[int, float]]) -> Second:
    end_ns = (at_s + 1) * _SECOND_NS
    planned = [rate for changed_ns, rate in rates if changed_ns < end_ns]
    p50, p99 = (round(quantile(took, share) or 0.0, 3) for share in (0.5, 0.99))
    return Second(at_s, planned[-1] if planned else None, len(took), p50, p99, round(took[-1], 3))


def p99_ms(acks: Iterable[Event]) -> float | None:
    """Return the p99 of the acknowledgements' latency in milliseconds, or None without acknowledgements."""
    found = quantile(sorted((ack["mono_ns"] - ack["sent_mono_ns"]) / 1e6 for ack in acks), 0.99)
    return None if found is None else round(found, 3)
