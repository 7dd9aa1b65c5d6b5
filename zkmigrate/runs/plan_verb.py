"""The verb plan: make one, or show one that was made."""

from __future__ import annotations

import shlex
from pathlib import Path

from zkmigrate.engine import plan, planfile, runs
from zkmigrate.engine.history import History
from zkmigrate.engine.planfile import PlanFile
from zkmigrate.errors import ZkmigrateError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.playbook import Playbook
from zkmigrate.runs.open_run import refuse_stale
from zkmigrate.runs.verb_context import Setting, print_json, reached, read, told, words_on
from zkmigrate.ui import plan_text


def show_plan(setting: Setting, run_id: str, out: Path | None = None, *, force: bool = False) -> int:
    """Print the plan; only looks. run_id: the run whose rehearsal tells how long the window will be.

    out: where to write it too, over another file only with ``force``.
    """
    inventory, playbook = read(setting)
    if out is not None:
        planfile.refuse_taken(out, force=force)
    made = _planned(setting, inventory, playbook, told(setting, run_id, inventory, playbook))
    if out is not None:
        planfile.write(out, made, force=force)
    if setting.as_json:
        print_json(setting, made.to_json())
    else:
        setting.out.write("".join(f"{line}\n" for line in plan_text.lines(made)))
        if out is not None:
            setting.out.write(f"written to {out}: plan {made.digest}\n")
            setting.out.write(
                f"   apply it: zkmigrate run {words_on(setting)} --plan {shlex.quote(str(out))}\n"
            )
    return 8 if made.unknown else 0


def show_planned(setting: Setting, file: Path, *, offline: bool) -> int:
    """Print a plan that was written, and whether it still holds: a remark, never a refusal.

    offline: without asking the hosts.
    """
    planned_then = planfile.read(file)
    remarks = _remarks_on(setting, planned_then, offline=offline)
    if setting.as_json:
        print_json(setting, {**planned_then.to_json(), "remarks": remarks})
        return 0
    setting.out.write("".join(f"{line}\n" for line in plan_text.lines(planned_then)))
    setting.out.write("".join(f"warning: {remark}\n" for remark in remarks))
    return 0


def _remarks_on(setting: Setting, then: PlanFile, *, offline: bool) -> list[str]:
    """Why ``run --plan`` would refuse this plan now, as far as it can be told."""
    remarks = []
    try:
        if run_id := runs.applied_by(setting.runs, then.digest):
            remarks.append(f"run {run_id} was begun with this plan")
    except ZkmigrateError as error:
        remarks.append(f"whether a run was begun with this plan cannot be told: {error}")
    try:
        inventory, playbook = read(setting)
        refuse_stale(then, planfile.heading_differences(then, playbook.id, inventories.digest(inventory)))
        if not offline:
            now = _planned(setting, inventory, playbook, None)
            refuse_stale(then, planfile.differences(then, now))
    except runs.StaleError as error:
        remarks.append(str(error))
    except ZkmigrateError as error:
        remarks.append(f"whether this plan still holds cannot be told: {error}")
    return remarks


def _planned(setting: Setting, inventory: Inventory, playbook: Playbook, history: History | None) -> PlanFile:
    """history: of the run whose figures and retired brokers count; None for a run that has not begun."""
    records = history.records() if history is not None else {}
    retired = tuple(history.retired.values()) if history is not None else ()
    with reached(setting, inventory, "plan") as site:
        made = plan.make(playbook, inventory, site.look, site.window_lines(playbook, records), retired)
    return planfile.from_plan(made)
