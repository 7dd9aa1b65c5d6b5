"""``hold`` and ``release``: what a second terminal may do to a run. Each writes one file of its directory.

Each function returns the exit code (docs/reference/exit-codes.md) or raises an error that carries it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, TextIO

from zkmigrate.engine import journal, process, runs, step_names
from zkmigrate.engine.history import History, Next
from zkmigrate.engine.hold_file import Hold, HoldFile, where_held
from zkmigrate.errors import UsageError
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Way


def hold(run_dir: Path, playbook: Playbook, at: str, why: str) -> dict[str, Any]:
    """Ask a run to hold at a place, empty for the next there is; as a JSON object.

    UsageError for a place that is none or is behind already, and for a run that is finished; LockedError
    while somebody else holds.
    """
    place = step_names.place(playbook, at)
    history = journal.read(run_dir)
    if runs.state_of(history, playbook).state == "complete":
        raise UsageError(f"run {run_dir.name} is complete: there is nothing to hold. Next: zkmigrate status")
    working = _working(run_dir)
    if place in _behind(playbook, history, under_way=working is not None):
        raise UsageError(
            f"run {run_dir.name} is past {step_names.holds(playbook, place)!r} already. Next: hold "
            "without --at, for the next place; or a later place"
        )
    made = Hold(place, why, process.user(), process.terminal(os.environ), round(time.time(), 3))
    file = HoldFile(run_dir)
    replaced = file.place(made)
    made = file.wanted() or made  # as others read it
    return {
        "run": run_dir.name,
        "hold": {**made.body(), "where": step_names.holds(playbook, place)},
        "replaced": None if replaced is None else replaced.body(),
        "next": _next(playbook, history),
        "process": working,
    }


def release(run_dir: Path, playbook: Playbook) -> dict[str, Any]:
    """Let a run go on; as a JSON object. UsageError when nothing holds it."""
    history = journal.read(run_dir)
    working = _working(run_dir)
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


def hold_lines(body: dict[str, Any]) -> list[str]:
    """What ``hold`` did, as text."""
    out = [f"run {body['run']} holds {body['hold']['where']}"]
    if body["replaced"]:
        out.append("  your earlier hold is replaced")
    if body["next"]:
        at = "it is at" if body["process"] and body["next"]["begun"] else "next is"
        out.append(f"  {at} {_named(body['next'])}")
    if body["process"]:
        out.append(f"  under way: process {body['process']['pid']} by {body['process']['by']}")
        out.append(
            "  in the window a hold never outlasts the deadlines (docs/reference/cli.md#holding-a-run)"
        )
    else:
        out.append("  no process on this machine works on it: kept for the next run or resume")
    out.append(f"  let it go on: zkmigrate release --run-id {body['run']}")
    return out


def release_lines(body: dict[str, Any]) -> list[str]:
    """What ``release`` did and what comes next, as text."""
    who = f" ({Hold(**body['released']).words()})" if body["released"] else ""
    out = [f"run {body['run']}: the hold is released{who}"]
    onward = f"{_named(body['next'])}" if body["next"] else "nothing is left on this way"
    if not body["process"]:
        return [*out, f"  no process on this machine works on it; run or resume goes on with {onward}"]
    if body["held"]:
        out.append(f"  it was holding {body['where']} and goes on now: {onward}")
    else:
        out.append(f"  it was not holding yet and goes on as it was: {onward}")
    if body["next"] and body["next"]["asks"]:
        out.append(f"  its own terminal asks first, unless it runs with --yes: {body['next']['asks']}")
    return out


def tell(out: TextIO, body: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    """Print either form."""
    text = json.dumps(body, ensure_ascii=False, sort_keys=True) if as_json else "\n".join(lines)
    out.write(f"{text}\n")


def _named(step: dict[str, Any]) -> str:
    back = "back " if step["way"] == Way.BACK.value else ""
    return f"{back}{step['step']}: {step['title']}"


def _next(playbook: Playbook, history: History) -> dict[str, Any] | None:
    """The step that the run is at, ``begun``, or comes to. asks: the question that its stage asks before."""
    at = history.next(playbook)
    if not isinstance(at, Next):
        return None
    forward = at.way is Way.FORWARD and at.stage.id not in history.consents
    asks = at.stage.consent if forward and not history.entered(at.stage.id) else ""
    begun = at.id in history.begun
    return {"step": at.id, "title": at.step.title, "way": at.way.value, "begun": begun, "asks": asks}


def _behind(playbook: Playbook, history: History, *, under_way: bool) -> set[str]:
    """The places that a run walking forward does not come to any more; to a step that was interrupted it
    does."""
    if history.way is Way.BACK:
        return set()
    over = {s.id for s in playbook.stages if s.id in history.stages_done or history.entered(s.id)}
    for stage in playbook.stages:
        names = {f"{stage.id}.{step.id}" for step in stage.steps}
        reached = history.begun if under_way and not stage.window else history.done
        over |= names if stage.id in history.stages_done else names & reached
    return over


def _working(run_dir: Path) -> dict[str, Any] | None:
    working = process.at_work(run_dir)
    return None if working is None else working.body()
