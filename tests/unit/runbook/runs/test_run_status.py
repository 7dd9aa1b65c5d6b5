"""The lines of ``status``: what is told of steps that are done, and of those that were."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.preflight_world import TIMEOUT, PreflightWorld, inventory
from tests.unit.report.test_report import Run
from tests.world.model.look import WorldLook
from tests.world.operator import quiet_world
from zkmigrate.errors import UsageError
from zkmigrate.kafka.changes import ReassignPartition
from zkmigrate.runbook.engine import events, process, step_names
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.run import Patience
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import claim
from zkmigrate.runbook.model.step import Hazard, Waiting, Way
from zkmigrate.runbook.runs import playbook_files, run_status
from zkmigrate.runbook.ui.board import Board
from zkmigrate.runbook.ui.plain import Plain
from zkmigrate.runbook.ui.run_files import EVENTS


def test_what_the_rehearsal_took_is_told_once_it_is_walked_back(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step("preflight.preflight", "begin")
    run.step("preflight.preflight", "done", seconds=3.0)
    for way, took in (("forward", 1.25), ("back", 0.5)):
        run.step("rehearse.fence", "begin", way)
        run.clock.pass_(took)
        run.step("rehearse.fence", "done", way, seconds=took)
    run.journal.close()
    body = run_status.of_run(run.dir, playbook_files.load(playbook_files.DEFAULT), ("d1", "b1"), run.clock)
    lines = run_status.lines(body)
    assert "  done  preflight.preflight (3.00 s)" in lines
    assert "  took  rehearse.fence (1.25 s, back 0.50 s)" in lines
    assert not [line for line in lines if line.startswith("  done  rehearse")]


def test_a_dest_that_runs_is_told_to_run_though_nothing_is_armed() -> None:
    world = quiet_world()
    for host in world.inventory.dest_names:
        world.hosts[host].running = True
    said = run_status.of_hosts(WorldLook(world, frozenset()), PLAYBOOK, world.inventory)
    assert {body["unit"] for body in said.values()} == {"active"}
    assert {body["lapsed"] for body in said.values()} == {False}


def test_status_has_words_and_no_values_of_the_language() -> None:
    host = {"phase": "idle", "unit": "active", "lapsed": False}
    none = dict.fromkeys(("done", "skipped", "begun", "not_confirmed"), ())
    run = {"run": "r", "playbook": "p", "state": "open", "where": "here", "seconds": {}}
    nobody = dict.fromkeys(("process", "ended", "hold", "held"))
    body: dict[str, Any] = {**run, **none, **nobody}
    body["hosts"] = {"dest1": host, "dest2": {**host, "lapsed": True}}
    assert run_status.lines(body)[-2:] == [
        "  dest1: phase idle, unit active, lapsed no",
        "  dest2: phase idle, unit active, lapsed yes",
    ]


@pytest.mark.parametrize(
    ("answer", "own", "told"),
    [
        (TIMEOUT, "172.17.0.2", True),
        (TIMEOUT, "10.71.0.2", False),
        (Unknown("missing-tool", "no zkm-host yet"), "172.17.0.2", False),
    ],
    ids=["elsewhere", "on-the-operator", "they-answer"],
)
def test_where_no_dest_host_answers_another_machine_asks_whether_it_is_the_one(
    answer: Reading[str], own: str, told: bool
) -> None:
    world = PreflightWorld(own_addresses=Seen((own,)))
    for host in inventory().dest_names:
        world.programs[host, "status"] = answer
    said = run_status.wrong_machine(
        world, PLAYBOOK, inventory(), run_status.of_hosts(world, PLAYBOOK, inventory())
    )
    question = f"and this machine sends from {own}: check that it is the machine with 10.71.0.2"
    question = f"no dest host answers, {question}"
    assert said == (question if told else "")


def test_findings_of_a_step_are_kept_of_both_its_ways(tmp_path: Path) -> None:
    """The rehearsal walks back: what it found on the way there is what it was done for."""
    run = Run(tmp_path)
    for way, id in (("forward", "fence.closed"), ("back", "fence.reopened")):
        run.step("rehearse.fence", "begin", way)
        run.step(
            "rehearse.fence", "done", way, seconds=1.0, findings=[encode_finding(claim(id, "it is", True))]
        )
    run.journal.close()
    kept = run_status.last_findings(run.dir, "rehearse")
    assert {step: [f["id"] for f in found] for step, found in kept.items()} == {
        "rehearse.fence": ["fence.closed"],
        "rehearse.fence (back)": ["fence.reopened"],
    }
    assert run_status.last_findings(run.dir, "rehearse.fence") == kept


def test_a_door_that_was_opened_leaves_no_way_back() -> None:
    playbook = playbook_files.load(playbook_files.DEFAULT)
    history = History()
    history.done |= {"cutover.serve", "cutover.check", "finalize.preflight"}
    assert history.no_way_back(playbook) == ""
    history.done.add("cutover.open")
    assert history.no_way_back(playbook) == "cutover.open"


@pytest.mark.parametrize("back", [True, False])
def test_a_wait_that_is_over_names_the_way_back_only_where_there_is_one(back: bool) -> None:
    patience = Patience(lambda: 0.0)
    [overdue] = patience.overdue(Waiting("it", "not yet", 1.0), back=back).findings
    assert ("rollback" in overdue.moves) is back


def test_what_can_be_walked_back_to_is_listed_and_no_more() -> None:
    playbook = playbook_files.load(playbook_files.DEFAULT)
    step_names.behind(playbook, "join.join", "install")
    step_names.behind(playbook, "join.join", "")
    step_names.behind(playbook, "", "finalize")
    for to, why in (
        ("nowhere", "'nowhere' is not a stage or step of"),
        ("cutover", "the run has not reached cutover; "),
    ):
        with pytest.raises(UsageError) as caught:
            step_names.behind(playbook, "join.join", to)
        assert why in str(caught.value)
        possible = str(caught.value).partition("possible: ")[2].split(", ")
        assert possible[:3] == ["preflight", "install", "join"]
        assert not [name for name in possible if name.startswith(("cutover", "rehearse", "finalize"))]


@pytest.mark.parametrize(
    ("left_s", "told"),
    [
        (None, "37 of 100 brokers done before this wave"),
        (15060.0, "37 of 100 brokers done before this wave, about 4 h 10 min left"),
        (70.0, "37 of 100 brokers done before this wave, about 1 min left"),
    ],
)
def test_status_and_screen_tell_how_far_the_roll_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_s: float | None, told: str
) -> None:
    run = Run(tmp_path)
    run.step("roll.roll", "begin")
    run.journal.close()
    who = {"pid": 7, "verb": "run", "by": "bert", "place": "", "since": run.clock()}
    monkeypatch.setattr(process, "at_work", lambda _: SimpleNamespace(body=lambda: who))
    soon = left_s and left_s - 60.0
    far = (37, 100, soon, "brokers")
    begun = events.StepBegun("roll", "roll", "t", Hazard.REVERSIBLE, Way.FORWARD, 38, *far)
    wave = events.WaveBegun("roll", "roll", Way.FORWARD, ("b1",), *far)
    for event in (begun, wave):  # the one as a process begins, the other later
        minute_ago = {**events.to_json(event), "left_s": left_s, "at": run.clock() - 60.0}
        (run.dir / EVENTS).write_text(json.dumps(minute_ago) + "\n")
        assert f"  {told}" in run_status.lines(
            run_status.of_run(run.dir, playbook_files.load(playbook_files.DEFAULT), (), run.clock)
        )
        board = Board(lambda: 100.0)
        board.take(event)
        assert (told, "") in board.lines(200, 50)
        out = StringIO()
        Plain(out, lambda: "12:00:00", lambda: 100.0)(event)
        assert out.getvalue().endswith(f"{told}\n")
    board.take(events.StepBegun("verify", "verify", "t", Hazard.READ_ONLY, Way.FORWARD))
    assert not any("37 of 100" in line for line, _ in board.lines(200, 50))


def test_a_step_that_tells_how_far_it_is_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.step("move.replicas", "begin")
    run.journal.close()
    who = {"pid": 7, "verb": "run", "by": "bert", "place": "", "since": run.clock()}
    monkeypatch.setattr(process, "at_work", lambda _: SimpleNamespace(body=lambda: who))
    at = ("move", "replicas", Way.FORWARD)
    change = ReassignPartition("kafka", "t", 0, (1, 2), (2, 3))
    told = (
        events.StepBegun("move", "replicas", "t", Hazard.REVERSIBLE, Way.FORWARD),
        events.Waits("move", "replicas", "the moves in flight are over", "12 of 10,000 partitions", 600.0),
        events.Progressed(*at, 12, 10_000, "partitions", 5_000_000, 7200.0),
        events.WaveBegun(*at, ("t-0",)),
        events.ChangeSent("t-0", "move.replicas.t-0.1.1", change),
    )
    lines = [json.dumps({**events.to_json(event), "at": run.clock() - 60.0}) for event in told]
    (run.dir / EVENTS).write_text("".join(f"{line}\n" for line in lines))
    body = run_status.of_run(run.dir, playbook_files.load(playbook_files.DEFAULT), (), run.clock)
    wave = body["now"]["wave"]
    assert (wave["done"], wave["of"], wave["bytes_left"], wave["left_s"]) == (12, 10_000, 5_000_000, 7140.0)
    shown = run_status.lines(body)
    assert "  12 of 10,000 partitions done, 5,000,000 bytes left, about 1 h 59 min" in shown
    assert f"  in flight: kafka: {change.describe()}" in shown
    board = Board(lambda: 100.0)
    for event in told:
        board.take(event)
    assert ("12 of 10,000 partitions done, 5,000,000 bytes left, about 2 h 0 min", "") in board.lines(200, 50)


def test_a_hold_tells_the_progress_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status printed "0 of 3 brokers done before this wave" above "1 of 3 brokers done"."""
    run = Run(tmp_path)
    run.step("roll.roll", "begin")
    run.journal.close()
    who = {"pid": 7, "verb": "run", "by": "bert", "place": "", "since": run.clock()}
    monkeypatch.setattr(process, "at_work", lambda _: SimpleNamespace(body=lambda: who))
    wave = events.WaveBegun("roll", "roll", Way.FORWARD, ("b1",), 0, 3, None, "brokers")
    (run.dir / EVENTS).write_text(json.dumps({**events.to_json(wave), "at": run.clock()}) + "\n")
    body = run_status.of_run(run.dir, playbook_files.load(playbook_files.DEFAULT), (), run.clock)
    assert any("0 of 3 brokers done" in line for line in run_status.lines(body))
    hold = {"why": "coffee", "by": "ann", "since": run.clock()}
    body["held"] = {
        "where": "in roll",
        "at": run.clock(),
        "hold": hold,
        "progress": "1 of 3 brokers done (b1)",
    }
    told = "; ".join(run_status.lines(body))
    assert "1 of 3 brokers done" in told
    assert "0 of 3" not in told
