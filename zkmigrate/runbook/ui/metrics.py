"""Write the state of a run as a text file for Prometheus' node exporter: ``--metrics FILE``.

docs/reference/metrics.md says how to read it. No gauge names a host.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from zkmigrate.runbook.engine import events
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Way

_EVERY_S = 1.0


class Metrics:
    """A receiver of events that writes the state of the run to a file, then passes each event on.

    The file is replaced atomically, for frequent events at most once a second. If it cannot be written, an
    event reports that once, and the run goes on.

    targets: the number of targets of each ``stage.step``, where known. now: seconds since the epoch.
    """

    def __init__(
        self, path: Path, emit: events.Emit, targets: Mapping[str, int], now: Callable[[], float]
    ) -> None:
        self._path, self._emit, self._now = path, emit, now
        self._lock = threading.Lock()
        self._failed = False
        self._waves = 0
        self._written = -math.inf
        self._findings: dict[str, tuple[Finding, ...]] = {}
        self._registry = CollectorRegistry()
        self._run = self._gauge("run_info", "Always 1; the labels name the run.", "run", "playbook")
        self._stage = self._gauge("stage_active", "1 for the stage the run is in.", "stage")
        self._step = self._gauge("step_active", "1 for the step the run is in.", "step")
        self._back = self._gauge("way_back", "1 while the run walks back.")
        self._begun = self._gauge("step_waves_begun", "Waves the run began in a step.", "step", "way")
        self._ended_waves = self._gauge("step_waves_done", "Waves that are over.", "step", "way")
        self._total = self._gauge("step_targets", "All targets of a step.", "step")
        self._done = self._gauge("step_targets_done", "Finished targets, by the newest wave or look.", "step")
        self._seconds_left = self._gauge(
            "step_seconds_left", "Estimated seconds left, by the newest wave.", "step"
        )
        self._open = self._gauge("findings_not_held", "Newest findings that do not hold.", "severity", "held")
        self._alarms = self._gauge("alarms", "Alarms of the watch in windows.", "decision")
        self._left = self._gauge("turn_back_seconds_left", "Seconds until the way back must start.")
        self._ended = self._gauge("run_ended", "1 when the process has ended.")
        self._code = self._gauge("run_exit_code", "Exit code of the process; NaN before its end.")
        self._at = self._gauge("updated_timestamp_seconds", "Time of writing this file.")
        for step, count in targets.items():
            self._total.labels(step).set(count)
        for severity in Severity:
            for held in (Held.NO, Held.UNKNOWN):
                self._open.labels(severity.value, held.value).set(0)
        self._left.set(math.nan)
        self._code.set(math.nan)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"zkmigrate_{name}", text, labels, registry=self._registry)

    def __call__(self, event: events.Event) -> None:
        with self._lock:
            self._take(event)
            frequent = isinstance(event, events.Waits | events.Progressed | events.Countdown | events.Holding)
            if not frequent or self._now() - self._written >= _EVERY_S:
                self._write()
        self._emit(event)

    def _take(self, event: events.Event) -> None:
        match event:
            case events.RunBegun():
                self._run.labels(event.run, event.playbook).set(1)
                self._back.set(event.way is Way.BACK)
            case events.StageBegun():
                self._stage.clear()
                self._stage.labels(event.stage).set(1)
                self._left.set(math.nan)
            case events.StepBegun():
                self._step.clear()
                self._step.labels(f"{event.stage}.{event.step}").set(1)
                self._back.set(event.way is Way.BACK)
                self._note_progress(event, event.waves)
            case events.WaveBegun():
                self._note_progress(event, self._waves + 1)
            case events.Progressed():
                self._set_progress(f"{event.stage}.{event.step}", event.done, event.of, event.left_s)
            case events.StepEnded():
                step = f"{event.stage}.{event.step}"
                self._ended_waves.labels(step, event.way.value).set(self._waves)
                self._done.clear()
                self._seconds_left.clear()
                self._count_findings(step, event.findings)
            case events.StepBlocked():
                self._count_findings(f"{event.stage}.{event.step}", event.findings)
            case events.Turned():
                self._back.set(event.way is Way.BACK)
            case events.Countdown():
                self._left.set(event.left_s)
            case events.Holding():
                self._left.set(math.nan if event.left_s is None else event.left_s)
            case events.Alarm():
                self._alarms.labels(event.decision).inc()
            case events.RunEnded():
                self._stage.clear()
                self._step.clear()
                self._left.set(math.nan)
                self._ended.set(1)
                self._code.set(event.code)

    def _note_progress(self, event: events.StepBegun | events.WaveBegun, waves: int) -> None:
        """Set the progress of a step.

        waves: the number of waves begun so far. A wave is done when the next begins or the step ends, also if
        a later process ends it.
        """
        step, self._waves = f"{event.stage}.{event.step}", waves
        self._begun.labels(step, event.way.value).set(waves)
        self._ended_waves.labels(step, event.way.value).set(max(0, waves - 1))
        if event.of or isinstance(event, events.StepBegun):
            self._set_progress(step, event.done, event.of, event.left_s)

    def _set_progress(self, step: str, done: int, of: int, left_s: float | None) -> None:
        self._done.clear()
        self._seconds_left.clear()
        if of:
            self._total.labels(step).set(of)
            self._done.labels(step).set(done)
            self._seconds_left.labels(step).set(math.nan if left_s is None else left_s)

    def _count_findings(self, step: str, findings: tuple[Finding, ...]) -> None:
        self._findings[step] = findings
        every = [f for of_step in self._findings.values() for f in of_step]
        for severity in Severity:
            for held in (Held.NO, Held.UNKNOWN):
                count = sum(f.severity is severity and f.held is held for f in every)
                self._open.labels(severity.value, held.value).set(count)

    def _write(self) -> None:
        self._written = self._now()
        self._at.set(self._written)
        try:
            write_to_textfile(str(self._path), self._registry)
        except OSError as error:
            if not self._failed:
                self._emit(events.Noted(f"no metrics are written to {self._path}: {error}"))
            self._failed = True
