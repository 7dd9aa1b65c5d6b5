"""Find the windows of a run: from the first change that blocks clients until clients can connect.

No function here has side effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zkmigrate.report.timebase import Timebase
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.report import Lane, Op, Part, Spans, Story, Visit, Window
from zkmigrate.runbook.model.series import number
from zkmigrate.runbook.model.window import WindowSteps


def windows(
    story: Story,
    playbook: Playbook,
    lanes: Sequence[Lane],
    times: Timebase,
    events: Sequence[Mapping[str, Any]],
    gone: Spans = (),
) -> tuple[Window, ...]:
    """Return every window that was begun, in order."""
    stages = {stage.id: stage for stage in playbook.stages if stage.window is not None}
    begun = _begun(story, stages)
    holds, shut = _holds(story), playbook.report.opened
    out = []
    for number_, (stage, start) in enumerate(begun):
        until = begun[number_ + 1][1] if number_ + 1 < len(begun) else story.last + 1
        visits = [v for v in story.visits if _stage(v.step) == stage and start <= (v.end or until) < until]
        steps, rehearsal = _steps(stages[stage]), stages[stage].rehearsal
        end, outcome = _end(stage, steps, visits, story, start, until)
        if outcome == "turned back" and rehearsal:
            outcome = "rehearsed" if _whole(visits, steps) else "rehearsal turned back"
        out.append(
            Window(
                stage=stage,
                rehearsal=rehearsal,
                start=start,
                end=end,
                outcome=outcome,
                parts=_parts(visits, start, end),
                deadline=_deadline(times, events, start, end or until),
                opened_by=_opened_by(_opens(story, stage, steps), shut, lanes, until)
                if outcome == "opened"
                else {},
                gone_s=_inside(gone, start, end or until),
                held_s=_inside(holds, start, end or until),
            )
        )
    return tuple(out)


def _inside(spans: Spans, start: float, end: float) -> float:
    """Return how many seconds of these spans are between two moments."""
    return sum(max(0.0, min(b, end) - max(a, start)) for a, b in spans)


def _holds(story: Story) -> list[tuple[float, float]]:
    """Return the (start, end) of each hold.

    A hold without an end lasts to the last line.
    """
    out: list[tuple[float, float]] = []
    since: float | None = None
    for at, begins in [(d.at, not d.answer) for d in story.decisions if d.kind == "hold"]:
        if since is not None:
            out.append((since, at))
        since = at if begins else None
    return out if since is None else [*out, (since, story.last)]


def _begun(story: Story, stages: Mapping[str, Stage]) -> list[tuple[str, float]]:
    """Return (stage, time of the first change that blocks clients) of each window.

    A stage has a further window if a way back reopened the one before.
    """
    out: list[tuple[str, float]] = []
    for op in story.ops:
        stage = _stage(op.step)
        if op.back or stage not in stages or op.step != f"{stage}.{_steps(stages[stage]).begins}":
            continue
        steps = _steps(stages[stage])
        if not out or out[-1][0] != stage or _reopened(story, stage, steps, out[-1][1], op.sent) is not None:
            out.append((stage, op.sent))
    return out


def _reopened(story: Story, stage: str, steps: WindowSteps, after: float, before: float) -> float | None:
    ends = [
        v.end
        for v in story.visits
        if v.back and v.step == f"{stage}.{steps.begins}" and v.outcome == "done" and v.end is not None
    ]
    return next((end for end in ends if after < end <= before), None)


def _end(
    stage: str, steps: WindowSteps, visits: Sequence[Visit], story: Story, start: float, until: float
) -> tuple[float | None, str]:
    back = _reopened(story, stage, steps, start, until)
    if back is not None:
        return back, "turned back"
    opens = [op for op in _opens(story, stage, steps) if start <= op.sent < until and op.ended is not None]
    last = f"{stage}.{steps.opens}"
    done = [v.end for v in visits if v.step == last and v.outcome == "done" and not v.back]
    if opens and done:
        return max(op.ended for op in opens if op.ended is not None), "opened"
    if done and done[-1] is not None:
        return done[-1], "opened"
    return None, "not finished"


def _opens(story: Story, stage: str, steps: WindowSteps) -> list[Op]:
    return [op for op in story.ops if op.step == f"{stage}.{steps.opens}" and op.status == "done"]


def _whole(visits: Sequence[Visit], steps: WindowSteps) -> bool:
    """Return whether the rehearsal reached its last step before its way back."""
    forward = {v.step.partition(".")[2] for v in visits if not v.back and v.outcome == "done"}
    return steps.shut[-1] in forward


def _parts(visits: Sequence[Visit], start: float, end: float | None) -> tuple[Part, ...]:
    """Return the steps inside the window. Steps that reach beyond its ends are cut there."""
    out = []
    for v in visits:
        if (v.end is not None and v.end <= start) or (end is not None and v.start >= end):
            continue
        last = v.end if end is None or v.end is None else min(v.end, end)
        out.append(Part(v.step.partition(".")[2], v.back, max(v.start, start), last))
    return tuple(out)


def _deadline(times: Timebase, events: Sequence[Mapping[str, Any]], start: float, end: float) -> float | None:
    """Return the deadline of the first countdown in the window; None without one."""
    for event in events:
        at, left = number(event, "at"), number(event, "left_s")
        if event.get("event") == "Countdown" and at is not None and left is not None:
            moment = times.of_wall(at)
            if start <= moment < end:
                return moment + left
    return None


def _opened_by(
    opens: Sequence[Op], shut: tuple[str, str], lanes: Sequence[Lane], until: float
) -> dict[str, str]:
    """Return how each host was opened: by the ``operator`` or ``by itself``.

    shut: the value of ``Reporting.opened``.
    """
    ours = {op.target for op in opens if op.sent < until}
    kind, open_ = shut
    hosts = [lane for lane in lanes if lane.kind == kind]
    opened = {h.name for h in hosts if any(s.state == open_ and s.start < until for s in h.spans)}
    return {h.name: "operator" if h.name in ours else "by itself" for h in hosts if h.name in ours | opened}


def _steps(stage: Stage) -> WindowSteps:
    assert stage.window is not None
    return stage.window.steps


def _stage(step: str) -> str:
    return step.partition(".")[0]
