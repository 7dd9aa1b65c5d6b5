"""`zkmigrate lab fault`: inject a fault on a named host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from zkmigrate.lab import fault as faults
from zkmigrate.lab.lab import Lab, find

lab_option = click.option("--lab", "named", metavar="ID", help="Which lab. Default: the only one.")


@click.group()
def fault() -> None:
    """Break something on a named host, or repair it."""


def _command(
    function: Callable[..., None], *parameters: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Add a command named after a fault function; its help is the function's first line."""

    def call(named: str | None, **arguments: Any) -> None:
        lab: Lab = find(named)
        function(lab, **arguments)

    command = lab_option(call)
    for parameter in reversed(parameters):
        command = parameter(command)
    summary = (function.__doc__ or "").strip().splitlines()[0]
    fault.command(function.__name__.replace("_", "-"), help=summary)(command)


_HOST = click.argument("host")
_OTHER = click.argument("other", required=False)

for _function in (
    faults.kill, faults.start, faults.pause, faults.resume, faults.freeze, faults.thaw, faults.pause_ssh,
    faults.resume_ssh, faults.rules_removed, faults.clock_restore, faults.slow_disk_restore, faults.power_cut,
    faults.power_on,
):  # fmt: skip
    _command(_function, _HOST)
_DISK = click.argument("disk", required=False, type=int, default=1)
for _function in (faults.disk_full, faults.disk_free):
    _command(_function, _HOST, _DISK)
_command(faults.partition, _HOST, _OTHER)
_command(faults.heal, _HOST, _OTHER)
_command(faults.clock, _HOST, click.argument("offset_s", metavar="SECONDS", type=float))
_command(faults.slow_disk, _HOST, click.argument("delay_ms", metavar="MILLISECONDS", type=int))
_command(faults.reboot, _HOST, click.option("--hard", is_flag=True, help="Cut the power: no clean stop."))
_command(faults.operator_cut)
_command(faults.operator_restore)
