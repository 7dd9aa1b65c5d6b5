"""Find the gaps between acknowledgements of real clients, from the clients' own recordings.

No function here has side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from zkmigrate.report.timebase import Timebase
from zkmigrate.runbook.model.report import Acks, Gap, Visit
from zkmigrate.runbook.model.series import LISTED, number, placed


def acks(
    clients: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], times: Timebase, visits: Iterable[Visit]
) -> tuple[Acks, ...]:
    """Return the acknowledgements of each client, and their longest gaps.

    clients: (name, rows) as the lab's load records them. ``mono_ns`` of a row ``ack`` is the time of an
    acknowledgement, that of a row ``stopping`` the time when the client stopped sending. A client without
    acknowledgements is left out.
    """
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
