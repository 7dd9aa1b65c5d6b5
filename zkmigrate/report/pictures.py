"""The pictures of a report: the timeline of the run, each window close up, latency, lag.

Colours are those of Okabe and Ito (Color Universal Design), told apart by people who see fewer colours; a
state is also written into its bar where there is room, and into what a pointer is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from zkmigrate.report import lanes
from zkmigrate.report.svg import CHAR_PX, FAINT, RULE, TEXT, Axis, clock, figure, hover, length, tag, text
from zkmigrate.report.value import Acks, Beat, Decision, Lane, Report, Span, Visit, Window

WIDTH, LABELS = 1040, 150
_ROW, _BAR, _HEAD = 22, 16, 30
_EDGE = WIDTH - 12

FILL: dict[str, str] = {
    lanes.JOINING: "#d9d9d9", lanes.OBSERVING: "#56b4e9", lanes.FENCED: "#f0e442", lanes.CUT: "#e69f00",
    lanes.STOPPED: "#a6a6a6", lanes.STARTED: "#cc79a7", lanes.OPEN: "#2bb58b",
    lanes.OLD: "#56b4e9", lanes.RESTARTING: "#f0e442", lanes.NEW: "#2bb58b",
    lanes.SERVES: "#2bb58b", lanes.SOME: "#f0e442", lanes.SHUT: "#e69f00", lanes.DOWN: "#ee7733",
    lanes.UNKNOWN: "#d9d9d9",
}  # fmt: skip
_SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#1a1a1a", "#56b4e9")
_BAD = "#d55e00"


class _Sheet:
    """Rows from top to bottom; what belongs to the axis is drawn below them."""

    def __init__(self, axis: Axis, right: float) -> None:
        self.axis = axis
        self.right = right
        self.y = float(_HEAD)
        self.body: list[str] = []

    def row(self, name: str, draw: Callable[[float], Iterable[str]], height: float = _ROW) -> None:
        shown = name if len(name) <= 23 else f"{name[:22]}…"
        self.body.append(text(LABELS - 8, self.y + _BAR - 4, shown, text_anchor="end"))
        self.body += draw(self.y)
        self.y += height

    def gap(self) -> None:
        self.y += 8

    def bar(self, y: float, span: Span, name: str, height: float = _BAR) -> str:
        end = self.axis.pieces[-1][1] if span.end is None else span.end
        x1, x2 = self.axis.x(span.start), self.axis.x(end)
        shown = length(end - span.start)
        until = "still so at the end" if span.end is None else f"to {clock(end, 0.1)}, {shown}"
        note = f" ({span.note})" if span.note else ""
        words = f"{name}: {span.state}{note}, from {clock(span.start, 0.1)} {until}"
        parts = [
            tag(
                "rect", hover(words), x=x1, y=y, width=max(x2 - x1, 1.0), height=height,
                fill=FILL.get(span.state, "#ffffff"), stroke="#ffffff", stroke_width=0.5,
                data_lane=name, data_state=span.state, data_from=f"{span.start:.3f}",
                data_to="" if span.end is None else f"{span.end:.3f}",
            )
        ]  # fmt: skip
        if len(span.state) * CHAR_PX + 6 <= x2 - x1:
            parts.append(text((x1 + x2) / 2, y + height - 4.5, span.state, text_anchor="middle"))
        return "".join(parts)

    def whole(self, name: str, title: str, description: str) -> str:
        bottom = self.y
        height = bottom + 22
        return figure(
            name, title, description, WIDTH, height, [*self.axis.draw(_HEAD - 4, bottom), *self.body]
        )


def _shown(lane: Lane, start: float, end: float) -> list[Span]:
    """The spans inside the picture, neighbours in the same state as one: notes differ, colours do not."""
    out: list[Span] = []
    for span in lane.spans:
        until = end if span.end is None else span.end
        if until < start or span.start > end:
            continue
        cut = Span(max(span.start, start), None if until >= end else until, span.state, span.note)
        if out and out[-1].state == cut.state and out[-1].end == cut.start:
            both = "; ".join(dict.fromkeys(n for n in (out[-1].note, cut.note) if n))
            cut = Span(out[-1].start, cut.end, cut.state, both)
            out.pop()
        out.append(cut)
    return out


def timeline(report: Report) -> str:
    """The whole run: stages, ensembles, hosts, brokers, what was in sync, answers of brokers."""
    sheet = _Sheet(Axis(report.active, LABELS, _EDGE), _EDGE)
    end = report.active[-1][1]
    sheet.row("stage", lambda y: _stages(sheet, y, report.visits, end))
    _rows(sheet, report, report.start, end)
    if report.syncs:
        sheet.row("not in sync", lambda y: _sync(sheet, y, report))
    _answers(sheet, report, report.start, end)
    sheet.body += _marks(sheet, report.decisions)
    said = f"{len(report.lanes)} rows from {clock(report.start)} to {clock(end)} UTC. {report.headline}"
    return sheet.whole("timeline", "Timeline of the run", said)


def close_up(window: Window, report: Report, number: int) -> str:
    """One window, from a little before FENCE to a little after its end."""
    last = report.end if window.end is None else window.end
    start, end = max(report.start, window.start - 2.0), max(min(report.end, last + 3.0), window.start + 0.5)
    sheet = _Sheet(Axis([(start, end)], LABELS, _EDGE), _EDGE)
    sheet.row("step", lambda y: _steps(sheet, y, window))
    _rows(sheet, report, start, end)
    _answers(sheet, report, start, end)
    top, bottom = _HEAD - 4, sheet.y
    for at, words, colour in (
        (window.start, "FENCE", TEXT),
        (window.deadline, "way back must start", _BAD),
        (window.end, "OPEN" if window.outcome == "opened" else "reopened", TEXT),
    ):
        if at is not None and start <= at <= end:
            sheet.body += _line(sheet.axis.x(at), top, bottom, words, colour)
    took = length(window.seconds) if window.seconds is not None else "not over"
    title = (
        f"{'Rehearsed window' if window.rehearsal else 'Window'} of {window.stage}: {window.outcome}, {took}"
    )
    parts = ", ".join(f"{p.step}{' back' if p.back else ''} {length(p.seconds or 0)}" for p in window.parts)
    return sheet.whole(f"window-{number}", title, parts)


def _rows(sheet: _Sheet, report: Report, start: float, end: float) -> None:
    kind = ""
    for lane in report.lanes:
        if lane.kind != kind:
            sheet.gap()
            kind = lane.kind
        spans = _shown(lane, start, end)

        def draw(y: float, lane: Lane = lane, spans: list[Span] = spans) -> list[str]:
            out = [sheet.bar(y, span, lane.name) for span in spans]
            return out + (_silent(sheet, y, report, lane.name, start, end) if lane.kind == "broker" else [])

        sheet.row(lane.name, draw)
    sheet.gap()


def _stages(sheet: _Sheet, y: float, visits: Sequence[Visit], end: float) -> list[str]:
    """Consecutive walks of one stage in one direction as one bar."""
    runs: list[tuple[str, bool, float, float]] = []
    for v in visits:
        stage, until = v.step.partition(".")[0], end if v.end is None else v.end
        if runs and runs[-1][:2] == (stage, v.back):
            runs[-1] = (stage, v.back, runs[-1][2], until)
        else:
            runs.append((stage, v.back, v.start, until))
    return [
        _box(sheet, y, f"{stage}{' (back)' if back else ''}", a, b, "#ffffff" if back else "#e8e8e8")
        for stage, back, a, b in runs
    ]


def _steps(sheet: _Sheet, y: float, window: Window) -> list[str]:
    end = sheet.axis.pieces[-1][1]
    return [
        _box(
            sheet, y, f"{p.step}{' (back)' if p.back else ''}", p.start, end if p.end is None else p.end,
            "#ffffff" if p.back else "#e8e8e8",
        )
        for p in window.parts
    ]  # fmt: skip


def _box(sheet: _Sheet, y: float, name: str, start: float, end: float, fill: str) -> str:
    x1, x2 = sheet.axis.x(start), sheet.axis.x(end)
    words = f"{name}: from {clock(start, 0.1)} to {clock(end, 0.1)}, {length(end - start)}"
    box = tag(
        "rect", hover(words), x=x1, y=y, width=max(x2 - x1, 1.0), height=_BAR, fill=fill, stroke="#7f7f7f",
        stroke_width=0.7, data_lane="step", data_state=name, data_from=f"{start:.3f}", data_to=f"{end:.3f}",
    )  # fmt: skip
    label = len(name) * CHAR_PX + 6 <= x2 - x1
    return box + (text((x1 + x2) / 2, y + _BAR - 4.5, name, text_anchor="middle") if label else "")


def _silent(sheet: _Sheet, y: float, report: Report, broker: str, start: float, end: float) -> list[str]:
    """Stretches in which a broker did not answer, as a line along the foot of its row."""
    out = []
    for a, b, why in stretches(report.beats, broker):
        if b < start or a > end:
            continue
        x1, x2 = sheet.axis.x(max(a, start)), sheet.axis.x(min(b, end))
        words = f"{broker}: no answer for {length(b - a)} from {clock(a, 0.1)}: {why}"
        out.append(
            tag(
                "rect", hover(words), x=x1, y=y + _BAR - 3.5, width=max(x2 - x1, 1.5), height=3.5, fill=_BAD,
                data_silent=broker, data_from=f"{a:.3f}", data_to=f"{b:.3f}",
            )
        )  # fmt: skip
    return out


def stretches(beats: Iterable[Beat], broker: str) -> list[tuple[float, float, str]]:
    """(first question without an answer, next answer or last question, why) of a broker."""
    out: list[tuple[float, float, str]] = []
    since, why, last = None, "", 0.0
    for beat in beats:
        if beat.broker != broker:
            continue
        if beat.ms is None:
            since, why = (beat.at, beat.why) if since is None else (since, why)
        elif since is not None:
            out.append((since, beat.at, why))
            since = None
        last = beat.at
    return [*out, (since, last, why)] if since is not None else out


def _sync(sheet: _Sheet, y: float, report: Report) -> list[str]:
    """Partitions that were not fully in sync, between two looks of a step; and each change of controller."""
    out = []
    for now, later in pairwise(report.syncs):
        if not now.under and not now.offline:
            continue
        x1, x2 = sheet.axis.x(now.at), sheet.axis.x(later.at)
        share = max(0.15, min(1.0, now.under / max(1, now.partitions)))
        words = f"{now.under} of {now.partitions} partitions not in sync, {now.offline} offline"
        fill = _BAD if now.offline else "#e69f00"
        out.append(
            tag(
                "rect", hover(f"{words}, from {clock(now.at, 0.1)} to {clock(later.at, 0.1)}"), x=x1,
                y=y + _BAR * (1 - share), width=max(x2 - x1, 1.0), height=_BAR * share, fill=fill,
            )
        )  # fmt: skip
    for now, later in pairwise(report.syncs):
        if now.controller != later.controller:
            x = sheet.axis.x(later.at)
            words = f"controller {now.controller} to {later.controller}, seen at {clock(later.at, 0.1)}"
            mark = f"M{x - 4:.1f} {y} h8 l-4 8 z"
            out.append(tag("path", hover(words), d=mark, fill=TEXT, data_controller=later.controller))
    return out


_LOW_MS, _HIGH_MS = 0.1, 10000.0
_PLOT = 100
_JOINED_S = 3.0
"""Looks that are further apart are not joined by a line."""

_BINS = 400


def _answers(sheet: _Sheet, report: Report, start: float, end: float) -> None:
    """Each answer of a broker as a dot, its time on a logarithmic scale; no answer as a cross on top."""
    inside = [b for b in report.beats if start <= b.at <= end]
    for acks in report.acks:
        _client(sheet, acks, start, end)
    if not inside:
        return
    names = sorted({b.broker for b in inside})
    keys = [(name, _SERIES[n]) for n, name in enumerate(names)] if len(names) <= len(_SERIES) else []
    _plot(sheet, "answers of brokers", keys, lambda height: _dots(sheet, inside, height))


def _client(sheet: _Sheet, acks: Acks, start: float, end: float) -> None:
    """A real client: when it was acknowledged, and how long that took."""
    moments = [t for t in acks.times if start <= t <= end]
    took = [(t, ms) for t, ms in acks.took if start <= t <= end]
    sheet.row(f"{acks.client}: acks", lambda y: _acked(sheet, y, acks.client, moments))
    if took:
        keys = [("median", _SERIES[0]), ("slowest", _SERIES[1])]
        _plot(sheet, f"{acks.client}: latency", keys, lambda height: _took(sheet, acks.client, took, height))


def _acked(sheet: _Sheet, y: float, client: str, moments: Sequence[float]) -> list[str]:
    """A band wherever two acknowledgements are closer than a quarter of a second; what is left is a gap."""
    out: list[str] = []
    near = max(0.25, sheet.axis.total / 1500)
    since = last = None
    for at in [*moments, math.inf]:
        if since is None:
            since = last = at
        elif last is not None and at - last > near:
            x1, x2 = sheet.axis.x(since), sheet.axis.x(last)
            words = f"{client}: acknowledged without a gap above {length(near)} from {clock(since, 0.1)}"
            out.append(
                tag("rect", hover(words), x=x1, y=y + 3, width=max(x2 - x1, 1.0), height=10, fill="#0072b2")
            )
            since = at
        last = at
    return out


def _plot(
    sheet: _Sheet,
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


def _dots(sheet: _Sheet, beats: Sequence[Beat], height: Callable[[float], float]) -> list[str]:
    names = sorted({b.broker for b in beats})
    out, top = [], height(_HIGH_MS) - 10
    for beat in beats:
        x, colour = sheet.axis.x(beat.at), _SERIES[names.index(beat.broker) % len(_SERIES)]
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


def _took(
    sheet: _Sheet, client: str, took: Sequence[tuple[float, float]], height: Callable[[float], float]
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
        out.append(tag("circle", hover(words), cx=x, cy=height(most), r=1.6, fill=_SERIES[1]))
        out.append(tag("circle", hover(words), cx=x, cy=height(middle), r=1.6, fill=_SERIES[0]))
    return out


def _marks(sheet: _Sheet, decisions: Iterable[Decision]) -> list[str]:
    """Consents and turns as lines through every row; a name where the one before leaves room."""
    out, right = [], -1e9
    for d in decisions:
        if d.kind not in ("consent", "hold", "turn", "alarm", "lost"):
            continue
        x = sheet.axis.x(d.at)
        words = {"consent": f"consent: {d.where}", "turn": f"turned {d.answer.split(' ')[0]}"}.get(
            d.kind, d.kind
        )
        title = f"{clock(d.at, 0.1)} {d.kind} {d.where}: {d.what} {d.answer} {d.by}"
        colour = "#0072b2" if d.kind == "consent" else _BAD
        fits = x > right
        out += _line(x, _HEAD - 4, sheet.y, words if fits else "", colour, title)
        right = x + len(words) * CHAR_PX + 8 if fits else right
    return out


def _line(x: float, top: float, bottom: float, words: str, colour: str, title: str = "") -> list[str]:
    anchor = "end" if x > _EDGE - len(words) * CHAR_PX else "start"
    shift = -3 if anchor == "end" else 3
    line = tag(
        "line", hover(title or words), x1=x, x2=x, y1=top - 12, y2=bottom, stroke=colour,
        stroke_dasharray="4 3", data_mark=words or title,
    )  # fmt: skip
    return [line, text(x + shift, top - 4, words, fill=colour, text_anchor=anchor)] if words else [line]


def lag(report: Report) -> str:
    """How far each dest host was behind source's leader, until the proof."""
    points = [p for p in report.lags if p.behind is not None]
    axis = Axis(_pieces([p.at for p in points]), LABELS, _EDGE)
    top, bottom = float(_HEAD), float(_HEAD + 130)
    most = max([p.behind or 0 for p in points], default=0)
    ticks = nice(most)

    def height(behind: float) -> float:
        return bottom - behind / ticks[-1] * (bottom - top)

    body = axis.draw(top, bottom)
    for value in ticks:
        y = height(value)
        body.append(tag("line", x1=LABELS, x2=_EDGE, y1=y, y2=y, stroke=RULE))
        body.append(text(LABELS - 8, y + 4, f"{value:g}", text_anchor="end", fill=FAINT))
    hosts = list(dict.fromkeys(p.host for p in points))
    for n, host in enumerate(hosts):
        colour = _SERIES[n % len(_SERIES)]
        own = [p for p in points if p.host == host]
        for a, b in pairwise(own):
            if b.at - a.at < _JOINED_S:
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
    return figure("lag", "Transactions behind source's leader", said, WIDTH, bottom + 22, body)


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


def legend(name: str, states: Sequence[str]) -> str:
    """The colours of these states."""
    body, x = [], 4.0
    for state in states:
        body.append(tag("rect", x=x, y=3.0, width=14.0, height=12.0, fill=FILL[state]))
        body.append(text(x + 19, 13, state))
        x += 32 + len(state) * CHAR_PX
    return figure(f"legend-{name}", "Colours", ", ".join(states), WIDTH, 20, body)
