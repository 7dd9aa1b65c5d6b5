"""The verb ``prove`` for the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.zxid import compared, ssh_of


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The verb. do: runs it to its exit code."""

    @click.command("prove")
    @click.argument("proof", type=click.Choice(["tail", "delta", "digest", "all"]))
    @click.option("--source-dir", required=True, metavar="DIR|HOST:DIR", help="A dataDir of source's leader.")
    @click.option("--source-log-dir", metavar="DIR|HOST:DIR", help="Its dataLogDir, where it is another.")
    @click.option(
        "--dest-dir",
        "dest_dirs",
        required=True,
        multiple=True,
        metavar="DIR|HOST:DIR",
        help="The dataDir of a dest host; once for each host.",
    )
    @flags.dest_log_dirs
    @click.option("--chroot", default="/", show_default=True, help="The subtree, such as /kafka.")
    @click.option("--zxid", metavar="0xHEX", help="Compare the trees at this; else at the newest of both.")
    @click.option("--after-cut", is_flag=True, help="Dest was cut over: it has transactions of its own.")
    @click.option(
        "--on-dest",
        multiple=True,
        metavar="0xSESSION",
        help="A session known to be a client of dest: source may let it expire.",
    )
    @click.option(
        "--lines", type=click.IntRange(0), default=20, show_default=True, help="Differences shown of each."
    )
    @click.option("--out", type=flags.FILE, help="A new file that takes all differences, as JSON lines.")
    @flags.jute_maxbuffer
    @flags.ssh("else your own", "else ~/.ssh/known_hosts")
    @flags.as_json
    def prove(**options: Any) -> None:
        """Prove from the disks of two ensembles that dest holds what source holds of a subtree.

        tail: no dest disk is behind the newest mark in source's subtree. delta: source's log has nothing for
        the subtree that dest lacks. digest: the two subtrees are equal. Nothing is written anywhere; the
        servers may be running. Ends with 10 where a proof fails, 11 where one cannot be made.
        """
        do(lambda: _prove(options))

    made: click.Command = prove
    return made


def _prove(options: dict[str, Any]) -> int:
    """The options as a call. Imports what reaches hosts only now."""
    from zkmigrate.zookeeper.data.proofs import PROOFS
    from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
    from zkmigrate.zookeeper.disks import prove as verb
    from zkmigrate.zookeeper.disks.chroot import parse_chroot
    from zkmigrate.zookeeper.disks.location import any_remote, open_disks, open_side, parse_pairs

    pairs = parse_pairs(options)
    chroot = parse_chroot(options["chroot"])
    zxid, on_dest = compared(options)
    asked = verb.ProofRequest(
        chroot,
        PROOFS if options["proof"] == "all" else (options["proof"],),
        zxid,
        options["after_cut"],
        on_dest,
        options["lines"],
        options["out"],
        max(2 * (options["jute_maxbuffer"] + 1), MAX_RECORD),
    )
    with open_disks(ssh_of(options) if any_remote(pairs) else None) as disks:
        sides = [open_side(disks, *pair) for pair in pairs]
        found = verb.prove(sides[0], sides[1:], asked, flags.hint)
    click.echo(json.dumps(verb.body(found)) if options["as_json"] else verb.text(found))
    return found.code
