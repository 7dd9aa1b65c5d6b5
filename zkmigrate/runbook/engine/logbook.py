"""The logbook: journals what the walk did, and emits the events about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import Next, StepProgress
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.ports import Answer, Ports
from zkmigrate.runbook.model.finding import Finding, doubts
from zkmigrate.runbook.model.playbook import KeptFile, Playbook, Stage
from zkmigrate.runbook.model.step import Done, Way


class Logbook:
    """The journal entries of one walk.

    Any method raises JournalError if it cannot journal, and the walk must then not continue.
    """

    def __init__(self, playbook: Playbook, journal: Journal, ports: Ports) -> None:
        self._playbook, self._journal, self._ports = playbook, journal, ports
        self._without: set[str] = set()
        self._kept: dict[str, KeptFile] = {}

    # --- stages ----------------------------------------------------------------------------------------

    def answered(
        self, stage: str, step: str, question: str, answer: Answer, found: Sequence[Finding]
    ) -> None:
        """Record the answer to a question of a stage, or of a step unless ``step`` is empty.

        found: the findings known then; those in doubt are journaled.
        """
        stood = doubts(found)
        body = {"stage": stage, "step": step, "question": question, "answer": answer.word, "to": answer.to,
                "by": answer.by, "findings": [encode_finding(f) for f in stood]}  # fmt: skip
        self._journal.append("consent", body)
        self._ports.emit(events.Consented(stage, question, answer.word, answer.by, step, answer.to, stood))

    def stage_begun(self, stage: Stage, way: Way) -> None:
        """Record that a stage has begun. The journal gets one line, and only going forward."""
        if way is Way.FORWARD and stage.id not in self._journal.history.stages_begun:
            self._journal.append("stage", {"stage": stage.id, "event": "begin"})
        window = stage.window is not None
        self._ports.emit(events.StageBegun(stage.id, stage.title, way, window, stage.rehearsal))

    def stage_skipped(self, stage: Stage, by: str) -> None:
        self._journal.append("stage", {"stage": stage.id, "event": "skipped", "by": by})
        self._ports.emit(events.StageSkipped(stage.id, stage.skip, by))

    def stage_done(self, stage: str) -> None:
        """Record that a stage was walked forward, or a rehearsal forward and back."""
        self._journal.append("stage", {"stage": stage, "event": "done"})

    # --- steps -----------------------------------------------------------------------------------------

    def begun(self, at: Next, progress: Callable[[], StepProgress]) -> None:
        """Record that a step is entered. The step's first intent makes this line durable.

        progress: called once the entry is written.
        """
        self._step(at, "begin")
        waves = self._journal.history.waves_begun(at.id, at.way)
        step = at.step
        self._ports.emit(
            events.StepBegun(at.stage.id, step.id, step.title, step.hazard, at.way, waves, *progress())
        )

    def keep_files(self) -> None:
        """Make the playbook's files durable before a step that may change something.

        A process reports each file once, and again when it changes.
        """
        for name, file in self._playbook.files(self._journal.history.records()).items():
            if self._kept.get(name) != file:
                path = self._journal.keep(name, file.text)
                self._kept[name] = file
                self._ports.emit(events.Noted(f"{path} {file.words}"))

    def recorded(self, at: Next, record: Mapping[str, Any], *, both_ways: bool = False) -> None:
        """Record facts of a step for later looks and steps.

        both_ways: whether to record them on the way back too. The wave or the step's end makes the line
        durable.
        """
        if record and (both_ways or at.way is Way.FORWARD):
            body = {"stage": at.stage.id, "step": at.step.id, "record": dict(record)}
            self._journal.append("record", body, sync=False)

    def ended(self, at: Next, verdict: Done, seconds: float) -> None:
        """Record that a step is done in its direction."""
        self.recorded(at, verdict.record)
        self._step(at, "done", seconds=seconds, findings=verdict.findings)
        self._ports.emit(events.StepEnded(at.stage.id, at.step.id, at.way, seconds, verdict.findings))

    def blocked(self, at: Next, findings: tuple[Finding, ...]) -> None:
        self._step(at, "blocked", findings=findings)
        self._ports.emit(events.StepBlocked(at.stage.id, at.step.id, at.way, findings))

    def _step(
        self, at: Next, event: str, *, seconds: float | None = None, findings: tuple[Finding, ...] = ()
    ) -> None:
        body: dict[str, object] = {"stage": at.stage.id, "step": at.step.id, "way": at.way.value}
        body |= {"event": event, "mono": self._ports.clock.now()}
        if seconds is not None:
            body["seconds"] = seconds
        if findings:
            body["findings"] = [encode_finding(f) for f in findings]
        self._journal.append("step", body, sync=event != "begin")

    # --- the end ---------------------------------------------------------------------------------------

    def closed(self, ended: RunEnded, *, journal: bool) -> None:
        """Record the end of the walk. journal: False if the journal itself may have failed."""
        if journal:
            self._journal.append("end", {"code": ended.code, "message": ended.message})
            self.copy()
        self._ports.emit(ended)

    def copy(self) -> None:
        """Send copies of the journal to the witnesses, outside windows and while a step remains to be walked.

        A host that takes no copy is reported once, until it takes one again; the run continues.
        """
        at = self._journal.history.next(self._playbook)
        if self._ports.copies is None or not isinstance(at, Next) or at.stage.window:
            return
        without = self._ports.copies(self._journal.content())
        if reasons := "; ".join(f"{h}: {why}" for h, why in without.items() if h not in self._without):
            self._ports.emit(events.Noted(f"the copy of the journal is not up to date on {reasons}"))
        self._without = set(without)
