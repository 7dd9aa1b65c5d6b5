"""Turn the journal's lines into visits of steps, changes and decisions, without side effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zkmigrate.report.timebase import Timebase
from zkmigrate.runbook.engine.codec import decode_change, decode_finding
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.report import Decision, Op, Story, Visit
from zkmigrate.runbook.model.step import Way


@dataclass
class _Walk:
    """A visit of a step that is still being assembled."""

    step: str
    back: bool
    start: float
    last: float
    ops: list[str] = field(default_factory=list)
    end: float | None = None
    seconds: float | None = None
    outcome: str = "left"
    findings: tuple[Finding, ...] = ()


def story_of(entries: Iterable[Entry], times: Timebase) -> Story:
    """Return the story of a journal.

    Raises KeyError, TypeError or ValueError for a line that this version cannot read.
    """
    teller = _Teller(times)
    for entry in entries:
        teller.take(entry)
    return teller.story()


class _Teller:
    def __init__(self, times: Timebase) -> None:
        self._times = times
        self._walks: list[_Walk] = []
        self._open: _Walk | None = None
        self._ops: dict[str, Op] = {}
        self._decisions: list[Decision] = []
        self._run = ""
        self._hosts: dict[str, tuple[str, ...]] = {}
        self._records: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._last = 0.0

    def take(self, entry: Entry) -> None:
        at, body = self._times.of(entry), entry.body
        self._last = max(self._last, at)
        match entry.kind:
            case "begin":
                self._begin(at, body)
            case "step":
                self._step(at, body)
            case "intent":
                self._intent(at, body)
            case "outcome":
                self._outcome(at, body)
            case "record":
                self._records[f"{body['stage']}.{body['step']}"] = (at, body["record"])
            case "consent":
                self._answer(at, body)
            case "stage" if body["event"] == "skipped" and not self._skipped(body["stage"]):
                self._decide(at, "consent", body["stage"], "the stage is skipped", "skip", body.get("by", ""))
            case "hold":
                self._hold(at, body)
            case "retired":
                seen = "; ".join(decode_finding(f).seen for f in body["findings"])
                what = f"{body['reason']}; seen then: {seen}"
                self._decide(at, "retired", body["host"], what, "left out of the run", body["by"])
            case "hook" if body["stops"] or body["code"] != 0:
                self._hook(at, body)
            case "turn":
                self._turn(at, body)
            case "finding":
                self._alarm(at, body)
            case "found":
                self._decide(at, "lost", "", body["text"], "the hosts were queried")
            case "note" if body.get("lost"):
                self._decide(at, "lost", "", body["text"], "the journal was recovered")
            case "end":
                self._leave()
                self._decide(at, "end", "", body["message"], f"exit code {body['code']}")
            case _:
                pass
        if self._open is not None:
            self._open.last = at

    def story(self) -> Story:
        done = [_visit(walk, self._ops) for walk in self._walks]
        return Story(
            self._run,
            _merged(done),
            tuple(self._ops.values()),
            tuple(self._decisions),
            self._hosts,
            self._records,
            self._last,
        )

    def _decide(self, at: float, kind: str, where: Any, what: Any, answer: str, by: str = "") -> None:
        self._decisions.append(Decision(at, kind, str(where), str(what), answer, by))

    def _begin(self, at: float, body: Mapping[str, Any]) -> None:
        if self._last_begin:
            self._decide(at, "begin", "", "started again with another inventory or playbook", "")
        self._run = str(body["run"])
        self._hosts = {kind: tuple(map(str, names)) for kind, names in body.get("hosts", {}).items()}
        self._decide(at, "begin", "", f"run {body['run']} of {body['playbook']}", "")

    @property
    def _last_begin(self) -> bool:
        return any(d.kind == "begin" for d in self._decisions)

    def _hook(self, at: float, body: Mapping[str, Any]) -> None:
        """Record a hook that could have stopped the run, or that failed."""
        answer = str(body["how"]) if body["code"] is None else f"exit code {body['code']}"
        self._decide(at, "hook", body["place"]["stage"], body["moment"], answer, body["run"])

    def _step(self, at: float, body: Mapping[str, Any]) -> None:
        step, back, event = f"{body['stage']}.{body['step']}", body["way"] == Way.BACK, body["event"]
        if event == "begin":
            self._leave()
            self._open = _Walk(step, back, at, at)
            self._walks.append(self._open)
            return
        walk = self._open
        if walk is None or (walk.step, walk.back) != (step, back):
            walk = _Walk(step, back, at - float(body.get("seconds", 0.0)), at)
            self._walks.append(walk)
        walk.end, walk.outcome, walk.seconds = at, event, body.get("seconds")
        walk.findings = tuple(decode_finding(f) for f in body.get("findings", ()))
        self._open = None

    def _leave(self) -> None:
        """End the open visit, because the process ended inside its step."""
        if self._open is not None:
            self._open.end = self._open.last
            self._open = None

    def _intent(self, at: float, body: Mapping[str, Any]) -> None:
        operation, step = str(body["operation"]), f"{body['stage']}.{body['step']}"
        op = Op(
            operation, step, str(body["target"]), body["way"] == Way.BACK, int(body["leg"]),
            decode_change(body["change"]), at, None, "open", "",
        )  # fmt: skip
        self._ops[operation] = op
        if self._open is not None:
            self._open.ops.append(operation)

    def _outcome(self, at: float, body: Mapping[str, Any]) -> None:
        operation = str(body["operation"])
        if operation in self._ops:
            self._ops[operation] = replace(
                self._ops[operation], ended=at, status=str(body["status"]), output=str(body["output"])
            )

    def _hold(self, at: float, body: Mapping[str, Any]) -> None:
        where = f"{body['stage']}.{body['step']}"
        if body["event"] == "begin":
            held = body["hold"]
            why = held.get("why") or "the run is held"
            self._decide(at, "hold", where, why, "", str(held.get("by", "")))
        else:
            self._decide(at, "hold", where, "the run continues", str(body["how"]), str(body.get("by", "")))

    def _answer(self, at: float, body: Mapping[str, Any]) -> None:
        """Record the answer to a question."""
        stage, step, answer = str(body["stage"]), str(body["step"]), str(body["answer"])
        kind = "consent" if not step and answer in ("go", "skip") else "answer"
        to = f" to {body['to']}" if body["to"] else ""
        found = tuple(decode_finding(f) for f in body["findings"])
        where = f"{stage}.{step}" if step else stage
        self._decisions.append(
            Decision(at, kind, where, str(body["question"]), answer + to, str(body["by"]), found)
        )

    def _skipped(self, stage: str) -> bool:
        """Return whether the last decision is the answer that skips this stage."""
        last = self._decisions[-1:]
        return any((d.kind, d.where, d.answer) == ("consent", stage, "skip") for d in last)

    def _turn(self, at: float, body: Mapping[str, Any]) -> None:
        if body["way"] == Way.BACK:
            to = body["to"] or "the beginning"
            where = f"back to the start of {to}" if body["to"] else "back to the beginning"
            rehearsed = body["then"] == "next"
            by = str(body.get("by", ""))
            self._decide(at, "rehearsed" if rehearsed else "turn", to, body["why"], where, by)
        else:
            turns = [d for d in self._decisions if d.kind in ("turn", "rehearsed")]
            onward = bool(turns) and turns[-1].kind == "rehearsed" and turns[-1].answer != "forward"
            kind = "rehearsed" if onward else "turn"
            self._decide(at, kind, "", body["why"], "forward", str(body.get("by", "")))

    def _alarm(self, at: float, body: Mapping[str, Any]) -> None:
        found = decode_finding(body["finding"])
        where = f"{body['stage']}.{body['step']}"
        target = f" {found.target}" if found.target else ""
        what = f"{found.id}{target}: {found.verdict}"
        answer = str(body.get("decision", ""))
        self._decide(at, "alarm", where, what, answer, "the rules of the window")


def _visit(walk: _Walk, ops: Mapping[str, Op]) -> Visit:
    return Visit(
        walk.step, walk.back, walk.start, walk.end, walk.seconds, walk.outcome, walk.findings,
        tuple(ops[operation] for operation in walk.ops),
    )  # fmt: skip


def _merged(visits: Iterable[Visit]) -> tuple[Visit, ...]:
    """Join repeated refusals of a step with the same findings into one visit that counts the tries."""
    out: list[Visit] = []
    for visit in visits:
        before = out[-1] if out else None
        if before is not None and _same_refusal(before, visit):
            out[-1] = replace(visit, start=before.start, tries=before.tries + 1, ops=before.ops + visit.ops)
        else:
            out.append(visit)
    return tuple(out)


def _same_refusal(before: Visit, visit: Visit) -> bool:
    return (
        before.outcome == visit.outcome == "blocked"
        and (before.step, before.back) == (visit.step, visit.back)
        and [f.id for f in before.findings] == [f.id for f in visit.findings]
    )
