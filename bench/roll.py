"""The roll of the brokers against bare restarts of the same brokers: ``python -m bench.roll --rounds 3``.

A round on one loaded lab: the tool rolls the brokers to dest; bare restarts (restart the unit, wait until it
is registered and every ISR is full, then the next); the tool walks the roll back; bare restarts. Times are
from the first change to the last full ISR, divided by the brokers, without what the tool looks at before its
first change.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import click

from bench.spread import out_option, save, shown, spread
from zkmigrate.engine.journal import read as read_journal
from zkmigrate.lab.demo import Demo
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.service import control_command
from zkmigrate.lab.shutdown import end_on_signals
from zkmigrate.lab.spec import LabSpec, Role

RUN = "demo"
_FLOWING_S = 60.0
_ROLL = "roll.roll"


def last_roll_s(run_directory: Path) -> float:
    """Seconds from the first change of the newest visit to the roll until that visit was done.

    Raises ValueError when it was not done.
    """
    first: float | None = None
    took: float | None = None
    for line in (run_directory / "journal.jsonl").read_text().splitlines():
        entry = json.loads(line)
        body = entry["body"]
        if f"{body.get('stage')}.{body.get('step')}" != _ROLL:
            continue
        if entry["kind"] == "step" and body["event"] == "begin":
            first, took = None, None
        elif entry["kind"] == "intent" and first is None:
            first = float(body["mono"])
        elif entry["kind"] == "step" and body["event"] == "done" and first is not None:
            took = float(body["mono"]) - first
    if took is None:
        raise ValueError(f"{run_directory} holds no whole visit to {_ROLL}")
    return took


def bare_s(lab: Lab) -> float:
    """Restart every broker, one after the other, each once all ISRs are full again; the seconds."""
    began = time.monotonic()
    for host in lab.role(Role.BROKER):
        lab.exec(host.name, control_command(lab.spec, Role.BROKER, "restart"))
        lab.wait_for_brokers()
    return time.monotonic() - began


def one_round(demo: Demo) -> tuple[list[float], list[float]]:
    """Seconds per broker: of the tool (forward, back) and bare (after each)."""
    brokers = len(demo.lab.role(Role.BROKER))
    tool, bare = [], []
    for verb, options in (("run", ("--until", "roll")), ("rollback", ("--to", "roll"))):
        demo.tool(verb, "--run-id", RUN, "--yes", *options)
        tool.append(last_roll_s(demo.runs / RUN) / brokers)
        bare.append(bare_s(demo.lab) / brokers)
        demo.progress(f"per broker: tool {tool[-1]:.2f} s, bare {bare[-1]:.2f} s")
    return tool, bare


@click.command()
@click.option("--rounds", default=3, show_default=True)
@out_option
def main(rounds: int, out: Path | None) -> None:
    """Measure the roll against bare restarts."""
    end_on_signals()
    tool: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="zkm-bench-") as name, Lab.up(LabSpec(), click.echo) as lab:
        demo = Demo(lab, Path(name), click.echo)
        load = runner_for(lab, demo.history)
        try:
            load.start(("producer", "consumer"))
            load.wait_flowing(("producer", "consumer"), _FLOWING_S)
            write_inventory(lab, demo.directory / "migration.yml")
            demo.tool("run", "--run-id", RUN, "--yes", "--until", "rehearse")
            for _ in range(rounds):
                found = one_round(demo)
                tool += found[0]
                bare += found[1]
        finally:
            load.kill()
        if read_journal(demo.runs / RUN).ended is None:
            sys.exit("the run did not end in order")
    ratios = [ours / theirs for ours, theirs in zip(tool, bare, strict=True)]
    rows = (("tool, per broker", tool, "s"), ("bare, per broker", bare, "s"), ("tool / bare", ratios, ""))
    click.echo("\n".join(shown(title, found, unit) for title, found, unit in rows))
    save(out, {"summary": {title: spread(found) for title, found, _ in rows}, "tool": tool, "bare": bare})


if __name__ == "__main__":
    main()
