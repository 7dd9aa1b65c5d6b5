"""Write a plan as text. Hosts with the same changes share lines; a long block is printed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkmigrate.runbook.engine.plan import LATER
from zkmigrate.runbook.engine.planfile import FileChange, FileStage, FileStep, PlanFile
from zkmigrate.runbook.model.report import counted

_REPEATED_FROM = 4
"""A repeated block of at least this many lines is printed only once."""


def lines(plan: PlanFile) -> list[str]:
    """Return the whole plan as lines, for a terminal or a file."""
    out = [
        f"plan of {plan.playbook}, digest {plan.digest}",
        f"inventory {plan.inventory}",
        "in the commands RUN, N and OPID stand for the run's id, the fencing number, and a new id each time",
        "",
        *plan.window,
        "",
    ]
    printed: dict[tuple[str, ...], str] = {}
    for stage in plan.stages:
        out += _stage(stage, printed)
        out.append("")
    changing = [s for stage in plan.stages for s in stage.steps if s.targets]
    count = sum(len(changes) for step in changing for changes in step.targets.values())
    every = sum(len(stage.steps) for stage in plan.stages)
    later = sum(s.note == LATER for stage in plan.stages for s in stage.steps)
    more = f" {counted(later, 'more step')} may: see above;" if later else ""
    out.append(
        f"{len(changing)} of {every} steps change something, {count} changes;{more} printing them changed "
        "nothing"
    )
    if unknown := plan.unknown:
        steps = sum(bool(s.unknown) for stage in plan.stages for s in stage.steps)
        parts = [f"the changes of {steps} of {len(changing) + steps} steps"] * bool(steps)
        parts += [f"{len(unknown) - steps} diffs"] * (len(unknown) > steps)
        out += [
            f"the plan is incomplete: {' and '.join(parts)} are not known now:",
            *(f"  {where}: {why}" for where, why in unknown.items()),
            "next: fix the findings of zkmigrate preflight, then plan again",
        ]
    return out


def _stage(stage: FileStage, printed: dict[tuple[str, ...], str]) -> list[str]:
    marks = [word for word, on in (("rehearsal", stage.rehearsal), ("window", stage.window)) if on]
    out = [f"== {stage.id}: {stage.title}" + (f" ({', '.join(marks)})" if marks else "")]
    if stage.consent:
        out.append(f"   asks first: {stage.consent}")
    for step in stage.steps:
        out += _step(f"{stage.id}.{step.id}", step, printed)
    if stage.rehearsal:
        out.append("   then every step above is walked back, last one first (see each Way back)")
    return out


def _step(name: str, step: FileStep, printed: dict[tuple[str, ...], str]) -> list[str]:
    head = f"-- {name}: {step.title} ({step.hazard.value})"
    if step.hazard.reads and not step.targets:
        return [head, *(f"   {line}" for line in step.brief[:1])]
    out = [head, *_block(name, [f"   {line}" for line in step.brief], printed, "   (as under {})")]
    if step.note:
        out.append(f"   changes: {step.note}")
    for hosts, changes in _by_changes(step.targets):
        where = f"{name} on {hosts[0]}"
        if not all(f" {hosts[0]} " in change.text for change in changes):
            out.append(f"   on {', '.join(hosts)}:")
        for change in changes:
            out += [f"     {change.text}", f"       $ {change.command}"]
            for part in (change.diff.splitlines(), *_parts(change.detail)):
                out += _block(where, [f"         {line}" for line in part], printed, "         (as under {})")
    return out


def _parts(detail: Sequence[str]) -> list[list[str]]:
    """Split a detail into its parts: each a line with the indented lines below it."""
    parts: list[list[str]] = []
    for line in detail:
        if parts and line.startswith(" "):
            parts[-1].append(line)
        else:
            parts.append([line])
    return parts


def _block(name: str, block: Sequence[str], printed: dict[tuple[str, ...], str], instead: str) -> list[str]:
    before = printed.setdefault(tuple(block), name)
    return list(block) if before == name or len(block) < _REPEATED_FROM else [instead.format(before)]


def _by_changes(
    targets: Mapping[str, Sequence[FileChange]],
) -> list[tuple[list[str], Sequence[FileChange]]]:
    groups: dict[tuple[object, ...], tuple[list[str], Sequence[FileChange]]] = {}
    for target, changes in targets.items():
        key = tuple((c.text, c.command, c.diff, c.detail) for c in changes)
        groups.setdefault(key, ([], changes))[0].append(target)
    return list(groups.values())
