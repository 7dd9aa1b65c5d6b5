"""Plot values over time: answers, acknowledgements and latency of real clients, and lag."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from zkmigrate.report.sheet import EDGE, JOINED_S, LABELS, PLOT, Sheet
from zkmigrate.report.svg import BAD, SERIES, Axis
from zkmigrate.runbook.model.report import Beat, Curve, Lag, Produced, Report, clock, length

_LOW_MS, _HIGH_MS = 0.1, 10000.0
_DECADE_PX = 17.6
_BINS = 400
_MOST = 6000
"""With more points than this, a plot shows the median and the slowest of each short time."""

_PARTITIONS = 20
_PACE_S, _CANARY_PACE_S = 0.25, 0.6
"""More than this many seconds between two acknowledgements are a gap: for real clients, and for the canary.

The canary sends every quarter of a second.
"""

_APART_S = 60.0
"""Points that are more than this many seconds apart are in separate pieces of the time axis."""

_MIDDLE = {"median": SERIES[0], "slowest": SERIES[1]}


def answers(sheet: Sheet, report: Report, start: float, end: float) -> None:
    """Draw the canary's and real clients' acknowledgements, then each broker's answers.

    An answer is a dot on a logarithmic scale; a missing one is a cross.
    """
    samples = report.shown.samples
    _canary(sheet, samples.canary, report.produced, start, end)
    for acks in report.acks:
        moments = [t for t in acks.times if start <= t <= end]
        _acked(sheet, f"{acks.client}: acks", acks.client, moments, _PACE_S)
        if took := [(t, ms) for t, ms in acks.took if start <= t <= end]:
            _took(sheet, f"{acks.client}: latency", acks.client, took)
    inside = [b for b in report.beats if start <= b.at <= end]
    if inside and len(inside) <= _MOST:
        _dots(sheet, f"answers of {samples.answering}", inside)
    elif inside:
        _crowd(sheet, f"answers of {samples.answering}", samples.answering, inside)


def _canary(sheet: Sheet, name: str, produced: Sequence[Produced], start: float, end: float) -> None:
    """Draw the acknowledgements of each partition and the latency of all.

    Of many partitions, those with the longest gaps are drawn.
    """
    worst = sorted(produced, key=lambda x: -max((gap.seconds for gap in x.gaps), default=0.0))[:_PARTITIONS]
    for one in produced:
        moments = [at for at, _ in one.took if start <= at <= end]
        if one in worst and moments:
            number = one.partition.rpartition("-")[2]
            _acked(sheet, f"canary {number}: acks", one.partition, moments, _CANARY_PACE_S)
    if took := sorted((at, ms) for one in produced for at, ms in one.took if start <= at <= end):
        _took(sheet, f"{name} latency", f"{name} canary", took)


def _acked(sheet: Sheet, name: str, client: str, moments: Sequence[float], pace_s: float) -> None:
    """Draw a band while acknowledgements are at most ``pace_s`` apart, and nothing in a gap."""
    y = sheet.row(name)
    near = max(pace_s, sheet.axis.total / 1500)
    breaks = [n for n, (a, b) in enumerate(pairwise(moments), start=1) if b - a > near]
    for first, after in pairwise([0, *breaks, len(moments)]):
        if first < after:
            since, last = moments[first], moments[after - 1]
            said = f"{client}: acknowledged without a gap above {length(near)} from {clock(since, 0.1)}"
            sheet.bar(
                since, last, y + 3, said, height=10, fill=SERIES[0], data_acked=client,
                data_from=f"{since:.3f}", data_to=f"{last:.3f}",
            )  # fmt: skip


def _ms(sheet: Sheet, name: str, keys: dict[str, str]) -> tuple[float, float]:
    """Draw a logarithmic scale of milliseconds.

    Return the y of the scale's foot, and the y at which crosses for missing answers are drawn.
    """
    foot = sheet.plot(name, keys)
    for ms in (0.1, 1, 10, 100, 1000, 10000):
        sheet.rule(_y(foot, ms), f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms")
    sheet.y += 8
    return foot, _y(foot, _HIGH_MS) - 10


def _y(foot: float, ms: float) -> float:
    return foot - math.log10(min(max(ms, _LOW_MS), _HIGH_MS) / _LOW_MS) * _DECADE_PX


def _dots(sheet: Sheet, name: str, beats: Sequence[Beat]) -> None:
    names = sorted({b.broker for b in beats})
    keys = {broker: SERIES[n % len(SERIES)] for n, broker in enumerate(names)}
    foot, top = _ms(sheet, name, keys if len(names) <= len(SERIES) else {})
    for beat in beats:
        said = f"{beat.broker} at {clock(beat.at, 0.1)}: "
        colour, broker = keys[beat.broker], beat.broker
        if beat.ms is None:
            sheet.cross(beat.at, top, f"{said}no answer: {beat.why}", stroke=colour, data_beat=broker)
        else:
            sheet.dot(beat.at, _y(foot, beat.ms), f"{said}{beat.ms:g} ms", fill=colour, data_beat=broker)


def _crowd(sheet: Sheet, name: str, answering: str, beats: Sequence[Beat]) -> None:
    """Draw the median and slowest answers, and a cross where at least one broker did not answer."""
    top = _took(sheet, name, answering, [(beat.at, beat.ms) for beat in beats if beat.ms is not None])
    silent: dict[int, list[Beat]] = {}
    for beat in beats:
        if beat.ms is None:
            silent.setdefault(round(sheet.axis.x(beat.at) / 3), []).append(beat)
    for some in silent.values():
        names = sorted({beat.broker for beat in some})
        said = f"no answer of {len(names)}: {', '.join(names[:6])}"
        sheet.cross(some[0].at, top, said, stroke=BAD, data_silent=len(names))


def _took(sheet: Sheet, name: str, client: str, took: Sequence[tuple[float, float]]) -> float:
    """Draw the median and the slowest latency of each short time.

    Return the y at which crosses for missing answers are drawn.
    """
    foot, top = _ms(sheet, name, _MIDDLE)
    bins: dict[int, list[tuple[float, float]]] = {}
    wide = max(sheet.axis.total / _BINS, 0.05)
    for at, ms in took:
        bins.setdefault(int(at / wide), []).append((at, ms))
    for inside in bins.values():
        at, values = inside[0][0], sorted(ms for _, ms in inside)
        middle, most = values[(len(values) - 1) // 2], values[-1]
        said = f"{client} at {clock(at, 0.1)}: median {middle:.1f} ms, slowest {most:.1f} ms"
        x, low, high = sheet.axis.x(at), _y(foot, middle), _y(foot, most)
        sheet.mark("line", x1=x, x2=x, y1=low, y2=high, stroke="#b3b3b3")
        sheet.dot(at, high, said, r=1.6, fill=SERIES[1])
        sheet.dot(at, low, said, r=1.6, fill=SERIES[0])
    return top


def lag(report: Report) -> str:
    """Draw how many transactions each host was behind, until the proof."""
    points = [p for p in report.lags if p.behind is not None]
    sheet = Sheet(Axis(_pieces(p.at for p in points), LABELS, EDGE))
    colours = {host: SERIES[n % len(SERIES)] for n, host in enumerate(dict.fromkeys(p.host for p in points))}
    most = max([p.behind or 0 for p in points], default=0)
    ticks, foot = nice(most), sheet.plot("", colours)

    def height(look: Lag) -> float:
        return foot - (look.behind or 0) / ticks[-1] * PLOT

    for value in ticks:
        sheet.rule(foot - value / ticks[-1] * PLOT, f"{value:g}")
    for host, colour in colours.items():
        own = _thinned([p for p in points if p.host == host], sheet.axis)
        for a, b in pairwise(own):
            if b.at - a.at < JOINED_S:
                ends = {"x1": sheet.axis.x(a.at), "x2": sheet.axis.x(b.at), "y1": height(a), "y2": height(b)}
                sheet.mark("line", **ends, stroke=colour, stroke_width=1.2)
        for p in own:
            said = f"{host} at {clock(p.at, 0.1)}: {p.behind} transactions behind"
            sheet.dot(p.at, height(p), said, r=2.4, fill=colour, data_lag=host, data_behind=p.behind)
    sheet.y += 6
    said = f"At most {most} transactions behind; {len(points)} looks at {len(colours)} hosts."
    return sheet.drawn(report.shown.reporting.behind[1], said)


def curves(report: Report) -> str:
    """Draw a plot for each kind of figure, one below the other, with a line for each name.

    A line ends where nothing was measured for a minute.
    """
    sheet = Sheet(Axis(_pieces(at for one in report.curves for at, _ in one.points), LABELS, EDGE))
    names = sorted({one.name for one in report.curves})
    colours = {name: SERIES[n % len(SERIES)] for n, name in enumerate(names)}
    for plot in dict.fromkeys(one.plot for one in report.curves):
        own = [one for one in report.curves if one.plot == plot]
        ticks = nice(max((value for one in own for _, value in one.points), default=0.0))
        there = [one.name for one in own][: len(SERIES)]
        foot = sheet.plot(plot, {name: colours[name] for name in there})
        for value in ticks:
            sheet.rule(foot - value / ticks[-1] * PLOT, f"{value:g}")
        for one in own:
            _curve(sheet, one, foot, PLOT / ticks[-1], colours[one.name])
        sheet.y += 6
    said = f"{len(report.curves)} curves of {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}."
    return sheet.drawn(report.shown.reporting.curved[0], said)


def _curve(sheet: Sheet, one: Curve, foot: float, scale: float, colour: str) -> None:
    """Draw one curve. Of the points at one pixel, only the highest is drawn."""
    highest: dict[int, tuple[float, float]] = {}
    for at, value in one.points:
        place = round(sheet.axis.x(at))
        if place not in highest or value > highest[place][1]:
            highest[place] = at, value
    drawn = list(highest.values())
    for (a, before), (b, after) in pairwise(drawn):
        if b - a <= _APART_S:
            ends = {"x1": sheet.axis.x(a), "x2": sheet.axis.x(b)}
            heights = {"y1": foot - before * scale, "y2": foot - after * scale}
            sheet.mark("line", **ends, **heights, stroke=colour, stroke_width=1.2)
    for at, value in drawn:
        said = f"{one.name} at {clock(at, 0.1)}: {value:g} ({one.plot})"
        sheet.dot(at, foot - value * scale, said, r=1.6, fill=colour, data_curve=one.name, data_value=value)


def _thinned(own: Sequence[Lag], axis: Axis) -> list[Lag]:
    """Return, for each pixel, the sample in which the host was furthest behind."""
    worst: dict[int, Lag] = {}
    for look in own:
        place = round(axis.x(look.at))
        if place not in worst or (look.behind or 0) > (worst[place].behind or 0):
            worst[place] = look
    return list(worst.values())


def _pieces(moments: Iterable[float]) -> list[tuple[float, float]]:
    ordered = sorted(moments)
    breaks = [n for n, (a, b) in enumerate(pairwise(ordered), start=1) if b - a > _APART_S]
    return [(ordered[a], ordered[b - 1]) for a, b in pairwise([0, *breaks, len(ordered)])]


def nice(most: float) -> list[float]:
    """Return even ticks from 0 to at least ``most``, at most six."""
    unit = next(s * 10**power for power in range(12) for s in (1, 2, 5) if most <= s * 10**power * 5)
    return [float(unit * n) for n in range(max(1, math.ceil(most / unit)) + 1)]
