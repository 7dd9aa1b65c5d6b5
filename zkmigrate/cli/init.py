"""The options of ``init``; what it does is in :mod:`zkmigrate.discovery.init_verb`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from zkmigrate.cli import flags


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """The verb for the command line. do: runs it to its exit code."""

    @click.command("init")
    @click.option(
        "--source",
        "source",
        multiple=True,
        metavar="HOST[:PORT],…",
        help="Servers that Kafka leaves; one is enough.",
    )
    @click.option("--dest", multiple=True, metavar="HOST,…", help="The new, empty hosts: 3 or 5.")
    @click.option(
        "--bootstrap",
        multiple=True,
        metavar="HOST:PORT,…",
        help="Brokers, where source's dump and cons tell none.",
    )
    @click.option("--chroot", default="", help="Kafka's subtree, where source holds several clusters.")
    @click.option("--name", default="", help="Name of the move; else the chroot's.")
    @click.option(
        "--operator", multiple=True, metavar="ADDRESS,…", help="This machine's addresses; else found out."
    )
    @click.option(
        "--ansible",
        default="",
        metavar="FILE|DIR|auto",
        help="An Ansible inventory, by ansible-inventory --list.",
    )
    @click.option(
        "--map",
        "mapping",
        default="",
        metavar="source=G,dest=G,brokers=G",
        help="Which groups of it are which.",
    )
    @flags.ssh("else Ansible's or your own", "else known_hosts beside --out")
    @click.option("--out", type=flags.FILE, default=Path("migration.yml"), show_default=True)
    @click.option("--force", is_flag=True, help="Replace the file if it is there.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object; asks nothing.")
    def init(**options: Any) -> None:
        """Write a migration.yml from what hosts, source and an Ansible inventory show; change no host.

        Ends with 3 where something is left to be filled in.
        """
        do(lambda: verb(options))

    made: click.Command = init
    return made


def verb(options: dict[str, Any]) -> int:
    """The options as a call. Imports what reaches hosts only now."""
    from zkmigrate.discovery.draft import SshDraft
    from zkmigrate.discovery.init_request import InitOptions
    from zkmigrate.discovery.init_verb import init as look_and_write

    def many(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for text in options[name] for part in text.split(",") if part.strip())

    out: Path = options["out"]
    known_hosts = options["known_hosts"] or out.parent / "known_hosts"
    ssh = SshDraft(
        options["ssh_user"],
        options["ssh_port"] or 0,
        str(options["ssh_key"] or ""),
        str(known_hosts),
        options["bastion"],
        str(options["ssh_config"] or ""),
    )
    given: dict[str, Any] = {name: many(name) for name in ("source", "dest", "bootstrap", "operator")}
    given |= {name: options[name] for name in ("chroot", "name", "ansible", "mapping", "force", "as_json")}
    asked = sys.stdin.isatty() and sys.stdout.isatty() and not options["as_json"]
    return look_and_write(InitOptions(**given, ssh=ssh, out=out), click.echo, input if asked else None)
