"""Make a plan, or show a saved one: the verb ``plan``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from zkmigrate.errors import ZkmigrateError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import files, plan, planfile, runs
from zkmigrate.runbook.engine.clock import RealClock
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.planfile import PlanFile
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Context, Waiting
from zkmigrate.runbook.runs.open_run import refuse_stale
from zkmigrate.runbook.runs.verb_context import (
    VerbContext,
    history_of,
    inventory_options,
    load,
    open_site,
    print_result,
)
from zkmigrate.runbook.ui import plan_text


def show_plan(context: VerbContext, run_id: str, out: Path | None = None, *, force: bool = False) -> int:
    """Print the plan. Changes nothing on hosts or clusters.

    run_id: a run with a rehearsal, which says how long the window will be. out: a file to write the plan to
    as well. force: whether to replace that file.

    A journal that cannot be read causes a warning: the plan is valid, but ``run`` refuses to begin beside it.
    """
    inventory, playbook = load(context)
    if out is not None:
        files.refuse_taken(out, force=force)
    history = history_of(context, run_id, inventory, playbook)
    plan_file = _make(context, inventory, playbook, history, measure=True)
    if out is not None:
        files.write_all({out: plan_file.text()}, force=force)
    lines = plan_text.lines(plan_file)
    if out is not None:
        command = f"zkmigrate run {inventory_options(context)} --plan {shlex.quote(str(out))}"
        lines += [f"written to {out}: plan {plan_file.digest}", f"   apply it: {command}"]
    unreadable = filter(None, (run.unreadable for run in runs.runs_of(context.runs, inventory)))
    warnings = [f"warning: {why}. Next: zkmigrate status, before any run begins" for why in unreadable]
    if context.as_json:
        sys.stderr.write("".join(f"{warning}\n" for warning in warnings))
        context.out.write(plan_file.text())  # as in the file: with its format and checksum, without a time
    else:
        print_result(context, {}, [*lines, *warnings])
    return 8 if plan_file.unknown else 0


def show_saved(context: VerbContext, file: Path, *, offline: bool) -> int:
    """Print a saved plan, with a warning if it is no longer valid. offline: do not query the hosts."""
    saved = planfile.read(file)
    remarks = _remarks_on(context, saved, offline=offline)
    lines = [*plan_text.lines(saved), *(f"warning: {remark}" for remark in remarks)]
    print_result(context, {**saved.to_json(), "remarks": remarks}, lines)
    return 0


def _remarks_on(context: VerbContext, saved: PlanFile, *, offline: bool) -> list[str]:
    """Return the reasons why ``run --plan`` would refuse this plan now, as far as they can be seen."""
    remarks = []
    try:
        if run_id := runs.applied_by(context.runs, saved.digest):
            remarks.append(f"run {run_id} was begun with this plan")
    except ZkmigrateError as error:
        remarks.append(f"cannot find out whether a run was begun with this plan: {error}")
    try:
        inventory, playbook = load(context)
        refuse_stale(saved, planfile.heading_differences(saved, playbook.id, inventories.digest(inventory)))
        if not offline:
            now = _make(context, inventory, playbook, None)
            refuse_stale(saved, planfile.differences(saved, now))
    except runs.StaleError as error:
        remarks.append(str(error))
    except ZkmigrateError as error:
        remarks.append(f"cannot find out whether this plan is still valid: {error}")
    return remarks


def _make(
    context: VerbContext,
    inventory: Inventory,
    playbook: Playbook,
    history: History | None,
    *,
    measure: bool = False,
) -> PlanFile:
    """Make the plan of the whole run.

    history: a run with figures and retired brokers for the plan; None without a run. measure: also include
    the lines that need two looks some seconds apart.
    """
    records = history.records() if history is not None else {}
    retired = tuple(history.retired.values()) if history is not None else ()
    with open_site(context, inventory, "plan") as site:
        lines = site.window_lines(playbook, records)
        if measure:
            lines += _measured(context, playbook, inventory, site.look)
        return planfile.from_plan(plan.make(playbook, inventory, site.look, lines, retired))


def _measured(context: VerbContext, playbook: Playbook, inventory: Inventory, look: Look) -> tuple[str, ...]:
    """Look twice, and return the playbook's lines that need both looks."""
    clock, kept = RealClock(context.interrupt), dict[str, Any]()
    while isinstance(measured := playbook.measured(Context("plan", inventory, kept=kept), look), Waiting):
        clock.pause(measured.poll_s)
        kept = dict(measured.keep)
    return measured
