"""Events and findings as sentences, shared by the plain and the live view."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.engine import events
from zkmigrate.model.finding import Finding, Held, Severity
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
            return f"   {holding(event)}"
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
    return f"[{_mark(found)}] {found.id}{where}: {found.claim}; {found.seen or 'as claimed'}{needed}"


def _mark(found: Finding) -> str:
    """Upper case is for what stands in the way; a warning or a remark does not."""
    if found.held is Held.NO and not found.blocks:
        return {Severity.WARN: "warn", Severity.INFO: "note"}.get(found.severity, _HELD[found.held])
    return _HELD[found.held]


_TURNED = (7, 9)
"""Exit codes of a run that has turned back and arrived."""


class Story:
    """Events as lines, with their findings; what was just said is not said again."""

    def __init__(self) -> None:
        self._told: tuple[Finding, ...] = ()

    def lines(self, event: events.Event) -> list[str]:
        """The lines of one event; none for an event without words."""
        out = [line] if (line := sentence(event)) else []
        if isinstance(event, events.StepEnded | events.StepBlocked | events.RunEnded):
            if event.findings != self._told:
                out += [f"     {line}" for line in findings(event.findings)]
            self._told = event.findings
        if isinstance(event, events.RunEnded) and event.code not in _TURNED:  # their move has been made
            out += [f"   possible now: {move}" for move in moves(event.findings)]
        return out


_FOLDED_FROM = 4
"""So many different claims that hold are counted instead of listed."""


def findings(found: Sequence[Finding]) -> list[str]:
    """Findings for the screen: what did not hold in full, what held in short.

    A claim that holds on several targets is one line; many claims are only counted. The journal and
    ``--json`` have them all.
    """
    out = [finding(f) for f in found if f.held is not Held.YES and not _later(f)]
    held: dict[str, list[Finding]] = {}
    for f in found:
        if f.held is Held.YES:
            held.setdefault(f.id, []).append(f)
    later = sum(_later(f) for f in found)
    if len(held) >= _FOLDED_FROM:
        count = sum(len(same) for same in held.values())
        out.append(f"{count} findings hold" + (f"; {later} to come later" if later else ""))
        return out
    out += [_together(same) for same in held.values()]
    return [*out, f"{later} findings to come later"] if later else out


def _later(found: Finding) -> bool:
    """A check whose gate is still to come: unknown, and of no weight yet."""
    return found.held is Held.UNKNOWN and found.severity is Severity.INFO


def _together(same: list[Finding]) -> str:
    """The same claim about several targets, as one line."""
    if len(same) == 1:
        return finding(same[0])
    return f"[{_HELD[Held.YES]}] {same[0].id} {', '.join(f.target for f in same)}: {same[0].claim}"


def moves(findings: tuple[Finding, ...]) -> list[str]:
    """The moves that the refusing findings leave open, each once."""
    return list(dict.fromkeys(move for f in findings if f.blocks for move in f.moves))


def _ended(event: events.ChangeEnded) -> str:
    if event.status == "done":
        return ""
    said = f": {event.output.strip()}" if event.output.strip() else ""
    return f"!! {event.target}: {event.operation} {event.status}{said}"


def holding(event: events.Holding) -> str:
    """What can be answered while the walk holds, and what comes without an answer."""
    answers = "go (g), stop (s) or back (b)?"
    if event.opens_s is None:
        return f"holding after {event.phase}{_left(event.left_s)}: {answers}"
    if event.opens_s <= 0:
        return f"holding after {event.phase}; the hosts open by themselves by now: go (g) or stop (s)?"
    seconds = f"{event.opens_s:.0f} s"
    return f"holding after {event.phase}; in {seconds} at most the hosts open by themselves: {answers}"


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f", {left_s:.0f} s left"
