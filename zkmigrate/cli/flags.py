"""Options that several verbs have, each said once.

Nothing heavy is imported here: every verb's ``--help`` comes by.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zkmigrate.zookeeper.data.jute import JUTE_MAXBUFFER

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


def completed(kind: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Completes an option's value, as ``zkmigrate.cli.completion`` knows it."""

    def complete(context: click.Context, _option: click.Parameter, incomplete: str) -> list[Any]:
        from zkmigrate.cli import completion

        return completion.words(kind, context.params, incomplete)

    return complete


def common(verb: F) -> F:
    """Inventory, playbook and ``--json``: every verb that reads an inventory."""
    for option in (
        click.option(
            "--json", "as_json", is_flag=True, help="Print JSON; run, resume, rollback: one event a line."
        ),
        click.option(
            "--playbook",
            shell_complete=completed("playbooks"),
            default="kafka_zookeeper_move",
            show_default=True,
            help="Name or .py file.",
        ),
        click.option(
            "--inventory",
            "-i",
            type=FILE,
            default=Path("migration.yml"),
            show_default=True,
            help="The inventory file.",
        ),
    ):
        verb = option(verb)
    return verb


def which_run(text: str) -> Callable[[F], F]:
    """``--run-id`` with a help of the verb's own."""
    return click.option("--run-id", shell_complete=completed("runs"), default="", help=text)


def named(option: str, kind: str, metavar: str, text: str) -> Callable[[F], F]:
    """An option that takes the name of something of this kind."""
    return click.option(option, shell_complete=completed(kind), default="", metavar=metavar, help=text)


run_id = which_run(
    "Which run; the open, else the newest one of the inventory when left out (run: a new one)."
)
yes = click.option("--yes", is_flag=True, help="Same path without prompts; needed without a terminal.")
until = named("--until", "steps", "STEP", "Stop after this stage or stage.step, such as roll.")
hold_at = named(
    "--hold-at",
    "phases",
    "PHASE",
    "Hold after this step of the cut-over, such as check. Once dest serves (serve, check) no longer "
    "than policy.open_limit_s: then the hosts open by themselves.",
)
pause_after = click.option(
    "--pause-after",
    type=click.IntRange(min=1),
    metavar="N",
    help="In the roll, or the set of topics: hold once N have moved, until zkmigrate release.",
)
skip = click.option(
    "--skip",
    shell_complete=completed("skippable"),
    multiple=True,
    metavar="STAGE",
    help="Pass over a stage that may be: rehearse. Nobody has tried dest then, and the window's length is "
    "not known.",
)
metrics = click.option(
    "--metrics", type=FILE, help="Keep this file up to date for Prometheus' node exporter (*.prom)."
)
steal = click.option("--steal", is_flag=True, help="Take the lock from an operator who is gone.")

jute_maxbuffer = click.option(
    "--jute-maxbuffer",
    type=click.IntRange(1, 1 << 30),
    default=JUTE_MAXBUFFER,
    show_default=True,
    metavar="BYTES",
    help="As the servers have it: a record can be twice as large.",
)


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
dest_log_dirs = click.option(
    "--dest-log-dir",
    "dest_log_dirs",
    multiple=True,
    metavar="DIR|HOST:DIR",
    help="Their dataLogDirs, in the same order, where they are others.",
)


def walking(verb: F) -> F:
    """The options of a verb that walks a run forward."""
    for option in (metrics, steal, skip, pause_after, hold_at, until, yes, run_id):
        verb = option(verb)
    return verb


def ssh(account: str, pins: str) -> Callable[[F], F]:
    """How hosts are reached where no inventory says it. account, pins: what holds without ``--ssh-user`` and
    ``--known-hosts``."""

    def added(verb: F) -> F:
        for option in reversed(
            (
                click.option("--ssh-user", default="", help=f"Account on all hosts; {account}."),
                click.option("--ssh-port", type=click.IntRange(1, 65535), help="Port of their sshd."),
                click.option("--ssh-key", type=FILE, help="Private key; else one of ~/.ssh."),
                click.option("--known-hosts", type=FILE, help=f"Pins host keys; {pins}."),
                click.option("--ssh-config", type=FILE, help="An ssh_config to go by."),
                click.option(
                    "--bastion", default="", metavar="[USER@]HOST[:PORT],…", help="Hosts to go through."
                ),
            )
        ):
            verb = option(verb)
        return verb

    return added


def hint(line: str) -> None:
    """A line on standard error."""
    click.echo(line, err=True)
