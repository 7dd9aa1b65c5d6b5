"""A change as the line that is typed for it: the words that the engine sends, over plain ssh.

Verb, operation id and arguments are the change's own (``model/change.py``), as ``engine/apply.py`` sends
them. Three kinds of words differ, because they are known only later or do not belong on a page: shell
variables stand for the fencing number, the hand's lease and what STOP read; file contents come from a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from zkmigrate.engine.apply import operation_id
from zkmigrate.engine.plan import RUN, command, own_command
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.transport import quote
from zkmigrate.model.change import (
    Applied,
    Arm,
    Change,
    Changes,
    ClusterChange,
    Cut,
    Fence,
    Go,
    HostChange,
    PutFile,
    Seal,
    SetService,
)
from zkmigrate.model.step import Way

_LEG = 4_000_000_000
"""Stands for the leg in an operation id, with as many digits as seconds since the epoch have."""


@dataclass(frozen=True)
class Place:
    """Where a command stands: run, ``stage.step`` and direction.

    alone: the host, where hosts are changed one after the other and each has a leg of its own.
    """

    run: str
    step: str
    way: Way
    alone: str = ""

    def operation(self, target: str, number: int) -> str:
        """The operation's id; ``$LEG`` is set when the block is run."""
        return operation_id(self.step, target, self.way, _LEG, number).replace(str(_LEG), "$LEG")

    @property
    def leg(self) -> str:
        """Variable that remembers the leg of this step's changes, so that they can be undone by id."""
        name = f"{self.step}.{self.alone}" if self.alone else self.step
        return "LEG_" + re.sub(r"[^A-Za-z0-9]", "_", name)


def said(change: HostChange, way: Way = Way.FORWARD) -> str:
    """What the host answers, as an extended regular expression."""
    spared = change.spared if way is Way.BACK else ""
    return f"{change.expect}|{spared}" if spared else change.expect


def in_words(pattern: str) -> str:
    """A pattern of :func:`said` for a reader: its first alternative, without what only a pattern needs."""
    first, _, refused = pattern.partition("$|")
    text = first.removeprefix("^").removesuffix("$").replace("\\", "").replace("[0-9]+", "N")
    return f"`{text.strip()}`" + (", or that it never came so far" if refused or "refused" in pattern else "")


def zkm(place: Place, host: str, *words: str, fenced: bool = True) -> str:
    """``at HOST sudo zkm-host …`` with these words; fenced: with the operator's fencing number."""
    number = ("--as", "$N") if fenced else ()
    return " ".join(("at", host, "sudo", "-n", zkm_host.INSTALLED_PATH, "--run", place.run, *number, *words))


def line(place: Place, change: Change, operation: str, file: str = "", digest: str = "") -> str:
    """The line for one change; for a cluster change that of the cluster's own tool.

    file: local file that holds the content of a ``put`` or the spec of an ``arm``. digest: shell words for a
    content's digest where the page cannot know it. UsageError for words that the tool would not send either.
    """
    if isinstance(change, ClusterChange):
        return command(change)
    quote.plain([word.replace("$LEG", "") for word in change.arguments()])
    words = zkm(place, change.host, change.verb, operation, *_arguments(place, change, file, digest))
    return words.replace("at ", f"give {file} ", 1) if isinstance(change, PutFile) else words


def _arguments(place: Place, change: HostChange, file: str, digest: str) -> tuple[str, ...]:
    words = change.arguments()
    match change:
        case PutFile():
            path, mode, owner, known, _ = words
            return (in_run(path, place.run), mode, owner, digest or known, "-")
        case Arm():
            return (f'"$(base64 -w0 <{file})"',)
        case Fence():
            return ("$FENCE_MS",)
        case Cut():
            return ("$CUT_MS",)
        case Seal():
            stamp = f"{change.host}.stamp"
            return (f'"$(value {stamp} boot_id)"', f'"$(value {stamp} stamp)"')
        case Go():
            return (*words[:-1], "$OPEN_MS")
        case SetService() if change.commands:
            return (change.unit, change.action, *(own_command(text) for text in change.commands))
        case _:
            return words


def in_run(path: str, run: str) -> str:
    """A path of the plan, with the run's own id for the word that stands for it."""
    return path.replace(f"/zkmigrate/{RUN}/", f"/zkmigrate/{run}/")


def applied(place: Place, target: str, changes: Changes) -> tuple[Applied, ...]:
    """The planned changes as the journal would know them, under the ids that the page gives them."""
    remembered = replace(place, way=Way.FORWARD)
    return tuple(
        Applied(change, remembered.operation(target, number).replace("$LEG", f"${place.leg}"), True)
        for number, change in enumerate(changes, 1)
    )
