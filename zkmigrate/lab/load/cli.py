"""Start, stop, show and judge the recorded load from the command line: ``zkmigrate lab load``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from zkmigrate.lab.fault_cli import lab_option
from zkmigrate.lab.judge import by_second, load_history
from zkmigrate.lab.judge import judge as judge_history
from zkmigrate.lab.lab import Lab, find
from zkmigrate.lab.load.config import KAFKA_KINDS, KINDS, MOVE_KINDS, parse_plan
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import of_cluster, runner_for

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
out_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the recording. Default: `load` in the lab's own directory.",
)
kind_option = click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="A kind of load. Repeatable. Default: all kinds.",
)


@click.group("load")
def load() -> None:
    """Run real clients that record every acknowledgement, and judge the recording."""


def _runner(lab: Lab, out: Path | None, **changes: Any) -> LoadRunner:
    return runner_for(lab, (out or lab.directory / "load").absolute(), **changes)


@load.command()
@lab_option
@out_option
@kind_option
@click.option("--produce-rate", type=float, help="Records per second.")
@click.option(
    "--produce-plan",
    "plan",
    metavar="SECONDS:RATE,...",
    help="Steps of the producer's rate, as in 60:100,30:200. The last rate stays.",
)
@click.option("--repeat", is_flag=True, help="Begin the plan again after its last step.")
@click.option("--record-bytes", type=int, help="Size of a record in bytes.")
@click.option("--partitions", type=int, help="Partitions of each of the two topics.")
@click.option("--metadata-rate", type=float, help="Kafka admin changes per second.")
@click.option("--raw-rate", type=float, help="Creates per second on each dest host.")
@click.option("--tenant-rate", type=float, help="Sets per second of the other tenant.")
@click.option(
    "--cluster", metavar="NAME", help="The cluster of a lab with a shape. Default: the only cluster."
)
def start(
    named: str | None,
    out: Path | None,
    kinds: tuple[str, ...],
    cluster: str | None,
    plan: str | None,
    repeat: bool,
    **rates: float | None,
) -> None:
    """Start the load and leave it running. A lab with a shape gets only the kinds that use Kafka.

    Raw clients wait for their dest host to serve, so they may start before it has joined.
    """
    changes: dict[str, Any] = {name: rate for name, rate in rates.items() if rate is not None}
    if plan is not None:
        if "produce_rate" in changes:
            raise click.UsageError(
                "--produce-rate and --produce-plan are both given. Needed: only one of them"
            )
        changes |= {"produce_plan": parse_plan(plan), "produce_repeat": repeat}
    elif repeat:
        raise click.UsageError("--repeat is given without --produce-plan. Needed: the plan to repeat")
    lab = find(named)
    runner = _runner(lab, out, **of_cluster(lab.spec, lab.cluster(cluster).name), **changes)
    runner.start(kinds or (MOVE_KINDS if lab.spec.shape is None else KAFKA_KINDS))
    click.echo(str(runner.directory))


@load.command()
@lab_option
@out_option
@kind_option
def stop(named: str | None, out: Path | None, kinds: tuple[str, ...]) -> None:
    """Stop the load. Without --kind, also read the log to its end and list the znodes on dest."""
    runner = _runner(find(named), out)
    wrong = [f"{kind} had to be killed" for kind in runner.stop(kinds)] if kinds else runner.finish()
    if wrong:
        raise click.ClickException("; ".join(wrong))


@load.command()
@lab_option
@out_option
@json_option
def status(named: str | None, out: Path | None, as_json: bool) -> None:
    """Show the state of each kind of load."""
    found = _runner(find(named), out).status()
    if as_json:
        click.echo(json.dumps([asdict(item) for item in found]))
        return
    for item in found:
        state = "running" if item.running else "ended"
        click.echo(f"{item.kind:9} {state:8} {item.events:7} events  last {item.last_event}  {item.problem}")


@load.command()
@json_option
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
def judge(directory: Path, as_json: bool) -> None:
    """Judge the recording in DIRECTORY. The exit code is 1 unless every claim held.

    The load alone lacks what the demo records beside it. Some claims are then unknown and the code is 1,
    though nothing is lost: read the rows `lost`, `duplicated` and `acked_creates_missing`.
    """
    verdict = judge_history(load_history(directory))
    if as_json:
        click.echo(json.dumps(verdict.result(), indent=1))
    else:
        for claim in verdict.claims:
            click.echo(f"{claim.held.value:8} {claim.id:38} {json.dumps(claim.value)}  {claim.detail}")
    raise SystemExit(0 if verdict.held else 1)


@load.command()
@json_option
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
def latency(directory: Path, as_json: bool) -> None:
    """Show how long the producer waited for acknowledgements, for each second.

    DIRECTORY is a recording, which may still grow.
    """
    seconds = by_second(load_recording(directory, "producer"))
    if as_json:
        click.echo(json.dumps([asdict(second) for second in seconds]))
        return
    for second in seconds:
        planned = "" if second.planned is None else f"  planned {second.planned:g}/s"
        click.echo(
            f"{second.at_s:8} s  {second.acked:6} records  p50 {second.p50_ms:9.3f} ms  "
            f"p99 {second.p99_ms:9.3f} ms  longest {second.max_ms:9.3f} ms{planned}"
        )
