"""The cut-over under attack: one fault at one phase, judged, the world back, and the next.

``python -m zkmigrate.lab.drills.window_faults`` builds a lab with load for each policy on lost brokers, moves
brokers and clients to dest, and plays :data:`~zkmigrate.lab.drills.window_cases.CASES` on it: rollbacks from
every phase, kills of the tool, dead hosts, leaking rules, a cut link, a lost leader of source, a lost broker.
After each case exit code and direction, sessions, owners, the controller epoch, the trees on disk, dest's
files and rules, and source are compared with what has to be; at the end of a lab the records of its clients.
``DIRECTORY/result.json`` has a row per case.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab import fault
from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.bench import Bench
from zkmigrate.lab.drills.start import Telling, begun
from zkmigrate.lab.drills.window_cases import CASES, LABS, Case
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.spec import PATIENT, Role
from zkmigrate.lab.wait import Progress

NAME = "window_faults"
RUN = "faults"
KINDS = ("producer", "consumer", "metadata", "tenant")
FLOWING_S = 60.0
OPEN_LIMIT_S = 30
"""How long hosts wait for OPEN: long enough to boot a host, or the tool, behind the shut door."""
LEASE = {"fence_ttl_ms": 9000, "cut_ttl_ms": 5000}
"""Longer than by default: ten hosts and their load share a few cores, and the sessions bear it."""
CASE_S, LAB_S = 20.0, 120.0
"""What a case and a lab's building take, as long as none has been seen."""


@dataclass
class Pace:
    """How long it will still take, from what it took so far; seconds."""

    cases: int
    labs: int
    of_cases: list[float] = field(default_factory=list)
    of_labs: list[float] = field(default_factory=list)

    def left_s(self) -> float:
        """Seconds until all is done."""
        case = sum(self.of_cases) / len(self.of_cases) if self.of_cases else CASE_S
        lab = sum(self.of_labs) / len(self.of_labs) if self.of_labs else LAB_S
        return (self.cases - len(self.of_cases)) * case + (self.labs - len(self.of_labs)) * lab


def chosen(only: str) -> tuple[Case, ...]:
    """The cases whose name holds the pattern, in order; LabError when there is none."""
    cases = tuple(case for case in CASES if re.search(only, case.name))
    if not cases:
        raise LabError(f"no case {only!r}; --list names them")
    return cases


def again(cases: tuple[Case, ...], times: int) -> tuple[Case, ...]:
    """All cases in turn, so many rounds; LabError for one that leaves no lab behind to repeat it on."""
    if times == 1:
        return cases
    if past_open := [case.name for case in cases if case.last]:
        raise LabError(f"past OPEN a lab cannot be used again, so run these without --times: {past_open}")
    return tuple(replace(case, name=f"{case.name}-{n}") for n in range(1, times + 1) for case in cases)


def rolled(lab: Lab, load: LoadRunner, directory: Path, broker_lost: str) -> Bench:
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
    return Bench(lab, operator, load)


def in_one_lab(
    name: str, cases: tuple[Case, ...], directory: Path, pace: Pace, say: Progress
) -> Generator[result.Case, None, None]:
    """Build a lab and play its cases; those that could not be played any more do not hold."""
    began = time.monotonic()
    with Lab.up(PATIENT, say) as lab:
        directory.mkdir(parents=True)
        # The rates keep the logs and trees short, which every judgement reads.
        load = runner_for(lab, directory / "history", raw_rate=10.0, tenant_rate=20.0)
        try:
            bench = rolled(lab, load, directory, LABS[name])
            pace.of_labs.append(time.monotonic() - began)
            say(f"lab {name}: brokers and clients on dest, {len(cases)} cases")
            lost = ""
            for case in cases:
                if lost:
                    yield result.Case(case.name, case.what, case.expected, f"not played: {lost}", 0.0, False)
                    continue
                outcome = bench.play(case)
                pace.of_cases.append(outcome.seconds)
                yield outcome
                if not outcome.held and not case.last:
                    try:
                        bench.recover()
                    except LabError as error:
                        lost = f"the lab did not come back after {case.name}: {error}"
            judged = bench.finished(past_open=any(case.last for case in cases) and not lost)
            yield replace(judged, name=f"{judged.name}-{name}")
        finally:
            load.kill()
        say(f"lab {name}: taking everything down")


def drill(cases: tuple[Case, ...], directory: Path, say: Progress) -> list[result.Case]:
    """All the labs that the cases need, one after the other.

    ``result.json`` grows with each case, and is not held before the last.
    """
    began = time.monotonic()
    labs = {name: tuple(case for case in cases if case.lab == name) for name in LABS}
    labs = {name: own for name, own in labs.items() if own}
    pace = Pace(len(cases), len(labs))
    say(f"{len(cases)} cases on {len(labs)} labs, about {pace.left_s() / 60:.0f} min")
    outcomes: list[result.Case] = []
    for name, own in labs.items():
        with closing(in_one_lab(name, own, directory / name, pace, say)) as played:
            for outcome in played:
                outcomes.append(outcome)
                told = f"{'as it must be' if outcome.held else 'WRONG'}: {outcome.outcome}"
                say(f"{outcome.name} ({outcome.seconds} s), {told}; about {pace.left_s() / 60:.0f} min to go")
                whole = len(outcomes) == len(cases) + len(labs)
                body = result.body_of(NAME, outcomes, time.monotonic() - began)
                result.write(directory, {**body, "held": whole and body["held"]})
    return outcomes


@click.command()
@click.option("--only", default="", help="Only cases whose name this regular expression is found in.")
@click.option("--times", default=1, type=click.IntRange(1), help="How many rounds of these cases are played.")
@click.option("--list", "listed", is_flag=True, help="Name the cases and what is expected of them.")
@click.option(
    "--directory", default=f"drills/{NAME}", type=click.Path(path_type=Path), help="Where the result goes."
)
def main(only: str, times: int, listed: bool, directory: Path) -> None:
    """Cut over again and again, each time with another fault, and judge what came of it."""
    say = Telling()
    try:
        cases = again(chosen(only), times)
        if listed:
            for case in cases:
                click.echo(f"{case.name:<28}{case.what}; {case.expected}")
            return
        directory = begun(directory)
        outcomes = drill(cases, directory, say)
    except ZkmigrateError as error:
        say(f"failed: {error}; what was recorded is in {directory}")
        sys.exit(1)
    wrong = sum(not outcome.held for outcome in outcomes)
    say(f"{len(outcomes)} rows, {f'{wrong} NOT as they must be' if wrong else 'all as they must be'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
