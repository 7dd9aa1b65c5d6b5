"""Plots over time: answers, acknowledgements and latency of real clients, lag."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from zkmigrate.model.report import Acks, Beat, Lag, Produced, Report, clock, length
from zkmigrate.report.sheet import EDGE, HEAD, JOINED_S, LABELS, SERIES, WIDTH, Sheet
from zkmigrate.report.svg import FAINT, RULE, Axis, figure, hover, tag, text

_LOW_MS, _HIGH_MS = 0.1, 10000.0
_PLOT = 100
_BINS = 400
_MOST = 6000
"""More points than this are told by the median and the slowest of each small stretch."""

_PARTITIONS = 20
_PACE_S = 0.6
"""Of the canary, whose records are a quarter of a second apart."""

_MIDDLE = [("median", SERIES[0]), ("slowest", SERIES[1])]


def answers(sheet: Sheet, report: Report, start: float, end: float) -> None:
    """Each answer as a dot, its time on a logarithmic scale; no answer as a cross on top. Before
    them what producers felt: the canary and real clients."""
    inside = [b for b in report.beats if start <= b.at <= end]
    told = report.shown.told
    _canary(sheet, told.canary, report.produced, start, end)
    for acks in report.acks:
        _client(sheet, acks, start, end)
    if not inside:
        return
    names = sorted({b.broker for b in inside})
    keys = [(name, SERIES[n]) for n, name in enumerate(names)] if len(names) <= len(SERIES) else []
    if len(inside) <= _MOST:
        _plot(sheet, f"answers of {told.asked}", keys, lambda height: _dots(sheet, inside, height))
    else:
        _plot(
            sheet, f"answers of {told.asked}", _MIDDLE,
            lambda height: _crowd(sheet, told.asked, inside, height),
        )  # fmt: skip


def _canary(sheet: Sheet, name: str, produced: Sequence[Produced], start: float, end: float) -> None:
    """The canary of this name: each partition's acknowledgements, of many partitions those with the longest
    gaps; and the latency of all."""
    worst = sorted(produced, key=lambda x: -max((gap.seconds for gap in x.gaps), default=0.0))[:_PARTITIONS]
    for one in [x for x in produced if x in worst]:
        moments = [at for at, _ in one.took if start <= at <= end]
        if moments:
            draw = partial(_acked, sheet, client=one.partition, moments=moments, usual=_PACE_S)
            sheet.row(f"canary {one.partition.rpartition('-')[2]}: acks", draw)
    took = sorted((at, ms) for one in produced for at, ms in one.took if start <= at <= end)
    if took:
        _plot(sheet, f"{name} latency", _MIDDLE, lambda height: _took(sheet, f"{name} canary", took, height))


def _client(sheet: Sheet, acks: Acks, start: float, end: float) -> None:
    """A real client: when it was acknowledged, and how long that took."""
    moments = [t for t in acks.times if start <= t <= end]
    took = [(t, ms) for t, ms in acks.took if start <= t <= end]
    sheet.row(f"{acks.client}: acks", lambda y: _acked(sheet, y, acks.client, moments))
    if took:
        _plot(
            sheet, f"{acks.client}: latency", _MIDDLE, lambda height: _took(sheet, acks.client, took, height)
        )


def _acked(sheet: Sheet, y: float, client: str, moments: Sequence[float], usual: float = 0.25) -> list[str]:
    """A band wherever two acknowledgements are closer than ``usual`` seconds; what is left is a gap."""
    out: list[str] = []
    near = max(usual, sheet.axis.total / 1500)
    since = last = None
    for at in [*moments, math.inf]:
        if since is None:
            since = last = at
        elif last is not None and at - last > near:
            x1, x2 = sheet.axis.x(since), sheet.axis.x(last)
            words = f"{client}: acknowledged without a gap above {length(near)} from {clock(since, 0.1)}"
            out.append(
                tag(
                    "rect",
                    hover(words),
                    x=x1,
                    y=y + 3,
                    width=max(x2 - x1, 1.0),
                    height=10,
                    fill="#0072b2",
                    data_acked=client,
                    data_from=f"{since:.3f}",
                    data_to=f"{last:.3f}",
                )
            )
            since = at
        last = at
    return out


def _plot(
    sheet: Sheet,
    name: str,
    keys: Sequence[tuple[str, str]],
    draw: Callable[[Callable[[float], float]], list[str]],
) -> None:
    """A plot of milliseconds on a logarithmic scale. draw: is told where a value lies."""
    top = sheet.y + 8

    def height(ms: float) -> float:
        share = math.log(min(max(ms, _LOW_MS), _HIGH_MS) / _LOW_MS) / math.log(_HIGH_MS / _LOW_MS)
        return top + _PLOT - share * (_PLOT - 12)

    out = [text(8, top + 2, name)]
    for ms in (0.1, 1, 10, 100, 1000, 10000):
        y = height(ms)
        out.append(tag("line", x1=LABELS, x2=sheet.right, y1=y, y2=y, stroke=RULE, stroke_dasharray="2 3"))
        out.append(
            text(
                LABELS - 8,
                y + 3,
                f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms",
                font_size=9,
                fill=FAINT,
                text_anchor="end",
            )
        )
    for n, (words, colour) in enumerate(keys):
        y = top + 20 + n * 13
        out.append(tag("circle", cx=14.0, cy=y - 4, r=3.5, fill=colour))
        out.append(text(22, y, words[:12], fill=FAINT))
    sheet.body += out + draw(height)
    sheet.y += _PLOT + 16


def _dots(sheet: Sheet, beats: Sequence[Beat], height: Callable[[float], float]) -> list[str]:
    names = sorted({b.broker for b in beats})
    out, top = [], height(_HIGH_MS) - 10
    for beat in beats:
        x, colour = sheet.axis.x(beat.at), SERIES[names.index(beat.broker) % len(SERIES)]
        if beat.ms is None:
            words = f"{beat.broker} at {clock(beat.at, 0.1)}: no answer: {beat.why}"
            cross = f"M{x - 2.5:.1f} {top:.1f} l5 5 m0 -5 l-5 5"
            out.append(tag("path", hover(words), d=cross, stroke=colour, fill="none", data_beat=beat.broker))
        else:
            words = f"{beat.broker} at {clock(beat.at, 0.1)}: {beat.ms:g} ms"
            out.append(
                tag(
                    "circle", hover(words), cx=x, cy=height(beat.ms), r=2.0, fill=colour,
                    data_beat=beat.broker, data_ms=f"{beat.ms:g}",
                )
            )  # fmt: skip
    return out


def _crowd(sheet: Sheet, asked: str, beats: Sequence[Beat], height: Callable[[float], float]) -> list[str]:
    """Many answers at once; a cross where at least one broker gave none."""
    took = [(beat.at, beat.ms) for beat in beats if beat.ms is not None]
    out, top = _took(sheet, asked, took, height), height(_HIGH_MS) - 10
    silent: dict[int, set[str]] = {}
    for beat in beats:
        if beat.ms is None:
            silent.setdefault(round(sheet.axis.x(beat.at) / 3), set()).add(beat.broker)
    for place, names in silent.items():
        words = f"no answer of {len(names)}: {', '.join(sorted(names)[:6])}"
        cross = f"M{place * 3 - 2.5:.1f} {top:.1f} l5 5 m0 -5 l-5 5"
        out.append(tag("path", hover(words), d=cross, stroke=SERIES[1], fill="none", data_silent=len(names)))
    return out


def _took(
    sheet: Sheet, client: str, took: Sequence[tuple[float, float]], height: Callable[[float], float]
) -> list[str]:
    """Median and slowest of what was acknowledged in each small stretch."""
    bins: dict[int, list[tuple[float, float]]] = {}
    wide = max(sheet.axis.total / _BINS, 0.05)
    for at, ms in took:
        bins.setdefault(int(at / wide), []).append((at, ms))
    out = []
    for inside in bins.values():
        x = sheet.axis.x(inside[0][0])
        values = sorted(ms for _, ms in inside)
        middle, most = values[(len(values) - 1) // 2], values[-1]
        words = f"{client} at {clock(inside[0][0], 0.1)}: median {middle:.1f} ms, slowest {most:.1f} ms"
        ends = {"x1": x, "x2": x, "y1": height(middle), "y2": height(most)}
        out.append(tag("line", stroke="#b3b3b3", **ends))
        out.append(tag("circle", hover(words), cx=x, cy=height(most), r=1.6, fill=SERIES[1]))
        out.append(tag("circle", hover(words), cx=x, cy=height(middle), r=1.6, fill=SERIES[0]))
    return out


def lag(report: Report) -> str:
    """How far each host was behind, until the proof."""
    points = [p for p in report.lags if p.behind is not None]
    axis = Axis(_pieces([p.at for p in points]), LABELS, EDGE)
    top, bottom = float(HEAD), float(HEAD + 130)
    most = max([p.behind or 0 for p in points], default=0)
    ticks = nice(most)

    def height(behind: float) -> float:
        return bottom - behind / ticks[-1] * (bottom - top)

    body = axis.draw(top, bottom)
    for value in ticks:
        y = height(value)
        body.append(tag("line", x1=LABELS, x2=EDGE, y1=y, y2=y, stroke=RULE))
        body.append(text(LABELS - 8, y + 4, f"{value:g}", text_anchor="end", fill=FAINT))
    hosts = list(dict.fromkeys(p.host for p in points))
    for n, host in enumerate(hosts):
        colour = SERIES[n % len(SERIES)]
        own = _thinned([p for p in points if p.host == host], axis)
        for a, b in pairwise(own):
            if b.at - a.at < JOINED_S:
                body.append(
                    tag("line", x1=axis.x(a.at), y1=height(a.behind or 0), x2=axis.x(b.at),
                        y2=height(b.behind or 0), stroke=colour, stroke_width=1.2)
                )  # fmt: skip
        body += [
            tag("circle", hover(f"{host} at {clock(p.at, 0.1)}: {p.behind} transactions behind"),
                cx=axis.x(p.at), cy=height(p.behind or 0), r=2.4, fill=colour, data_lag=host,
                data_behind=p.behind)
            for p in own
        ]  # fmt: skip
        body.append(tag("circle", cx=24.0, cy=top + 10 + n * 14, r=3.5, fill=colour))
        body.append(text(32, top + 14 + n * 14, host[:14], fill=FAINT))
    said = f"At most {most} transactions behind; {len(points)} looks at {len(hosts)} hosts."
    return figure("lag", report.shown.reporting.behind[1], said, WIDTH, bottom + 22, body)


def _thinned(own: Sequence[Lag], axis: Axis) -> list[Lag]:
    """Of each small stretch the look that was furthest behind."""
    worst: dict[int, Lag] = {}
    for look in own:
        place = round(axis.x(look.at))
        if place not in worst or (look.behind or 0) > (worst[place].behind or 0):
            worst[place] = look
    return list(worst.values())


def _pieces(moments: Sequence[float]) -> list[tuple[float, float]]:
    ordered = sorted(moments)
    out, start = [], ordered[0]
    for a, b in pairwise(ordered):
        if b - a > 60:
            out.append((start, a))
            start = b
    return [*out, (start, ordered[-1])]


def nice(most: float) -> list[float]:
    """Up to six even ticks from 0 to at least ``most``."""
    for power in range(12):
        for step in (1, 2, 5):
            if most <= step * 10**power * 5:
                unit = step * 10**power
                return [float(unit * n) for n in range(max(1, math.ceil(most / unit)) + 1)]
    return [0.0, float(most)]
