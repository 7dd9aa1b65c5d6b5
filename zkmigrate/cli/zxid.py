"""Define the verbs ``zxid …`` of the command line."""

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
"""The most requests in flight: half of globalOutstandingLimit.

With more requests than that limit, from all clients together, a server delays them.
"""

MAX_REPLY = 64 << 20
"""The largest reply, in bytes.

Servers do not limit replies; the list of a million children of a znode takes about 20 MB.
"""

_OF_A_SERVER = ("window", "max_reply", "client")
_OF_A_DISK = ("log_dir", "chroot", "jute_maxbuffer")
_OF_A_HOST = ("ssh_user", "ssh_port", "ssh_key", "known_hosts", "ssh_config", "bastion")


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the group of verbs. do: runs a function and exits with the code it returns."""

    @click.group("zxid")
    def zxid() -> None:
        """Show the newest transactions of ZooKeeper's files or of a server."""

    @zxid.command("tail")
    @click.argument("place", metavar="DIR|HOST:DIR")
    @flags.log_dir
    @flags.jute_maxbuffer
    @click.option("--quick", is_flag=True, help="If the answer is in a snapshot, do not read all of it.")
    @flags.ssh()
    @flags.as_json
    def tail(**options: Any) -> None:
        """Show the newest durable transaction of a dataDir, and its file.

        A HOST needs only an sshd with SFTP and an account that may read the files.
        """
        do(lambda: _tail(options))

    @zxid.command("subtree")
    @click.argument("servers", metavar="[HOST[:PORT][,HOST...]/CHROOT]", required=False)
    @click.option("--dir", "place", metavar="DIR|HOST:DIR", help="Read this dataDir instead of a server.")
    @flags.log_dir
    @click.option("--chroot", metavar="PATH", help="With --dir: the subtree. Default: everything.")
    @flags.only
    @click.option(
        "--window",
        type=click.IntRange(1, LARGEST_WINDOW),
        metavar="N",
        help=f"Requests in flight (default: {WINDOW}). 1 loads the server least.",
    )
    @click.option(
        "--max-reply",
        type=click.IntRange(1, 1 << 30),
        metavar="BYTES",
        help=f"The largest accepted reply (default: {MAX_REPLY}).",
    )
    @click.option(
        "--jute-maxbuffer",
        type=click.IntRange(1, 1 << 30),
        metavar="BYTES",
        help=f"With --dir: the servers' jute.maxbuffer (default: {JUTE_MAXBUFFER}).",
    )
    @flags.client
    @flags.ssh()
    @flags.as_json
    def subtree(**options: Any) -> None:
        """Show the largest czxid, mzxid and pzxid of a subtree's znodes.

        Asking a server opens a session: two transactions in its ensemble. --dir writes nothing.
        """
        do(lambda: _subtree(options))

    return zxid


def ssh_of(options: dict[str, Any]) -> Ssh:
    """Return how to reach hosts, according to the options of ``flags.ssh``.

    Raises InventoryError if the options do not fit together.
    """
    from zkmigrate.inventory.discovery.draft import SshDraft
    from zkmigrate.inventory.discovery.init_request import transport_ssh

    pins = options["known_hosts"] or Path.home() / ".ssh/known_hosts"
    given = (options["ssh_user"], options["ssh_port"] or 0, str(options["ssh_key"] or ""), str(pins))
    return transport_ssh(SshDraft(*given, options["bastion"], str(options["ssh_config"] or "")))


def compared(options: dict[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    """Return the zxid at which to compare trees, and the sessions that are clients of dest.

    The zxid is None for the newest. Raises UsageError for a malformed zxid or session.
    """
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
    from zkmigrate.zookeeper.clients.session import Limits
    from zkmigrate.zookeeper.data.chroot import parse_chroot
    from zkmigrate.zookeeper.disks import subtree as verb
    from zkmigrate.zookeeper.disks.location import open_disks
    from zkmigrate.zookeeper.disks.servers import parse_servers

    _fitting(options)
    if options["servers"]:
        servers, path = parse_servers(options["servers"])
        chroot = parse_chroot(path, options["only"])
        limits = Limits(largest=options["max_reply"] or MAX_REPLY)
        window, login = options["window"] or WINDOW, flags.credentials(options)
        answer = verb.from_server(servers, chroot, window, limits, login, flags.hint)
    else:
        data, log, ssh = places_of(options)
        chroot = parse_chroot(options["chroot"] or "/", options["only"])
        largest = 2 * ((options["jute_maxbuffer"] or JUTE_MAXBUFFER) + 1)
        with open_disks(ssh) as disks:
            answer = verb.from_disk(disks, data, log, chroot, largest, flags.hint)
    return verb.print_answer(answer, click.echo, flags.hint, as_json=options["as_json"])


def _fitting(options: dict[str, Any]) -> None:
    """Raise UsageError unless the options fit together.

    They must name either servers or a directory, and none of them may be without effect there.
    """
    from zkmigrate.errors import UsageError

    if bool(options["servers"]) == bool(options["place"]):
        raise UsageError("no or two sources are given. Needed: HOST[:PORT][,HOST...]/CHROOT or --dir DIR")
    other = (*_OF_A_DISK, *_OF_A_HOST) if options["servers"] else _OF_A_SERVER
    given = [f"--{name.replace('_', '-')}" for name in other if options[name]]
    if given:
        mode = "reading from a server" if options["servers"] else "reading files with --dir"
        raise UsageError(f"{', '.join(given)} has no effect when {mode}")


def places_of(options: dict[str, Any]) -> tuple[Place, Place | None, Ssh | None]:
    """Return the dataDir, the dataLogDir if given, and how to reach hosts if one of the two is on a host."""
    from zkmigrate.zookeeper.disks.location import any_remote, parse_place

    data = parse_place(options["place"])
    log = parse_place(options["log_dir"]) if options["log_dir"] else None
    return data, log, ssh_of(options) if any_remote([(data, log)]) else None
