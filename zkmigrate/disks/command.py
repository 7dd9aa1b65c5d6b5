"""The verbs ``zxid …`` for the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkmigrate import flags

if TYPE_CHECKING:
    from zkmigrate.inventory import Ssh

JUTE_MAXBUFFER = 0xFFFFF
"""ZooKeeper's own value of jute.maxbuffer, bytes."""


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The group of verbs. do: runs one to its exit code."""

    @click.group("zxid")
    def zxid() -> None:
        """Read the newest transaction from ZooKeeper's own files."""

    @zxid.command("tail")
    @click.argument("place", metavar="DIR|HOST:DIR")
    @click.option("--log-dir", metavar="DIR|HOST:DIR", help="The dataLogDir, where it is another directory.")
    @click.option(
        "--jute-maxbuffer",
        type=click.IntRange(1, 1 << 30),
        default=JUTE_MAXBUFFER,
        show_default=True,
        metavar="BYTES",
        help="As the servers have it: a record can be twice as large.",
    )
    @click.option("--quick", is_flag=True, help="Where a snapshot decides, do not read all of it.")
    @flags.ssh("else your own", "else ~/.ssh/known_hosts")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    def tail(**options: Any) -> None:
        """Say the newest transaction that is durable in a dataDir, and where it stands.

        A HOST needs only an sshd with SFTP, and an account that may read the files.
        """
        do(lambda: _tail(options))

    made: click.Command = zxid
    return made


def ssh_of(options: dict[str, Any]) -> Ssh:
    """How hosts are reached, by the options of ``flags.ssh``. InventoryError where they do not fit."""
    from zkmigrate.discovery.draft import SshDraft
    from zkmigrate.discovery.wanted import transport_ssh

    pins = options["known_hosts"] or Path.home() / ".ssh/known_hosts"
    given = (options["ssh_user"], options["ssh_port"] or 0, str(options["ssh_key"] or ""), str(pins))
    return transport_ssh(SshDraft(*given, options["bastion"], str(options["ssh_config"] or "")))


def _tail(options: dict[str, Any]) -> int:
    """The options as a call. Imports what reaches hosts only now."""
    from zkmigrate.disks import tail as verb
    from zkmigrate.disks.place import parse_place, reached

    data = parse_place(options["place"])
    log = parse_place(options["log_dir"]) if options["log_dir"] else None
    distant = bool(data.host or (log is not None and log.host))
    with reached(ssh_of(options) if distant else None) as disks:
        return verb.tail(
            disks,
            data,
            log,
            click.echo,
            largest=2 * (options["jute_maxbuffer"] + 1),
            quick=options["quick"],
            as_json=options["as_json"],
        )
