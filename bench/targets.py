"""The engine's own time for a look at one target of many: ``python -m bench.targets``.

A run has changed all of so many targets but the last few, each in its own wave, and changes those. Step and
target answer at once, and nothing is synced to a disk. The figures are the context of a look, and a whole
wave (look, intent, outcome).
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from bench.spread import out_option, save, shown, spread
from tests.unit.engine_world import ROLES, PointDisk, Points, Tiny, inventory
from zkmigrate.engine.codec import encode_change
from zkmigrate.engine.history import Next
from zkmigrate.engine.journal import Journal
from zkmigrate.engine.run import Walk
from zkmigrate.model.change import Applied, Changes, PutFile, inverses
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Playbook, Stage
from zkmigrate.model.step import AnyStep, Context, Done, Hazard, Ready, Verdict, Way

SIZES = (500, 1_000, 2_000, 20_000)
WAVES = 20
STAGE, STEP = "main", "many"


@dataclass
class Many:
    """Writes a file on one target after the other, without looking."""

    done: int
    of: int
    id: str = STEP
    title: str = "many"
    hazard: Hazard = Hazard.REVERSIBLE

    def observe(self, _c: Context, _look: Look) -> int:
        return self.done

    def check(self, _c: Context, f: int) -> Verdict:
        return Ready((f"t{f}",)) if f < self.of else Done()

    def plan(self, _c: Context, _f: int, target: str) -> Changes:
        self.done += 1
        return (file(target),)

    def undo(self, _c: Context, _f: int, _target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)


def file(target: str) -> PutFile:
    return PutFile(target, "/f", b"x" * 100, "root:root")


def sent(journal: Journal, targets: int) -> None:
    """The lines of so many waves of one target each."""
    journal.append("begin", {"run": "r", "playbook": "p", "inventory": "0", "plan": "0"}, sync=False)
    for n in range(targets):
        operation, target = f"{STAGE}.{STEP}.t{n}.{n + 1}.1", f"t{n}"
        body = {"stage": STAGE, "step": STEP, "target": target, "way": "forward", "leg": n + 1}
        change = encode_change(file(target))
        journal.append("intent", {**body, "operation": operation, "change": change, "mono": 0.0}, sync=False)
        outcome = {"operation": operation, "status": "done", "rc": 0, "output": "", "mono": 0.0}
        journal.append("outcome", outcome, sync=False)


def measured(targets: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds for one context, and for one wave."""
    found: dict[str, list[float]] = {"context": [], "wave": []}
    for _ in range(rounds):
        step = Many(targets - WAVES, targets)
        stage = Stage(STAGE, "do", (cast(AnyStep, step),))
        with tempfile.TemporaryDirectory() as folder:
            tiny = Tiny(Path(folder) / "r")
            tiny.hosts.journal = None  # it would read the whole journal at each change
            journal = Journal.create(tiny.run_dir, time.time, PointDisk(Points()))
            sent(journal, step.done)
            ports = tiny.walk(journal).ports
            machines = {f"t{n}": "192.0.2.1" for n in range(targets)}
            known = inventory().model_copy(update={"machines": machines})
            walk = Walk(Playbook("p", "many", (stage,), roles=ROLES), known, journal, ports)
            at = Next(stage, stage.steps[0], Way.FORWARD)
            began = time.perf_counter()
            walk._context(at)
            found["context"].append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            if not isinstance(walk._visit(at), Done):
                raise click.ClickException("the step came to no end")
            found["wave"].append((time.perf_counter() - began) * 1000 / WAVES)
            journal.close()
    return found


@click.command(help=__doc__)
@click.option("--targets", type=click.IntRange(WAVES + 1), multiple=True, default=SIZES, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@out_option
def main(targets: tuple[int, ...], rounds: int, out: Path | None) -> None:
    figures: dict[str, Any] = {}
    for size in targets:
        found = measured(size, rounds)
        figures[str(size)] = {name: spread(each) for name, each in found.items()}
        for name, each in found.items():
            click.echo(shown(f"{size}: {name}", each, "ms"))
    save(out, figures)


if __name__ == "__main__":
    main()
