"""Walk through a playbook, and execute each step in a loop until it is done or blocked.

:meth:`Walk._loop` is the step loop. :meth:`Walk._go` walks the playbook: get the next step in the current
direction from the journal's history, visit it, journal the verdict, and repeat. All positions come from
:class:`~zkmigrate.runbook.engine.history.History`, so continuing and resuming use the same code.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from zkmigrate.errors import HostError, RecordError, UsageError, ZkmigrateError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import events, step_names
from zkmigrate.runbook.engine.apply import Wave
from zkmigrate.runbook.engine.codec import decode_finding
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import (
    REHEARSED,
    Arrived,
    Leave,
    Next,
    Rehearsed,
    StepProgress,
    Turn,
    complete,
)
from zkmigrate.runbook.engine.hook_points import HookPoints
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.logbook import Logbook
from zkmigrate.runbook.engine.pause import Pause
from zkmigrate.runbook.engine.pause_points import PausePoints
from zkmigrate.runbook.engine.ports import Answer, Ports
from zkmigrate.runbook.engine.window_walk import Window
from zkmigrate.runbook.model.change import Changes, ClusterChange
from zkmigrate.runbook.model.finding import Finding, Held, doubts, meanings
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Blocked, Context, Done, Hazard, Ready, Verdict, Waiting, Way

TRIES = 3
_RETRY_S = 0.3
_ANSWER_S = 600.0
"""Seconds to wait for an answer outside a window, where no answer means stop."""
_READS = "a step that is declared read-only makes no changes"
_RECORD = "the records of earlier steps can be read"


class Walk:
    """The walk of one process over one run."""

    def __init__(self, playbook: Playbook, inventory: Inventory, journal: Journal, ports: Ports) -> None:
        self.playbook = playbook
        self.journal = journal
        self.history = journal.history
        self.inventory = inventory = playbook.without(inventory, self.history.retired)
        self.ports = ports
        self._wave = Wave(journal, playbook, inventory, ports.apply, ports.emit, ports.clock.now)
        self._log = Logbook(playbook, journal, ports)
        self._window = Window(journal, inventory.policy, ports, self._log)
        self._pauses = PausePoints(playbook, inventory, journal, self._window, ports, self._stop_if_asked)
        self._hooks = HookPoints(playbook, inventory, journal, ports)
        self._fresh = True
        self._skip: frozenset[str] = frozenset()
        self._cause: tuple[Finding, ...] = ()
        self._entered = ""
        self._passed: set[str] = set()

    # --- the three ways to start -----------------------------------------------------------------------

    def forward(self, until: str = "", skip: tuple[str, ...] = (), end_at: float | None = None) -> RunEnded:
        """Walk forward to the end, through ``until`` (a stage or ``stage.step``), or until a time.

        If a way back has finished, the run first turns forward again.

        - skip: stages to skip unless they have begun.
        - end_at: seconds since the epoch, after which no wave and no window begins.

        Raises UsageError if the run is on its way back, or for a name that the walk cannot reach.
        """
        self._wish(until, skip, end_at)
        if self.history.way is Way.BACK:
            if isinstance(self.history.next(self.playbook), Next):
                raise UsageError(
                    f"run {self.history.run} is on its way {self.history.heading}. Next: zkmigrate resume"
                )
            self._turn_forward("asked by the operator")
        return self._guarded(self._after_interruption)

    def resume(self, until: str = "", skip: tuple[str, ...] = (), end_at: float | None = None) -> RunEnded:
        """Continue in the journal's direction; parameters as in :meth:`forward`.

        A rehearsal that was interrupted walks back and starts again.
        """
        self._wish(until, skip, end_at)
        return self._guarded(self._after_interruption)

    def back(self, to: str = "", by: str = "") -> RunEnded:
        """Walk back to the start of ``to`` (a stage, ``stage.step``, or empty for everything).

        by: who requested it. If a step has no way back, the run ends with code 6 before anything is undone.
        Raises UsageError for a place that the run has not reached.
        """
        step_names.known(self.playbook, to)
        if at := self.history.short_of(self.playbook, to):
            raise UsageError(
                f"run {self.history.run} has not reached {to}: it is at {at}. Nothing was changed. "
                "Next: resume, or roll back to an earlier place"
            )
        return self._guarded(lambda: self._begin_back(to, by), Way.BACK)

    def _wish(self, until: str, skip: tuple[str, ...], end_at: float | None) -> None:
        """Store where the walk ends and which stages it skips. Raises UsageError for an unknown name."""
        self._skip = step_names.skippable(self.playbook, skip)
        step_names.known(self.playbook, until)
        self._pauses.until = Pause(until, at=end_at, end=True) if until or end_at is not None else None

    def _after_interruption(self) -> None:
        at = self.history.next(self.playbook)
        if isinstance(at, Next) and at.way is Way.FORWARD and at.stage.rehearsal:
            begun = {step.partition(".")[0] for step in self.history.begun}
            if at.stage.id in begun:
                self._turn(Turn(at.stage.id, "the rehearsal was interrupted", then="again"))

    def _begin_back(self, to: str, by: str) -> None:
        for at in self.history.to_undo(self.playbook, to):
            if at.step.hazard is Hazard.FINAL:
                context = self._context(at)
                verdict = at.step.check(context, at.step.observe(context, self.ports.look))
                if isinstance(verdict, Blocked):
                    self.ports.emit(events.StepBlocked(at.stage.id, at.step.id, Way.BACK, verdict.findings))
                    message = f"{at.id} has no way back; nothing was changed"
                    raise Leave(RunEnded(6, message, verdict.findings))
        self._turn(Turn(to, "asked by the operator"), by)

    # --- the playbook ----------------------------------------------------------------------------------

    def _go(self) -> RunEnded:
        while True:
            try:
                self._hooks.due()
                match self.history.next(self.playbook):
                    case Arrived(None):
                        return RunEnded(0, complete(self.playbook.id))
                    case Arrived(Turn() as turn):
                        if ended := self._arrived(turn):
                            return ended
                    case Rehearsed(stage):
                        self._turn(Turn(stage.id, REHEARSED, then="next"))
                    case Next() as at:
                        if ended := self._pauses.ended(at):
                            return ended
                        if self._enter(at):
                            started = self.ports.clock.now()
                            self._leave(at, self._visit(at), started)
            except Leave as leave:
                if not isinstance(leave.outcome, Turn):
                    raise
                self._cause = leave.outcome.findings
                self._passed.clear()
                self._turn(leave.outcome)

    def _visit(self, at: Next) -> Done | Blocked:
        """Run the step loop and return its verdict.

        An unreadable record blocks like any unmet need of a step: in a window the rules decide whether to
        turn back.
        """
        try:
            return self._loop(at)
        except RecordError as error:
            return Blocked((Finding("engine.record", _RECORD, Held.NO, seen=str(error)),))

    def _loop(self, at: Next) -> Done | Blocked:
        """Observe and check until the step is done or blocked, waiting and applying waves in between."""
        patience = Patience(self.ports.clock.now)
        kept: Mapping[str, Any] = {}
        recorded: Mapping[str, Any] = {}
        failures: Mapping[str, str] | None = None
        agreed: set[str] = set()
        while True:
            self._stop_if_asked()
            self._pauses.notice()
            over = self._pauses.ended(at)
            context = replace(self._context(at), kept=kept, over=over is not None)
            verdict, facts = self._look(at, context)
            match verdict:
                case Done() | Blocked():
                    return verdict
                case Waiting():
                    if (left := patience.left(verdict)) <= 0:
                        return patience.overdue(verdict, back=self._way_back(at))
                    kept = verdict.keep or kept
                    self._wait(at, verdict, left)
                case Ready(targets, record=record, both_ways=both_ways):
                    patience.ready()
                    if over and not failures and self._pauses.counts(at, targets):
                        raise Leave(over)
                    targets = self._pauses.limited(at, targets)
                    if not failures and (held := self._pauses.between(at, targets, whole=failures == {})):
                        self._obey(held, at.stage)
                        continue
                    if asked := [f for f in verdict.ask if f.target not in agreed]:
                        self._ask_about(at, asked)
                        agreed |= {f.target for f in asked}
                        continue
                    if self._hooks.before_wave(at, targets):
                        continue
                    plans = {t: self._changes(at, context, facts, t) for t in targets}
                    if refused := _refused(at.step, plans):
                        return refused
                    if (again := patience.count(plans)) >= TRIES:
                        return patience.exhausted(plans, back=self._way_back(at))
                    if record != recorded:
                        self._log.recorded(at, record, both_ways=both_ways)
                        recorded = record
                    kept = verdict.keep or kept
                    self._wave_begun(at, targets)
                    limits = partial(self._window.limits, at)
                    failures = self._wave.run(at, plans, context.fencing, limits)
                    patience.note(failures)
                    self._window.follow(at, self._context(at))
                    if failures or again:
                        self.ports.clock.pause(_RETRY_S)
                case _:
                    assert_never(verdict)

    def _look(self, at: Next, context: Context) -> tuple[Verdict, object]:
        """Observe the step and check its facts. Return the verdict and the facts.

        Going forward in a window, an unforeseen error counts as a blocked step, so that the run turns back.
        """
        if at.way is Way.BACK and at.step.hazard.reads:
            return Done(), None
        try:
            with self._window.look(at):
                facts = at.step.observe(context, self.ports.look)
            return at.step.check(context, facts), facts
        except HostError as error:
            limit = self.inventory.policy.step_deadline_s
            return Waiting(f"every question of {at.id} is answered", str(error), limit, poll_s=1.0), None
        except Exception as error:
            if isinstance(error, ZkmigrateError) or not at.stage.window or at.way is Way.BACK:
                raise
            self.journal.append("note", {"text": traceback.format_exc()})
            seen = f"{type(error).__name__}: {error}"
            finding = Finding(
                "engine.step-error", "the step ends without an unexpected error", Held.NO, seen=seen
            )
            return Blocked((finding,)), None

    def _ask_about(self, at: Next, findings: Sequence[Finding]) -> None:
        """Ask the operator about each finding before a wave.

        Without an answer the run stops and names the finding (code 6).
        """
        for finding in findings:
            answer = self.ports.confirm.decide(at.id, finding, "stop", _ANSWER_S)
            self._log.answered(at.stage.id, at.step.id, f"{finding.needed}?", answer, (finding,))
            if answer.word == "stop":
                message = f"stopped at {at.id} by {finding.id} {finding.target}: {finding.seen}"
                raise Leave(RunEnded(6, message, tuple(findings)))
            self._obey(answer, at.stage)

    def _wave_begun(self, at: Next, targets: tuple[str, ...]) -> None:
        step_progress = self._progress_of(at, targets)
        self.ports.emit(events.WaveBegun(at.stage.id, at.step.id, at.way, targets, *step_progress))

    def _progress_of(self, at: Next, wave: tuple[str, ...]) -> StepProgress:
        """Return the progress of the paced step as a wave of it begins; empty for other steps."""
        paced = self.playbook.paced
        if paced is None or paced.told or at.id != paced.step or at.way is Way.BACK:
            return StepProgress()
        every = paced.targets(self.inventory, self.history.records())
        if not set(wave) & set(every):
            return StepProgress()
        far = self.history.step_progress(at.id, wave, every, self.ports.clock.wall())
        return far._replace(many=paced.many)

    def _changes(self, at: Next, context: Context, facts: object, target: str) -> Changes:
        if at.way is Way.FORWARD:
            return at.step.plan(context, facts, target)
        return at.step.undo(context, facts, target, self.history.applied(at.id, target))

    def _wait(self, at: Next, waiting: Waiting, left: float) -> None:
        self.ports.emit(events.Waits(at.stage.id, at.step.id, waiting.what, waiting.progress, left))
        if waiting.far is not None:
            done, of, bytes_left, left_s = waiting.far
            many = next((c.many for c in self.playbook.counted if c.step == at.id), "targets")
            self.ports.emit(
                events.Progressed(at.stage.id, at.step.id, at.way, done, of, many, bytes_left, left_s)
            )
        if not at.stage.window and self.ports.confirm.listen():
            self._obey(Answer("stop"), at.stage)
        self._window.ask(at)
        self.ports.clock.pause(min(waiting.poll_s, left))

    # --- entering and leaving a step -------------------------------------------------------------------

    def _enter(self, at: Next) -> bool:
        """Begin a step, after any hold and question. Return False if its stage is skipped."""
        self._stop_if_asked()
        self._hold_before(at)
        if self._entered != f"{at.stage.id} {at.way.value}" and not self._enter_stage(at):
            return False
        self.ports.lock.fencing(at.stage.id, at.way)
        self._window.follow(at, self._context(at))
        self._window.ask(at)
        self._hold_again(at)
        if at.way is Way.FORWARD and not at.stage.window and not at.step.hazard.reads:
            answer = self.ports.confirm.step(at.stage, at.step, self._found())
            if answer.by:
                self._log.answered(at.stage.id, at.step.id, f"{at.step.title}?", answer, self._found())
            self._obey(answer, at.stage)
        self._hold_before(at)  # a hold requested while the question was open
        self._hooks.before_window(at)
        self._log.keep_files()
        self._log.begun(at, lambda: self._progress_of(at, self.history.last_wave(at.id, at.way)))
        return True

    def _found(self) -> tuple[Finding, ...]:
        """Return the findings of the previous step, even if another process walked it."""
        return tuple(decode_finding(f) for f in self.history.found)

    def _hold_before(self, at: Next) -> None:
        self._obey(self._pauses.before(at), at.stage)

    def _hold_again(self, at: Next) -> None:
        """Hold after the previous step if a hold is requested there and this process has sent nothing yet.

        If a process ends during such a hold, the next process must not go past that place.
        """
        fresh, self._fresh = self._fresh, False
        steps = at.stage.steps
        number = steps.index(at.step)
        if not fresh or at.way is Way.BACK or number == 0 or self.history.has_touched(at.id):
            return
        before = Next(at.stage, steps[number - 1], Way.FORWARD)
        if before.id in self.history.done:
            self._obey(self._pauses.after(before), at.stage)

    def _enter_stage(self, at: Next) -> bool:
        """Begin a stage, after its question is answered. Return False if it is skipped."""
        stage = at.stage
        fresh = at.way is Way.FORWARD and not self.history.entered(stage.id)
        if fresh and stage.id in self._skip:
            self._log.stage_skipped(stage, "--skip")
            return False
        if fresh and (key := stage.idle(self.inventory)):
            self._log.stage_skipped(stage, key)
            return False
        if at.way is Way.FORWARD and stage.consent and stage.id not in self.history.consents:
            answer = self.ports.confirm.consent(stage)
            self._log.answered(stage.id, "", stage.consent, answer, self._found())
            if answer.word == "skip" and stage.skip and fresh:
                self._log.stage_skipped(stage, answer.by)
                return False
            self._obey(answer, stage)
        self._hooks.before_stage(at)
        self._entered = f"{stage.id} {at.way.value}"
        self._log.stage_begun(stage, at.way)
        return True

    def _leave(self, at: Next, verdict: Done | Blocked, started: float) -> None:
        if isinstance(verdict, Blocked):
            self._blocked(at, verdict)
            return
        self._log.ended(at, verdict, self.ports.clock.now() - started)
        whole = all(f"{at.stage.id}.{s.id}" in self.history.done for s in at.stage.steps)
        if at.way is Way.FORWARD and whole and not at.stage.rehearsal:
            self._log.stage_done(at.stage.id)
        self._window.follow(at, self._context(at))
        if at.way is Way.FORWARD:
            self._log.copy()
            self._obey(self._pauses.after(at), at.stage)

    def _blocked(self, at: Next, verdict: Blocked) -> None:
        """Stop the run at a blocked step. In a window the rules first decide whether to turn back."""
        findings = verdict.findings
        self._log.blocked(at, findings)
        if at.way is Way.BACK and verdict.no_way_back:
            # The hosts passed it by themselves. The run must not keep a direction that it can no longer walk.
            ids = [stage.id for stage in self.playbook.stages]
            before = ids[: ids.index(at.stage.id)]
            kept = [stage for stage in before if stage in self.history.stages_reset]
            self._turn_forward(f"{at.id} has no way back", kept)
            # Without the journal's lines the hosts must report again at which step to continue.
            on = "resume --journal-lost forward" if self.history.lost else "resume"
            raise Leave(RunEnded(6, f"{at.id} has no way back; {on} goes forward", findings))
        if at.way is Way.BACK and verdict.others_back:
            self._others_back(at)
        if at.way is Way.BACK and self._window.retries_way_back(at, findings):
            return
        if at.way is Way.BACK:
            message = f"the way back stopped at {at.id}; fix the findings, then resume"
            raise Leave(RunEnded(8, message, findings))
        if not (at.stage.window and self.history.touched_in(at.stage.id)):
            message = f"{at.id} is blocked; fix the findings, then resume"
            raise Leave(RunEnded(_gate_code(at, findings), message, findings))
        self._window.refused(at, findings)

    def _others_back(self, at: Next) -> None:
        """Walk the other hosts back through a window's earlier steps, so that a missing host delays none.

        This is done once for each step at which a host is missing. The visits do not count as walked, because
        the missing host must still come back through each of the steps.
        """
        if at.id in self._passed:
            return
        self._passed.add(at.id)
        steps = at.stage.steps
        for step in reversed(steps[: steps.index(at.step)]):
            if step.hazard is Hazard.WINDOW:
                verdict = self._visit(Next(at.stage, step, Way.BACK))
                if isinstance(verdict, Blocked) and not verdict.others_back:
                    return

    # --- turning, arriving, stopping -------------------------------------------------------------------

    def _turn(self, turn: Turn, by: str = "") -> None:
        """Turn back. by: who requested it; empty if the run itself did."""
        ids = [stage.id for stage in self.playbook.stages]
        reset = ids[ids.index(turn.to.partition(".")[0]) :] if turn.to else ids
        body = {"way": Way.BACK.value, "to": turn.to, "then": turn.then, "why": turn.why, "code": turn.code}
        self.journal.append("turn", {**body, "reset": reset, **({"by": by} if by else {})})
        self.ports.emit(events.Turned(Way.BACK, turn.to, turn.why))

    def _turn_forward(self, why: str, kept: Sequence[str] = ()) -> None:
        """Change the direction to forward.

        kept: the stages that were done before the way back and that the way back never reached.
        """
        self.journal.append("turn", {"way": Way.FORWARD.value, "why": why, "kept": list(kept)})
        self.ports.emit(events.Turned(Way.FORWARD, "", why))

    def _arrived(self, turn: Turn) -> RunEnded | None:
        """End at the place that the way back led to, or go forward again after a rehearsal."""
        if turn.then == "end":
            findings = [decode_finding(f) for found in self.history.found_back.values() for f in found]
            odd = () if turn.code else doubts(findings)  # a run that turned by itself reports its cause
            differs = f"; not as before the run: {', '.join(dict.fromkeys(f.id for f in odd))}" if odd else ""
            why = f"{turn.why}{differs}{self._kept()}"
            return RunEnded(turn.code, f"back at {turn.where}: {why}", (*self._cause, *odd))
        if turn.then == "next":
            self._log.stage_done(turn.to)
        self._turn_forward(turn.why)
        return None

    def _kept(self) -> str:
        """Return whether a way back through a window was in time, and what clients kept.

        The text is the end of the final message. It is empty without a window.
        """
        return "".join(
            f"; {words}"
            for stage in self.playbook.stages
            if stage.window is not None and stage.window.unattended is not None
            for words in self._window.way_back_lines(
                stage, self._context(Next(stage, stage.steps[0], Way.BACK))
            )
        )

    def _obey(self, answer: Answer, stage: Stage) -> None:
        if answer.word == "stop":
            raise Leave(
                RunEnded(130, f"stopped by the operator before {stage.id} went on; {self.history.onward}")
            )
        if answer.word == "back":
            to = answer.to or stage.id
            step_names.known(self.playbook, to)
            raise Leave(Turn(to, "asked by the operator"))

    def _stop_if_asked(self) -> None:
        if self.ports.interrupt.wanted:
            raise Leave(RunEnded(130, f"interrupted; {self.state()}; {self.history.onward}"))

    def _guarded(self, begin: Callable[[], None], way: Way | None = None) -> RunEnded:
        """Run ``begin`` and the walk; afterwards no thread continues, whatever happened.

        way: the requested direction, else the current one.
        """
        resumed = bool(self.history.stages_begun or self.history.begun)
        stages = tuple((s.id, s.title) for s in self.playbook.stages)
        hosts = self.playbook.changed(self.inventory)
        way = way or self.history.way
        over = tuple(self.history.over(self.playbook).items())
        run, playbook = self.history.run, self.playbook.id
        self.ports.emit(events.RunBegun(run, playbook, way, resumed, hosts, stages, over))
        for retired in self.history.retired.values():
            self.ports.emit(events.Noted(retired.words))
        try:
            self._hooks.before_run(way)
            begin()
            ended = self._go()
        except Leave as leave:
            how = leave.outcome
            ended = RunEnded(8, how.why, how.findings) if isinstance(how, Turn) else how
        except ZkmigrateError as error:
            ended = RunEnded(error.exit_code, f"{error}; {self.state()}")
            self._close(ended, journal=False)
            return ended
        except Exception as error:  # a defect: the hooks for a failed run must run
            self.ports.watch.close()
            self._hooks.ended(RunEnded(1, f"{type(error).__name__}: {error}; {self.state()}"))
            raise
        except BaseException:
            self.ports.watch.close()
            raise
        self._close(ended, journal=True)
        return ended

    def _close(self, ended: RunEnded, *, journal: bool) -> None:
        self.ports.watch.close()
        self._hooks.ended(ended)
        self._log.closed(ended, journal=journal)

    # --- small things ----------------------------------------------------------------------------------

    def _way_back(self, at: Next) -> bool:
        """Return whether a step that goes forward may still be walked back."""
        return at.way is Way.FORWARD and not self.history.no_way_back(self.playbook)

    def state(self) -> str:
        """Return where the run is, in one clause, for messages."""
        at = self.history.next(self.playbook)
        where = f"at {at.id}, {at.way.value}" if isinstance(at, Next) else "between stages"
        open_ = [a.operation for a in self.history.unconfirmed()]
        text = f"run {self.history.run} is {where}"
        if isinstance(at, Next) and at.stage.window and (phase := self._window.phase(at.stage)):
            text += f" (window, phase {phase}: a lease that is not sealed ends by itself)"
        return text + (f"; not confirmed: {', '.join(open_)}" if open_ else "")

    def _context(self, at: Next) -> Context:
        return Context(
            run=self.history.run,
            inventory=self.inventory,
            fencing=self.ports.lock.fencing(at.stage.id, at.way),
            rehearsal=at.stage.rehearsal,
            way=at.way,
            records=self.history.records(),
            begun=self.history.lost or self.history.has_touched(at.id),
            unrestored=self.history.unrestored(at.id),
            unconfirmed=self.history.in_doubt(at.id),
            tell=lambda what, progress: self.ports.emit(
                events.Waits(at.stage.id, at.step.id, what, progress, None)
            ),
            retired=tuple(self.history.retired.values()),
            hold_at=self._pauses.phase(),
            overrides=self.ports.overrides(),
            note=self.ports.note,
            ends_at=None if self._pauses.until is None else self._pauses.until.at,
        )


class Patience:
    """The limits on a step's waits and repeated changes during one visit.

    Time is measured on the monotonic clock, from this process's own looks; after a resume it counts from
    zero. Standstill counts only between two consecutive looks that wait with the same mark, so neither a wave
    nor an operator's hold counts. A time in which the process itself was stopped does count, because the mark
    was the same at both ends.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._what = ""
        self._since = 0.0
        self._looked: float | None = None
        self._still: dict[str, tuple[object, float]] = {}
        self._tries: dict[str, tuple[Changes, int]] = {}
        self._said: dict[str, str] = {}

    def left(self, waiting: Waiting) -> float:
        """Return the seconds until this wait fails.

        ``deadline_s`` counts from the first wait with the same ``what``, and ``stalled_s`` from the last
        change of its mark.
        """
        now = self._now()
        if waiting.what != self._what:
            self._what, self._since = waiting.what, now
        still_s = 0.0
        if waiting.what in self._still and self._still[waiting.what][0] == waiting.mark:
            still_s = self._still[waiting.what][1] + (0.0 if self._looked is None else now - self._looked)
        self._looked, self._still[waiting.what] = now, (waiting.mark, still_s)
        return min(waiting.deadline_s - (now - self._since), waiting.stalled_s - still_s)

    def ready(self) -> None:
        """Forget the current wait, because the step has something to do. The next wait begins anew."""
        self._what, self._looked = "", None

    def overdue(self, waiting: Waiting, *, back: bool) -> Blocked:
        """Return the refusal for a wait past its deadline or without progress.

        back: whether there is a way back.
        """
        claim, seen = f"{waiting.what} within {waiting.deadline_s:g} s", waiting.progress
        _, still_s = self._still.get(waiting.what, (None, 0.0))
        if still_s >= waiting.stalled_s:
            claim = f"progress at least every {waiting.stalled_s:g} s until {waiting.what}"
            seen = f"{seen}; no progress for {still_s:.0f} s"
        moves = ("find out why it takes so long, then resume", *waiting.moves)
        moves += ("rollback",) if back else ()
        needed = waiting.what
        return Blocked((Finding("engine.wait-over", claim, Held.NO, seen=seen, needed=needed, moves=moves),))

    def count(self, plans: Mapping[str, Changes]) -> int:
        """Record a wave that is about to be sent.

        Return how many times in a row a target has already received exactly the same changes.
        """
        before = {t: n for t, (changes, n) in self._tries.items() if plans.get(t) == changes}
        self._tries = {t: (changes, before.get(t, 0) + 1) for t, changes in plans.items()}
        return max(before.values(), default=0)

    def note(self, failures: Mapping[str, str]) -> None:
        """Remember why targets of the last wave failed."""
        self._said = dict(failures)

    def exhausted(self, plans: Mapping[str, Changes], *, back: bool) -> Blocked:
        """Return the refusal after the same changes were sent ``TRIES`` times in a row.

        back: whether there is a way back.
        """
        claim = "a change has an effect on its target"
        findings = []
        for target, (changes, times) in self._tries.items():
            if times <= TRIES or plans.get(target) != changes:
                continue
            last = self._said.get(target) or "confirmed, yet the step still needs it"
            seen = f"the same change was sent {TRIES} times in a row; the last result: {last}"
            needed = "; ".join(change.describe() for change in changes) or "a change to send"
            kind = "cluster" if changes and isinstance(changes[-1], ClusterChange) else "host"
            moves = (f"fix the {kind}, then resume", *(("rollback",) if back else ()))
            found = Finding("engine.no-progress", claim, Held.NO, seen=seen, needed=needed, moves=moves)
            findings.append(replace(found, target=target))
        return Blocked(tuple(findings))


def _refused(step: AnyStep, plans: Mapping[str, Changes]) -> Blocked | None:
    """Return a refusal if a read-only step plans to change something, else None.

    Such a step is walked without a question, and the way back skips it.
    """
    changes = [change.describe() for changes in plans.values() for change in changes]
    if step.hazard is not Hazard.READ_ONLY or not changes:
        return None
    seen = f"{step.id} plans to send: {changes[0]}" + (f", and {n} more" if (n := len(changes) - 1) else "")
    needed = "a hazard of the step that allows changes: a defect of the playbook"
    return Blocked((Finding("engine.read-only", _READS, Held.NO, seen=seen, needed=needed),))


def _gate_code(at: Next, findings: tuple[Finding, ...]) -> int:
    """Return the exit code of a blocked step outside the window."""
    stuck = any(f.id == "engine.no-progress" for f in findings)
    return 8 if stuck else at.stage.refused


MEANINGS = meanings(
    """
    engine.wait-over: A step waited longer than its limit, or saw no progress for too long. Cause: The
    finding says what the step waited for and what it saw last. To do: Find out why it takes so long, then
    resume. Or roll back.

    engine.no-progress: zkmigrate sent the same change several times, without effect on the target. Cause:
    The host refuses the change, or something undoes it. The finding quotes the host's last answer. To do:
    Repair the target, then resume. Or roll back.

    engine.record: The journal does not hold what a step needs, or holds it damaged. Cause: The file was
    edited, cut off or taken from another run. To do: Put the journal back from a copy, then resume.
    Without a copy: zkmigrate resume --journal-lost.

    engine.step-error: A step failed with an unexpected error. Cause: A defect of zkmigrate. The
    journal has the whole traceback. To do: Let the run walk back. Send the note of the journal to the
    maintainers.

    engine.read-only: A step that declares that it only reads wants to send a change. Cause: A defect of
    the playbook. To do: Correct the step's hazard in the playbook, then resume.
    """
)
