"""The verbs ``throttle set``, ``show`` and ``clear``: rates that an operator sets for a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rates import Overrides, amount, parse_rate
from zkmigrate.runbook.engine import journal, process, runs
from zkmigrate.runbook.engine.throttle_file import NAME, ThrottleFile
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.report import clock
from zkmigrate.runbook.runs.verb_context import VerbContext, load, print_result


def set_rate(context: VerbContext, run_id: str, rate: str, brokers: Collection[int]) -> int:
    """Set the rate of these brokers, or of all brokers if none are given; the run then no longer changes it.

    A run that has not begun starts with this rate. Raises UsageError for an absurd rate, a broker that the
    inventory lacks, a complete run and a playbook without a throttle.
    """
    wanted = parse_rate(rate)
    inventory, playbook, run_dir = _run(context, run_id)
    _check_brokers(inventory, brokers)
    if not runs.has_begun(run_dir):
        runs.make(run_dir)
    elif runs.state_of(journal.read(run_dir), playbook).state == "complete":
        following = runs.new_id(context.runs, inventory, playbook)
        raise UsageError(
            f"run {run_dir.name} is complete: it has no throttle. Next: --run-id {following} sets the rate "
            "that the next run begins with"
        )

    def edit(before: Overrides) -> Overrides:
        _readable(run_dir, before)
        if not brokers:
            return replace(before, every=wanted)
        return replace(before, each={**before.each, **dict.fromkeys(brokers, wanted)})

    return _changed(context, run_dir, edit)


def clear(context: VerbContext, run_id: str, brokers: Collection[int]) -> int:
    """Remove the rates that were set for these brokers, or for all if none are given.

    Repeating this is no error.
    """
    run_dir = _known_run(context, run_id)

    def edit(before: Overrides) -> Overrides:
        if not brokers:
            return Overrides()
        _readable(run_dir, before)
        return replace(before, each={b: rate for b, rate in before.each.items() if b not in brokers})

    return _changed(context, run_dir, edit)


def show(context: VerbContext, run_id: str) -> int:
    """Print the rates that were set. Return 8 if their file cannot be read, else 0."""
    run_dir = _known_run(context, run_id)
    now = ThrottleFile(run_dir).read()
    print_result(context, {"run": run_dir.name, "overrides": _body(now)}, _lines(run_dir.name, now))
    return 8 if now.wrong else 0


def _run(context: VerbContext, run_id: str) -> tuple[Inventory, Playbook, Path]:
    inventory, playbook = load(context)
    if not playbook.throttled:
        raise UsageError(
            f"playbook {playbook.id} has no throttle. Next: use --playbook with one that moves partitions"
        )
    if not run_id:
        begun = runs.runs_of(context.runs, inventory)
        run_id = (runs.latest if begun else runs.new_id)(context.runs, inventory, playbook)
    return inventory, playbook, runs.directory(context.runs, run_id)


def _known_run(context: VerbContext, run_id: str) -> Path:
    """Return the directory of a run that has begun, or for which a rate was set.

    Raises UsageError for any other.
    """
    _, _, run_dir = _run(context, run_id)
    if not runs.has_begun(run_dir) and not (run_dir / NAME).exists():
        raise UsageError(
            f"there is no run {run_dir.name} in {context.runs}, and no rate was set for it. Next: "
            "use --run-id with another run"
        )
    return run_dir


def _readable(run_dir: Path, now: Overrides) -> None:
    if now.wrong:
        raise UsageError(
            f"{run_dir / NAME} cannot be read: {now.wrong}. Next: run zkmigrate throttle clear "
            "without --broker"
        )


def _check_brokers(inventory: Inventory, brokers: Collection[int]) -> None:
    known = sorted(inventory.broker_ids)
    if gone := sorted(set(brokers) - set(known)):
        listed = ", ".join(map(str, known))
        raise UsageError(
            f"--broker {gone[0]}: the inventory has brokers {listed}. Next: name one of these brokers"
        )


def _changed(context: VerbContext, run_dir: Path, edit: Callable[[Overrides], Overrides]) -> int:
    here = process.user(), process.terminal(os.environ), round(time.time(), 3)
    before, after = ThrottleFile(run_dir).change(edit, *here)
    working = process.at_work(run_dir)
    body = {
        "run": run_dir.name,
        "overrides": _body(after),
        "replaced": _body(before),
        "process": None if working is None else working.body(),
    }
    lines = _lines(run_dir.name, after)
    lines.append(
        f"  the run has not begun: zkmigrate run begins it with these rates (--run-id {run_dir.name})"
        if not runs.has_begun(run_dir)
        else "  no process on this machine works on the run; the rates apply from the next run or resume"
        if working is None
        else f"  process {working.pid} of {working.by} is at work; the rates apply from its next check"
    )
    print_result(context, body, lines)
    return 0


def _body(one: Overrides) -> dict[str, object]:
    brokers = {str(broker): rate for broker, rate in one.each.items()}
    wrong = {"wrong": one.wrong} if one.wrong else {}
    return {"every": one.every, "each": brokers, "by": one.by, "since": one.since, **wrong}


def _lines(run: str, now: Overrides) -> list[str]:
    if now.wrong:
        return [f"run {run}: the throttle file cannot be read, so the run chooses the rates: {now.wrong}"]
    if not now:
        return [f"run {run}: no override, the run chooses the rates"]
    rates = [f"  broker {broker}: {amount(rate)}" for broker, rate in now.each.items()]
    others = "all others" if rates else "all brokers"
    rest = "the run chooses" if now.every is None else amount(now.every)
    who = f", set by {now.by}" if now.by else ""
    return [f"run {run}: overrides{who} at {clock(now.since)}", *rates, f"  {others}: {rest}"]
