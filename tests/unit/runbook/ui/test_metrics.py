"""``--metrics FILE``: a text file for Prometheus that tells where a run stands, and names no host."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.test_main import HOSTS, Place, place
from tests.unit.runbook.ui.test_views import STORY
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.model.finding import Severity, claim
from zkmigrate.runbook.model.step import Hazard, Way
from zkmigrate.runbook.ui.metrics import Metrics

__all__ = ["place"]

Value = tuple[str, tuple[str, ...]]


def read(path: Path) -> dict[Value, float]:
    """Name and label values, by label, → value, as Prometheus reads the file."""
    return {
        (sample.name.removeprefix("zkmigrate_"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


class Told:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "run.prom"
        self.shown: list[events.Event] = []
        self.now = 1000.0
        self.metrics = Metrics(self.path, self.shown.append, {"roll.roll": 3}, lambda: self.now)

    def __call__(self, *told: events.Event) -> dict[Value, float]:
        for event in told:
            self.metrics(event)
        return read(self.path)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_stage_step_way_and_waves_are_those_of_now(told: Told) -> None:
    found = told(
        events.RunBegun("r-1", "move", Way.FORWARD, False, ("broker1",), ()),
        events.StageBegun("join", "Join", Way.FORWARD, False, False),
        events.StepBegun("join", "join", "Join", Hazard.REVERSIBLE, Way.FORWARD),
        events.StageBegun("roll", "Roll", Way.FORWARD, False, False),
        events.StepBegun("roll", "roll", "Roll", Hazard.REVERSIBLE, Way.FORWARD),
        events.WaveBegun("roll", "roll", Way.FORWARD, ("broker1",)),
        events.WaveBegun("roll", "roll", Way.FORWARD, ("broker2",)),
    )
    assert found["run_info", ("move", "r-1")] == 1
    assert {labels: v for (name, labels), v in found.items() if name == "stage_active"} == {("roll",): 1}
    assert {labels: v for (name, labels), v in found.items() if name == "step_active"} == {("roll.roll",): 1}
    assert found["step_waves_begun", ("roll.roll", "forward")] == 2
    assert found["step_waves_done", ("roll.roll", "forward")] == 1, "the next has begun"
    assert found["step_targets", ("roll.roll",)] == 3
    assert not [labels for name, labels in found if name == "step_targets_done"], "nobody told how many"
    assert found["updated_timestamp_seconds", ()] == 1000.0
    assert (found["way_back", ()], found["run_ended", ()]) == (0, 0)
    assert math.isnan(found["run_exit_code", ()])
    found = told(events.Turned(Way.BACK, "", "asked"), events.RunEnded(7, "back", ()))
    assert (found["way_back", ()], found["run_ended", ()], found["run_exit_code", ()]) == (1, 1, 7)
    assert not [labels for name, labels in found if name in ("stage_active", "step_active")]


def test_how_far_a_step_is_counts_what_earlier_processes_did(told: Told) -> None:
    found = told(events.StepBegun("roll", "roll", "Roll", Hazard.REVERSIBLE, Way.FORWARD, 2, 1, 3, 60.5))
    assert (found["step_targets_done", ("roll.roll",)], found["step_seconds_left", ("roll.roll",)]) == (
        1,
        60.5,
    )
    found = told(events.WaveBegun("set", "set", Way.FORWARD, ("t1",), 0, 4_500, None, "topics"))
    assert found["step_targets", ("set.set",)] == 4_500, "known by a look alone"


def test_how_far_the_waves_are(told: Told) -> None:
    found = told(events.StepBegun("roll", "roll", "Roll", Hazard.REVERSIBLE, Way.FORWARD, 2, 1, 3, 60.5))
    waves = ("roll.roll", "forward")
    assert (found["step_waves_begun", waves], found["step_waves_done", waves]) == (2, 1)
    found = told(events.WaveBegun("roll", "roll", Way.FORWARD, ("broker3",), 2, 3, None))
    assert found["step_targets_done", ("roll.roll",)] == 2
    assert math.isnan(found["step_seconds_left", ("roll.roll",)])
    assert (found["step_waves_begun", waves], found["step_waves_done", waves]) == (3, 2)
    found = told(events.StepEnded("roll", "roll", Way.FORWARD, 1.0, ()))
    assert (found["step_waves_begun", waves], found["step_waves_done", waves]) == (3, 3)
    assert ("step_targets_done", ("roll.roll",)) not in found, "it is of the step the run is in"


def test_a_step_that_tells_how_far_it_is_is_believed(told: Told) -> None:
    told(events.StepBegun("move", "replicas", "Move", Hazard.REVERSIBLE, Way.FORWARD))
    far = events.Progressed("move", "replicas", Way.FORWARD, 12, 10_000, "partitions", 5_000, 7200.0)
    found = told(far, events.WaveBegun("move", "replicas", Way.FORWARD, ("t-0",)))
    step = ("move.replicas",)
    assert (found["step_targets_done", step], found["step_targets", step]) == (12, 10_000)
    assert found["step_seconds_left", step] == 7200.0


def test_the_countdown_is_there_while_it_runs(told: Told) -> None:
    begun = events.StageBegun("cutover", "Cut over", Way.FORWARD, True, False)
    assert math.isnan(told(begun)["turn_back_seconds_left", ()])
    told.now += 5
    assert told(events.Countdown(6.5))["turn_back_seconds_left", ()] == 6.5
    told.now += 0.1
    assert told(events.Countdown(6.4))["turn_back_seconds_left", ()] == 6.5, "at most once a second"
    told.now += 1.0
    assert told(events.Holding("cut", 5.2))["turn_back_seconds_left", ()] == 5.2
    assert math.isnan(told(events.RunEnded(0, "done", ()))["turn_back_seconds_left", ()])


def test_findings_are_counted_by_severity_and_a_later_look_replaces_an_earlier_one(told: Told) -> None:
    sick = claim("a.b", "it is well", False)
    warns = claim("a.c", "it is quiet", None, severity=Severity.WARN)
    blocked = events.StepBlocked("roll", "roll", Way.FORWARD, (sick, sick, warns, claim("a.d", "so", True)))
    found = told(blocked, events.Alarm("cut", sick, "back"), events.Alarm("cut", sick, "back"))
    assert found["findings_not_held", ("no", "block")] == 2
    assert found["findings_not_held", ("unknown", "warn")] == 1
    assert found["findings_not_held", ("unknown", "block")] == 0
    assert found["alarms", ("back",)] == 2
    found = told(events.StepEnded("roll", "roll", Way.FORWARD, 1.0, (warns,)))
    assert found["findings_not_held", ("no", "block")] == 0
    assert found["findings_not_held", ("unknown", "warn")] == 1


def test_every_event_is_shown_and_no_host_is_named(told: Told) -> None:
    told(*STORY)
    assert tuple(told.shown) == STORY
    text = told.path.read_text()
    assert not [name for name in ("d1", "d2", "d3", *HOSTS) if name in text]
    assert [path.name for path in told.path.parent.iterdir()] == ["run.prom"], "nothing half-written is left"


def test_a_file_that_cannot_be_written_is_said_once_and_the_run_goes_on(tmp_path: Path) -> None:
    shown: list[events.Event] = []
    metrics = Metrics(tmp_path / "gone" / "x.prom", shown.append, {}, lambda: 0.0)
    for event in STORY:
        metrics(event)
    notes = [event for event in shown if event not in STORY]
    assert len(notes) == 1
    assert isinstance(notes[0], events.Noted)
    assert "no metrics are written to " in notes[0].text


def test_a_run_leaves_its_end_in_the_file(place: Place) -> None:
    path = place.root / "run.prom"
    assert place.call("run", "--yes", "--metrics", str(path)).exit_code == 0
    found = read(path)
    assert (found["run_ended", ()], found["run_exit_code", ()]) == (1, 0)
    assert found["step_waves_begun", ("prepare.slow", "forward")] == 1
    assert place.call("rollback", "--yes", "--metrics", str(path)).exit_code == 0
    assert read(path)["way_back", ()] == 1
