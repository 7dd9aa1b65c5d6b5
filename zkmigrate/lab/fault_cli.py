"""Provide `zkmigrate lab fault`, which injects a fault on a named host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from zkmigrate.lab import fault as faults
from zkmigrate.lab.lab import find

lab_option = click.option("--lab", "named", metavar="ID", help="The id of the lab. Default: the only lab.")


@click.group()
def fault() -> None:
    """Break something on a named host, or repair it."""


def _command(function: Callable[..., None], summary: str, *parameters: Callable[[Any], Any]) -> None:
    """Add a command that calls this function of ``lab.fault`` and has the function's name."""

    def call(named: str | None, **arguments: Any) -> None:
        function(find(named), **arguments)

    command = lab_option(call)
    for parameter in reversed(parameters):
        command = parameter(command)
    fault.command(function.__name__.replace("_", "-"), help=summary)(command)


_HOST = click.argument("host")
_OTHER = click.argument("other", required=False)
_DISK = click.argument("disk", required=False, type=int, default=1)
_SECONDS = click.argument("offset_s", metavar="SECONDS", type=float)
_MILLISECONDS = click.argument("delay_ms", metavar="MILLISECONDS", type=int)
_HARD = click.option("--hard", is_flag=True, help="Cut the power instead of stopping cleanly.")

_command(faults.kill, "Kill the host's server with SIGKILL. Undo it with `start`.", _HOST)
_command(faults.start, "Start the host's server.", _HOST)
_command(faults.pause, "Stop the host's server with SIGSTOP. Undo it with `resume`.", _HOST)
_command(faults.resume, "Let a paused server continue.", _HOST)
_command(faults.freeze, "Stop every process of the host. Undo it with `thaw`.", _HOST)
_command(faults.thaw, "Let a frozen host continue.", _HOST)
_command(faults.pause_ssh, "Stop every sshd process of the host. Undo it with `resume-ssh`.", _HOST)
_command(faults.resume_ssh, "Let the stopped sshd processes continue.", _HOST)
_command(faults.partition, "Disconnect the host from OTHER, or from all. Undo it with `heal`.", _HOST, _OTHER)
_command(faults.heal, "End a partition that was made with the same arguments.", _HOST, _OTHER)
_command(faults.rules_removed, "Remove all packet filter rules of the host. This cannot be undone.", _HOST)
_command(faults.clock, "Set the host's clock wrong. Undo it with `clock-restore`.", _HOST, _SECONDS)
_command(faults.clock_restore, "Set the host's clock right and restart its server.", _HOST)
_command(faults.slow_disk, "Slow down each fsync. Undo it with `slow-disk-restore`.", _HOST, _MILLISECONDS)
_command(faults.slow_disk_restore, "Remove the delay of fsync and restart the server.", _HOST)
_command(faults.disk_full, "Fill a data disk of the host. Undo it with `disk-free`.", _HOST, _DISK)
_command(faults.disk_free, "Free the space that `disk-full` took.", _HOST, _DISK)
_command(faults.reboot, "Stop the host and start it again. Its packet filter rules are lost.", _HOST, _HARD)
_command(faults.power_cut, "Kill every process of the host and leave it off. Undo it with `power-on`.", _HOST)
_command(faults.power_on, "Start a host that is off.", _HOST)
_command(faults.operator_cut, "Disconnect the operator from all hosts. Undo it with `operator-restore`.")
_command(faults.operator_restore, "Connect the operator to the lab's network again.")
