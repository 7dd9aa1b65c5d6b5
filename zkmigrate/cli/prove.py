"""Define the verb ``prove`` of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.zxid import compared, ssh_of
from zkmigrate.json_stamp import stamped


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the verb as a command. do: runs a function and exits with the code it returns."""

    @click.command("prove")
    @click.argument("proof", type=click.Choice(["tail", "delta", "digest", "all"]))
    @flags.both_sides
    @flags.chroot
    @flags.zxid
    @click.option("--after-cut", is_flag=True, help="Dest was cut over and has transactions of its own.")
    @flags.on_dest
    @click.option(
        "--lines", type=click.IntRange(0), default=20, show_default=True, help="Differences shown per proof."
    )
    @click.option("--out", type=flags.FILE, help="Write all differences to this new file, as JSON lines.")
    @flags.jute_maxbuffer
    @flags.ssh()
    @flags.as_json
    def prove(**options: Any) -> None:
        """Prove from the disks of two ensembles that dest holds what source holds of a subtree.

        \b
        tail    no dest disk is behind the newest zxid in source's subtree
        delta   source's log has no transaction of the subtree that dest lacks
        digest  the two subtrees are equal

        Writes only --out. The servers may run. Exit codes: 10 a proof failed, 11 a proof was not possible.
        """
        do(lambda: _prove(options))

    return prove


def _prove(options: dict[str, Any]) -> int:
    from zkmigrate.zookeeper.data.chroot import parse_chroot
    from zkmigrate.zookeeper.data.proofs import PROOFS
    from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
    from zkmigrate.zookeeper.disks import prove as verb
    from zkmigrate.zookeeper.disks.location import any_remote, open_disks, open_side, parse_pairs

    pairs = parse_pairs(options)
    chroot = parse_chroot(options["chroot"], options["only"])
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
    click.echo(json.dumps(stamped(verb.body(found))) if options["as_json"] else verb.text(found))
    return found.code
