"""The demo on slower machines: ``python -m bench.demo_speed --runs 5``.

Runs whole demos alone, beside two busy loops of normal priority, and with a quarter of two cores (the limit
of a control group that also holds the lab). Prints how each ended and how long it took. Needs root and a
provisioned lab.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from zkmigrate.lab import control_groups
from zkmigrate.lab.shutdown import end_on_signals, running

AIMS_S = {"alone": 240.0, "loops": 480.0, "quarter": 900.0}
"""How long a demo may take, by what it runs beside, seconds."""
CORES = 2
_PERIOD_US = 100_000
_LIMIT_S, _ENDS_S = 2400, 120


@dataclass(frozen=True)
class Outcome:
    """How one demo ended; ``slowness``, ``window_over_floor`` and ``tries`` are None without a result."""

    setting: str
    code: int
    held: bool
    seconds: float
    slowness: float | None = None
    window_over_floor: float | None = None
    tries: int | None = None
    broken: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether it reached the aim: exit 0, every claim held, in time."""
        return self.code == 0 and self.held and self.seconds <= AIMS_S[self.setting]


def outcome(setting: str, code: int, seconds: float, result: dict[str, Any] | None) -> Outcome:
    """The outcome of a demo, from its exit code and its result.json, if any."""
    if result is None:
        return Outcome(setting, code, False, round(seconds, 1))
    broken = [name for name, claim in result["claims"].items() if claim["held"] != "yes"]
    broken += [name for name, held in result["conditions"].items() if not held]
    return Outcome(
        setting,
        code,
        result["held"],
        result["seconds"],
        result["machine"]["slowness"],
        result["window_over_floor"],
        len(result["tries"]),
        tuple(broken),
    )


@contextlib.contextmanager
def _beside(setting: str) -> Iterator[tuple[str, ...]]:
    """Makes the machine slow; the command that starts a program on it."""
    with contextlib.ExitStack() as stack:
        if setting == "loops":
            for _ in range(CORES):
                stack.enter_context(running(["sh", "-c", "while :; do :; done"]))
        if setting == "quarter":
            group = stack.enter_context(_limited(CORES / 4))
            yield ("sh", "-c", f'echo $$ > {shlex.quote(str(group))}/cgroup.procs && exec "$@"', "sh")
        else:
            yield ()


@contextlib.contextmanager
def _limited(cores: float) -> Iterator[Path]:
    """A control group whose processes together get so many cores."""
    root = next(one.root for one in control_groups.mounted() if one.shares_processors)
    group = root / f"zkm-limit-{os.getpid()}"
    group.mkdir()
    try:
        quota = round(cores * _PERIOD_US)
        # As much as twenty processes: others must not take what the limit leaves.
        control_groups.weigh(group, 2 * control_groups.HOSTS_TOGETHER)
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        yield group
    finally:
        group.rmdir()


def one(setting: str, directory: Path) -> Outcome:
    """Run one demo; its output is in ``directory/screen.log``."""
    directory.mkdir(parents=True)
    argv = [sys.executable, "-m", "zkmigrate.lab.demo", "--directory", str(directory / "demo")]
    into = ("sh", "-c", f'exec "$@" > {shlex.quote(str(directory / "screen.log"))} 2>&1', "sh")
    with _beside(setting) as prefix:
        began = time.monotonic()
        with running([*prefix, *into, *argv], patience_s=_ENDS_S) as process:
            code = process.wait(_LIMIT_S)
        seconds = time.monotonic() - began
    file = directory / "demo" / "result.json"
    return outcome(setting, code, seconds, json.loads(file.read_text()) if file.exists() else None)


@click.command()
@click.option("--runs", default=5, show_default=True, help="Demos of each kind.")
@click.option("--only", type=click.Choice(list(AIMS_S)), multiple=True, help="Only these kinds.")
@click.option("--directory", default="demo-speed", type=click.Path(path_type=Path), help="Where all is kept.")
def main(runs: int, only: tuple[str, ...], directory: Path) -> None:
    """Run demos on a machine that is made slow; ends with 1 when one of them missed its aim."""
    end_on_signals()
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    seen = []
    for setting in only or AIMS_S:
        for number in range(1, runs + 1):
            found = one(setting, directory / f"{setting}-{number}-{time.time_ns()}")
            seen.append(found)
            click.echo(f"{'reached' if found.reached else 'MISSED'} {json.dumps(asdict(found))}")
            with (directory / "outcomes.jsonl").open("a") as out:
                out.write(json.dumps(asdict(found)) + "\n")
    reached = sum(found.reached for found in seen)
    click.echo(f"{reached} of {len(seen)} reached their aim")
    sys.exit(0 if reached == len(seen) else 1)


if __name__ == "__main__":
    main()
