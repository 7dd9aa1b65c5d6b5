"""The verbs about a run that others walk: status, hold, release."""

from __future__ import annotations

import time
from pathlib import Path

from zkmigrate.engine import step_names
from zkmigrate.engine.clock import RealClock
from zkmigrate.runs import hold_verbs, run_status
from zkmigrate.runs.verb_context import Setting, existing, print_json, reached, read

_WAIT_S = 0.5


def status(
    setting: Setting,
    run_id: str,
    *,
    offline: bool,
    wait: str = "",
    timeout_s: float | None = None,
    findings: str = "",
) -> int:
    """Print where a run stands; writes nothing.

    wait: first wait, at most ``timeout_s``, until this stage or step is done or the process at work has ended
    (``run_status.END``); the exit code tells which (``run_status.waited``). findings: also those of this
    stage or step, whole.
    """
    inventory, playbook = read(setting)
    if wait != run_status.END:
        step_names.known(playbook, wait)
    if findings != "all":
        step_names.known(playbook, findings)
    run_dir = existing(setting, run_id, inventory, playbook)
    code = _waited(setting, run_dir, wait, timeout_s) if wait else 0
    body = run_status.of_run(run_dir, playbook, playbook.changed(inventory), time.time)
    body["accepted"] = [x.line for x in inventory.accept]
    if wait:
        body["waited"] = {"for": wait, "code": code}
    if findings:
        body["findings"] = run_status.findings(run_dir, findings)
    if not offline:
        with reached(setting, inventory, run_dir.name) as site:
            body["hosts"] = run_status.of_hosts(site.look, playbook, inventory)
            body["operator"] = run_status.elsewhere(site.look, playbook, inventory, body["hosts"])
    if setting.as_json:
        print_json(setting, body)
    else:
        setting.out.write("".join(f"{line}\n" for line in run_status.lines(body, playbook.views())))
    return code


def _waited(setting: Setting, run_dir: Path, wait: str, timeout_s: float | None) -> int:
    """Poll the files of the run until the wait is over; 130 when it was interrupted."""
    clock = RealClock(setting.interrupt)
    end = None if timeout_s is None else clock.now() + timeout_s
    with setting.interrupt.listening():
        while (code := run_status.waited(run_dir, wait)) is None:
            if setting.interrupt.wanted:
                return 130
            left = _WAIT_S if end is None else min(_WAIT_S, end - clock.now())
            if left <= 0:
                return run_status.NOT_REACHED
            clock.pause(left)
    return code


def hold(setting: Setting, run_id: str, at: str, why: str) -> int:
    """Ask a run to hold, under way or not."""
    inventory, playbook = read(setting)
    step_names.place(playbook, at)
    run_dir = existing(setting, run_id, inventory, playbook)
    body = hold_verbs.hold(run_dir, playbook, at, why)
    hold_verbs.tell(setting.out, body, hold_verbs.hold_lines(body), as_json=setting.as_json)
    return 0


def release(setting: Setting, run_id: str) -> int:
    """Let a run go on that is held."""
    inventory, playbook = read(setting)
    run_dir = existing(setting, run_id, inventory, playbook)
    body = hold_verbs.release(run_dir, playbook)
    hold_verbs.tell(setting.out, body, hold_verbs.release_lines(body), as_json=setting.as_json)
    return 0
