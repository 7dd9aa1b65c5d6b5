"""Define options that several verbs share.

Every verb's ``--help`` imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zkmigrate.cli import command_log, removed
from zkmigrate.zookeeper.data.jute import JUTE_MAXBUFFER

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


def _shipped(_context: click.Context, _option: click.Parameter, playbook: str) -> str:
    """Return the playbook's name. Raises UsageError for one that was removed."""
    removed.refuse("--playbook", playbook)
    return playbook


def completed(kind: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Return a function that completes an option's value with words of a kind.

    kind: a key of ``_KINDS`` in ``zkmigrate.cli.completion``.
    """

    def complete(context: click.Context, _option: click.Parameter, incomplete: str) -> list[Any]:
        from zkmigrate.cli import completion

        return completion.words(kind, context.params, incomplete)

    return complete


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine several options into one decorator that keeps their order in ``--help``."""

    def added(verb: F) -> F:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return added


def which_run(text: str) -> Callable[[F], F]:
    """Return the option ``--run-id`` with the help text of one verb."""
    return click.option("--run-id", shell_complete=completed("runs"), default="", help=text)


def named(option: str, kind: str, metavar: str, text: str) -> Callable[[F], F]:
    """Return an option with a text value that is completed with words of this kind."""
    return click.option(option, shell_complete=completed(kind), default="", metavar=metavar, help=text)


def many(option: str, name: str, metavar: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """Return a repeatable option."""
    help_text = f"{text} Repeatable."
    return click.option(option, name, multiple=True, required=required, metavar=metavar, help=help_text)


def number(
    option: str, name: str, metavar: str, text: str, default: int, *, least: int = 1, most: int | None = None
) -> Callable[[F], F]:
    """Return an option with a whole number from ``least`` to ``most`` as its value."""
    kind = click.IntRange(least, most)
    return click.option(
        option, name, type=kind, default=default, show_default=True, metavar=metavar, help=text
    )


def switch(*names: str, text: str, envvar: str | None = None) -> Callable[[F], F]:
    """Return a boolean option that also takes a value: ``--force``, ``--force=true``, ``--force=false``."""
    return click.option(
        *names, is_flag=False, flag_value="true", type=click.BOOL, default=False, metavar="[=false]",
        envvar=envvar, show_envvar=bool(envvar), help=text,
    )  # fmt: skip


class _Decimal(click.FloatRange):
    """A number within bounds.

    click's own type accepts nan, because nan is neither below nor above a bound.
    """

    name = "number"

    def __init__(self, least: float, most: float, *, or_zero: bool) -> None:
        super().__init__(least, most)
        self.or_zero = or_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises BadParameter for other text and for a number out of bounds."""
        if self.or_zero and click.FLOAT.convert(value, param, ctx) == 0:
            return 0.0
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not a number in the range {self._describe_range()}.", param, ctx)
        return found


def decimal(least: float, most: float, *, or_zero: bool = False) -> click.FloatRange:
    """Return the type of an option with a number from ``least`` to ``most`` as its value.

    or_zero: whether 0 is allowed too. Every option with such a number uses this type. ``most`` keeps results
    finite, and ``least`` keeps a rate from causing endless waits.
    """
    return _Decimal(least, most, or_zero=or_zero)


client: Callable[[F], F] = click.option(
    "--client",
    type=FILE,
    help="A migration.yml whose zookeeper.client says how to log in to ZooKeeper.",
)
"""The option ``--client``, for verbs that connect to servers of ZooKeeper without an inventory."""


def credentials(options: dict[str, Any]) -> Any:
    """Return how to log in to ZooKeeper, from the file of ``--client``.

    Raises InventoryError and SecretError.
    """
    from zkmigrate.credentials import check
    from zkmigrate.inventory.inventory import Inventory, load
    from zkmigrate.zookeeper.clients.login import OPEN, credentials_of

    if options["client"] is None:
        return OPEN
    inventory = load(options["client"], Inventory, ())
    check(inventory.zookeeper)
    return credentials_of(inventory)


common: Callable[[F], F] = together(
    click.option(
        "--inventory",
        "-i",
        type=FILE,
        default=Path("migration.yml"),
        show_default=True,
        help="Inventory file.",
    ),
    click.option(
        "--playbook",
        shell_complete=completed("playbooks"),
        default="kafka_zookeeper_move",
        show_default=True,
        callback=_shipped,
        help="Name, or a .py file.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print JSON. run, resume and rollback print one event per line.",
    ),
    click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=command_log.verbose,
        help="Also print each command to a host and its answer, without contents and secrets.",
    ),
    click.option(
        "--log-file", type=FILE, expose_value=False, callback=command_log.log_file,
        help="Append each command to a host and its answer to this file, with times.",
    ),
    click.option(
        "--no-color", is_flag=True, expose_value=False, callback=command_log.no_color,
        help="Print no colours; NO_COLOR=1 does the same.",
    ),
)  # fmt: skip
"""The options of every verb that reads an inventory."""

run_id = which_run("Default: the open run of the inventory, or else its newest. run begins a new one.")
yes = click.option("--yes", is_flag=True, help="Do not prompt. Required without a terminal.")
steal = click.option("--steal", is_flag=True, help="Take over the lock of a process that no longer runs.")
metrics = click.option(
    "--metrics", type=FILE, help="Keep this *.prom file up to date for Prometheus' node exporter."
)
walking: Callable[[F], F] = together(
    run_id,
    yes,
    named(
        "--until",
        "steps",
        "STEP|TIME",
        "Stop after this stage or stage.step, such as roll. Or at this time, 06:00 or "
        "2026-11-26T06:00+01:00, before the next wave, once moves in flight are done.",
    ),
    click.option(
        "--skip",
        shell_complete=completed("skippable"),
        multiple=True,
        metavar="STAGE",
        help="Skip an optional stage: rehearse. Without it dest is untested and the length of the window "
        "is unknown.",
    ),
    steal,
    metrics,
)
"""The options of a verb that walks a run forward."""

jute_maxbuffer = number(
    "--jute-maxbuffer",
    "jute_maxbuffer",
    "BYTES",
    "The servers' jute.maxbuffer. A record may be twice as large.",
    JUTE_MAXBUFFER,
    most=1 << 30,
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
only = click.option(
    "--only",
    default="",
    metavar="NAMES",
    help="With the chroot /: the znodes directly below it, such as kafka,schema; kafka means Kafka's own.",
)
chroot: Callable[[F], F] = together(
    click.option("--chroot", default="/", show_default=True, help="The subtree, such as /kafka."), only
)
log_dir = click.option(
    "--log-dir", metavar="DIR|HOST:DIR", help="The dataLogDir, if it differs from the dataDir."
)
zxid = click.option(
    "--zxid", metavar="0xHEX", help="Compare the trees at this zxid. Default: the newest that both have."
)
on_dest = many(
    "--on-dest",
    "on_dest",
    "0xSESSION",
    "A session that is a client of dest and may therefore expire on source.",
)
both_sides: Callable[[F], F] = together(
    click.option("--source-dir", required=True, metavar="DIR|HOST:DIR", help="A dataDir of source's leader."),
    click.option(
        "--source-log-dir",
        metavar="DIR|HOST:DIR",
        help="The leader's dataLogDir, if it differs from the dataDir.",
    ),
    many("--dest-dir", "dest_dirs", "DIR|HOST:DIR", "The dataDir of each dest host.", required=True),
    many(
        "--dest-log-dir",
        "dest_log_dirs",
        "DIR|HOST:DIR",
        "The dest hosts' dataLogDirs, if they differ from the dataDirs, in the same order.",
    ),
)
"""The options for the data directories of source and dest."""


def ssh(account: str = "your own", pins: str = "~/.ssh/known_hosts") -> Callable[[F], F]:
    """Return the options that say how to reach hosts without an inventory.

    account, pins: the defaults of ``--ssh-user`` and ``--known-hosts``, in words for the help text.
    """
    return together(
        click.option("--ssh-user", default="", help=f"Account on all hosts. Default: {account}."),
        click.option("--ssh-port", type=click.IntRange(1, 65535), help="Port of their sshd."),
        click.option("--ssh-key", type=FILE, help="Private key. Default: one in ~/.ssh."),
        click.option("--known-hosts", type=FILE, help=f"File of pinned host keys. Default: {pins}."),
        click.option("--ssh-config", type=FILE, help="An ssh_config to apply."),
        click.option(
            "--bastion", default="", metavar="[USER@]HOST[:PORT],…", help="Jump hosts, the nearest first."
        ),
    )


def hint(line: str) -> None:
    """Print a line to standard error."""
    click.echo(line, err=True)
