"""Define the options of ``init``; :mod:`zkmigrate.inventory.discovery.init_verb` does the work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from zkmigrate.cli import flags


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the verb as a command. do: runs a function and exits with the code it returns."""

    @click.command("init")
    @flags.many(
        "--source", "source", "HOST[:PORT],…", "Servers of the ensemble that Kafka uses now. One is enough."
    )
    @flags.many("--dest", "dest", "HOST,…", "The new, empty hosts: 3 or 5, in the order of myids.")
    @flags.many(
        "--bootstrap", "bootstrap", "HOST:PORT,…", "Brokers, if source's dump and cons do not show them."
    )
    @click.option("--chroot", default="", help="Kafka's subtree, if source has several clusters.")
    @click.option("--name", default="", help="Name of the move. Default: from the chroot.")
    @flags.many(
        "--operator",
        "operator",
        "ADDRESS,…",
        "This machine's addresses. Default: those from which it reaches the hosts.",
    )
    @click.option(
        "--ansible",
        default="",
        metavar="FILE|DIR|auto",
        help="Ansible inventory, read by ansible-inventory --list.",
    )
    @click.option(
        "--map",
        "mapping",
        default="",
        metavar="source=G,dest=G,brokers=G",
        help="Ansible groups of each role.",
    )
    @flags.client
    @flags.ssh("Ansible's, or else your own", "known_hosts in the folder of --out")
    @click.option(
        "--out", type=flags.FILE, default=Path("migration.yml"), show_default=True, help="File to write."
    )
    @click.option("--force", is_flag=True, help="Replace an existing file.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object and do not prompt.")
    def init(**options: Any) -> None:
        """Write a first migration.yml from facts of the hosts. Changes no host.

        Exit codes: 2 nothing written, 3 written, but you must fill in or correct something.
        """
        do(lambda: verb(options))

    return init


def verb(options: dict[str, Any]) -> int:
    """Run ``init`` with these options and return its exit code."""
    from zkmigrate.inventory.discovery.draft import SshDraft
    from zkmigrate.inventory.discovery.init_request import InitOptions
    from zkmigrate.inventory.discovery.init_verb import init as look_and_write

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
    request = InitOptions(**given, ssh=ssh, out=out, credentials=flags.credentials(options))
    return look_and_write(request, click.echo, input if asked else None)
