"""Run the verbs of the command line: build what they need, and end with their exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from zkmigrate.errors import LostJournalError, ZkmigrateError
from zkmigrate.json_stamp import stamped

if TYPE_CHECKING:
    from zkmigrate.runbook.runs.run_options import RunOptions
    from zkmigrate.runbook.runs.verb_context import VerbContext

_READER_CLOSED = 128 + signal.SIGPIPE
"""The exit code that a shell shows for a program that SIGPIPE ended."""
_EVENT_VERBS = ("run", "resume", "rollback")
"""The verbs that print events."""


def announce(verb: str, options: dict[str, Any]) -> None:
    """Print on a terminal that the verb has started, because imports and silent hosts take time."""
    if sys.stderr.isatty() and not options["as_json"]:
        click.echo(f"zkmigrate {verb} started; press Ctrl-C to stop it", err=True)


def context_of(options: dict[str, Any]) -> VerbContext:
    from zkmigrate.runbook.engine import runs
    from zkmigrate.runbook.runs import verb_context

    override = click.get_current_context().obj
    return verb_context.VerbContext(
        inventory=options["inventory"],
        playbook=options["playbook"],
        as_json=options["as_json"],
        runs=runs.base(os.environ),
        site=override or partial(_real_site, options["playbook"]),
        interactive=sys.stdin.isatty() and sys.stdout.isatty(),
        verb=click.get_current_context().command.name or "",
    )


def _real_site(playbook: str, inventory: Any, run_id: str) -> Any:
    from zkmigrate.runbook.runs import playbook_files
    from zkmigrate.runbook.site.wiring import Site  # paramiko and the clients are slow to import

    return Site(inventory, run_id, playbook_files.load(playbook).clusters)


def run_options(options: dict[str, Any]) -> RunOptions:
    from zkmigrate.runbook.runs.run_options import RunOptions

    names = ("yes", "run_id", "until", "skip", "to", "plan", "steal", "journal_lost", "metrics")
    return RunOptions(**{name: options[name] for name in names if options.get(name) is not None})


def do(verb: Callable[[], int]) -> None:
    """Run a verb and exit with its code. A known failure is shown as its message, without a traceback."""
    try:
        code = verb()
    except LostJournalError as error:
        code = _fail(error.told(_inventory_options()), error.exit_code)
    except ZkmigrateError as error:
        code = _fail(str(error), error.exit_code)
    except OSError as error:  # an error of this machine; errors of hosts are ZkmigrateError
        walks = click.get_current_context().command.name in _EVENT_VERBS
        if isinstance(error, BrokenPipeError) and not walks:
            # The reader, such as head, has closed the pipe. Discard the output that is still buffered.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = _READER_CLOSED
        else:
            code = _fail(f"{error}. Next: fix it on this machine, then run the same command again", 8)
    click.get_current_context().exit(code)


def _inventory_options() -> str:
    """Return the options of this call that name inventory and playbook, quoted for a shell."""
    from zkmigrate.runbook.runs.verb_context import inventory_options

    given = click.get_current_context().params
    return inventory_options(context_of(given)) if "inventory" in given and "playbook" in given else ""


def _fail(message: str, code: int) -> int:
    """Print why a verb failed, and return its code.

    With ``--json`` the reason is also printed as JSON on standard output: for a verb that prints events, as
    the event RunEnded.
    """
    context = click.get_current_context()
    click.echo(f"zkmigrate: {message}", err=True)
    if context.params.get("as_json"):
        body: dict[str, Any] = {"code": code, "error": message}
        if context.command.name in _EVENT_VERBS:
            body = {"at": round(time.time(), 3), "event": "RunEnded"}
            body |= {"code": code, "message": message, "findings": []}
        with contextlib.suppress(OSError):  # the reader has closed the pipe
            click.echo(json.dumps(stamped(body), ensure_ascii=False))
    return code
