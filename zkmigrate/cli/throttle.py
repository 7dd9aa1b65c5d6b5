"""Define the verbs ``throttle …`` of the command line."""

from __future__ import annotations

from typing import Any

import click

from zkmigrate.cli import flags
from zkmigrate.cli.calls import context_of, do


@click.group()
def throttle() -> None:
    """Set, show or clear the rates at which a run copies replicas. Contacts no host.

    A set rate replaces the automatic one, within its floor and ceiling. It lasts until it is cleared, also
    after a restart. Name a playbook that moves partitions with --playbook.
    """


_brokers = click.option(
    "--broker",
    "brokers",
    type=click.IntRange(0, 2**31 - 1),
    multiple=True,
    metavar="ID",
    help="Only this broker. Repeatable. Default: all.",
)


@throttle.command("set")
@flags.common
@flags.run_id
@_brokers
@click.argument("rate")
def throttle_set(rate: str, run_id: str, brokers: tuple[int, ...], **options: Any) -> None:
    """Set RATE, bytes per second, such as 10M. A broker's own rate takes precedence over the rate for all."""
    from zkmigrate.cluster.placing import throttle as verbs

    do(lambda: verbs.set_rate(context_of(options), run_id, rate, brokers))


@throttle.command("show")
@flags.common
@flags.run_id
def throttle_show(run_id: str, **options: Any) -> None:
    """Print the rates that are set. Exit code 8: their file cannot be read."""
    from zkmigrate.cluster.placing import throttle as verbs

    do(lambda: verbs.show(context_of(options), run_id))


@throttle.command("clear")
@flags.common
@flags.run_id
@_brokers
def throttle_clear(run_id: str, brokers: tuple[int, ...], **options: Any) -> None:
    """Let the run choose the rates again."""
    from zkmigrate.cluster.placing import throttle as verbs

    do(lambda: verbs.clear(context_of(options), run_id, brokers))
