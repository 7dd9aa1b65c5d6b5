"""Writes the runbook by hand, and beside it the program for the hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from zkmigrate.clean import clean
from zkmigrate.errors import UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.byhand import go_no_go as go_no_go_page
from zkmigrate.runbook.byhand import page
from zkmigrate.runbook.engine import planfile
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.plan import Plan
from zkmigrate.runbook.model import by_hand
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Context

NAME = "runbook.md"


def runbook(
    playbook: Playbook,
    plan: Plan,
    inventory: Inventory,
    look: Look,
    run: str,
    history: History | None,
    out: Path | None,
) -> str:
    """The page. run: the id to work under, empty for a new one. history: of that run if the tool has begun
    it; the page then holds the way back of what is done."""
    done = {}
    if history is not None:
        for step in playbook.step_ids():
            done[step] = {target: history.applied(step, target) for target in history.touched(step)}
    book = page.Runbook(
        playbook=playbook,
        plan=plan,
        digest=planfile.from_plan(plan).digest,
        inventory=inventory,
        run=run or f"{inventory.name[:19]}-hand",
        records=history.records() if history is not None else {},
        last=last_targets(playbook, inventory, look),
        name=out.name if out is not None else NAME,
        done=done,
    )
    return clean(page.page(book))


def go_no_go(
    playbook: Playbook, plan: Plan, inventory: Inventory, look: Look, history: History | None
) -> str:
    """The page to sign. history: of the run that was rehearsed, if any. UsageError for a playbook without
    such a page."""
    content = playbook.manual.go_no_go
    if content is None:
        raise UsageError(f"{playbook.id} has no go/no-go page. Next: zkmigrate runbook without --go-no-go")
    run, records = (history.run, history.records()) if history is not None else ("", {})
    c = Context(run or "plan", inventory, records=records)
    return clean(go_no_go_page.page(content, c, look, planfile.from_plan(plan).digest, run, plan.window))


def last_targets(playbook: Playbook, inventory: Inventory, look: Look) -> dict[str, str]:
    """``stage.step`` → the target that goes last, for the steps that name one."""
    steps = zip(playbook.step_ids(), (step for stage in playbook.stages for step in stage.steps), strict=True)
    found = {name: by_hand.of(step).last(inventory, look) for name, step in steps}
    return {name: target for name, target in found.items() if target}


def to_json(plan: Plan, text: str, written: tuple[Path, ...]) -> dict[str, Any]:
    """The output of ``--json``."""
    return {
        "digest": planfile.from_plan(plan).digest,
        "unknown": dict(plan.unknown),
        "page": text,
        "blocks": list(blocks(text)),
        "written": [str(path) for path in written],
    }


def check_out(out: Path | None) -> None:
    """UsageError for a file that cannot be written; checked before a host is asked."""
    if out is None:
        return
    if not out.parent.is_dir() or out.is_dir():
        raise UsageError(f"--out {out}: needed is a file in a directory that exists. Nothing was written")
    if out.name == "zkm-host":
        raise UsageError("--out zkm-host: the program of that name is written beside the page")


def write(out: Path, text: str, *, with_program: bool) -> tuple[Path, ...]:
    """Write the page, and ``zkm-host`` beside it, each atomically; returns the paths."""
    files = [(out, text.encode(), 0o644)]
    if with_program:
        files.append((out.parent / "zkm-host", zkm_host.program(), 0o755))
    for path, content, mode in files:
        _write_atomically(path, content, mode)
    return tuple(path for path, _, _ in files)


def _write_atomically(path: Path, content: bytes, mode: int) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.chmod(mode)
        fresh.replace(path)
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()


def blocks(text: str) -> Iterator[dict[str, str]]:
    """The fenced blocks of a page, in order: ``host``, ``step``, ``way`` and ``text``."""
    info: dict[str, str] = {}
    inside: list[str] | None = None
    for line in text.splitlines():
        if inside is None and line.startswith("```sh "):
            info = dict(word.split("=", 1) for word in line.split()[1:])
            inside = []
        elif inside is not None and line == "```":
            yield {**info, "text": "\n".join(inside)}
            inside = None
        elif inside is not None:
            inside.append(line)
