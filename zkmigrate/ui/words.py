"""Events and findings as sentences, shared by the plain and the live view."""

from __future__ import annotations

from zkmigrate.engine import events
from zkmigrate.model.finding import Finding, Held
from zkmigrate.model.step import Way

_ARROW = {Way.FORWARD: "->", Way.BACK: "<-"}
_HELD = {Held.YES: "ok", Held.NO: "NO", Held.UNKNOWN: "??"}


def sentence(event: events.Event) -> str:
    """One event as one line; empty for those that are only worth showing in a live view."""
    match event:
        case events.RunBegun():
            how = "resumed" if event.resumed else "begun"
            return f"run {event.run} of {event.playbook} {how}, {event.way.value}"
        case events.StageBegun():
            marks = [w for w, on in (("rehearsal", event.rehearsal), ("window", event.window)) if on]
            return f"{_ARROW[event.way]} {event.stage}: {event.title}" + (
                f" ({', '.join(marks)})" * bool(marks)
            )
        case events.StepBegun():
            return f"{_ARROW[event.way]} {event.stage}.{event.step}: {event.title}"
        case events.WaveBegun():
            return f"   {event.stage}.{event.step}: {', '.join(event.targets)}"
        case events.ChangeSent():
            return f"   {event.change.host}: {event.change.describe()}"
        case events.ChangeEnded():
            return _ended(event)
        case events.Waits():
            left = f"{event.left_s:.0f} s left"
            return f"   {event.stage}.{event.step} waits for {event.what}: {event.progress} ({left})"
        case events.StepEnded():
            back = " back" if event.way is Way.BACK else ""
            return f"   {event.stage}.{event.step}{back} done in {event.seconds:.2f} s"
        case events.StepBlocked():
            return f"!! {event.stage}.{event.step} is blocked"
        case events.Turned():
            to = f" to the start of {event.to}" if event.to else ""
            return f"{_ARROW[event.way]} {event.way.value}{to}: {event.why}"
        case events.Consented():
            return f"   {event.stage}: {event.question} {event.answer} ({event.by})"
        case events.Holding():
            return f"   holding after {event.phase}" + _left(event.left_s)
        case events.Countdown():
            return f"   {event.left_s:.0f} s left to turn back"
        case events.Alarm():
            return f"!! after {event.phase or 'the start'}: {finding(event.finding)}: {event.decision}"
        case events.Noted():
            return f"   {event.text}"
        case events.RunEnded():
            return f"{event.message} (exit code {event.code})"


def finding(found: Finding) -> str:
    """One finding as one line: whether it held, its id, its target, what was seen and needed."""
    where = f" {found.target}" if found.target else ""
    needed = f" (needed: {found.needed})" if found.needed and found.held is not Held.YES else ""
    return f"[{_HELD[found.held]}] {found.id}{where}: {found.claim}; {found.seen or 'as claimed'}{needed}"


def moves(findings: tuple[Finding, ...]) -> list[str]:
    """The moves that the refusing findings leave open, each once."""
    return list(dict.fromkeys(move for f in findings if f.blocks for move in f.moves))


def _ended(event: events.ChangeEnded) -> str:
    if event.status == "done":
        return ""
    said = f": {event.output.strip()}" if event.output.strip() else ""
    return f"!! {event.target}: {event.operation} {event.status}{said}"


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f", {left_s:.0f} s left"
