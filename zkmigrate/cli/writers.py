"""The verb ``writers`` for the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.zxid import places_of


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The verb. do: runs it to its exit code."""

    @click.command("writers")
    @click.argument("place", metavar="DIR|HOST:DIR")
    @click.option("--log-dir", metavar="DIR|HOST:DIR", help="The dataLogDir, where it is another directory.")
    @click.option("--chroot", default="/", show_default=True, help="The subtree, such as /kafka.")
    @click.option(
        "--hours",
        type=click.FloatRange(0, min_open=True),
        metavar="N",
        help="Only the last N hours before the newest transaction; else as far back as the log reaches.",
    )
    @click.option(
        "--servers",
        metavar="HOST[:PORT][,HOST...]",
        help="Ask these with cons for the addresses of sessions that are connected now.",
    )
    @flags.jute_maxbuffer
    @flags.ssh("else your own", "else ~/.ssh/known_hosts")
    @flags.as_json
    def writers(**options: Any) -> None:
        """Say which sessions wrote at or under a chroot, and which of them are no brokers.

        From the log of one server: each has the transactions of all. Nothing is written anywhere.
        """
        do(lambda: _writers(options))

    made: click.Command = writers
    return made


def _writers(options: dict[str, Any]) -> int:
    """The options as a call. Imports what reaches hosts only now."""
    from zkmigrate.errors import UsageError
    from zkmigrate.zookeeper.disks import writer_addresses as verb
    from zkmigrate.zookeeper.disks.chroot import parse_chroot
    from zkmigrate.zookeeper.disks.location import open_disks
    from zkmigrate.zookeeper.disks.servers import parse_servers

    chroot = parse_chroot(options["chroot"])
    servers, below = parse_servers(options["servers"]) if options["servers"] else ((), "/")
    if below != "/":
        raise UsageError(f"--servers {options['servers']} ends in {below}. Needed: HOST[:PORT],... alone")
    data, log, ssh = places_of(options)
    with open_disks(ssh) as disks:
        return verb.print_writers(
            disks,
            data,
            log,
            servers,
            click.echo,
            flags.hint,
            chroot=chroot,
            hours=options["hours"],
            largest=2 * (options["jute_maxbuffer"] + 1),
            as_json=options["as_json"],
        )
