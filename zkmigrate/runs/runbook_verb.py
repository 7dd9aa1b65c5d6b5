"""The verb runbook: the page to follow by hand, and the go/no-go page."""

from __future__ import annotations

from pathlib import Path

from zkmigrate.byhand import export
from zkmigrate.engine import plan, runs
from zkmigrate.runs.verb_context import Setting, print_json, reached, read, told


def show_runbook(setting: Setting, run_id: str, out: Path | None, *, go_no_go: bool) -> int:
    """Write the runbook by hand, or the go/no-go page; only looks.

    run_id: whose rehearsal's figures to use, and under whose id a hand goes on. out: the file, else standard
    output.
    """
    export.check_out(out)
    inventory, playbook = read(setting)
    begun = bool(run_id) and runs.has_begun(runs.directory(setting.runs, run_id))
    history = told(setting, run_id if begun or go_no_go else "", inventory, playbook)
    retired = tuple(history.retired.values()) if history is not None else ()
    with reached(setting, inventory, "plan") as site:
        made = plan.make(playbook, inventory, site.look, (), retired)
        inventory = playbook.without(inventory, [r.host for r in retired])
        if go_no_go:
            text = export.go_no_go(playbook, made, inventory, site.look, history)
        else:
            text = export.runbook(playbook, made, inventory, site.look, run_id, history, out)
    written = export.write(out, text, with_program=not go_no_go) if out is not None else ()
    if setting.as_json:
        print_json(setting, export.to_json(made, text, written))
    elif written:
        setting.out.write("".join(f"wrote {path}\n" for path in written))
        if made.unknown:
            setting.out.write("the page is not whole, it says what is missing: mend that, export again\n")
    else:
        setting.out.write(text)
    return 8 if made.unknown else 0
