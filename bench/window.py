"""The window and its parts against the floor, each from a whole demo: ``python -m bench.window --runs 10``.

Window: from the beginning of FENCE to the first write that dest serves. Floor: how long three participants
alone take to start on the same data, in the same demo; no window can be shorter. The parts of the window are
the steps of the cut-over; *clients* is the rest after OPEN, until the first client is back.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from bench.spread import out_option, save, shown, spread

PARTS = ("fence", "drain", "cut", "stop", "prove", "seal", "go", "serve", "check", "open")
_DEMO_LIMIT_S = 1200


def figures(result: dict[str, Any]) -> dict[str, float]:
    """The figures of one demo, in seconds; ``result`` is its result.json.

    Of a step that began twice the last visit counts. Raises KeyError or TypeError without a window.
    """
    last = {step["name"]: step["seconds"] for step in result["steps"]}
    parts = {part: float(last[f"cutover.{part}"]) for part in PARTS}
    window, floor = float(result["window_s"]), float(result["floor_s"])
    return {
        "window": window,
        "floor": floor,
        "window / floor": window / floor,
        **parts,
        "clients": window - sum(parts.values()),
        "longest producer gap": float(result["longest_ack_gap_s"]),
    }


def one(directory: Path, *more: str) -> dict[str, float] | None:
    """Run one demo; None, and its last lines on the screen, when it failed or a claim did not hold.

    more: options of the demo.
    """
    argv = [sys.executable, "-m", "zkmigrate.lab.demo", "--directory", str(directory), *more]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DEMO_LIMIT_S, check=False
    )
    if done.returncode:
        click.echo("\n".join((done.stdout + done.stderr).splitlines()[-40:]), err=True)
        return None
    return figures(json.loads((directory / "result.json").read_text()))


@click.command()
@click.option("--runs", default=10, show_default=True, help="Demos, one after the other.")
@click.option("--tree-mb", default=0, show_default=True, help="Megabytes of filler outside the chroot.")
@click.option("--node-kb", default=100, show_default=True, help="Kilobytes of each of them.")
@click.option(
    "--session-timeout-ms",
    help="Of brokers and raw clients: large trees need more, or are refused before FENCE.",
)
@out_option
def main(runs: int, tree_mb: int, node_kb: int, session_timeout_ms: str | None, out: Path | None) -> None:
    """Measure the window against the floor; ends with 1 when a demo failed."""
    more = ["--tree-size", str(tree_mb * 1000 // node_kb), "--tree-node-bytes", str(node_kb * 1000)]
    if session_timeout_ms is not None:
        more += ["--session-timeout-ms", session_timeout_ms]
    seen: list[dict[str, float]] = []
    failed = 0
    for number in range(1, runs + 1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="zkm-bench-") as directory:
            found = one(Path(directory) / "demo", *more)
        took = time.monotonic() - began
        if found is None:
            failed += 1
            click.echo(f"{number}/{runs}: failed after {took:.0f} s")
            continue
        seen.append(found)
        ratio = found["window / floor"]
        click.echo(
            f"{number}/{runs}: window {found['window']:.3f} s, floor {found['floor']:.3f} s, "
            f"ratio {ratio:.2f}; {took:.0f} s, about {took * (runs - number) / 60:.0f} min left"
        )
        summary = {name: spread([run[name] for run in seen]) for name in found}
        save(out, {"tree_mb": tree_mb, "failed": failed, "summary": summary, "runs": seen})
    if seen:
        click.echo("\n".join(shown(name, [run[name] for run in seen], unit(name)) for name in seen[0]))
    if failed:
        click.echo(f"{failed} of {runs} demos failed")
    sys.exit(1 if failed else 0)


def unit(name: str) -> str:
    """Ratios have none."""
    return "" if "/" in name else "s"


if __name__ == "__main__":
    main()
