"""The verb ``replay list`` for the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.zxid import ssh_of

if TYPE_CHECKING:
    from zkmigrate.moves.facts.replay import Looking


def _disks(verb: flags.F) -> flags.F:
    """The options that name the disks of both sides."""
    for option in (
        flags.as_json,
        flags.ssh("else your own", "else ~/.ssh/known_hosts"),
        flags.jute_maxbuffer,
        click.option(
            "--lines", type=click.IntRange(0), default=20, show_default=True, help="Transactions shown."
        ),
        click.option("--chroot", required=True, help="The subtree, such as /kafka."),
        flags.dest_log_dirs,
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
        """Behind the open door: what dest has done that source lacks."""

    @replay.command("list")
    @_disks
    def list_(**options: Any) -> None:
        """Say what a way back would lose, and whether it could be replayed. Writes nothing.

        Ends with 10 where a condition does not hold, 11 where one cannot be told. The playbook
        kafka_zookeeper_return replays it.
        """
        do(lambda: _list(options))

    made: click.Command = replay
    return made


@contextmanager
def _looking(options: dict[str, Any]) -> Iterator[Looking]:
    """The options as disks. Imports what reaches hosts only now."""
    from zkmigrate.moves.facts.replay import Looking
    from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
    from zkmigrate.zookeeper.disks.chroot import parse_chroot
    from zkmigrate.zookeeper.disks.location import any_remote, open_disks, open_side, parse_pairs
    from zkmigrate.zookeeper.disks.progress import ProgressLines

    chroot = parse_chroot(options["chroot"])
    pairs = parse_pairs(options)
    with open_disks(ssh_of(options) if any_remote(pairs) else None) as disks:
        yield Looking(
            lambda: [open_side(disks, *pair) for pair in pairs],
            chroot,
            options["lines"],
            max(2 * (options["jute_maxbuffer"] + 1), MAX_RECORD),
            ProgressLines(flags.hint).of,
        )


def _list(options: dict[str, Any]) -> int:
    from zkmigrate.moves.verbs.replaying import body, code, text
    from zkmigrate.zookeeper.data.errors import ZkDataError
    from zkmigrate.zookeeper.disks.location import DiskError

    with _looking(options) as looking:
        try:
            found = looking.look()
        except ZkDataError as error:
            raise DiskError(str(error)) from error
    click.echo(json.dumps(body(found)) if options["as_json"] else text(found))
    return code(found)
