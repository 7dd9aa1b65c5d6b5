"""The verb runbook: writes the page to follow by hand, or the go/no-go page."""

from __future__ import annotations

from pathlib import Path

from zkmigrate.runbook.byhand import export
from zkmigrate.runbook.engine import plan, runs
from zkmigrate.runbook.runs.verb_context import VerbContext, history_of, load, open_site, print_json


def show_runbook(context: VerbContext, run_id: str, out: Path | None, *, go_no_go: bool) -> int:
    """Write the page; reads the hosts only.

    run_id: the run whose rehearsal's figures and id the page uses. out: the file, else standard output.
    """
    export.check_out(out)
    inventory, playbook = load(context)
    begun = bool(run_id) and runs.has_begun(runs.directory(context.runs, run_id))
    history = history_of(context, run_id if begun or go_no_go else "", inventory, playbook)
    retired = tuple(history.retired.values()) if history is not None else ()
    with open_site(context, inventory, "plan") as site:
        fresh_plan = plan.make(playbook, inventory, site.look, (), retired)
        inventory = playbook.without(inventory, [r.host for r in retired])
        if go_no_go:
            text = export.go_no_go(playbook, fresh_plan, inventory, site.look, history)
        else:
            text = export.runbook(playbook, fresh_plan, inventory, site.look, run_id, history, out)
    written = export.write(out, text, with_program=not go_no_go) if out is not None else ()
    if context.as_json:
        print_json(context, export.to_json(fresh_plan, text, written))
    elif written:
        context.out.write("".join(f"wrote {path}\n" for path in written))
        if fresh_plan.unknown:
            context.out.write("the page is incomplete and says what is missing: fix that, export again\n")
    else:
        context.out.write(text)
    return 8 if fresh_plan.unknown else 0
