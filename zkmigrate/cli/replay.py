"""Define the verb ``replay list`` of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.zxid import ssh_of
from zkmigrate.json_stamp import stamped

if TYPE_CHECKING:
    from zkmigrate.move.facts.replay import ReplayDisks


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the group of verbs. do: runs a function and exits with the code it returns."""

    @click.group("replay")
    def replay() -> None:
        """Show what dest wrote after the cut and source lacks."""

    @replay.command("list")
    @flags.both_sides
    @click.option("--chroot", required=True, help="The subtree, such as /kafka.")
    @flags.only
    @click.option(
        "--lines", type=click.IntRange(0), default=20, show_default=True, help="Transactions shown."
    )
    @flags.jute_maxbuffer
    @flags.ssh()
    @flags.as_json
    def list_(**options: Any) -> None:
        """List what a way back would lose, and whether replay could save it. Writes nothing.

        Stop ZooKeeper on the dest hosts first. The playbook kafka_zookeeper_return does the replay. Exit
        codes: 10 a condition is false, 11 a condition is unknown.
        """
        do(lambda: _list(options))

    return replay


@contextmanager
def _looking(options: dict[str, Any]) -> Iterator[ReplayDisks]:
    """Open the disks that the options name, and close them after the block."""
    from zkmigrate.move.facts.replay import ReplayDisks
    from zkmigrate.zookeeper.data.chroot import parse_chroot
    from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
    from zkmigrate.zookeeper.disks.location import any_remote, open_disks, open_side, parse_pairs
    from zkmigrate.zookeeper.disks.progress import ProgressLines

    chroot = parse_chroot(options["chroot"], options["only"])
    pairs = parse_pairs(options)
    with open_disks(ssh_of(options) if any_remote(pairs) else None) as disks:
        yield ReplayDisks(
            lambda: [open_side(disks, *pair) for pair in pairs],
            chroot,
            options["lines"],
            max(2 * (options["jute_maxbuffer"] + 1), MAX_RECORD),
            ProgressLines(flags.hint).of,
        )


def _list(options: dict[str, Any]) -> int:
    from zkmigrate.move.verbs.replaying import body, code, text
    from zkmigrate.zookeeper.data.errors import ZkDataError
    from zkmigrate.zookeeper.disks.location import DiskError

    with _looking(options) as looking:
        try:
            found = looking.examine()
        except ZkDataError as error:
            raise DiskError(str(error)) from error
    click.echo(json.dumps(stamped(body(found))) if options["as_json"] else text(found))
    return code(found)
