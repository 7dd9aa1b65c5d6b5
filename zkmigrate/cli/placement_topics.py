"""The verbs of ``placement`` about topics and the cluster's state, beside those that plan moves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click

from zkmigrate.cli import flags

_inventory = click.option(
    "--inventory", "-i", type=flags.FILE, required=True, help="The inventory that names the brokers."
)


def add_to(placement: click.Group, do: Callable[[Callable[[], int]], None]) -> None:
    """Add the verbs to the group. do: runs one and exits with its code."""

    @placement.command("check")
    @_inventory
    @flags.as_json
    def check(inventory: Path, as_json: bool) -> None:
        """Look for replicas, leaders, racks and moves that are not as they should be.

        Exit codes: 0 nothing is wrong, 2 bad input, 3 another cluster, 8 no broker answers, 10 something is
        wrong, 11 not all is known.
        """
        do(lambda: _check(inventory, as_json=as_json))


def _check(path: Path, *, as_json: bool) -> int:
    from zkmigrate.inventory.inventory import Inventory, load
    from zkmigrate.placing import check
    from zkmigrate.site.wiring import Site

    inventory = load(path, Inventory, ("kafka",))
    site = (click.get_current_context().obj or Site)(inventory, "placement")
    with closing(site):
        return check.run(inventory, site.look, click.echo, as_json=as_json)
