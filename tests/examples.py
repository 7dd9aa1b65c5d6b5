"""How many examples or seeds a test gets that asks for more than the others, or for fewer."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Hypothesis' own default: what a count in a test is relative to."""


def examples(count: int) -> int:
    """Scale a count by the profile: fewer in an ordinary run, more where new examples are looked for."""
    return max(1, count * settings().max_examples // USUAL)


def seeds(count: int) -> range:
    """Return the first of so many fixed seeds: few in an ordinary run, all of them in `make explore`."""
    return range(min(count, examples(count)))


def every(step: int) -> int:
    """Return the step through the places of an exhaustive test: 1 in `make explore`."""
    return 1 if settings().max_examples > USUAL else step
