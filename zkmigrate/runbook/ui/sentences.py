"""Write events as sentences, for the plain and the live view."""

from __future__ import annotations

import time

from zkmigrate.clean import indented
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.model.finding import Finding, few
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.ui import finding_lines

_NAMED = 20
"""The most targets of a wave that are named; the others are counted."""

_ARROW = {Way.FORWARD: "->", Way.BACK: "<-"}


def local_time(at: float) -> str:
    """Return a time on this machine's clock, with its date unless that is today."""
    when, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if when[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", when)


def sentence(event: events.Event) -> str:
    """Return an event as one line; empty for an event that only the live view shows."""
    match event:
        case events.RunBegun():
            how = "resumed" if event.resumed else "begun"
            way = "walking back" if event.way is Way.BACK else event.way.value
            return f"run {event.run} of {event.playbook} {how}, {way}"
        case events.StageBegun():
            marks = [w for w, on in (("rehearsal", event.rehearsal), ("window", event.window)) if on]
            return f"{_ARROW[event.way]} {event.stage}: {event.title}" + (
                f" ({', '.join(marks)})" * bool(marks)
            )
        case events.StepBegun():
            done = f"; {progress(event.done, event.of, event.many, event.left_s)}" if event.of else ""
            return f"{_ARROW[event.way]} {event.stage}.{event.step}: {event.title}{done}"
        case events.WaveBegun():
            if not event.of:
                return ""
            done = progress(event.done, event.of, event.many, event.left_s)
            return f"   {event.stage}.{event.step} goes on with {few(event.targets, _NAMED)}: {done}"
        case events.ChangeSent():
            return f"   {event.change.where}: {event.change.describe()}"
        case events.ChangeEnded():
            return _change_ended(event)
        case events.Waits():
            left = "" if event.left_s is None else f" ({event.left_s:.0f} s left)"
            return (
                f"   {event.stage}.{event.step} {waits_for(event.what, event.left_s)}: {event.progress}{left}"
            )
        case events.Progressed():
            return ""
        case events.StepEnded():
            back = " back" if event.way is Way.BACK else ""
            return f"   {event.stage}.{event.step}{back} done in {event.seconds:.2f} s"
        case events.StepBlocked():
            return f"!! {event.stage}.{event.step} is blocked"
        case events.Turned():
            to = f" to the start of {event.to}" if event.to else ""
            return f"{_ARROW[event.way]} {event.way.value}{to}: {event.why}"
        case events.Consented():
            where = f"{event.stage}.{event.step}" if event.step else event.stage
            to = f" to {event.to}" if event.to else ""
            ids = ", ".join(dict.fromkeys(f.id for f in event.findings))
            over = f", over {ids}" if ids and event.answer == "go" else ""
            by = event.by or "no answer in time"
            return f"   {where}: {event.question} {event.answer}{to} ({by}){over}"
        case events.StageSkipped():
            return f"-> {event.stage} is skipped ({event.by}): {event.missing}"
        case events.Asking():
            return ""
        case events.Holding():
            return f"   {holding(event)}"
        case events.HoldAsked():
            return f"   a hold is requested, {event.where} ({event.who})"
        case events.HoldEnded():
            by = f" by {event.by}" if event.by else ""
            return f"   the hold at {event.step} ended: {_HOLD_ENDED.get(event.how, event.how)}{by}"
        case events.Countdown():
            return f"   {event.left_s:.0f} s left to turn back"
        case events.Alarm():
            finding = finding_lines.finding(event.finding)
            return f"!! after {event.phase or 'the start'}: {finding}: {event.decision}"
        case events.HookBegun():
            waits = f"at most {event.timeout_s:g} s" if event.waited else "not waited for"
            return f"   {_hook(event)}: {event.run} ({waits})"
        case events.HookEnded():
            return _hook_ended(event)
        case events.Noted():
            return f"   {event.text}"
        case events.RunEnded():
            return f"{event.message} (exit code {event.code})"


_HOLD_ENDED = {
    "go": "the answer was go",
    "stop": "the answer was stop",
    "back": "the answer was back",
    "deadline": "its deadline passed",
    "left": "the run turned or stopped",
}

_TURNED = (7, 9)
"""The exit codes of a run that has turned back and finished its way back."""


class Story:
    """A writer of events as lines with their findings. Findings that were just shown are not repeated."""

    def __init__(self) -> None:
        self._shown: tuple[Finding, ...] = ()

    def lines(self, event: events.Event) -> list[str]:
        """Return the lines of one event."""
        out = [line] if (line := sentence(event)) else []
        if isinstance(event, events.StepEnded | events.StepBlocked | events.RunEnded):
            if event.findings != self._shown:
                out += [f"     {line}" for line in finding_lines.findings(event.findings)]
            self._shown = event.findings
        if isinstance(event, events.RunEnded) and event.code not in _TURNED:  # those need nothing more
            out += [f"   next: {move}" for move in finding_lines.moves(event.findings)]
        return [indented(line) for line in out]


def _change_ended(event: events.ChangeEnded) -> str:
    if event.status == "done":
        return ""
    output = f": {event.output.strip()}" if event.output.strip() else ""
    return f"!! {event.target}: {event.operation} {event.status}{output}"


def _hook(event: events.HookBegun | events.HookEnded) -> str:
    return f"hook {event.moment}{f' of {event.stage}' if event.stage else ''}"


def _hook_ended(event: events.HookEnded) -> str:
    """Say how a hook ended; for a failed one also the end of its output and where the rest is."""
    took = f"{event.seconds:.1f} s"
    if event.code == 0:
        return f"   {_hook(event)}: done in {took}"
    ends = {"timeout": "killed", "interrupted": "ended, as asked", "done": f"exit code {event.code}"}
    how = f"{ends[event.how]} after {took}" if event.how in ends else "not started"
    output = f": {event.said}" if event.said else ""
    no_more = event.stops or event.how == "interrupted" or event.moment.startswith("on_")
    goes_on = "" if no_more else "; the run goes on"
    return f"!! {_hook(event)}: {how}{output}{f' ({event.output})' if event.output else ''}{goes_on}"


def holding(event: events.Holding) -> str:
    """Say why the walk holds, the possible answers, and what happens without one."""
    back = "back (b; too late to keep the clients' sessions)" if event.late else "back (b)"
    answers = f"zkmigrate release, or go (g), stop (s) or {back}?"
    if event.before:
        where = f"in {event.before}, {event.progress}" if event.progress else f"before {event.before}"
        return f"holding {where} ({event.who}): {answers}"
    after = f"holding after {event.phase} ({event.who})"
    if event.opens_s is None:
        return f"{after}{_left(event.left_s)}: {answers}"
    return f"{after}; in {event.opens_s:.0f} s at most the hosts open by themselves: {answers}"


def waits_for(what: str, left_s: float | None) -> str:
    """Say what a step waits for: until a state is reached, or, without ``left_s``, for a long look."""
    return f"waits {'for' if left_s is None else 'until'} {what}"


def progress(done: int, of: int, many: str, left_s: float | None, bytes_left: int | None = None) -> str:
    """Say how far a step has got, and about how long the rest takes.

    many: the plural noun for its targets. left_s: estimated seconds for the rest. bytes_left: the bytes still
    to be copied; None for a step that does not report bytes. For such a step ``done`` counts only targets
    that were finished before the current wave.
    """
    words = f"{done:,} of {of:,} {many} done"
    words += " before this wave" if bytes_left is None else f", {bytes_left:,} bytes left"
    if left_s is None:
        return words
    hours, minutes = divmod(max(1, round(left_s / 60)), 60)
    about = f"{hours} h {minutes} min" if hours else f"{minutes} min"
    return f"{words}, about {about}" + (" left" if bytes_left is None else "")


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f", {left_s:.0f} s left"
