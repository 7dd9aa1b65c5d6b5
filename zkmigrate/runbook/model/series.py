"""Compute time series for a report: answers, the gaps between answers, and texts about both.

Rows come from files that may have been edited or torn: a value of the wrong type is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zkmigrate.runbook.model.report import Beat, Gap, Latency, Visit, clock

LISTED = 5
"""How many gaps a client's entry names, the longest first."""

_STEPS = 3
"""How many steps of one gap are named."""


def number(values: Mapping[str, Any], name: str) -> float | None:
    """Return the value of this name if it is a finite number, else None."""
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def by_broker(asked: Iterable[Beat]) -> dict[str, list[Beat]]:
    """Group the questions by broker, keeping their order; brokers are sorted by name."""
    own: dict[str, list[Beat]] = {}
    for beat in asked:
        own.setdefault(beat.broker, []).append(beat)
    return dict(sorted(own.items()))


def latencies(
    own: Mapping[str, Sequence[Beat]], gaps: Iterable[Gap], visits: Iterable[Visit]
) -> tuple[Latency, ...]:
    """Return for each broker the quantiles of its answers and its longest time without an answer.

    gaps: from :func:`silences`.
    """
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
    """Return the smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def silences(own: Sequence[Beat], every_s: float | None) -> list[Gap]:
    """Return the gaps of one broker with an unanswered question.

    A gap lasts from the last answer before the question to the first answer after it. It ends early when no
    question was sent for longer than four intervals and 2 s. every_s: the interval of the questions in
    seconds, None if unknown.
    """
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


def during(start: float, end: float | None, visits: Iterable[Visit]) -> tuple[str, ...]:
    """Return the steps that were walked at some time between ``start`` and ``end``."""
    until = start if end is None else end
    found = [
        f"{v.step}{' (back)' if v.back else ''}"
        for v in visits
        if v.start < until and (v.end is None or v.end > start)
    ]
    return tuple(dict.fromkeys(found))


def placed(gap: Gap, visits: Iterable[Visit]) -> Gap:
    """Return a gap together with the steps it overlaps."""
    return Gap(gap.client, gap.start, gap.end, gap.why, during(gap.start, gap.end, visits), gap.seconds)


def ms(value: float | None) -> str:
    """Return milliseconds as text."""
    return "-" if value is None else f"{value:.1f} ms"


def when(gap: Gap | None) -> str:
    """Return text that says when a gap was, in which steps, and why."""
    if gap is None:
        return "-"
    until = "to the end" if gap.end is None else f"to {clock(gap.end, 0.1)}"
    return f"{clock(gap.start, 0.1)} {until} in {steps_of(gap)}" + (f": {gap.why}" if gap.why else "")


def steps_of(gap: Gap) -> str:
    """Return the steps that a gap overlaps as text; of many, the first and the last."""
    if len(gap.during) > _STEPS:
        return f"{gap.during[0]} to {gap.during[-1]}"
    return ", ".join(gap.during) or "no step"


def quantiles(times: Sequence[tuple[float, float]]) -> str:
    """Return p50, p99 and the slowest of (moment, milliseconds) as text."""
    took = sorted(ms for _, ms in times)
    parts = (quantile(took, 0.5), quantile(took, 0.99), took[-1] if took else None)
    return ", ".join(ms(part) for part in parts) if took else "-"
