"""What is watched beside a stage without a window, and what the run does about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.engine_world import (
    HOSTS,
    ROLES,
    LookStep,
    Points,
    Tiny,
    TinyInventory,
    WriteStep,
    eventually,
    forward,
)
from zkmigrate.inventory.inventory import Inventory, Policy
from zkmigrate.runbook.engine import events, journal
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.run import Walk
from zkmigrate.runbook.engine.watch import Watch
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Verdict, Waiting, Way
from zkmigrate.runbook.model.window import Decision, Probe, Trouble, WatchSpec, Word

FILES = {(host, f"/{name}"): b"new" for name in "abc" for host in HOSTS}
BEFORE_B = {(host, "/a") for host in HOSTS}


@dataclass
class Watched(Tiny):
    """Three stages, a file each. The second is watched: behind its file it looks until the probe was asked.

    well: what the probe sees. broken: it cannot be asked. Both only once the second file is there: a slow
    machine's probe asks before it, in no phase yet. decision: the playbook's about what it sees.
    asked: the files that were there, each time that it was asked. decided: phases that it decided for.
    begun: stages that were begun to be watched. beside_c: threads that still asked when C was walked.
    """

    well: bool = False
    broken: bool = False
    decision: Decision = Decision.GO
    asked: list[set[str]] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    beside_c: list[str] = field(default_factory=list)

    @property
    def playbook(self) -> Playbook:
        def stage(name: str, *more: Any, watched: WatchSpec | None = None) -> Stage:
            steps = (WriteStep(name, self.hosts), *more)
            return Stage(name, name, cast(tuple[AnyStep, ...], steps), watched=watched)

        looks = LookStep(verdict=self.looks)
        spec = WatchSpec(self.probes, self.decide)
        last = LookStep(verdict=self.probing)
        stages = (stage("a"), stage("b", looks, watched=spec), stage("c", last))
        return Playbook("toy", "A toy", stages, inventory=TinyInventory, roles=ROLES)

    def probing(self, way: Way) -> Verdict | None:
        self.beside_c += [one.name for one in threading.enumerate() if one.name == "probe-toy"]
        return None

    def looks(self, way: Way) -> Verdict | None:
        before = len(self.asked)
        eventually("the probe is asked", lambda: len(self.asked) > before + 1)
        return None if len(self.decided) or self.well else Waiting("the probe", "", 1e9)

    def decide(self, phase: str, finding: Finding, policy: Policy) -> Decision:
        self.decided.append(f"{phase} {finding.id}")
        return self.decision

    def probes(self, inventory: Inventory, look: Look) -> tuple[Probe, ...]:
        def ask() -> Iterator[Finding]:
            files = {path for _, path in list(self.hosts.files)}
            self.asked.append(files)
            behind_b = "/b" in files
            if self.broken and behind_b:
                raise RuntimeError("no answer")
            yield claim("toy.well", "all is well", self.well or not behind_b, seen="seen beside it")

        return (Probe("toy", 0.01, ask),)

    def process(self, act: Callable[[Walk], RunEnded], points: Points | None = None) -> RunEnded:
        """One process's life, with a watch of its own."""

        def probes(stage: Stage) -> tuple[Probe, ...]:
            assert stage.watched is not None
            self.begun.append(stage.id)
            return stage.watched.probes(cast(Inventory, None), cast(Look, None))

        self.watch = Watch(HOSTS, self._renew, self.clock.now, self.clock.wall, probes)
        try:
            return super().process(act, points)
        finally:
            self.watch.close()

    def _renew(self, host: str, fence_ms: int, cut_ms: int) -> Outcome:
        self.renewed.append(host)
        return Outcome(0)


def test_where_all_is_well_it_goes_on_and_only_that_stage_is_watched(tmp_path: Path) -> None:
    toy = Watched(tmp_path / "r", well=True)
    assert toy.process(forward).code == 0
    assert toy.hosts.files == FILES
    assert all("/a" in seen and "/c" not in seen for seen in toy.asked)
    assert (toy.begun, toy.beside_c) == (["b"], [])
    assert (toy.decided, toy.renewed) == ([], [])


def test_what_is_seen_is_decided_once_told_and_journaled(tmp_path: Path) -> None:
    toy = Watched(tmp_path / "r")
    assert toy.process(forward).code == 0
    assert (toy.hosts.files, toy.decided) == (FILES, ["b toy.well"])
    alarms = [e for e in toy.seen if isinstance(e, events.Alarm)]
    assert [(e.phase, e.finding.id, e.decision) for e in alarms] == [("b", "toy.well", "go")]
    (line,) = [e.body for e in journal.kept_lines(toy.run_dir) if e.kind == "finding"]
    assert (line["stage"], line["decision"]) == ("b", "go")
    assert line["step"] in ("b", "look"), "behind the wave, or while it waits"


def test_it_walks_the_stage_back_where_the_playbook_says_so(tmp_path: Path) -> None:
    toy = Watched(tmp_path / "r", decision=Decision.BACK)
    ended = toy.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (7, ["toy.well"])
    assert set(toy.hosts.files) == BEFORE_B
    told = len(toy.asked)
    toy.well = True
    assert toy.process(forward).code == 0
    assert len(toy.asked) > told


@pytest.mark.parametrize(
    ("means", "code", "by"),
    [("go", 0, "tester"), ("back", 7, "tester"), ("stop", 6, "tester"), (None, 6, "")],
)
def test_asked_it_goes_on_back_or_stops_and_nobody_means_stop(
    tmp_path: Path, means: Word | None, code: int, by: str
) -> None:
    toy = Watched(tmp_path / "r", decision=Decision.ASK)
    toy.confirm.ask_means = means
    ended = toy.process(forward)
    assert (ended.code, toy.confirm.asked.count("decide b toy.well")) == (code, 1)
    told = [e for e in toy.seen if isinstance(e, events.Consented) and "go on, stop" in e.question]
    assert [(e.answer, e.by) for e in told] == [(means or "stop", by)]
    if code == 6:
        assert "seen beside it" in ended.message
        toy.well = True
        assert toy.process(lambda walk: walk.resume()).code == 0
        assert toy.hosts.files == FILES


def test_a_probe_that_fails_is_a_finding_too(tmp_path: Path) -> None:
    toy = Watched(tmp_path / "r", broken=True)
    assert toy.process(forward).code == 0
    assert toy.decided == [f"b {Trouble.LOOK_UNKNOWN}"]


def test_on_the_way_back_nothing_is_watched(tmp_path: Path) -> None:
    toy = Watched(tmp_path / "r", well=True)
    assert toy.process(lambda walk: walk.forward(until="b")).code == 0
    told, toy.well = len(toy.asked), False
    assert toy.process(lambda walk: walk.back()).code == 0
    assert (len(toy.asked), toy.begun) == (told, ["b"])
    assert (toy.decided, toy.hosts.files) == ([], {})
