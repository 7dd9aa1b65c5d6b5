"""Series over time for a report: answers, the gaps between them, and these in words. Pure.

Rows come from files that anybody may have edited or torn: a value of the wrong type is left out.
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
    """The finite number of this name, else None."""
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def by_broker(asked: Iterable[Beat]) -> dict[str, list[Beat]]:
    """The questions to each broker, in order; brokers by name."""
    own: dict[str, list[Beat]] = {}
    for beat in asked:
        own.setdefault(beat.broker, []).append(beat)
    return dict(sorted(own.items()))


def latencies(
    own: Mapping[str, Sequence[Beat]], gaps: Iterable[Gap], visits: Iterable[Visit]
) -> tuple[Latency, ...]:
    """Per broker: quantiles of its answers, its longest time without one. gaps: from :func:`silences`."""
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
    """The stretches of one broker with an unanswered question, from the last answer before to the first
    after. A stretch in which nobody asked ends one."""
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


def ms(value: float | None) -> str:
    """Milliseconds for people."""
    return "-" if value is None else f"{value:.1f} ms"


def when(gap: Gap | None) -> str:
    """When a gap was, in which steps, and why."""
    if gap is None:
        return "-"
    until = "to the end" if gap.end is None else f"to {clock(gap.end, 0.1)}"
    return f"{clock(gap.start, 0.1)} {until} in {steps_of(gap)}" + (f": {gap.why}" if gap.why else "")


def steps_of(gap: Gap) -> str:
    """The steps that a gap overlaps; of many the first and the last."""
    if len(gap.during) > _STEPS:
        return f"{gap.during[0]} to {gap.during[-1]}"
    return ", ".join(gap.during) or "no step"


def quantiles(times: Sequence[tuple[float, float]]) -> str:
    """p50, p99 and the slowest of (moment, milliseconds)."""
    took = sorted(ms for _, ms in times)
    parts = (quantile(took, 0.5), quantile(took, 0.99), took[-1] if took else None)
    return ", ".join(ms(part) for part in parts) if took else "-"
