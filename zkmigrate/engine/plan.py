"""The plan: what a playbook would do, per stage, step and target, without doing it.

Files and commands that follow from the inventory and the world as it is now are listed with their diffs; a
step whose changes rest on facts of a later moment says so. The digest covers what would be touched (playbook,
inventory, changes), not what the hosts happen to hold.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from zkmigrate.engine import brief
from zkmigrate.engine.codec import encode_change
from zkmigrate.errors import HostError
from zkmigrate.inventory import Inventory
from zkmigrate.inventory import digest as inventory_digest
from zkmigrate.model.change import Change, Changes, PutFile
from zkmigrate.model.fact import Absent, Seen
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Playbook, Stage
from zkmigrate.model.step import AnyStep, Context, Hazard

LATER = "decided from facts when the step is reached"
READS = "only looks"


@runtime_checkable
class Previewing(Protocol):
    """A step that can say beforehand what it will do, target by target, from what can be seen now."""

    def preview(self, c: Context, look: Look) -> Mapping[str, Changes]: ...


@dataclass(frozen=True)
class PlannedChange:
    """One change: its words for the operator, its zkm-host command line, its file diff (empty if none)."""

    change: Change
    text: str
    command: str
    diff: str


@dataclass(frozen=True)
class PlannedStep:
    """One step: its brief, and the changes per target or why they are not known yet."""

    id: str
    title: str
    hazard: Hazard
    brief: brief.Brief
    targets: Mapping[str, tuple[PlannedChange, ...]]
    note: str


@dataclass(frozen=True)
class PlannedStage:
    """One stage."""

    id: str
    title: str
    consent: str
    rehearsal: bool
    window: bool
    steps: tuple[PlannedStep, ...]


@dataclass(frozen=True)
class Plan:
    """The whole plan. window: lines about the expected window, its deadlines and what may be noticed."""

    playbook: str
    inventory: str
    stages: tuple[PlannedStage, ...]
    window: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over playbook, inventory, and every change that is known."""
        what = {
            "playbook": self.playbook,
            "inventory": self.inventory,
            "steps": [
                [
                    f"{stage.id}.{step.id}",
                    {t: [encode_change(c.change) for c in cs] for t, cs in sorted(step.targets.items())},
                ]
                for stage in self.stages
                for step in stage.steps
            ],
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def make(playbook: Playbook, inventory: Inventory, look: Look, window: tuple[str, ...]) -> Plan:
    """Plan a whole playbook; only looks. ``window`` is said by the playbook's own rules."""
    stages = tuple(
        PlannedStage(
            stage.id,
            stage.title,
            stage.consent,
            stage.rehearsal,
            stage.window,
            tuple(_step(stage, step, inventory, look) for step in stage.steps),
        )
        for stage in playbook.stages
    )
    return Plan(playbook.id, inventory_digest(inventory), stages, window)


def _step(stage: Stage, step: AnyStep, inventory: Inventory, look: Look) -> PlannedStep:
    context = Context(run="plan", inventory=inventory, rehearsal=stage.rehearsal)
    targets: dict[str, tuple[PlannedChange, ...]] = {}
    note = READS if step.hazard is Hazard.READ_ONLY else LATER
    if isinstance(step, Previewing):
        try:
            preview = step.preview(context, look)
            targets = {t: tuple(_change(c, look) for c in changes) for t, changes in preview.items()}
            note = ""
        except HostError as error:
            note = f"not known now: {error}"
    return PlannedStep(step.id, step.title, step.hazard, brief.of(step), targets, note)


def _change(change: Change, look: Look) -> PlannedChange:
    command = " ".join(("zkm-host", change.verb, "OPID", *(_short(word) for word in change.arguments())))
    diff = _diff(change, look) if isinstance(change, PutFile) else ""
    return PlannedChange(change, change.describe(), command, diff)


def _short(word: str) -> str:
    return word if len(word) <= 80 else f"{word[:24]}…({len(word)} characters)"


def _diff(change: PutFile, look: Look) -> str:
    """Unified diff from what is there to what will be; says so where that cannot be looked at."""
    seen = look.file(change.host, change.path)
    if isinstance(seen, Seen):
        old, name = seen.value.decode("utf-8", "replace"), change.path
    elif isinstance(seen, Absent):
        old, name = "", "/dev/null"
    else:
        return f"{change.host}:{change.path}: {seen}\n"
    new = change.content.decode("utf-8", "replace")
    lines = difflib.unified_diff(
        old.splitlines(),
        new.splitlines(),
        f"{change.host}:{name}",
        f"{change.host}:{change.path}",
        lineterm="",
    )
    return "".join(f"{line}\n" for line in lines)


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object; the same plan gives the same bytes when dumped with sorted keys."""
    return {
        "digest": plan.digest,
        "playbook": plan.playbook,
        "inventory": plan.inventory,
        "window": list(plan.window),
        "stages": [
            {
                "id": stage.id,
                "title": stage.title,
                "consent": stage.consent,
                "rehearsal": stage.rehearsal,
                "window": stage.window,
                "steps": [_step_json(step) for step in stage.steps],
            }
            for stage in plan.stages
        ],
    }


def _step_json(step: PlannedStep) -> dict[str, Any]:
    return {
        "id": step.id,
        "title": step.title,
        "hazard": step.hazard.value,
        "brief": list(step.brief.lines()),
        "note": step.note,
        "targets": {
            target: [{"text": c.text, "command": c.command, "diff": c.diff} for c in changes]
            for target, changes in step.targets.items()
        },
    }


def lines(plan: Plan) -> list[str]:
    """The plan as text for a terminal."""
    out = [f"plan of {plan.playbook}, digest {plan.digest}", f"inventory {plan.inventory}", ""]
    for stage in plan.stages:
        marks = [word for word, on in (("rehearsal", stage.rehearsal), ("window", stage.window)) if on]
        out.append(f"{stage.id}: {stage.title}" + (f" ({', '.join(marks)})" if marks else ""))
        if stage.consent:
            out.append(f"  asks: {stage.consent}")
        for step in stage.steps:
            out.append(f"  {stage.id}.{step.id}: {step.title} ({step.hazard.value})")
            out += [f"    {line}" for line in step.brief.lines()]
            if step.note:
                out.append(f"    changes: {step.note}")
            for target, changes in step.targets.items():
                out.append(f"    on {target}:")
                for change in changes:
                    out += [f"      {change.text}", f"        $ {change.command}"]
                    out += [f"        {line}" for line in change.diff.splitlines()]
        out.append("")
    return out + list(plan.window)
