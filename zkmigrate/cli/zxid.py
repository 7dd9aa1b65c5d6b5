"""The verbs ``zxid …`` for the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkmigrate.cli import flags
from zkmigrate.zookeeper.data.jute import JUTE_MAXBUFFER

if TYPE_CHECKING:
    from zkmigrate.inventory.inventory import Ssh
    from zkmigrate.zookeeper.disks.location import Place

WINDOW = 100
LARGEST_WINDOW = 500
"""Half of what a server takes from all clients together (globalOutstandingLimit) before it makes them
wait."""

MAX_REPLY = 64 << 20
"""No server limits its own replies; a znode with a million children has one of some 20 MB."""

_OF_A_SERVER = ("window", "max_reply")
_OF_A_DISK = ("log_dir", "chroot", "jute_maxbuffer")
_OF_A_HOST = ("ssh_user", "ssh_port", "ssh_key", "known_hosts", "ssh_config", "bastion")


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The group of verbs. do: runs one to its exit code."""

    @click.group("zxid")
    def zxid() -> None:
        """Tell transactions from ZooKeeper's own files, or from what a server shows."""

    @zxid.command("tail")
    @click.argument("place", metavar="DIR|HOST:DIR")
    @click.option("--log-dir", metavar="DIR|HOST:DIR", help="The dataLogDir, where it is another directory.")
    @flags.jute_maxbuffer
    @click.option("--quick", is_flag=True, help="Where a snapshot decides, do not read all of it.")
    @flags.ssh("else your own", "else ~/.ssh/known_hosts")
    @flags.as_json
    def tail(**options: Any) -> None:
        """Say the newest transaction that is durable in a dataDir, and where it stands.

        A HOST needs only an sshd with SFTP, and an account that may read the files.
        """
        do(lambda: _tail(options))

    @zxid.command("subtree")
    @click.argument("servers", metavar="[HOST[:PORT][,HOST...]/CHROOT]", required=False)
    @click.option(
        "--dir", "place", metavar="DIR|HOST:DIR", help="Read this dataDir instead of asking a server."
    )
    @click.option(
        "--log-dir", metavar="DIR|HOST:DIR", help="With --dir: the dataLogDir, where it is another."
    )
    @click.option("--chroot", metavar="PATH", help="With --dir: the subtree; else everything.")
    @click.option(
        "--window",
        type=click.IntRange(1, LARGEST_WINDOW),
        metavar="N",
        help=f"Requests under way at once (default: {WINDOW}). 1: one by one, the gentlest.",
    )
    @click.option(
        "--max-reply",
        type=click.IntRange(1, 1 << 30),
        metavar="BYTES",
        help=f"The largest reply that is taken (default: {MAX_REPLY}).",
    )
    @click.option(
        "--jute-maxbuffer",
        type=click.IntRange(1, 1 << 30),
        metavar="BYTES",
        help=f"With --dir: as the servers have it (default: {JUTE_MAXBUFFER}).",
    )
    @flags.ssh("else your own", "else ~/.ssh/known_hosts")
    @flags.as_json
    def subtree(**options: Any) -> None:
        """Say the largest czxid, mzxid and pzxid of a subtree's znodes.

        A server is asked by a session, which is two transactions of its ensemble. --dir writes nothing.
        """
        do(lambda: _subtree(options))

    made: click.Command = zxid
    return made


def ssh_of(options: dict[str, Any]) -> Ssh:
    """How hosts are reached, by the options of ``flags.ssh``. InventoryError where they do not fit."""
    from zkmigrate.discovery.draft import SshDraft
    from zkmigrate.discovery.init_request import transport_ssh

    pins = options["known_hosts"] or Path.home() / ".ssh/known_hosts"
    given = (options["ssh_user"], options["ssh_port"] or 0, str(options["ssh_key"] or ""), str(pins))
    return transport_ssh(SshDraft(*given, options["bastion"], str(options["ssh_config"] or "")))


def compared(options: dict[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    """The zxid at which trees are compared, None for the newest, and the sessions that are clients of dest.
    Raises UsageError."""
    from zkmigrate.errors import UsageError
    from zkmigrate.zookeeper.data.errors import MalformedError
    from zkmigrate.zookeeper.data.session import parse_session
    from zkmigrate.zookeeper.data.zxid import parse_zxid

    try:
        zxid = parse_zxid(options["zxid"]) if options["zxid"] else None
        return zxid, tuple(parse_session(one) for one in options["on_dest"])
    except MalformedError as error:
        raise UsageError(str(error)) from error


def _tail(options: dict[str, Any]) -> int:
    """The options as a call. Imports what reaches hosts only now."""
    from zkmigrate.zookeeper.disks import tail as verb
    from zkmigrate.zookeeper.disks.location import open_disks

    data, log, ssh = places_of(options)
    with open_disks(ssh) as disks:
        return verb.tail(
            disks,
            data,
            log,
            click.echo,
            jute_maxbuffer=options["jute_maxbuffer"],
            quick=options["quick"],
            as_json=options["as_json"],
        )


def _subtree(options: dict[str, Any]) -> int:
    """As `_tail`."""
    from zkmigrate.zookeeper.clients.session import Limits
    from zkmigrate.zookeeper.disks import subtree as verb
    from zkmigrate.zookeeper.disks.chroot import parse_chroot
    from zkmigrate.zookeeper.disks.location import open_disks
    from zkmigrate.zookeeper.disks.servers import parse_servers

    _fitting(options)
    if options["servers"]:
        servers, chroot = parse_servers(options["servers"])
        limits = Limits(largest=options["max_reply"] or MAX_REPLY)
        answer = verb.from_server(servers, chroot, options["window"] or WINDOW, limits, flags.hint)
    else:
        data, log, ssh = places_of(options)
        chroot = parse_chroot(options["chroot"] or "/")
        largest = 2 * ((options["jute_maxbuffer"] or JUTE_MAXBUFFER) + 1)
        with open_disks(ssh) as disks:
            answer = verb.from_disk(disks, data, log, chroot, largest, flags.hint)
    return verb.print_answer(answer, click.echo, flags.hint, as_json=options["as_json"])


def _fitting(options: dict[str, Any]) -> None:
    """Raises UsageError unless there is either a server or a directory, and only what goes with it."""
    from zkmigrate.errors import UsageError

    if bool(options["servers"]) == bool(options["place"]):
        raise UsageError("needed: either HOST[:PORT][,HOST...]/CHROOT, or --dir DIR")
    other = (*_OF_A_DISK, *_OF_A_HOST) if options["servers"] else _OF_A_SERVER
    given = [f"--{name.replace('_', '-')}" for name in other if options[name]]
    if given:
        asked = "a server is asked" if options["servers"] else "files are read"
        raise UsageError(f"{', '.join(given)} does not go where {asked}")


def places_of(options: dict[str, Any]) -> tuple[Place, Place | None, Ssh | None]:
    """The directory, the logs' own where there is one, and the way to hosts where either is on one."""
    from zkmigrate.zookeeper.disks.location import any_remote, parse_place

    data = parse_place(options["place"])
    log = parse_place(options["log_dir"]) if options["log_dir"] else None
    return data, log, ssh_of(options) if any_remote([(data, log)]) else None
