"""Series over time, from samples and from real clients: answers, gaps, lag, what was in sync. Pure.

Rows come from files that anybody may have edited or torn: a value of another type is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from zkmigrate.model.report import Acks, Beat, Gap, Latency, Rows, Sync, Visit, of_kind
from zkmigrate.report.timebase import Timebase, number

LISTED = 5
"""Gaps that a client's entry names, the longest first."""


def beats(rows: Rows) -> tuple[Beat, ...]:
    """Every question to every broker, in order."""
    out = []
    for at, row in of_kind(rows, "brokers"):
        answered, silent = row.get("ms"), row.get("silent")
        if isinstance(answered, dict):
            out += [Beat(at, str(b), ms) for b in answered if (ms := number(answered, b)) is not None]
        if isinstance(silent, dict):
            out += [Beat(at, str(b), None, str(why)) for b, why in silent.items()]
    return tuple(out)


def by_broker(asked: Iterable[Beat]) -> dict[str, list[Beat]]:
    """The questions to each broker, in order; brokers by name."""
    own: dict[str, list[Beat]] = {}
    for beat in asked:
        own.setdefault(beat.broker, []).append(beat)
    return dict(sorted(own.items()))


def latencies(
    own: Mapping[str, Sequence[Beat]], gaps: Iterable[Gap], visits: Iterable[Visit]
) -> tuple[Latency, ...]:
    """Per broker: quantiles of its answers and the longest time without one. gaps: as :func:`silences`."""
    walks, worst = tuple(visits), dict[str, Gap]()
    for gap in gaps:
        if gap.client not in worst or gap.seconds > worst[gap.client].seconds:
            worst[gap.client] = gap
    out = []
    for broker, beats in own.items():
        took = sorted(beat.ms for beat in beats if beat.ms is not None)
        longest = placed(worst[broker], walks) if broker in worst else None
        slowest = took[-1] if took else None
        p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
        out.append(Latency(broker, len(beats), len(took), p50, p99, slowest, longest))
    return tuple(out)


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def silences(own: Sequence[Beat], every_s: float | None) -> list[Gap]:
    """The stretches of one broker in which at least one question had no answer: from the last answer before
    to the first after. A stretch in which nobody asked ends one."""
    limit = 4 * every_s + 2.0 if every_s is not None else math.inf
    out: list[Gap] = []
    last: float | None = None
    since: float | None = None
    why, before = "", None
    for beat in own:
        if before is not None and beat.at - before > limit:
            if since is not None:
                out.append(Gap(beat.broker, since, None, why, (), before - since))
            last = since = None
        if beat.ms is None:
            since = since if since is not None else (last if last is not None else beat.at)
            why = why if since is not None and why else beat.why
        else:
            answered = beat.at + beat.ms / 1000
            if since is not None:
                out.append(Gap(beat.broker, since, answered, why, (), answered - since))
            since, last, why = None, answered, ""
        before = beat.at
    if since is not None and before is not None:
        out.append(Gap(own[-1].broker, since, None, why, (), before - since))
    return out


def acks(
    clients: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], times: Timebase, visits: Iterable[Visit]
) -> tuple[Acks, ...]:
    """Real clients' acknowledgements, as the lab's load records them: ``mono_ns`` of each ``ack``, and of
    ``stopping``, when the client stopped asking."""
    walks = tuple(visits)
    out = []
    for client, rows in clients:
        stamped = [(r.get("event"), ns / 1e9) for r in rows if (ns := number(r, "mono_ns")) is not None]
        moments = sorted(times.of_mono(t) for event, t in stamped if event == "ack")
        if not moments:
            continue
        stopped = [times.of_mono(t) for event, t in stamped if event == "stopping"]
        end = stopped[0] if stopped else times.of_mono(max(t for _, t in stamped))
        stretches = [*pairwise(moments), *([(moments[-1], end)] if end > moments[-1] else [])]
        worst = sorted(stretches, key=lambda pair: pair[0] - pair[1])[:LISTED]
        gaps = tuple(placed(Gap(client, a, b, "", (), b - a), walks) for a, b in worst)
        out.append(Acks(client, len(moments), gaps, tuple(moments), _took(rows, times)))
    return tuple(out)


def _took(rows: Iterable[Mapping[str, Any]], times: Timebase) -> tuple[tuple[float, float], ...]:
    out = []
    for row in rows:
        sent, acked = number(row, "sent_mono_ns"), number(row, "mono_ns")
        if row.get("event") == "ack" and sent is not None and acked is not None:
            out.append((times.of_mono(acked / 1e9), max(0.0, acked - sent) / 1e6))
    return tuple(sorted(out))


def syncs(rows: Rows) -> tuple[Sync, ...]:
    """The cluster as the steps saw it."""
    out = []
    for at, row in of_kind(rows, "kafka"):
        names = ("controller", "partitions", "under", "offline")
        values = [int(v) for name in names if (v := number(row, name)) is not None]
        registered = row.get("brokers")
        if len(values) == len(names) and isinstance(registered, list):
            controller, partitions, under, offline = values
            out.append(Sync(at, controller, len(registered), partitions, under, offline))
    return tuple(out)


def during(start: float, end: float | None, visits: Iterable[Visit]) -> tuple[str, ...]:
    """The steps whose walks overlap this stretch."""
    until = start if end is None else end
    found = [
        f"{v.step}{' (back)' if v.back else ''}"
        for v in visits
        if v.start < until and (v.end is None or v.end > start)
    ]
    return tuple(dict.fromkeys(found))


def placed(gap: Gap, visits: Iterable[Visit]) -> Gap:
    """A gap with the steps it overlaps."""
    return Gap(gap.client, gap.start, gap.end, gap.why, during(gap.start, gap.end, visits), gap.seconds)
