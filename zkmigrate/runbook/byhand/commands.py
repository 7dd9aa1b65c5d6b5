"""A change as a command line: the words that the engine sends, over plain ssh.

Verb, operation id and arguments are those of ``runbook/model/change.py``, as ``runbook/engine/apply.py``
sends them. Two kinds of words differ: shell variables stand for values known later (fencing number, lease,
what STOP read), and file contents come from a local file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from zkmigrate.errors import UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.transport import quote
from zkmigrate.inventory.inventory import GatewayProgram
from zkmigrate.runbook.engine.change_lines import operation_id
from zkmigrate.runbook.engine.plan import RUN, command, own_command
from zkmigrate.runbook.model.change import (
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
from zkmigrate.runbook.model.step import Way
from zkmigrate.topics.gateway.order import GatewayOrder

_REFUSED = re.compile(r"\|[a-z-]+ is refused")
"""Where the refusals begin that a reply may be on the way back."""

_LEG = 4_000_000_000
"""A placeholder for the leg in an operation id; it has as many digits as seconds since the epoch."""


@dataclass(frozen=True)
class Position:
    """The run, ``stage.step`` and direction of a command.

    host: set where hosts are changed one after the other, each with its own leg. gateway: zkmigrate on the
    gateways' hosts; None without gateways.
    """

    run: str
    step: str
    way: Way
    host: str = ""
    gateway: GatewayProgram | None = None

    def operation(self, target: str, number: int) -> str:
        """The operation's id; the shell sets ``$LEG``."""
        return operation_id(self.step, target, self.way, _LEG, number).replace(str(_LEG), "$LEG")

    @property
    def leg(self) -> str:
        """The shell variable that keeps the leg of this step, to undo its changes by id."""
        name = f"{self.step}.{self.host}" if self.host else self.step
        return "LEG_" + re.sub(r"[^A-Za-z0-9]", "_", name)


def reply_pattern(change: HostChange, way: Way = Way.FORWARD) -> str:
    """The reply of the host, as an extended regular expression."""
    spared = change.spared if way is Way.BACK else ""
    return f"{change.expect}|{spared}" if spared else change.expect


def readable(pattern: str) -> str:
    """A reply pattern for a reader: each reply that it allows, without the regular expression's marks."""
    said, *refused = _REFUSED.split(pattern, maxsplit=1)
    text = said.removeprefix("^").removesuffix("$").replace("\\", "").replace("[0-9]+", "N").strip()
    before, _, rest = text.partition("(")
    words, _, after = rest.partition(")")
    replies = " or ".join(f"`{before}{word}{after}`" for word in words.split("|"))
    return replies + (", or that it never came so far" if refused else "")


def zkm(position: Position, host: str, *words: str, fenced: bool = True) -> str:
    """The line ``at HOST sudo zkm-host …``. fenced: with the operator's fencing number."""
    number = ("--as", "$N") if fenced else ()
    return " ".join(
        ("at", host, "sudo", "-n", zkm_host.INSTALLED_PATH, "--run", position.run, *number, *words)
    )


def command_line(position: Position, change: Change, operation: str, file: str = "", digest: str = "") -> str:
    """The command line of one change; of a cluster change that of the cluster's own tool.

    file: local file with the content of a ``put`` or the spec of an ``arm``. digest: shell words for a digest
    that the page cannot know. UsageError for words that the engine would not send either.
    """
    if isinstance(change, ClusterChange):
        return command(change)
    quote.plain([word.replace("$LEG", "") for word in change.arguments()])
    if isinstance(change, GatewayOrder):
        return _to_gateway(position, change, operation)
    words = zkm(position, change.host, change.verb, operation, *_arguments(position, change, file, digest))
    return words.replace("at ", f"give {file} ", 1) if isinstance(change, PutFile) else words


def _to_gateway(position: Position, change: GatewayOrder, operation: str) -> str:
    """Its operation id is the one that the gateway's relay makes of the run's."""
    if position.gateway is None:
        raise UsageError(f"{change.host}: the inventory names no gateway, needed: how zkmigrate starts there")
    order = (*position.gateway.verb(change.verb), "--as", "$N", change.order, f"{position.run}.{operation}")
    return " ".join(("at", change.host, *order, change.app, *change.options()))


def _arguments(position: Position, change: HostChange, file: str, digest: str) -> tuple[str, ...]:
    words = change.arguments()
    match change:
        case PutFile():
            path, mode, owner, known, _ = words
            return (with_run_id(path, position.run), mode, owner, digest or known, "-")
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


def with_run_id(path: str, run: str) -> str:
    """A path of the plan with the run's id instead of its placeholder."""
    return path.replace(f"/zkmigrate/{RUN}/", f"/zkmigrate/{run}/")


def as_applied(position: Position, target: str, changes: Changes) -> tuple[Applied, ...]:
    """The planned changes as journaled ones, under the page's operation ids."""
    forward = replace(position, way=Way.FORWARD)
    return tuple(
        Applied(change, forward.operation(target, number).replace("$LEG", f"${position.leg}"), True)
        for number, change in enumerate(changes, 1)
    )
