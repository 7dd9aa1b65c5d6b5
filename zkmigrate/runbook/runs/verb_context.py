"""Provide what most verbs need: the call's options, inventory, playbook, hosts, and the run's directory."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.engine import journal as journals
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.engine.apply import Apply
from zkmigrate.runbook.engine.clock import Clock, Interrupt
from zkmigrate.runbook.engine.history import Arrived, History
from zkmigrate.runbook.engine.lock import HostLock
from zkmigrate.runbook.engine.ports import WatchPort
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Records
from zkmigrate.runbook.runs import playbook_files, run_options
from zkmigrate.runbook.runs.run_options import RunOptions


class Site(Protocol):
    """The connections to the hosts of one inventory and run; ``wiring.Site`` is the real one."""

    look: Look
    apply: Apply

    def lock(self, clock: Clock, playbook: Playbook, *, steal: bool) -> HostLock: ...
    def watch(self, clock: Clock, lock: HostLock) -> WatchPort: ...
    def sample(self, samples: Samples, playbook: Playbook) -> Callable[[], None]: ...
    def copies(
        self, clock: Clock, lock: HostLock, recovered: Callable[[], bool]
    ) -> Callable[[bytes], Mapping[str, str]]: ...
    def window_lines(self, playbook: Playbook, records: Records) -> tuple[str, ...]: ...
    def close(self) -> None: ...


@dataclass
class VerbContext:
    """One call of the command line.

    site: connects to the hosts. interactive: whether a person sits at a terminal. verb: the name of the verb,
    which ``status`` shows.
    """

    inventory: Path
    playbook: str
    as_json: bool
    runs: Path
    site: Callable[[Inventory, str], Site]
    out: TextIO = field(default_factory=lambda: sys.stdout)
    stdin: int = 0
    interactive: bool = False
    verb: str = ""
    interrupt: Interrupt = field(default_factory=Interrupt)


def load(context: VerbContext) -> tuple[Inventory, Playbook]:
    """Return the inventory, checked for this playbook, and the playbook.

    Raises InventoryError or UsageError.
    """
    playbook = playbook_files.load(context.playbook)
    return inventories.load(context.inventory, playbook.inventory, playbook.sections), playbook


@contextlib.contextmanager
def open_site(context: VerbContext, inventory: Inventory, run: str) -> Iterator[Site]:
    """Connect to the hosts, and close the connections after the block.

    run: the id of the run. After a Ctrl-C the connections are not closed: the process ends, and a silent host
    would delay it.
    """
    site = context.site(inventory, run)
    try:
        yield site
    except KeyboardInterrupt:
        raise
    except BaseException:
        site.close()
        raise
    site.close()


def existing_run_dir(context: VerbContext, run_id: str, inventory: Inventory, playbook: Playbook) -> Path:
    """Return the directory of a run that has begun, chosen as in ``run_dir_of``.

    Raises UsageError if the run has not begun.
    """
    run_dir = run_dir_of(context, run_id, inventory, playbook)
    if not runs.has_begun(run_dir):
        known = runs.known_ids(context.runs)
        there = f"it has {', '.join(known)}. Next: name one with --run-id" if known else "it has none"
        raise UsageError(f"no run {run_dir.name} in {context.runs}; {there}")
    return run_dir


def run_dir_of(context: VerbContext, run_id: str, inventory: Inventory, playbook: Playbook) -> Path:
    """Return the directory of the run with this id; without an id, of the inventory's open or newest run."""
    if run_id:
        return runs.directory(context.runs, run_id)
    return context.runs / runs.latest(context.runs, inventory, playbook)


def history_of(context: VerbContext, run_id: str, inventory: Inventory, playbook: Playbook) -> History | None:
    """Read the history of a run from its journal; return None without an id.

    Raises StaleError for a run that changed hosts with another inventory or playbook.
    """
    if not run_id:
        return None
    history = journals.read(existing_run_dir(context, run_id, inventory, playbook))
    if history.binds:
        runs.check_same(history, playbook.id, inventories.digest(inventory))
    return history


def inventory_options(context: VerbContext) -> str:
    """Return the options that name this inventory and playbook, quoted for a shell."""
    words = ["-i", str(context.inventory)]
    if context.playbook != playbook_files.DEFAULT:
        words += ["--playbook", context.playbook]
    return shlex.join(words)


def next_command(
    context: VerbContext,
    history: History,
    playbook: Playbook,
    options: RunOptions | None = None,
) -> str:
    """Return the command that continues an open run: ``run`` after a finished way back, else ``resume``.

    options: the options of the newest call; the command repeats those that are still needed. Without them
    they are read from the run's directory.
    """
    verb = "run" if isinstance(history.next(playbook), Arrived) else "resume"
    if options is None:
        options = run_options.kept_in(runs.directory(context.runs, history.run))
    again = run_options.still_needed(options, history, playbook, time.time())
    return f"zkmigrate {verb} {inventory_options(context)} --run-id {history.run} {again}".rstrip()


def heading(history: History, playbook: Playbook) -> str:
    """Return the direction of ``next_command``: "forward", or for example "back to the start of roll"."""
    return "forward" if isinstance(history.next(playbook), Arrived) else history.heading


def remark(onward: str, command: str) -> str:
    """Return a warning that a command runs every remaining stage.

    It is empty for a command with ``--until`` and on the way back. onward: the direction, from ``heading``.
    """
    if onward != "forward" or "--until" in shlex.split(command):
        return ""
    return "That command runs every remaining stage. Add --until STAGE to stop earlier."


def print_json(context: VerbContext, body: dict[str, Any]) -> None:
    """Print one line of JSON with sorted keys."""
    context.out.write(json.dumps(stamped(body), ensure_ascii=False, sort_keys=True) + "\n")


def print_result(context: VerbContext, body: dict[str, Any], lines: list[str]) -> None:
    """Print the result as JSON with ``--json``, else as lines."""
    if context.as_json:
        print_json(context, body)
    else:
        context.out.write("".join(f"{line}\n" for line in lines))
