"""Build a :class:`~zkmigrate.runbook.model.report.Report` from a run's files, without side effects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from zkmigrate.errors import JournalError
from zkmigrate.report.acks import acks
from zkmigrate.report.remaining import left_to_do
from zkmigrate.report.sources import Sources
from zkmigrate.report.story import story_of
from zkmigrate.report.timebase import Timebase
from zkmigrate.report.windows import windows
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.engine.history import Arrived, History
from zkmigrate.runbook.engine.journal import folded
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.report import (
    Process,
    Report,
    Reporting,
    SampleReport,
    Shown,
    Spans,
    Story,
    Window,
    move_of,
)
from zkmigrate.runbook.model.series import number
from zkmigrate.runbook.model.step import Way

_IDLE_S = 30.0
"""After this many seconds without a line or a sample, the tool was not running; pictures omit the time."""

_SAME_S = 0.5
"""A process writes its first line at most this many seconds before its first event."""


def build(sources: Sources, playbook: Playbook | None) -> Report:
    """Return the report of a run.

    playbook: the run's own; None if it is not installed, in which case the report lacks windows and the
    playbook's parts. Raises JournalError for a line that this version cannot read.
    """
    try:
        return _build(sources, playbook)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(
            f"the journal of {sources.run} has a line that this version cannot read: {error!r}. Next: "
            "make the report with the version that wrote the journal"
        ) from None


def _build(sources: Sources, playbook: Playbook | None) -> Report:
    history = folded(sources.entries)
    times = Timebase(sources.entries)
    story = story_of(sources.entries, times)
    rows = times.of_rows(sources.samples)
    start = times.of(sources.entries[0])
    end = max([story.last, *(at for at, _ in rows[-1:])])
    moments = sorted([*(times.of(e) for e in sources.entries), *(at for at, _ in rows)])
    processes = _processes(sources, times, story)
    gone = _gone(processes, moments)
    reporting = playbook.report if playbook is not None else Reporting()
    damaged = sources.chain.state == "damaged"
    lanes = reporting.rows(story, rows, start, gone, damaged)
    found = windows(story, playbook, lanes, times, sources.events, gone) if playbook is not None else ()
    state, headline = _standing(sources, history, playbook)
    shown = _shown(playbook, reporting)
    sampled = shown.samples.sampled(rows, story.visits, move_of(found), shown.paced)
    report = Report(
        run=history.run or sources.run,
        name=history.name,
        playbook=history.playbook,
        state=state,
        headline=headline,
        start=start,
        end=end,
        chain=sources.chain,
        inventory_digest=history.inventory,
        plan_digest=history.plan,
        plan_matches=_plan_matches(sources.plan, history.plan),
        processes=processes,
        lanes=lanes,
        visits=story.visits,
        decisions=story.decisions,
        windows=found,
        beats=sampled.beats,
        beat_every_s=sampled.beat_every_s,
        latencies=sampled.latencies,
        silences=sampled.silences,
        acks=acks(sources.load, times, story.visits),
        produced=sampled.produced,
        lags=reporting.lags(story, rows),
        syncs=sampled.syncs,
        proof=reporting.proof(story),
        way_back=_way_back(found, history, story, damaged, shown),
        left=left_to_do(history, playbook, sources.chain),
        remarks=_remarks(sources, times, story, reporting),
        active=_active(moments),
        shown=shown,
        curves=reporting.curves(rows),
    )
    felt = (*sampled.felt, *(make(report) for make in shown.samples.felt))
    own = tuple(make(report) for make in (*shown.samples.sections, *reporting.sections))
    return replace(report, shown=replace(shown, felt=felt, sections=own))


def _shown(playbook: Playbook | None, reporting: Reporting) -> Shown:
    if playbook is None:
        return Shown(reporting)
    steps = next((stage.window.steps for stage in playbook.stages if stage.window is not None), None)
    paced = playbook.paced.step.partition(".")[0] if playbook.paced is not None else ""
    samples = next((one.report for one in playbook.sampling if one.report is not None), SampleReport())
    if steps is None:
        return Shown(reporting, paced=paced, samples=samples)
    return Shown(reporting, steps.begins.upper(), steps.opens.upper(), paced, samples)


def _standing(sources: Sources, history: History, playbook: Playbook | None) -> tuple[str, str]:
    if sources.chain.state == "damaged":
        return "damaged", f"the journal is damaged after line {sources.chain.lines}; the report ends there"
    last = f"{history.ended[1]} (exit code {history.ended[0]})" if history.ended else ""
    nobody = "the tool was killed, so the journal has no end"
    last = last or (f"still running: {sources.at_work}" if sources.at_work else nobody)
    if playbook is None:
        unknown = f"playbook {history.playbook} is not installed here, so the end of the run is unknown"
        return "open", f"{unknown}: {last}"
    run_state = runs.state_of(history, playbook)
    if run_state.state == "complete":
        return "complete", last
    if run_state.state == "back":
        return "back", f"undone to the beginning: {last}"
    if history.way is Way.BACK and history.turn is not None and history.turn.to:
        where = f"turned back to the start of {history.turn.to}: {history.turn.why}"
        if isinstance(history.next(playbook), Arrived) and history.ended:
            return "turned", f"{where} (exit code {history.ended[0]})"
        return "turned", f"{where}; {run_state.where}; {last}"
    return "open", f"unfinished, {run_state.where}: {last}"


def _plan_matches(plan: Mapping[str, Any] | None, digest: str) -> str:
    """Say whether plan.json has the digest that the journal names."""
    if plan is None:
        return "no readable plan.json"
    seen = plan.get("digest")
    if not digest:
        return "the journal names no plan"
    return "the same digest" if seen == digest else f"another digest: {str(seen)[:64]}"


def _processes(sources: Sources, times: Timebase, story: Story) -> tuple[Process, ...]:
    """Return one process for each call of the tool, from the run's events.

    Without events, return one process for each end of a walk in the journal.
    """
    out: list[Process] = []
    for event in sources.events:
        at = number(event, "at")
        if at is None:
            continue
        if event.get("event") == "RunBegun":
            out.append(Process(times.of_wall(at), None, str(event.get("way", "")), None, ""))
        elif event.get("event") == "RunEnded" and out and out[-1].ended is None:
            code, last = event.get("code"), out.pop()
            said = str(event.get("message", ""))
            ended = times.of_wall(at)
            out.append(Process(last.start, ended, last.way, code if isinstance(code, int) else None, said))
    if out:
        return tuple(out)
    start = times.of(sources.entries[0])
    for decision in story.decisions:
        if decision.kind == "end":
            code = int(decision.answer.removeprefix("exit code "))
            out.append(Process(start, decision.at, "", code, decision.what))
            start = decision.at
    return tuple(out) or (Process(start, None, "", None, ""),)


def _way_back(found: Sequence[Window], history: History, story: Story, damaged: bool, shown: Shown) -> str:
    """Say in one sentence whether the way back was taken."""
    if damaged:
        return "unknown: the journal is damaged"
    turned = [w for w in found if w.outcome == "turned back"]
    said = [
        f"{w.stage}: clients were back {w.seconds:.1f} s after {shown.begins}" for w in turned if w.seconds
    ]
    back = [d for d in story.decisions if d.kind == "turn" and d.answer.startswith("back")]
    if not back:
        opened = any(w.outcome == "opened" for w in found)
        return "not taken" + (f"; impossible since {shown.opens}" if opened else "; still possible")
    taken = "; ".join(f"{d.answer}, because: {d.what}" for d in back)
    moved = move_of(found)
    if moved is not None and moved.outcome == "opened":
        return f"not taken in the cut-over; taken in other stages: {taken}" + (
            f". {'; '.join(said)}" if said else ""
        )
    still = " (under way)" if history.way is Way.BACK and history.ended is None else ""
    return f"taken{still}: {taken}" + (f". {'; '.join(said)}" if said else "")


def _remarks(sources: Sources, times: Timebase, story: Story, reporting: Reporting) -> tuple[str, ...]:
    out = list(sources.remarks)
    if sources.chain.why:
        out.append(f"the journal: {sources.chain.why}")
    for line, seconds in times.jumps:
        out.append(
            f"at line {line} the operator's wall clock moved {seconds:+.1f} s against the monotonic "
            "clock, because it was set or the machine slept. Durations use the monotonic clock"
        )
    if any(d.kind == "lost" for d in story.decisions):
        out.append("lines of the journal are lost, so this report lacks their content")
    if not sources.samples and reporting.unsampled:
        out.append(reporting.unsampled)
    return tuple(out)


def _gone(processes: Sequence[Process], moments: Sequence[float]) -> Spans:
    """Return each time in which no process was working: (last record, start of the next process).

    moments: the times of all records, in order.
    """
    out = []
    for process in processes[1:]:
        before = bisect_left(moments, process.start - _SAME_S)
        if before:
            out.append((moments[before - 1], process.start))
    return tuple(out)


def _active(ordered: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return the (start, end) of each period with records, in order.

    ordered: the times of all records, not empty.
    """
    out, start = [], ordered[0]
    for a, b in pairwise(ordered):
        if b - a > _IDLE_S:
            out.append((start, a))
            start = b
    return (*out, (start, ordered[-1]))
