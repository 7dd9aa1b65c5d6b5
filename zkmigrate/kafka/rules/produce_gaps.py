"""Find the produce canary's acknowledgements and gaps per partition in its samples.

The file may have been edited or torn, so entries of an unexpected form are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zkmigrate.runbook.model.report import Gap, Produced, Rows, Visit, Window, of_kind
from zkmigrate.runbook.model.series import LISTED, number, placed

_RESTED_S = 2.0
"""A longer time in seconds between an acknowledgement and the next record means that the canary rested. It
is not a gap."""

_Ack = tuple[float, float, str]
_Wait = tuple[float, float, str]


def summarize_produce(
    rows: Rows, visits: Iterable[Visit], window: Window | None, paced: str
) -> tuple[Produced, ...]:
    """Return the results of each partition of the canary, in order.

    window: the window of the run, if it had one. paced: the name of the stage for the gaps in ``roll``.
    """
    walks = tuple(visits)
    walked = [(v.start, v.end) for v in walks if v.step.partition(".")[0] == paced]
    inside = [(window.start, window.end)] if window is not None else []
    acks, waits, names = _parse(rows)
    out = []
    for partition in sorted({*acks, *waits}):
        own = sorted(acks.get(partition, ()))
        gaps = [placed(gap, walks) for gap in _gaps(names[partition], own, waits.get(partition, ()))]
        by: dict[str, int] = {}
        for _, _, broker in own:
            by[broker] = by.get(broker, 0) + 1
        out.append(
            Produced(
                partition=names[partition],
                by=dict(sorted(by.items())),
                took=tuple((at, ms) for at, ms, _ in own),
                gaps=tuple(sorted(gaps, key=lambda gap: -gap.seconds)[:LISTED]),
                roll=_longest(gaps, walked),
                window=_longest(gaps, inside),
            )
        )
    return tuple(out)


def _parse(rows: Rows) -> tuple[dict[int, list[_Ack]], dict[int, list[_Wait]], dict[int, str]]:
    """Return acknowledgements, waits and names by partition.

    An acknowledgement is (time, milliseconds, broker). A wait is (time sent, time seen, why).
    """
    acks: dict[int, list[_Ack]] = {}
    waits: dict[int, list[_Wait]] = {}
    names: dict[int, str] = {}
    for at, row in of_kind(rows, "produce"):
        by_partition = row.get("acks")
        for key, entries in by_partition.items() if isinstance(by_partition, dict) else ():
            if not (isinstance(key, str) and key.isdecimal() and isinstance(entries, list)):
                continue
            names[int(key)] = f"{row.get('topic', '')}-{key}"
            acks.setdefault(int(key), []).extend(_acks(at, entries))
        late = row.get("late")
        for entry in late if isinstance(late, list) else ():
            fields = _fields(entry, 4)
            partition, since = number(fields, "1"), number(fields, "2")
            if partition is not None and since is not None:
                names[int(partition)] = f"{row.get('topic', '')}-{int(partition)}"
                waits.setdefault(int(partition), []).append((at - since, at, str(fields["3"])))
    return acks, waits, names


def _acks(at: float, entries: Sequence[Any]) -> Iterable[_Ack]:
    for entry in entries:
        fields = _fields(entry, 3)
        ago, took = number(fields, "1"), number(fields, "2")
        if ago is not None and took is not None:
            yield at - ago / 1000, took, str(fields["0"])


def _fields(entry: Any, length: int) -> Mapping[str, Any]:
    """Return the items of a list by index; empty for a list of another length."""
    if not isinstance(entry, list) or len(entry) != length:
        return {}
    return {str(n): item for n, item in enumerate(entry)}


def _gaps(name: str, own: Sequence[_Ack], waits: Sequence[_Wait]) -> list[Gap]:
    """Return the gaps between acknowledgements while records were sent, and one still open at the end."""
    out = []
    last = -math.inf
    for at, ms, _ in own:
        sent = at - ms / 1000
        start = last if sent - last <= _RESTED_S else sent
        out.append(Gap(name, start, at, _why(waits, start, at), (), at - start))
        last = at
    open_ = [w for w in waits if not any(at >= w[1] for at, _, _ in own)]
    if open_:
        since, until, why = min(w[0] for w in open_), open_[-1][1], open_[-1][2]
        start = last if since - last <= _RESTED_S else since
        out.append(Gap(name, start, None, why, (), until - start))
    return out


def _why(waits: Sequence[_Wait], start: float, end: float) -> str:
    """Return the last error in a gap; empty if the gap contains no sample."""
    return next((why for _, at, why in reversed(waits) if start < at <= end), "")


def _longest(gaps: Iterable[Gap], spans: Sequence[tuple[float, float | None]]) -> Gap | None:
    """Return the longest gap that overlaps one of these spans, at full length."""
    inside = [
        gap
        for gap in gaps
        if any((end is None or gap.start < end) and gap.start + gap.seconds > start for start, end in spans)
    ]
    return max(inside, key=lambda gap: gap.seconds, default=None)
