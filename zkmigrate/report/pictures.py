"""Draw the pictures of a report that have rows: the timeline of the run, and a close-up of each window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from zkmigrate.report.plots import answers
from zkmigrate.report.sheet import BAR, EDGE, JOINED_S, LABELS, ROW, Sheet
from zkmigrate.report.svg import BAD, CHAR_PX, SERIES, Axis
from zkmigrate.runbook.model.report import (
    Decision,
    Gap,
    Lane,
    Report,
    Span,
    Sync,
    Visit,
    Window,
    clock,
    length,
)

_ROWS, _STILL = 20, 5
"""The most rows of a kind that a close-up shows whole, and the fewest that it shows if a kind has more.

If a kind has more rows, the close-up shows those that changed or were silent.
"""

_THIN_FROM, _ALL_PX = 40, 800.0
"""From this many rows of a kind on, the timeline gives all of them together this height, without names."""


def timeline(report: Report) -> str:
    """Draw the whole run: its stages, the runbook's rows, partitions out of sync, and brokers' answers."""
    sheet = Sheet(Axis(report.active, LABELS, EDGE), report.shown.reporting.colours)
    end = report.active[-1][1]
    y = sheet.row("stage")
    for stage, back, start, until in _stages(report.visits, end):
        _step(sheet, y, stage, back, start, until)
    _rows(sheet, report, report.start, end)
    if report.syncs:
        _sync(sheet, report.syncs)
    answers(sheet, report, report.start, end)
    _decided(sheet, report.decisions)
    said = f"{len(report.lanes)} rows from {clock(report.start)} to {clock(end)} UTC. {report.headline}"
    return sheet.drawn("Timeline of the run", said)


def close_up(window: Window, report: Report) -> str:
    """Draw one window, from a little before its beginning to a little after its end."""
    last = report.end if window.end is None else window.end
    start, end = max(report.start, window.start - 2.0), max(min(report.end, last + 3.0), window.start + 0.5)
    pieces = [(max(a, start), min(b, end)) for a, b in report.active if a < end and b > start]
    sheet = Sheet(Axis(pieces or [(start, end)], LABELS, EDGE), report.shown.reporting.colours)
    y = sheet.row("step")
    for p in window.parts:
        _step(sheet, y, p.step, p.back, p.start, sheet.axis.pieces[-1][1] if p.end is None else p.end)
    _rows(sheet, report, start, end, close=True)
    answers(sheet, report, start, end)
    for at, words, colour in (
        (window.start, report.shown.begins, "currentColor"),
        (window.deadline, "last time to turn back", BAD),
        (window.end, report.shown.opens if window.outcome == "opened" else "reopened", "currentColor"),
    ):
        if at is not None and start <= at <= end:
            sheet.moment(at, words, colour)
    took = length(window.seconds, "not finished")
    name = f"{'Rehearsed window' if window.rehearsal else 'Window'} of {window.stage}"
    parts = ", ".join(f"{p.name} {length(p.seconds or 0)}" for p in window.parts)
    return sheet.drawn(f"{name}: {window.outcome}, {took}", parts)


def _rows(sheet: Sheet, report: Report, start: float, end: float, close: bool = False) -> None:
    """Draw the rows of the runbook. close: whether the picture is the close-up of a window."""
    silent: dict[str, list[Gap]] = {}
    for gap in report.silences:
        if gap.start <= end and gap.start + gap.seconds >= start:
            silent.setdefault(gap.client, []).append(gap)
    spans = {lane.name: _shown(lane, start, end) for lane in report.lanes}
    kinds: dict[str, list[str]] = {}
    for lane in report.lanes:
        kinds.setdefault(lane.kind, []).append(lane.name)
    for kind, names in kinds.items():
        sheet.y += 8
        idle = {name for name in names if name not in silent and len(spans[name]) < 2}
        shown = names
        if close and len(names) > _ROWS:
            first = sorted(names, key=idle.__contains__)[: max(_STILL, min(_ROWS, len(names) - len(idle)))]
            shown = [name for name in names if name in first]
        height = ROW if len(shown) < _THIN_FROM else max(2.0, _ALL_PX / len(shown))
        if height < BAR:
            sheet.faint(LABELS - 8, sheet.y + 10, f"{len(shown)} {kind}s", text_anchor="end", font_size=11)
        for name in shown:
            y = sheet.row(name, height)
            for span in spans[name]:
                _span(sheet, y, name, span, min(height, BAR))
            for gap in silent.get(name, ()):
                _silence(sheet, y, min(height, BAR), gap, start, end)
        if len(shown) < len(names):
            words = f"and {len(names) - len(shown)} more {kind}s: see the timeline"
            sheet.text(LABELS, sheet.row("") + BAR - 4, words)
    sheet.y += 8


def _shown(lane: Lane, start: float, end: float) -> list[Span]:
    """Return the spans inside the picture. Neighbours in the same state are joined and keep both notes."""
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


def _span(sheet: Sheet, y: float, name: str, span: Span, height: float) -> None:
    end = sheet.axis.pieces[-1][1] if span.end is None else span.end
    until = "the end" if span.end is None else clock(end, 0.1)
    note = f" ({span.note})" if span.note else ""
    said = f"{name}: {span.state}{note}, {clock(span.start, 0.1)} to {until}, {length(end - span.start)}"
    sheet.bar(
        span.start, end, y, said, span.state, height, fill=sheet.colours.get(span.state, "#ffffff"),
        data_lane=name, data_state=span.state, data_from=f"{span.start:.3f}",
        data_to="" if span.end is None else f"{span.end:.3f}",
    )  # fmt: skip


def _silence(sheet: Sheet, y: float, height: float, gap: Gap, start: float, end: float) -> None:
    """Draw a line at the foot of a broker's row for a time without an answer."""
    last, foot = gap.start + gap.seconds, min(3.5, height / 2)
    said = f"{gap.client}: no answer for {length(gap.seconds)} from {clock(gap.start, 0.1)}: {gap.why}"
    sheet.bar(
        max(gap.start, start), min(last, end), y + height - foot, said, height=foot, least=1.5, fill=BAD,
        data_silent=gap.client, data_from=f"{gap.start:.3f}", data_to=f"{last:.3f}",
    )  # fmt: skip


def _stages(visits: Sequence[Visit], end: float) -> list[tuple[str, bool, float, float]]:
    """Return (stage, back, start, end) of each stage.

    Consecutive steps of a stage in one direction are joined.
    """
    out: list[tuple[str, bool, float, float]] = []
    for v in visits:
        stage, until = v.step.partition(".")[0], end if v.end is None else v.end
        if out and out[-1][:2] == (stage, v.back) and v.start - out[-1][3] < JOINED_S:
            out[-1] = (stage, v.back, out[-1][2], until)
        else:
            out.append((stage, v.back, v.start, until))
    return out


def _step(sheet: Sheet, y: float, step: str, back: bool, start: float, end: float) -> None:
    name = f"{step}{' (back)' if back else ''}"
    said = f"{name}: {clock(start, 0.1)} to {clock(end, 0.1)}, {length(end - start)}"
    sheet.bar(
        start, end, y, said, name, fill="#ffffff" if back else "#e8e8e8", stroke="#7f7f7f",
        stroke_width=0.7, data_lane="step", data_state=name, data_from=f"{start:.3f}", data_to=f"{end:.3f}",
    )  # fmt: skip


def _sync(sheet: Sheet, syncs: Sequence[Sync]) -> None:
    """Draw the share of partitions that were not in sync between two looks, and each change of controller."""
    y = sheet.row("not in sync")
    for now, later in pairwise(syncs):
        if now.under or now.offline:
            share = max(0.15, min(1.0, now.under / max(1, now.partitions)))
            words = f"{now.under} of {now.partitions} partitions not in sync, {now.offline} offline"
            sheet.bar(
                now.at, later.at, y + BAR * (1 - share),
                f"{words}, {clock(now.at, 0.1)} to {clock(later.at, 0.1)}",
                height=BAR * share, fill=BAD if now.offline else "#e69f00",
            )  # fmt: skip
        if now.controller != later.controller:
            said = f"controller {now.controller} to {later.controller}, seen at {clock(later.at, 0.1)}"
            shape = f"M{sheet.axis.x(later.at) - 4:.1f} {y} h8 l-4 8 z"
            sheet.mark("path", said, d=shape, data_controller=later.controller)


def _decided(sheet: Sheet, decisions: Iterable[Decision]) -> None:
    """Draw consents, holds, turns and alarms as lines through every row, with names where there is room."""
    right = -1e9
    for d in decisions:
        if d.kind not in ("consent", "hold", "turn", "alarm", "lost"):
            continue
        names = {"consent": f"consent: {d.where}", "turn": f"turned {d.answer.split(' ')[0]}"}
        words, x = names.get(d.kind, d.kind), sheet.axis.x(d.at)
        said = f"{clock(d.at, 0.1)} {d.kind} {d.where}: {d.what} {d.answer} {d.by}"
        sheet.moment(d.at, words if x > right else "", SERIES[0] if d.kind == "consent" else BAD, said)
        right = x + len(words) * CHAR_PX + 8 if x > right else right
