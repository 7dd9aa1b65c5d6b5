"""Treat windows in the walk: read the watch's findings, apply the window's rules, and hold on request.

Outside a window every method lets the walk continue.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from zkmigrate import deadline
from zkmigrate.inventory.inventory import Policy
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import Leave, Next, Turn
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.logbook import Logbook
from zkmigrate.runbook.engine.ports import Ports
from zkmigrate.runbook.engine.watch import past_deadline
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.window import Decision, Trouble, WindowSpec

LEASE_ENDED = 9
"""Exit code of a window that turned back because a lease had ended."""
_RETRY_S = 1.0
_UNHEARD_S = 10.0
_LOOK_AGAIN_S = 0.3
_KEPT_S, _KEPT_POLL_S = 10.0, 0.5


class Window:
    """The windows of one walk."""

    def __init__(self, journal: Journal, policy: Policy, ports: Ports, log: Logbook) -> None:
        self._journal, self._history, self._log = journal, journal.history, log
        self._policy, self._ports = policy, ports
        self._refused_since: dict[str, float] = {}
        self._unheard_since: dict[str, float] = {}
        self._context: Context | None = None

    def follow(self, at: Next, context: Context) -> None:
        """Let the watch start, continue or stop, as the journal says."""
        self._context = context
        self._ports.watch.follow(at.stage, self._history, context)

    def limits(self, at: Next, verb: str) -> tuple[float, float]:
        """Return the seconds allowed now for one message, and for all messages of a change or look.

        verb: the verb of the change; empty for a look.
        """
        if at.stage.window is None:
            return math.inf, math.inf
        back = at.way is Way.BACK
        return at.stage.window.limits(self.phase(at.stage), verb, back, self._ports.watch.left_s())

    def look(self, at: Next) -> AbstractContextManager[None]:
        """Return the context in which a step observes hosts under the window's time limits."""
        each_s, whole_s = self.limits(at, "")
        if math.isinf(each_s):
            return nullcontext()
        return deadline.within(each_s, whole_s, self._ports.clock.now)

    def ask(self, at: Next) -> None:
        """Check the watch's findings between steps and while waiting.

        Raises Leave if a finding turns back or stops the run. On the way back it does nothing, because there
        is no deadline then.
        """
        if at.way is Way.BACK:
            return
        if (left := self._ports.watch.left_s()) is not None:
            self._ports.emit(events.Countdown(left))
        while (finding := self._ports.watch.finding()) is not None:
            self._judge(at, finding, (finding,))
            self._ports.watch.answered(finding)

    def refused(self, at: Next, findings: tuple[Finding, ...]) -> None:
        """Turn back from a blocked step of a window if the rules say so, else retry for a while.

        The watch's findings come first: a lapsed lease may be the reason why the step is blocked.
        """
        self.ask(at)
        for finding in [f for f in findings if f.blocks] or findings:
            self._judge(at, finding, findings)
        now = self._ports.clock.now
        if now() - self._refused_since.setdefault(at.id, now()) > self._policy.step_deadline_s:
            message = f"{at.id} was still blocked when it was too late to turn back"
            raise Leave(RunEnded(8, message, findings))
        self._ports.clock.pause(_RETRY_S)

    def retries_way_back(self, at: Next, findings: tuple[Finding, ...]) -> bool:
        """Return whether to observe a step of the way back again, because a host or server did not answer.

        One missing answer must not keep hosts closed. Where leases are renewed the retries end soon: once the
        tool ends, hosts that are not sealed reopen by themselves. Where the block ends by itself, they may
        last as long as a step: brokers need their whole session timeout to find a new coordinator.
        """
        if not at.stage.window or any(f.held is not Held.UNKNOWN for f in findings if f.blocks):
            return False
        now = self._ports.clock.now
        limit_s = _UNHEARD_S if at.stage.window.renews else self._policy.step_deadline_s
        if now() - self._unheard_since.setdefault(at.id, now()) > limit_s:
            return False
        self._ports.clock.pause(_LOOK_AGAIN_S if at.stage.window.renews else _RETRY_S)
        return True

    def holding(self, at: Next, who: str) -> events.Holding | None:
        """Return the event of a hold after a step, or None if the hold is over and the run goes on.

        who: the person who requested the hold, and why. The hold ends at its deadline, because it may have
        been forgotten. Raises Leave if the run must turn back then, or because of a finding of the watch.
        """
        self.ask(at)
        left, opens = self._ports.watch.left_s(), self._opens_s(at.stage)
        if self._late(at) if opens is None else opens <= 0:
            if _spec(at.stage).without_operator(self._all_sealed(at.stage)) == "go":
                return None
            why = f"the hold after {at.id} lasted until the way back had to begin"
            raise Leave(Turn(at.stage.id, why, 7, findings=(past_deadline(_spec(at.stage).steps),)))
        return events.Holding(at.step.id, left, opens, who=who, late=self._late(at, costs=True))

    def way_back_lines(self, stage: Stage, context: Context) -> list[str]:
        """Return lines that say whether a window's way back began in time, and what clients kept.

        It waits some seconds for clients that have not reconnected yet. There are no lines if the window was
        not walked back or has no time limit.
        """
        spec, clock = _spec(stage), self._ports.clock
        begun = self._history.walked_back.get(f"{stage.id}.{spec.steps.begins}")
        limit_s, behind = spec.deadline_s(context), ""
        if begun is None or spec.unattended is None or math.isinf(limit_s):
            return []
        farthest = [step.id for step in stage.steps if f"{stage.id}.{step.id}" in self._history.walked_back]
        if spec.keeps_s is not None and (keeps_s := spec.keeps_s(context, farthest[-1])) < limit_s:
            limit_s, behind = keeps_s, f" behind {farthest[-1].upper()}"
        began_s, begins = self._history.turned_at - begun[0], spec.steps.begins.upper()
        in_time = "in time" if began_s <= limit_s else "too late"
        lines = [
            f"the way back began {began_s:.1f} s after {begins}, {in_time} (limit{behind} {limit_s:.1f} s)"
        ]
        if self._history.turn is not None and self._history.turn.code == LEASE_ENDED:
            lines = [f"the {spec.unattended.many} had gone back by themselves when their lease ended"]
        end = clock.now() + _KEPT_S
        kept = spec.unattended.kept(context, self._ports.look)
        while not kept.settled and clock.now() < end:
            clock.pause(_KEPT_POLL_S)
            kept = spec.unattended.kept(context, self._ports.look)
        return [*lines, *([kept.words] if kept.words else [])]

    def phase(self, stage: Stage) -> str:
        """Return the id of the stage's last step that is done or has sent a change, or empty."""
        reached = [
            step.id
            for step in stage.steps
            if (name := f"{stage.id}.{step.id}") in self._history.done or self._history.has_touched(name)
        ]
        return reached[-1] if reached else ""

    def _opens_s(self, stage: Stage) -> float | None:
        """Return the seconds, at most, until the hosts open by themselves; None before all of them serve.

        Each host counts from its own start of serving. All had started when the step that waits for it was
        done.
        """
        served = f"{stage.id}.{_spec(stage).steps.serves}"
        if served not in self._history.done or served not in self._history.done_at:
            return None
        return self._policy.open_limit_s - (self._ports.clock.wall() - self._history.done_at[served])

    def _late(self, at: Next, *, costs: bool = False) -> bool:
        """Return whether a way back that starts now would start after its deadline.

        The deadline counts from the first FENCE. costs: whether to use an earlier deadline, after which a
        way back that starts at this step costs clients something.
        """
        spec = _spec(at.stage)
        first = self._history.first_sent.get(f"{at.stage.id}.{spec.steps.begins}")
        if first is None or self._context is None:
            return False
        limit_s = spec.deadline_s(self._context)
        if costs and spec.keeps_s is not None:
            limit_s = min(limit_s, spec.keeps_s(self._context, at.step.id))
        return self._ports.clock.wall() - first[1] > limit_s

    def _all_sealed(self, stage: Stage) -> bool:
        """Return whether the step that seals is done on every host; one SEAL that was sent is not enough."""
        return f"{stage.id}.{_spec(stage).steps.seals}" in self._history.done

    def _judge(self, at: Next, finding: Finding, findings: tuple[Finding, ...]) -> None:
        """Let the walk continue, or raise Leave to turn back to the start of the stage."""
        stage, window = at.stage, _spec(at.stage)
        phase, decision = self._decided(at, finding)
        all_sealed = self._all_sealed(stage)
        if decision is Decision.BACK and all_sealed and self._late(at):
            decision, finding = _at_a_cost(window, finding)
        word: str = decision
        if decision is Decision.ASK:
            unanswered = window.without_operator(all_sealed)
            answer = self._ports.confirm.decide(phase, finding, unanswered, self._ports.watch.left_s())
            question = f"go on, or back to the start of {stage.id}?"
            self._log.answered(stage.id, at.step.id, question, answer, (finding,))
            word = answer.word
        if word == "back":
            code = LEASE_ENDED if finding.id == Trouble.LEASE_LAPSED else 7
            what = f"{finding.id}: {finding.seen or finding.verdict}"
            raise Leave(Turn(stage.id, what, code, findings=findings))

    def _decided(self, at: Next, finding: Finding) -> tuple[str, Decision]:
        """Return the phase, and the playbook's decision about a finding. Journal and report both."""
        phase = self.phase(at.stage)
        decision = _spec(at.stage).decide(phase, finding, self._policy)
        body = {"stage": at.stage.id, "step": at.step.id, "finding": encode_finding(finding)}
        self._journal.append("finding", {**body, "phase": phase, "decision": decision.value})
        self._ports.emit(events.Alarm(phase, finding, decision.value))
        return phase, decision


def _at_a_cost(spec: WindowSpec, finding: Finding) -> tuple[Decision, Finding]:
    """Return the decision about a way back from sealed hosts after the deadline, and the finding to show.

    Where leases are renewed, only the operator may choose such a way back: it costs every session, and
    nothing forces it, because sealed hosts do not go back by themselves. Where no lease is renewed it costs
    no session, so the run turns back.
    """
    if not spec.renews:
        return Decision.BACK, finding
    cost = "going back now loses the clients' sessions"
    return Decision.ASK, replace(finding, seen=f"{finding.seen or finding.verdict}; {cost}")


def _spec(stage: Stage) -> WindowSpec:
    assert stage.window is not None
    return stage.window
