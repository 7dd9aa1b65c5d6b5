"""The cut-over with one fault at one phase, judged, all brought back, and the next.

``python -m zkmigrate.lab.drills.window_faults`` builds a lab with load for each policy on lost brokers, moves
brokers and clients to dest, and plays :data:`~zkmigrate.lab.drills.window_cases.CASES` on it: rollbacks from
every phase, kills of the tool, dead hosts, leaking rules, a cut link, a lost leader of source, a lost broker.
After each case it judges exit code, direction, sessions, owners, the controller epoch, the trees on disk,
dest's files and rules, and source; at the end of a lab the records of its clients.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from zkmigrate.lab import fault
from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.runner import directory_option, loaded_lab, run_drill
from zkmigrate.lab.drills.window_cases import CASES, LABS, Case
from zkmigrate.lab.drills.window_site import WindowSite
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.spec import LONG_SESSIONS, Role
from zkmigrate.lab.wait import Progress

NAME = "window_faults"
RUN = "faults"
KINDS = ("producer", "consumer", "metadata", "tenant")
FLOWING_S = 60.0
OPEN_LIMIT_S = 30
"""Seconds that hosts wait for OPEN: enough to boot a host, or to start the tool again, meanwhile."""
LEASE = {"fence_ttl_ms": 9000, "cut_ttl_ms": 5000}
"""Longer than the defaults: ten hosts and their load share a few cores, and the sessions last long enough."""
CASE_S, LAB_S = 20.0, 120.0
"""Seconds that a case and the building of a lab take, before any was measured."""


@dataclass
class Pace:
    """How long the drill will still take, by what it took so far; all in seconds."""

    cases: int
    labs: int
    of_cases: list[float] = field(default_factory=list)
    of_labs: list[float] = field(default_factory=list)

    def left_s(self) -> float:
        """Seconds until the end."""
        case = sum(self.of_cases) / len(self.of_cases) if self.of_cases else CASE_S
        lab = sum(self.of_labs) / len(self.of_labs) if self.of_labs else LAB_S
        return (self.cases - len(self.of_cases)) * case + (self.labs - len(self.of_labs)) * lab


def chosen(only: str) -> tuple[Case, ...]:
    """The cases whose name the pattern is found in, in order; LabError when there is none."""
    cases = tuple(case for case in CASES if re.search(only, case.name))
    if not cases:
        raise LabError(f"no case {only!r}; --list names them")
    return cases


def repeated(cases: tuple[Case, ...], times: int) -> tuple[Case, ...]:
    """All cases, so many rounds; LabError for a case after which its lab cannot be used again."""
    if times == 1:
        return cases
    if past_open := [case.name for case in cases if case.last]:
        raise LabError(f"past OPEN a lab cannot be used again, so run these without --times: {past_open}")
    return tuple(replace(case, name=f"{case.name}-{n}") for n in range(1, times + 1) for case in cases)


def roll_to_dest(lab: Lab, load: LoadRunner, directory: Path, broker_lost: str) -> WindowSite:
    """Brokers and clients of a new lab on dest, everything flowing."""
    load.start(KINDS)
    load.wait_flowing(KINDS, FLOWING_S)
    policy = {"broker_lost_in_window": broker_lost, "open_limit_s": OPEN_LIMIT_S, "lease": LEASE}
    write_inventory(lab, directory / "migration.yml", policy)
    operator = Operator(lab, directory, RUN)
    operator.through("join", "run", "--until", "join")
    fault.start_at_boot(lab, Role.DEST)
    operator.through("roll", "resume", "--until", "roll", "--skip", "rehearse")
    load.start(("raw",))
    load.wait_flowing(("raw",), FLOWING_S)
    return WindowSite(lab, operator, load)


def in_one_lab(
    name: str, own: list[Case], directory: Path, pace: Pace, progress: Progress, outcomes: list[result.Case]
) -> None:
    """Build a lab and play its cases; those that cannot be played any more do not hold."""
    began = time.monotonic()
    # The rates keep logs and trees short, which every judgement reads.
    history = directory / "history"
    with loaded_lab(LONG_SESSIONS, history, progress, raw_rate=10.0, tenant_rate=20.0) as (lab, load):
        site = roll_to_dest(lab, load, directory, LABS[name])
        pace.of_labs.append(time.monotonic() - began)
        progress(f"lab {name}: brokers and clients on dest, {len(own)} cases")
        lost = ""
        for case in own:
            if lost:
                why = f"not played: {lost}"
                outcomes.append(result.Case(case.name, case.what, case.expected, why, 0.0, False))
                continue
            outcome = site.play(case)
            outcomes.append(outcome)
            pace.of_cases.append(outcome.seconds)
            held = "as expected" if outcome.held else "WRONG"
            left = f"about {pace.left_s() / 60:.0f} min to go"
            progress(f"{outcome.name} ({outcome.seconds} s), {held}: {outcome.outcome}; {left}")
            if not outcome.held and not case.last:
                try:
                    site.recover()
                except LabError as error:
                    lost = f"the lab did not come back after {case.name}: {error}"
        past_open = any(case.last for case in own) and not lost
        outcomes.append(site.judge_load(past_open, progress, f"nobody-hurt-{name}"))


@click.command()
@click.option("--only", default="", help="Only cases whose name this regular expression is found in.")
@click.option("--times", default=1, type=click.IntRange(1), help="How many rounds of these cases are played.")
@click.option("--list", "listed", is_flag=True, help="List the cases and the expected outcomes.")
@directory_option(NAME)
def main(only: str, times: int, listed: bool, directory: Path) -> None:
    """Cut over again and again, each time with another fault, and judge the outcome."""
    try:
        cases = repeated(chosen(only), times)
    except LabError as error:
        raise click.ClickException(str(error)) from error
    if listed:
        for case in cases:
            click.echo(f"{case.name:<28}{case.what}; {case.expected}")
        return

    def drill(directory: Path, progress: Progress, outcomes: list[result.Case]) -> None:
        labs = {name: [case for case in cases if case.lab == name] for name in LABS}
        labs = {name: own for name, own in labs.items() if own}
        pace = Pace(len(cases), len(labs))
        progress(f"{len(cases)} cases on {len(labs)} labs, about {pace.left_s() / 60:.0f} min")
        for name, own in labs.items():
            folder = directory / name
            folder.mkdir()
            in_one_lab(name, own, folder, pace, progress, outcomes)

    run_drill(NAME, directory, drill)


if __name__ == "__main__":
    main()
