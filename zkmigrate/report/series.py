"""Series over time, from samples and from real clients: answers, gaps, lag, what was in sync. Pure.

Rows come from files that anybody may have edited or torn: a value of another type is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from zkmigrate.facts.recorded import Drained, Proved, Stopped, recorded
from zkmigrate.report.lanes import placed
from zkmigrate.report.story import Story
from zkmigrate.report.timebase import Timebase, number
from zkmigrate.report.value import Acks, Beat, Gap, Lag, Latency, Proof, Sync, Visit
from zkmigrate.zkdata.errors import ZkDataError
from zkmigrate.zkdata.zxid import epoch, parse_zxid

Rows = Sequence[tuple[float, Mapping[str, Any]]]
LISTED = 5
"""Gaps that a client's entry names, the longest first."""


def of_kind(rows: Rows, kind: str) -> Rows:
    """The samples of one kind."""
    return [(at, row) for at, row in rows if row.get("kind") == kind]


def spacing_s(rows: Rows) -> float | None:
    """The usual time between two samples: the median."""
    steps = sorted(b - a for (a, _), (b, _) in pairwise(rows))
    return steps[len(steps) // 2] if steps else None


def others(rows: Rows, dest: Sequence[str]) -> tuple[str, ...]:
    """The ZooKeeper hosts that samples name beside these."""
    named = [str(host) for _, row in rows if isinstance(row.get("servers"), dict) for host in row["servers"]]
    return tuple(name for name in dict.fromkeys(named) if name not in dest)


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


def lags(rows: Rows, source: Sequence[str], dest: Sequence[str], until: float | None) -> tuple[Lag, ...]:
    """Per dest host, how many transactions it was behind source's leader; up to the proof.

    Both were asked at once, so a host that is ahead was asked a moment later: it counts as not behind.
    """
    out = []
    for at, row in of_kind(rows, "ensembles"):
        servers = row.get("servers")
        if not isinstance(servers, dict) or (until is not None and at > until):
            continue
        leads = [
            z for host in source if (z := _zxid(servers.get(host), ("leader", "standalone"))) is not None
        ]
        if len(leads) != 1:
            continue
        for host in dest:
            zxid = _zxid(servers.get(host), ("observer",))
            if zxid is not None:
                same = epoch(zxid) == epoch(leads[0])
                out.append(Lag(at, host, max(0, leads[0] - zxid) if same else None))
    return tuple(out)


def _zxid(said: Any, modes: tuple[str, ...]) -> int | None:
    if not isinstance(said, list) or len(said) != 2 or said[0] not in modes or not isinstance(said[1], str):
        return None
    try:
        return int(parse_zxid(said[1]))
    except ZkDataError:
        return None


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


def proof(story: Story, run: str) -> Proof | None:
    """The last proof: of the cut-over if it came to that, else of the rehearsal."""
    for stage in ("cutover", "rehearse"):
        parts = {name: story.records.get(f"{stage}.{name}") for name in ("drain", "stop", "prove")}
        drain, stop, prove = parts["drain"], parts["stop"], parts["prove"]
        if drain is None:
            continue
        proved = recorded(Proved, prove[1], run) if prove is not None else None
        return Proof(
            at=prove[0] if prove is not None else None,
            stage=stage,
            z=recorded(Drained, drain[1], run).z,
            needed=proved.needed if proved is not None else None,
            tails=recorded(Stopped, stop[1], run).tails if stop is not None else {},
            delta_after=proved.delta.after if proved is not None else None,
            delta_last=proved.delta.last if proved is not None else None,
            delta_records=proved.delta.records if proved is not None else None,
        )
    return None
