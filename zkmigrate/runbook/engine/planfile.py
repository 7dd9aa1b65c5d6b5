"""Write and read a plan as a file: ``plan --json``, ``plan --out`` and ``run --plan`` use this format.

It is one JSON object with sorted keys, the same bytes for the same plan. ``digest`` identifies the plan:
SHA-256 over all that binds a run (playbook, inventory, host program, every change by its fingerprint, the
state of the files that would be replaced). ``checksum`` is SHA-256 over all other fields, with the texts and
diffs that the operator agreed to. A file in which either does not match was damaged or edited. File contents
appear in it only as diffs (without secret-looking values) and fingerprints.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from zkmigrate import input_file
from zkmigrate.clean import clean
from zkmigrate.errors import UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.runbook.engine.plan import Plan, PlannedStep, sha256_of
from zkmigrate.runbook.model.step import Hazard

_MAX_BYTES = 64 << 20
_LISTED = 6


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FileChange(_Frozen):
    """One change in words; fields as in :class:`zkmigrate.runbook.engine.plan.PlannedChange`."""

    text: str
    command: str
    diff: str
    detail: tuple[str, ...]
    fingerprint: str


class FileStep(_Frozen):
    """One step; fields as in :class:`zkmigrate.runbook.engine.plan.PlannedStep`."""

    id: str
    title: str
    hazard: Hazard
    brief: tuple[str, ...]
    note: str
    unknown: str
    targets: dict[str, tuple[FileChange, ...]]
    basis: dict[str, str] | None = None


class FileStage(_Frozen):
    id: str
    title: str
    consent: str
    rehearsal: bool
    window: bool
    steps: tuple[FileStep, ...]


class PlanFile(_Frozen):
    """The whole file.

    program: digest of the host program that would be installed. seen, unknown: as in
    :class:`zkmigrate.runbook.engine.plan.Plan`.
    """

    format: Literal["zkmigrate-plan-1"]
    digest: str
    playbook: str
    inventory: str
    program: str
    seen: dict[str, str]
    window: tuple[str, ...]
    unknown: dict[str, str]
    stages: tuple[FileStage, ...]
    checksum: str

    def steps(self) -> dict[str, FileStep]:
        """Return ``stage.step`` → the step, in order."""
        return {f"{stage.id}.{step.id}": step for stage in self.stages for step in stage.steps}

    def to_json(self) -> dict[str, object]:
        return self.model_dump(mode="json", exclude_none=True)

    def text(self) -> str:
        """Return the file's content: JSON whose strings contain no control characters for a terminal."""
        text = json.dumps(self.to_json(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return clean(text) + "\n"


def from_plan(plan: Plan) -> PlanFile:
    """Convert a plan to the content of a file."""
    stages = tuple(
        FileStage(
            id=stage.id,
            title=stage.title,
            consent=stage.consent,
            rehearsal=stage.rehearsal,
            window=stage.window,
            steps=tuple(_step(step) for step in stage.steps),
        )
        for stage in plan.stages
    )
    made = PlanFile(
        format="zkmigrate-plan-1",
        digest="",
        playbook=plan.playbook,
        inventory=plan.inventory,
        program=hashlib.sha256(zkm_host.program()).hexdigest(),
        seen=plan.seen,
        window=plan.window,
        unknown=dict(plan.unknown),
        stages=stages,
        checksum="",
    )
    named = made.model_copy(update={"digest": _digest(made)})
    return named.model_copy(update={"checksum": checksum_of(named)})


def _step(step: PlannedStep) -> FileStep:
    targets = {
        target: tuple(
            FileChange(
                text=c.text, command=c.command, diff=c.diff, detail=c.detail, fingerprint=c.fingerprint
            )
            for c in changes
        )
        for target, changes in step.targets.items()
    }
    return FileStep(
        id=step.id,
        title=step.title,
        hazard=step.hazard,
        brief=step.brief.lines(),
        note=step.note,
        unknown=step.unknown,
        targets=targets,
        basis=None if step.basis is None else dict(step.basis),
    )


def _digest(plan: PlanFile) -> str:
    steps = [
        [name, bool(step.unknown), {t: [c.fingerprint for c in cs] for t, cs in step.targets.items()}]
        for name, step in plan.steps().items()
    ]
    return sha256_of([plan.playbook, plan.inventory, plan.program, plan.seen, steps])


def checksum_of(plan: PlanFile) -> str:
    """Compute the value of ``checksum`` from all other fields of the file."""
    return sha256_of({**plan.to_json(), "checksum": ""})


# --- reading ------------------------------------------------------------------------------------------------


def read(path: Path) -> PlanFile:
    """Read a plan from a file. Raises UsageError unless it is a plan exactly as it was written."""
    try:
        with input_file.opened(path) as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a plan ({error}); {_MADE}") from None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{path} is not a plan (seen more than {_MAX_BYTES >> 20} MiB); {_MADE}")
    try:
        plan = PlanFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        said = f"{where}: {first['msg']}" if where else first["msg"]
        raise UsageError(f"{path} is not a plan of this version ({said}); {_MADE}") from None
    if plan.checksum != checksum_of(plan) or plan.digest != _digest(plan):
        raise UsageError(
            f"{path} is damaged or was edited: its checksum does not match its content. Nothing was done. "
            "Next: use the unchanged file; or plan again"
        )
    return plan


_MADE = "needed: a file of plan --out, or the output of plan --json. Next: zkmigrate plan --out FILE"


# --- comparing ----------------------------------------------------------------------------------------------


def differences(planned: PlanFile, now: PlanFile) -> tuple[str, ...]:
    """Return what a run would now do or see differently from the plan, one clause each."""
    return tuple(_differences(planned, now))


def heading_differences(planned: PlanFile, playbook: str, inventory: str) -> tuple[str, ...]:
    """Return the differences that are known without querying a host.

    playbook: the playbook's id. inventory: the inventory's digest.
    """
    found = []
    if planned.playbook != playbook:
        found.append(f"the playbook was {planned.playbook} and is now {playbook}")
    if planned.inventory != inventory:
        found.append(f"the inventory's digest was {planned.inventory[:12]} and is now {inventory[:12]}")
    return tuple(found)


def _differences(planned: PlanFile, now: PlanFile) -> Iterator[str]:
    yield from heading_differences(planned, now.playbook, now.inventory)
    if planned.program != now.program:
        yield "zkm-host, the program for the hosts, has another version"
    before, after = planned.steps(), now.steps()
    for name in dict.fromkeys((*before, *after)):
        if name not in after or name not in before:
            yield f"{name} {'is new' if name not in before else 'is no longer'} in the playbook"
        else:
            yield from _step_differences(name, before[name], after[name])
    for file in dict.fromkeys((*planned.seen, *now.seen)):
        was, is_ = planned.seen.get(file), now.seen.get(file)
        if was != is_ and was is not None and is_ is not None:  # otherwise the step's difference covers it
            changed = not {was, is_} & set(_STATES)
            yield f"{file} {'has changed' if changed else f'was {_state(was)} and is now {_state(is_)}'}"


_NOT_THERE = "absent"
_STATES = {"absent": _NOT_THERE, "unknown": "unreadable"}


def _state(seen: str) -> str:
    return _STATES.get(seen, "present")


def _step_differences(name: str, was: FileStep, now: FileStep) -> Iterator[str]:
    if bool(was.unknown) != bool(now.unknown):
        yield (
            f"the changes of {name} were known when it was planned and are unknown now: {now.unknown}"
            if now.unknown
            else f"the changes of {name} were unknown when it was planned and are known now"
        )
        return
    if was.basis is not None and now.basis is not None:
        for fact in dict.fromkeys((*was.basis, *now.basis)):
            before, after = was.basis.get(fact, _NOT_THERE), now.basis.get(fact, _NOT_THERE)
            if before != after:
                yield f"{name}: {fact} was {before} and is now {after}"
        return
    for target in dict.fromkeys((*was.targets, *now.targets)):
        old, new = was.targets.get(target, ()), now.targets.get(target, ())
        if not new:
            yield f"{name} on {target}: {len(old)} changes were planned, and none is needed now"
        elif not old:
            yield f"{name} on {target}: no change was planned, and {len(new)} are needed now"
        elif [c.fingerprint for c in old] != [c.fingerprint for c in new]:
            kept = {c.fingerprint for c in old}
            other = next((c.text for c in new if c.fingerprint not in kept), f"{len(new)} changes")
            yield f"{name} on {target}: the changes differ from the plan: {other}"


def summary(differs: tuple[str, ...]) -> str:
    """Return the first few differences as one line."""
    more = f"; and {len(differs) - _LISTED} more" if len(differs) > _LISTED else ""
    return "; ".join(differs[:_LISTED]) + more
