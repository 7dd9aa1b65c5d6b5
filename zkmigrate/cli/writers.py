"""Define the verb ``writers`` of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.zxid import places_of


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the verb as a command. do: runs a function and exits with the code it returns."""

    @click.command("writers")
    @click.argument("place", metavar="DIR|HOST:DIR")
    @flags.log_dir
    @flags.chroot
    @click.option(
        "--hours",
        type=flags.decimal(0.001, 1_000_000),
        metavar="N",
        help="Read only the N hours before the newest transaction. Default: the whole log.",
    )
    @click.option(
        "--servers",
        metavar="HOST[:PORT][,HOST...]",
        help="Read the addresses of connected sessions from these servers (cons).",
    )
    @flags.client
    @flags.jute_maxbuffer
    @flags.ssh()
    @flags.as_json
    def writers(**options: Any) -> None:
        """Show which sessions wrote at or under a chroot, and which of them are not brokers.

        Reads the log of one server: every server logs all transactions. Writes nothing.
        """
        do(lambda: _writers(options))

    return writers


def _writers(options: dict[str, Any]) -> int:
    from zkmigrate.errors import UsageError
    from zkmigrate.zookeeper.data.chroot import parse_chroot
    from zkmigrate.zookeeper.disks import writer_addresses as verb
    from zkmigrate.zookeeper.disks.location import open_disks
    from zkmigrate.zookeeper.disks.servers import parse_servers

    chroot = parse_chroot(options["chroot"], options["only"])
    servers, below = parse_servers(options["servers"]) if options["servers"] else ((), "/")
    if below != "/":
        raise UsageError(
            f"--servers {options['servers']} ends in {below}. Needed: HOST[:PORT],... without a path"
        )
    login = flags.credentials(options)
    data, log, ssh = places_of(options)
    with open_disks(ssh) as disks:
        return verb.print_writers(
            disks,
            data,
            log,
            servers,
            login,
            click.echo,
            flags.hint,
            chroot=chroot,
            hours=options["hours"],
            largest=2 * (options["jute_maxbuffer"] + 1),
            as_json=options["as_json"],
        )
