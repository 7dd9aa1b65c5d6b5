"""The middle and the ends of a handful of figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(figures: Sequence[float]) -> dict[str, float]:
    """``n``, ``median``, ``least`` and ``most``; ValueError for no figures at all."""
    if not figures:
        raise ValueError("no figures")
    return {
        "n": len(figures),
        "median": round(statistics.median(figures), 3),
        "least": round(min(figures), 3),
        "most": round(max(figures), 3),
    }


def shown(name: str, figures: Sequence[float], unit: str = "s") -> str:
    """A line for the screen: the name, the median, the ends."""
    found = spread(figures)
    ends = f"{found['least']:.3f} to {found['most']:.3f}"
    return f"{name:<24}{found['median']:>9.3f} {unit:<3} ({ends}, n={found['n']:.0f})"
