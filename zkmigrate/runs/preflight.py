"""The verb preflight."""

from __future__ import annotations

from zkmigrate.engine import runs
from zkmigrate.engine.codec import encode_finding
from zkmigrate.locations import places
from zkmigrate.model.finding import Finding, blocking
from zkmigrate.model.step import Blocked, Context, Done
from zkmigrate.runs.verb_context import Setting, onward_command, print_json, reached, read, words_on
from zkmigrate.ui import preflight_view


def preflight(setting: Setting) -> int:
    """Look first: every check of the first gate alone; once a run has outdated that, of its next one."""
    inventory, playbook = read(setting)
    under_way, done = runs.past_first_gate(setting.runs, inventory, playbook) or (None, "")
    gates = (runs.gate_ahead(under_way, playbook),) if under_way else playbook.gates[:1]
    gate = gates[0].id if gates else ""
    records = under_way.history.records() if under_way else {}
    gone = under_way.history.retired if under_way else {}
    inventory = playbook.without(inventory, gone)
    context = Context(
        run=under_way.run if under_way else "look",
        inventory=inventory,
        records=records,
        retired=tuple(gone.values()),
    )
    if under_way and not setting.as_json:
        setting.out.write(f"run {under_way.run} has {done}: judged as before its stage {gate}\n")
    if setting.interactive and not setting.as_json:
        hosts = len({host for names in playbook.hosts(inventory).values() for host in names})
        setting.out.write(f"looking at {hosts} hosts; nothing is changed …\n")
        setting.out.flush()
    findings: list[Finding] = []
    with reached(setting, inventory, context.run) as site:
        looks = [step for stage in gates for step in stage.steps]
        for step in looks[:1] if under_way else looks:
            verdict = step.check(context, step.observe(context, site.look))
            findings += verdict.findings if isinstance(verdict, Done | Blocked) else ()
    code = 3 if blocking(findings) else 0
    if setting.as_json:
        body = {"code": code, "counts": preflight_view.tally(findings), "gate": gate}
        print_json(setting, {**body, "findings": [encode_finding(f) for f in findings]})
        return code
    onward = onward_command(setting, under_way.history, playbook) if under_way else ""
    preflight_view.show(setting.out, findings, places(setting.inventory), words_on(setting), onward)
    return code
