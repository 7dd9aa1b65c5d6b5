"""The pictures of a report that have rows: the timeline of the run, and each window close up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from zkmigrate.model.report import Decision, Gap, Lane, Report, Span, Visit, Window, clock, length
from zkmigrate.report.plots import answers
from zkmigrate.report.sheet import BAD, BAR, EDGE, HEAD, JOINED_S, LABELS, Sheet
from zkmigrate.report.svg import CHAR_PX, TEXT, Axis, hover, tag, text

_ROWS = 20
"""So many of a kind are drawn close up."""


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
    """The whole run: stages, the rows of the runbook, what was in sync, answers of brokers."""
    sheet = Sheet(Axis(report.active, LABELS, EDGE), EDGE, report.shown.reporting.colours)
    end = report.active[-1][1]
    sheet.row("stage", lambda y: _stages(sheet, y, report.visits, end))
    _rows(sheet, report, report.start, end)
    if report.syncs:
        sheet.row("not in sync", lambda y: _sync(sheet, y, report))
    answers(sheet, report, report.start, end)
    sheet.body += _marks(sheet, report.decisions)
    said = f"{len(report.lanes)} rows from {clock(report.start)} to {clock(end)} UTC. {report.headline}"
    return sheet.whole("timeline", "Timeline of the run", said)


def close_up(window: Window, report: Report, number: int) -> str:
    """One window, from a little before its beginning to a little after its end."""
    last = report.end if window.end is None else window.end
    start, end = max(report.start, window.start - 2.0), max(min(report.end, last + 3.0), window.start + 0.5)
    pieces = [(max(a, start), min(b, end)) for a, b in report.active if a < end and b > start]
    colours = report.shown.reporting.colours
    sheet = Sheet(Axis(pieces or [(start, end)], LABELS, EDGE), EDGE, colours)
    sheet.row("step", lambda y: _steps(sheet, y, window))
    _rows(sheet, report, start, end, _ROWS)
    answers(sheet, report, start, end)
    top, bottom = HEAD - 4, sheet.y
    for at, words, colour in (
        (window.start, report.shown.begins, TEXT),
        (window.deadline, "way back must start", BAD),
        (window.end, report.shown.opens if window.outcome == "opened" else "reopened", TEXT),
    ):
        if at is not None and start <= at <= end:
            sheet.body += _line(sheet.axis.x(at), top, bottom, words, colour)
    took = length(window.seconds) if window.seconds is not None else "not over"
    title = (
        f"{'Rehearsed window' if window.rehearsal else 'Window'} of {window.stage}: {window.outcome}, {took}"
    )
    parts = ", ".join(f"{p.step}{' back' if p.back else ''} {length(p.seconds or 0)}" for p in window.parts)
    return sheet.whole(f"window-{number}", title, parts)


def _rows(sheet: Sheet, report: Report, start: float, end: float, most: int | None = None) -> None:
    """The rows. most: of each kind only so many, those first to which something happened."""
    silent: dict[str, list[Gap]] = {}
    for gap in report.silences:
        if gap.start <= end and gap.start + gap.seconds >= start:
            silent.setdefault(gap.client, []).append(gap)
    spans = {lane.name: _shown(lane, start, end) for lane in report.lanes}
    left_out: dict[str, set[str]] = {}
    for kind in dict.fromkeys(lane.kind for lane in report.lanes) if most is not None else ():
        names = [lane.name for lane in report.lanes if lane.kind == kind]
        names.sort(key=lambda name: (name not in silent and len(spans[name]) < 2, name))
        left_out[kind] = set(names[most:])
    kind = ""
    for lane in report.lanes:
        if lane.name in left_out.get(lane.kind, ()):
            continue
        if lane.kind != kind:
            sheet.gap()
            kind = lane.kind

        def draw(y: float, lane: Lane = lane) -> list[str]:
            out = [sheet.bar(y, span, lane.name) for span in spans[lane.name]]
            return out + [_silence(sheet, y, gap, start, end) for gap in silent.get(lane.name, ())]

        sheet.row(lane.name, draw)
    for kind, more in left_out.items():
        if more:
            words = f"and {len(more)} more {kind}s, of the timeline above"
            sheet.row("", lambda y, words=words: [text(LABELS, y + BAR - 4, words)])  # type: ignore[misc]
    sheet.gap()


def _stages(sheet: Sheet, y: float, visits: Sequence[Visit], end: float) -> list[str]:
    """Consecutive walks of one stage in one direction as one bar."""
    runs: list[tuple[str, bool, float, float]] = []
    for v in visits:
        stage, until = v.step.partition(".")[0], end if v.end is None else v.end
        if runs and runs[-1][:2] == (stage, v.back) and v.start - runs[-1][3] < JOINED_S:
            runs[-1] = (stage, v.back, runs[-1][2], until)
        else:
            runs.append((stage, v.back, v.start, until))
    return [
        _box(sheet, y, f"{stage}{' (back)' if back else ''}", a, b, "#ffffff" if back else "#e8e8e8")
        for stage, back, a, b in runs
    ]


def _steps(sheet: Sheet, y: float, window: Window) -> list[str]:
    end = sheet.axis.pieces[-1][1]
    return [
        _box(
            sheet, y, f"{p.step}{' (back)' if p.back else ''}", p.start, end if p.end is None else p.end,
            "#ffffff" if p.back else "#e8e8e8",
        )
        for p in window.parts
    ]  # fmt: skip


def _box(sheet: Sheet, y: float, name: str, start: float, end: float, fill: str) -> str:
    x1, x2 = sheet.axis.x(start), sheet.axis.x(end)
    words = f"{name}: from {clock(start, 0.1)} to {clock(end, 0.1)}, {length(end - start)}"
    box = tag(
        "rect", hover(words), x=x1, y=y, width=max(x2 - x1, 1.0), height=BAR, fill=fill, stroke="#7f7f7f",
        stroke_width=0.7, data_lane="step", data_state=name, data_from=f"{start:.3f}", data_to=f"{end:.3f}",
    )  # fmt: skip
    label = len(name) * CHAR_PX + 6 <= x2 - x1
    return box + (text((x1 + x2) / 2, y + BAR - 4.5, name, text_anchor="middle") if label else "")


def _silence(sheet: Sheet, y: float, gap: Gap, start: float, end: float) -> str:
    """A stretch in which a broker did not answer, as a line along the foot of its row."""
    last = gap.start + gap.seconds
    x1, x2 = sheet.axis.x(max(gap.start, start)), sheet.axis.x(min(last, end))
    words = f"{gap.client}: no answer for {length(gap.seconds)} from {clock(gap.start, 0.1)}: {gap.why}"
    return tag(
        "rect", hover(words), x=x1, y=y + BAR - 3.5, width=max(x2 - x1, 1.5), height=3.5, fill=BAD,
        data_silent=gap.client, data_from=f"{gap.start:.3f}", data_to=f"{last:.3f}",
    )  # fmt: skip


def _sync(sheet: Sheet, y: float, report: Report) -> list[str]:
    """Partitions that were not fully in sync, between two looks of a step; and each change of controller."""
    out = []
    for now, later in pairwise(report.syncs):
        if not now.under and not now.offline:
            continue
        x1, x2 = sheet.axis.x(now.at), sheet.axis.x(later.at)
        share = max(0.15, min(1.0, now.under / max(1, now.partitions)))
        words = f"{now.under} of {now.partitions} partitions not in sync, {now.offline} offline"
        fill = BAD if now.offline else "#e69f00"
        out.append(
            tag(
                "rect", hover(f"{words}, from {clock(now.at, 0.1)} to {clock(later.at, 0.1)}"), x=x1,
                y=y + BAR * (1 - share), width=max(x2 - x1, 1.0), height=BAR * share, fill=fill,
            )
        )  # fmt: skip
    for now, later in pairwise(report.syncs):
        if now.controller != later.controller:
            x = sheet.axis.x(later.at)
            words = f"controller {now.controller} to {later.controller}, seen at {clock(later.at, 0.1)}"
            mark = f"M{x - 4:.1f} {y} h8 l-4 8 z"
            out.append(tag("path", hover(words), d=mark, fill=TEXT, data_controller=later.controller))
    return out


def _marks(sheet: Sheet, decisions: Iterable[Decision]) -> list[str]:
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
        colour = "#0072b2" if d.kind == "consent" else BAD
        fits = x > right
        out += _line(x, HEAD - 4, sheet.y, words if fits else "", colour, title)
        right = x + len(words) * CHAR_PX + 8 if fits else right
    return out


def _line(x: float, top: float, bottom: float, words: str, colour: str, title: str = "") -> list[str]:
    anchor = "end" if x > EDGE - len(words) * CHAR_PX else "start"
    shift = -3 if anchor == "end" else 3
    line = tag(
        "line", hover(title or words), x1=x, x2=x, y1=top - 12, y2=bottom, stroke=colour,
        stroke_dasharray="4 3", data_mark=words or title,
    )  # fmt: skip
    return [line, text(x + shift, top - 4, words, fill=colour, text_anchor=anchor)] if words else [line]
