"""Pause a run between steps from a second terminal, and continue it: the verbs ``hold`` and ``release``.

Each writes one file in the run's directory.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import journal, pause, process, runs
from zkmigrate.runbook.engine.history import History, Next
from zkmigrate.runbook.engine.hold_file import Hold, HoldFile, where_held
from zkmigrate.runbook.engine.pause import Pause
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.runs.verb_context import (
    VerbContext,
    existing_run_dir,
    inventory_options,
    load,
    print_result,
    run_dir_of,
)


def hold(context: VerbContext, run_id: str, at: str, why: str) -> int:
    """Request a hold, whether or not a process works on the run.

    run_id: may name a run that has not begun; its directory is made. at: a place, a number of targets or a
    time; empty for the next place.

    Raises UsageError for an unknown or passed place and for a complete run, and LockedError while another
    hold exists.
    """
    inventory, playbook = load(context)
    where = pause.parse(playbook, at, time.time())
    run_dir = run_dir_of(context, run_id, inventory, playbook)
    begun = runs.has_begun(run_dir)
    if not begun and any(
        run.is_of(playbook) and run.is_open(playbook) for run in runs.runs_of(context.runs, inventory)
    ):
        existing_run_dir(context, run_id, inventory, playbook)  # raises: another run cannot begin now
    history = _history(run_dir)
    working = _process(run_dir)
    _refuse(run_dir.name, playbook, inventory, history, where, under_way=working is not None)
    runs.make(run_dir)
    new_hold = Hold(where.text, why, process.user(), process.terminal(os.environ), round(time.time(), 3))
    file = HoldFile(run_dir)
    replaced = file.place(new_hold)
    new_hold = file.wanted() or new_hold  # as others read it
    body = {
        "run": run_dir.name,
        "hold": {**new_hold.body(), "where": pause.where(playbook, where)},
        "replaced": None if replaced is None else replaced.body(),
        "next": _next(playbook, history),
        "process": working,
    }
    again = f"zkmigrate release {inventory_options(context)} --run-id {body['run']}"
    windows = any(stage.window is not None for stage in playbook.stages)
    print_result(context, body, _hold_lines(body, again, windows=windows, begun=begun))
    return 0


def release(context: VerbContext, run_id: str) -> int:
    """Continue a held run. Raises UsageError if the run has no hold."""
    inventory, playbook = load(context)
    run_dir = run_dir_of(context, run_id, inventory, playbook)
    if HoldFile(run_dir).wanted() is None:
        existing_run_dir(context, run_id, inventory, playbook)
    body = _release(run_dir, playbook)
    print_result(context, body, _release_lines(body))
    return 0


def _refuse(
    run: str, playbook: Playbook, inventory: Inventory, history: History, where: Pause, *, under_way: bool
) -> None:
    """Raise UsageError if the run can no longer hold at a place, or never will."""
    if runs.state_of(history, playbook).state == "complete":
        raise UsageError(f"run {run} is complete: there is nothing to hold. Next: zkmigrate status")
    if where.name in _passed(playbook, history, under_way=under_way):
        raise UsageError(
            f"run {run} has already passed {pause.where(playbook, where)!r}. Next: hold without --at, or at "
            "a later place"
        )
    paced = playbook.paced
    if not where.number or paced is None:
        return
    every = paced.targets(playbook.without(inventory, history.retired), history.records())
    changed, of = len(set(history.touched(paced.step)) & set(every)), len(every)
    if of and not changed <= where.number < of:
        raise UsageError(
            f"cannot hold after {where.number} of {of} {paced.many}; {changed} have been changed. Next: "
            f"name a number from {max(1, changed)} to {of - 1}, or hold without --at"
        )


def _release(run_dir: Path, playbook: Playbook) -> dict[str, Any]:
    history = _history(run_dir)
    working = _process(run_dir)
    held = history.held if working is not None else None
    file = HoldFile(run_dir)
    if file.wanted() is None and held is None:
        raise UsageError(f"run {run_dir.name} has no hold to release. Next: zkmigrate status")
    released = file.release(process.user(), process.terminal(os.environ), round(time.time(), 3))
    return {
        "run": run_dir.name,
        "released": None if released is None else released.body(),
        "held": None if held is None else f"{held['stage']}.{held['step']}",
        "where": "" if held is None else where_held(held),
        "next": _next(playbook, history),
        "process": working,
    }


def _hold_lines(body: dict[str, Any], again: str, *, windows: bool, begun: bool) -> list[str]:
    """Return what ``hold`` prints.

    again: the command that continues the run. windows: whether the playbook has a window. begun: whether the
    run has begun.
    """
    out = [f"run {body['run']} holds {body['hold']['where']}"]
    if body["replaced"]:
        out.append("  your earlier hold is replaced")
    if body["next"]:
        at = "the run is at" if body["process"] and body["next"]["begun"] else "the next step is"
        out.append(f"  {at} {_named(body['next'])}")
    if windows:
        out.append("  a hold in the window ends at its deadlines (docs/reference/cli.md#holding-a-run)")
    if body["process"]:
        out.append(f"  under way: process {body['process']['pid']} by {body['process']['by']}")
    elif begun:
        out.append(
            "  no process on this machine works on the run: the hold is kept for the next run or resume"
        )
    else:
        out.append(
            f"  run {body['run']} has not begun: the hold is kept for zkmigrate run --run-id {body['run']}"
        )
    out.append(f"  continue: {again}")
    return out


def _release_lines(body: dict[str, Any]) -> list[str]:
    who = f" ({Hold(**body['released']).words()})" if body["released"] else ""
    out = [f"run {body['run']}: the hold is released{who}"]
    onward = f"{_named(body['next'])}" if body["next"] else "no step is left"
    if not body["process"]:
        return [*out, f"  no process on this machine works on the run; run or resume continues with {onward}"]
    if body["held"]:
        out.append(f"  the run held {body['where']} and continues: {onward}")
    else:
        out.append(f"  the run had not reached the hold and continues: {onward}")
    if body["next"] and body["next"]["asks"]:
        out.append(f"  the run's own terminal asks first, unless it runs with --yes: {body['next']['asks']}")
    return out


def _named(step: dict[str, Any]) -> str:
    back = "back " if step["way"] == Way.BACK.value else ""
    return f"{back}{step['step']}: {step['title']}"


def _next(playbook: Playbook, history: History) -> dict[str, Any] | None:
    """Return the run's current or next step as JSON; None if it has none.

    begun: whether the step has begun. asks: the question that the operator must answer before its stage.
    """
    at = history.next(playbook)
    if not isinstance(at, Next):
        return None
    forward = at.way is Way.FORWARD and at.stage.id not in history.consents
    asks = at.stage.consent if forward and not history.entered(at.stage.id) else ""
    begun = at.id in history.begun
    return {"step": at.id, "title": at.step.title, "way": at.way.value, "begun": begun, "asks": asks}


def _passed(playbook: Playbook, history: History, *, under_way: bool) -> set[str]:
    """Return the stages and steps that the run has passed and can no longer hold at.

    A stage has passed once it was entered. Outside a window a step has passed once it has begun, if a process
    works on the run; otherwise, and in a window, once it is done. On the way back nothing counts as passed.
    """
    if history.way is Way.BACK:
        return set()
    passed = {s.id for s in playbook.stages if s.id in history.stages_done or history.entered(s.id)}
    for stage in playbook.stages:
        names = {f"{stage.id}.{step.id}" for step in stage.steps}
        reached = history.begun if under_way and not stage.window else history.done
        passed |= names if stage.id in history.stages_done else names & reached
    return passed


def _history(run_dir: Path) -> History:
    return journal.read(run_dir) if runs.has_begun(run_dir) else History()


def _process(run_dir: Path) -> dict[str, Any] | None:
    working = process.at_work(run_dir)
    return None if working is None else working.body()
