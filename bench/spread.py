"""Measure ways in turn, show the median and the ends of their times, and save the figures."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

out_option = click.option("--out", type=click.Path(path_type=Path), help="Write the figures here, as JSON.")


def save(out: Path | None, body: Any) -> None:
    """Write the figures to the file of ``--out``, if there is one."""
    if out is not None:
        out.write_text(json.dumps(body, indent=1) + "\n")


def spread(figures: Sequence[float]) -> dict[str, float]:
    """Return ``n``, ``median``, ``least`` and ``most``. Raises ValueError without figures."""
    if not figures:
        raise ValueError("no figures")
    return {
        "n": len(figures),
        "median": round(statistics.median(figures), 3),
        "least": round(min(figures), 3),
        "most": round(max(figures), 3),
    }


def shown(name: str, figures: Sequence[float], unit: str = "s") -> str:
    """Return a line for the screen: the name, the median, the ends."""
    found = spread(figures)
    ends = f"{found['least']:.3f} to {found['most']:.3f}"
    return f"{name:<24}{found['median']:>9.3f} {unit:<3} ({ends}, n={found['n']:.0f})"


def in_turn(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    repeat: Mapping[str, int] | None = None,
    limited: Mapping[str, int] | None = None,
) -> tuple[dict[str, list[float]], Any]:
    """Return the seconds of each way, round after round, and their common answer.

    repeat: calls of a way in each round, by default one; its time is that of one call. limited: the number of
    rounds in which a way takes part, from the first on, by default all. Raises ClickException if answers
    differ.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    answers = set()
    for turn in range(rounds):
        for name, call in ways.items():
            if turn >= (limited or {}).get(name, rounds):
                continue
            times = (repeat or {}).get(name, 1)
            began = time.perf_counter()
            for _ in range(times):
                answer = call()
            seconds[name].append((time.perf_counter() - began) / times)
            answers.add(answer)
        if len(answers) != 1:
            raise click.ClickException(f"the ways find different answers: {sorted(answers)}")
    return seconds, answer


def ratios(peer: Sequence[float], mine: Sequence[float]) -> list[float]:
    """Return the ratio of the peer's figure to mine, round by round.

    A round without the peer's own figure is compared with the peer's last one.
    """
    return [peer[min(n, len(peer) - 1)] / figure for n, figure in enumerate(mine)]


def compared(seconds: Mapping[str, Sequence[float]], peer: str) -> dict[str, Any]:
    """Return the spread of each way's seconds, and how many times faster than the peer each way is."""
    others = {name: ratios(seconds[peer], figures) for name, figures in seconds.items() if name != peer}
    return {
        "seconds": {name: spread(figures) for name, figures in seconds.items()},
        "times_faster": {name: spread(figures) for name, figures in others.items()},
    }


def show_compared(seconds: Mapping[str, Sequence[float]], peer: str, digits: int) -> None:
    """Print each way's milliseconds, and how many times faster than the peer it is."""
    for name, figures in seconds.items():
        click.echo(shown(f"  {name}", [s * 1000 for s in figures], "ms"))
    for name, ratio in compared(seconds, peer)["times_faster"].items():
        ends = f"({ratio['least']:.{digits}f} to {ratio['most']:.{digits}f})"
        click.echo(f"  {name}: {ratio['median']:.{digits}f} times faster than {peer} {ends}")
