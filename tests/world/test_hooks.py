"""Hooks along the real move: every moment comes, and one that hangs keeps no client waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.model.world import World
from tests.world.operator import Operator, quiet_world
from zkmigrate.inventory.hooks import Hook, Hooks
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.journal import kept_lines
from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.runs.hooks import HookProcesses


def with_hooks(world: World, hooks: Hooks) -> World:
    world.inventory = world.inventory.model_copy(update={"hooks": hooks})
    return world


def program(folder: Path, text: str) -> str:
    path = folder / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def processes(tmp_path: Path) -> HookProcesses:
    (tmp_path / "run").mkdir(mode=0o700)
    return HookProcesses(tmp_path / "run", tmp_path, Interrupt())


def test_the_whole_move_has_its_moments(tmp_path: Path, processes: HookProcesses) -> None:
    write = 'echo "$ZKMIGRATE_MOMENT $ZKMIGRATE_STAGE $ZKMIGRATE_REHEARSAL $ZKMIGRATE_TARGETS" >> said'
    hook = (Hook(run=program(tmp_path, write)),)
    hooks = Hooks(before_wave=hook, before_window=hook, after_open=hook, after_stage=hook, on_end=hook)
    operator = Operator(with_hooks(quiet_world(), hooks), tmp_path / "run", hooks=processes)
    assert operator.forward().code == 0
    said = [line.split() for line in (tmp_path / "said").read_text().splitlines()]
    stages = [words[1] for words in said if words[0] == "after_stage"]
    assert stages == [stage.id for stage in operator.playbook.stages]
    assert [words[1:] for words in said if words[0] == "before_window"] == [
        ["rehearse", "true"],
        ["cutover", "false"],
    ]
    rolled = [words[3:] for words in said if words[:2] == ["before_wave", "roll"]]
    assert sorted(rolled) == [["broker1"], ["broker2"], ["broker3"]]
    assert (
        said.index(["after_open", "cutover", "false"]) == said.index(["after_stage", "cutover", "false"]) - 1
    )
    assert said[-1][0] == "on_end"


def test_a_hook_that_hangs_keeps_no_shut_door_waiting(
    tmp_path: Path, processes: HookProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window turns back, its hook runs for an hour: the door is reopened beside it, no session ends."""
    hang = (Hook(run=program(tmp_path, "touch hangs; sleep 3600"), timeout_s=3600.0),)
    world = with_hooks(quiet_world(), Hooks(on_turn_back=hang))
    operator = Operator(world, tmp_path / "run", hooks=processes)
    before: set[int] = set()

    def hold(_phase: str) -> Answer:
        before.update(world.source.tree().sessions)
        return Answer("back")

    monkeypatch.setattr(operator, "hold", hold)
    ended = operator.forward(hold_at="cut")
    assert ended.message.startswith("back at the start of cutover")
    assert {world.hosts[name].phase for name in world.inventory.dest_names} == {"idle"}
    assert before
    assert set(world.source.tree().sessions) == before
    begun = [e for e in operator.events if isinstance(e, events.HookBegun)]
    assert [(e.moment, e.waited) for e in begun] == [("on_turn_back", False)]
    assert not [e for e in operator.events if isinstance(e, events.HookEnded)], "it still runs"
    processes.kill()
    processes.settle()


def test_a_hook_says_no_before_the_window_and_the_armed_hosts_are_as_before(
    tmp_path: Path, processes: HookProcesses
) -> None:
    text = '[ "$ZKMIGRATE_REHEARSAL" = true ] || { echo "change freeze"; exit 1; }'
    world = with_hooks(quiet_world(), Hooks(before_window=(Hook(run=program(tmp_path, text)),)))
    operator = Operator(world, tmp_path / "run", hooks=processes)
    ended = operator.forward()
    assert (ended.code, ended.findings[0].id) == (7, "hook.before_window")
    assert ended.findings[0].seen == "exit code 1: change freeze"
    sent = [
        e.body["stage"] + "." + e.body["step"] for e in kept_lines(tmp_path / "run") if e.kind == "intent"
    ]
    assert "cutover.arm" in sent
    assert "cutover.fence" not in sent
    assert {world.hosts[name].phase for name in world.inventory.dest_names} == {"idle"}
    program(tmp_path, "exit 0")
    assert operator.forward().code == 0


def test_a_stage_that_is_skipped_has_no_moments(tmp_path: Path, processes: HookProcesses) -> None:
    hook = (Hook(run=program(tmp_path, 'echo "$ZKMIGRATE_MOMENT $ZKMIGRATE_STAGE" >> said')),)
    world = with_hooks(quiet_world(), Hooks(before_stage=hook, before_window=hook, after_stage=hook))
    operator = Operator(world, tmp_path / "run", hooks=processes)
    assert operator.forward(until="roll", skip=("rehearse",)).code == 0
    said = (tmp_path / "said").read_text().split()[1::2]
    assert "rehearse" not in said
    assert list(dict.fromkeys(said)) == ["preflight", "install", "join", "roll"]
