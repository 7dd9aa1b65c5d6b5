"""Write the page of commands for a person, or the go/no-go page: the verb ``runbook``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from zkmigrate.clean import clean
from zkmigrate.errors import UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.runbook.engine import plan, planfile, runs
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.runs.verb_context import VerbContext, history_of, load, open_site, print_json
from zkmigrate.runbook.ui import runbook_page
from zkmigrate.runbook.ui.runbook_page import Block, Runbook


def show_runbook(context: VerbContext, run_id: str, out: Path | None, *, go_no_go: bool) -> int:
    """Write the page. Hosts and clusters are only read.

    run_id: the page uses the records and the id of this run. out: the file; None for standard output. Raises
    UsageError for a file that cannot be written, and for a playbook without a go/no-go page.
    """
    _check_out(out)
    inventory, playbook = load(context)
    if go_no_go and playbook.go_no_go is None:
        raise UsageError(f"{playbook.id} has no go/no-go page. Next: zkmigrate runbook without --go-no-go")
    begun = bool(run_id) and runs.has_begun(runs.directory(context.runs, run_id))
    history = history_of(context, run_id if begun or go_no_go else "", inventory, playbook)
    retired = tuple(history.retired.values()) if history is not None else ()
    parts: tuple[str | Block, ...] = ()
    with open_site(context, inventory, "plan") as site:
        made = plan.make(playbook, inventory, site.look, (), retired)
        digest = planfile.from_plan(made).digest
        inventory = playbook.without(inventory, [r.host for r in retired])
        if playbook.go_no_go is not None and go_no_go:
            run, records = (history.run, history.records()) if history is not None else ("", {})
            c = Context(run or "plan", inventory, records=records)
            text = clean(playbook.go_no_go(c, site.look, digest, run, made.window))
        else:
            run = run_id or f"{inventory.name[:19]}-hand"
            leg = int(site.look.wall())
            parts = Runbook(playbook, made, inventory, run, leg, history).parts()
            text = runbook_page.text(parts)
    written = _write(out, text, with_program=not go_no_go) if out is not None else ()
    if context.as_json:
        blocks = [part.to_json() for part in parts if isinstance(part, Block)]
        body = {"digest": digest, "unknown": dict(made.unknown), "page": text, "blocks": blocks}
        print_json(context, {**body, "written": [str(path) for path in written]})
    elif written:
        context.out.write("".join(f"wrote {path}\n" for path in written))
        if made.unknown:
            context.out.write(
                "the page is incomplete and names what is missing: fix that, then write the page again\n"
            )
    else:
        context.out.write(text)
    return 8 if made.unknown else 0


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    if not out.parent.is_dir() or out.is_dir():
        raise UsageError(
            f"cannot write --out {out}; needed: a file in an existing directory. Nothing was written"
        )
    if out.name == "zkm-host":
        raise UsageError("--out cannot be named zkm-host: the program zkm-host is written beside the page")


def _write(out: Path, text: str, *, with_program: bool) -> tuple[Path, ...]:
    """Write the page, and ``zkm-host`` beside it, each atomically. Return the paths."""
    files = [(out, text.encode(), 0o644)]
    if with_program:
        files.append((out.parent / "zkm-host", zkm_host.program(), 0o755))
    for path, content, mode in files:
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            fresh.write_bytes(content)
            fresh.chmod(mode)
            fresh.replace(path)
        finally:
            with suppress(FileNotFoundError):
                fresh.unlink()
    return tuple(path for path, _, _ in files)
