"""The commands of `zkmigrate lab`, which runs the embedded lab."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import click
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from zkmigrate.cli.flags import F
from zkmigrate.lab import lab as labs
from zkmigrate.lab import service, state
from zkmigrate.lab.capture_answers import record
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.fault_cli import fault, lab_option
from zkmigrate.lab.inventory import write_cluster_inventory, write_inventory
from zkmigrate.lab.load.cli import json_option, load
from zkmigrate.lab.provision import ProvisionError
from zkmigrate.lab.security import Kind
from zkmigrate.lab.security import parse as kinds
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.shutdown import end_on_signals
from zkmigrate.lab.spec import SHARED, SHARED_HELP, LabSpec


class LabGroup(click.Group):
    """A command group that prints an error of the lab as one line on standard error, with exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (LabError, ProvisionError) as error:
            raise click.ClickException(str(error)) from error


_SHELLS = ("bash", "sh", "dash")


@click.group("lab", cls=LabGroup)
def lab() -> None:
    """Run real ZooKeeper and Kafka hosts on this machine, to try migrations."""


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _pairs(values: tuple[str, ...], what: str) -> dict[str, str]:
    """Return words of the form `NAME=VALUE` as a dict. Raises UsageError for a word without `=`.

    what: the option's name for the message.
    """
    for value in values:
        if "=" not in value:
            raise click.UsageError(f"{what} {value!r} has no =. Needed: NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


def _numbers(values: dict[str, str], what: str) -> dict[str, int]:
    for name, value in values.items():
        if not value.isdigit():
            raise click.UsageError(
                f"{what} {name}={value} is not possible. Needed: {name}= and a whole number"
            )
    return {name: int(value) for name, value in values.items()}


def _shape(file: Path) -> Shape:
    """Read the shape of a lab from a YAML file. Raises LabError."""
    try:
        return Shape.from_json(YAML(typ="safe").load(file))
    except YAMLError as error:
        raise LabError(f"{file} is not YAML: {error}") from error


_DEFAULT = LabSpec()


def _option(option: str, field: str, text: str) -> Callable[[F], F]:
    """Return a command-line option for a field of the lab's spec, with the field's default."""
    return click.option(option, field, default=getattr(_DEFAULT, field), show_default=True, help=text)


@lab.command()
@_option("--source", "source_version", "ZooKeeper version of source.")
@_option("--dest", "dest_version", "ZooKeeper version of dest.")
@_option("--kafka", "kafka_version", "Kafka version.")
@_option("--dest-count", "dest_count", "Number of dest hosts: 3, 5 or 7.")
@_option("--source-count", "source_count", "Number of source servers with a vote: 1, 3, 5 or 7.")
@_option("--source-observers", "source_observers", "Number of source's own observers: 0 to 2.")
@_option("--debian", "debian", "Release of Debian on all hosts: 12 or 13.")
@_option("--chroot", "chroot", "Kafka's chroot on source.")
@_option("--session-timeout-ms", "session_timeout_ms", "Session timeout of the brokers, in milliseconds.")
@_option("--tick-time-ms", "tick_time_ms", "ZooKeeper's tickTime, in milliseconds.")
@_option("--tree-size", "tree_size", "Number of filler znodes on source.")
@_option("--tree-node-bytes", "tree_node_bytes", "Size of a filler znode, in bytes.")
@click.option(
    "--reconfig/--no-reconfig", "reconfig_enabled", default=False, help="Set reconfigEnabled on source."
)
@_option("--four-letter-words", "four_letter_words", "Value of 4lw.commands.whitelist.")
@click.option("--sync/--no-sync", "sync_enabled", default=True, help="Set syncEnabled on source.")
@click.option("--jute-maxbuffer", type=int, help="jute.maxbuffer of every ZooKeeper host, in bytes.")
@click.option("--source-option", multiple=True, metavar="KEY=VALUE", help="Extra line in source's zoo.cfg.")
@click.option("--broker-option", multiple=True, metavar="KEY=VALUE", help="Extra line in server.properties.")
@click.option(
    "--bandwidth-kbit",
    multiple=True,
    metavar="HOST=KBIT",
    help="Limit a host's network link to KBIT kilobits per second.",
)
@click.option(
    "--data-disk-mb",
    type=int,
    default=0,
    help="Size of a separate disk for ZooKeeper's data, in megabytes; 0: none.",
)
@click.option(
    "--service",
    type=click.Choice(["systemd", "commands"]),
    default="systemd",
    help="How servers are started: by systemd or by scripts.",
)
@click.option(
    "--security",
    metavar="KIND,...",
    default="",
    help=f"Security of servers and their clients: {', '.join(Kind)}; full is all but enforce. Default: none.",
)
@click.option("--shared", type=click.Choice([*SHARED]), help=SHARED_HELP)
@click.option(
    "--shape",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="YAML file of ensembles and clusters, instead of those of a move.",
)
@json_option
def up(
    as_json: bool,
    security: str,
    shape: Path | None,
    source_option: tuple[str, ...],
    broker_option: tuple[str, ...],
    bandwidth_kbit: tuple[str, ...],
    **options: Any,
) -> None:
    """Build a lab, which runs until `lab down`."""
    end_on_signals()
    spec = LabSpec(
        source_options=_pairs(source_option, "--source-option"),
        broker_options=_pairs(broker_option, "--broker-option"),
        bandwidth_kbit=_numbers(_pairs(bandwidth_kbit, "--bandwidth-kbit"), "--bandwidth-kbit"),
        security=kinds(security),
        shape=None if shape is None else _shape(shape),
        **options,
    )
    made = labs.Lab.up(spec, _progress, kept=True)
    if as_json:
        click.echo(json.dumps(made.status()))
    else:
        click.echo(made.id)


@lab.command()
@lab_option
@click.option("--all", "every", is_flag=True, help="Remove every lab on this machine, even those in use.")
def down(named: str | None, every: bool) -> None:
    """Remove a lab and its hosts, and all labs whose owner has died."""
    labs.sweep(_progress)
    if every:
        for directory in state.directories():
            labs.Lab(directory).down(_progress)
    else:
        labs.find(named).down(_progress)


@lab.command()
def sweep() -> None:
    """Remove the labs whose owner has died."""
    labs.sweep(_progress)


@lab.command()
@lab_option
@json_option
def status(named: str | None, as_json: bool) -> None:
    """Show a lab's hosts, units and ZooKeeper modes."""
    seen = labs.find(named).status()
    if as_json:
        click.echo(json.dumps(seen))
        return
    owner = "kept" if seen["kept"] else ("owner runs" if seen["owner_alive"] else "owner is dead")
    ready = "ready" if seen["ready"] else "not ready"
    click.echo(f"lab {seen['id']}  {seen['backend']}  {ready}  {owner}  {seen['directory']}")
    for name, host in seen["hosts"].items():
        power = "up" if host["up"] else "down"
        unit = f"{host['unit']} {host['unit_state']}" if "unit" in host else ""
        click.echo(f"{name:9} {host['address']:12} {power:5} {unit:20} {host.get('mode') or ''}".rstrip())


def _become(command: list[str]) -> NoReturn:
    """Replace this process by a command. Raises LabError if the command's program does not exist."""
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        raise LabError(f"the program {command[0]} is not on this machine") from None


@lab.command(context_settings={"ignore_unknown_options": True})
@lab_option
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(named: str | None, host: str, command: tuple[str, ...]) -> None:
    """Log in to HOST by ssh from the operator's network.

    The login uses the unprivileged user. With COMMAND, run that command and end.
    """
    _become(labs.find(named).ssh_command(host, command))


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@lab_option
@click.option("--host", help="Run the command as root on this host instead.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(named: str | None, host: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND in the operator's network namespace.

    COMMAND uses this machine's files.
    """
    found = labs.find(named)
    if sys.stdin.isatty() and sys.stdout.isatty():
        command = (*shell_prompt(found.id, host or "operator", command), *command)
    _become(found.exec_command(host, command) if host else found.operator_command(command))


def shell_prompt(lab_id: str, where: str, command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that show lab and host in the prompt of an interactive shell; none for other commands.

    The words are put before the command. Bash reads files that set PS1, so PROMPT_COMMAND sets PS1 again
    afterwards.
    """
    shell, options = PurePosixPath(command[0]).name, command[1:]
    if shell not in _SHELLS or not set(options) <= {"-i", "-l"}:
        return ()
    prompt = f"(lab {lab_id} {where}) "
    if shell != "bash":
        return ("env", f"PS1={prompt}# ")
    return ("env", f"PROMPT_COMMAND=PS1='{prompt}\\w\\$ '; unset PROMPT_COMMAND")


@lab.command()
@lab_option
@click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False, writable=True), default="migration.yml"
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option(
    "--cluster", metavar="NAME", help="Write only this Kafka cluster, for a playbook that needs no ensembles."
)
def inventory(named: str | None, file: Path, force: bool, cluster: str | None) -> None:
    """Write the lab's inventory, for `zkmigrate run`.

    FILE is migration.yml by default.
    """
    if file.exists() and not force:
        raise LabError(f"{file} exists. Next: give another name, or --force to replace it")
    found = labs.find(named)
    whole = cluster is None and found.spec.shape is None
    click.echo(write_inventory(found, file) if whole else write_cluster_inventory(found, file, cluster))


@lab.command("record")
@lab_option
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--journals", is_flag=True, help="Save every host's whole system journal, too.")
def record_(named: str | None, directory: Path, journals: bool) -> None:
    """Save answers and files of every host, as test data.

    DIRECTORY receives raw answers, configs and small data files.
    """
    record(labs.find(named), directory, _progress, journals=journals)


@lab.command()
@lab_option
@click.argument("host")
@click.option("--unit", help="Show only this unit. Default: kafka or zookeeper.")
@click.option(
    "-n",
    "--lines",
    type=int,
    default=200,
    show_default=True,
    help="Number of lines to show, the newest ones.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
def logs(named: str | None, host: str, unit: str | None, lines: int, follow: bool) -> None:
    """Show the system journal of HOST."""
    found = labs.find(named)
    if unit is None and host in found.plans and service.has_server(found.plans[host].role):
        unit = service.name_of(found.plans[host].role)
    argv = ["journalctl", "--no-pager", "--output=short-iso-precise", f"--lines={lines}"]
    argv += ["--follow"] if follow else []
    argv += [f"--unit={unit}"] if unit else []
    _become(found.exec_command(host, argv))


lab.add_command(fault)
lab.add_command(load)
