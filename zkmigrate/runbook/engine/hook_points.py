"""The moments of a walk at which the operator's own programs, the hooks, run.

From the first FENCE until clients are served again (by OPEN, or on the way back) a hook runs beside the walk;
otherwise the walk waits for it. A hook may stop the run only where stopping is harmless: going forward, at a
moment that allows it, while the walk waits for it. Any other failure is only reported.

A hook runs once: one that is journaled as ended does not run again on resume, unless it stopped the run or
was stopped itself. A hook that was running when the tool was killed runs again.

The moments in ``due`` follow from the journal's history, so that a resumed run makes up for a missed one.
``before_run``, ``on_stop``, ``on_failure`` and ``on_end`` come in every process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from zkmigrate.errors import JournalError
from zkmigrate.inventory.hooks import MAY_STOP, Hook, Moment
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import Leave, Next, Turn, hook_key
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.ports import HookCall, HookEnd, Ports
from zkmigrate.runbook.model.finding import Finding, Held, meanings
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import Way

_PER_PROCESS: frozenset[Moment] = frozenset(("before_run", "on_stop", "on_failure", "on_end"))
_INTERRUPTED = 130
_VARIABLE = 8192
"""The longest value of an environment variable: with a longer one a system refuses the whole program."""


@dataclass(frozen=True)
class HookPoint:
    """The position of the walk when a hook runs.

    stage, step: empty where the walk is in none. targets: the targets of the current wave.
    """

    way: Way
    stage: str = ""
    step: str = ""
    targets: tuple[str, ...] = ()
    rehearsal: bool = False

    def body(self) -> dict[str, Any]:
        """Return the position as the journal stores it."""
        return {"stage": self.stage, "step": self.step, "way": self.way.value, "targets": list(self.targets)}


class HookPoints:
    """The hooks of one walk."""

    def __init__(self, playbook: Playbook, inventory: Inventory, journal: Journal, ports: Ports) -> None:
        self._playbook, self._inventory, self._ports = playbook, inventory, ports
        self._journal, self._history = journal, journal.history
        self._under_way: set[str] = set()
        self._guard = threading.Lock()
        self._over = False

    # --- the moments -----------------------------------------------------------------------------------

    def before_run(self, way: Way) -> None:
        """Run the hooks for the start of a process. way: the direction it will walk."""
        at = self._history.next(self._playbook)
        self._fire("before_run", _hook_point(at, way) if isinstance(at, Next) else HookPoint(way))

    def before_stage(self, at: Next) -> None:
        """Run the hooks for entering a stage, after its question is answered."""
        self._fire("before_stage", HookPoint(at.way, at.stage.id, rehearsal=at.stage.rehearsal))

    def before_window(self, at: Next) -> None:
        """Run the hooks for the start of a window if the next change refuses clients.

        This is the last moment at which stopping is harmless.
        """
        begins = at.stage.window is not None and at.step.id == at.stage.window.steps.begins
        if begins and at.way is Way.FORWARD and at.id not in self._history.first_sent:
            self._fire("before_window", _hook_point(at, at.way))

    def before_wave(self, at: Next, targets: tuple[str, ...]) -> bool:
        """Run the hooks for a wave outside windows that is about to be sent.

        Return True if the walk waited for a hook, so that the step must be observed again. A wave that
        finishes changes already begun on a host runs no hooks.
        """
        begun = at.way is Way.FORWARD and any(self._history.applied(at.id, target) for target in targets)
        if at.stage.window or begun:
            return False
        return self._fire("before_wave", _hook_point(at, at.way, targets))

    def due(self) -> None:
        """Run each hook that is due and has not run: ``on_turn_back``, ``after_open`` and ``after_stage``.

        ``after_open`` is due once the step that opens a window is done.
        """
        turn = self._history.turn
        if self._history.way is Way.BACK:
            if turn is not None and turn.then == "end":
                place = HookPoint(Way.BACK, *_split(turn.to))
                self._fire("on_turn_back", place, RunEnded(turn.code, turn.why))
            return
        done = [stage for stage in self._playbook.stages if self._is_done(stage)]
        if not done:
            return
        last = done[-1]
        place = HookPoint(Way.FORWARD, last.id, rehearsal=last.rehearsal)
        if last.window and f"{last.id}.{last.window.steps.opens}" in self._history.done:
            self._fire("after_open", place)
        self._fire("after_stage", place)

    def ended(self, ended: RunEnded) -> None:
        """Run the hooks for the end of the walk. No hook is reported any more after that."""
        at = self._history.next(self._playbook)
        place = _hook_point(at, at.way) if isinstance(at, Next) else HookPoint(self._history.way)
        if ended.code == _INTERRUPTED:
            self._fire("on_stop", place, ended)
        elif ended.code:
            self._fire("on_failure", place, ended)
        self._fire("on_end", place, ended)
        with self._guard:
            self._over = True

    # --- firing ----------------------------------------------------------------------------------------

    def _fire(self, moment: Moment, place: HookPoint, said: RunEnded | None = None) -> bool:
        """Run the hooks of a moment that have not run. Return whether the walk waited for any.

        Raises Leave if a hook stops the run.
        """
        waited = False
        for number, hook in enumerate(self._inventory.hooks.of(moment)):
            key = hook_key(moment, place.body(), number)
            if moment not in _PER_PROCESS and (key in self._history.hooks or key in self._under_way):
                continue
            shut = self._shut()
            stops = moment in MAY_STOP and hook.failure != "go" and place.way is Way.FORWARD and not shut
            call = self._call(moment, hook, place, said, stops)
            self._ports.emit(events.HookBegun(moment, place.stage, hook.run, hook.timeout_s, not shut))
            ended = partial(self._ended, moment, place, number, hook, stops)
            if shut:
                self._under_way.add(key)
                self._ports.hooks.start(call, partial(self._ended_beside, ended))
                continue
            waited = True
            end = self._ports.hooks.run(call)
            ended(end)
            if stops and end.code != 0:
                self._stop(moment, place, hook, end)
            if end.how == "interrupted":
                break
        return waited

    def _ended(
        self, moment: Moment, place: HookPoint, number: int, hook: Hook, stops: bool, end: HookEnd
    ) -> None:
        body = {"moment": moment, "place": place.body(), "number": number, "run": hook.run, "stops": stops}
        outcome = {"code": end.code, "how": end.how, "seconds": end.seconds, "output": end.output}
        try:
            self._journal.append("hook", {**body, **outcome}, sync=moment in MAY_STOP)
        except JournalError:
            if moment in MAY_STOP:
                raise  # otherwise the lost line does no harm; the walk's next line fails too
        self._ports.emit(
            events.HookEnded(
                moment, place.stage, hook.run, end.code, end.how, end.seconds, end.said, end.output, stops
            )
        )

    def _ended_beside(self, ended: partial[None], end: HookEnd) -> None:
        with self._guard:
            if not self._over:
                ended(end)

    def _stop(self, moment: Moment, place: HookPoint, hook: Hook, end: HookEnd) -> None:
        where = place.step or place.stage or "the run"
        if end.how == "interrupted":
            onward = self._journal.history.onward
            raise Leave(RunEnded(_INTERRUPTED, f"interrupted during a {moment} hook of {where}; {onward}"))
        seen = {"timeout": f"it did not end within {hook.timeout_s:g} s", "done": f"exit code {end.code}"}
        finding = Finding(
            id=f"hook.{moment}",
            claim=f"the hook {hook.run} succeeds",
            held=Held.NO,
            seen=": ".join(filter(None, (seen.get(end.how, "not started"), end.said))),
            needed=f"exit code 0 within {hook.timeout_s:g} s",
            moves=(
                f"read the hook's output{f' ({end.output})' if end.output else ''} and fix the cause",
                "or change hooks in migration.yml, which is allowed during a run",
            ),
        )
        why = f"a {moment} hook of {where} stopped the run"
        if moment == "before_window":
            raise Leave(Turn(place.stage, why, 7, findings=(finding,)))
        raise Leave(RunEnded(6, f"{why}; fix the cause, then resume", (finding,)))

    def _shut(self) -> bool:
        """Return whether clients are, or may be, refused.

        This lasts from the first FENCE until OPEN, or until the way back lets them in again.
        """
        return any(
            stage.window
            and f"{stage.id}.{stage.window.steps.begins}" in self._history.first_sent
            and f"{stage.id}.{stage.window.steps.opens}" not in self._history.done
            for stage in self._playbook.stages
        )

    def _is_done(self, stage: Stage) -> bool:
        """Return whether a stage was walked to its end, even if no journal line says so.

        The tool may have been killed before it wrote that line.
        """
        if stage.id in self._history.stages_skipped:
            return False
        steps = (f"{stage.id}.{step.id}" for step in stage.steps)
        whole = not stage.rehearsal and all(step in self._history.done for step in steps)
        return whole or stage.id in self._history.stages_done

    def _call(
        self, moment: Moment, hook: Hook, place: HookPoint, said: RunEnded | None, stops: bool
    ) -> HookCall:
        facts: dict[str, Any] = {
            "moment": moment,
            "run": self._history.run,
            "name": self._inventory.name,
            "playbook": self._playbook.id,
            "stage": place.stage,
            "step": place.step,
            "way": place.way.value,
            "rehearsal": place.rehearsal,
            "targets": list(place.targets),
            "code": said.code if said else None,
            "message": said.message if said else "",
            "may_stop": stops,
            "timeout_s": hook.timeout_s,
        }
        findings = [encode_finding(finding) for finding in (said.findings if said else ())]
        text = json.dumps({"at": self._ports.clock.wall(), **facts, "findings": findings}, ensure_ascii=False)
        return HookCall(moment, hook.run, hook.args, hook.timeout_s, variables(facts), text + "\n")


def variables(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return an environment variable ``ZKMIGRATE_…`` for each fact.

    Lists are joined by blanks, booleans are ``true`` and ``false``, None is empty.
    """
    return {f"ZKMIGRATE_{key.upper()}": _variable(value) for key, value in facts.items()}


def _variable(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return " ".join(str(part) for part in value)
    return "" if value is None else str(value).replace("\0", "")[:_VARIABLE]


def _hook_point(at: Next, way: Way, targets: tuple[str, ...] = ()) -> HookPoint:
    return HookPoint(way, at.stage.id, at.id, targets, at.stage.rehearsal)


def _split(to: str) -> tuple[str, str]:
    """Split the place to which a way back leads into stage and step; a stage alone has an empty step."""
    stage, _, step = to.partition(".")
    return stage, to if step else ""


MEANINGS = meanings(
    """
    hook.MOMENT: A hook of the inventory stopped the run at this moment, such as before_window. Cause: The
    hook's program ended with another code than 0, or ran longer than its timeout_s. To do: Read the
    hook's output, correct the cause, then resume. Or change hooks in migration.yml.
    """
)
