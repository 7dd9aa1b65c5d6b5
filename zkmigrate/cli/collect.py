"""Define the verb ``collect`` of the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkmigrate.cli import flags, removed
from zkmigrate.cli.zxid import ssh_of
from zkmigrate.json_stamp import stamped
from zkmigrate.zookeeper.disks.manifest import SERVER

if TYPE_CHECKING:
    from zkmigrate.zookeeper.disks.collect_outcome import Request, Server
    from zkmigrate.zookeeper.disks.location import Place

_RATE = re.compile(r"(\d+(?:\.\d+)?)([kKMG]?)")
_MOST_RATE, _MOST_HOURS = 1e12, 1e6
_TIMES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the verb as a command. do: runs a function and exits with the code it returns."""

    @click.command("collect")
    @click.argument("places", metavar="[NAME=]DIR|HOST:DIR...", nargs=-1)
    @click.option("--out", type=flags.FILE, metavar="DIR", help="Copy into this folder.")
    @flags.many(
        "--log-dir",
        "log_dirs",
        "[NAME=]DIR|HOST:DIR",
        "A server's dataLogDir, if it differs from the dataDir. NAME: the name of that server.",
    )
    @click.option(
        "--rate",
        default="10M",
        show_default=True,
        metavar="BYTES[k|M|G]",
        help="Bytes per second from all hosts together; k is 1000. 0: no limit.",
    )
    @flags.number(
        "--newest-snapshots",
        "newest_snapshots",
        "N",
        "Copy the N newest complete snapshots of each server.",
        1,
        least=0,
    )
    @click.option(
        "--since",
        default="",
        metavar="HOURS|0xZXID",
        help="Copy only logs with transactions of the last HOURS, or from ZXID on.",
    )
    @click.option(
        "--verify",
        type=flags.FILE,
        metavar="DIR",
        help="Instead, compare every file in this folder with its manifest.",
    )
    @flags.jute_maxbuffer
    @flags.ssh()
    @flags.as_json
    @removed.options("collect")
    def collect(**options: Any) -> None:
        """Copy the logs and snapshots of servers into a folder, for analyze, prove and zxid.

        A second call copies only what is new. Hosts need an sshd with SFTP and an account that may read the
        files. The servers may run.
        """
        do(lambda: (_verify if options["verify"] else _collect)(options))

    return collect


def _collect(options: dict[str, Any]) -> int:
    from zkmigrate.runbook.engine.clock import Interrupt, RealClock
    from zkmigrate.zookeeper.disks.collect import collect
    from zkmigrate.zookeeper.disks.collect_outcome import body, text
    from zkmigrate.zookeeper.disks.location import any_remote, open_disks

    request = _request(options)
    ssh = ssh_of(options) if any_remote([(one.data, one.log) for one in request.servers]) else None
    interrupt = Interrupt()
    with open_disks(ssh) as disks, interrupt.listening():
        outcome = collect(disks, request, RealClock(interrupt), lambda: interrupt.wanted, flags.hint)
    click.echo(json.dumps(stamped(body(outcome))) if options["as_json"] else text(outcome))
    return outcome.code


def _verify(options: dict[str, Any]) -> int:
    from zkmigrate.errors import UsageError
    from zkmigrate.runbook.model.report import counted
    from zkmigrate.zookeeper.disks.manifest import verify

    if options["places"] or options["out"] or options["log_dirs"]:
        raise UsageError("--verify DIR reads only this folder; it takes only --json")
    found = verify(options["verify"])
    if options["as_json"]:
        click.echo(json.dumps(stamped(asdict(found))))
        return found.code
    for problem in found.problems:
        click.echo(problem)
    for name in found.unfinished:
        click.echo(f"{name}: not complete; the next run of collect continues it")
    said = "the folder differs" if found.problems else "the folder matches"
    click.echo(f"{counted(found.files, 'file')}, {counted(found.bytes, 'byte')} in the manifest: {said}")
    return found.code


def _request(options: dict[str, Any]) -> Request:
    """Convert the options to a request to collect. Raises UsageError."""
    from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
    from zkmigrate.zookeeper.disks.collect_outcome import Request

    out = _out(options)
    zxid, hours = _since(options["since"])
    return Request(
        out,
        servers(options["places"], options["log_dirs"]),
        options["newest_snapshots"],
        rate(options["rate"]),
        max(2 * (options["jute_maxbuffer"] + 1), MAX_RECORD),
        zxid,
        hours,
    )


def _out(options: dict[str, Any]) -> Path:
    """Return the folder to fill. Raises UsageError if it or a place to copy from is missing."""
    from zkmigrate.errors import UsageError

    out: Path | None = options["out"]
    if out is None or not options["places"]:
        raise UsageError("nothing to copy. Needed: [NAME=]HOST:DIR... and --out DIR, or --verify DIR")
    return out


def servers(places: tuple[str, ...], log_dirs: tuple[str, ...]) -> tuple[Server, ...]:
    """Return the servers to copy from, each with its dataLogDir if one is given. Raises UsageError."""
    from zkmigrate.errors import UsageError
    from zkmigrate.zookeeper.disks.collect_outcome import Server

    found: dict[str, Server] = {}
    for text in places:
        name, place = _named(text)
        if name in found:
            raise UsageError(f"two servers have the name {name}. Needed: a name for each, as NAME=HOST:DIR")
        found[name] = Server(name, place)
    for text in log_dirs:
        name, place = _named(text)
        if len(found) == 1 and len(log_dirs) == 1 and "=" not in text:
            name = next(iter(found))
        if name not in found or found[name].log is not None:
            raise UsageError(
                f"--log-dir {text}: {name} is "
                f"{'given twice' if name in found else 'not the name of a server'}. Needed: NAME=DIR with "
                f"one of {', '.join(found)}, each once"
            )
        found[name] = Server(name, found[name].data, place)
    return tuple(found.values())


def _named(text: str) -> tuple[str, Place]:
    """Split text into the name and the place of a server.

    Without a given name the server gets that of its host; for a local directory, the last part of the path.
    Raises UsageError for a name that cannot be a folder.
    """
    from zkmigrate.errors import UsageError
    from zkmigrate.zookeeper.disks.location import VERSION_2, parse_place

    name, equals, rest = text.partition("=")
    if equals and SERVER.fullmatch(name):
        return name, _absolute(parse_place(rest))
    place = _absolute(parse_place(text))
    path = Path(place.path)
    name = place.host or (path.parent.name if path.name == VERSION_2 else path.name)
    if not SERVER.fullmatch(name):
        raise UsageError(f"no name for the folder of {text!r}. Needed: NAME={text}")
    return name, place


def _absolute(place: Place) -> Place:
    """Make a local path absolute, so that a later call from another folder finds the place."""
    from zkmigrate.zookeeper.disks.location import Place

    return place if place.host else Place("", str(Path(place.path).absolute()))


def rate(text: str) -> float:
    """Parse a rate such as ``10M`` into bytes per second; 0 means no limit. Raises UsageError."""
    from zkmigrate.errors import UsageError

    match = _RATE.fullmatch(text)
    found = float(match[1]) * _TIMES[match[2]] if match else -1.0
    if found and not 1 <= found <= _MOST_RATE:
        raise UsageError(
            f"--rate {text[:40]}. Needed: bytes per second up to 1000G, such as 500k or 10M; 0 for no limit"
        )
    return found


def _since(text: str) -> tuple[int | None, float | None]:
    """Parse ``--since`` into (zxid, hours), of which at most one is not None. Raises UsageError."""
    from zkmigrate.errors import UsageError
    from zkmigrate.zookeeper.data.errors import MalformedError
    from zkmigrate.zookeeper.data.zxid import parse_zxid

    if not text:
        return None, None
    try:
        if text.startswith("0x"):
            return parse_zxid(text), None
        hours = float(text)
    except (MalformedError, ValueError):
        hours = 0.0
    if not 0 < hours <= _MOST_HOURS:
        raise UsageError(
            f"--since {text[:40]}. Needed: hours up to 1000000, such as 24, or a zxid, such as 0x100000001"
        )
    return None, hours
