"""Compute the state of a run from its journal: position, direction, records, consents, changes not undone.

:class:`History` is computed from journal entries and nothing else, so a run that continues and a run that is
resumed by another process see the same. :meth:`History.next` is the whole position logic of a playbook.

Bodies by kind:

- ``begin`` {run, name, playbook, inventory, plan, hosts: {PART: names}}; name is the inventory's, inventory
  and plan are digests, hosts are ``Playbook.hosts``, for the report. A second one begins the run again, with
  another inventory or playbook, while no change had been sent
- ``stage`` {stage, event: begin|done|skipped, by?}
- ``step`` {stage, step, way, event: begin|done|blocked, mono, seconds?, findings?}
- ``record`` {stage, step, record}
- ``intent`` {stage, step, target, way, leg, operation, change, mono}
- ``outcome`` {operation, status: done|failed|unknown|skipped, rc, output, mono}
- ``consent`` {stage, step, question, answer, to, by, findings}
- ``hold`` {stage, step, way, event: begin|end, hold: {at, why, by, place, since}, place?: before|in|after,
  progress?, how?: released|go|stop|back|deadline|left, by?}: outside the window the run holds before
  or in the step, in the window after the step
- ``retired`` {host, id, addresses, by, reason, findings}: a broker that is gone permanently was left out
- ``turn`` {way, to, then: next|again|end, why, code, reset: ids of stages that no longer count as done};
  forward {way, why, kept: ids of stages that a refused way back never reached and that stay done}; by: who
  requested it
- ``found`` {text, leg, stages, steps, unrecorded, consented, operations: [{operation, step, target, verb,
  path, confirmed}]}: what the hosts report where the journal's own lines are lost
  (``runbook/engine/lost_journal.py``). stages and steps that are done; unrecorded: steps among them whose
  record is lost; consented: stages agreed to
- ``hook`` {moment, place: {stage, step, way, targets}, number, run, code, how, seconds, output, stops}: as in
  ``runbook/engine/hook_points.py``
- ``finding`` {stage, step, finding, phase, decision} · ``note`` {text, leg?, lost?} · ``end`` {code, message}

``mono`` is seconds on the monotonic clock of the process that wrote the line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from zkmigrate.runbook.engine.codec import decode_change
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.sent_changes import SentChanges
from zkmigrate.runbook.model.change import Applied, ClusterChange, RecoveredChange, inverse, undoes
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Hazard, Retired, Way

Then: TypeAlias = Literal["next", "again", "end"]

REHEARSED = "the rehearsal is complete"
"""The reason for turning back after a rehearsal without faults."""


class NotUndone(NamedTuple):
    """The number of changes of one step (``stage.step``) on one host or cluster that are not undone.

    where: the name of the host or cluster. cluster: whether it is a cluster.
    """

    step: str
    where: str
    cluster: bool
    changes: int


def complete(playbook: str) -> str:
    """Return the message of a run that reached its end."""
    return f"{playbook} is complete"


@dataclass(frozen=True)
class Turn:
    """A way back to the start of ``to`` (stage, ``stage.step``, or empty for everything).

    - code: the exit code on arrival.
    - then: what follows on arrival: the ``next`` stage (a rehearsal is complete), the stage ``again``, or the
      ``end`` of the run.
    - findings: the findings that caused the way back, journaled separately.
    """

    to: str
    why: str
    code: int = 0
    then: Then = "end"
    findings: tuple[Finding, ...] = ()

    @property
    def where(self) -> str:
        """The place that the turn leads to, in words."""
        return f"the start of {self.to}" if self.to else "the beginning"


class Leave(Exception):
    """An exception that ends the current step: the walk stops with this result, or turns back."""

    def __init__(self, outcome: RunEnded | Turn) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@dataclass(frozen=True)
class Next:
    """The step to walk now."""

    stage: Stage
    step: AnyStep
    way: Way

    @property
    def id(self) -> str:
        return f"{self.stage.id}.{self.step.id}"


@dataclass(frozen=True)
class Rehearsed:
    """The position after all steps of a rehearsal: walk back to its start."""

    stage: Stage


@dataclass(frozen=True)
class Arrived:
    """The position when no step is left in the current direction. turn: None at the forward end."""

    turn: Turn | None


Position: TypeAlias = Next | Rehearsed | Arrived


class StepProgress(NamedTuple):
    """The progress of a step, with the estimated time for the rest.

    of: the number of all targets, 0 if not reported. left_s: seconds, None if unknown. many: the noun for the
    targets.
    """

    done: int = 0
    of: int = 0
    left_s: float | None = None
    many: str = ""


def hook_key(moment: str, place: Mapping[str, Any], number: int) -> str:
    """Return the key of the ``number``-th hook of a moment at one place of the way forward or back."""
    targets = ",".join(place["targets"])
    return f"{moment} {place['way']} {place['stage']} {place['step']} {targets} {number}"


@dataclass
class History:
    """The state of a run, computed entry by entry. Steps are named ``stage.step``.

    - turn: the current way back. leg: number of the last wave; known_leg: number of the last wave in the
      remaining lines.
    - sent: whether a change was ever sent to a host. first_sent: step → (line, seconds since the epoch,
      monotonic seconds) of its first intent that is not undone.
    - begun_at, done_at: step → seconds since the epoch at which it was last entered, or done going forward.
    - turned_at: when the current way back began. walked_back: step → when its first change was sent, and when
      all were undone, in seconds since the epoch.
    - seconds: step → way → duration of its last completed walk.
    - stages_reset: stages that were done before the last turn back. stages_skipped: the stages in stages_done
      that were skipped.
    - lost: lines of the journal are missing. rebuilt: the hosts' reports have been taken in since.
    - held: the body of the current hold, with its time as ``at``.
    - found: the findings of the step that was done last, as JSON. found_back: step → its findings at its end
      on the newest way back, as JSON.
    - hooks: the hooks that have run, by :func:`hook_key`, with the stage of each.
    - retired: brokers that were left out of the run, by host.
    """

    run: str = ""
    name: str = ""
    playbook: str = ""
    inventory: str = ""
    plan: str = ""
    way: Way = Way.FORWARD
    turn: Turn | None = None
    leg: int = 0
    known_leg: int = 0
    entries: int = 0
    lost: bool = False
    rebuilt: bool = False
    sent: bool = False
    ended: tuple[int, str] | None = None
    held: Mapping[str, Any] | None = None
    found: Sequence[Mapping[str, Any]] = ()
    found_back: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    begun_at: dict[str, float] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    first_sent: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    done_at: dict[str, float] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    stages_begun: set[str] = field(default_factory=set)
    stages_done: set[str] = field(default_factory=set)
    stages_skipped: set[str] = field(default_factory=set)
    stages_reset: set[str] = field(default_factory=set)
    consents: dict[str, str] = field(default_factory=dict)
    hooks: dict[str, str] = field(default_factory=dict)
    turned_at: float = 0.0
    walked_back: dict[str, tuple[float, float]] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    retired: dict[str, Retired] = field(default_factory=dict)
    _between: dict[str, list[float]] = field(default_factory=dict)
    _wave: tuple[str, int, float] | None = None
    _waves: dict[tuple[str, Way], dict[int, list[str]]] = field(default_factory=dict)
    _records: dict[str, dict[str, Any]] = field(default_factory=dict)
    _changes: SentChanges = field(default_factory=SentChanges)
    _undoes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    # --- questions -------------------------------------------------------------------------------------

    @property
    def heading(self) -> str:
        """The direction in words: "forward", or "back to the start of roll".

        A rehearsal on its way back is heading "forward", because it goes forward afterwards.
        """
        return "forward" if self.turn is None or self.turn.then != "end" else f"back to {self.turn.where}"

    @property
    def onward(self) -> str:
        """A clause that says how ``resume`` continues, with the direction if the run goes back."""
        return "zkmigrate resume continues" + ("" if self.heading == "forward" else f" {self.heading}")

    def applied(self, step: str, target: str) -> tuple[Applied, ...]:
        """Return the changes of a step on a target that are not undone, oldest first."""
        return self._changes.of(step, target)

    def touched(self, step: str) -> tuple[str, ...]:
        """Return the targets with changes of a step that are not undone, in order of their first change.

        Retired targets are left out, because the run ignores them in both directions.
        """
        return tuple(t for t in self._changes.of_step(step) if t not in self.retired)

    def unrestored(self, step: str) -> frozenset[str]:
        """Return the touched targets of a step on which a file or setting is not yet restored."""
        return self._among(step, lambda applied: inverse(applied) is not None)

    def in_doubt(self, step: str) -> frozenset[str]:
        """Return the touched targets of a step with a change that was refused or has only an intent."""
        return self._among(step, lambda applied: not applied.confirmed)

    def _among(self, step: str, holds: Callable[[Applied], bool]) -> frozenset[str]:
        """Return the touched targets of a step with a change for which ``holds`` is true."""
        changes = self._changes.of_step(step)
        return frozenset(t for t in self.touched(step) if any(map(holds, changes[t].values())))

    def has_touched(self, step: str) -> bool:
        """Return whether any target has changes of a step that are not undone."""
        return any(t not in self.retired for t in self._changes.of_step(step))

    def waves_begun(self, step: str, way: Way) -> int:
        """Return how many waves of a step were begun in this direction, by all processes together.

        The count starts over when the walk enters the step from its other end.
        """
        return len(self._waves.get((step, way), ()))

    def last_wave(self, step: str, way: Way) -> tuple[str, ...]:
        """Return the targets of the newest wave of a step in this direction; empty without a wave."""
        return tuple(next(reversed(self._waves.get((step, way), {0: []}).values())))

    def step_progress(
        self, step: str, wave: tuple[str, ...], every: Collection[str], now: float
    ) -> StepProgress:
        """Return the progress as a wave begins, with the time left at the pace of the earlier waves.

        every: all targets of the step. now: seconds since the epoch. left_s is None until one wave has ended.
        """
        of, done = len(every), len(set(every).intersection(self.touched(step)).difference(wave))
        took = list(self._between.get(step, ()))
        if self._wave is not None and self._wave[0] == step:
            took.append(now - self._wave[2])
        left = statistics.median(took) * math.ceil((of - done) / len(wave)) if took else None
        return StepProgress(done, of, left)

    def entered(self, stage: str) -> bool:
        """Return whether any step of a stage was begun and has not been walked back."""
        return any(step.partition(".")[0] == stage for step in self.begun)

    def touched_in(self, stage: str) -> bool:
        """Return whether any step of a stage has changes that are not undone."""
        return any(step.partition(".")[0] == stage for step in self._changes.steps())

    def over(self, playbook: Playbook) -> dict[str, str]:
        """Return the stages that are over, each with ``ok``, ``skipped`` or ``undone``.

        ``undone``: every step that was begun is walked back.
        """
        over = {}
        for stage in playbook.stages:
            undone = any(step.partition(".")[0] == stage.id for step in self.undone)
            if stage.id in self.stages_done:
                over[stage.id] = "skipped" if stage.id in self.stages_skipped else "ok"
            elif undone and not self.entered(stage.id):
                over[stage.id] = "undone"
        return over

    def not_undone(self) -> tuple[NotUndone, ...]:
        """Return the changes that are not undone, counted by step and host or cluster, oldest first."""
        found: dict[tuple[str, str, bool], int] = {}
        for step, _, applied in self._changes:
            change = applied.change
            cluster = isinstance(change, ClusterChange)
            where = change.host if isinstance(change, RecoveredChange) else change.where
            key = (step, where, cluster)
            found[key] = found.get(key, 0) + 1
        return tuple(NotUndone(*key, changes) for key, changes in found.items())

    @property
    def is_over(self) -> bool:
        """Whether the run is complete or entirely undone, as far as that is known without the playbook."""
        undone = self.way is Way.BACK and not self.begun
        return undone or self.ended == (0, complete(self.playbook))

    @property
    def binds(self) -> bool:
        """Whether the run must keep the inventory it began with, because it may have changed a host."""
        return self.sent or self.lost

    def unconfirmed(self) -> tuple[Applied, ...]:
        """Return the changes without a confirmed outcome."""
        return tuple(applied for _, _, applied in self._changes if not applied.confirmed)

    def records(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what each step recorded last, by step id and ``stage.step``.

        A stage id gives ``{"seconds": {step id: {"forward": s, "back": s}}}``: how long the last completed
        walk of each step took.
        """
        stages: dict[str, dict[str, Any]] = {}
        for key, value in self.seconds.items():
            stage, _, step = key.partition(".")
            stages.setdefault(stage, {"seconds": {}})["seconds"][step] = dict(value)
        return {**stages, **self._records}

    def next(self, playbook: Playbook) -> Position:
        """Return where the run continues in the current direction."""
        if self.way is Way.BACK:
            return self._next_back(playbook)
        for stage in playbook.stages:
            if stage.id in self.stages_done:
                continue
            for step in stage.steps:
                if f"{stage.id}.{step.id}" not in self.done:
                    return Next(stage, step, Way.FORWARD)
            if stage.rehearsal:
                return Rehearsed(stage)
        return Arrived(None)

    def to_undo(self, playbook: Playbook, to: str) -> tuple[Next, ...]:
        """Return the steps that a way back to the start of ``to`` walks, in walking order.

        With a lost journal every step may have been begun; the facts then show which has something to undo.
        """
        steps = [Next(stage, step, Way.BACK) for stage in playbook.stages for step in stage.steps]
        if to:
            first = next((i for i, s in enumerate(steps) if to in (s.stage.id, s.id)), len(steps))
            steps = steps[first:]
        return tuple(
            s for s in reversed(steps) if s.id in self.begun or (self.lost and s.id not in self.undone)
        )

    def short_of(self, playbook: Playbook, to: str) -> str:
        """Return the step at which the run is, if it has not yet reached the start of ``to``; else "".

        With a lost journal the result is empty, because only the facts show how far the run came.
        """
        for stage in playbook.stages:
            for step in stage.steps:
                id = f"{stage.id}.{step.id}"
                if not to or self.lost or to in (stage.id, id):
                    return ""
                if stage.id not in self.stages_done and id not in self.done:
                    return id
        return ""

    def no_way_back(self, playbook: Playbook) -> str:
        """Return the first step without a way back that is done or that a host confirmed; empty if none."""
        sent = {step for step, _, applied in self._changes if applied.confirmed}
        final = [
            f"{stage.id}.{step.id}"
            for stage in playbook.stages
            for step in stage.steps
            if step.hazard is Hazard.FINAL
        ]
        return next((id for id in final if id in self.done or id in sent), "")

    def _next_back(self, playbook: Playbook) -> Position:
        turn = self.turn or Turn("", "")
        left = self.to_undo(playbook, turn.to)
        if turn.then != "end":  # a rehearsal: no later stage has begun, even with a lost journal
            left = tuple(at for at in left if at.stage.id == turn.to)
        return left[0] if left else Arrived(turn)

    # --- the fold --------------------------------------------------------------------------------------

    def fold(self, entry: Entry) -> None:
        """Update the state with one more entry."""
        self.entries = entry.seq
        if entry.kind != "end":
            self.ended = None
        if entry.kind in ("end", "hold", "step", "turn"):
            self._wave = None  # time outside waves does not count for the pace
        if entry.kind not in ("finding", "consent", "note"):
            self.held = None
        handler = getattr(self, f"_on_{entry.kind}", None)
        if handler is not None:
            handler(entry.body, entry)

    def _on_begin(self, body: Mapping[str, Any], _: Entry) -> None:
        if self.run:  # a second begin: looks with another inventory do not count
            vars(self).update({**vars(History()), "entries": self.entries, "leg": self.leg})
        self.run, self.playbook = body["run"], body["playbook"]
        self.name, self.inventory, self.plan = body["name"], body["inventory"], body["plan"]

    def _on_stage(self, body: Mapping[str, Any], _: Entry) -> None:
        if body["event"] == "begin":
            self.stages_begun.add(body["stage"])
        else:
            self.stages_done.add(body["stage"])
            if body["event"] == "skipped":
                self.stages_skipped.add(body["stage"])

    def _on_step(self, body: Mapping[str, Any], entry: Entry) -> None:
        step = f"{body['stage']}.{body['step']}"
        way, event = Way(body["way"]), body["event"]
        if event == "begin":
            self.begun_at[step] = entry.at
        if event == "begin" and way is Way.FORWARD:
            self._waves.pop((step, Way.BACK), None)
            self.begun.add(step)
            self.undone.discard(step)
        elif event == "begin":
            self.done.discard(step)
        elif event == "blocked":
            if way is Way.FORWARD and not self.touched_in(body["stage"]):
                self.consents.pop(body["stage"], None)  # a fix may take days: ask again then
        elif event == "done":
            self.found = body.get("findings", ())
            if way is Way.FORWARD:
                self.done.add(step)
                self.done_at[step] = entry.at
            else:
                if step in self.first_sent:
                    self.walked_back[step] = (self.first_sent[step][1], entry.at)
                self._clear(step)
                self.found_back[step] = self.found
            if "seconds" in body:
                self.seconds.setdefault(step, {})[way.value] = body["seconds"]

    def _clear(self, step: str) -> None:
        """Forget the progress of a step that was walked back to its start."""
        self.begun.discard(step)
        self.first_sent.pop(step, None)
        self._between.pop(step, None)
        self._waves.pop((step, Way.FORWARD), None)
        self.done.discard(step)
        self.undone.add(step)
        self._changes.clear(step)

    def _on_record(self, body: Mapping[str, Any], _: Entry) -> None:
        self._records[body["step"]] = body["record"]
        self._records[f"{body['stage']}.{body['step']}"] = body["record"]

    def _on_intent(self, body: Mapping[str, Any], entry: Entry) -> None:
        self.sent = True
        self.leg = max(self.leg, body["leg"])
        self.known_leg = max(self.known_leg, body["leg"])
        change = decode_change(body["change"])
        operation, way = body["operation"], Way(body["way"])
        step = f"{body['stage']}.{body['step']}"
        self._waves.setdefault((step, way), {}).setdefault(body["leg"], []).append(body["target"])
        if way is Way.FORWARD:
            if self._wave is None or self._wave[:2] != (step, body["leg"]):
                if self._wave is not None and self._wave[0] == step:
                    self._between.setdefault(step, []).append(entry.at - self._wave[2])
                self._wave = (step, body["leg"], entry.at)
            self._changes.add(step, body["target"], Applied(change, operation, confirmed=False))
            self.first_sent.setdefault(step, (entry.seq, entry.at, body["mono"]))
        else:
            sent = self._changes.of(step, body["target"])
            self._undoes[operation] = tuple(a.operation for a in sent if undoes(change, a))

    def _on_outcome(self, body: Mapping[str, Any], _: Entry) -> None:
        operation, status = body["operation"], body["status"]
        undone = self._undoes.pop(operation, ())
        if status == "done":
            self._changes.confirm(operation)
            for original in undone:
                self._changes.drop(original)
        elif status == "skipped":
            self._changes.drop(operation)

    def _on_consent(self, body: Mapping[str, Any], _: Entry) -> None:
        """Record an answer as consent, if it is go to a stage's own question."""
        if body["answer"] == "go" and not body["step"]:
            self.consents[body["stage"]] = body["answer"]

    def _on_hold(self, body: Mapping[str, Any], entry: Entry) -> None:
        if body["event"] == "begin":
            self.held = {**body, "at": entry.at}

    def _on_retired(self, body: Mapping[str, Any], _: Entry) -> None:
        self.retired[body["host"]] = Retired(
            body["host"], body["id"], tuple(body["addresses"]), body["by"], body["reason"]
        )

    def _on_turn(self, body: Mapping[str, Any], entry: Entry) -> None:
        self.way = Way(body["way"])
        if self.way is Way.BACK:
            self.turned_at = entry.at
            self.walked_back.clear()
            self.turn = Turn(body["to"], body["why"], body["code"], body["then"])
            self.found_back.clear()
            self.stages_reset = self.stages_done & set(body["reset"])
            self.stages_done -= self.stages_reset
            self.stages_skipped -= self.stages_reset
            ahead = {key: stage for key, stage in self.hooks.items() if f" {Way.FORWARD.value} " in key}
            self.hooks = {key: stage for key, stage in ahead.items() if stage not in body["reset"]}
        else:
            self.turn = None
            self.stages_done |= set(body.get("kept", ()))
            begun = {step.partition(".")[0] for step in self.begun}
            self.stages_begun &= begun
            self.consents = {s: a for s, a in self.consents.items() if s in begun}

    def _on_found(self, body: Mapping[str, Any], entry: Entry) -> None:
        """Apply the hosts' report, which overrides the remaining lines."""
        self.rebuilt = True
        self.leg, self.known_leg = max(self.leg, body["leg"]), max(self.known_leg, body["leg"])
        known, self._changes = {applied.operation: applied for _, _, applied in self._changes}, SentChanges()
        for row in body["operations"]:
            step, operation = row["step"], row["operation"]
            change = RecoveredChange(row["target"], row["verb"], row["path"])
            recovered = Applied(change, operation, row["confirmed"])
            self._changes.add(step, row["target"], known.get(operation, recovered))
            self.begun.add(step)
            self.undone.discard(step)
            # The time of sending is unknown: deadlines count from now, by the wall clock.
            self.first_sent.setdefault(step, (0, entry.at, 0.0))
        not_undone_steps = self._changes.steps()
        self.first_sent = {step: at for step, at in self.first_sent.items() if step in not_undone_steps}
        self.stages_done, self.done = set(body["stages"]), set(body["steps"])
        self.stages_begun |= {step.partition(".")[0] for step in self.done}
        self.consents = {**dict.fromkeys(body["consented"], "go"), **self.consents}
        for step in body["unrecorded"]:
            self._records.pop(step, None)
            self._records.pop(step.partition(".")[2], None)

    def _on_hook(self, body: Mapping[str, Any], _: Entry) -> None:
        """Record a hook as run, unless it stopped the run or was stopped itself: then it runs again."""
        asked_again = body["how"] == "interrupted" or (body["stops"] and body["code"] != 0)
        if not asked_again:
            place = body["place"]
            self.hooks[hook_key(body["moment"], place, body["number"])] = place["stage"]

    def _on_note(self, body: Mapping[str, Any], _: Entry) -> None:
        self.leg = max(self.leg, body.get("leg", 0))
        if body.get("lost"):
            self.lost, self.rebuilt = True, False

    def _on_end(self, body: Mapping[str, Any], _: Entry) -> None:
        self.ended = (body["code"], body["message"])
