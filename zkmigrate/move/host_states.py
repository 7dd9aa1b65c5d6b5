"""Compute the rows of the report's timeline: the state of each dest host and broker over time.

The states come from the confirmed changes in the journal. After GO the dest hosts finish without the tool:
their states then come from the samples, or else from the step that observed the hosts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zkmigrate.move.facts.dest_status import SERVING
from zkmigrate.runbook.model.change import Go, SetService
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.report import Lane, Op, Rows, Span, Spans, Story, Visit, of_kind, spacing_s
from zkmigrate.runbook.model.window import Phase

JOINING, OBSERVING, FENCED, CUT, STOPPED, STARTED, OPEN = DEST_STATES = (
    "joining", "observing", "fenced", "cut", "stopped", "started", "open",
)  # fmt: skip
OLD, RESTARTING, NEW = BROKER_STATES = ("old ZooKeeper", "restarting", "new ZooKeeper")
SERVES, SOME, SHUT, DOWN, UNKNOWN = ENSEMBLE_STATES = (
    "serves", "serves in part", "closed to clients", "does not serve", "not known",
)  # fmt: skip

_AFTER: Mapping[str, tuple[str, str]] = {
    "arm": (OBSERVING, "armed"),
    "fence": (FENCED, "clients are refused"),
    "cut": (CUT, "nothing passes to or from source"),
    "stopped": (STOPPED, "ZooKeeper is stopped"),
    "seal": (STOPPED, "sealed"),
    "unseal": (STOPPED, "unsealed"),
    "go": (STOPPED, "GO given: it reforms by itself"),
    "checked": (STARTED, "checked while clients are refused"),
    "open": (OPEN, "opened by the operator"),
    "halt": (STOPPED, "stopped on the way back"),
    "image": (STOPPED, "data and config put back"),
    "started-observer": (CUT, "runs as observer again, still cut off"),
    "uncut": (FENCED, "follows source again"),
    "reopen": (OBSERVING, "clients reach it again"),
    "disarm": (OBSERVING, "disarmed"),
}
_ALONE = "by itself"
_LEASE_S = 1.0
"""The longest time without the tool, in seconds, during which no lease can end."""

_UNSEEN_S = 5.0
"""The seconds without a sample after which source's state is not shown."""


def rows(story: Story, samples: Rows, start: float, gone: Spans, damaged: bool) -> tuple[Lane, ...]:
    """Return the rows: source and dest as ensembles, then each dest host and each broker.

    start: when the timeline begins. gone: the spans of time in which no process of the tool ran. damaged:
    whether the end of the journal could not be read.
    """
    ensembles = of_kind(samples, "ensembles")
    hosts, brokers = dest_rows(story, of_kind(samples, "phases"), gone), broker_rows(story, start)
    if damaged:
        hosts, brokers = until(hosts, story.last), until(brokers, story.last)
    source = source_ensemble(source_hosts(story, ensembles), ensembles, spacing_s(ensembles) or 1.0)
    return (source, dest_ensemble(hosts), *hosts, *brokers)


def source_hosts(story: Story, samples: Rows) -> tuple[str, ...]:
    """Return the names of the source hosts from the journal.

    If the journal does not have them, return the names in the samples that are not dest hosts. samples: the
    samples of kind ``ensembles``.
    """
    named = [
        str(host) for _, row in samples if isinstance(row.get("servers"), dict) for host in row["servers"]
    ]
    dest = dest_hosts(story)
    return story.hosts.get("source") or tuple(name for name in dict.fromkeys(named) if name not in dest)


def dest_hosts(story: Story) -> tuple[str, ...]:
    """Return the names of the dest hosts, in the inventory's order if the journal has it."""
    stages = ("join", "rehearse", "cutover")
    targets = [op.target for op in story.ops if op.step.partition(".")[0] in stages]
    return story.hosts.get("dest") or tuple(dict.fromkeys(targets))


def broker_hosts(story: Story) -> tuple[str, ...]:
    """Return the names of the brokers, in the inventory's order if the journal has it."""
    targets = [op.target for op in story.ops if op.step.partition(".")[0] == "roll"]
    return story.hosts.get("brokers") or tuple(dict.fromkeys(targets))


class _Line:
    """A row of the timeline while it is being built: adding a state ends the previous state."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    @property
    def state(self) -> str:
        return self.spans[-1].state if self.spans and self.spans[-1].end is None else ""

    def begin(self, at: float, state: str, note: str = "") -> None:
        if self.spans and self.spans[-1].end is None:
            last = self.spans.pop()
            if last.state == state and last.note == note:
                self.spans.append(last)
                return
            if at > last.start:
                self.spans.append(Span(last.start, at, last.state, last.note))
        if state:
            self.spans.append(Span(at, None, state, note))


def dest_rows(
    story: Story,
    phases: Sequence[tuple[float, Mapping[str, Any]]],
    gone: Sequence[tuple[float, float]] = (),
) -> tuple[Lane, ...]:
    """Return a row for each dest host.

    phases: samples of kind ``phases``, in order. gone: the spans of time in which no process of the tool ran.
    """
    return tuple(Lane(host, "dest", tuple(_dest(host, story, phases, gone))) for host in dest_hosts(story))


def _dest(
    host: str,
    story: Story,
    phases: Sequence[tuple[float, Mapping[str, Any]]],
    gone: Sequence[tuple[float, float]],
) -> list[Span]:
    line = _Line()
    events: list[tuple[float, int, Any]] = []
    events += [(op.ended, 0, op) for op in story.ops if op.target == host and op.ended is not None]
    events += [(v.end, 1, v) for v in story.visits if v.end is not None and v.outcome == "done"]
    events += [(at, 2, row) for at, row in phases]
    events += [(since, 3, None) for since, until in gone if until - since >= _LEASE_S]
    for at, _, what in sorted(events, key=lambda e: (e[0], e[1])):
        if isinstance(what, Op):
            _confirmed(line, at, what)
        elif isinstance(what, Visit):
            _walked(line, at, what)
        elif what is None:
            _left_alone(line, at)
        else:
            _seen(line, at, host, what)
    return line.spans


def _confirmed(line: _Line, at: float, op: Op) -> None:
    stage = op.step.partition(".")[0]
    if op.status != "done":
        return
    change = op.change
    if isinstance(change, SetService):
        if stage == "join" and not op.back and change.action in ("start", "restart"):
            line.begin(at, JOINING, "started as observer")
        elif stage == "join" and op.back:
            line.begin(at, "")
        elif change.action in ("kill", "stop"):
            line.begin(at, STOPPED, "ZooKeeper is stopped")
    elif change.verb in _AFTER and not (change.verb == "disarm" and line.state == OPEN):
        state, note = _AFTER[change.verb]
        if change.verb == "image" and line.state == CUT:
            state = CUT
        if isinstance(change, Go):
            note = f"GO given ({change.place}): it reforms by itself"
        line.begin(at, state, note)


def _left_alone(line: _Line, at: float) -> None:
    """Mark the state of a host as unknown while no process renews its lease.

    A host that is not sealed then lets its block end by itself, at a time that is not known.
    """
    if line.state in (FENCED, CUT, STOPPED) and not line.spans[-1].note.startswith(("sealed", "GO given")):
        line.begin(at, UNKNOWN, "the tool did not run: a host that is not sealed goes back by itself")


def _walked(line: _Line, at: float, visit: Visit) -> None:
    """Set a host's state from the end of a step, because the step proves the state of every host.

    The run may have reached that state without a change on this host.
    """
    name = visit.step.partition(".")[2]
    if visit.back:
        if name in ("fence", "arm") and line.state in (FENCED, CUT, STOPPED, UNKNOWN):
            line.begin(at, OBSERVING, "seen open again")
        return
    if name == "join":
        line.begin(at, OBSERVING, "observes source")
    elif name == "serve" and line.state == STOPPED:
        line.begin(at, STARTED, "serves while clients are refused")
    elif name in ("open", "verify") and line.state not in (OPEN, ""):
        line.begin(at, OPEN, f"opened {_ALONE}, seen by {visit.step}")


def _seen(line: _Line, at: float, host: str, row: Mapping[str, Any]) -> None:
    """Set a host's state from a sample, but only for the time after GO, when the host acts alone.

    At other times a sample may be older than a change of this run.
    """
    hosts = row.get("hosts")
    sample = hosts.get(host) if isinstance(hosts, dict) else None
    if not isinstance(sample, list) or len(sample) != 2 or not line.spans:
        return
    phase, served = sample
    after_go = line.state == STOPPED and line.spans[-1].note.startswith("GO given")
    if after_go and phase in SERVING:
        ago = float(served) if isinstance(served, int | float) else 0.0
        line.begin(max(line.spans[-1].start, at - ago), STARTED, "serves while clients are refused")
    if phase == Phase.OPEN and line.state == STARTED:
        line.begin(at, OPEN, f"opened {_ALONE}")


def broker_rows(story: Story, start: float) -> tuple[Lane, ...]:
    """Return a row for each broker, which shows the ZooKeeper ensemble that the broker uses."""
    return tuple(Lane(host, "broker", tuple(_broker(host, story, start))) for host in broker_hosts(story))


def _at_first(host: str, story: Story) -> tuple[str, str]:
    """Return a broker's state before the roll, and a text that says why the state is not known, or empty."""
    looks = [v for v in story.visits if v.step == "preflight.preflight"]
    found = [f for v in looks for f in v.findings if (f.id, f.target) == ("kafka.config", host)]
    was_restarted = any(op.target == host and op.step.partition(".")[0] == "roll" for op in story.ops)
    if was_restarted or any(v.outcome == "done" for v in looks) or any(f.held is Held.YES for f in found):
        return OLD, ""
    return UNKNOWN, found[-1].seen if found else "its server.properties was not read yet"


def _broker(host: str, story: Story, start: float) -> list[Span]:
    line = _Line()
    line.begin(start, *_at_first(host, story))
    for visit in story.visits:
        restarts = [op for op in visit.ops if isinstance(op.change, SetService) and op.target == host]
        if visit.step.partition(".")[0] != "roll":
            continue
        after = OLD if visit.back else NEW
        for op in restarts:
            took = f"; the restart itself took {op.ended - op.sent:.1f} s" if op.ended is not None else ""
            line.begin(op.sent, RESTARTING, f"restarted, and caught up{took}")
            later = [o.sent for o in visit.ops if o.leg > op.leg and o.target != host]
            if later:
                line.begin(min(later), after)
        if visit.outcome == "done" and visit.end is not None and visit.step == "roll.roll":
            line.begin(visit.end, after)
    return line.spans


def until(rows: Iterable[Lane], last: float) -> tuple[Lane, ...]:
    """Return the rows with every state after ``last`` unknown, because the journal is damaged there."""
    unknown = Span(last, None, UNKNOWN, "the journal is damaged")

    def cut(row: Lane) -> tuple[Span, ...]:
        return tuple(replace(span, end=last) if span.end is None else span for span in row.spans)

    return tuple(Lane(row.name, row.kind, (*cut(row), unknown)) for row in rows)


def dest_ensemble(lanes: Iterable[Lane]) -> Lane:
    """Return the row for dest as its clients see it: how many of its hosts let clients in."""
    rows = [lane for lane in lanes if lane.kind == "dest"]
    edges = sorted({t for row in rows for span in row.spans for t in (span.start, span.end) if t is not None})
    line = _Line()
    for at in edges:
        states = [_state_at(row, at) for row in rows]
        open_ = sum(state in (OBSERVING, OPEN) for state in states)
        if not any(states):
            line.begin(at, "")
        elif open_ == len(rows):
            line.begin(at, SERVES, "every host lets clients in")
        elif open_:
            line.begin(at, SOME, f"{open_} of {len(rows)} hosts let clients in")
        elif any(state in (FENCED, CUT, STOPPED, STARTED) for state in states):
            line.begin(at, SHUT, "no host lets clients in")
        elif UNKNOWN in states:
            line.begin(at, UNKNOWN, "the tool did not run")
        else:
            line.begin(at, JOINING, "no host observes source yet")
    return Lane("dest, for clients", "ensemble", tuple(line.spans))


def _state_at(row: Lane, at: float) -> str:
    place = bisect_right([span.start for span in row.spans], at) - 1
    if place < 0:
        return ""
    span = row.spans[place]
    return span.state if span.end is None or span.end > at else ""


def source_ensemble(
    hosts: tuple[str, ...], rows: Sequence[tuple[float, Mapping[str, Any]]], every_s: float
) -> Lane:
    """Return the row for source, from the samples of kind ``ensembles``.

    The row is empty at times without a sample. every_s: the seconds between two samples.
    """
    line, last = _Line(), None
    for at, row in rows:
        servers = row.get("servers")
        if not isinstance(servers, dict):
            continue
        if last is not None and at - last > max(4 * every_s, _UNSEEN_S):
            line.begin(last + every_s, "")
        state, note = _quorum([_mode(servers.get(host)) for host in hosts])
        line.begin(at, state, note)
        last = at
    if last is not None:
        line.begin(last + every_s, "")
    return Lane("source", "ensemble", tuple(line.spans))


def _mode(sample: Any) -> str:
    return str(sample[0]) if isinstance(sample, list) and sample else UNKNOWN


def _quorum(modes: list[str]) -> tuple[str, str]:
    """Return the state of an ensemble as text, and a note. modes: the mode of each of its servers.

    The rule is that of :meth:`zkmigrate.zookeeper.facts.ensemble.EnsembleView.has_quorum`, but the samples do
    not say which servers are observers. So one counts as if it had a vote while it does not report its mode.
    """
    modes = [mode for mode in modes if mode != "observer"]
    leading = sum(mode in ("leader", "standalone") for mode in modes)
    serving = leading + sum(mode == "follower" for mode in modes)
    answers = sum(mode in ("leader", "standalone", "follower", "refused", "not serving") for mode in modes)
    majority, note = len(modes) // 2 + 1, f"{serving} of {len(modes)} hosts serve"
    if leading > 1 or serving + len(modes) - answers < majority:
        return DOWN, note
    if serving < majority or (not leading and answers == len(modes)):
        return (UNKNOWN if answers < len(modes) else DOWN), note
    return SERVES, note
