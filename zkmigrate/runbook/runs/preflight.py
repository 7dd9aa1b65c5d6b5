"""Run checks before, or beside, a run: the verb ``preflight``."""

from __future__ import annotations

from dataclasses import replace

from zkmigrate.errors import UsageError
from zkmigrate.locations import read_locations
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.engine.clock import Clock, RealClock
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.engine.run import Patience
from zkmigrate.runbook.model.finding import Finding, blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Context, Waiting
from zkmigrate.runbook.runs.verb_context import (
    VerbContext,
    heading,
    inventory_options,
    load,
    next_command,
    open_site,
    print_json,
)
from zkmigrate.runbook.ui import preflight_view


def preflight(context: VerbContext, stage: str = "") -> int:
    """Run every check of the first gate, or of the next gate if the open run is past the first.

    stage: one of the playbook's ``looks``, to run instead of a gate, with the records of the open or newest
    run. Returns 3 if a finding blocks, else 0.
    """
    inventory, playbook = load(context)
    if stage:
        gates: tuple[Stage, ...] = (_look_of(playbook, stage),)
        under_way, done = runs.newest(context.runs, inventory, playbook), ""
    else:
        under_way, done = runs.past_first_gate(context.runs, inventory, playbook) or (None, "")
        gates = (runs.gate_ahead(under_way, playbook),) if under_way else playbook.gates[:1]
    gate = gates[0].id if gates else ""
    records = under_way.history.records() if under_way else {}
    retired = under_way.history.retired if under_way else {}
    inventory = playbook.without(inventory, retired)
    step_context = Context(
        run=under_way.run if under_way else "look",
        inventory=inventory,
        records=records,
        retired=tuple(retired.values()),
    )
    if done and under_way and not context.as_json:
        context.out.write(f"run {under_way.run} has {done}: judged as before its stage {gate}\n")
    if context.interactive and not context.as_json:
        hosts = len({host for names in playbook.hosts(inventory).values() for host in names})
        context.out.write(f"reading {hosts} hosts; nothing is changed …\n")
        context.out.flush()
    findings: list[Finding] = []
    with open_site(context, inventory, step_context.run) as site:
        looks = [step for stage in gates for step in stage.steps]
        for step in looks[:1] if done else looks:
            findings += looked(step, step_context, site.look, RealClock(context.interrupt))
    code = 3 if blocking(findings) else 0
    if context.as_json:
        body = {"code": code, "counts": preflight_view.tally(findings), "gate": gate}
        print_json(context, {**body, "findings": [encode_finding(f) for f in findings]})
        return code
    command = ""
    if done and under_way:
        onward = heading(under_way.history, playbook)
        command = f"{onward}: {next_command(context, under_way.history, playbook)}"
    preflight_view.show(
        context.out, findings, read_locations(context.inventory), inventory_options(context), command, stage
    )
    return code


def _look_of(playbook: Playbook, id: str) -> Stage:
    """Return the playbook's read-only stage with this id. Raises UsageError if there is none."""
    for stage in playbook.looks:
        if stage.id == id:
            return stage
    there = ", ".join(stage.id for stage in playbook.looks) or "none"
    raise UsageError(f"{playbook.id} has no stage {id!r} for preflight (it has {there})")


def looked(step: AnyStep, context: Context, look: Look, clock: Clock) -> tuple[Finding, ...]:
    """Return the findings of a read-only step. While the step waits, it is observed again."""
    patience = Patience(clock.now)
    while isinstance(verdict := step.check(context, step.observe(context, look)), Waiting):
        if (left := patience.left(verdict)) <= 0:
            return patience.overdue(verdict, back=False).findings
        context = replace(context, kept=verdict.keep or context.kept)
        clock.pause(min(verdict.poll_s, left))
    return verdict.findings
