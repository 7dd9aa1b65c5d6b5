"""The verbs ``replay list`` and ``replay apply`` for the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from zkmigrate import flags
from zkmigrate.disks.command import ssh_of

if TYPE_CHECKING:
    from zkmigrate.disks.replay import Looked, Looking

_RATE = 200.0


def _disks(verb: flags.F) -> flags.F:
    """The options that name the disks of both sides."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        flags.ssh("else your own", "else ~/.ssh/known_hosts"),
        flags.jute_maxbuffer,
        click.option(
            "--lines", type=click.IntRange(0), default=20, show_default=True, help="Transactions shown."
        ),
        click.option("--chroot", required=True, help="The subtree, such as /kafka."),
        click.option(
            "--dest-log-dir",
            "dest_log_dirs",
            multiple=True,
            metavar="DIR|HOST:DIR",
            help="Their dataLogDirs, in the same order, where they are others.",
        ),
        click.option(
            "--dest-dir",
            "dest_dirs",
            required=True,
            multiple=True,
            metavar="DIR|HOST:DIR",
            help="The dataDir of a dest host, its ZooKeeper stopped; once for each host.",
        ),
        click.option("--source-log-dir", metavar="DIR|HOST:DIR", help="Its dataLogDir, where it is another."),
        click.option("--source-dir", required=True, metavar="DIR|HOST:DIR", help="Of source's leader."),
    ):
        verb = option(verb)
    return verb


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The group of verbs. do: runs one to its exit code."""

    @click.group("replay")
    def replay() -> None:
        """Behind the open door: what dest has done that source lacks, and the same again on source."""

    @replay.command("list")
    @_disks
    def list_(**options: Any) -> None:
        """Say what a way back would lose, and whether it could be replayed. Writes nothing.

        Ends with 10 where a condition does not hold, 11 where one cannot be told.
        """
        do(lambda: _list(options))

    @replay.command("apply")
    @_disks
    @click.option(
        "--source",
        "servers",
        required=True,
        metavar="HOST[:PORT][,HOST...]",
        help="Source's servers, as clients name them.",
    )
    @click.option("--consent", required=True, metavar="NAME", help="Who owns source and agreed to this.")
    @click.option(
        "--rate",
        type=click.FloatRange(0),
        default=_RATE,
        show_default=True,
        metavar="N",
        help="Transactions a second, for the sake of source's other tenants; 0: as fast as it takes them.",
    )
    @flags.yes
    def apply(**options: Any) -> None:
        """Replay on source what dest did, with every broker down and dest's ZooKeeper stopped.

        Looks first, as `list` does, and begins only where every condition holds. Interrupted or refused it
        stands at a transaction; the same command goes on there. At the end both subtrees are compared.
        """
        do(lambda: _apply(options))

    made: click.Command = replay
    return made


@contextmanager
def _looking(options: dict[str, Any]) -> Iterator[Looking]:
    """The options as disks. Imports what reaches hosts only now."""
    from zkmigrate.disks.chroot import parse_chroot
    from zkmigrate.disks.place import reached
    from zkmigrate.disks.prove import Telling
    from zkmigrate.disks.replay import Looking
    from zkmigrate.disks.sides import distant, opened, paired
    from zkmigrate.zkdata.txnlog import MAX_RECORD

    chroot = parse_chroot(options["chroot"])
    pairs = paired(options)
    with reached(ssh_of(options) if distant(pairs) else None) as disks:
        yield Looking(
            lambda: [opened(disks, *pair) for pair in pairs],
            chroot,
            options["lines"],
            max(2 * (options["jute_maxbuffer"] + 1), MAX_RECORD),
            Telling(_hint),
        )


def _list(options: dict[str, Any]) -> int:
    from zkmigrate.disks.replaying import Outcome, body, text
    from zkmigrate.disks.tail import DiskError
    from zkmigrate.zkdata.errors import ZkDataError

    with _looking(options) as looking:
        try:
            outcome = Outcome(looking.look())
        except ZkDataError as error:
            raise DiskError(str(error)) from error
    click.echo(json.dumps(body(outcome)) if options["as_json"] else text(outcome, "source"))
    return outcome.code


def _apply(options: dict[str, Any]) -> int:
    from zkmigrate.clients.replay import Pace, ensemble
    from zkmigrate.disks.replaying import apply, body, text
    from zkmigrate.disks.servers import parse_servers
    from zkmigrate.disks.tail import DiskError
    from zkmigrate.errors import UsageError
    from zkmigrate.zkdata.errors import ZkDataError

    servers, below = parse_servers(options["servers"])
    if below != "/":
        raise UsageError(f"--source {options['servers']} ends in {below}. Needed: HOST[:PORT],... alone")
    if not options["consent"].strip():
        raise UsageError("--consent names nobody. Needed: who owns source and agreed")
    with _looking(options) as looking, ensemble(servers, looking.chroot) as source:
        try:
            outcome = apply(
                looking, source, options["consent"], Pace(options["rate"]), _confirmed(options["yes"]), _hint
            )
        except ZkDataError as error:
            raise DiskError(str(error)) from error
    click.echo(json.dumps(body(outcome)) if options["as_json"] else text(outcome, options["servers"]))
    return outcome.code or (130 if outcome.done is None else 0)


def _confirmed(yes: bool) -> Callable[[Looked], bool]:
    from zkmigrate.errors import UsageError

    def confirm(found: Looked) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError("nobody is at a terminal to be asked. Needed: --yes, once list says what it is")
        question = f"Replay {found.tally.transactions} transactions under {found.chroot} on source?"
        return click.confirm(question, err=True, default=False)

    return confirm


def _hint(line: str) -> None:
    """On standard error."""
    click.echo(line, err=True)
