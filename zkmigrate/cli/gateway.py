"""Define the verbs ``gateway …`` of the command line; :mod:`zkmigrate.topics.gateway.verbs` does the work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from zkmigrate.cli import flags

_VERBS = ("route", "settle", "hold", "unhold", "seal", "unseal", "go")

_FENCING = click.IntRange(0, 10**15 - 1)
"""A fencing number, with the bounds that the gateway and zkm-host accept."""

_config = click.option("--config", type=flags.FILE, required=True, help="The gateway's file.")


def command(do: Callable[[Callable[[], int]], None]) -> click.Command:
    """Return the group of verbs. do: runs a function and exits with the code it returns."""

    @click.group("gateway")
    def gateway() -> None:
        """Stand between clients and two Kafka clusters.

        The gateway hides leader epochs, holds an application's requests and leads its clients to the other
        cluster without a restart.
        """

    @gateway.command("serve")
    @_config
    def serve(config: Path) -> None:
        """Serve until SIGTERM or Ctrl-C. Prints its log, one JSON object per line.

        After a crash the gateway starts with the last route that an order set. Exit code 5: another gateway
        uses the folder.
        """
        from zkmigrate.topics.gateway.verbs import serve as verb

        do(lambda: verb.serve(config, click.echo))

    @gateway.command("order")
    @_config
    @click.option("--as", "fencing", type=_FENCING, required=True, help="Your fencing number.")
    @click.option("--to", default="", metavar="CLUSTER", help="For route: the next route.")
    @click.option("--hold", default="", metavar="OPID", help="For seal: the hold to make permanent.")
    @flags.number(
        "--ttl-ms",
        "ttl_ms",
        "MS",
        "For settle, hold and unseal: the lease. For go: the time after which the gateway opens.",
        0,
        least=0,
    )
    @flags.as_json
    @click.argument("verb", type=click.Choice(_VERBS))
    @click.argument("id", metavar="OPID")
    @click.argument("app")
    def order(config: Path, as_json: bool, **options: Any) -> None:
        """Give an order about an application to the gateway on this machine.

        A repeated operation id returns the first answer. Exit codes: 5 a higher fencing number was seen, 6
        refused, 8 not written or no answer.
        """
        from zkmigrate.topics.gateway.rules.hold import Order
        from zkmigrate.topics.gateway.verbs import ask

        do(lambda: ask.order(config, Order(**options), click.echo, as_json=as_json))

    @gateway.command("relay")
    @_config
    @click.option("--run", required=True, metavar="RUN", help="The run that gives the orders.")
    @click.option("--as", "fencing", type=_FENCING, required=True, help="The fencing number of the run.")
    def relay(config: Path, run: str, fencing: int) -> None:
        """Pass a run's orders to the gateway on this machine, line by line. A run starts it over ssh.

        The command ends when its standard input ends.
        """
        from zkmigrate.topics.gateway.verbs.relay import Relay

        do(lambda: Relay(config, run, fencing).serve(sys.stdin.buffer, sys.stdout.buffer))

    @gateway.command("status")
    @_config
    @flags.as_json
    def status(config: Path, as_json: bool) -> None:
        """Show routes, holds, requests in flight and parked, and what the clients are. Changes nothing."""
        from zkmigrate.topics.gateway.verbs import ask

        do(lambda: ask.status(config, click.echo, as_json=as_json))

    return gateway
