"""`zkmigrate lab`: the embedded lab from the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import click
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from zkmigrate.lab import lab as labs
from zkmigrate.lab import service, state
from zkmigrate.lab.capture_answers import record
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.fault_cli import fault
from zkmigrate.lab.inventory import write_cluster_inventory, write_inventory
from zkmigrate.lab.load.cli import load
from zkmigrate.lab.provision import ProvisionError
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.shutdown import end_on_signals
from zkmigrate.lab.spec import LabSpec, Role


class LabGroup(click.Group):
    """Turns the lab's errors into one line on stderr and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (LabError, ProvisionError) as error:
            raise click.ClickException(str(error)) from error


_SHELLS = ("bash", "sh", "dash")

lab_option = click.option("--lab", "named", metavar="ID", help="Which lab; the only one when left out.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("lab", cls=LabGroup)
def lab() -> None:
    """Real ZooKeeper and Kafka hosts on this machine, to try migrations on."""


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _pairs(values: tuple[str, ...], what: str) -> dict[str, str]:
    """`KEY=VALUE` words as a dict; a word without `=` is refused."""
    for value in values:
        if "=" not in value:
            raise click.UsageError(f"{what} {value!r} needs the form NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


def _numbers(values: dict[str, str], what: str) -> dict[str, int]:
    for name, value in values.items():
        if not value.isdigit():
            raise click.UsageError(f"{what} {name}={value} needs a whole number")
    return {name: int(value) for name, value in values.items()}


def _shape(file: Path) -> Shape:
    """The shape in a YAML file."""
    try:
        return Shape.from_json(YAML(typ="safe").load(file))
    except YAMLError as error:
        raise LabError(f"{file} is not YAML: {error}") from error


_DEFAULT = LabSpec()


@lab.command()
@click.option(
    "--source", "source_version", default=_DEFAULT.source_version, show_default=True, help="ZooKeeper."
)
@click.option("--dest", "dest_version", default=_DEFAULT.dest_version, show_default=True, help="ZooKeeper.")
@click.option("--kafka", "kafka_version", default=_DEFAULT.kafka_version, show_default=True, help="Kafka.")
@click.option("--dest-count", type=int, default=_DEFAULT.dest_count, show_default=True, help="3 or 5.")
@click.option("--chroot", default=_DEFAULT.chroot, show_default=True)
@click.option("--session-timeout-ms", type=int, default=_DEFAULT.session_timeout_ms, show_default=True)
@click.option("--tick-time-ms", type=int, default=_DEFAULT.tick_time_ms, show_default=True)
@click.option("--tree-size", type=int, default=0, show_default=True, help="Filler znodes on source.")
@click.option(
    "--tree-node-bytes", type=int, default=_DEFAULT.tree_node_bytes, show_default=True, help="Of each filler."
)
@click.option(
    "--reconfig/--no-reconfig", "reconfig_enabled", default=False, help="reconfigEnabled on source."
)
@click.option("--four-letter-words", default=_DEFAULT.four_letter_words, show_default=True, help="Whitelist.")
@click.option("--sync/--no-sync", "sync_enabled", default=True, help="syncEnabled on source.")
@click.option("--jute-maxbuffer", type=int, help="Bytes, on every ZooKeeper host.")
@click.option(
    "--source-option", multiple=True, metavar="KEY=VALUE", help="A further line of source's zoo.cfg."
)
@click.option(
    "--broker-option", multiple=True, metavar="KEY=VALUE", help="A further line of server.properties."
)
@click.option("--bandwidth-kbit", multiple=True, metavar="HOST=KBIT", help="Limits a host's link.")
@click.option("--data-disk-mb", type=int, default=0, help="A disk of its own for ZooKeeper's data.")
@click.option(
    "--service",
    type=click.Choice(["systemd", "commands"]),
    default="systemd",
    help="Who starts servers.",
)
@click.option(
    "--shape",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Other ensembles and clusters than those of a move: a YAML file.",
)
@json_option
def up(
    as_json: bool,
    shape: Path | None,
    source_option: tuple[str, ...],
    broker_option: tuple[str, ...],
    bandwidth_kbit: tuple[str, ...],
    **options: Any,
) -> None:
    """Build a lab and keep it until `lab down`."""
    end_on_signals()
    spec = LabSpec(
        source_options=_pairs(source_option, "--source-option"),
        broker_options=_pairs(broker_option, "--broker-option"),
        bandwidth_kbit=_numbers(_pairs(bandwidth_kbit, "--bandwidth-kbit"), "--bandwidth-kbit"),
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
@click.option("--all", "every", is_flag=True, help="Every lab on this machine, living owner or not.")
def down(named: str | None, every: bool) -> None:
    """Power a lab's hosts off and remove all it owns; labs whose owner died go too."""
    labs.sweep(_progress)
    if every:
        for directory in state.directories():
            labs.Lab(directory).down(_progress)
    else:
        labs.find(named).down(_progress)


@lab.command()
def sweep() -> None:
    """Remove the labs whose owner died without taking them down."""
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
    """Replaces this process by a command."""
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
    """Log in to HOST as the unprivileged user, from the operator's network."""
    _become(labs.find(named).ssh_command(host, command))


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@lab_option
@click.option("--host", help="Run as root inside this host instead of in the operator's network.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(named: str | None, host: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND in the operator's network namespace, with this machine's files."""
    found = labs.find(named)
    if sys.stdin.isatty() and sys.stdout.isatty():
        command = (*shell_prompt(found.id, host or "operator", command), *command)
    _become(found.exec_command(host, command) if host else found.operator_command(command))


def shell_prompt(lab_id: str, where: str, command: Sequence[str]) -> tuple[str, ...]:
    """What goes before an interactive shell so that its prompt says where it is; nothing before any other
    command. Bash's own files set PS1 anew, so that it is set once more when they have been read."""
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
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--cluster", metavar="NAME", help="Of this Kafka cluster alone, for a playbook that needs no more."
)
def inventory(named: str | None, file: Path, force: bool, cluster: str | None) -> None:
    """Write the lab's migration.yml into FILE (migration.yml where left out), for `zkmigrate run`."""
    if file.exists() and not force:
        raise LabError(f"{file} is there already; possible now: another name, or --force to replace it")
    found = labs.find(named)
    whole = cluster is None and found.spec.shape is None
    click.echo(write_inventory(found, file) if whole else write_cluster_inventory(found, file, cluster))


@lab.command("record")
@lab_option
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--journals", is_flag=True, help="Every host's whole journal too.")
def record_(named: str | None, directory: Path, journals: bool) -> None:
    """Capture raw answers, configs and small data files of every host into DIRECTORY, as test data."""
    record(labs.find(named), directory, _progress, journals=journals)


@lab.command()
@lab_option
@click.argument("host")
@click.option("--unit", help="Only this unit; kafka or zookeeper when left out.")
@click.option("-n", "--lines", type=int, default=200, show_default=True)
@click.option("-f", "--follow", is_flag=True)
def logs(named: str | None, host: str, unit: str | None, lines: int, follow: bool) -> None:
    """Show the journal of HOST."""
    found = labs.find(named)
    if unit is None and host in found.plans and found.plans[host].role is not Role.CLIENT:
        unit = service.name_of(found.plans[host].role)
    argv = ["journalctl", "--no-pager", "--output=short-iso-precise", f"--lines={lines}"]
    argv += ["--follow"] if follow else []
    argv += [f"--unit={unit}"] if unit else []
    _become(found.exec_command(host, argv))


lab.add_command(fault)
lab.add_command(load)
