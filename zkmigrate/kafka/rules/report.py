"""Summarize a Kafka cluster's samples (``kafka/rules/sampling.py``) for a report.

The rows come from files that may have been edited or torn, so values of an unexpected type are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from zkmigrate.kafka.rules.produce_gaps import summarize_produce
from zkmigrate.runbook.model.report import (
    Beat,
    Gap,
    Report,
    Rows,
    Sampled,
    SampleReport,
    Sync,
    Table,
    Visit,
    Window,
    clock,
    length,
    move_of,
    of_kind,
    spacing_s,
)
from zkmigrate.runbook.model.series import (
    by_broker,
    latencies,
    ms,
    number,
    quantiles,
    silences,
    steps_of,
    when,
)


def summarize(rows: Rows, visits: Sequence[Visit], window: Window | None, paced: str) -> Sampled:
    """Return the answers of the brokers, the results of the produce canary and the states of the ISR."""
    every_s = spacing_s(of_kind(rows, "brokers"))
    requests = beats(rows)
    own = by_broker(requests)
    silent = tuple(gap for asked_of in own.values() for gap in silences(asked_of, every_s))
    return Sampled(
        beats=requests,
        beat_every_s=every_s,
        latencies=latencies(own, silent, visits),
        silences=silent,
        produced=summarize_produce(rows, visits, window, paced),
        syncs=syncs(rows),
    )


def beats(rows: Rows) -> tuple[Beat, ...]:
    """Return the result of every request to every broker, in order."""
    out = []
    for at, row in of_kind(rows, "brokers"):
        answered, silent = row.get("ms"), row.get("silent")
        if isinstance(answered, dict):
            out += [Beat(at, str(b), ms) for b in answered if (ms := number(answered, b)) is not None]
        if isinstance(silent, dict):
            out += [Beat(at, str(b), None, str(why)) for b, why in silent.items()]
    return tuple(out)


def syncs(rows: Rows) -> tuple[Sync, ...]:
    """Return the states of the cluster that the steps saw, in order."""
    out = []
    for at, row in of_kind(rows, "kafka"):
        names = ("controller", "partitions", "under", "offline")
        values = [int(v) for name in names if (v := number(row, name)) is not None]
        registered = row.get("brokers")
        if len(values) == len(names) and isinstance(registered, list):
            controller, partitions, under, offline = values
            out.append(Sync(at, controller, len(registered), partitions, under, offline))
    return tuple(out)


def figures(report: Report) -> tuple[tuple[str, str, str], ...]:
    """Return the report's key figures as (title, value, note).

    They are the longest silence of a broker, the answers in the window, and the longest produce gaps.
    """
    out, window = [], move_of(report.windows)
    worst = max((x.longest for x in report.latencies if x.longest), key=lambda g: g.seconds, default=None)
    if report.latencies:
        note = f"{worst.client}, in {steps_of(worst)}" if worst else "every request was answered"
        out.append(("longest silence of a broker", length(worst.seconds) if worst else "none", note))
    if window is not None and report.latencies:
        inside = [b for b in report.beats if window.start <= b.at <= (window.end or report.end)]
        silent = sum(b.ms is None for b in inside)
        took_ms = max((b.ms for b in inside if b.ms is not None), default=None)
        note = f"slowest answer {took_ms:.0f} ms" if took_ms is not None else "no answer"
        if inside:
            out.append(("brokers in the window", f"{len(inside) - silent} of {len(inside)} answers", note))
    for where, longest in _worst(report):
        note = f"{longest.client}, in {steps_of(longest)}"
        out.append((f"longest produce gap in {where}", length(longest.seconds), note))
    return tuple(out)


def _worst(report: Report) -> Iterator[tuple[str, Gap]]:
    """Yield the longest produce gap of the paced stage and of the window, at full length."""
    for where, gaps in (
        (report.shown.paced, [x.roll for x in report.produced]),
        ("the window", [x.window for x in report.produced]),
    ):
        longest = max((gap for gap in gaps if gap), key=lambda gap: gap.seconds, default=None)
        if longest is not None:
            yield where, longest


def _latencies(report: Report) -> Table:
    rows = [
        (
            x.broker, f"{x.answered} of {x.asked}", ms(x.p50_ms), ms(x.p99_ms), ms(x.max_ms),
            length(x.longest.seconds) if x.longest else "none", when(x.longest),
        )
        for x in sorted(report.latencies, key=lambda x: -x.longest.seconds if x.longest else 0)
    ]  # fmt: skip
    every = f" One request every {length(report.beat_every_s)}." if report.beat_every_s else ""
    return Table(
        "latency",
        "Answers of the brokers",
        ("broker", "answers", "p50", "p99", "slowest", "longest silence", "when"),
        tuple(rows),
        "Round trips of ApiVersions, a request that needs no rights and changes nothing. They show that a "
        f"broker serves, not how long producing takes. The longest silence comes first.{every}",
        (6,),
    )


def _produced(report: Report) -> Table:
    rows = []
    for x in report.produced:
        by = ", ".join(f"{broker} {count}" for broker, count in x.by.items()) or "no broker"
        longest_gaps = [length(gap.seconds) if gap else "-" for gap in (x.roll, x.window)]
        longest = x.gaps[0] if x.gaps else None
        whole = f"{length(longest.seconds)}: {when(longest)}" if longest else "-"
        rows.append((x.partition, by, quantiles(x.took), *longest_gaps, whole))
    intro = (
        "The canary sends one small record at a time to each partition, and repeats it until all in-sync "
        "replicas acknowledge it. A gap is the time between two acknowledgements; 250 ms is normal."
    )
    head = (
        "partition", "acknowledged by", "latency p50, p99, slowest", f"longest gap in {report.shown.paced}",
        "in the window", "longest of all",
    )  # fmt: skip
    return Table("produced", "The produce canary", head, tuple(rows), intro, (1, 5))


def _events(report: Report) -> Table:
    rows, since = [], None
    for before, now in pairwise(report.syncs):
        if before.controller != now.controller:
            rows.append((clock(now.at, 0.1), f"controller {before.controller} to {now.controller}"))
        if now.under and not before.under:
            since = now.at
        if since is not None and not now.under:
            span = [s for s in report.syncs if since <= s.at < now.at]
            worst = max(s.under for s in span)
            offline = max(s.offline for s in span)
            words = f"{worst} of {now.partitions} partitions not in sync for {length(now.at - since)}"
            rows.append((clock(since, 0.1), words + f", {offline} offline" * bool(offline)))
            since = None
    if since is not None:
        rows.append((clock(since, 0.1), "partitions not in sync until the end of the samples"))
    intro = (
        "The state of the cluster during the steps. Without ZooKeeper, brokers report their last known state."
    )
    return Table("sync", "ISR and controller", ("when", "what"), tuple(sorted(rows)), intro, (1,))


SAMPLE_REPORT = SampleReport(
    summarize,
    figures,
    felt=(_latencies, _produced),
    sections=(_events,),
    answering="brokers",
    canary="produce",
)
