"""Measure what security adds to the cut-over's window: ``python -m bench.window``.

Each round plays the demo once without security and once with it, on labs that are otherwise equal. The window
is the demo's ``window_s``: from FENCE to the first write that dest serves. Only a move whose claims all held
counts. The ratio is that of the two windows of a round. Run it as root.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from bench.spread import out_option, ratios, save, shown, spread

PLAIN, SECURED = "plain", "secured"
FIGURES = ("window_s", "floor_s", "lost", "duplicated", "sessions_before", "sessions_preserved")
MOVE_S = 3600


def moved(directory: Path, options: tuple[str, ...]) -> dict[str, Any]:
    """Play the demo with these options and return its figures. Raises ClickException unless it held."""
    command = [sys.executable, "-m", "zkmigrate.lab.demo", "--directory", str(directory), *options]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=MOVE_S, check=False)
    if ended.returncode:
        raise click.ClickException(f"the demo ended with {ended.returncode}:\n{ended.stdout[-3000:]}")
    result = json.loads((directory / "result.json").read_text())
    return {name: result[name] for name in FIGURES}


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Rounds to play.")
@click.option("--security", default="full", show_default=True, help="The kinds of the secured lab.")
@click.option("--source-version", default="3.8.4", show_default=True, help="ZooKeeper of source.")
@click.option("--dest-version", default="3.9.5", show_default=True, help="ZooKeeper of dest.")
@click.option("--kafka-version", default="3.9.1", show_default=True, help="Kafka of the brokers.")
@out_option
def main(rounds: int, security: str, out: Path | None, **versions: str) -> None:
    """Compare the window of a secured move with that of a plain one, round by round."""
    shape = [word for name, value in versions.items() for word in (f"--{name.replace('_', '-')}", value)]
    ways = {PLAIN: (*shape,), SECURED: (*shape, "--security", security)}
    moves: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(prefix="zkm-window-") as folder:
        for turn in range(rounds):
            for name, options in ways.items():
                moves[name].append(moved(Path(folder) / f"{name}-{turn}", options))
                click.echo(f"round {turn + 1}, {name}: {json.dumps(moves[name][-1])}")
    windows = {name: [move["window_s"] for move in played] for name, played in moves.items()}
    ratio = ratios(windows[SECURED], windows[PLAIN])
    for name, figures in windows.items():
        click.echo(shown(name, figures))
    click.echo(shown(f"{SECURED} / {PLAIN}", ratio, ""))
    save(out, {"moves": moves, "ratio": spread(ratio), **versions, "security": security})


if __name__ == "__main__":
    main()
