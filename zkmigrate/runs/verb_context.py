"""What every verb is given and most of them open: inventory, playbook, hosts, the directory of a run."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from zkmigrate.engine import journal as journals
from zkmigrate.engine import runs
from zkmigrate.engine.apply import Apply
from zkmigrate.engine.clock import Clock, Interrupt
from zkmigrate.engine.history import Arrived, History
from zkmigrate.engine.lock import HostLock
from zkmigrate.engine.ports import WatchPort
from zkmigrate.engine.samples import Samples
from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Records
from zkmigrate.runs import playbook_files


class Site(Protocol):
    """The reachable world of one inventory and run; ``wiring.Site`` is the real one."""

    look: Look
    apply: Apply

    def lock(self, clock: Clock, playbook: Playbook, *, steal: bool) -> HostLock: ...
    def watch(self, clock: Clock, lock: HostLock) -> WatchPort: ...
    def sample(self, samples: Samples, playbook: Playbook) -> Callable[[], None]: ...
    def copies(self, clock: Clock, lock: HostLock) -> Callable[[bytes], Mapping[str, str]]: ...
    def window_lines(self, playbook: Playbook, records: Records) -> tuple[str, ...]: ...
    def close(self) -> None: ...


@dataclass
class Setting:
    """One call of the command line. site: how hosts are reached. interactive: somebody is at a terminal.
    verb: its name, for those who ask who works on a run."""

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


def read(setting: Setting) -> tuple[Inventory, Playbook]:
    """The inventory, in the shape of the playbook, and the playbook; InventoryError or UsageError for what
    cannot be read."""
    playbook = playbook_files.load(setting.playbook)
    return inventories.load(setting.inventory, playbook.inventory, playbook.sections), playbook


@contextlib.contextmanager
def reached(setting: Setting, inventory: Inventory, run: str) -> Iterator[Site]:
    """The hosts, for as long as the block lasts. run: its id.

    After a Ctrl-C that ends the process nothing is closed in order: a silent host would keep us.
    """
    site = setting.site(inventory, run)
    try:
        yield site
    except KeyboardInterrupt:
        raise
    except BaseException:
        site.close()
        raise
    site.close()


def existing(setting: Setting, run_id: str, inventory: Inventory, playbook: Playbook) -> Path:
    """The directory of a run that has begun; UsageError without one."""
    run_dir = directory(setting, run_id, inventory, playbook)
    if not runs.has_begun(run_dir):
        raise UsageError(f"no run {run_dir.name} in {setting.runs}. Next: --run-id of another")
    return run_dir


def directory(setting: Setting, run_id: str, inventory: Inventory, playbook: Playbook) -> Path:
    """Where the run of this id is or would be; without an id the open, else the newest of the inventory."""
    if run_id:
        return runs.directory(setting.runs, run_id)
    return setting.runs / runs.latest(setting.runs, inventory, playbook)


def told(setting: Setting, run_id: str, inventory: Inventory, playbook: Playbook) -> History | None:
    """What a run's journal tells; None without an id. StaleError for a run of another inventory."""
    if not run_id:
        return None
    history = journals.read(existing(setting, run_id, inventory, playbook))
    if history.binds:
        runs.check_same(history, playbook.id, inventories.digest(inventory))
    return history


def words_on(setting: Setting) -> str:
    """The options that name this inventory and playbook again, for a shell."""
    words = ["-i", str(setting.inventory)]
    if setting.playbook != playbook_files.DEFAULT:
        words += ["--playbook", setting.playbook]
    return shlex.join(words)


def onward_command(setting: Setting, history: History, playbook: Playbook) -> str:
    """The command by which an open run goes on.

    One that has walked back to where it was sent is turned forward by ``run``; any other goes on by
    ``resume``.
    """
    verb = "run" if isinstance(history.next(playbook), Arrived) else "resume"
    return f"zkmigrate {verb} {words_on(setting)} --run-id {history.run}"


def print_json(setting: Setting, body: dict[str, Any]) -> None:
    """One line of JSON, its keys in order."""
    setting.out.write(json.dumps(body, ensure_ascii=False, sort_keys=True) + "\n")
